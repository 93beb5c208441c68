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
    whole = len(q) == sum(rows.lengths)  # no padding all the same, which such a function would take for pieces
    if look is None and whole and (implementation or "sdpa") not in OURS:  # whose weights never exist
        return _by_name(implementation, q, k, v, rows, heads, dropout)
    if q.device.type == "cpu" or look is not None:
        return _Attention.apply(q, k, v, rows, heads, dropout, look)
    contexts = []
    for group in rows.groups:
        of_group = (_split(_spread(x[group.first : group.last], group), group, heads) for x in (q, k, v))
        mask = None if group.mask is None else group.mask.to(q.dtype)
        context = functional.scaled_dot_product_attention(*of_group, mask, dropout)
        contexts.append(_gather(context.transpose(1, 2).reshape(group.size * group.width, -1), group))
    return torch.cat(contexts)


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


def _join(x: torch.Tensor, group: Group) -> torch.Tensor:
    """(B_g, H, S_g, w) to (n, H·w)."""
    return _gather(x.transpose(1, 2).reshape(group.size * group.width, -1), group)


class _Attention(torch.autograd.Function):
    """All groups' attention in single steps, with its gradient by hand.

    torch's own has no fused kernel for a CPU in training, and keeps and clears more between the steps than they need.
    Softmax is in float32 at least, whatever the products are in.
    """

    @staticmethod
    def forward(ctx, q, k, v, rows: Rows, heads: int, dropout: float, look):
        context, saved = torch.empty_like(q), []
        scale, exact = (q.shape[-1] // heads) ** -0.5, torch.promote_types(q.dtype, torch.float32)
        for group in rows.groups:
            n = slice(group.first, group.last)
            Q, K, V = (_split(_spread(x[n], group), group, heads).contiguous() for x in (q, k, v))
            scores = (Q @ K.transpose(-1, -2)).to(exact).mul_(scale)  # (B_g, H, S_g, S_g)
            weights = (scores if group.mask is None else scores.add_(group.mask)).softmax(-1).to(q.dtype)
            if look is not None:
                look(weights)
            keep, dropped = None, weights
            if dropout > 0:
                keep, by = kept(weights, dropout)
                keep = keep.mul_(by)
                dropped = weights * keep
            context[n] = _join(dropped @ V, group)
            saved += [Q, K, V, weights, keep]
        ctx.rows, ctx.heads, ctx.scale = rows, heads, scale
        ctx.save_for_backward(*saved)
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        dq, dk, dv = (torch.empty_like(grad) for _ in range(3))
        saved = ctx.saved_tensors  # once: recomputed activations can be had a single time
        for i, group in enumerate(ctx.rows.groups):
            Q, K, V, weights, keep = saved[5 * i : 5 * i + 5]
            n = slice(group.first, group.last)
            C = _split(_spread(grad[n].to(Q.dtype), group), group, ctx.heads).contiguous()  # (B_g, H, S_g, w)
            dropped = weights if keep is None else weights * keep
            dv[n] = _join(dropped.transpose(-1, -2) @ C, group)
            dW = C @ V.transpose(-1, -2)  # (B_g, H, S_g, S_g)
            if keep is not None:
                dW *= keep
            dS = torch._softmax_backward_data(dW, weights, -1, dW.dtype).mul_(ctx.scale)
            dq[n] = _join(dS @ K, group)
            dk[n] = _join(dS.transpose(-1, -2) @ Q, group)
        return dq, dk, dv, None, None, None, None
