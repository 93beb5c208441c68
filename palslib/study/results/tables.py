"""Table 3 and further results on the central question, beside the paper's numbers (notebook 11).

All frames are of one study: runs that share backbone, data, steps and all else but arm, schedule and seed. A *line* is
an arm: a method's name with its options (`pals-204 freeze=backbone`). Tables show the paper's lines (`COMPARED`) or
those that `lines` finds. Means are over seeds, with standard error and number of seeds; without runs they are NaN, with
0 seeds.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

import pandas as pd

from palslib.common.places import RECORDS
from palslib.common.reading import read_json
from palslib.data.metrics import main_scores
from palslib.data.tasks import TASK_LABELS, TASKS
from palslib.grid.sweep import PLANS, Grid
from palslib.methods.table import LABELS
from palslib.plan.config import RunConfig
from palslib.plan.sampling import MIXED
from palslib.study.ledger.arms import Term, check_alike, named
from palslib.study.ledger.claims import SEEDS, Comparison, Outcome, maker, processor, smallest_difference
from palslib.study.ledger.intervals import family, paired
from palslib.study.ledger.paper import TABLE_2, TABLE_3, Mean, load_ledger

COMPARED = (
    "shared",
    "fine-tuned",
    "pals-204",
    "pals-no-sharing-84",
    "low-rank-100",
    "pals-276-top",
    "pals-276-bottom",
    "ffn-306",
    "serial-100",
    "lhuc",
    "attention-on-top-204",
    "ffn-on-top-408",
    "bert-layer-on-top",
)
"""The methods of table 3, and those that the paper compares with them."""
COLUMNS = {
    "mnli_m": ("mnli", "accuracy"),
    "mnli_mm": ("mnli", "accuracy_mm"),
    "qqp_acc": ("qqp", "accuracy"),
    "qqp_f1": ("qqp", "f1"),
    "qnli": ("qnli", "accuracy"),
    "sst2": ("sst2", "accuracy"),
    "cola": ("cola", "matthews"),
    "stsb": ("stsb", "pearson"),
    "mrpc_acc": ("mrpc", "accuracy"),
    "mrpc_f1": ("mrpc", "f1"),
    "rte": ("rte", "accuracy"),
}
"""Column of the paper's table 2 -> task and metric. (Its STS-B: Spearman's, as BERT's paper; ours: Pearson's.)"""
_PRINTED = ("MNLI-m", "MNLI-mm", "QQP", "QQP-F1", "QNLI", "SST-2", "CoLA", "STS-B", "MRPC", "MRPC-F1", "RTE")
PRINTED = TASK_LABELS | dict(zip(COLUMNS, _PRINTED, strict=True))
"""The names of these columns, and of tasks, in our tables."""
_SETTINGS = {"backbone": "backbone", "data": "data", "tasks": "tasks", "steps": "steps", "batch_size": "batch"}
_SETTINGS |= {"max_length": "longest text", "learning_rate": "highest rate", "warmup": "warm-up (share of the steps)"}
_SETTINGS |= {"head_dropout": "dropout before the head", "weight_decay": "weight decay"}
_SETTINGS |= {"clip": "gradient's length, at most"}


def of_study(records: Iterable[dict], study: str | None = None) -> list[dict]:
    """The finished runs of mixed tasks of a study, by default of the one with the most of them; and of these the runs
    of the same tasks as most have, since averages over other tasks cannot be compared."""
    mixed = [record for record in named(records) if record["config"]["schedule"] in MIXED]
    studies = Counter(record["config"]["study"] for record in mixed)
    study = study or next(iter(dict(studies.most_common(1))), None)
    runs = [record for record in mixed if record["config"]["study"] == study]
    tasks = Counter(tuple(record["config"]["tasks"]) for record in runs)
    usual = max(tasks, key=lambda some: (tasks[some], len(some)), default=())
    return [record for record in runs if tuple(record["config"]["tasks"]) == usual]


def left_out(records: Iterable[dict], runs: Sequence[dict]) -> pd.DataFrame:
    """What the tables of `runs` leave out: `runs`, the number of records, and `why`: their study, status and
    schedule."""
    kept = {run.get("file", run["key"]) for run in runs if run["config"]["arm"]}
    others = [record for record in records if record.get("file", record["key"]) not in kept]
    whys = Counter(f"{r['config']['study'] or 'yours'}, {r['status']}, {r['config']['schedule']}" for r in others)
    return pd.DataFrame(whys.most_common(), columns=["why", "runs"])[["runs", "why"]]


def lines(records: Sequence[dict]) -> list[str]:
    """The lines that runs make; those that the paper compares come first."""
    arms = dict.fromkeys(arm for record in records if (arm := record["config"]["arm"]))
    return sorted(arms, key=[*COMPARED, *arms].index)


def first_two(methods: Iterable[str]) -> tuple[str, str]:
    """(left, base) to compare first: PALs and `shared`; one without runs is replaced by the next that has some."""
    known = [method for method in ("shared", "pals-204") if method in methods]
    base, left, *_ = dict.fromkeys([*known, *methods, "shared", "pals-204"])
    return left, base


def label(line: str) -> str:
    """A line's name for people: `PALs, freeze=backbone`."""
    method, *options = line.split(" ", 1)
    return ", ".join([LABELS.get(method, method), *options])


