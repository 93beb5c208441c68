"""Verdicts on rows C of the ledger, from the records of finished runs.

A comparison `left > right` is a paired test: under one schedule two runs with the same seed draw the same tasks,
examples and dropout, and δ is the difference of their scores. With n seeds the 95 % interval is mean(δ) ± t·s(δ)/√n,
with Student's t of n - 1 degrees of freedom. Where one side has a model for each task, in runs of their own, two runs
share nothing, and the interval is Welch's, of two groups. `>` is reproduced if the whole interval lies above 0, and not
reproduced if it lies below. `>=` (no worse) uses -0.5 points in place of 0. Otherwise a difference of two scores, for
`>`, is too small to matter if the whole interval lies within a margin (0.5 points; for one task 0.5 points or three dev
examples, whichever is more, and 1 point for CoLA and STS-B). If it does not, the comparison is inconclusive, as it is
with fewer than three seeds (five for a spread). It is not testable at this scale if a run has fewer steps than the
row's `steps`, or if it compares one task and both sides have a median score of 0 (a Matthews correlation of 0:
predictions are constant, nothing is learnt).

A side may be a sum of runs: `a + d > b + c` means a - b > c - d. Only runs of one study are compared
(`arms.py`); where several studies have enough seeds, the longest runs decide. Of repeated runs only one counts: the one
from a processor of the same maker as the other side's run (of several makers, the alphabetically last), else the last.
If a side is models for one task each, a seed's score is the mean over the tasks that both sides have; where all of them
were trained in one mixed run, its schedule is the other side's.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, median, mode, stdev
from typing import NamedTuple

import pandas as pd
from scipy import optimize, stats

from palslib.data.metrics import main_scores
from palslib.data.tasks import TASK_LABELS, TASKS, get_task
from palslib.records import from_lines
from palslib.study.analysis.forgetting import transfer_measures
from palslib.study.ledger.arms import Term, check_alike, named
from palslib.study.ledger.intervals import MARGIN, TOO_SMALL, Difference, paired, welch
from palslib.study.ledger.paper import GLUE_TRAIN_SIZES, Row

SEEDS = 3
"""The least number of seeds for a verdict; with fewer a comparison is inconclusive."""
EDGE = 0.05
"""In points. If an interval ends this close to its bound, the verdict is uncertain: one more seed may change it."""
SPREAD_SEEDS = 5
"""The least number of seeds for a verdict on a spread over seeds."""
NOT_TESTABLE = "not testable at this scale"
_LABELS = TASK_LABELS | {"sts": "STS"}
MEASURES = ("backward", "spread")
"""What a comparison may name after its colon, besides a task: backward transfer (what later tasks did to earlier ones),
and the distance of a seed's average from the median over seeds."""


class Verdict(NamedTuple):
    """What is decided about a row."""

    verdict: str
    value: str
    """Our value, as text."""
    note: str = ""
    """What the verdict rests on, or what it leaves open."""
    files: tuple[str, ...] = ()
    """Files of the records that decide it, relative to `RECORDS`."""


