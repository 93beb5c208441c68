"""Does what a task adds act? Its size beside the hidden states, how its heads look, and the score without it.

‖TS(h)‖ / ‖h‖ is the length of what a task function adds to a word piece, over that of the layer's input h: a mean over
word pieces. Adam moves a number by at most rate × steps, and V^D starts at zero, so that in a short run it can stay
near nothing while the scores look as ever.
"""

from collections.abc import Mapping
from contextlib import contextmanager

import numpy as np
import torch

from palslib.bert.dropout import without_dropout
from palslib.bert.layer import PLAIN
from palslib.data.tokens import TokenisedTask, some_rows
from palslib.training.evaluation import autocast

ROWS = 64
"""Dev rows of each task that sizes and entropies are measured on."""


@contextmanager
def switched_off(model):
    """Within the block nothing that a task adds within BERT acts: no TS(h) (V^D's bias neither), no adapters, scales or
    norms of its own. What is on top of BERT, poolers and heads stay."""
    with model.watch(lambda point, layer, adaptation: PLAIN, "task"):
        yield


def relative_entropies(weights: torch.Tensor) -> torch.Tensor:
    """The entropy of each word piece's attention as a share of the greatest, log S: 1 where it looks at all S alike.

    Args:
        weights: (B, H, S, S) of rows of several lengths, the keys of padding 0. Rows of one word piece, which have no
            choice, and padding are left out.

    Returns (n, H) for the n word pieces that are left.
    """
    pieces = (weights > 0).flatten(1, 2).any(1)  # (B, S), which are no padding
    lengths = pieces.sum(1)
    relative = torch.special.entr(weights).sum(-1) / lengths.log()[:, None, None]  # (B, H, S)
    return relative.transpose(1, 2)[pieces & (lengths > 1)[:, None]]


def measure(model, dev_data: Mapping[str, Mapping[str, TokenisedTask]], precision: str = "float32") -> dict:
    """Task -> `size`, ‖TS(h)‖ / ‖h‖ of each layer with a task function, and `entropy`, that of the heads that the task
    adds: a mean over heads and word pieces of each layer. Of what there is, on at most `ROWS` rows, the same ones in
    every process."""
    found = {}
    for task, splits in dev_data.items():
        measured: dict[str, dict[int, list]] = {"size": {}, "entropy": {}}
        hidden = {}

        def look(point, layer, value, measured=measured, hidden=hidden):
            if point == "hidden":
                hidden[layer] = value.float().norm(dim=-1)
            elif point == "task function":
                measured["size"].setdefault(layer, []).append(value.float().norm(dim=-1) / hidden[layer])
            elif (entropies := relative_entropies(value.float())).numel():
                measured["entropy"].setdefault(layer, []).append(entropies.flatten())
            return value

        data = some_rows(next(iter(splits.values())), ROWS)
        rows = data.batch(np.arange(len(data)), device=model.device)["rows"]
        watched = model.watch(look, "hidden", "task function", "task attention")
        with without_dropout(model), torch.inference_mode(), autocast(precision, model.device), watched:
            model(task=task, rows=rows)
        means = {
            name: {layer: float(torch.cat(values).mean()) for layer, values in of_layer.items()}
            for name, of_layer in measured.items()
            if of_layer
        }
        if means:
            found[task] = means
    return found
