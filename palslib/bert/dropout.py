"""Dropout that a CPU draws quickly.

Srivastava et al. 2014: x ⊙ m / (1 - p), each m 0 with probability p and else 1. The same distribution as torch's. Torch
draws a number for every element, one after the other, which on a CPU took a sixth of a training step in bf16; here one
64-bit number of torch's generator serves four elements, 16 bits each. That rounds p to a multiple of 2^-16; the scale
is of the rounded p, so the mean stays exact. In eval mode, without dropout, and on a GPU everything is torch's own.
"""

import math
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional

_LEVELS = 1 << 16


def kept(like: torch.Tensor, p: float) -> tuple[torch.Tensor, float]:
    """0 with probability p (to 2^-16) and else 1 for every element of a tensor, and what the ones count."""
    dropped, size = round(p * _LEVELS), like.numel()
    if like.device.type != "cpu" or not 0 < dropped < _LEVELS:
        return functional.dropout(torch.ones_like(like), p), 1.0
    words = torch.empty(math.ceil(size / 4), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[:size].view(like.shape)  # uniform on -2^15 ... 2^15 - 1
    last = dropped - _LEVELS // 2 - 1  # up to here an element is dropped
    ones = bits.clamp_(last, last + 1).sub_(last)  # a comparison and its cast take ten times as long
    return ones.to(like.dtype), _LEVELS / (_LEVELS - dropped)


def drop(x: torch.Tensor, p: float, training: bool = True) -> torch.Tensor:
    """x with each element zero with probability p (to 2^-16) and else divided by 1 - p; x itself if not training."""
    if not training or x.device.type != "cpu" or not 0 < round(p * _LEVELS) < _LEVELS:
        return functional.dropout(x, p, training)
    ones, scale = kept(x, p)
    return (x * ones).mul_(scale)


@contextmanager
def without_dropout(module: nn.Module):
    """Within the block a module is in eval mode; afterwards, after an error too, each part is in the mode it was in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