@dataclass(frozen=True)
class Comparison:
    """What is claimed of two runs, or of two sums of runs: `left > right`, or `>=`, by an average, a task or a measure.

    The ledger writes it as `run + ... > run + ...`, then ` : ` and a task or a name of `MEASURES`."""

    left: tuple[Term, ...]
    right: tuple[Term, ...]
    relation: str = ">"
    task: str = ""
    """The task whose scores are compared; empty: a measure of all."""
    measure: str = ""
    """A name of `MEASURES`; empty: the average, or of models for one task each the mean over the tasks of both."""

    @classmethod
    def parse(cls, text: str) -> "Comparison":
        """The comparison that an entry of a row's `compare` states. Raises ValueError for a mistyped one."""
        sides, _, what = text.partition(" : ")
        relation = ">=" if " >= " in sides else ">"
        if what and what not in MEASURES:
            get_task(what)  # raises ValueError for an unknown one
        left, right = (tuple(map(Term.parse, side.split(" + "))) for side in sides.split(f" {relation} "))
        return cls(left, right, relation, **{"measure" if what in MEASURES else "task": what})

    @property
    def sentence(self) -> str:
        """What it states: `PALs (annealed) should be better than shared (annealed) on RTE`; `a + d > b + c` compares
        what a gains over b with what c gains over d."""
        (first, *more), (other, *others) = ([term.words for term in side] for side in (self.left, self.right))
        if self.measure == "spread":
            return f"{first} should spread more over seeds than {other}"
        if more:
            return f"the gain of {first} over {other} should be larger than that of {others[0]} over {more[0]}"
        better = "better" if self.relation == ">" else "no worse"
        where = f" on {_LABELS.get(self.task, self.task)}" if self.task else ""
        return f"{first} should be {better} than {other}{' in backward transfer' if self.measure else where}"

    @property
    def of_glue_averages(self) -> bool:
        """Whether it compares the dev averages of two models, each trained on GLUE's eight tasks (with memory, on
        three)."""
        three = any(term.schedule == "sequential" or "memory=" in term.arm for term in self.terms)
        of_glue = all(term.data in (None, "glue") for term in self.terms) and not three
        mixed = not all(term.alone for term in self.terms)
        return len(self.terms) == 2 and of_glue and mixed and not (self.task or self.measure)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of both sides."""
        return self.left + self.right

    def decide(self, records: Sequence[dict]) -> "Outcome":
        """The outcome in one study. Studies with enough seeds for a verdict come first, and of these the one with the
        longest runs; if none has enough, or runs are equally long, the one with the most seeds, then most runs."""

        def evidence(outcome: Outcome) -> tuple:
            steps = [run["results"]["last"]["step"] for run in outcome.records]  # a run may have ended early
            return min(steps) if outcome.enough_seeds else 0, len(outcome.seeds), len(outcome.records)

        studies = self._scores(named(records)).groupby("study", sort=False)
        outcomes = [self._outcome(scores) for _, scores in studies if scores["term"].nunique() == len(self.terms)]
        return max(outcomes, key=evidence, default=Outcome(self))

    def _scores(self, records: Sequence[dict]) -> pd.DataFrame:
        """The scores that are compared: a row for each run and task, with its `term` (a number), `study`, `seed`,
        `maker` of the processor, the `run` itself, `task` and `score`. An undefined score is left out."""
        rows, schedules = [], {term.schedule for term in self.terms if not term.alone}
        for number, term in enumerate(self.terms):
            eight = self.of_glue_averages and term.data == "glue" and not term.alone
            for run in filter(term.matches, records):
                config = run["config"]
                other = schedules and len(config["tasks"]) > 1 and config["schedule"] not in schedules
                if other or (eight and set(config["tasks"]) != set(TASKS)):
                    continue
                shared = number, run["config"]["study"], run["config"]["seed"], maker(run), run
                rows += [(*shared, task, score) for task, score in self._scores_of(run).items()]
        columns = ["term", "study", "seed", "maker", "run", "task", "score"]
        return pd.DataFrame(rows, columns=columns).dropna(subset="score")

    def _outcome(self, scores: pd.DataFrame) -> "Outcome":
        """The outcome of the scores of one study, in which each term has some."""
        scores = self._without_repeats(scores)
        pairs = scores.pivot(index=["seed", "task"], columns="term", values="score").dropna()
        terms_of_task = scores.groupby("task")["term"].nunique()
        tasks = terms_of_task.index[terms_of_task == len(self.terms)]  # those that all terms have
        means = pairs.groupby("seed").mean()[pairs.groupby("seed").size() == len(tasks)]  # seeds that have all of these
        if self.measure == "spread":
            means = (means - means.median()).abs()
        cut = len(self.left)
        left, right = means.iloc[:, :cut].sum(axis=1), means.iloc[:, cut:].sum(axis=1)
        used = scores[scores["seed"].isin(means.index) & scores["task"].isin(tasks)] if len(means) else scores
        used, parts = used.sort_values(["term", "seed"], kind="stable"), {}
        if self.of_glue_averages and len(means):
            parts = parts_of_tasks(*(map(_task_scores, runs) for _, runs in used.groupby("term")["run"]))
        compared = tuple({id(run): run for run in used["run"]}.values())  # a run has a row for each task
        study = compared[0]["config"]["study"]
        for name in ("data", "steps", "batch_size"):
            configs = [run["config"] for run in compared if f" {name}=" not in run["config"]["arm"]]
            if study and len({config[name] for config in configs}) > 1:
                raise ValueError(f"{self.sentence}: runs of the study {study!r} differ in {name}")
        return Outcome(self, tuple(means.index), tuple(left), tuple(right), compared, parts)

    def _without_repeats(self, scores: pd.DataFrame) -> pd.DataFrame:
        """The scores of one run for each term, seed and task: of repeated runs the last one, or the last of those from
        the maker of processors that all terms have for this seed (of several makers, the alphabetically last)."""
        one = ["term", "seed", "task"]
        for _, runs in scores[scores.duplicated(one, keep=False)].groupby(one)["run"]:
            check_alike(self.sentence, list(runs))
        common = scores.groupby(["seed", "maker"])["term"].transform("nunique") == len(self.terms)
        made_by = scores["maker"].where(common, "")
        order = scores.assign(common=common, maker=made_by).sort_values(["common", "maker"], kind="stable").index
        return scores.loc[order].drop_duplicates(one, keep="last").sort_index()

    def _scores_of(self, run: dict) -> dict[str, float | None]:
        """The scores of a run: one measure or average, or one score for each task that is compared."""
        if self.measure == "backward":
            with suppress(ValueError):  # not evaluated where tasks end
                return {"backward": transfer_measures(run)["backward"]}
            return {}
        if self.measure or not (self.task or any(term.alone for term in self.terms)):
            return {"average": run["results"]["last"]["dev_average"]}  # None: undefined, as of constants (D3)
        return {task: score for task, score in _task_scores(run).items() if self.task in ("", task)}


@dataclass(frozen=True)
class Outcome:
    """The result of a comparison on the runs of one study; empty without runs."""

    comparison: Comparison
    seeds: tuple[int, ...] = ()
    """The seeds that the runs of all terms have."""
    left: tuple[float, ...] = ()
    right: tuple[float, ...] = ()
    """The score of each side for each seed."""
    records: tuple[dict, ...] = ()
    """The records of the runs that were compared."""
    parts: dict[str, float] = field(default_factory=dict)
    """Task -> its part in a difference of averages over GLUE's tasks (`parts_of_tasks`); else empty."""

    @property
    def differences(self) -> list[float]:
        """The difference δ for each seed."""
        return [a - b for a, b in zip(self.left, self.right, strict=True)]

    @property
    def in_pairs(self) -> bool:
        """Whether both sides of a seed drew the same tasks and examples: not, if one side alone trains a model for each
        task, in runs of their own."""
        alone = {term.alone for term in self.comparison.terms}
        return len(alone) == 1 or len({tuple(record["config"]["tasks"]) for record in self.records}) < 2

    @cached_property
    def interval(self) -> Difference:
        """The mean of δ with its 95 % interval (Welch's, unless `in_pairs`), whose ends are NaN with one seed."""
        return paired(self.differences) if self.in_pairs else welch(self.left, self.right)

    @property
    def margin(self) -> float:
        """The points within which a difference of these scores is too small to matter."""
        task = self.comparison.task
        dev = self.records[0].get("data", {}).get("dev", {}).get(task, {}) if task else {}
        return task_margin(task, next(iter(dev.values()), None)) if task else MARGIN

    @property
    def bound(self) -> float:
        """The value that the whole interval must lie above."""
        return -MARGIN if self.comparison.relation == ">=" else 0.0

    @property
    def enough_seeds(self) -> bool:
        """Whether there are enough seeds for a verdict."""
        return len(self.seeds) >= (SPREAD_SEEDS if self.comparison.measure == "spread" else SEEDS)

    @property
    def verdict(self) -> str:
        """The verdict by the rule in this module's docstring."""
        if not self.records:
            return "not run"
        if not self.enough_seeds:
            return "inconclusive"
        if self.comparison.task and median(self.left) == median(self.right) == 0:  # neither side has learnt it
            return NOT_TESTABLE
        interval = self.interval
        if interval.low > self.bound:
            return "reproduced"
        if interval.high < self.bound:
            return "not reproduced"
        of_two_scores = len(self.comparison.terms) == 2 and not self.comparison.measure
        small = of_two_scores and self.bound == 0 and interval.kind(self.margin) == TOO_SMALL
        return TOO_SMALL if small else "inconclusive"

    def verdict_for(self, row: Row) -> str:
        """The verdict for this row: `not testable` if a run has fewer steps than the row needs."""
        short = any(run["results"]["last"]["step"] < row.steps for run in self.records)
        return NOT_TESTABLE if short else self.verdict

    @property
    def only_just(self) -> bool:
        """Whether it is decided, and its interval ends within `EDGE` of the bound."""
        ends = self.interval.low, self.interval.high
        decided = self.verdict in ("reproduced", "not reproduced")
        return decided and min(abs(end - self.bound) for end in ends) < EDGE

    def __str__(self) -> str:
        """The comparison, means ± standard errors, the mean difference with its 95 % interval, the number of seeds."""
        text = f"{self.comparison.sentence}:"
        if not self.seeds:
            return f"{text} no seed in common"
        text += f" {_printed(self.left)} against {_printed(self.right)}"
        if len(self.seeds) == 1:
            return f"{text} (1 seed)"
        just = ", only just" if self.only_just else ""
        return f"{text}, {self.interval.text}{just} ({len(self.seeds)} seeds)"


