"""What only a GPU can show: `PALSLIB_GPU=1 pytest tests/training/test_on_a_gpu.py`; skipped without it. See
`test_gpu_step.py` for what can be shown without one."""

import numpy as np
import pytest
import torch
from shapes import batch, randomised
from small_runs import small

from palslib import RunConfig
from palslib.common.precision import autocast
from palslib.methods.table import METHODS
from palslib.training.loop import Run, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU and PALSLIB_GPU=1")
GPU = torch.device("cuda")


def config(folder, method="pals-204", **more) -> RunConfig:
    """A run of twelve steps."""
    size = 12 if METHODS[method].has_size else None
    return small(folder, tasks=("rte", "stsb"), steps=12, batch_size=8, method=method, size=size, **more)


def on(device, method: str, task: str, precision: str = "float32"):
    """Logits and gradients of the same tiny model and batch on a device, fetched."""
    model = randomised(method).to(device)
    given = {name: x.to(device) for name, x in batch().items()}
    with autocast(precision, device):
        logits = model(task=task, **given).logits
    logits.float().square().sum().backward()
    return logits.float().cpu(), {n: p.grad.cpu() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("task", ["rte", "stsb"])
@pytest.mark.parametrize("method", METHODS)
def test_a_gpu_computes_what_a_cpu_computes(method, task):
    (here, own), (there, others) = on(torch.device("cpu"), method, task), on(GPU, method, task)
    torch.testing.assert_close(there, here, rtol=1e-4, atol=1e-4)
    assert own.keys() == others.keys()
    for name, gradient in own.items():
        torch.testing.assert_close(others[name], gradient, rtol=1e-3, atol=1e-3 * float(gradient.abs().max() + 1e-3))


@pytest.mark.parametrize("method", ["shared", "pals-204", "houlsby-64"])
def test_bf16_on_a_gpu_is_near_float32(method):
    near, _ = on(GPU, method, "rte", "bf16")
    exact, _ = on(GPU, method, "rte")
    assert (near - exact).norm() / exact.norm() < 0.05


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("method", ["shared", "pals-204", "low-rank-100"])
def test_a_step_on_a_gpu_never_waits_for_it(method, precision, tmp_path):
    run = Run(config(tmp_path, method, precision=precision), tmp_path)
    run.train_step()  # the first one makes the optimiser's moments
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(4):
            run.train_step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    run.read_losses()
    assert next(run.model.parameters()).is_cuda and np.isfinite(run.losses).all()


def test_a_run_that_is_stopped_on_a_gpu_goes_on_as_if_it_were_not(tmp_path):
    whole = train(config(tmp_path / "whole"))
    parts = config(tmp_path / "parts")
    assert train(parts, on_step=lambda run: run.step < 5)["status"] == "stopped"
    assert train(parts)["history"][-1]["loss"] == pytest.approx(whole["history"][-1]["loss"], rel=1e-3)