def usual_schedule(records: Sequence[dict]) -> str:
    """The schedule under which methods are compared: annealed or, where no run has it, that of most runs."""
    schedules = Counter(record["config"]["schedule"] for record in records)
    return "annealed" if "annealed" in schedules or not schedules else schedules.most_common(1)[0][0]


def compared(left: str, right: str, records: Sequence[dict], task: str = "") -> Outcome:
    """Two lines under the usual schedule, paired by seed, by their dev average or by a task."""
    schedule = usual_schedule(records)
    terms = [(Term(line, schedule, data=None),) for line in (left, right)]
    return Comparison(*terms, task=task).decide(records)


def like_the_papers(records: Sequence[dict]) -> bool:
    """Whether runs mix the paper's eight tasks on GLUE and are scored on its dev sets, not on held-out training rows,
    so that the paper's numbers may stand beside theirs."""
    configs = [record["config"] for record in records]
    return all(c["data"] == "glue" and set(c["tasks"]) == set(TASKS) and not c["held_out"] for c in configs)


def _mean(scores: Sequence[float | None]) -> dict:
    """Mean, standard error (NaN for one seed; both are NaN where a score is None) and number of seeds."""
    by_seed = pd.Series(scores, dtype=float)
    return {"mean": by_seed.mean(skipna=False), "error": by_seed.sem(skipna=False), "seeds": len(by_seed)}


def runs_of(line: str, records: Sequence[dict], schedule: str = "") -> list[dict]:
    """The runs of a line under a schedule (default: the usual one): one run for each seed; of repeats the last.
    Raises ValueError for repeats that differ in a setting."""
    term = Term(line, schedule or usual_schedule(records), data=None)
    runs: dict[int, list[dict]] = {}
    for run in filter(term.matches, records):
        runs.setdefault(run["config"]["seed"], []).append(run)
        check_alike(line, runs[run["config"]["seed"]])
    return [repeats[-1] for repeats in runs.values()]


def table_3(records: Sequence[dict], without: Sequence[str] = (), methods: Iterable[str] = COMPARED) -> pd.DataFrame:
    """A row for each line and schedule: `paper`, `paper error`, `mean`, `error`, `seeds` of the dev average.

    Args:
        without: tasks that our average leaves out; the paper's scores are then NaN.
        methods: the lines.
    """
    rows, papers = [], TABLE_3 if like_the_papers(records) and not without else {}
    for method in methods:
        for schedule in MIXED:
            scores = [average(r, without) for r in runs_of(method, records, schedule)]
            paper, error = papers.get(method, {}).get(schedule, Mean(math.nan))
            row = {"method": method, "schedule": schedule, **_mean(scores)}
            rows.append(row | {"paper": paper, "paper error": error or math.nan})
    return pd.DataFrame(rows)


def of_common_seeds(records: Sequence[dict], methods: Sequence[str]) -> list[dict]:
    """The runs whose seed exists for every line and schedule that was run, so that their means can be compared
    directly."""
    groups = [runs_of(method, records, schedule) for method in methods for schedule in MIXED]
    seeds = [{r["config"]["seed"] for r in group} for group in groups if group]
    return [r for group in groups for r in group if r["config"]["seed"] in set.intersection(*seeds)]