def _task_scores(record: dict) -> dict[str, float]:
    return main_scores(record["results"]["last"]["scores"])


def processor(record: dict) -> str:
    """The processor that a run was made on: the GPU, or else the CPU."""
    device = record.get("device", "cpu")
    return record.get("environment", {}).get("cpu") or "" if device == "cpu" else device


def maker(record: dict) -> str:
    """The maker of the processor that a run was made on: `AMD`."""
    return re.split(r"\W", processor(record))[0]


def _on_other_processors(outcome: Outcome) -> int:
    """The number of an outcome's seeds whose runs were made on processors of different makers."""
    seeds = Counter(seed for seed, _ in {(run["config"]["seed"], maker(run)) for run in outcome.records})
    return sum(seeds[seed] > 1 for seed in outcome.seeds)


def parts_of_tasks(left: Iterable[Mapping], right: Iterable[Mapping]) -> dict[str, float]:
    """Task -> its part in left - right of averages over GLUE's tasks, in points, from each run's scores by task."""
    means = [pd.DataFrame(list(scores), columns=list(TASKS)).mean(skipna=False) for scores in (left, right)]
    parts = (means[0] - means[1]).dropna()
    return (parts / len(parts)).to_dict()


def task_margin(task: str, examples: int | None) -> float:
    """The points within which a task's difference is too small to matter: 0.5 or three of its dev examples, whichever
    is more, and 1 for CoLA and STS-B."""
    return 1.0 if task in ("cola", "stsb") else max(MARGIN, 300 / (examples or math.inf))


