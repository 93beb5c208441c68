"""Rows of several tasks in one pass: BERT's own maps take all rows at once; what a task adds takes that task's rows.

The rows of a task are adjacent, so their word pieces are a slice of the N, and the code of a layer (`bert/layer.py`)
reads as for one task:

    h = [h_1, h_2, ...]        TS(h) = [TS_1(h_1), TS_2(h_2), ...]        likewise at every other place
"""

from collections.abc import Sequence

import torch

from palslib.bert.layer import Places
from palslib.bert.rows import Rows


def _by_task(name: str):
    """`Mixed`'s function `name`: each task's own, called on that task's slice of every argument (N, ...)."""

    def each(self, layer: int, *inputs):
        slices = [self.split(x) for x in inputs]
        new = [getattr(task, name)(layer, *own) for task, *own in zip(self.tasks, *slices, strict=True)]
        if all(y is None for y in new):
            return None
        if all(y is x for y, x in zip(new, slices[0], strict=True)):
            return inputs[0]  # no task has changed it
        return torch.cat(new)

    return each


class Mixed(Places):
    """What several tasks of one method add to a layer, each to its own rows.

    Args:
        tasks: the tasks' adaptations.
        parts: the rows of each task, as a batch of their own; `rows` has them all, end to end.
    """

    def __init__(self, tasks: Sequence[Places], parts: Sequence[Rows]):
        self.tasks, self.parts, self.rows = tasks, parts, Rows.joined(parts)
        self.sizes, self.numbers = [len(part.input_ids) for part in parts], list(map(len, parts))  # N and B of each
        self.reads_first_alone = all(task.reads_first_alone for task in tasks)

    def split(self, x: Rows | torch.Tensor) -> Sequence:
        """The part of each task: of the rows, of values (N, ...), and of those of [CLS] alone, (B, ...)."""
        if isinstance(x, Rows):
            return [part.first_alone() for part in self.parts] if x.of_first else self.parts
        return x.split(self.sizes if len(x) == sum(self.sizes) else self.numbers)

    query, key, value = map(_by_task, ("query", "key", "value"))
    after_attention, inner, after_feed_forward = map(_by_task, ("after_attention", "inner", "after_feed_forward"))
    parallel, after_layer = map(_by_task, ("parallel", "after_layer"))

    def norms(self, layer):
        own = [task.norms(layer) for task in self.tasks]
        return tuple(map(self._slice_by_slice, zip(*own, strict=True))) if any(own) else None

    def on_top(self, states: Sequence[torch.Tensor], rows: Rows) -> torch.Tensor:
        """What is on top of each task's slice of the last states (N, d); `states` has those of all layers."""
        of_tasks = zip(*map(self.split, states), strict=True)
        new = [task.on_top(own, part) for task, own, part in zip(self.tasks, of_tasks, self.parts, strict=True)]
        return torch.cat(new)

    def _slice_by_slice(self, functions):
        return lambda x: torch.cat([f(own) for f, own in zip(functions, self.split(x), strict=True)])
