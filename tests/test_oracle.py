"""Everything that was known on 29 November 2026 and has to stay as it is, whatever becomes of the code: the keys of
recorded runs, the content of all splits, orders of training, the ledger's verdicts, and what the result pages show.

`oracle.json` holds these values as commit d821196 gave them. Where a value changes on purpose, its new value is written
there (`PYTHONPATH=figures/records python tests/test_oracle.py` prints what it would be now), and the commit says why.
"""

import hashlib
import json
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import second_beside
import second_study as second

from palslib.common.places import RECORDS
from palslib.data.glue import TRAIN_SIZES
from palslib.data.tasks import BUILT_IN, SUITES, TASKS, get_task, load_rows
from palslib.data.tokens import content_of
from palslib.plan.config import RunConfig, as_now
from palslib.plan.sampling import SCHEDULES, TrainingPlan
from palslib.records import read_records
from palslib.study.analysis.forgetting import transfer_measures
from palslib.study.ledger.paper import TABLE_2
from palslib.study.ledger.verdicts import evidence, verdict_frame
from palslib.study.results import minbert, tables

ORACLE = Path(__file__).with_name("oracle.json")
SPLITS = ("train", "validation", "validation_matched", "validation_mismatched", "held-out part of train")
TASKS_OF = {
    "synthetic": BUILT_IN,
    "glue": TASKS,
    "minbert": SUITES["minbert"],
    "crowdflower": ("airline", "corporate_messaging", "disasters", "political_bias", "primary_emotions"),
}


def recorded(values) -> list[dict]:
    """All runs within a JSON value: whatever has a config and a key."""
    if isinstance(values, dict):
        own = [values] if "key" in values and isinstance(values.get("config"), dict) else []
        return own + [run for value in values.values() for run in recorded(value)]
    return [run for value in values for run in recorded(value)] if isinstance(values, list) else []


def keys() -> dict[str, str]:
    """Record file and place in it -> the key that its config has."""
    by_run = {}
    for path in sorted(RECORDS.rglob("*.json")):
        for number, run in enumerate(recorded(json.loads(path.read_text()))):
            by_run[f"{path.relative_to(RECORDS)} {number}"] = RunConfig(**as_now(run["config"])).key
    return by_run


def contents(data: str) -> dict[str, str]:
    """Task and split -> the hash of its rows in this data source, for the splits that there are."""
    hashes = {}
    for name in TASKS_OF[data]:
        task = get_task(name, data)
        for split in SPLITS:
            try:
                hashes[f"{name} {split}"] = content_of(load_rows(task, data, split))
            except (ValueError, OSError):
                continue  # this task has no such split here; which ones there are is compared, too
    return hashes


def orders() -> dict[str, str]:
    """Schedule -> a hash of the tasks of 300 steps, and of the examples of every tenth."""
    hashes = {}
    for schedule in SCHEDULES:
        plan = TrainingPlan(dict(TRAIN_SIZES), schedule, 300, batch_size=8, seed=7)
        steps = [plan.tasks[step] for step in range(300)]
        rows = [np.asarray(plan.examples(step)).tolist() for step in range(0, 300, 10)]
        hashes[schedule] = hashlib.sha256(json.dumps([steps, rows]).encode()).hexdigest()[:16]
    return hashes


def of_then(records: list[dict], then: dict) -> list[dict]:
    """The records that existed then: later ones may add to what is shown, but not change what these showed."""
    return [run for run in records if not then or f"{run['file']} 0" in then["keys"]]


def verdicts() -> dict[str, list[str]]:
    """Row of the ledger -> its verdict and value."""
    return {row["id"]: [row["verdict"], row["ours"]] for row in verdict_frame().to_dict("records")}


def frames(then: dict) -> dict[str, list]:
    """Name -> rows of the frame that notebooks 09, 11 and 12 draw their tables from."""
    runs = of_then(tables.of_study(evidence(), "first study"), then)
    new = of_then(second.read_second(), then)
    without = [row | second.compared_by(runs_of, row, row["level"], ("cola",)) for row, runs_of in second.answered(new)]
    methods = {"base": "shared", "methods": tables.COMPARED}
    found = {
        "11 methods": tables.against(runs, **methods),
        "11 table 3": tables.table_3(runs, methods=tables.COMPARED),
        "11 table 2": tables.by_task(runs, TABLE_2),
        "11 by task": tables.task_differences(runs, "pals-204", "shared"),
        "11 second study": second.decide(new),
        "11 second study by task": second_beside.by_task(new),
        "11 second study without CoLA": pd.DataFrame(without, columns=second.COLUMNS),
    }
    in_turn = read_records(RECORDS / "gem")
    found["09 transfer"] = pd.DataFrame(map(transfer_measures, in_turn), [run["file"] for run in in_turn])
    for name in ("minbert", "minbert-150-steps"):
        records = read_records(RECORDS / name)
        for frame in (minbert.results_frame, minbert.curves_frame):
            found[f"12 {name} {frame.__name__}"] = frame(records)
        claims = tables.claims_frame(records, source="minbert", words=minbert.claim_in_words)
        found[f"12 {name} claims_frame"] = claims.drop(columns=["spread", "smallest"])
    return {name: _plain(frame.reset_index()) for name, frame in found.items()}


def _plain(value):
    """JSON values with six digits, in which two computations of one number agree."""
    if isinstance(value, pd.DataFrame):
        return [_plain(list(value.columns)), *_plain(value.to_numpy(dtype=object).tolist())]
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, str | bool | None):
        return value
    return float(f"{value:.6g}") if isinstance(value, int | float | np.number) and math.isfinite(value) else str(value)


def known() -> dict:
    return json.loads(ORACLE.read_text())


def test_each_recorded_config_has_the_key_that_it_had():
    now = keys()
    assert {name: now.get(name) for name in known()["keys"]} == known()["keys"]


@pytest.mark.filterwarnings("ignore:.*rows without a label")
@pytest.mark.parametrize("data", TASKS_OF)
def test_rows_and_labels_are_the_same(data):
    if data != "synthetic" and "PALSLIB_DATA" not in os.environ:
        pytest.skip("needs the real data")
    assert contents(data) == known()["contents"][data]


def test_the_order_of_training_is_the_same():
    now, then = orders(), known()["orders"]
    assert {name: now.get(name) for name in then} == then  # there may be new schedules


def test_the_verdicts_are_the_same():
    now, then = verdicts(), known()["verdicts"]
    assert {row: now.get(row) for row in then} == then  # there may be new rows


def test_tables_show_the_same():
    now, then = frames(known()), known()["frames"]
    assert [name for name in then if now.get(name) != then[name]] == []


if __name__ == "__main__":
    values = {"keys": keys(), "contents": {data: contents(data) for data in TASKS_OF}}
    values |= {"orders": orders(), "verdicts": verdicts(), "frames": frames(known() if ORACLE.exists() else {})}
    print(json.dumps(values, indent=0))