def smallest_difference(spread: float, seeds: int) -> float:
    """The mean difference that `seeds` pairs detect at 95 % with a power of 80 % if δ has the standard deviation
    `spread`: c · s / √n, where a noncentral t with n - 1 degrees of freedom and noncentrality c lies above
    t(.975, n-1) with probability 0.8."""
    t = stats.t.ppf(0.975, seeds - 1)
    c = optimize.brentq(lambda c: stats.nct.sf(t, seeds - 1, c) - 0.8, 0, 2 * (t + 1))
    return float(c) * spread / math.sqrt(seeds)


def _printed(scores: Sequence[float]) -> str:
    """The mean ± standard error of scores, without the error for one score."""
    error = f" ± {stdev(scores) / math.sqrt(len(scores)):.2f}" if len(scores) > 1 else ""
    return f"{fmean(scores):.1f}{error}"


def _conditions(records: Sequence[dict]) -> str:
    """Backbone and data of the first of these runs, and the steps of all."""
    config, train = records[0]["config"], records[0]["data"]["train"]
    steps = " and ".join(dict.fromkeys(f"{record['config']['steps']:,}" for record in records))
    whole = all(train[task] == GLUE_TRAIN_SIZES.get(task) for task in train)
    data = config["data"] + ("" if whole or config["data"] != "glue" else ", sub-sampled")
    return f"{config['backbone']}, {steps} steps, {data}"


def _removed(records: Sequence[dict]) -> Verdict:
    """What is decided about C17, from records of `adapter_removal.ablate`: reproduced if removing one layer always
    costs less than a quarter of removing all, and no removal costs more than removing all. Of several studies, the one
    with most runs counts."""
    most = mode(record["config"]["study"] for record in records)
    records = [record for record in records if record["config"]["study"] == most]
    seen, holds, seeds = [], [], {}
    for record in records:
        for task, frame in from_lines(record["spans"]).groupby("task", sort=False):
            name = TASK_LABELS.get(task, task)
            if frame["change"].isna().any():
                seen.append(f"{name}: undefined, as its whole score is 0")
                continue
            one, whole = frame[frame["first"] == frame["last"]]["change"].min(), frame["last"].max()
            every = frame.loc[(frame["first"] == 0) & (frame["last"] == whole), "change"].item()
            seen.append(f"{name}: any one layer at most {-one:.1f} % of the score, all {-every:.1f} %")
            holds.append(every < 0 and one > every / 4 and every == frame["change"].min())
            seeds.setdefault(task, set()).add(record["config"]["seed"])
    value, note, files = "; ".join(seen), _conditions(records), _files(records)
    if (fewest := min(map(len, seeds.values()), default=0)) < SEEDS:
        return Verdict("inconclusive", value, f"{note}, {fewest} of {SEEDS} seeds", files)
    return Verdict("reproduced" if all(holds) else "not reproduced", value, note, files)