def average(record: dict, without: Sequence[str] = ()) -> float:
    """The dev average after the last step, in percent, over all tasks but those in `without`."""
    scores = main_scores(record["results"]["last"]["scores"])
    return fmean(score for task, score in scores.items() if task not in without)


def scores_by_method(
    records: Sequence[dict], without: Sequence[str] = (), methods: Iterable[str] = COMPARED
) -> dict[str, list[float]]:
    """Line -> the dev averages of all its runs under the usual schedule."""
    return {method: [average(r, without) for r in runs_of(method, records)] for method in methods}


def against(records: Sequence[dict], base: str = "shared", methods: Iterable[str] = COMPARED) -> pd.DataFrame:
    """Every line minus `base`, from all seeds of both: the columns of `intervals.family` (`low` and `high` are
    Dunnett's, for all lines together; lines without runs have NaN and 0 seeds), and the paper's difference, `paper`,
    with `paper half` where it prints standard errors of three seeds (Student's t, 4 degrees of freedom)."""
    frame = family(scores_by_method(records, methods=(base, *methods)), base)
    table, schedule = TABLE_3 if like_the_papers(records) else {}, usual_schedule(records)
    first, *others = (table.get(method, {}).get(schedule, Mean(math.nan)) for method in (base, *frame["method"]))
    frame["paper"] = [cell.mean - first.mean for cell in others]
    frame["paper half"] = [2.776 * math.hypot(cell.error or math.nan, first.error or math.nan) for cell in others]
    return frame


def by_task(records: Sequence[dict], methods: Iterable[str] = tuple(TABLE_2)) -> pd.DataFrame:
    """A row for each line and column of table 2, or for each line and task where runs do not have the paper's eight:
    the paper's test score (else NaN), our dev score (`mean`, `error`, `seeds`)."""
    rows, theirs = [], like_the_papers(records)
    columns = (*COLUMNS, "average") if theirs else records[0]["config"]["tasks"]
    for method in methods:
        results = [r["results"]["last"] for r in runs_of(method, records)]
        for column in columns:
            paper = TABLE_2.get(method, {}).get(column, math.nan) if theirs else math.nan
            here = _mean([_score(last, column) for last in results])
            rows.append({"method": method, "column": column, "paper": paper, **here})
    return pd.DataFrame(rows)


def _score(last: dict, column: str) -> float | None:
    if column == "average":
        return last["glue_average"]
    task, metric = COLUMNS.get(column, (column, None))
    return last["scores"][task].get(metric) if metric else main_scores(last["scores"])[task]


def cell(mean: float, error: float, seeds: int | None = None) -> str:
    """The text of a mean and its error, `81.7 ± 0.20`, followed by the number of seeds, if given; a dash for NaN."""
    if mean != mean:
        return "–"
    text = f"{mean:.1f}" + (f" ± {error:.2f}" if error == error else "")
    return text if seeds is None else f"{text} ({seeds})"


def table_3_cells(table: pd.DataFrame) -> pd.DataFrame:
    """The frame of `table_3` as text: a row for each line, and under each schedule the paper's cell and ours, without
    columns of dashes."""
    rows = []
    for method, part in table.groupby("method", sort=False):
        row = {("", "method"): label(method)}
        for line in part.to_dict("records"):
            row[line["schedule"], "paper"] = cell(line["paper"], line["paper error"])
            row[line["schedule"], "here"] = cell(line["mean"], line["error"], line["seeds"])
        rows.append(row)
    frame = pd.DataFrame(rows)
    frame.columns = pd.MultiIndex.from_tuples(frame.columns)
    return frame.loc[:, (frame != "–").any()]


def settings_table(configs: Mapping[str, RunConfig]) -> pd.DataFrame:
    """A row for each setting that decides what a run learns, and how fast; a column for each config, by its name."""
    rows = []
    for field, name in _SETTINGS.items():
        values = [getattr(config, field) for config in configs.values()]
        values = map(len, values) if field == "tasks" else values
        rows.append([name, *(f"{v:,}" if isinstance(v, int) else "BERT's" if v is None else str(v) for v in values)])
    rows.append(["decay", *(config.resolved_recipe().decay for config in configs.values())])
    return pd.DataFrame(rows, columns=["setting", *configs])


