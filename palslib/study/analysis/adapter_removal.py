"""The importance of each layer's adapters: the dev score without those of a span of layers, with nothing retrained.

The method is that of Houlsby et al. 2019, section 3.6 (https://arxiv.org/abs/1902.00751), as in the adapters report.

`python -m palslib adapters` trains tasks one by one, removes the adapters of each span of layers, and writes a record.
"""

import time
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import combinations_with_replacement

import pandas as pd

from palslib.bert.backbones import load_config
from palslib.bert.layer import Places
from palslib.common.places import as_path
from palslib.data.metrics import name_of
from palslib.data.tokens import TokenisedTask, some_rows, tokenise_task
from palslib.model.multi_task import MultiTaskModel
from palslib.plan.config import RunConfig
from palslib.records import as_lines, environment
from palslib.study.analysis.head_removal import scores_without
from palslib.training.in_turn import best_weights, train_in_turn


def _check_removable(method, num_layers: int) -> None:
    if not method.adapted_layers(num_layers):
        raise ValueError(f"method {method.label!r} adds nothing within the layers, so nothing can be removed")


def without_adapters(model: MultiTaskModel, task: str, first: int, last: int) -> AbstractContextManager:
    """Removes, within the block, what the task adds to layers first..last (from 0), also where it shares its parameters
    with other layers; its own layer norms stay. After the block, also after an error, the model is as before.

    Raises ValueError for an unknown task, a span that is not within the layers, and a method that adds nothing there.
    """
    count = model.config.num_hidden_layers
    if not 0 <= first <= last < count:
        raise ValueError(f"no span of layers {first} to {last}: it takes 0 <= first <= last <= {count - 1}")
    _check_removable(model.method, count)

    def bare(point, layer, adaptation):
        if not first <= layer <= last:
            return adaptation
        plain = Places()
        plain.norms = adaptation.norms  # the task's own layer norms stay
        return plain

    return model.watch(bare, "task", task=task)


def ablation_frame(
    model: MultiTaskModel, task: str, data: TokenisedTask, rows: int | None = None, **options
) -> pd.DataFrame:
    """The scores of a task, each without the adapters of one span of layers; nothing is retrained.

    Args:
        data: the task's dev split, of which at most `rows` rows are used, if given.
        options: of `head_removal.scores_without`.

    Columns task, metric (the task's first), whole (the score with all adapters, in percent), first, last, score, and
    change, in percent of `whole`; NaN if that is 0.
    """
    data, metric = some_rows(data, rows) if rows else data, name_of(data.task, data.task.metrics[0])
    spans = combinations_with_replacement(range(model.config.num_hidden_layers), 2)
    removals = {span: without_adapters(model, task, *span) for span in spans}
    frame = scores_without(model, task, data, removals, ("first", "last"), **options)
    frame["change"] = 100 * frame["change"] / frame["whole"].abs().replace(0, float("nan"))
    columns = ["task", "metric", "whole", "first", "last", "score", "change"]
    return frame.loc[frame["metric"] == metric, columns].reset_index(drop=True)


def ablate(tasks, folder, rows: int | None = None, method="houlsby-64", **options) -> dict:
    """Trains tasks with `train_in_turn`, then takes the `ablation_frame` of each; returns the record of both.

    `spans` are lines of comma-separated values, for `records.from_lines`; `runs` the records of training. Raises
    ValueError, before anything is trained, for a method that adds nothing within the layers.
    """
    named = ("preset", "backbone", "data", "own", "held_out", "held_out_by", "own_method", "method_options")
    source = {name: options[name] for name in named if name in options}
    config = RunConfig.from_dict(source | {"tasks": tasks, "method": method})
    _check_removable(config.resolved_method(fitted=False), load_config(config.backbone).num_hidden_layers)
    runs = train_in_turn(tasks, folder, method, **options)
    last = f"{len(config.tasks)}-{config.tasks[-1]}"
    model = MultiTaskModel.from_pretrained(best_weights(as_path(folder) / last))
    began, frames, progress = time.perf_counter(), [], options.get("progress", RunConfig.progress)
    for name, run in zip(config.tasks, runs, strict=True):
        task = replace(config.task(name), ties=model.tasks[name].ties)
        scored = config.splits(task)[1][0]
        data = tokenise_task(task, model.tokenizer, config.data, scored, run["config"]["max_length"])
        frames.append(ablation_frame(model, name, data, rows, progress=progress, precision=run["precision"]))
    return {
        "kind": "ablation",
        "spans": as_lines(pd.concat(frames)),
        "rows": rows,
        "seconds": time.perf_counter() - began,
        "environment": environment(),
        "runs": runs,
    }
