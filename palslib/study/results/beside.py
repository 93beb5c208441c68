"""What the plan of the second study shows beside its decisions: whether the added parameters act, and intervals that
cover dev examples as well as seeds."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from palslib.common.places import RECORDS
from palslib.data.tasks import TASKS, load_rows
from palslib.records import read_predictions, write_record
from palslib.study.ledger.intervals import over_examples, paired
from palslib.study.results.acting import acting_frame, switched_off_frame
from palslib.study.results.second import answered, arms, read_second

OVER_EXAMPLES = RECORDS / "over-examples.json"
"""The record of `over_both`, which needs GLUE's labels; these are not part of the package."""


def _arm(record: dict) -> str:
    return record["config"]["arm"]


def acting_by_arm(records: Sequence[dict]) -> pd.DataFrame:
    """A row for each arm of the first look that adds something, after the last step: the number of `seeds`; `size`,
    ‖TS(h)‖ / ‖h‖, and `entropy`, that of the added heads' attention divided by log S (1: uniform), both means over
    seeds, tasks and layers; and the change of the dev average without all that tasks add, with its 95 % interval."""
    runs = [run for by_seed in arms(records).values() for run in by_seed.values()]
    table = acting_frame(runs, _arm).groupby("setting", sort=False)[["size", "entropy"]].mean()
    off = switched_off_frame(runs, _arm).groupby("setting")["difference"].agg(list)
    table = table.assign(seeds=off.map(len), **{"switched off": off.map(lambda changes: paired(changes).text)})
    return table.rename_axis("arm").reset_index()[["arm", "seeds", "size", "entropy", "switched off"]]


def over_both(records: Sequence[dict], labels: dict[str, np.ndarray], draws: int = 10_000) -> list[dict]:
    """The questions that `second.decide` answers, with intervals over dev examples as well as seeds, from the same
    seeds and at the same level, from the predictions of the committed runs: `question`, `left`, `right`, `difference`,
    `low`, `high`, `seeds` and `level`. `labels` are those of `over_examples`."""
    rows = []
    for row, runs in answered(records):
        sides = (runs[row[side]].values() for side in ("left", "right"))
        predictions = ([read_predictions(RECORDS / run["file"]) for run in side] for side in sides)
        asked = {name: row[name] for name in ("question", "left", "right", "level")}
        rows.append(asked | over_examples(*predictions, labels, row["level"], draws).cells)
    return rows


if __name__ == "__main__":  # `python -m palslib.study.results.beside`, where GLUE is available
    scored = {name: task.evaluation[0] for name, task in TASKS.items()}  # the splits that enter a dev average
    rows_of = {f"{task}/{split}": load_rows(task, "glue", split) for task, split in scored.items()}
    labels_of = {name: rows["label"].to_numpy() for name, rows in rows_of.items()}
    write_record(OVER_EXAMPLES, {"questions": over_both(read_second(), labels_of)})
