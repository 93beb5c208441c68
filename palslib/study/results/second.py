"""The second study: its choices and decisions, exactly as figures/records/PLAN.md and DEVIATIONS.md state them."""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pandas as pd

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
    ("pals-204", "pal-common"): "Is it that they are the task's own?",
    ("pals-204", "low-rank-100"): "Is it their attention?",
    (ONE_RATE, "shared"): "Does the paper's setting, one rate for all, show it?",
}
"""The two arms that are compared -> the question, in the order in which they are asked."""
TUNING_SEEDS, LOOKS = (200, 201), ((range(300, 306), 0.995), (range(300, 312), 0.952))
"""The seeds of the tuning; the seeds of both looks at the confirmation, with the level of their intervals."""
NOT_ASKED, NOT_RUN = "not asked", "runs are missing"
_WAITING = {OPEN: NOT_ASKED, NOT_ASKED: NOT_ASKED, NOT_RUN: NOT_RUN}
"""The verdicts that leave a question undecided -> that of the next one."""


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


def grids(tuned: pd.DataFrame, look: int = 0, plan: str = "tuning") -> dict[str, dict]:
    """The grids `confirmation` (of one look: its new seeds; twice the tuning's steps) and `separate` (half of them),
    from the complete frame of `tuning`.

    Raises:
        ValueError: naming methods whose tuning is not complete.
    """
    grid, chosen = Grid.named(plan), set(tuned.loc[tuned["chosen"], "setting"])
    best = {run["method"]: run for run in grid.runs if run["setting"] in chosen}
    if missing := [method for method in METHODS if method not in best]:
        raise ValueError(f"the tuning is not complete: {', '.join(missing)}")
    rate, base = best["shared"]["learning_rate"], {k: v for k, v in grid.base.items() if k != "held_out"}
    at_one = {"setting": f"PALs, one rate for all, {rate:g}", "learning_rate": rate, "adaptation_rate": 1}
    runs = [best["shared"], *(best[name] | {"inspect": True} for name in METHODS[1:])]
    runs.append(best["pals-204"] | at_one | {"inspect": True})
    seeds = [seed for seed in LOOKS[look][0] if look == 0 or seed not in LOOKS[0][0]]
    alone = {"setting": f"separate models, rate {rate:g}", "method": "fine-tuned", "learning_rate": rate}
    each = {"seed": list(LOOKS[0][0])[:3], "tasks": [[task] for task in TASKS]}
    return {
        "confirmation": {"base": base | {"steps": 2 * base["steps"]}, "product": {"seed": seeds}, "runs": runs},
        "separate": {"base": base | alone | {"steps": base["steps"] // 2}, "product": each},
    }


def arm(record: dict) -> str:
    """The arm that a run of the confirmation belongs to."""
    config = record["config"]
    at_one_rate = config["method"] == "pals-204" and config["adaptation_rate"] == 1  # tuned PALs learn faster
    return ONE_RATE if at_one_rate else config["method"]


def scores(
    records: Iterable[dict], seeds: Iterable[int], without: Sequence[str] = (), task: str | None = None
) -> dict[str, dict[int, float]]:
    """Arm -> seed -> the dev average of its confirmation run, or the score of one task."""
    found = {name: {} for name in ARMS}
    for record in of_grid("confirmation", records):
        if (seed := record["config"]["seed"]) in set(seeds):
            score = main_scores(record["results"]["last"]["scores"])[task] if task else average(record, without)
            found[arm(record)][seed] = score
    return found


def decide(records: Iterable[dict], without: Sequence[str] = ()) -> pd.DataFrame:
    """The four questions in order: `question`, `left`, `right`, `difference`, `low`, `high`, `seeds` (of both sides,
    `6 and 6`), `level` of the interval, and `verdict`: positive, negative, too small to matter, open; `not asked` after
    a question that is open, and `runs are missing`.

    What the first look decides stands. The second (twelve seeds) covers the questions left open and those after them.
    """
    looks = [(scores(records, seeds, without), len(seeds), level) for seeds, level in LOOKS]
    rows, start, before = [], 0, ""
    for (left, right), question in QUESTIONS.items():
        row = {"question": question, "left": left, "right": right, "verdict": _WAITING.get(before, NOT_RUN)}
        for look, (of, number, level) in enumerate(looks) if before not in _WAITING else ():
            whole = all(len(of[name]) >= (SEEDS if name == ONE_RATE else number) for name in {*METHODS, left, right})
            if look >= start and whole and row["verdict"] in (NOT_RUN, OPEN):
                found = difference({name: list(by_seed.values()) for name, by_seed in of.items()}, left, right, level)
                row |= found.cells | {"level": level, "verdict": found.kind()}
                start = look
        before = row["verdict"]
        rows.append(row)
    columns = ["question", "left", "right", "difference", "low", "high", "seeds", "level", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def by_task(records: Sequence[dict]) -> pd.DataFrame:
    """PALs minus shared by task, paired by seed, with intervals that hold for all tasks together (Bonferroni's 95 %):
    `task`, `difference`, `low`, `high`, `seeds`, `margin`, `verdict`. It decides nothing."""
    runs = of_grid("confirmation", records)
    rows = []
    for task in TASKS:
        of = scores(runs, LOOKS[1][0], task=task)
        common = sorted(of["pals-204"].keys() & of["shared"].keys())
        found = paired([of["pals-204"][seed] - of["shared"][seed] for seed in common], 1 - 0.05 / len(TASKS))
        sizes = runs[0]["data"]["dev"][task] if runs else {}
        within = task_margin(task, next(iter(sizes.values()), None))
        rows.append({"task": task} | found.cells | {"margin": within, "verdict": found.kind(within)})
    return pd.DataFrame(rows)


def separate(records: Iterable[dict]) -> dict[int, dict[str, float]]:
    """Seed -> task -> score, of the models for one task each whose eight runs of a seed are all there."""
    found: dict[int, dict[str, float]] = {}
    for record in of_grid("separate", records):
        found.setdefault(record["config"]["seed"], {}).update(main_scores(record["results"]["last"]["scores"]))
    return {seed: of for seed, of in sorted(found.items()) if set(of) == set(TASKS)}


def of_ledger(records: Sequence[dict]) -> dict[str, Verdict]:
    """The second study's verdicts on rows of the ledger. C26: the answer to the second question. C1 and C22: PALs
    against models for one task each, by the rule of `claims.py` for any number of steps, once three seeds of both are
    there."""
    runs = of_grid("confirmation", records)
    asked, files = decide(records).iloc[1], [run["file"] for run in runs if arm(run) in ("pals-204", "pal-common")]
    kinds = {POSITIVE: "reproduced", NEGATIVE: "not reproduced", TOO_SMALL: TOO_SMALL, OPEN: "inconclusive"}
    if asked["verdict"] in kinds:
        value = Difference(*asked[["difference", "low", "high"]], (0, 0)).text + f" ({asked['seeds']} seeds)"
        note = f"the second study; the interval is of {100 * asked['level']:g} %"
        found = {"C26": Verdict(kinds[asked["verdict"]], value, note, tuple(files))}
    else:
        found = {"C26": Verdict("not run", "–", f"the second study's question is not decided: {asked['verdict']}")}
    alone = separate(records)
    used = [run for run in runs if arm(run) == "pals-204" and run["config"]["seed"] in alone]
    pals = {run["config"]["seed"]: main_scores(run["results"]["last"]["scores"]) for run in used}
    if len(seeds := tuple(sorted(pals))) < SEEDS:
        return found
    used += [run for run in of_grid("separate", records) if run["config"]["seed"] in pals]
    for row in map(load_ledger().get, ("C1", "C22")):
        outcomes = []
        for comparison in map(Comparison.parse, row.compare):
            task, both = comparison.what, (alone, pals) if comparison.left[0].alone else (pals, alone)
            sides = [[of[seed] for seed in seeds] for of in both]
            left, right = (tuple(of[task] if task else fmean(of.values()) for of in side) for side in sides)
            parts = {} if task else parts_of_tasks(*sides)
            outcomes.append(Outcome(comparison, seeds, left, right, tuple(used), parts))
        found[row.id] = together(replace(row, steps=0), outcomes)
    return found


def read_second() -> list[dict]:
    """The committed records of the second study's grids."""
    places = map(RECORDS.joinpath, ("tuning", "confirmation", "separate"))
    return read_records(file for place in places for file in files_within(place))


def ledger_frame() -> pd.DataFrame:
    """`verdict_frame` of the committed records, in which the second study decides its rows."""
    return verdict_frame(decided=of_ledger(read_second()))


def progress(folder: Path = RECORDS) -> pd.DataFrame:
    """What has been run and what is missing: for each grid its number of `runs`, of those `recorded` in the folder of
    its name, and `missing`; `hours` that the recorded ones took. The two grids that follow from the tuning are listed
    before they are written."""
    planned = {"confirmation": len(ARMS) * len(LOOKS[0][0]), "separate": 3 * len(TASKS)}
    for path in PLANS.glob("*.json"):
        grid = Grid.from_file(path)
        planned[path.stem] = len(grid.runs) * math.prod(map(len, grid.product.values()))
    rows = []
    for name, runs in sorted(planned.items()):
        found = map(read_json, files_within(folder / name) if (folder / name).is_dir() else ())
        took = {record["key"]: record["seconds"]["total"] for record in found if record.get("status") == "finished"}
        row = {"grid": name, "runs": runs, "recorded": len(took), "missing": runs - len(took)}
        rows.append(row | {"hours": round(sum(took.values()) / 3600, 1)})
    return pd.DataFrame(rows)


if __name__ == "__main__":  # the grids that follow from a tuning, as JSON; for BERT-base: bert-base-tuning FOLDER,
    of, folder, *diverged = sys.argv[1:] or ("tuning", RECORDS / "tuning")  # then the names of settings that diverged
    print(json.dumps(grids(tuning(read_records(Path(folder)), diverged, of), plan=of), indent=1))
