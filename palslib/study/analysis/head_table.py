"""Statistics of every head of a model, and the record of them: `python -m palslib heads FOLDER ...`.

The record is a committed source for statements about the heads of a model that is too large to be committed. Its tables
are lines of comma-separated values.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import pandas as pd

from palslib.common.names import check_name
from palslib.data.metrics import name_of
from palslib.data.tasks import load_rows
from palslib.data.tokens import TokenisedTask, some_rows, tokenise_task
from palslib.model.multi_task import MultiTaskModel
from palslib.records import as_lines, environment, read_records
from palslib.study.analysis.attention_maps import AttentionMaps, attention_maps, head_divergences, head_statistics
from palslib.study.analysis.head_removal import POINT, heads_of, scores_without, without_heads

Maps = Mapping[str | None, list[AttentionMaps]]
"""Task (None: the plain backbone) -> its maps; all tasks have the same texts in the same order."""


def maps_of(model, tokenizer, data: str = "synthetic", rows: int = 4) -> Maps:
    """The maps of every task, and of the plain backbone, on `rows` dev examples of each task.

    All tasks get the same texts: maps of sentences and of pairs, which differ in length and form, cannot be compared.
    Pairs of a task that encodes its two texts apart are given apart.
    """
    texts, see = [], partial(attention_maps, model, max_length=model.max_length)
    for task in model.tasks.values():
        frame = load_rows(task, data, task.evaluation[0]).head(rows)
        pairs = list(frame[list(task.texts)].itertuples(index=False, name=None))
        texts += [(text,) for pair in pairs for text in pair] if task.apart else pairs
    return {task: [see(task, tokenizer, *pair) for pair in texts] for task in (None, *model.tasks)}


def head_table(maps: Maps) -> pd.DataFrame:
    """A row for each of the tasks' own heads: task, layer, head, the columns of `attention_maps.STATISTICS` and

    - `to_tasks`: Jensen–Shannon divergence from the heads of the other tasks (the mean over them, heads matched within
      the layer), in nats; NaN if there is only one task;
    - `overlap`: 1 − divergence / log 2 from the most similar head of BERT in the same layer: 1 for equal maps, 0 for
      maps without a common token. BERT's map is under the same task, so that both read the same hidden states.

    Raises ValueError for a model without projected attention.
    """
    tasks, head = [task for task in maps if task is not None], ["layer", "head"]
    frame = head_statistics(one for task in tasks for one in maps[task]).query("kind == 'pal'").drop(columns="kind")
    tables = []
    for task in tasks:
        maps[task][0].of("pal")  # raises ValueError for a model without them
        others = [head_divergences(maps[task], maps[other]).query("matched") for other in tasks if other != task]
        apart = pd.concat(others).groupby(head)["divergence"].mean() if others else np.nan
        bert = head_divergences(maps[task], maps[task], ("pal", "bert")).groupby(head)["divergence"].min()
        distances = pd.DataFrame({"to_tasks": apart, "overlap": 1 - bert / np.log(2)})
        tables.append(frame[frame["task"] == task].join(distances, on=head))
    return pd.concat(tables, ignore_index=True)


def removals(model, task: str, data: TokenisedTask, rows: int = 500, **options) -> pd.DataFrame:
    """All removals of a task's PAL heads and of BERT's heads, on at most `rows` rows, by the task's first metric.

    Columns are those of `head_importance`, and `removed`: `head`, `layer` or `all`; `pattern` if no head was removed,
    but every head of the PAL takes the plain mean over all tokens; `nothing` for the whole model.
    """
    uniform = model.watch(lambda point, layer, query: query.new_zeros(query.shape), "task query", task=task)
    ways = {("pal", "nothing", None, None): nullcontext(), ("pal", "pattern", None, None): uniform}
    for kind in POINT:
        heads = heads_of(model, task, kind)
        ways |= {(kind, "head", *head): without_heads(model, task, [head], kind) for head in heads}
        for layer, group in groupby(heads, key=itemgetter(0)):
            ways[kind, "layer", layer, None] = without_heads(model, task, list(group), kind)
        ways[kind, "all", None, None] = without_heads(model, task, heads, kind)
    columns = ["kind", "removed", "layer", "head"]
    frame = scores_without(model, task, some_rows(data, rows), ways, columns, **options)
    metric = name_of(model.tasks[task], model.tasks[task].metrics[0])
    return frame[frame["metric"] == metric].drop(columns="whole").reset_index(drop=True)


def inspect(folder: Path, data: str, tasks: list[str], rows: int, texts: int, precision: str, own: dict) -> dict:
    """The record of the heads of a saved model.

    Args:
        folder: the model's; how it was trained is taken from the run's `record.json`, if the folder above has one.
        data: where the dev examples come from.
        tasks: the tasks for which heads are removed, on at most `rows` dev rows each. The maps are of all tasks, on
            `texts` dev examples of each.
        own: task -> the file with its examples, in place of `data`.
    """
    folder = folder.absolute()
    model, above = MultiTaskModel.from_pretrained(folder), folder.parent / "record.json"
    for task, path in own.items():
        check_name("task of this model in own", task, model.tasks)
        model.tasks[task] = replace(model.tasks[task], data=str(path))
    description = {"method": model.method.label, "backbone": model.backbone_name, "tasks": list(model.tasks)}
    if above.is_file():
        (run,) = read_records(above)
        check_name("kept weights of this run", folder.name, run["results"])
        names = ("key", "step", "dev_average", "git_commit", "schedule", "batch_size", "learning_rate", "seed", "data")
        values = {**run["config"], **run["environment"], **run["results"][folder.name], "key": run["key"]}
        description["run"] = {name: values[name] for name in names}
    splits = {}
    for name in tasks:
        task = model.tasks[check_name("task of this model", name, model.tasks)]
        splits[name] = tokenise_task(task, model.tokenizer, data, task.evaluation[0], model.length(name))
    maps = maps_of(model, model.tokenizer, data, texts)
    statistics = head_statistics(chain(*maps.values()))
    by_layer = statistics.groupby(["task", "kind", "layer"], sort=False)["relative_entropy"].agg(["min", "mean"])
    table = head_table(maps).groupby(["task", "layer"], sort=False)[["to_tasks", "overlap"]].mean()
    removed = [removals(model, task, split, rows, progress=True, precision=precision) for task, split in splits.items()]
    return {
        "model": description,
        "data": data,
        "texts": len(maps[None]),
        "rows": {task: min(rows, len(split)) for task, split in splits.items()},
        "precision": precision,
        "environment": environment(),
        "entropy": as_lines(by_layer.reset_index(), 7),
        "distances": as_lines(table.reset_index(), 7),
        "removal": as_lines(pd.concat(removed)),
    }
