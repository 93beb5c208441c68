"""TF32: products of float32 with 10 bits, on a GPU alone, and only while a run lasts."""

import pytest
import torch

from palslib.common.precision import autocast, precision_of, products


def test_tf32_needs_a_gpu(monkeypatch):
    with pytest.raises(ValueError, match="precision='tf32' needs a GPU; on a CPU give 'bf16', 'float32' or 'auto'"):
        precision_of("tf32")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert precision_of("tf32") == "tf32"


def test_products_are_exact_but_for_tf32_and_then_as_before():
    """ "high" is torch's word for TF32. What a user had set enters no run, and comes back after an error too."""
    torch.set_float32_matmul_precision("medium")
    try:
        for precision, word in (("float32", "highest"), ("bf16", "highest"), ("tf32", "high")):
            with pytest.raises(KeyError), products(precision), autocast(precision, torch.device("cpu")):
                assert torch.get_float32_matmul_precision() == word
                assert torch.is_autocast_enabled("cpu") == (precision == "bf16")
                raise KeyError
            assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
