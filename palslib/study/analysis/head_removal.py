"""How the dev score changes without a head. Nothing is trained.

A head is removed by setting its context, the mean of the values weighted by its attention, to zero. In points:

    change = score without the head − score with it        below 0: the head helped

Heads can replace each other, so many changes near 0 do not mean that all heads are superfluous: `head_table.removals`
also removes those of a layer, and all, together.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import pandas as pd

from palslib.common.names import check_name
from palslib.common.processes import progress_bar
from palslib.data.tokens import TokenisedTask, some_rows
from palslib.study.analysis.attention_maps import numbers_of_heads
from palslib.training.evaluation import evaluate

Head = tuple[int, int]
"""Layer and number of a head, both from 0."""
POINT = {"pal": "task context", "bert": "context"}
"""Kind of head -> the point of `bert/layer.py` where its context is."""


def heads_of(model, task: str, kind: str = "pal") -> list[Head]:
    """All heads of a kind, `pal` (the task's own) or `bert`, layer by layer.

    Raises ValueError for an unknown task or kind, and where the method adds no projected attention.
    """
    numbers = numbers_of_heads(model, task)
    layers = numbers[check_name("kind of head", kind, numbers)]
    return [(layer, head) for layer, number in layers.items() for head in range(number)]


def without_heads(model, task: str, heads: Iterable[Head], kind: str = "pal") -> AbstractContextManager:
    """Within the block, sets the context of these heads to zero for this task; other tasks keep all heads, BERT's too.

    After the block, even after an error, the model computes the same as before, bit for bit. Raises ValueError for a
    layer or head that does not exist.
    """
    known, gone = Counter(layer for layer, _ in heads_of(model, task, kind)), {}
    for layer, head in heads:
        if head not in range(known[layer]):
            raise ValueError(f"layer {layer} has no {kind} head {head}; numbers of heads by layer: {dict(known)}")
        gone.setdefault(layer, []).append(head)

    def zero(point, layer, context):  # (N, H·w)
        if layer in gone:
            context = context.unflatten(-1, (known[layer], -1)).clone()  # (N, H, w)
            context[:, gone[layer]] = 0
        return context.flatten(1)

    return model.watch(zero, POINT[kind], task=task)


def scores_without(
    model,
    task: str,
    data: TokenisedTask,
    removals: Mapping[tuple, AbstractContextManager],
    columns: Sequence[str],
    **options,
) -> pd.DataFrame:
    """The scores of a task within each of several blocks that remove something, a row for each block and metric.

    Args:
        removals: what identifies a removal, the values of `columns` -> its block.
        options: `progress`, and those of `evaluation.evaluate`, such as `precision`.

    Columns task, `columns`, metric; whole, the score of the whole model, and score, in percent; change in points.
    """
    splits, progress = {task: {"dev": data}}, options.pop("progress", False)
    whole, rows = evaluate(model, splits, **options)[task], []
    for removed, block in progress_bar(removals.items(), f"scores of {task} without parts", progress):
        with block:
            scores = evaluate(model, splits, **options)[task]
        rows += [(task, *removed, metric, whole[metric], score) for metric, score in scores.items()]
    frame = pd.DataFrame(rows, columns=["task", *columns, "metric", "whole", "score"])
    return frame.assign(change=frame["score"] - frame["whole"])


def head_importance(
    model, task: str, data: TokenisedTask, kind: str = "pal", rows: int = 500, **options
) -> pd.DataFrame:
    """The scores of a task without one of its heads at a time, a row for each head and metric.

    Args:
        data: the task's dev split, of which at most `rows` rows are used.
        kind: `pal`, the task's own heads, or `bert`.
        options: of `scores_without`.

    Columns task, kind, layer, head, metric; score in percent; change in points against the whole model on the same
    rows.
    """
    removals = {(kind, *head): without_heads(model, task, [head], kind) for head in heads_of(model, task, kind)}
    data, columns = some_rows(data, rows), ("kind", "layer", "head")
    return scores_without(model, task, data, removals, columns, **options).drop(columns="whole")
