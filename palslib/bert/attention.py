"""Multi-head attention over rows without padding, BERT's and the projected one alike.

    context_i = softmax(q_i kᵀ / √w) v       over the word pieces of its own row; w numbers a head

The query, key and value of every word piece are (N, H·w). What computes them is chosen by name, as in Transformers
(`config._attn_implementation`): `sdpa` and `eager` are done here, each group of like rows spread over (B_g, S_g); on a
GPU by torch's fused kernel. Any other name (`flash_attention_2`) is a function of Transformers' attention interface,
which gets the rows end to end with where each begins.
"""

from types import SimpleNamespace

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from palslib.bert.dropout import kept
from palslib.bert.rows import Group, Rows

OURS = ("sdpa", "eager")
"""Names of implementations that are computed here."""


def attend(
    q, k, v, rows: Rows, heads: int, dropout: float = 0.0, implementation: str | None = "sdpa", look=None
) -> torch.Tensor:
    """The context (N, H·w) of queries, keys and values, each (N, H·w).

    Args:
        dropout: of the attention weights; 0 in eval mode.
        look: called with the weights (B_g, H, S_g, S_g) of each group of rows, without padding's keys and before
            dropout; None where nobody looks.
    """
    if torch.is_autocast_enabled(q.device.type):  # a task's own term may have left one of them in float32
        q, k, v = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (q, k, v))
    if look is None and (implementation or "sdpa") not in OURS and len(q) == sum(rows.lengths):
        # Its weights never exist, and it would take padding for pieces.
        return _by_name(implementation, q, k, v, rows, heads, dropout)
    if (q.device.type == "cpu" and not torch.compiler.is_exporting()) or look is not None:
        return _Attention.apply(q, k, v, rows, heads, dropout, look)
    contexts = []
    for group in rows.groups:
        of_group = (_split(_spread(x[group.first : group.last], group), group, heads) for x in (q, k, v))
        mask = None if group.mask is None else group.mask.to(q.dtype)
        context = functional.scaled_dot_product_attention(*of_group, mask, dropout)
        contexts.append(_gather(context.transpose(1, 2).reshape(group.size * group.width, -1), group))
    return torch.cat([*contexts, q.new_zeros(q.shape[0] - rows.groups[-1].last, q.shape[-1])])


def _by_name(name: str, q, k, v, rows: Rows, heads: int, dropout: float) -> torch.Tensor:
    """A function of Transformers' attention interface, called as it calls one for a batch without padding."""
    function = ALL_ATTENTION_FUNCTIONS[name]
    ends = torch.tensor([0, *rows.lengths], device=q.device, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    bounds = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": rows.width, "max_length_k": rows.width}
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(0, 1)[None] for x in (q, k, v))  # (1, H, N, w)
    module = torch.nn.Linear(1, 1, dtype=q.dtype, device="meta")  # flash attention asks for a linear map's type
    module.is_causal, module.config = False, SimpleNamespace(_attn_implementation=name)
    module.train(dropout > 0)
    context, _ = function(module, q, k, v, None, dropout=dropout, scaling=q.shape[-1] ** -0.5, **bounds)
    return context[0].flatten(-2)  # (1, N, H, w)


def _spread(x: torch.Tensor, group: Group) -> torch.Tensor:
    """(n, d) to (B_g · S_g, d), zeros where a row has ended."""
    if group.places is None:
        return x
    return x.new_zeros(group.size * group.width, x.shape[-1]).index_put((group.places,), x)


def _gather(x: torch.Tensor, group: Group) -> torch.Tensor:
    """(B_g · S_g, d) to (n, d)."""
    return x if group.places is None else x.index_select(0, group.places)


def _split(x: torch.Tensor, group: Group, heads: int) -> torch.Tensor:
    """(B_g · S_g, H·w) to (B_g, H, S_g, w)."""
    return x.view(group.size, group.width, heads, -1).transpose(1, 2)


