"""The second study: its choices and decisions, exactly as figures/records/PLAN.md and DEVIATIONS.md state them.

`write_tables.py` writes what they give as tables beside the records.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from palslib.common.places import RECORDS
from palslib.data.metrics import main_scores
from palslib.data.tasks import TASKS
from palslib.grid.sweep import Grid
from palslib.records import read_records
from palslib.study.ledger.claims import SEEDS, Comparison, Outcome, Verdict, parts_of_tasks, together
from palslib.study.ledger.intervals import (
    MARGIN,
    NEGATIVE,
    NO_WORSE,
    OPEN,
    POSITIVE,
    TOO_SMALL,
    Difference,
    equal_variances,
    student,
    welch,
)
from palslib.study.ledger.paper import load_ledger
from palslib.study.results.answer import EIGHT, FIRST_LOOK
from palslib.study.results.tables import average, runs_of, scores_by_method

ONE_RATE = "pals-204 at one rate"
"""The fifth arm: PALs at `shared`'s tuned rate, the paper's setting."""
ARMS = ("shared", "pals-204", "pal-common", "low-rank-100", ONE_RATE)
"""The arms of the confirmation. For the first four the tuning chose one setting out of four each."""
QUESTIONS = {
    ("pals-204", "shared"): "Do parameters of each task inside the layers help?",
    ("pals-204", "pal-common"): "Is it because they are each task's own?",
    ("pals-204", "low-rank-100"): "Is it because of their attention?",
    (ONE_RATE, "shared"): "Does the paper's setting, one rate for all, show it?",
}
"""The two arms that are compared -> the question, in the order in which the questions are asked."""
SECOND_LOOK = 0.952
"""The level of the intervals at the second look at the confirmation."""
LOOKS = {FIRST_LOOK: range(300, 306), SECOND_LOOK: range(300, 312)}
"""Level -> the seeds of its look."""
COLUMNS = ["question", "left", "right", "difference", "low", "high", "seeds", "level", "verdict"]
"""Columns of the frame of `decide`."""
NOT_ASKED, NOT_RUN = "not asked", "runs are missing"
_WAITING = {OPEN: NOT_ASKED, NOT_ASKED: NOT_ASKED, NOT_RUN: NOT_RUN}
"""Verdict that leaves a question undecided -> the verdict that the question after it then gets."""


def of_grid(name: str, records: Iterable[dict]) -> list[dict]:
    """The records of the runs of a grid: those in its folder."""
    return [record for record in records if record["file"].split("/")[0] == name]


def arms(records: Iterable[dict], level: float = FIRST_LOOK, all_of_five: bool = False) -> dict[str, dict[int, dict]]:
    """Arm -> seed -> the record of its confirmation run, for the seeds that count at the look with this level."""
    by_arm: dict[str, dict[int, dict]] = {name: {} for name in ARMS}
    for record in of_grid("confirmation", records):
        if (seed := record["config"]["seed"]) in counted(name := record["config"]["arm"], level, all_of_five):
            by_arm[name][seed] = record
    return by_arm


def counted(name: str, level: float, all_of_five: bool = False) -> range:
    """The seeds of an arm that count at the look with this level. The fifth arm counts with three, so that no later
    run of it changes what was decided. Only its own question takes `all_of_five` at the second look (DEVIATIONS.md, 28
    and 29 November)."""
    all_seeds = name != ONE_RATE or (all_of_five and level == SECOND_LOOK)
    return LOOKS[level] if all_seeds else LOOKS[level][:SEEDS]


def difference(scores: Mapping[str, Sequence[float]], left: str, right: str, level: float = 0.95) -> Difference:
    """left - right with the interval of this level: Student's t with one variance for all methods of `scores`, or
    Welch's for these two where `equal_variances` is below 0.01."""
    a, b = np.asarray(scores[left], float), np.asarray(scores[right], float)
    if equal_variances(scores) < 0.01:
        return welch(a, b, level)
    several = [runs for runs in scores.values() if len(runs)]
    degrees = sum(len(runs) - 1 for runs in several)
    pooled = sum(np.var(runs) * len(runs) for runs in several) / degrees
    return student(a.mean() - b.mean(), (pooled * (1 / len(a) + 1 / len(b))) ** 0.5, degrees, level, (len(a), len(b)))


