"""Multi-head attention over rows without padding, both BERT's and the projected attention of a task.

    context_i = softmax(q_i kᵀ / √w) v       over the word pieces of its own row; w is the width of a head

Keys and values of all word pieces are (N, H·w), and so are queries, unless only those of [CLS] are wanted. Each group
of similar rows is spread over (B_g, S_g). On a CPU our own code multiplies, on a GPU torch's fused kernel.
"""

import torch
from torch.nn import functional

from palslib.bert.cpu_attention import CpuAttention
from palslib.bert.rows import Rows


def attend(q, k, v, rows: Rows, heads: int, dropout: float = 0.0, look=None) -> torch.Tensor:
    """The context (N, H·w) of queries, keys and values, each (N, H·w); of [CLS] alone, (B, H·w), for `first_alone`.

    Args:
        dropout: the dropout probability of the attention weights; 0 in eval mode.
        look: called with the weights (B_g, H, S_g, S_g) of each group of rows before dropout; those of padding keys
            are 0. None if nothing inspects them.
    """
    if torch.is_autocast_enabled(q.device.type):  # a task's own term may have left one of them in float32
        q, k, v = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (q, k, v))
    if (q.device.type == "cpu" and not torch.compiler.is_exporting()) or look is not None:
        return CpuAttention.apply(q, k, v, rows, heads, dropout, look)
    return fused(q, k, v, rows, heads, dropout)


def fused(q, k, v, rows: Rows, heads: int, dropout: float = 0.0) -> torch.Tensor:
    """The context by torch's fused kernels, as on a GPU, where all rows are one group.

    In bf16 they need heads whose width is a multiple of 8, and that of PALs is not (204 / 12 = 17): zeros are added,
    which change no product.
    """
    (group,), (asked,), w = rows.groups, rows.queries, q.shape[-1] // heads
    more = 0 if torch.compiler.is_exporting() else -w % 8
    parts = [k, v] if rows.of_first else [k, v, q]
    joined = torch.cat(parts, -1)[: group.last]  # a GPU's step is a thousand small operations: spread them at once
    grid = group.spread(joined).view(group.size, group.width, len(parts), heads, w)
    keys, values, *queries = _wider(grid, more).permute(2, 0, 3, 1, 4).unbind()  # each (B, H, S, w)
    if rows.of_first:
        queries = [_wider(asked.split(q, heads), more)]  # (B, H, 1, w)
    mask = None if asked.mask is None else asked.mask.to(q.dtype)
    context = functional.scaled_dot_product_attention(*queries, keys, values, mask, dropout, scale=w**-0.5)
    context = asked.gather(context[..., :w].transpose(1, 2).reshape(asked.size * asked.width, -1))
    after = q.shape[0] - asked.last  # `Rows.filled`
    return functional.pad(context, (0, 0, 0, after)) if after else context


def _wider(x: torch.Tensor, more: int) -> torch.Tensor:
    """x (..., w) with zeros to w + `more`."""
    return functional.pad(x, (0, more)) if more else x
