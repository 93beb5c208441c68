"""Dropout that a CPU draws quickly, for hidden states and for attention weights.

Srivastava et al. 2014: x ⊙ m / (1 - p), each m 0 with probability p and else 1. The same distribution as torch's. Torch
draws a number for every element, one after the other, which on a CPU took a sixth of a training step in bf16; here one
64-bit number of torch's generator serves four elements, 16 bits each. That rounds p to a multiple of 2^-16; the scale
is of the rounded p, so the mean stays exact. In eval mode, without dropout, and on a GPU everything is torch's own.
"""

import math

import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

ATTENTION = "sdpa_fast_dropout"
"""Name of `attend` in the backbone's configuration, in place of `sdpa`."""
_LEVELS = 1 << 16


def drop(x: torch.Tensor, p: float, training: bool = True) -> torch.Tensor:
    """x with each element zero with probability p (to 2^-16) and else divided by 1 - p; x itself if not training."""
    dropped = round(p * _LEVELS)
    if not training or x.device.type != "cpu" or not 0 < dropped < _LEVELS:
        return nn.functional.dropout(x, p, training)
    words = torch.empty(math.ceil(x.numel() / 4), dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)  # uniform on -2^15 ... 2^15 - 1
    last = dropped - _LEVELS // 2 - 1  # up to here an element is dropped
    kept = bits.clamp_(last, last + 1).sub_(last)  # 0 or 1; a comparison and its cast take ten times as long
    return (x * kept.to(x.dtype)).mul_(_LEVELS / (_LEVELS - dropped))


class Dropout(nn.Dropout):
    """`nn.Dropout` by `drop`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return drop(input, self.p, self.training)


def fused_attention(query, key, value, mask=None, dropout: float = 0.0, scale: float | None = None) -> torch.Tensor:
    """Torch's `scaled_dot_product_attention`, in single steps where that is slow: on a CPU with dropout or in bf16.

    query, key, value and the result are (B, H, S, w); a mask is boolean or additive, (B, 1, S, S) or (B, 1, 1, S).
    """
    if query.device.type != "cpu" or (dropout == 0 and query.dtype != torch.bfloat16):
        return nn.functional.scaled_dot_product_attention(query, key, value, mask, dropout, scale=scale)
    scores = (query * (scale or query.shape[-1] ** -0.5)) @ key.transpose(-1, -2)  # (B, H, S, S)
    if mask is not None:
        if mask.dtype == torch.bool:  # made additive while it is still small, one for all heads
            mask = scores.new_zeros(mask.shape).masked_fill_(~mask, torch.finfo(scores.dtype).min)
        scores += mask
    weights = drop(scores.softmax(-1).to(value.dtype), dropout)  # under autocast softmax gives float32
    return weights @ value


def attend(module, query, key, value, attention_mask, dropout: float = 0.0, scaling: float | None = None, **kwargs):
    """`fused_attention` as Transformers calls it: the result is (B, S, H, w), and there are no weights to give."""
    if query.device.type != "cpu":
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    return fused_attention(query, key, value, attention_mask, dropout, scaling).transpose(1, 2), None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, attend)
ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION, sdpa_mask)


def use_fast_dropout(module: nn.Module) -> nn.Module:
    """Makes every `nn.Dropout` in a module a `Dropout`, and sdpa `attend`, in place. Weights and keys stay."""
    for part in module.modules():
        if type(part) is nn.Dropout:
            part.__class__ = Dropout
        if hasattr(part, "fused"):  # minbert.SelfAttention
            part.fused = fused_attention
        if getattr(getattr(part, "config", None), "_attn_implementation", None) == "sdpa":
            part.config._attn_implementation = ATTENTION
    return module
