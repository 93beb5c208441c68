"""Rows C of the ledger: what the records of finished runs say of a claim.

A comparison `left > right` is decided by the difference of two means over seeds, δ = mean(left) - mean(right), and its
95 % confidence interval δ ± t·√(s²_left/n_left + s²_right/n_right) (Welch: unequal variances). `>`: reproduced if the
whole interval lies above 0, not reproduced if it lies below. `>=`, no worse: the same with -0.5 points in place of 0.
In between, and with one seed on a side, it is inconclusive. Only runs that agree in everything else are compared. Where
both sides are models for one task each, a seed's score is the mean over the tasks that both sides have.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from statistics import fmean, variance

from palslib.analysis.forgetting import transfer_measures
from palslib.data.tasks import TASKS, get_task
from palslib.ledger.paper import GLUE_TRAIN_SIZES, Row
from palslib.methods.table import get_method
from palslib.plan.config import RunConfig
from palslib.records import from_lines

NO_WORSE = 0.5
"""Points of the dev average (or of a task's score) within which one method counts as no worse than another."""
_BUDGETED = ("size", "inner", "heads")  # what fitting to a budget changes in a method
_VARIED = {"method", "method_options", "size", "schedule", "alpha", "seed", "recipe"}
_VARIED |= {"memory", "memory_margin", "memory_over"}
_PRACTICAL = {"evaluate_every", "evaluate_first", "checkpoint_every", "keep", "folder", "progress", "micro_batches"}
_FURTHER = "-mlm"
"""How the name of a backbone ends that `pretraining` has trained further, on the texts of the tasks."""


def _value(text: str):
    try:
        return json.loads(text)  # numbers, true, false
    except json.JSONDecodeError:
        return text


@dataclass(frozen=True)
class Selection:
    """Which runs a row means: `Selection.parse("pals-204 annealed heads=6 data=glue")`."""

    method: str
    schedule: str
    """A name of `SCHEDULES`, or `single-task`."""
    options: dict
    """Of the method; besides, `size` (a number or `paper`; `budget` if nothing is said), `data` (else `glue`), `gem=on`
    (with episodic memory) and `pretraining=mlm` (of the backbone, further, on the texts of the tasks)."""

    @classmethod
    def parse(cls, text: str) -> "Selection":
        """From a row's `needs`, or from one side of its `compare`."""
        method, schedule, *options = text.split()
        return cls(method, schedule, {k: _value(v) for k, v in (option.split("=") for option in options)})

    def matches(self, record: dict) -> bool:
        """Whether a record is of a finished run of this kind, under the paper's recipe and on real data."""
        config, built = _DEFAULTS | record["config"], record["method"]
        wanted = dict(self.options)
        size, data = wanted.pop("size", None), wanted.pop("data", "glue")
        memory, further = wanted.pop("gem", "off") == "on", wanted.pop("pretraining", None) == "mlm"
        if record["status"] != "finished" or (config["method"], config["data"]) != (self.method, data):
            return False
        rate = dict(config["recipe_options"])
        rate.pop("decay", None)  # the minBERT and GEM reports keep the rate constant
        if config["recipe"] != "paper" or rate or config["alpha"] is not None:
            return False
        if config["backbone"].removeprefix("minbert:") == "tiny" or config["start"]:  # random weights, for tests
            return False
        if (config["memory"] > 0, config["backbone"].endswith(_FURTHER)) != (memory, further):
            return False
        if self.schedule == "single-task":  # separate models, in one run or many; of other methods those on one task
            if self.method != "fine-tuned" and len(config["tasks"]) > 1:
                return False
        elif config["schedule"] != self.schedule:
            return False
        elif data == "glue" and self.schedule != "sequential" and set(config["tasks"]) != set(TASKS):
            return False  # mixing few tasks is another matter than mixing the paper's eight
        asked = built.get("size") if isinstance(size, int) else config["size"] or "budget"  # unsaid, by this recipe
        if built.get("size") is not None and asked != (size or "budget"):
            return False
        try:
            expected = asdict(get_method(self.method, **wanted))
        except ValueError:  # something no method has, as random weights
            return False
        usual = asdict(get_method(self.method))
        heads = config["method_options"].get("heads", usual.get("heads"))
        if heads != wanted.get("heads", usual.get("heads")):
            return False
        built = usual | built  # an older record does not know every option
        return all(_plain(built[k]) == _plain(v) for k, v in expected.items() if k not in _BUDGETED)


def _plain(value):
    return list(value) if isinstance(value, tuple) else value


_DEFAULTS = {field.name: field.default for field in fields(RunConfig)}  # of what an older record does not know


def _setting(record: dict, alone: bool) -> str:
    """Everything that two runs must share to be compared; models for one task each may have rates of their own."""
    varied = _VARIED | _PRACTICAL | ({"tasks", "learning_rate"} if alone else set())
    config = {k: v for k, v in (_DEFAULTS | record["config"]).items() if k not in varied}
    config["backbone"] = config["backbone"].removesuffix(_FURTHER)
    return json.dumps([config, record["precision"]], sort_keys=True)


def _score(record: dict, what: str) -> float:
    """A task's score, a measure of `transfer_measures`, or (``) the average over tasks, after the last step."""
    last = record["results"]["last"]
    if what in ("average", "backward", "forward"):
        return transfer_measures(record)[what]
    return last["scores"][what][get_task(what).metrics[0]] if what else last["dev_average"]


def _scores(record: dict, what: str, alone: bool) -> dict[str, float]:
    """`_score`, and of models for one task each the score of every task, of which the mean is taken over many runs."""
    if not alone:
        return {what: _score(record, what)}
    return {task: _score(record, task) for task in record["results"]["last"]["scores"] if what in ("", task)}


def _means(*sides: dict[int, dict[str, float]]) -> list[list[float]]:
    """Of each side's scores by seed and task: for each seed the mean over the tasks that both sides have."""
    tasks = set.intersection(*(set().union(*side.values()) for side in sides))
    return [[fmean(s[t] for t in tasks) for s in side.values() if tasks and tasks <= set(s)] for side in sides]


def interval(left: Sequence[float], right: Sequence[float]) -> tuple[float, float]:
    """The difference of two means and the half width of its 95 % interval; two values on each side at least."""
    from scipy import stats  # only here: it takes longer to import than the ledger

    a, b = variance(left) / len(left), variance(right) / len(right)
    difference = fmean(left) - fmean(right)
    if a + b == 0:
        return difference, 0.0
    freedom = (a + b) ** 2 / (a**2 / (len(left) - 1) + b**2 / (len(right) - 1))
    return difference, float(stats.t.ppf(0.975, freedom)) * math.sqrt(a + b)


def _printed(scores: Sequence[float]) -> str:
    error = f" ± {math.sqrt(variance(scores) / len(scores)):.2f}" if len(scores) > 1 else ""
    return f"{fmean(scores):.1f}{error}"


def compare(comparison: str, records: Sequence[dict]) -> tuple[str, str, dict | None]:
    """Decides `"run > run"`, `"run >= run"` or either with `" : task"` or `" : backward"` (transfer) behind it.

    Returns verdict, what was seen (mean ± standard error of both sides, seeds), and a record of the setting, or None
    where there is no setting with runs of both. Among several settings the one with most seeds counts.
    """
    sides, _, task = comparison.partition(" : ")
    relation = ">=" if " >= " in sides else ">"
    selections = [Selection.parse(text) for text in sides.split(f" {relation} ")]
    alone = all(selection.schedule == "single-task" for selection in selections)
    settings: dict[str, tuple[dict, dict, dict]] = {}
    for side, selection in enumerate(selections):
        for record in filter(selection.matches, records):
            entry = settings.setdefault(_setting(record, alone), ({}, {}, record))
            entry[side].setdefault(record["config"]["seed"], {}).update(_scores(record, task, alone))
    both = [(*_means(*entry[:2]), entry[2]) for entry in settings.values() if entry[0] and entry[1]]
    if not any(left and right for left, right, _ in both):
        return "not run", "", None
    left, right, record = max(both, key=lambda entry: (min(map(len, entry[:2])), len(entry[0]) + len(entry[1])))
    seen = f"{comparison}? {_printed(left)} against {_printed(right)} ({len(left)} and {len(right)} seeds)"
    if min(len(left), len(right)) < 2:
        return "inconclusive", seen.replace("(1 and 1 seeds)", "(1 seed each)"), record
    difference, half = interval(left, right)
    bound = 0.0 if relation == ">" else -NO_WORSE
    if difference - half > bound:
        return "reproduced", seen, record
    return ("not reproduced" if difference + half < bound else "inconclusive"), seen, record


def _about(record: dict) -> str:
    config, train = record["config"], record["data"]["train"]
    whole = all(train[task] == GLUE_TRAIN_SIZES.get(task) for task in train)
    data = config["data"] + ("" if whole or config["data"] != "glue" else ", sub-sampled")
    return f"{config['backbone']}, {config['steps']:,} steps, {data}"


def _removed(records: Sequence[dict]) -> tuple[str, str, str]:
    """Of the records of `adapters.ablate`: does any one layer cost less than a quarter of what all of them cost, and is
    nothing worse than to remove all?"""
    seen, holds, seeds = [], [], {}
    for record in records:
        for task, frame in from_lines(record["spans"]).groupby("task", sort=False):
            one, whole = frame[frame["first"] == frame["last"]]["change"].min(), frame["last"].max()
            every = frame.loc[(frame["first"] == 0) & (frame["last"] == whole), "change"].item()
            seen.append(f"{task}: any one layer at most {-one:.1f} % of the score, all {-every:.1f} %")
            holds.append(every < 0 and one > every / 4 and every == frame["change"].min())
            seeds.setdefault(task, set()).add(record["config"]["seed"])
    if min(map(len, seeds.values())) < 2:
        return "inconclusive", "; ".join(seen), f"{_about(records[0])}, one seed"
    return ("reproduced" if all(holds) else "not reproduced"), "; ".join(seen), _about(records[0])


def claim_verdict(row: Row, records: Sequence[dict]) -> tuple[str, str, str]:
    """Verdict, value and note of a row C."""
    missing = [need for need in row.needs if not any(map(Selection.parse(need).matches, records))]
    if not row.needs:
        return "not run", "–", "not pursued here"
    spans = [r for r in records if "spans" in r and Selection.parse(row.needs[0]).matches(r)]
    if row.id == "C17" and spans:
        return _removed(spans)
    outcomes = [compare(comparison, records) for comparison in row.compare]
    seen = [o for o in outcomes if o[2] is not None]
    if not seen:
        rest = f"needs {', '.join(missing)}" if missing else "the runs exist, but none of a kind that can be compared"
        return "not run", "–", rest
    value = "; ".join(text for _, text, _ in seen)
    about = "; ".join(dict.fromkeys(_about(record) for _, _, record in seen))
    if row.scale:
        return "not testable at this scale", value, f"{about}; it would take {row.scale}"
    if any(o[0] == "not reproduced" for o in seen):
        return "not reproduced", value, about
    if all(o[0] == "reproduced" for o in outcomes):
        return "reproduced", value, about
    note = about + (f"; still needs {', '.join(missing)}" if missing else "")
    return "inconclusive", value, note
