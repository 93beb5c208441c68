"""The effect of task-specific parameters in inspected runs, by setting, and the results of the pilot (notebook 11)."""

import math
from collections.abc import Iterable, Sequence

import pandas as pd

from palslib.methods.table import LABELS
from palslib.records import summarise
from palslib.study.ledger.selection import Setting
from palslib.study.results.tables import average, label, line_of, usual_schedule


def acting_frame(records: Iterable[dict]) -> pd.DataFrame:
    """A row for each task and layer of the runs with `inspect` (`model/inspection.py`), at the end of training.

    Columns key, method, seed, task, layer; `size`, the mean of ‖TS(h)‖ / ‖h‖, and `entropy`, the entropy of the task's
    own heads divided by log S. Each is NaN in a layer without them.
    """
    rows = []
    for record in records:
        for task, values in record["history"][-1].get("acting", {}).items():
            layers = sorted({int(layer) for of_layer in values.values() for layer in of_layer})
            for layer in layers:  # a number in memory, a string in a file
                here = {k: v.get(layer, v.get(str(layer))) for k, v in values.items()}
                rows.append({**_about(record), "task": task, "layer": layer, **here})
    columns = ["key", "method", "seed", "task", "layer", "size", "entropy"]
    return pd.DataFrame(rows, columns=columns).astype({"size": float, "entropy": float})


def switched_off_frame(records: Iterable[dict]) -> pd.DataFrame:
    """A row for each of the runs with `inspect`, at the end of training.

    Columns key, method, seed; `score`, the dev average in percent; `switched off`, the same without what tasks add
    within BERT; and `difference`, in points: below 0, the additions helped.
    """
    rows = []
    for record in records:
        if without := record["results"].get("switched off"):
            score = record["results"]["last"]["dev_average"]
            rows.append({**_about(record), "score": score, "switched off": without["dev_average"]})
    frame = pd.DataFrame(rows, columns=["key", "method", "seed", "score", "switched off"])
    frame = frame.astype({"score": float, "switched off": float})
    return frame.assign(difference=frame["switched off"] - frame["score"])


def _about(record: dict) -> dict:
    return {"key": record["key"], "method": record["config"]["method"], "seed": record["config"]["seed"]}


def setting_name(record: dict) -> str:
    """How a run trains its task-specific parameters: by the name in its config or, where that has none,
    `10 × BERT's rate`; V^D starts at zero unless stated."""
    if named := record["config"].get("setting"):
        return named
    rate, start = _rate_and_start(record)
    return f"{rate:g} × BERT's rate" + (", $V^D$ from N(0, 0.02)" if start == "normal" else "")


def _rate_and_start(record: dict) -> tuple[float, str]:
    return record["config"]["adaptation_rate"], record["method"].get("init", "identity")


