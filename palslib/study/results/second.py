"""The second study: its choices and decisions, exactly as figures/records/PLAN.md and DEVIATIONS.md state them."""

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pandas as pd

from palslib.common.files import write_text
from palslib.common.names import check_name
from palslib.common.places import RECORDS
from palslib.common.reading import read_json
from palslib.data.metrics import main_scores
from palslib.data.tasks import TASKS
from palslib.grid.sweep import PLANS, Grid
from palslib.records import files_within, read_records
from palslib.study.ledger.claims import SEEDS, Comparison, Outcome, Verdict, parts_of_tasks, task_margin, together
from palslib.study.ledger.intervals import NEGATIVE, OPEN, POSITIVE, TOO_SMALL, Difference, difference, paired
from palslib.study.ledger.paper import load_ledger
from palslib.study.ledger.verdicts import verdict_frame
from palslib.study.results.tables import average

METHODS = ("shared", "pals-204", "pal-common", "low-rank-100")
"""The methods that were tuned, each with four settings."""
ONE_RATE = "pals-204 at one rate"
"""The fifth arm: PALs at `shared`'s tuned rate, the paper's setting."""
ARMS = (*METHODS, ONE_RATE)
QUESTIONS = {
    ("pals-204", "shared"): "Do parameters of each task inside the layers help?",
    ("pals-204", "pal-common"): "Is it because they are each task's own?",
    ("pals-204", "low-rank-100"): "Is it because of their attention?",
    (ONE_RATE, "shared"): "Does the paper's setting, one rate for all, show it?",
}
"""The two arms that are compared -> the question, in the order in which the questions are asked."""
TUNING_SEEDS = (200, 201)
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


def tuning(records: Sequence[dict], ruled_out: Sequence[str] = (), plan: str = "tuning") -> pd.DataFrame:
    """A row for each setting of the grid `tuning`, or of another plan of its kind: `method`, `setting`,
    `learning_rate`, `adaptation_rate`, `seeds`, `mean` of the scores on held-out training rows, and `chosen`: the best
    setting of its method, once all runs of that method exist.

    Args:
        ruled_out: names of settings in which a run ended because its loss was not finite; others raise ValueError.
    """
    rows, grid = [], Grid.named(plan)
    for name in ruled_out:
        check_name("setting", name, [run["setting"] for run in grid.runs])
    for config in grid.configs(Path("runs")):
        row = {name: getattr(config, name) for name in ("method", "setting", "learning_rate", "adaptation_rate")}
        score = next((average(record) for record in records if record["key"] == config.key), math.nan)
        rows.append(row | {"score": score, "out": config.setting in ruled_out})
    by = ["method", "setting", "learning_rate", "adaptation_rate", "out"]
    frame = pd.DataFrame(rows).groupby(by, sort=False)["score"].agg(["count", "mean"]).reset_index()
    frame = frame.rename(columns={"count": "seeds"}).assign(chosen=False)
    frame.loc[frame["out"], "mean"] = math.nan
    for _, of in frame.groupby("method", sort=False):
        if (of["out"] | (of["seeds"] == len(TUNING_SEEDS))).all() and not of["out"].all():
            order = of.sort_values(["mean", "learning_rate", "adaptation_rate"], ascending=[False, True, True])
            frame.loc[order.index[0], "chosen"] = True
    return frame.drop(columns="out")


