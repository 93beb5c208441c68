"""Does what a task adds act? Its size beside the hidden states, how its heads look, and the score without it.

‖TS(h)‖ / ‖h‖ is the length of what a task function adds to a word piece, over that of the layer's input h: a mean over
word pieces. Adam moves a number by at most rate × steps, and V^D starts at zero, so that in a short run it can stay
near nothing while the scores look as ever.
"""

from collections.abc import Mapping
from contextlib import contextmanager

import torch

from palslib.bert.layer import PLAIN
from palslib.data.tokens import TokenisedTask, some_rows
from palslib.training.evaluation import predict

ROWS = 64
"""Dev rows of each task that sizes and entropies are measured on."""


@contextmanager
def switched_off(model, layers=None):
    """Within the block nothing that a task adds within BERT acts, in some layers (all by default): TS(h) = 0, V^D's bias
    too, adapters and scales alike. What is on top of BERT, poolers and heads stay."""

    def plain(point, layer, value):
        return PLAIN if point == "task" and (layers is None or layer in layers) else value

    with model.watch(plain):
        yield


def measure(model, dev_data: Mapping[str, Mapping[str, TokenisedTask]], precision: str = "float32") -> dict:
    """Task -> `size`, ‖TS(h)‖ / ‖h‖ of each layer with a task function, and `entropy`, that of the heads that the task
    adds as a share of the greatest, log S: a mean over heads and word pieces of each layer. Of what there is, on at
    most `ROWS` rows."""
    found = {}
    for task, splits in dev_data.items():
        sizes: dict[int, list] = {}
        entropies: dict[int, list] = {}
        hidden = {}

        def look(point, layer, value, sizes=sizes, entropies=entropies, hidden=hidden):
            if point == "hidden":
                hidden[layer] = value.float().norm(dim=-1)
            elif point == "task function":
                sizes.setdefault(layer, []).append(value.float().norm(dim=-1) / hidden[layer])
            elif point == "task attention":
                weights = value.float()  # (B_g, H, S_g, S_g); padding's keys have 0, padding's queries count nothing
                keys = (weights[:, :1] > 0).any(2)[:, :, None].sum(-1).clamp(min=2)  # (B_g, 1, 1)
                relative = torch.special.entr(weights).sum(-1) / keys.log()  # (B_g, H, S_g)
                real = torch.arange(weights.shape[-1], device=weights.device) < keys  # (B_g, 1, S_g)
                entropies.setdefault(layer, []).append(relative[real.expand_as(relative)])
            return value

        with model.watch(look):
            predict(model, task, some_rows(next(iter(splits.values())), ROWS), precision=precision)
        found[task] = {
            name: {layer: float(torch.cat(values).mean()) for layer, values in of_layer.items()}
            for name, of_layer in (("size", sizes), ("entropy", entropies))
            if of_layer
        }
    return {task: values for task, values in found.items() if values}