def compared_by(runs: Mapping[str, dict[int, dict]], row: Mapping, level: float, without: Sequence[str] = ()) -> dict:
    """The columns that answer a question from these runs, by averages over all tasks but those in `without`."""
    scores = {name: [average(run, without) for run in by_seed.values()] for name, by_seed in runs.items()}
    gap = difference(scores, row["left"], row["right"], level)
    return gap.cells | {"level": level, "verdict": gap.kind()}


def decide(records: Sequence[dict]) -> pd.DataFrame:
    """The four questions in order: `question`, `left`, `right`, `difference`, `low`, `high`, `seeds` (of both sides,
    `6 and 6`), `level` of the interval, and `verdict`: positive, negative, too small to matter, open; `not asked` after
    a question that is open, and `runs are missing`.

    A look is made once all of its runs are there: at the second, 51 runs for the first three questions, and 60 for the
    last one. What the first look decides stands; the second covers the questions that it left open and those after
    them.
    """
    rows, before, looks = [], "", list(LOOKS)
    for (left, right), question in QUESTIONS.items():
        row = {"question": question, "left": left, "right": right, "verdict": _WAITING.get(before, NOT_RUN)}
        for level in [] if before in _WAITING else list(looks):
            runs = arms(records, level, left == ONE_RATE)
            if any(len(runs[name]) < len(counted(name, level, left == ONE_RATE)) for name in ARMS):
                break  # a look is made once all of its runs are there
            if row["verdict"] in (NOT_RUN, OPEN):
                row |= compared_by(runs, row, level)
                looks = looks[looks.index(level) :]  # no later question goes back to an earlier look
        before = row["verdict"]
        rows.append(row)
    return pd.DataFrame(rows, columns=COLUMNS)


def scores_of(runs: Mapping[int, dict]) -> pd.DataFrame:
    """The scores of the runs of these seeds, in percent: a row for each seed, a column for each task."""
    by_seed = {seed: main_scores(run["results"]["last"]["scores"]) for seed, run in runs.items()}
    return pd.DataFrame.from_dict(by_seed, orient="index")


def answered(records: Sequence[dict]) -> list[tuple[dict, dict[str, dict[int, dict]]]]:
    """For each question that has an answer: its row in `decide`, and the runs from which it comes, as `arms` gives
    them."""
    rows = decide(records).dropna(subset="low").to_dict("records")
    return [(row, arms(records, row["level"], row["left"] == ONE_RATE)) for row in rows]


def separate(records: Iterable[dict]) -> pd.DataFrame:
    """The scores of the models for one task each, in percent: a row for each seed whose eight runs are all there, a
    column for each task."""
    by_seed: dict[int, dict[str, float]] = {}
    for record in of_grid("separate", records):
        by_seed.setdefault(record["config"]["seed"], {}).update(main_scores(record["results"]["last"]["scores"]))
    return pd.DataFrame.from_dict(by_seed, orient="index").reindex(columns=list(TASKS)).dropna().sort_index()


def of_ledger(records: Sequence[dict]) -> dict[str, Verdict]:
    """The second study's verdicts on rows of the ledger. C26: the answer to the second question. C1 and C22: PALs
    against models for one task each, by the rule of `claims.py` for any number of steps, once three seeds of both are
    there."""
    runs = of_grid("confirmation", records)
    asked = decide(records).iloc[1]
    kinds = {POSITIVE: "reproduced", NEGATIVE: "not reproduced", TOO_SMALL: TOO_SMALL, OPEN: "inconclusive"}
    if asked["verdict"] in kinds:
        value = Difference(*asked[["difference", "low", "high"]], (0, 0)).text + f" ({asked['seeds']} seeds)"
        note = f"the second study; the interval is of {100 * asked['level']:g} %"
        sides = (arms(records, asked["level"])[asked[side]] for side in ("left", "right"))
        files = tuple(run["file"] for side in sides for run in side.values())
        verdicts = {"C26": Verdict(kinds[asked["verdict"]], value, note, files)}
    else:
        verdicts = {"C26": Verdict("not run", "–", f"the second study has no answer yet: {asked['verdict']}")}
    alone = separate(records)
    of_pals = {run["config"]["seed"]: run for run in runs if run["config"]["arm"] == "pals-204"}
    pals, alone = scores_of(of_pals).align(alone, "inner", axis="index")
    if len(seeds := tuple(pals.index.tolist())) < SEEDS:
        return verdicts
    used = [*map(of_pals.get, seeds), *(r for r in of_grid("separate", records) if r["config"]["seed"] in seeds)]
    for row in map(load_ledger().get, ("C1", "C22")):
        outcomes = []
        for comparison in map(Comparison.parse, row.compare):
            task, sides = comparison.task, (alone, pals) if comparison.left[0].alone else (pals, alone)
            left, right = (tuple(scores[task] if task else scores.mean(axis=1)) for scores in sides)
            parts = {} if task else parts_of_tasks(*(scores.to_dict("records") for scores in sides))
            outcomes.append(Outcome(comparison, seeds, left, right, tuple(used), parts))
        verdicts[row.id] = together(replace(row, steps=0), outcomes)
    return verdicts


