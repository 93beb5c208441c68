"""Derives the values of the ledger's rows A and B.

`derive("A4")` counts, samples or averages anew with the package's own functions. It reads no value from the ledger's
`derived`, with which its result is compared. A source prints rounded numbers, so a printed number agrees with an exact
one that lies within half a unit of its last place: 1.1347 agrees with 1.13, 1.137 does not.

Where the inputs of a derivation are themselves printed, they are already rounded: the mean of three scores printed as
0.519, 0.775 and 0.448 can be any number from 0.58017 to 0.58117. `possible` derives such rows from intervals.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

from palslib.common.names import check_name
from palslib.data.metrics import glue_average
from palslib.methods.counting import BACKBONES, PAPER_BUDGET, count_parameters, fit_budget
from palslib.methods.table import METHODS, get_method
from palslib.plan.config import PRESETS, RunConfig
from palslib.plan.recipes import RECIPES
from palslib.plan.sampling import PAPER_EPOCHS, TrainingPlan, annealed_alpha, task_probabilities
from palslib.study.ledger.paper import (
    ADAPTERS_FIGURE_6_ELMO_SICK_E,
    ADAPTERS_TABLE_2,
    ADAPTERS_TABLE_3,
    GEM_TABLE_1,
    GLUE_TRAIN_SIZES,
    MINBERT_TABLE_1,
    MINBERT_TRAIN_SIZES,
    TABLE_2,
    Row,
    load_ledger,
)

BASE, LARGE = BACKBONES["bert-base-uncased"], BACKBONES["bert-large-uncased"]
SMALL_BUDGET = 1_500_000  # for all eight tasks (paper, results)


def near(exact: float, printed: float, unit: float) -> bool:
    """Whether `exact`, rounded to `unit`, could be printed as `printed`: at most half a unit away."""
    return abs(exact - printed) <= unit / 2 + 1e-9 * max(1.0, abs(exact))


def places(printed) -> int:
    """The number of decimals with which a number is printed."""
    return len(repr(printed).partition(".")[2])


def numbers(values) -> list:
    """The numbers of a ledger entry (a number, a list, or a table of them), in order; gaps in a list stay None."""
    values = list(values.values()) if isinstance(values, dict) else values
    if isinstance(values, (list, tuple)):
        return [n for value in values for n in ([None] if value is None else numbers(value))]
    return [] if values is None else [values]


def _count(method: str, tasks: int = 8, **options):
    return count_parameters(method, BASE, tasks, **options)


def _task(method: str, **options) -> int:
    return _count(method, **options).per_task


def _ratio(method: str, tasks: int = 8, **options) -> float:
    return _count(method, tasks, **options).ratio


def _nine(row: dict, part: str = "f1") -> float:
    """The paper's "Av."; `part` (`f1` or `acc`) selects the number of QQP and MRPC that is taken for the F1."""
    tasks = {
        "mnli": {"accuracy": row["mnli_m"], "accuracy_mm": row["mnli_mm"]},
        "cola": {"matthews": row["cola"]},
        "stsb": {"spearman": row["stsb"]},
        **{task: {"f1": row[f"{task}_{part}"]} for task in ("qqp", "mrpc")},
        **{task: {"accuracy": row[task]} for task in ("qnli", "sst2", "rte")},
    }
    return glue_average(tasks)


def _mean(row: dict, *without: str) -> float:
    """The mean of a row's scores, without the printed mean and the columns `without`."""
    return fmean(score for task, score in row.items() if task not in ("total", "average", *without))


def _crowdflower() -> list:
    """The number of the adapters report's tasks, the number of those in table 3 on which “not shared” wins, and the
    averages of both rows without `political_message`."""
    tuned, adapters = ADAPTERS_TABLE_3["fine-tuned"], ADAPTERS_TABLE_3["houlsby-64-not-shared"]
    tasks = [task for task in tuned if task != "average"]
    wins = sum(adapters[task] > tuned[task] for task in tasks)
    return [len(GLUE_TRAIN_SIZES) + len(tasks), wins, *(_mean(row, "political_message") for row in (adapters, tuned))]


def _gem(method: str, shifted: bool) -> float:
    """The mean of a row of gem's table; `shifted` maps the correlation of STS from [-1, 1] to [0, 1]."""
    row = GEM_TABLE_1[method]
    return _mean(row | {"sts": (row["sts"] + 1) / 2 if shifted else row["sts"]})


def _alpha(schedule: str) -> int:
    """The α, 0 or 1, that gives a schedule's probabilities."""
    found = TrainingPlan(GLUE_TRAIN_SIZES, schedule, steps=PAPER_EPOCHS).probabilities(0)
    return next(a for a in (0, 1) if task_probabilities(GLUE_TRAIN_SIZES, a) == found)