def table_2_cells(scores: pd.DataFrame) -> pd.DataFrame:
    """The frame of `by_task` as text: for each line a row of the paper's scores, if it has any, and one of ours."""
    rows = []
    for method, part in scores.groupby("method", sort=False):
        scores_of = part.to_dict("records")
        paper = {c["column"]: cell(c["paper"], math.nan) for c in scores_of}
        here = {c["column"]: cell(c["mean"], c["error"], c["seeds"]) for c in scores_of}
        rows += [{"method": f"{label(method)}, paper (test)"} | paper] if part["paper"].notna().any() else []
        rows.append({"method": f"{label(method)}, here (dev)"} | here)
    return pd.DataFrame(rows).rename(columns=PRINTED)


def task_differences(records: Sequence[dict], left: str, right: str) -> pd.DataFrame:
    """left - right for each task, paired by seed, which helps for large tasks: `task`, `difference`, `low`, `high` (of
    intervals that hold for all tasks together, Bonferroni's 95 %), `seeds`."""
    rows, tasks = [], records[0]["config"]["tasks"] if records else ()
    for task in sorted(tasks, key=[*TASKS, *tasks].index):
        outcome = compared(left, right, records, task)
        gap = paired(outcome.differences, 1 - 0.05 / len(tasks))
        rows.append({"task": task} | gap.cells | {"seeds": len(outcome.seeds)})
    return pd.DataFrame(rows, columns=["task", "difference", "low", "high", "seeds"])


def claims_frame(
    records: Sequence[dict],
    spread: float | None = None,
    source: str = "",
    words: Callable[[Comparison], str] = lambda comparison: comparison.sentence,
) -> pd.DataFrame:
    """A row for each comparison of each row C: the `row`, what is `compared`, the `difference` with its 95 % interval
    (`low` and `high`), the number of `seeds`, the `verdict`; the `spread` (standard deviation) of the differences
    between pairs, and the `smallest` difference that so many pairs, at least three, can show with a power of 80 %.

    Args:
        spread: used where dev averages on GLUE's eight tasks have fewer than three pairs.
        source: how the source of the rows begins, such as `minbert`; by default all rows are taken.
        words: says what a comparison states.
    """
    table, runs = [], named(records)
    for row in (row for row in load_ledger().values() if row.kind == "C" and row.source.startswith(source)):
        for comparison in map(Comparison.parse, row.compare):
            outcome, why = Outcome(comparison), ""
            try:
                outcome = comparison.decide(runs)
            except ValueError as error:  # as where runs of yours contradict each other
                why = str(error)
            seeds, verdict = len(outcome.seeds), why or outcome.verdict_for(row)
            if outcome.only_just and verdict == outcome.verdict:
                verdict += ", only just"
            own = spread if comparison.of_glue_averages else None
            if seeds >= SEEDS:
                own = pd.Series(outcome.differences).std(skipna=False)
            smallest = math.nan if own is None else smallest_difference(own, max(SEEDS, seeds))
            line = {"row": row.id, "compared": words(comparison)} | outcome.interval.cells
            table.append(line | {"seeds": seeds, "verdict": verdict, "spread": own, "smallest": smallest})
    return pd.DataFrame(table)


def provenance(records: Iterable[dict]) -> pd.DataFrame:
    """The origin of each run's dev average: `file`, its `folder`, commit, whether the working tree was clean, the
    processor and its `maker`, hours. A record that is given twice counts once."""
    rows = []
    for record in {(record.get("file"), record["key"]): record for record in records}.values():
        made_in = record["environment"]
        row = {"dev average": record["results"]["last"]["dev_average"], "file": record.get("file", "")}
        row |= {"commit": (made_in.get("git_commit") or "")[:10], "clean": made_in.get("git_dirty") is False}
        row |= {"folder": row["file"].rpartition("/")[0], "processor": processor(record), "maker": maker(record)}
        rows.append(row | {"hours": record["seconds"]["total"] / 3600})
    return pd.DataFrame(rows)


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
