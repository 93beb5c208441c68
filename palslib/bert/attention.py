"""Multi-head attention over rows without padding, both BERT's and the projected attention of a task.

    context_i = softmax(q_i kᵀ / √w) v       over the word pieces of its own row; w is the width of a head

Queries, keys and values of all word pieces are (N, H·w). The implementation is chosen by name, as in Transformers
(`config._attn_implementation`): `sdpa` and `eager` are computed here, with each group of similar rows spread over
(B_g, S_g), and on a GPU by torch's fused kernel. Any other name (`flash_attention_2`) is a function of Transformers'
attention interface, which gets the rows end to end and where each begins.
"""

from types import SimpleNamespace

import torch
from torch.nn import functional
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from palslib.bert.cpu_attention import CpuAttention
from palslib.bert.rows import Rows


def attend(
    q, k, v, rows: Rows, heads: int, dropout: float = 0.0, implementation: str | None = "sdpa", look=None
) -> torch.Tensor:
    """The context (N, H·w) of queries, keys and values, each (N, H·w).

    Args:
        dropout: the dropout probability of the attention weights; 0 in eval mode.
        look: called with the weights (B_g, H, S_g, S_g) of each group of rows before dropout; those of padding keys
            are 0. None if nothing inspects them.
    """
    if torch.is_autocast_enabled(q.device.type):  # a task's own term may have left one of them in float32
        q, k, v = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (q, k, v))
    if look is None and implementation not in (None, "sdpa", "eager") and len(q) == sum(rows.lengths):
        # A fused kernel has no weights to show to `look`, and takes no padding.
        return _by_name(implementation, q, k, v, rows, heads, dropout)
    if (q.device.type == "cpu" and not torch.compiler.is_exporting()) or look is not None:
        return CpuAttention.apply(q, k, v, rows, heads, dropout, look)
    return fused(q, k, v, rows, heads, dropout)


def fused(q, k, v, rows: Rows, heads: int, dropout: float = 0.0) -> torch.Tensor:
    """The context (N, H·w) by torch's fused kernels, as on a GPU.

    In bf16 they need heads whose width is a multiple of 8, and that of PALs is not (204 / 12 = 17): zeros are added,
    which change no product.
    """
    contexts, w = [], q.shape[-1] // heads
    all_three = torch.cat([q, k, v], -1)  # a GPU's step is a thousand small operations: spread them at once
    for group in rows.groups:
        grid = group.spread(all_three[group.first : group.last]).view(group.size, group.width, 3, heads, w)
        if -w % 8 and not torch.compiler.is_exporting():
            grid = functional.pad(grid, (0, -w % 8))
        of_group = grid.permute(2, 0, 3, 1, 4).unbind()  # each (B_g, H, S_g, w)
        mask = group.mask_as(q.dtype)
        context = functional.scaled_dot_product_attention(*of_group, mask, dropout, scale=w**-0.5)[..., :w]
        contexts.append(group.gather(context.transpose(1, 2).reshape(group.size * group.width, -1)))
    if after := q.shape[0] - rows.groups[-1].last:  # `Rows.filled`
        contexts.append(q.new_zeros(after, q.shape[-1]))
    return torch.cat(contexts) if len(contexts) > 1 else contexts[0]


def _by_name(name: str, q, k, v, rows: Rows, heads: int, dropout: float) -> torch.Tensor:
    """The context by a function of Transformers' attention interface, called as for a batch without padding."""
    if name == "flex_attention":  # it takes a mask, and not where rows begin
        raise ValueError("flex_attention would mix the rows of a batch: give sdpa, eager or flash_attention_2")
    function = ALL_ATTENTION_FUNCTIONS[name]
    ends = torch.tensor([0, *rows.lengths], device=q.device, dtype=torch.int32).cumsum(0, dtype=torch.int32)
    bounds = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": rows.width, "max_length_k": rows.width}
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(0, 1)[None] for x in (q, k, v))  # (1, H, N, w)
    module = torch.nn.Linear(1, 1, dtype=q.dtype, device="meta")  # flash attention reads the type of a linear map
    module.is_causal, module.config = False, SimpleNamespace(_attn_implementation=name)
    module.train(dropout > 0)
    context, _ = function(module, q, k, v, None, dropout=dropout, scaling=q.shape[-1] ** -0.5, **bounds)
    return context[0].flatten(-2)  # (1, N, H, w)