def _grid(x: torch.Tensor, group: Group, heads: int, kind: torch.dtype) -> torch.Tensor:
    """(N, H·w) to the group's (B_g, H, S_g, w) in another type; after a row's end stands any piece, for the mask."""
    of_group = x[group.first : group.last] if group.back is None else x.index_select(0, group.back)
    split = _split(of_group, group, heads)
    return torch.empty(split.shape, dtype=kind, device=x.device).copy_(split)


def _empty_like(x: torch.Tensor, rows: Rows) -> torch.Tensor:
    """(N, d) to be written by `_put`, zeros behind the last group (`Rows.filled`)."""
    out = torch.empty_like(x)
    out[rows.groups[-1].last :] = 0
    return out


def _put(out: torch.Tensor, x: torch.Tensor, group: Group) -> None:
    """(B_g, H, S_g, w) into the group's part of (N, H·w), of whatever type that is."""
    joined = x.transpose(1, 2).to(out.dtype, memory_format=torch.contiguous_format).flatten(2).flatten(0, 1)
    out[group.first : group.last] = _gather(joined, group)


class _Attention(torch.autograd.Function):
    """All groups' attention in single steps, with its gradient by hand, in float32 whatever the maps around it are in.

    torch's own has no fused kernel for a CPU in training, and keeps and clears more between the steps than they need.
    With W the weights, W' those that dropout kept, O = W' V' and V' = V / (1 - p), and C the gradient of O:

        dS = W' ⊙ (C V'ᵀ) - W ⊙ rowsum(C ⊙ O)        dQ = dS K / √w,  dK = dSᵀ Q / √w,  dV = W'ᵀ C / (1 - p)
    """

    @staticmethod
    def forward(ctx, q, k, v, rows: Rows, heads: int, dropout: float, look):
        context, saved, by = _empty_like(q, rows), [], 1.0
        scale, kind = (q.shape[-1] // heads) ** -0.5, torch.promote_types(q.dtype, torch.float32)
        with torch.autocast(q.device.type, enabled=False):
            for group in rows.groups:
                Q, K, V = (_grid(x, group, heads, kind) for x in (q, k, v))
                scores = Q.mul_(scale) @ K.transpose(-1, -2)  # (B_g, H, S_g, S_g)
                weights = (scores if group.mask is None else scores.add_(group.mask)).softmax(-1)
                if look is not None:
                    look(weights)
                dropped = weights
                if dropout > 0:
                    ones, by = kept(weights, dropout)
                    dropped, V = ones.mul_(weights), V.mul_(by)
                output = dropped @ V  # (B_g, H, S_g, w)
                _put(context, output, group)
                saved += [Q, K, V, weights, dropped, output]
        ctx.rows, ctx.heads, ctx.scale, ctx.by, ctx.kind = rows, heads, scale, by, kind
        ctx.save_for_backward(*saved)
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        dq, dk, dv = (_empty_like(grad, ctx.rows) for _ in range(3))
        saved = ctx.saved_tensors  # once: recomputed activations can be had a single time
        with torch.autocast(grad.device.type, enabled=False):
            for i, group in enumerate(ctx.rows.groups):
                Q, K, V, weights, dropped, output = saved[6 * i : 6 * i + 6]
                n = slice(group.first, group.last)
                C = _split(_spread(grad[n], group), group, ctx.heads).to(ctx.kind)  # zeros after a row's end
                C = C.contiguous()  # (B_g, H, S_g, w)
                _put(dv, (dropped.transpose(-1, -2) @ C).mul_(ctx.by), group)
                dS = (C @ V.transpose(-1, -2)).mul_(dropped)  # (B_g, H, S_g, S_g)
                dS.addcmul_(weights, (C * output).sum(-1, keepdim=True), value=-1)
                _put(dq, (dS @ K).mul_(ctx.scale), group)
                _put(dk, dS.transpose(-1, -2) @ Q, group)  # Q has the scale already
        return dq, dk, dv, None, None, None, None
