"""What the plan of the second study shows beside its decisions: whether the added parameters act, and intervals that
cover dev examples as well as seeds."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from palslib.common.places import RECORDS
from palslib.data.tasks import TASKS, load_rows
from palslib.records import read_predictions, read_records, write_record
from palslib.study.ledger.intervals import over_examples, paired
from palslib.study.results.pilot import acting_frame, switched_off_frame
from palslib.study.results.second import LOOKS, QUESTIONS, arm, cells, of_grid

OVER_EXAMPLES = RECORDS / "over-examples.json"
"""The record of `over_both`: it needs GLUE's labels, which are not part of the package."""


def acting_by_arm(records: Sequence[dict]) -> pd.DataFrame:
    """A row for each arm of the confirmation that adds something, after the last step: the number of `seeds`; `size`,
    ‖TS(h)‖ / ‖h‖, and `entropy`, that of the added heads' attention over log S (1: uniform), means over seeds, tasks
    and layers; and the change of the dev average when all that tasks add is switched off, with its 95 % interval."""
    runs = of_grid("confirmation", records)
    arms = {record["key"]: arm(record) for record in runs}
    last, off = acting_frame(runs), switched_off_frame(runs)
    table = last.groupby(last["key"].map(arms), sort=False)[["size", "entropy"]].mean()
    off = off["difference"].groupby(off["key"].map(arms)).agg(list)
    table = table.assign(seeds=off.map(len), **{"switched off": off.map(lambda of: paired(of).text)})
    return table.rename_axis("arm").reset_index()[["arm", "seeds", "size", "entropy", "switched off"]]


def over_both(folder: Path, labels: dict[str, np.ndarray], draws: int = 10_000) -> list[dict]:
    """The questions in order with intervals over dev examples as well as seeds, from the records of the confirmation in
    a folder and the predictions beside them: `question`, `left`, `right`, `difference`, `low`, `high`, `seeds` and
    `level`.

    Args:
        labels: as in `over_examples`.
    """
    runs, rows = list(read_records(folder)), []
    seeds, level = LOOKS[1] if len({run["config"]["seed"] for run in runs}) > len(LOOKS[0][0]) else LOOKS[0]
    of = {arm(run): [] for run in runs}
    for run in runs:
        if run["config"]["seed"] in seeds:
            of[arm(run)].append(read_predictions(folder / Path(run["file"]).name))
    for (left, right), question in QUESTIONS.items():
        row = {"question": question, "left": left, "right": right, "difference": math.nan}
        if of.get(left) and of.get(right):
            found = over_examples(of[left], of[right], labels, level, draws)
            row |= cells(found) | {"level": level}
        rows.append(row)
    return rows


def dev_labels(data: str = "glue") -> dict[str, np.ndarray]:
    """Task and dev split -> the labels, of the splits whose scores enter a dev average."""
    names = {task: TASKS[task].evaluation[0] for task in TASKS}
    return {f"{task}/{split}": load_rows(task, data, split)["label"].to_numpy() for task, split in names.items()}


if __name__ == "__main__":  # `python -m palslib.study.results.beside`, where GLUE is within reach
    folder = Path(sys.argv[1]) if sys.argv[1:] else RECORDS / "confirmation"
    write_record(OVER_EXAMPLES, {"questions": over_both(folder, dev_labels())})
