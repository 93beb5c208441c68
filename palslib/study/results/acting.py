"""Whether task-specific parameters act: their size, and what runs score without them (notebooks 05 and 11)."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd

from palslib.study.results.tables import label, usual_schedule


def acting_frame(records: Iterable[dict], name: Callable[[dict], str]) -> pd.DataFrame:
    """A row for each task and layer of the runs with `inspect` (`model/inspection.py`), at the end of training.

    Columns `setting` (the run's `name`), seed, task, layer; `size`, the mean of ‖TS(h)‖ / ‖h‖, and `entropy`, the
    entropy of the task's own heads divided by log S. Each is NaN in a layer that has none.
    """
    rows, columns = [], ["setting", "seed", "task", "layer", "size", "entropy"]
    for record in records:
        for task, values in record["history"][-1].get("acting", {}).items():
            layers = pd.DataFrame(values).rename(index=int).sort_index()  # a number in memory, a string in a file
            layers = layers.rename_axis("layer").reset_index().assign(task=task)
            rows += layers.assign(setting=name(record), seed=record["config"]["seed"]).to_dict("records")
    return pd.DataFrame(rows, columns=columns).astype({"size": float, "entropy": float})


def switched_off_frame(records: Iterable[dict], name: Callable[[dict], str]) -> pd.DataFrame:
    """A row for each of the runs with `inspect`, at the end of training: `setting` (the run's `name`), seed, and
    `difference`, of the dev average without what tasks add within BERT, in points: below 0, the additions helped."""
    rows = []
    for record in records:
        if record["results"].get("switched off"):
            whole, off = np.array([record["results"][at]["dev_average"] for at in ("last", "switched off")], float)
            rows.append((name(record), record["config"]["seed"], off - whole))
    return pd.DataFrame(rows, columns=["setting", "seed", "difference"]).astype({"difference": float})


def _rate_and_start(record: dict) -> tuple[float, str]:
    return record["config"]["adaptation_rate"], record["method"].get("init", "identity")


def setting_name(record: dict) -> str:
    """How a run trains its task-specific parameters: by the name in its config or, where that has none,
    `10 × BERT's rate`; V^D starts at zero unless stated."""
    rate, start = _rate_and_start(record)
    normal = ", $V^D$ from N(0, 0.02)" if start == "normal" else ""
    return record["config"].get("setting") or f"{rate:g} × BERT's rate{normal}"


def _named(record: dict) -> str:
    """The setting's name, after that of a line other than PALs."""
    line = record["config"]["arm"]
    return ("" if line == "pals-204" else f"{label(line)}: ") + setting_name(record)


def acting(
    records: Sequence[dict], more: Sequence[dict] = (), methods: Sequence[str] = ("pals-204",)
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two frames of the inspected runs of these lines, by `setting`: ‖TS(h)‖ / ‖h‖ after the last
    step (`layer`, `size`, `seed`; a mean over tasks), and the change of the dev average when TS(h) is off
    (`difference`). `more`: runs used for settings that `records` lacks. Lines other than PALs are named in `setting`.
    """
    runs = _inspected(records, more, methods)
    sizes = acting_frame(runs, _named).groupby(["setting", "seed", "layer"], sort=False)["size"].mean()
    return sizes.reset_index(), switched_off_frame(runs, _named)


def acting_table(records: Sequence[dict]) -> pd.DataFrame:
    """A row for each setting of the inspected runs of PALs, after their last step: the number of `seeds`; means over
    seeds, tasks and layers of `size`, ‖TS(h)‖ / ‖h‖, and `entropy`, that of the heads divided by log S; the `lowest`
    entropy of a task in a layer, and the task that has it, `lowest_of`; and `off`, the change of the dev average
    without the PALs, with its standard error `off_error` over seeds."""
    runs = _inspected(records, (), ("pals-204",))
    ends = acting_frame(runs, _named)
    by_setting = ends.groupby("setting", sort=False)
    table = by_setting.agg(
        seeds=("seed", "nunique"), size=("size", "mean"), entropy=("entropy", "mean"), lowest=("entropy", "min")
    )
    table["lowest_of"] = ends.loc[by_setting["entropy"].idxmin(), "task"].values
    off = switched_off_frame(runs, _named).groupby("setting")["difference"]
    return table.assign(off=off.mean(), off_error=off.sem()).reset_index()


def _inspected(records: Sequence[dict], more: Sequence[dict], methods: Sequence[str]) -> list[dict]:
    """The runs that `acting` is about, each seed of a setting once, in the order of `methods`."""
    runs = {}
    for some in (records, more):
        known, schedule = {name for name, _ in runs}, usual_schedule(some)
        for run in some:
            config, name = run["config"], _named(run)
            ours = config["arm"] in methods and config["schedule"] == schedule and "switched off" in run["results"]
            if ours and name not in known:
                runs[name, config["seed"]] = run
    return sorted(runs.values(), key=lambda run: (methods.index(run["config"]["arm"]), _rate_and_start(run)))
