"""The precision in which matrix products run: float32, on a GPU perhaps in TF32, or bf16 or fp16 by autocast."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from palslib.common.names import check_name
from palslib.common.processes import processor, say

_TYPES = {"float32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def precision_of(asked: str, device: torch.device) -> str:
    """The precision for a run's `precision` on a device. `auto` is bf16 where the device has matrix units or (of CPUs,
    x86 alone) instructions for it, fp16 on a GPU that has matrix units for that alone (V100, T4), else float32; other
    values stay as they are. If bf16 is asked for on a CPU for which `auto` would take float32, a line on standard error
    says so.

    Raises ValueError for fp16 and TF32 without a GPU.
    """
    gpu = device.type == "cuda"
    if asked in ("fp16", "tf32") and not gpu:
        raise ValueError(f"precision={asked!r} needs a GPU; on a CPU give 'bf16', 'float32' or 'auto'")
    if asked == "auto" and gpu:
        half = "fp16" if torch.cuda.get_device_capability() >= (7, 0) else "float32"
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else half
    # Without AMX, or where a virtual machine hides it, Intel's processors multiply bf16 at half of float32's rate (84
    # and 159 GFLOP/s on one thread of a Xeon); AMD's are faster in bf16. Without bf16 instructions: 6 and 70.
    fast = torch.cpu._is_avx512_bf16_supported() and "Intel" not in processor()
    best = "bf16" if fast or torch.cpu._is_amx_tile_supported() else "float32"
    if (asked, best, gpu) == ("bf16", "float32", False):
        say(["precision='auto' would choose float32 on this processor"], "precision='bf16'")
    return best if asked == "auto" else asked


def check_surroundings() -> None:
    """Raises ValueError where torch's settings around a run would change its results."""
    within = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
    if torch.get_default_dtype() != torch.float32 or within or not torch.is_grad_enabled():
        raise ValueError(
            "train outside of torch.autocast (a run has the setting `precision`), torch.no_grad and "
            "torch.inference_mode, and with torch.set_default_dtype(torch.float32)"
        )


@contextmanager
def autocast(precision: str, device: torch.device) -> Iterator[None]:
    """A block in which matrix products run in bf16 or fp16, or (`float32`, `tf32`) without autocast.

    Torch keeps the weights that it has cast, for all threads, until an outermost block of autocast ends. So where this
    block is in another one, weights cast before an update are removed; and without need no block begins or ends.
    """
    kind = _TYPES[check_name("precision", precision, _TYPES)]
    if kind == torch.float32 and not torch.is_autocast_enabled(device.type):
        yield
        return
    torch.clear_autocast_cache()
    with torch.autocast(device.type, kind, enabled=kind != torch.float32):
        yield


@contextmanager
def products(precision: str) -> Iterator[None]:
    """A block in which products of float32 are exact to float32, or, for `tf32`, round their factors to TF32's 10 bits,
    in backward passes too. What the process had set before is set again at the end."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