def _files(records: Iterable[dict]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(record["file"] for record in records if "file" in record))


def _cautions(outcomes: Sequence[Outcome]) -> Iterable[str]:
    """What a reader should know of a row's verdict: how many of its comparisons are reproduced or not, whether pairs
    share nothing, how many are from processors of different makers, and whether one task accounts for more than half of
    a decided difference of averages."""
    if len(outcomes) > 1:
        counts = Counter(outcome.verdict for outcome in outcomes)
        against = f", {n} not reproduced" if (n := counts["not reproduced"]) else ""
        yield f"{counts['reproduced']} of {len(outcomes)} comparisons reproduced{against}"
    if not all(outcome.in_pairs for outcome in outcomes):
        yield "the two sides of a seed share no tasks or examples, so the intervals are Welch's, of two groups"
    if apart := sum(map(_on_other_processors, outcomes)):
        pairs = sum(len(outcome.seeds) for outcome in outcomes)
        yield f"{apart} of {pairs} pairs are of processors of different makers"
    for outcome in outcomes:
        if outcome.parts and outcome.verdict in ("reproduced", "not reproduced"):
            parts, whole = dict(outcome.parts), fmean(outcome.differences)
            task = max(parts, key=lambda task: abs(parts[task]))
            if abs(part := parts.pop(task)) > abs(whole) / 2 and parts:
                rest = fmean(parts.values()) * (len(parts) + 1)
                line = f"{outcome.comparison.sentence}: " if len(outcomes) > 1 else ""
                yield (
                    f"{line}{TASK_LABELS[task]} accounts for {part:+.2f} of {whole:+.2f} points, "
                    f"and the mean over the other {len(parts)} tasks is {rest:+.2f}"
                )


def claim_verdict(row: Row, records: Sequence[dict]) -> Verdict:
    """What is decided about a row C."""
    records = named(records)
    missing = [term.words for term in map(Term.parse, row.needs) if not any(map(term.matches, records))]
    if not row.needs:
        return Verdict("not run", "–")
    spans = [r for r in records if "spans" in r and Term.parse(row.needs[0]).matches(r)]
    if row.id == "C17" and spans:
        return _removed(spans)
    return together(row, [Comparison.parse(text).decide(records) for text in row.compare], missing)


def together(row: Row, outcomes: Sequence[Outcome], missing: Sequence[str] = ()) -> Verdict:
    """What the outcomes of a row's comparisons decide together; `missing`: the runs that would be needed too."""
    seen = [outcome for outcome in outcomes if outcome.records]
    if not seen:
        rest = f"needs {', '.join(missing)}" if missing else "the runs exist, but differ in more than what is compared"
        return Verdict("not run", "–", rest)
    value = "; ".join(map(str, seen))
    notes = list(dict.fromkeys(_conditions(outcome.records) for outcome in seen))
    files = _files(record for outcome in seen for record in outcome.records)
    if any(outcome.verdict_for(row) != outcome.verdict for outcome in seen):
        return Verdict(NOT_TESTABLE, value, "; ".join([*notes, f"it would take {row.scale}"]), files)
    unlearnt = [TASK_LABELS[outcome.comparison.task] for outcome in seen if outcome.verdict == NOT_TESTABLE]
    notes += [f"{task} has a median of 0 on both sides: it would take longer runs" for task in unlearnt]
    notes += _cautions(outcomes)
    verdicts = {outcome.verdict for outcome in outcomes}
    if "not reproduced" in verdicts:
        verdict = "not reproduced"
    elif verdicts <= {"reproduced", NOT_TESTABLE}:
        verdict = NOT_TESTABLE if unlearnt else "reproduced"
    elif verdicts <= {TOO_SMALL, "reproduced"}:
        verdict = TOO_SMALL
    else:
        verdict = "inconclusive"
    notes += [f"still needs {', '.join(missing)}"] if missing else []
    return Verdict(verdict, value, "; ".join(notes), files)
