"""Fast dropout on a CPU.

Srivastava et al. 2014: x ⊙ m / (1 - p), where each m is 0 with probability p and otherwise 1, as in torch. Torch draws
a number for every element, one after the other, which on a CPU took a sixth of a training step in bf16; here one 64-bit
number of the generator serves four elements, 16 bits each. That rounds p to a multiple of 2^-16; the scale uses the
rounded p, so the mean stays exact. In eval mode, without dropout and on a GPU, torch's own dropout is used.
"""

import math
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn import functional

from palslib.bert.draws import GENERATOR

_LEVELS = 1 << 16


def kept(like: torch.Tensor, p: float) -> tuple[torch.Tensor, float]:
    """A mask of a tensor's shape, 0 with probability p (to 2^-16) and otherwise 1, and the factor of kept elements. On
    a GPU the mask includes the factor, which is then 1."""
    dropped, size = round(p * _LEVELS), like.numel()
    if like.device.type != "cpu" or not 0 < dropped < _LEVELS:
        return functional.dropout(torch.ones_like(like), p), 1.0
    words = torch.empty(math.ceil(size / 4), dtype=torch.int64, device="cpu")
    words.random_(-(2**63), None, generator=GENERATOR.get())
    bits = words.view(torch.int16)[:size].view(like.shape)  # uniform on -2^15 ... 2^15 - 1
    last = dropped - _LEVELS // 2 - 1  # values up to this one are dropped
    ones = bits.clamp_(last, last + 1).sub_(last)  # a comparison and its cast take ten times as long
    return ones.to(like.dtype), _LEVELS / (_LEVELS - dropped)


def drop(x: torch.Tensor, p: float, training: bool = True) -> torch.Tensor:
    """x, each element set to 0 with probability p (to 2^-16), otherwise divided by 1 - p; x itself if not training."""
    if not training or x.device.type != "cpu" or not 0 < round(p * _LEVELS) < _LEVELS:
        return functional.dropout(x, p, training)
    ones, scale = kept(x, p)
    return (x * ones).mul_(scale)


@contextmanager
def without_dropout(module: nn.Module):
    """Puts a module in eval mode during the block; at its end, also after an error, restores the mode of each part."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
