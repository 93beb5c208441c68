"""What stands beside the second study's decisions and decides nothing: by task, without CoLA, other intervals, and
whether the added parameters act."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from second_study import COLUMNS, answered, arms, compared_by, decide, difference, read_second, scores_of

from palslib.common.places import RECORDS
from palslib.data.tasks import TASKS, get_task, load_rows
from palslib.records import read_predictions, write_record
from palslib.study.ledger.claims import task_margin
from palslib.study.ledger.intervals import Difference, paired
from palslib.study.results.acting import acting_frame, switched_off_frame

OVER_EXAMPLES = RECORDS / "over-examples.json"
"""The record of `over_both`, which needs GLUE's labels; these are not part of the package."""


def by_task(records: Sequence[dict]) -> pd.DataFrame:
    """For each question that has an answer, its difference by task, paired by seed, with intervals that hold for all
    tasks together at its level (Bonferroni's): `left`, `right`, `task`, `difference`, `low`, `high`, `seeds`,
    `margin`, `verdict`. It decides nothing."""
    rows = []
    for row, runs in answered(records):
        left, right = runs[row["left"]], runs[row["right"]]
        gaps = (scores_of(left) - scores_of(right)).dropna()
        sizes = next(iter(left.values()))["data"]["dev"]
        for task in TASKS:
            gap = paired(gaps[task].tolist(), 1 - (1 - row["level"]) / len(TASKS))
            margin = task_margin(task, next(iter(sizes[task].values())))
            compared = {"left": row["left"], "right": row["right"], "task": task}
            rows.append(compared | gap.cells | {"margin": margin, "verdict": gap.kind(margin)})
    return pd.DataFrame(rows, columns=["left", "right", "task", *COLUMNS[3:7], "margin", "verdict"])


def questions(records: Sequence[dict], over: Sequence[dict] = ()) -> pd.DataFrame:
    """The frame of `decide`, and beside each answer what decides nothing, as text: the difference `without CoLA`; and,
    chosen after the data were seen, the difference `in pairs of one seed`, whose runs are alike here; unpaired,
    `tasks standardised`, each task's scores divided by their standard deviation between runs of one arm, so that no
    task's noise counts more (in these units, not in points); and the `correlation` of the two arms over seeds. `over`:
    what `over_both` gave, for the interval `over dev examples too`."""
    beside, examples = {}, {(row["question"], row["level"]): _text(row) for row in over}
    for row, runs in answered(records):
        rest = compared_by(runs, row, row["level"], ("cola",))
        left, right = scores_of(runs[row["left"]]).align(scores_of(runs[row["right"]]), "inner")
        spread = ((left.var() + right.var()) / 2) ** 0.5
        scaled = {side: (scores / spread).mean(axis=1) for side, scores in (("left", left), ("right", right))}
        both = left.mean(axis=1), right.mean(axis=1)
        beside[row["question"]] = {
            "without CoLA": f"{_text(rest)}: {rest['verdict']}",
            "in pairs of one seed": paired(list(both[0] - both[1]), row["level"]).text,
            "tasks standardised": difference(scaled, "left", "right", row["level"]).text,
            "correlation": both[0].corr(both[1]),
            "over dev examples too": examples.get((row["question"], row["level"]), np.nan),
        }
    return decide(records).join(pd.DataFrame.from_dict(beside, orient="index"), on="question")


def _text(row: Mapping) -> str:
    return Difference(row["difference"], row["low"], row["high"], (0, 0)).text


def _arm(record: dict) -> str:
    return record["config"]["arm"]


def acting(records: Sequence[dict]) -> pd.DataFrame:
    """A row for each arm of the first look that adds something, after the last step: the number of `seeds`; `size`,
    ‖TS(h)‖ / ‖h‖, and `entropy`, that of the added heads' attention divided by log S (1: uniform), both means over
    seeds, tasks and layers; and the change of the dev average without all that tasks add, with its 95 % interval."""
    runs = [run for by_seed in arms(records).values() for run in by_seed.values()]
    table = acting_frame(runs, _arm).groupby("setting", sort=False)[["size", "entropy"]].mean()
    off = switched_off_frame(runs, _arm).groupby("setting")["difference"].agg(list)
    table = table.assign(seeds=off.map(len), **{"switched off": off.map(lambda changes: paired(changes).text)})
    return table.rename_axis("arm").reset_index()[["arm", "seeds", "size", "entropy", "switched off"]]


