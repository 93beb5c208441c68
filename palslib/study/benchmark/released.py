"""A training step's forward pass as in the released code (AsaCooperStickland/Bert-n-Pals).

Attention is made of single autograd operations, which keep scores and weights, and dropout is torch's own. The released
code also pads to 128 and clips and updates each tensor by itself; recipes do that (`plan/recipes.py`, ledger D10, D14).
"""

import math
from contextlib import ExitStack
from unittest.mock import patch

from torch.nn import functional

from palslib.bert import encoders, layer
from palslib.bert.rows import Rows
from palslib.methods import pal
from palslib.model import multi_task
from palslib.training.loop import Run


def attend(q, k, v, rows: Rows, heads: int, dropout: float = 0.0, look=None):
    """`bert.attention.attend` over rows that are all padded to one width: (B·S, H·w) to (B·S, H·w)."""
    (group,) = rows.groups
    q, k, v = (x.view(group.size, group.width, heads, -1).transpose(1, 2) for x in (q, k, v))  # (B, H, S, w)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])  # (B, H, S, S)
    weights = functional.dropout((scores + group.mask[:, :, :1]).softmax(-1), dropout)
    return (weights @ v).transpose(1, 2).reshape(group.size * group.width, -1)


class ReleasedRun(Run):
    """A training run whose steps use the released code's attention and dropout, and compute all of the last layer; its
    rows must be padded."""

    def train_step(self) -> None:
        self.model.whole_last_layer = True
        with ExitStack() as stack:
            for module in (layer, pal):
                stack.enter_context(patch.object(module, "attend", attend))
            for module in (layer, encoders, multi_task):
                stack.enter_context(patch.object(module, "drop", functional.dropout))
            super().train_step()
