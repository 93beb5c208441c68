"""Tasks that come one after another on a frozen backbone, and what the adapters of each layer are worth.

Houlsby et al. 2019, sections 2 and 3.6 (https://arxiv.org/abs/1902.00751), as the adapters report repeats it. Where no
task trains what another one reads, a further task leaves the outputs of the earlier ones as they were, bit for bit.

`python -m palslib adapters` trains, removes the adapters of every span of layers, and writes the record.
"""

import itertools
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pandas as pd

from palslib.bert.backbones import load_tokenizer
from palslib.common import check_name
from palslib.data.tasks import get_task, load_task
from palslib.data.tokens import TokenisedTask, some_rows, tokenise_task
from palslib.methods.functions import Adaptation
from palslib.methods.table import get_method
from palslib.model.multi_task import MultiTaskModel
from palslib.plan.config import RunConfig
from palslib.records import as_lines, environment
from palslib.training.evaluation import evaluate
from palslib.training.loop import train

REPORT = {"size": "paper", "learning_rate": 3e-4, "weight_decay": 0.0, "warmup": 0.1}
"""The report's settings for GLUE, with 10 epochs and a linear decay; without weight decay AdamW is Adam. `size`: one
task's share of the paper's budget would make m far larger than 64."""
ADDITIONAL = {"learning_rate": 1e-4, "epochs": 50}
"""What differs for the report's further tasks (Crowdflower)."""
_NOTHING = "adds nothing within the layers that could be removed"
_PLACES = ("after_attention", "after_feed_forward", "parallel", "after_layer")


