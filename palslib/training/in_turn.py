"""Training of tasks one after another, each on an unchanged backbone.

Houlsby et al. 2019, section 2 (https://arxiv.org/abs/1902.00751), as the adapters report repeats it. If no task trains
parameters that another one uses, a new task leaves the outputs of the earlier ones unchanged, bit for bit.
"""

from pathlib import Path

from palslib.common.names import check_least
from palslib.common.places import as_path
from palslib.common.reading import read_object
from palslib.plan.config import PRESETS, RunConfig
from palslib.training.accelerator import locked_by_first
from palslib.training.loop import model_before, train

REPORT = {"size": "paper", "learning_rate": 3e-4, "weight_decay": 0.0, "warmup": 0.1}
"""The report's settings for GLUE, with 10 epochs and a linear decay; without weight decay AdamW is Adam. The size is
the method's own: for one task, the paper's budget, which is for eight, would make m far larger than 64."""


def train_in_turn(
    tasks, folder, method="houlsby-64", epochs=10, epoch_steps=None, start=None, on_step=None, **options
) -> list[dict]:
    """Trains tasks one after another, each on an unchanged backbone; returns their records.

    Args:
        tasks: names, in the order of training.
        folder: it gets a subfolder for each task's run (`1-cola`, `2-sst2`), with the model of all tasks so far at its
            best epoch (`best`), and `record.json`. When called again, finished tasks are not trained again, and a
            killed one resumes from its last epoch.
        method: a method that trains no parameters shared by tasks.
        epochs: epochs for each task, each followed by an evaluation; the weights with the best dev score are kept.
        epoch_steps: steps of an epoch, at most; by default one pass over the task's data.
        start: a folder of weights with earlier tasks, to start from.
        on_step: as in `training.loop.train`; where it stops a run, no further task is trained.
        options: fields of `RunConfig`, or a `preset`, which replace those of `REPORT`.

    A task that `start` has already goes on from its parameters. Raises ValueError, before anything is trained, for a
    task that is given twice, for a method under which a new task would change the earlier ones, and for options
    that the epochs decide.
    """
    check_least(1, epochs=epochs, epoch_steps=epoch_steps)
    decided = ("steps", "passes", "evaluate_every", "checkpoint_every", "keep")
    if twice := [name for name in decided if name in options]:
        raise ValueError(f"leave out {', '.join(twice)}: epochs and epoch_steps decide, and the best epoch is kept")
    report = {name: value for name, value in REPORT.items() if name not in PRESETS.get(options.get("preset"), {})}
    known = {"method": method, "schedule": "sequential", "keep": "best", **report, **options}
    known["evaluate_every"] = 1  # which `patience` requires; each run has its own below
    folder, start = as_path(folder), start and str(as_path(start))
    whole = RunConfig.from_dict({**known, "tasks": tasks, "start": start})
    if not (folder / f"1-{whole.tasks[0]}" / "record.json").exists():  # else it was checked, and `start` may be cleaned
        _check_apart(whole)
    records = []
    with locked_by_first(folder):
        for number, task in enumerate(whole.tasks, 1):
            here = folder / f"{number}-{task}"
            own = {name: source for name, source in whole.own.items() if name == task}
            settings = {**known, "tasks": [task], "own": own, "start": start, "folder": str(here)}
            settings["task_weights"] = {name: w for name, w in whole.task_weights.items() if name == task}
            settings |= {"weights": "pretrained"} if start else {}  # random ones are drawn once, before the first task
            once = RunConfig.from_dict({**settings, "passes": 1}).with_steps().steps
            every = min(once, epoch_steps or once)
            settings |= {"steps": epochs * every, "evaluate_every": every, "checkpoint_every": every}
            records.append(dict(train(RunConfig.from_dict(settings), on_step=on_step)))  # without its model
            if records[-1]["status"] != "finished":
                break
            start = str(best_weights(here))
    return records


def _check_apart(whole: RunConfig) -> None:
    """Raises ValueError for a method under which training a task changes parameters that others read."""
    model = model_before(whole, [whole.task(task) for task in whole.tasks])
    if changed := [n for n, p in model.named_parameters() if p.requires_grad and not n.startswith(("adapt", "heads"))]:
        raise ValueError(
            f"{model.method.label!r} trains parameters that all tasks read ({changed[0]} and {len(changed) - 1} more), "
            "so a new task would change the earlier ones; choose a method whose tasks share nothing, with "
            "freeze='backbone' (and pooler='per-task' if the backbone has no pooler), or set these in method_options"
        )


def best_weights(folder: str | Path) -> Path:
    """The folder of weights that a run kept: those of the best epoch, or the last ones where no epoch had a score."""
    kept = read_object(Path(folder) / "record.json").get("weights", ["best"])  # `clean` may have removed them since
    return Path(folder) / ("best" if "best" in kept else "last")