def acting(
    records: Sequence[dict], more: Sequence[dict] = (), methods: Sequence[str] = ("pals-204",)
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two frames of the inspected runs of methods without options, by `setting`: ‖TS(h)‖ / ‖h‖ after the last step
    (`layer`, `size`, `seed`; a mean over tasks), and the change of the dev average when it is off (`difference`).
    `more`: runs used for settings that `records` lacks. Methods other than PALs are named in `setting`.
    """
    runs, named = _inspected(records, more, methods)
    sizes = acting_frame(runs).groupby(["key", "seed", "layer"], sort=False)["size"].mean()
    both = (sizes.reset_index(), switched_off_frame(runs))
    return tuple(frame.assign(setting=frame["key"].map(named)) for frame in both)


def acting_table(records: Sequence[dict]) -> pd.DataFrame:
    """A row for each setting of the inspected runs of PALs, after their last step: the number of `seeds`; means over
    seeds, tasks and layers of `size`, ‖TS(h)‖ / ‖h‖, and `entropy`, that of the heads over log S; the task `lowest_of`
    that has the layer with the `lowest` entropy; and `off`, the change of the dev average without the PALs, with its
    standard error `off_error` over seeds."""
    runs, named = _inspected(records)
    ends = acting_frame(runs)
    by_setting = ends.groupby(ends["key"].map(named).rename("setting"), sort=False)
    table = by_setting.agg(
        seeds=("seed", "nunique"), size=("size", "mean"), entropy=("entropy", "mean"), lowest=("entropy", "min")
    )
    table["lowest_of"] = ends.loc[by_setting["entropy"].idxmin(), "task"].values
    off = switched_off_frame(runs)
    off = off["difference"].groupby(off["key"].map(named).rename("setting"))
    return table.assign(off=off.mean(), off_error=off.sem()).reset_index()


def _inspected(
    records: Sequence[dict], more: Sequence[dict] = (), methods: Sequence[str] = ("pals-204",)
) -> tuple[list[dict], dict[str, str]]:
    """The runs that `acting` is about, each seed of a setting once, and key -> setting."""
    runs, others = ([r for r in _plain(of, methods) if "switched off" in r["results"]] for of in (records, more))
    known = set(map(_named, runs))
    runs += [r for r in others if _named(r) not in known]
    rank = {method: number for number, method in enumerate(methods)}
    runs.sort(key=lambda r: (rank[r["config"]["method"]], _rate_and_start(r)))
    runs = list({(_named(r), r["config"]["seed"]): r for r in runs}.values())
    return runs, {r["key"]: _named(r) for r in runs}


def _plain(records: Sequence[dict], methods: Sequence[str]) -> list[dict]:
    """The runs of these lines under the usual schedule."""
    schedule = usual_schedule(records)
    return [record for record in records if record["config"]["schedule"] == schedule and line_of(record) in methods]


def _named(record: dict) -> str:
    """The setting's name, after that of a method other than PALs."""
    method = record["config"]["method"]
    return ("" if method == "pals-204" else f"{label(method)}: ") + setting_name(record)


def pilot_frame(records: Sequence[dict]) -> pd.DataFrame:
    """A row for each setting of the pilot: method, learning rate, steps, `setting`, the dev average with and without
    CoLA, CoLA, and the change when `switched off`; means over seeds with standard errors, and the number of seeds.

    Raises:
        ValueError: for two runs of one setting and seed.
    """
    rows = []
    for r in sorted(records, key=_rate_and_start):
        off = r["results"].get("switched off")
        config, scores = r["config"], {"dev average": average(r), "without CoLA": average(r, ("cola",))}
        scores |= {"CoLA": r["results"]["last"]["scores"]["cola"]["matthews"]}
        scores |= {"switched off": off["dev_average"] - average(r) if off else math.nan}
        row = {"method": label(config["method"]), "rate": config["learning_rate"], "steps": config["steps"]}
        row |= {"setting": setting_name(r) if Setting.of(r).acting else "–"}
        rows.append(row | {"seed": config["seed"]} | scores)
    by, values = ["method", "rate", "steps", "setting"], ["dev average", "without CoLA", "CoLA", "switched off"]
    frame = pd.DataFrame(rows, columns=[*by, "seed", *values]).sort_values(by[:3], kind="stable")
    table = pd.DataFrame()
    for value in values:
        of = summarise(frame, by, value).set_index(by)  # raises ValueError for a repeated seed
        table[[value, f"{value} error"]] = of[["mean", "standard_error"]]
    return table.assign(seeds=frame.groupby(by, sort=False).size()).reset_index()


def chosen_setting(table: pd.DataFrame) -> pd.Series:
    """The row of `pilot_frame` that rule 3 of the first study, as amended, chooses: of PALs' settings that act, with
    2,000 steps, the one with the highest dev average. A setting acts if switching its PALs off lowers the dev average
    by a point or more.

    Raises:
        ValueError: if none acts.
    """
    acts = table[(table["method"] == LABELS["pals-204"]) & (table["steps"] == 2_000) & (table["switched off"] <= -1)]
    if acts.empty:
        raise ValueError(f"no setting of PALs with 2,000 steps acts, in {len(table)} settings of the pilot")
    return acts.loc[acts["dev average"].idxmax()]