def _small(method: str, **options) -> int:
    """The largest size within the budget of 1.5 million."""
    return fit_budget(get_method(method, **options), BASE, added=SMALL_BUDGET).size


def _epochs_of_minbert() -> list[int]:
    """Two readings of minbert's epoch: the stated batch size with which 1,950 steps come closest to half a pass; and
    the examples in 5,850 batches of 32."""
    printed, half = load_ledger()["B6"].published, sum(MINBERT_TRAIN_SIZES.values()) / 2
    sizes = (printed["batch_in_text"], printed["batch_in_captions"])
    fits = min(sizes, key=lambda batch: abs(half / batch - printed["steps"]))
    return [fits, printed["batches"] * printed["batch_in_text"]]


def _sizes_of_minbert() -> list[int]:
    """Of the two sizes s that minbert gives, those that its number of heads divides."""
    printed = load_ledger()["B6"].published
    return [s for s in (printed["s_in_text"], printed["s_in_table"]) if s % METHODS["pals-204"].heads == 0]


_DERIVE: dict[str, Callable[[], object]] = {
    "A1": lambda: _count("shared").backbone.parameters,
    "A2": lambda: [_task("bert-layer-on-top"), _task("bert-layer-on-top", exact=True)],
    "A3": lambda: [_task("pals-204"), _task("pals-204", exact=True)],
    "A4": lambda: [_count("pals-204").added, _ratio("pals-204")],
    "A5": lambda: [_task("low-rank-100"), _ratio("low-rank-100"), _task("low-rank-100", exact=True)],
    "A6": lambda: [_task("pals-no-sharing-84"), _ratio("pals-no-sharing-84")],
    "A7": lambda: [_task("pals-276-top"), _ratio("pals-276-bottom")],
    "A8": lambda: _task("ffn-306"),
    "A9": lambda: [_task("attention-on-top-204"), _ratio("attention-on-top-204")],
    "A10": lambda: [f(m) for f in (_task, _ratio) for m in ("ffn-on-top-408", "ffn-on-top-252x2")],
    "A11": lambda: [
        *(_task("shared", pooler="per-task", exact=exact) for exact in (False, True)),
        _ratio("shared", pooler="per-task", exact=True),
    ],
    "A12": lambda: _task("lhuc"),
    "A13": lambda: [
        _small("low-rank-100"),
        _count("low-rank-100", size=_small("low-rank-100")).added,
        _small("pals-204", heads=1),
        _small("pals-204"),
    ],
    "A14": lambda: _task("houlsby-64"),
    "A15": lambda: _task("houlsby-64-not-shared"),
    "A16": lambda: _task("houlsby-64-3-shared"),
    "A17": lambda: [list(task_probabilities(GLUE_TRAIN_SIZES, alpha).values()) for alpha in (1, 0.5, 0.2, 0)],
    "A18": lambda: [annealed_alpha(1, PAPER_EPOCHS), annealed_alpha(PAPER_EPOCHS, PAPER_EPOCHS), annealed_alpha(1, 1)],
    "A19": lambda: max(GLUE_TRAIN_SIZES.values()) / min(GLUE_TRAIN_SIZES.values()),
    "A20": lambda: [PAPER_EPOCHS * 300 * len(GLUE_TRAIN_SIZES), round(RunConfig().warmup * PRESETS["paper"]["steps"])],
    "A21": lambda: [_nine(row) for row in TABLE_2.values()],
    "A22": lambda: list(map(_mean, MINBERT_TABLE_1.values())),
    "A23": lambda: [_mean(ADAPTERS_TABLE_2[m]) for m in ("fine-tuned", "houlsby-64")],
    "A24": lambda: _mean(ADAPTERS_TABLE_3["fine-tuned"]),
    "A25": lambda: _ratio("fine-tuned") / round(_ratio("pals-204"), 3),
    "A26": lambda: [LARGE.parameters, LARGE.parameters / BASE.parameters],
    "A27": lambda: [
        fit_budget(m, BASE).size for m in ("pals-204", "pals-no-sharing-84", "pals-276-top", "low-rank-100")
    ],
    "A28": lambda: PAPER_BUDGET / len(GLUE_TRAIN_SIZES),
    "B1": lambda: [
        value
        for count in (_count("bert-layer-on-top"), _count("bert-layer-on-top", exact=True))
        for value in (count.added, count.ratio)
    ],
    "B2": lambda: [_nine(row, part) for part in ("f1", "acc") for row in TABLE_2.values()],
    "B3": lambda: [
        BASE.num_layers * count_parameters("bert-layer-on-top", replace(BASE, intermediate_size=inner)).per_task
        for inner in (BASE.intermediate_size, BASE.hidden_size)
    ],
    "B4": lambda: [_count("pals-204", 3).added, _ratio("pals-204", 3)],
    "B5": lambda: [_alpha("round-robin"), _alpha("proportional")],
    "B6": lambda: [*_sizes_of_minbert(), *_epochs_of_minbert()],
    "B7": lambda: [_gem(m, shifted) for shifted in (False, True) for m in ("fine-tuned", "pals")],
    "B8": lambda: [_mean(ADAPTERS_TABLE_2[f"houlsby-64-{sharing}"]) for sharing in ("not-shared", "3-shared")],
    "B9": lambda: _mean(ADAPTERS_TABLE_3["houlsby-64-not-shared"]),
    "B10": lambda: METHODS["ffn-on-top-408"].size,
    "B11": lambda: [METHODS["pals-204"].size // RECIPES[r].pal_heads for r in ("paper", "released")],
    "B12": lambda: _mean(MINBERT_TABLE_1["pals-204", "annealed"]),
    "B13": lambda: 1 + PAPER_BUDGET / BASE.parameters,
    "B14": lambda: BASE.parameters,
    "B15": lambda: [2 * BASE.hidden_size, 1],
    "B16": lambda: [5 / (1 + math.exp(-cosine)) for cosine in (-1, 1)],
    "B17": lambda: [
        MINBERT_TABLE_1["shared", "proportional"]["sst"],
        _mean(MINBERT_TABLE_1["pals-204", "proportional"]),
    ],
    "B18": _crowdflower,
    "B19": lambda: ADAPTERS_FIGURE_6_ELMO_SICK_E["fine-tuned"] - ADAPTERS_FIGURE_6_ELMO_SICK_E["feature-extraction"],
    "B20": lambda: [ADAPTERS_TABLE_2["fine-tuned"][t] - TABLE_2["fine-tuned"][t] for t in ("qnli", "stsb")],
    "B21": lambda: annealed_alpha(PAPER_EPOCHS, PAPER_EPOCHS),
}


_ROUNDED: dict[str, tuple[float, float, Callable[[list], list]]] = {
    "B2": (0.1, 0.1, lambda derived: derived[4:]),
    "B7": (0.001, 0.001, lambda derived: derived[:2]),
    "B8": (0.1, 0.1, list),
    "B9": (0.1, 0.1, list),
    "B12": (0.001, 0.001, list),
    "B13": (0.01, 1e6 / BASE.parameters, list),
    "B17": (0.001, 0.001, list),
    "B19": (0.1, 0.2, list),
    "B20": (0.1, 0.1, lambda derived: [TABLE_2["fine-tuned"][task] for task in ("qnli", "stsb")]),
}
"""Row B whose inputs are printed, rounded numbers -> the unit in which its result is printed; the width of the range in
which the unrounded result can lie (for a mean as wide as for one input, for a difference of two inputs twice as wide);
and a function that picks the results concerned from the row's derived values. All other rows A and B have exact inputs:
sizes, counts, definitions."""


def possible(row: Row) -> list[tuple[float, float, float, bool]]:
    """For a row computed from rounded numbers, for each value: the least and the most that it can have been, what is
    printed, and whether a number in that range would be printed so. Empty if inputs are exact."""
    if row.id not in _ROUNDED:
        return []
    unit, width, chosen = _ROUNDED[row.id]
    values = chosen(numbers(derive(row.id)))
    pairs = zip(values, numbers(row.published)[-len(values) :], strict=True)
    return [(value - width / 2, value + width / 2, said, near(value, said, unit + width)) for value, said in pairs]


def derive(row_id: str):
    """The value(s) of a row A or B, exact, in the order and shape of its `derived`.

    Raises ValueError for an unknown row, and for one of C or D, which no formula decides.
    """
    row = load_ledger()[check_name("ledger row", row_id, load_ledger())]
    if row.kind not in "AB":
        raise ValueError(f"ledger row {row_id} is not derived: only A and B are; runs decide C, and D are switches")
    return _DERIVE[row_id]()


def agrees_with_ledger(row_id: str) -> bool:
    """Whether the derived values equal those that the ledger states, to the decimals that it states."""
    found, stated = numbers(derive(row_id)), numbers(load_ledger()[row_id].derived)
    agree = (near(value, n, 10.0 ** -places(n)) for value, n in zip(found, stated, strict=True))
    return len(found) == len(stated) and all(agree)
