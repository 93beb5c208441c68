"""Attention with a hand-written gradient, for a CPU and wherever attention weights are inspected.

Torch has no fused attention for training on a CPU, and its separate operations allocate and clear more memory than
needed. Here each group of rows takes a few matrix products, in float32 even where the linear maps are in bf16. With W
the attention weights, W' those that dropout kept, V' = V / (1 - p), O = W' V' and C the gradient of O:

    dS = W' ⊙ (C V'ᵀ) - W ⊙ rowsum(C ⊙ O)        dQ = dS K / √w,  dK = dSᵀ Q / √w,  dV = W'ᵀ C / (1 - p)
"""

import torch
from torch.autograd.function import once_differentiable

from palslib.bert.dropout import kept
from palslib.bert.rows import Group, Rows


def _grid(x: torch.Tensor, group: Group, heads: int, kind: torch.dtype) -> torch.Tensor:
    """(N, H·w) to the group's (B_g, H, S_g, w) of type `kind`; after a row's end comes any piece, which is masked."""
    of_group = group.spread(x[group.first : group.last]) if group.back is None else x.index_select(0, group.back)
    split = group.split(of_group, heads)
    return torch.empty(split.shape, dtype=kind, device=x.device).copy_(split)


def _empty(n: int, like: torch.Tensor, groups: tuple[Group, ...]) -> torch.Tensor:
    """An empty tensor (n, H·w) for `_put` to fill, with zeros after the last group (`Rows.filled`)."""
    out = like.new_empty(n, like.shape[-1])
    out[groups[-1].last :] = 0
    return out


def _put(out: torch.Tensor, x: torch.Tensor, group: Group) -> None:
    """Writes x (B_g, H, S_g, w) into the group's part of `out` (N, H·w), in the type of `out`."""
    part, full = out[group.first : group.last], group.places is None
    grid = part if full else out.new_empty(group.size * group.width, out.shape[-1])
    group.split(grid, x.shape[1]).copy_(x)
    if not full:
        torch.index_select(grid, 0, group.places, out=part)


def _times(weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """weights @ x. Where x is as narrow as a PAL's heads, the transposed product can be three times as fast."""
    if x.shape[-1] > 12:
        return weights @ x
    return (x.transpose(-1, -2) @ weights.transpose(-1, -2)).transpose(-1, -2)


class CpuAttention(torch.autograd.Function):
    """Attention as `apply(q, k, v, rows, heads, dropout, look)`, with the arguments of `attention.attend`."""

    @staticmethod
    def forward(ctx, q, k, v, rows: Rows, heads: int, dropout: float, look):
        context, saved, by = _empty(len(q), q, rows.queries), [], 1.0
        scale, kind = (q.shape[-1] // heads) ** -0.5, torch.promote_types(q.dtype, torch.float32)
        with torch.autocast(q.device.type, enabled=False):
            for group, asked in zip(rows.groups, rows.queries, strict=True):
                Q, K, V = _grid(q, asked, heads, kind), _grid(k, group, heads, kind), _grid(v, group, heads, kind)
                scores = Q.mul_(scale) @ K.transpose(-1, -2)  # (B_g, H, S_g, S_g), or (B_g, H, 1, S_g) for [CLS]
                weights = (scores if asked.mask is None else scores.add_(asked.mask)).softmax(-1)
                if look is not None:
                    look(weights)
                dropped = weights
                if dropout > 0:
                    ones, by = kept(weights, dropout)
                    dropped, V = ones.mul_(weights), V.mul_(by)
                output = _times(dropped, V)  # (B_g, H, S_g, w)
                _put(context, output, asked)
                saved += [Q, K, V, weights, dropped, output]
        ctx.rows, ctx.heads, ctx.scale, ctx.by, ctx.kind, ctx.keys = rows, heads, scale, by, kind, len(k)
        ctx.save_for_backward(*saved)
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        groups, queries = ctx.rows.groups, ctx.rows.queries
        dq = _empty(len(grad), grad, queries)
        dk, dv = (_empty(ctx.keys, grad, groups) for _ in range(2))
        saved = ctx.saved_tensors  # read once: recomputed activations can be unpacked only once
        with torch.autocast(grad.device.type, enabled=False):
            for i, (group, asked) in enumerate(zip(groups, queries, strict=True)):
                Q, K, V, weights, dropped, output = saved[6 * i : 6 * i + 6]
                n = slice(asked.first, asked.last)
                C = asked.split(asked.spread(grad[n]), ctx.heads).to(ctx.kind)  # zeros after a row's end
                C = C.contiguous()  # (B_g, H, S_g, w)
                _put(dv, _times(dropped.transpose(-1, -2), C).mul_(ctx.by), group)
                dS = (C @ V.transpose(-1, -2)).mul_(dropped)  # (B_g, H, S_g, S_g)
                dS.addcmul_(weights, (C * output).sum(-1, keepdim=True), value=-1)
                _put(dq, _times(dS, K).mul_(ctx.scale), asked)
                _put(dk, _times(dS.transpose(-1, -2), Q), group)  # Q is scaled already
        return dq, dk, dv, None, None, None, None
