"""The second study: its choices and decisions, exactly as figures/records/PLAN.md and DEVIATIONS.md state them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from palslib.common.places import RECORDS
from palslib.common.reading import read_json
from palslib.data.metrics import main_scores
from palslib.data.tasks import TASKS
from palslib.grid.sweep import PLANS, Grid
from palslib.records import read_records
from palslib.study.ledger.claims import SEEDS, Comparison, Outcome, Verdict, parts_of_tasks, task_margin, together
from palslib.study.ledger.intervals import NEGATIVE, OPEN, POSITIVE, TOO_SMALL, Difference, difference, paired
from palslib.study.ledger.paper import load_ledger
from palslib.study.ledger.verdicts import verdict_frame
from palslib.study.results.tables import average

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
FIRST_LOOK, SECOND_LOOK = 0.995, 0.952
"""The levels of the intervals at the two looks at the confirmation."""
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


def _difference(runs: Mapping[str, dict[int, dict]], row: Mapping, level: float, without: Sequence[str] = ()) -> dict:
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
                row |= _difference(runs, row, level)
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


def without_tasks(records: Sequence[dict], tasks: Sequence[str]) -> pd.DataFrame:
    """The frame of `decide`, its answered questions alone, from averages over the other tasks. It decides nothing."""
    rows = [row | _difference(runs, row, row["level"], tasks) for row, runs in answered(records)]
    return pd.DataFrame(rows, columns=COLUMNS)


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


def chosen_afterwards(records: Sequence[dict]) -> pd.DataFrame:
    """For each question that has an answer, two other intervals at its level, both chosen after the data were seen, so
    that they decide nothing: `blocked by seed`, from differences between runs of one seed, which are alike here; and
    with `tasks standardised`, each task's scores divided by their standard deviation between runs of one arm, so that
    no task's noise counts more (in these units, not in points). With `correlation`, that of the two arms over seeds."""
    rows = []
    for row, runs in answered(records):
        left, right = scores_of(runs[row["left"]]).align(scores_of(runs[row["right"]]), "inner")
        spread = ((left.var() + right.var()) / 2) ** 0.5
        scaled = {side: (scores / spread).mean(axis=1) for side, scores in (("left", left), ("right", right))}
        both = left.mean(axis=1), right.mean(axis=1)
        line = {"left": row["left"], "right": row["right"], "correlation": both[0].corr(both[1])}
        line["blocked by seed"] = paired(list(both[0] - both[1]), row["level"]).text
        rows.append(line | {"tasks standardised": difference(scaled, "left", "right", row["level"]).text})
    return pd.DataFrame(rows)


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


def ledger_frame() -> pd.DataFrame:
    """`verdict_frame` of the committed records, in which the second study decides its rows."""
    return verdict_frame(decided=of_ledger(read_second()))


def progress() -> pd.DataFrame:
    """What has been run and what is missing: for each grid what it is `about`, the number of its `runs`, of those
    `recorded` in the folder of its name, and of those `missing`; and the `hours` that the recorded ones took."""
    rows = []
    for name in sorted(path.stem for path in PLANS.glob("*.json")):
        grid = Grid.named(name)
        records = map(read_json, (RECORDS / name).rglob("*.json"))
        took = {record["key"]: record["seconds"]["total"] for record in records if record.get("status") == "finished"}
        row = {"grid": name, "about": grid.title, "runs": grid.size, "recorded": len(took)}
        rows.append(row | {"missing": grid.size - len(took), "hours": round(sum(took.values()) / 3600, 1)})
    return pd.DataFrame(rows)
