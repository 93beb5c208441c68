"""The precision in which matrix products run: float32, or bf16 by autocast."""

import torch


def precision_of(asked: str) -> str:
    """The precision for a run's `precision`: `auto` is bf16 where the device has matrix units or instructions for it,
    else float32; `float32` and `bf16` stay."""
    if asked != "auto":
        return asked
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    fast = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return "bf16" if fast else "float32"


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """The context in which matrix products run in bf16, or (`float32`) in which nothing changes."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")
