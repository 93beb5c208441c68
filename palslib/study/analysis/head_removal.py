"""The importance of a head: the dev score without it, minus the score with it. Nothing is trained.

A head is removed by setting its context, the mean of the values weighted by its attention, to zero. In points:

    change = score without the head − score with it        below 0: the head helped

Heads can replace each other, so many changes near 0 do not mean that all heads are superfluous: `per="layer"` and
`per="all"` remove them together.
"""

from collections.abc import Iterable
from contextlib import contextmanager

import pandas as pd
import torch

from palslib.common.names import check_name
from palslib.common.processes import progress_bar
from palslib.data.tokens import TokenisedTask, some_rows
from palslib.study.analysis.attention_maps import numbers_of_heads
from palslib.training.evaluation import evaluate

Head = tuple[int, int]
"""Layer and number of a head, both from 0."""
POINT = {"pal": "task context", "bert": "context"}
"""Kind of head -> the point of `bert/layer.py` where its context is."""
PER = {"head": ("layer", "head"), "layer": ("layer",), "all": ()}
"""What is removed at once -> the columns that identify a removal."""


def heads_of(model, task: str, kind: str = "pal") -> list[Head]:
    """All heads of a kind, `pal` (the task's own) or `bert`, layer by layer.

    Raises ValueError for an unknown task or kind, and where the method adds no projected attention.
    """
    return [(layer, head) for layer, number in _numbers(model, task, kind).items() for head in range(number)]


def _numbers(model, task: str, kind: str) -> dict[int, int]:
    numbers = numbers_of_heads(model, task)
    if check_name("kind of head", kind, POINT) not in numbers:
        raise ValueError(f"method {model.method.label!r} adds no projected attention; it has BERT's heads only")
    return numbers[kind]


@contextmanager
def without_heads(model, task: str, heads: Iterable[Head], kind: str = "pal"):
    """Within the block, sets the context of these heads to zero for this task; other tasks keep all heads, BERT's too.

    After the block, even after an error, the model computes the same as before, bit for bit. Raises ValueError for a
    layer or head that does not exist.
    """
    numbers, gone = _numbers(model, task, kind), {}
    for layer, head in heads:
        if layer not in numbers:
            raise ValueError(f"layer {layer} has no {kind} heads; layers with them: {', '.join(map(str, numbers))}")
        if not 0 <= head < numbers[layer]:
            raise ValueError(f"layer {layer} has no {kind} head {head}; valid: 0 to {numbers[layer] - 1}")
        gone.setdefault(layer, []).append(head)

    def zero(point, layer, context):  # (N, H·w)
        if layer in gone:
            context = context.unflatten(-1, (numbers[layer], -1)).clone()  # (N, H, w)
            context[:, gone[layer]] = 0
        return context.flatten(1)

    with model.watch(zero, POINT[kind], task=task):
        yield


@contextmanager
def uniform_heads(model, task: str):
    """Within the block, sets the queries of a task's own heads to zero, so that each takes the mean over all tokens.

    The change of the score then shows the importance of the attention pattern, apart from the values that it averages.
    """
    _numbers(model, task, "pal")  # raises ValueError for a method without them
    with model.watch(lambda point, layer, query: torch.zeros_like(query), "task query", task=task):
        yield


def head_importance(
    model,
    task: str,
    data: TokenisedTask,
    kind: str = "pal",
    per: str = "head",
    rows: int = 500,
    progress: bool = False,
    **options,
) -> pd.DataFrame:
    """The scores of a task without one of its heads (or groups of heads) at a time, a row for each removal and metric.

    Args:
        data: the task's dev split, of which at most `rows` rows are used.
        kind: `pal`, the task's own heads, or `bert`.
        per: what is removed at once, a key of `PER`.
        progress: whether to show a progress bar.
        options: of `evaluation.evaluate`, such as `precision`.

    Columns task, kind, those of `PER`, metric; score in percent; change in points against the whole model on the same
    rows.
    """
    names = PER[check_name("group of heads", per, PER)]
    groups: dict[tuple, list[Head]] = {}
    for head in heads_of(model, task, kind):
        groups.setdefault(head[: len(names)], []).append(head)
    splits = {task: {"dev": some_rows(data, rows)}}
    whole, lines = evaluate(model, splits, **options)[task], []
    for group, heads in progress_bar(groups.items(), f"removing heads of {task}", progress):
        with without_heads(model, task, heads, kind):
            scores = evaluate(model, splits, **options)[task]
        for metric, score in scores.items():
            lines.append((task, kind, *group, metric, score, score - whole[metric]))
    return pd.DataFrame(lines, columns=["task", "kind", *names, "metric", "score", "change"])