def grids(tuned: pd.DataFrame, plan: str = "tuning", level: float = FIRST_LOOK) -> dict[str, dict]:
    """The grids `confirmation` (all seeds of the look with this level; twice the tuning's steps) and `separate` (half
    the tuning's steps), from the complete frame of `tuning`.

    Raises:
        ValueError: naming methods whose tuning is not complete.
    """
    grid, chosen = Grid.named(plan), set(tuned.loc[tuned["chosen"], "setting"])
    best = {run["method"]: run for run in grid.runs if run["setting"] in chosen}
    if missing := [method for method in METHODS if method not in best]:
        raise ValueError(f"the tuning is not complete: {', '.join(missing)}")
    rate, base = best["shared"]["learning_rate"], {k: v for k, v in grid.base.items() if not k.startswith("held_out")}
    at_one = {"arm": ONE_RATE, "setting": f"PALs, one rate for all, {rate:g}"}
    at_one |= {"learning_rate": rate, "adaptation_rate": 1}
    runs = [best["shared"], *(best[name] | {"inspect": True} for name in METHODS[1:])]
    runs.append(best["pals-204"] | at_one | {"inspect": True})
    alone = {"study": "one task each", "arm": "fine-tuned", "setting": f"eight BERTs, rate {rate:g}"}
    alone |= {"method": "fine-tuned", "learning_rate": rate, "steps": base["steps"] // 2}
    mixed = {"study": "second study", "steps": 2 * base["steps"]}
    each = {"seed": list(LOOKS[FIRST_LOOK])[:SEEDS], "tasks": [[task] for task in TASKS]}
    seeds = {"seed": list(LOOKS[level])}
    return {
        "confirmation": {"base": base | mixed, "product": seeds, "runs": runs},
        "separate": {"base": base | alone, "product": each},
    }


def arms(records: Iterable[dict], level: float = FIRST_LOOK, all_of_five: bool = False) -> dict[str, dict[int, dict]]:
    """Arm -> seed -> the record of its confirmation run, for the seeds that count at the look with this level."""
    found: dict[str, dict[int, dict]] = {name: {} for name in ARMS}
    for record in of_grid("confirmation", records):
        if (seed := record["config"]["seed"]) in counted(name := record["config"]["arm"], level, all_of_five):
            found[name][seed] = record
    return found


def counted(name: str, level: float, all_of_five: bool = False) -> range:
    """The seeds of an arm that count at the look with this level. The fifth arm counts with three, so that no later
    run of it changes what was decided. Only its own question takes `all_of_five` at the second look (DEVIATIONS.md, 28
    and 29 November)."""
    all_seeds = name != ONE_RATE or (all_of_five and level == SECOND_LOOK)
    return LOOKS[level] if all_seeds else LOOKS[level][:SEEDS]


def _difference(runs: Mapping[str, dict[int, dict]], row: Mapping, level: float, without: Sequence[str] = ()) -> dict:
    """The columns that answer a question from these runs, by averages over all tasks but those in `without`."""
    scores = {name: [average(run, without) for run in of.values()] for name, of in runs.items()}
    found = difference(scores, row["left"], row["right"], level)
    return found.cells | {"level": level, "verdict": found.kind()}


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


def _score(record: dict, task: str) -> float:
    return main_scores(record["results"]["last"]["scores"])[task]


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
        pairs = [(left[seed], right[seed]) for seed in sorted(left.keys() & right.keys())]
        for task in TASKS:
            gaps = [_score(a, task) - _score(b, task) for a, b in pairs]
            found, sizes = paired(gaps, 1 - (1 - row["level"]) / len(TASKS)), pairs[0][0]["data"]["dev"][task]
            within = task_margin(task, next(iter(sizes.values())))
            about = {"left": row["left"], "right": row["right"], "task": task}
            rows.append(about | found.cells | {"margin": within, "verdict": found.kind(within)})
    return pd.DataFrame(rows, columns=["left", "right", "task", *COLUMNS[3:7], "margin", "verdict"])


def chosen_afterwards(records: Sequence[dict]) -> pd.DataFrame:
    """For each question that has an answer, two other intervals at its level, both chosen after the data were seen, so
    that they decide nothing: `blocked by seed`, from differences between runs of one seed, which are alike here; and
    with `tasks standardised`, each task's scores divided by their standard deviation between runs of one arm, so that
    no task's noise counts more (in these units, not in points). With `correlation`, that of the two arms over seeds."""
    rows = []
    for row, runs in answered(records):
        seeds = sorted(runs[row["left"]].keys() & runs[row["right"]].keys())
        left, right = (
            pd.DataFrame([{task: _score(runs[row[side]][seed], task) for task in TASKS} for seed in seeds])
            for side in ("left", "right")
        )
        spread = ((left.var() + right.var()) / 2) ** 0.5
        scaled = {side: (scores / spread).mean(axis=1) for side, scores in (("left", left), ("right", right))}
        both = left.mean(axis=1), right.mean(axis=1)
        found = {name: row[name] for name in ("left", "right")} | {"correlation": both[0].corr(both[1])}
        found["blocked by seed"] = paired(list(both[0] - both[1]), row["level"]).text
        found["tasks standardised"] = difference(scaled, "left", "right", row["level"]).text
        rows.append(found)
    return pd.DataFrame(rows)


def separate(records: Iterable[dict]) -> dict[int, dict[str, float]]:
    """Seed -> task -> score, of the models for one task each, for the seeds whose eight runs are all there."""
    found: dict[int, dict[str, float]] = {}
    for record in of_grid("separate", records):
        found.setdefault(record["config"]["seed"], {}).update(main_scores(record["results"]["last"]["scores"]))
    return {seed: of for seed, of in sorted(found.items()) if set(of) == set(TASKS)}


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
        found = {"C26": Verdict(kinds[asked["verdict"]], value, note, files)}
    else:
        found = {"C26": Verdict("not run", "–", f"the second study's question is not decided: {asked['verdict']}")}
    alone = separate(records)
    used = [run for run in runs if run["config"]["arm"] == "pals-204" and run["config"]["seed"] in alone]
    pals = {run["config"]["seed"]: main_scores(run["results"]["last"]["scores"]) for run in used}
    if len(seeds := tuple(sorted(pals))) < SEEDS:
        return found
    used += [run for run in of_grid("separate", records) if run["config"]["seed"] in pals]
    for row in map(load_ledger().get, ("C1", "C22")):
        outcomes = []
        for comparison in map(Comparison.parse, row.compare):
            task, both = comparison.task, (alone, pals) if comparison.left[0].alone else (pals, alone)
            sides = [[of[seed] for seed in seeds] for of in both]
            left, right = (tuple(of[task] if task else fmean(of.values()) for of in side) for side in sides)
            parts = {} if task else parts_of_tasks(*sides)
            outcomes.append(Outcome(comparison, seeds, left, right, tuple(used), parts))
        found[row.id] = together(replace(row, steps=0), outcomes)
    return found


def read_second() -> list[dict]:
    """The committed records of the second study's grids. Raises ValueError for one that is not a run of its grid."""
    found = []
    for name in ("tuning", "confirmation", "separate"):
        keys = {config.key for config in Grid.named(name).configs(Path("runs"))}
        found += (here := read_records(RECORDS / name))
        if strange := [run["file"] for run in here if run["key"] not in keys]:
            raise ValueError(f"no runs of the grid {name!r}: {', '.join(strange)}")
    return found


def ledger_frame() -> pd.DataFrame:
    """`verdict_frame` of the committed records, in which the second study decides its rows."""
    return verdict_frame(decided=of_ledger(read_second()))


def progress(folder: Path = RECORDS) -> pd.DataFrame:
    """What has been run and what is missing: for each grid what it is `about`, the number of its `runs`, of those
    `recorded` in the folder of its name, and of those `missing`; and the `hours` that the recorded ones took."""
    rows = []
    for name in sorted(path.stem for path in PLANS.glob("*.json")):
        grid = Grid.named(name)
        runs = len(grid.runs) * math.prod(map(len, grid.product.values()))
        found = map(read_json, files_within(folder / name) if (folder / name).is_dir() else ())
        took = {record["key"]: record["seconds"]["total"] for record in found if record.get("status") == "finished"}
        row = {"grid": name, "about": grid.title, "runs": runs, "recorded": len(took), "missing": runs - len(took)}
        rows.append(row | {"hours": round(sum(took.values()) / 3600, 1)})
    return pd.DataFrame(rows)


if __name__ == "__main__":  # prints the grids that follow from a tuning; for BERT-base: bert-base-tuning FOLDER, then
    of, *more = sys.argv[1:] or ("tuning",)  # the names of settings that diverged; writes the grids into FOLDER, too
    folder, *diverged = more or (RECORDS / of,)
    found = grids(tuning(read_records(Path(folder)), diverged, of), of)
    for name, grid in found.items() if more else ():
        write_text(Path(folder) / f"{name}.json", json.dumps(grid, indent=1))
    print(json.dumps(found, indent=1))
