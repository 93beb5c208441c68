"""Measures of how strongly a task's additions act: their size, the attention of their heads, and scores without them.

‖TS(h)‖ / ‖h‖ is the norm of a task function's output relative to the norm of the layer's input h, averaged over word
pieces. Adam moves a parameter by at most rate × steps, and V^D starts at zero, so in a short run the output can stay
near zero, which the scores do not show.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager

import numpy as np
import torch

from palslib.bert.dropout import without_dropout
from palslib.bert.layer import PLAIN
from palslib.common.precision import autocast
from palslib.data.tokens import TokenisedTask, some_rows

ROWS = 64
"""Dev rows of each task on which sizes and entropies are measured."""


def switched_off(model) -> AbstractContextManager:
    """A block in which all that a task adds within BERT is switched off: TS(h) (including V^D's bias), adapters, scales
    and its own norms. Modules on top of BERT, poolers and heads stay on."""
    return model.watch(lambda point, layer, adaptation: PLAIN, "task")


def relative_entropies(weights: torch.Tensor) -> torch.Tensor:
    """The entropy of each word piece's attention divided by the maximum, log S: 1 for uniform attention to all S.

    Args:
        weights: attention weights (B, H, S, S) of rows of different lengths, 0 for keys of padding. Padding is left
            out, and so are rows of a single word piece, whose maximum is 0.

    Returns (n, H) for the n remaining word pieces.
    """
    pieces = (weights > 0).flatten(1, 2).any(1)  # (B, S), False for padding
    lengths = pieces.sum(1)
    relative = torch.special.entr(weights).sum(-1) / lengths.log()[:, None, None]  # (B, H, S)
    return relative.transpose(1, 2)[pieces & (lengths > 1)[:, None]]


def how_strongly(model, dev_data: Mapping[str, Mapping[str, TokenisedTask]], precision: str = "float32") -> dict:
    """For each task, two means for each layer: `size`, ‖TS(h)‖ / ‖h‖ of the task function over word pieces, and
    `entropy`, the relative entropy of the task's own heads over heads and word pieces. What a task does not have is
    left out. Measured on at most `ROWS` rows, the same ones in every process."""
    measured = {t: _of_task(model, t, next(iter(splits.values())), precision) for t, splits in dev_data.items()}
    return {task: means for task, means in measured.items() if means}


def _of_task(model, task: str, dev: TokenisedTask, precision: str) -> dict[str, dict[int, float]]:
    """The same for one task."""
    measured: dict[str, dict[int, list]] = {"size": {}, "entropy": {}}
    hidden = {}

    def look(point, layer, value):
        if point == "hidden":
            hidden[layer] = value.float().norm(dim=-1)
        elif point == "task function":
            measured["size"].setdefault(layer, []).append(value.float().norm(dim=-1) / hidden[layer])
        elif (entropies := relative_entropies(value.float())).numel():
            measured["entropy"].setdefault(layer, []).append(entropies.flatten())
        return value

    data = some_rows(dev, ROWS)
    rows = data.batch(np.arange(len(data)), device=model.device)["rows"]
    watched = model.watch(look, "hidden", "task function", "task attention")
    with without_dropout(model), torch.inference_mode(), autocast(precision, model.device), watched:
        model(task=task, rows=rows)
    return {
        name: {layer: float(torch.cat(values).mean()) for layer, values in by_layer.items()}
        for name, by_layer in measured.items()
        if by_layer
    }
