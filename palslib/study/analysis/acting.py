"""Tidy frames of the effect of task-specific parameters, from runs with `inspect` (`model/inspection.py`)."""

from collections.abc import Iterable

import pandas as pd

from palslib.data.metrics import main_scores


def acting_frame(records: Iterable[dict]) -> pd.DataFrame:
    """A row for each evaluation, task and layer of the runs that were inspected.

    Columns key, method, seed, step, task, layer; `size`, the mean of ‖TS(h)‖ / ‖h‖, and `entropy`, the entropy of the
    task's own heads divided by log S. Each is NaN in a layer without them.
    """
    rows = []
    for record in records:
        for point in record["history"]:
            for task, values in point.get("acting", {}).items():
                layers = sorted({int(layer) for of_layer in values.values() for layer in of_layer})
                for layer in layers:  # a number in memory, a string in a file
                    here = {k: v.get(layer, v.get(str(layer))) for k, v in values.items()}
                    rows.append({**_about(record), "step": point["step"], "task": task, "layer": layer, **here})
    columns = ["key", "method", "seed", "step", "task", "layer", "size", "entropy"]
    return pd.DataFrame(rows, columns=columns).astype({"size": float, "entropy": float})


def switched_off_frame(records: Iterable[dict]) -> pd.DataFrame:
    """A row for each task of the runs that were inspected, and one for their `average`, at the end of training.

    Columns key, method, seed, task; `score`, the task's first metric in percent; `switched off`, the same without
    what tasks add within BERT; and `difference`, in points: below 0, the additions helped.
    """
    rows = []
    for record in records:
        if without := record["results"].get("switched off"):
            whole, without = _scores(record["results"]["last"]), _scores(without)
            rows += [{**_about(record), "task": t, "score": whole[t], "switched off": without[t]} for t in whole]
    frame = pd.DataFrame(rows, columns=["key", "method", "seed", "task", "score", "switched off"])
    frame = frame.astype({"score": float, "switched off": float})
    return frame.assign(difference=frame["switched off"] - frame["score"])


def _about(record: dict) -> dict:
    return {"key": record["key"], "method": record["config"]["method"], "seed": record["config"]["seed"]}


def _scores(point: dict) -> dict[str, float]:
    return main_scores(point["scores"]) | {"average": point["dev_average"]}