def _accuracy(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return (predictions == labels) @ weights / weights.sum()


def _correlation(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Pearson's, which for two classes is Matthews'; 0 where all predictions are equal, as in a run's record."""
    x = labels - np.average(labels, weights=weights)
    y = predictions - np.average(predictions, axis=1, weights=weights)[:, None]
    spread = np.sqrt((x * x) @ weights * ((y * y) @ weights))
    return np.divide((y * x) @ weights, spread, out=np.zeros(len(y)), where=spread > 0)


WEIGHTED = {"accuracy": _accuracy, "matthews": _correlation, "pearson": _correlation}
"""Metric -> function of labels (N,), predictions (runs, N), and how often each row counts, (N,): each run's score."""


def over_examples(
    left: Sequence[Mapping[str, np.ndarray]],
    right: Sequence[Mapping[str, np.ndarray]],
    labels: Mapping[str, np.ndarray],
    level: float = 0.95,
    draws: int = 10_000,
) -> Difference:
    """left - right with an interval that covers dev examples as well as seeds: a bootstrap over both.

    Each draw takes as many runs of each side, and rows of each task, as there are, with replacement; it takes the same
    rows for all runs. A run's score is the mean of its tasks' first metrics, in percent. With few runs the interval is
    too narrow: n runs, drawn out of n, show (n - 1) / n of the variance of a new seed (5/6 for six, 2/3 for three).

    Args:
        left: for each run, task and split (`rte/validation`) -> its predictions, as `read_predictions` gives them.
        labels: task and split -> the true labels; only these take part.
    """
    rng = np.random.default_rng(0)
    metrics = {name: WEIGHTED[get_task(name.partition("/")[0]).metrics[0]] for name in labels}
    predictions = {name: np.stack([run[name] for run in (*left, *right)]) for name in labels}

    def drawn(draw: Callable[[int], np.ndarray]) -> float:
        """The difference of means where each of n rows, and of n runs, counts as often as `draw(n)` says."""
        by_task = [metrics[name](labels[name], predictions[name], draw(len(labels[name]))) for name in labels]
        runs = 100 * np.mean(by_task, axis=0)
        sides = runs[: len(left)], runs[len(left) :]
        first, second = (np.average(side, weights=draw(len(side))) for side in sides)
        return float(first - second)

    each = [drawn(lambda n: np.bincount(rng.integers(n, size=n), minlength=n).astype(float)) for _ in range(draws)]
    low, high = np.quantile(each, [(1 - level) / 2, (1 + level) / 2])
    return Difference(drawn(np.ones), float(low), float(high), (len(left), len(right)))


def over_both(records: Sequence[dict], labels: dict[str, np.ndarray], draws: int = 10_000) -> list[dict]:
    """The questions that `decide` answers, with intervals over dev examples as well as seeds, from the same
    seeds and at the same level, from the predictions of the committed runs: `question`, `left`, `right`, `difference`,
    `low`, `high`, `seeds` and `level`. `labels` are those of `over_examples`."""
    rows = []
    for row, runs in answered(records):
        sides = (runs[row[side]].values() for side in ("left", "right"))
        predictions = ([read_predictions(RECORDS / run["file"]) for run in side] for side in sides)
        asked = {name: row[name] for name in ("question", "left", "right", "level")}
        rows.append(asked | over_examples(*predictions, labels, row["level"], draws).cells)
    return rows


if __name__ == "__main__":  # `python figures/records/second_beside.py`, where GLUE is available
    scored = {name: task.evaluation[0] for name, task in TASKS.items()}  # the splits that enter a dev average
    rows_of = {f"{task}/{split}": load_rows(task, "glue", split) for task, split in scored.items()}
    labels_of = {name: rows["label"].to_numpy() for name, rows in rows_of.items()}
    write_record(OVER_EXAMPLES, {"questions": over_both(read_second(), labels_of)})