def train_in_turn(
    tasks, folder, method="houlsby-64", epochs=10, epoch_steps=None, start=None, on_step=None, **options
) -> list[dict]:
    """Trains one task after another, each on a backbone that stays as it is; returns their records.

    Args:
        tasks: names, in the order of training.
        folder: each task's run lies in it by itself (`1-cola`, `2-sst2`): the model with all tasks so far at its best
            epoch (`best`), and `record.json`. Called again, finished tasks are not trained anew, and one that was
            killed goes on from its last epoch.
        method: one that trains nothing that tasks share.
        epochs: of each task, each followed by an evaluation; the best by the dev score is what stays.
        epoch_steps: at most so many steps make an epoch; by default the task's data once.
        start: a folder of weights with earlier tasks, to go on from.
        on_step: as `training.train` takes it; where it stops a run, that is the last one.
        options: of `RunConfig`, in place of `REPORT`'s.

    Raises ValueError, before anything is trained, for a task that comes twice or that `start` has already, for a method
    under which a new task would change the earlier ones, and for options that follow from the epochs.
    """
    if epoch_steps is not None and epoch_steps < 1:
        raise ValueError(f"epoch_steps must be at least 1, or None for once through the data, not {epoch_steps!r}")
    if given := [name for name in ("steps", "evaluate_every", "checkpoint_every", "keep") if name in options]:
        raise ValueError(f"{', '.join(given)}: follows from epochs and epoch_steps here, and the best epoch is kept")
    known = {"method": method, "schedule": "sequential", "keep": "best", **REPORT, **options}
    whole = RunConfig.from_dict({**known, "tasks": tasks})
    model = _model_before(whole, start)
    if changed := [n for n, p in model.named_parameters() if p.requires_grad and not n.startswith(("adapt", "heads"))]:
        raise ValueError(
            f"{model.method.label!r} trains parameters that all tasks read ({changed[0]} and {len(changed) - 1} more), "
            "so that a new task would change the earlier ones; take a method with freeze='backbone' or freeze it by "
            "method_options"
        )
    records = []
    for number, task in enumerate(whole.tasks, 1):
        place = Path(folder) / f"{number}-{task}"
        once = -(-len(load_task(task, whole.data, "train")) // whole.batch_size)
        every = min(once, epoch_steps or once)
        steps = {"steps": epochs * every, "evaluate_every": every, "checkpoint_every": every}
        about = {**known, **steps, "tasks": [task], "start": start and str(start), "folder": str(place)}
        records.append(train(RunConfig.from_dict(about), on_step=on_step))
        if records[-1]["status"] != "finished":
            break
        start = best_weights(place)
    return records


def _model_before(config: RunConfig, start) -> MultiTaskModel:
    """The model as it is before training, with all tasks."""
    method, tasks = config.resolved_method(), [get_task(task, config.data) for task in config.tasks]
    if start:
        return MultiTaskModel.continued(start, method, config.backbone, tasks)
    return MultiTaskModel.from_backbone(config.backbone, method, tasks, config.seed)


def best_weights(folder: str | Path) -> Path:
    """The folder of weights that a run kept: the best epoch's; the last one's where no epoch had a score."""
    best = Path(folder) / "best"
    return best if best.exists() else best.with_name("last")


@contextmanager
def without_adapters(model: MultiTaskModel, task: str, first: int, last: int):
    """Within the block layers first..last (from 0) are without what the task adds to them, also where it shares its
    parameters with other layers; its own layer norms stay. Afterwards, after an error too, all is as before.

    Raises ValueError for an unknown task, a span that is not within the layers, and a method that adds nothing there.
    """
    adaptation, count = model.adaptations[check_name("task", task, model.tasks)], model.config.num_hidden_layers
    if not 0 <= first <= last < count:
        raise ValueError(f"no span of layers {first} to {last}: it takes 0 <= first <= last <= {count - 1}")
    if all(getattr(type(adaptation), place) is getattr(Adaptation, place) for place in _PLACES):
        raise ValueError(f"method {model.method.label!r} {_NOTHING}")

    def chosen(own, nothing, layer, *inputs):
        return (nothing if first <= layer <= last else own)(layer, *inputs)

    before = {place: vars(adaptation)[place] for place in _PLACES if place in vars(adaptation)}  # of a block around
    for place in _PLACES:
        nothing = partial(getattr(Adaptation, place), adaptation)
        setattr(adaptation, place, partial(chosen, getattr(adaptation, place), nothing))
    try:
        yield
    finally:
        for place in _PLACES:
            delattr(adaptation, place)
        vars(adaptation).update(before)


def ablation_frame(model: MultiTaskModel, task: str, data: TokenisedTask, rows: int | None = None, **options):
    """A task's score without the adapters of every span of layers; nothing is trained again.

    Args:
        data: the task's dev split, of which at most `rows` rows are used, if given.
        options: of `evaluation.evaluate`, such as `precision`.

    Columns task, metric (the task's first), whole (the score with all adapters, in percent), first, last, score, and
    change, in percent of the whole; NaN where that is 0.
    """
    data = some_rows(data, rows) if rows else data
    metric, splits = data.task.metrics[0], {task: {"dev": data}}
    whole, found = evaluate(model, splits, **options)[task][metric], []
    for first, last in itertools.combinations_with_replacement(range(model.config.num_hidden_layers), 2):
        with without_adapters(model, task, first, last):
            score = evaluate(model, splits, **options)[task][metric]
        change = 100 * (score - whole) / abs(whole) if whole else float("nan")
        found.append((task, metric, whole, first, last, score, change))
    return pd.DataFrame(found, columns=["task", "metric", "whole", "first", "last", "score", "change"])


def ablate(tasks, folder, rows: int | None = None, method="houlsby-64", **options) -> dict:
    """`train_in_turn`, then `ablation_frame` of each task with all of them trained: the record of both.

    `spans` are lines of comma-separated values, for `records.from_lines`; `runs` the records of training. Raises
    ValueError, before anything is trained, for a method that adds nothing within the layers, and for `rows` below 1.
    """
    if not (get_method(method).takes("layers") or get_method(method).takes("span")):
        raise ValueError(f"method {method!r} {_NOTHING}")
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be at least 1, or None for all, not {rows!r}")
    runs = train_in_turn(tasks, folder, method, **options)
    model = MultiTaskModel.from_pretrained(best_weights(Path(folder) / f"{len(tasks)}-{tasks[-1]}"))
    tokenizer, began, frames = load_tokenizer(model.backbone_name), time.perf_counter(), []
    for task, run in zip(tasks, runs, strict=True):
        known, source = model.tasks[task], options.get("data", RunConfig.data)
        data = tokenise_task(known, tokenizer, source, known.evaluation[0], run["config"]["max_length"])
        frames.append(ablation_frame(model, task, data, rows, precision=run["precision"]))
    return {
        "kind": "ablation",
        "spans": as_lines(pd.concat(frames)),
        "rows": rows,
        "seconds": time.perf_counter() - began,
        "environment": environment(),
        "runs": runs,
    }