def read_second() -> list[dict]:
    """The committed records of the second study's grids. Raises ValueError for one that is not a run of its grid."""
    records = []
    for name in ("tuning", "confirmation", "separate"):
        keys = {config.key for config in Grid.named(name).configs(Path("runs"))}
        records += (of_this_grid := read_records(RECORDS / name))
        if strange := [run["file"] for run in of_this_grid if run["key"] not in keys]:
            raise ValueError(f"no runs of the grid {name!r}: {', '.join(strange)}")
    return records


def answers(records: Sequence[dict], new: Sequence[dict]) -> pd.DataFrame:
    """A row for each comparison that answers the paper's question: `left` and `right`; the `study` that answers it (the
    first until the second does; none if neither does); `difference`, `low`, `high`, `seeds` and `level` of its
    interval; the mean scores `left mean` and `right mean`; in how many of the common seeds the difference has its sign
    (`same sign`: 6 of 6); the difference of the other tasks' means `without RTE`; and the `verdict`. Then two
    differences from the eight BERTs that stand beside the first row: that of PALs without RTE, and that of sharing
    everything.

    Args:
        records: the first study's runs.
        new: the records of the second study's grids.
    """
    eight = separate(new)
    of = {name: scores_of(runs).reindex(eight.index) for name, runs in arms(new).items()}
    without = [side.drop(columns="rte") for side in (of["pals-204"], eight)]
    scores, rows = scores_by_method(records), [_against_eight("pals-204", of["pals-204"], eight)]
    for row in decide(new).to_dict("records")[:3]:
        sides = row["left"], row["right"]
        if not math.isnan(row["low"]):
            gap, runs = Difference(row["difference"], row["low"], row["high"], (0, 0)), arms(new, row["level"])
            about = {name: row[name] for name in ("seeds", "level", "verdict")}
        elif min(len(scores.get(line, ())) for line in sides) >= SEEDS:
            gap, runs = difference(scores, *sides), {line: _by_seed(line, records) for line in sides}
            about = {"study": "first study", "verdict": gap.kind()}
        else:
            rows.append({"left": sides[0], "right": sides[1], "verdict": row["verdict"]})
            continue
        rows.append(_row(sides, gap, *(scores_of(runs[arm]) for arm in sides)) | about)
    rows += [_against_eight("pals-204 without RTE", *without), _against_eight("shared", of["shared"], eight)]
    return pd.DataFrame(rows)


def _by_seed(line: str, records: Sequence[dict]) -> dict[int, dict]:
    return {run["config"]["seed"]: run for run in runs_of(line, records)}


def _row(sides: tuple[str, str], gap: Difference, left: pd.DataFrame, right: pd.DataFrame) -> dict:
    row = {"left": sides[0], "right": sides[1], "study": "second study", **gap.cells, "level": 0.95}
    row |= {"left mean": left.mean().mean(), "right mean": right.mean().mean()}
    by_seed = (left.mean(axis=1) - right.mean(axis=1)).dropna()
    row["same sign"] = f"{(by_seed * gap.value > 0).sum()} of {len(by_seed)}"
    return row | {"without RTE": (left.mean() - right.mean()).drop("rte", errors="ignore").mean()}


def _against_eight(name: str, scores: pd.DataFrame, eight: pd.DataFrame) -> dict:
    """An arm against eight BERTs, on the seeds of the latter. No two of these runs share their randomness, so the
    interval is Welch's, of two independent samples."""
    gap = welch(*(side.mean(axis=1).tolist() for side in (scores, eight)))
    no_worse = gap.kind() != POSITIVE and gap.low >= -MARGIN
    return _row((name, EIGHT), gap, scores, eight) | {"verdict": NO_WORSE if no_worse else gap.kind()}
