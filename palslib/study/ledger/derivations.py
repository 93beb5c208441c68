"""Derives the values of the ledger's rows A and B, and tells whether what is printed follows from them.

A row's texts and numbers are in `ledger.toml`. Its numbers are derived here: in `NUMBERS`, by the function of its name
(`a20`) or, where the row names a method in `counted`, by counting that method's parameters; none reads the ledger's
`derived`, with which the result is compared. A source prints rounded numbers, so a printed number agrees with an exact
one that lies within half a unit of its last place: 1.1347 agrees with 1.13, 1.137 does not.

Where the inputs of a derivation are themselves printed, they are already rounded: the mean of three scores printed as
0.519, 0.775 and 0.448 can be any number from 0.58017 to 0.58117. Such rows have a `width`, and `possible` derives them
from intervals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from palslib.common.names import check_name
from palslib.common.settings import Number
from palslib.data.metrics import glue_average
from palslib.methods.counting import BACKBONES, PAPER_BUDGET, count_parameters, fit_budget
from palslib.methods.table import METHODS, get_method
from palslib.plan.config import PRESETS, RunConfig
from palslib.plan.recipes import RECIPES
from palslib.plan.sampling import PAPER_EPOCHS, TrainingPlan, annealed_alpha, task_probabilities
from palslib.study.ledger import paper
from palslib.study.ledger.paper import ADAPTERS_TABLE_2, ADAPTERS_TABLE_3, GLUE_TRAIN_SIZES, MINBERT_TABLE_1, TABLE_2

BASE, LARGE = BACKBONES["bert-base-uncased"], BACKBONES["bert-large-uncased"]
NARROW = replace(BASE, intermediate_size=BASE.hidden_size)
SMALL_BUDGET = 1_500_000  # for all eight tasks (paper, results)
ROWS_OF_TABLE_2 = dict(zip(("eight_BERTs", "shared", "attention_on_top", "PALs"), TABLE_2.values(), strict=True))


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


@dataclass(frozen=True)
class Derived:
    """What is derived for a row A or B."""

    values: Number | dict
    """Our number or, by name, our numbers; exact."""
    follows: bool | None = None
    """Whether what is printed follows from them. None: in A if all `pairs` agree, in B if any does."""
    pairs: Sequence[tuple[float, float, float]] | None = None
    """The numbers that are compared: ours, the printed one, and its unit. None: those of one name."""


def _mean(row: dict, *without: str) -> float:
    """The mean of a row's scores, without the printed mean and the columns `without`."""
    return fmean(score for task, score in row.items() if task not in ("total", "average", *without))


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


def _counted(method: str, name: str, **options) -> float:
    """What a method adds to BERT-base for eight tasks: `per_task`, `added`, or its `ratio`; with `_exact` after the
    name, biases and norms included. `options` are those of `count_parameters`."""
    return getattr(count_parameters(method, exact=name.endswith("_exact"), **options), name.removesuffix("_exact"))


# ── Rows whose numbers alone are derived ──────────────────────────────────────────────────────────────────────────────

ALPHAS = {"alpha_1": 1, "alpha_half": 0.5, "alpha_0.2": 0.2, "alpha_0": 0}
NUMBERS = {
    "A1": BASE.parameters,
    "A7": {"per_task": _counted("pals-276-top", "per_task"), "ratio": _counted("pals-276-bottom", "ratio")},
    "A10": {
        "one_inner_per_task": _counted("ffn-on-top-408", "per_task"),
        "two_inner_per_task": _counted("ffn-on-top-252x2", "per_task"),
        "one_inner_ratio": _counted("ffn-on-top-408", "ratio"),
        "two_inner_ratio": _counted("ffn-on-top-252x2", "ratio"),
    },
    "A11": {
        "matrix": _counted("shared", "per_task", pooler="per-task"),
        "pooler": _counted("shared", "per_task_exact", pooler="per-task"),
        "ratio": _counted("shared", "ratio_exact", pooler="per-task"),
    },
    "A17": {name: task_probabilities(GLUE_TRAIN_SIZES, alpha) for name, alpha in ALPHAS.items()},
    "A19": max(GLUE_TRAIN_SIZES.values()) / min(GLUE_TRAIN_SIZES.values()),
    "A21": {name: _nine(row) for name, row in ROWS_OF_TABLE_2.items()},
    "A23": {"eight_BERTs": _mean(ADAPTERS_TABLE_2["fine-tuned"]), "Houlsby": _mean(ADAPTERS_TABLE_2["houlsby-64"])},
    "A24": _mean(ADAPTERS_TABLE_3["fine-tuned"]),
    "A25": _counted("fine-tuned", "ratio") / _counted("pals-204", "ratio"),
    "A26": {"parameters": LARGE.parameters, "ratio": LARGE.parameters / BASE.parameters},
    "A28": PAPER_BUDGET / len(GLUE_TRAIN_SIZES),
    "B3": {
        "layers": BASE.num_layers * _counted("bert-layer-on-top", "per_task"),
        "layers_with_inner_size_d": BASE.num_layers * _counted("bert-layer-on-top", "per_task", backbone=NARROW),
    },
    "B4": {name: _counted("pals-204", name, num_tasks=3) for name in ("added", "ratio")},
    "B8": {
        "not_shared": _mean(ADAPTERS_TABLE_2["houlsby-64-not-shared"]),
        "three_shared": _mean(ADAPTERS_TABLE_2["houlsby-64-3-shared"]),
    },
    "B9": _mean(ADAPTERS_TABLE_3["houlsby-64-not-shared"]),
    "B12": _mean(MINBERT_TABLE_1["pals-204", "annealed"]),
    "B13": {"ratio": 1 + PAPER_BUDGET / BASE.parameters},
    "B14": BASE.parameters,
    "B16": {"lowest": 5 / (1 + math.exp(1)), "highest": 5 / (1 + math.exp(-1))},
    "B19": paper.ADAPTERS_FIGURE_6["ELMo, fine-tuned"]["sick_e"] - paper.ADAPTERS_FIGURE_6["ELMo, features"]["sick_e"],
}
"""Row -> our number or, by name, our numbers."""


# ── A. Other numbers that follow from the definitions; each function's argument is what is printed ────────────────────


def a13(printed):
    low_rank, one_head, pals = (
        fit_budget(method, BASE, added=SMALL_BUDGET).size
        for method in ("low-rank-100", get_method("pals-204", heads=1), "pals-204")
    )
    added = count_parameters("low-rank-100", size=low_rank).added
    return {"low_rank": low_rank, "low_rank_added": added, "PALs_of_one_head": one_head, "PALs": pals}


def a18(printed):
    first, last = annealed_alpha(1, PAPER_EPOCHS), annealed_alpha(PAPER_EPOCHS, PAPER_EPOCHS)
    values = {"first": first, "last": last, "of_one_epoch": annealed_alpha(1, 1)}
    return Derived(values, near(first - last, printed, 0.1))


def a20(printed):
    steps = PAPER_EPOCHS * 300 * len(GLUE_TRAIN_SIZES)
    warm_up = round(RunConfig().warmup * PRESETS["paper"]["steps"])
    same = printed["steps"] == PAPER_EPOCHS * printed["steps_an_epoch"] == steps
    return Derived({"steps": steps, "warm_up": warm_up}, same and near(warm_up, printed["warm_up"], 1))


def a22(printed):
    values = dict(zip(printed, map(_mean, MINBERT_TABLE_1.values()), strict=True))
    others = [name for name in printed if not near(values[name], printed[name], 0.001)]
    return Derived(values, others == ["PALs_annealed"])


def a27(printed):
    methods = ("pals-204", "pals-no-sharing-84", "pals-276-top", "low-rank-100")
    values = {name: fit_budget(method, BASE).size for name, method in zip(printed, methods, strict=True)}
    others = [name for name in printed if values[name] != printed[name]]
    return Derived(values, others == ["low_rank"])


# ── B. Statements that do not follow ──────────────────────────────────────────────────────────────────────────────────


def b1(printed):
    values = {name: _counted("bert-layer-on-top", name) for name in ("added", "ratio", "added_exact", "ratio_exact")}
    ratios = [near(values["ratio"], printed[name], 0.01) for name in ("ratio", "ratio_in_table")]
    return Derived(values, near(values["added"], printed["added"], 1e6) or any(ratios))


def b2(printed):
    second = {f"{name}_second": _nine(row) for name, row in ROWS_OF_TABLE_2.items()}
    first = {name: _nine(row, "acc") for name, row in ROWS_OF_TABLE_2.items()}
    by_second = all(near(second[f"{name}_second"], mean, 0.1) for name, mean in printed.items())
    by_first = any(near(first[name], mean, 0.1) for name, mean in printed.items())
    return Derived(second | first, by_first or not by_second)


def b5(printed):
    """The α, 0 or 1, that gives the probabilities of each schedule."""
    by_alpha = {alpha: task_probabilities(GLUE_TRAIN_SIZES, alpha) for alpha in (0, 1)}
    values = {}
    for name in printed:
        plan = TrainingPlan(GLUE_TRAIN_SIZES, name.replace("_", "-"), steps=PAPER_EPOCHS)
        values[name] = next(alpha for alpha, shares in by_alpha.items() if shares == plan.probabilities(0))
    return values


def b6(printed):
    """Of the printed sizes s, the one that 12 heads divide. Two readings of an epoch: the printed batch size with which
    1,950 steps come closest to half a pass; and the examples in 5,850 batches of 32."""
    s = next(s for s in (printed["s_in_text"], printed["s_in_table"]) if s % METHODS["pals-204"].heads == 0)
    half = sum(paper.MINBERT_TRAIN_SIZES.values()) / 2
    batches = printed["batch_in_text"], printed["batch_in_captions"]
    batch = min(batches, key=lambda batch: abs(half / batch - printed["steps"]))
    examples = printed["batches"] * printed["batch_in_text"]
    return Derived({"s": s, "batch": batch, "examples": examples}, s == printed["s_in_table"])


def b7(printed):
    """Plain means; with the correlation of STS mapped from [-1, 1] to [0, 1]; and with another first digit of it."""
    tuned, pals = paper.GEM_TABLE_1["fine-tuned"], paper.GEM_TABLE_1["pals"]
    shifted = [_mean(row | {"sts": (row["sts"] + 1) / 2}) for row in (tuned, pals)]
    values = {"three_BERTs": _mean(tuned), "PALs": _mean(pals), "three_BERTs_shifted": shifted[0]}
    return values | {"PALs_shifted": shifted[1], "three_BERTs_one_digit": _mean(tuned | {"sts": tuned["sts"] + 0.5})}


def b10(printed):
    size = METHODS["ffn-on-top-408"].size
    return Derived(size, size in printed.values())


def b11(printed):
    widths = {recipe: METHODS["pals-204"].size // RECIPES[recipe].pal_heads for recipe in ("paper", "released")}
    values = {f"head_width_{recipe}": width for recipe, width in widths.items()}
    return Derived(values, widths["paper"] == widths["released"])


def b15(printed):
    shape = {"rows": 2 * BASE.hidden_size, "columns": 1}
    return Derived(shape, shape == printed)


def b17(printed):
    values = {"sst": MINBERT_TABLE_1["shared", "proportional"]["sst"]}
    values["average"] = _mean(MINBERT_TABLE_1["pals-204", "proportional"])
    return Derived(values, any(values[name] <= printed[name] for name in values))


def b18(printed):
    tuned, adapters = ADAPTERS_TABLE_3["fine-tuned"], ADAPTERS_TABLE_3["houlsby-64-not-shared"]
    added = [task for task in tuned if task != "average"]
    glue = [task for task in ADAPTERS_TABLE_2["fine-tuned"] if task != "total"]
    won = sum(adapters[task] > tuned[task] for task in added)
    values = {"columns": len(glue) + len(added), "data_sets": len(GLUE_TRAIN_SIZES) + len(added), "won": won}
    values["not_shared"] = _mean(adapters, "political_message")
    values["a_BERT_for_each_task"] = _mean(tuned, "political_message")
    return Derived(values, "houlsby-64" in ADAPTERS_TABLE_3 and won == len(added))


def b20(printed):
    """Here what one report prints is compared with what the other does."""
    pairs = [(printed[f"paper_{task}"], printed[f"adapters_{task}"], 0.1) for task in ("qnli", "stsb")]
    qnli, stsb = (theirs - papers for papers, theirs, _ in pairs)
    return Derived({"QNLI_difference": qnli, "STS-B_difference": stsb}, pairs=pairs)


def b21(printed):
    alpha = annealed_alpha(PAPER_EPOCHS, PAPER_EPOCHS)
    return Derived(alpha, alpha == 0)  # even shares, and of a BERT that is not trained, which no number shows


def b22(printed):
    """A size follows if it is today's, cut or rounded to the printed place."""
    sizes = {task: GLUE_TRAIN_SIZES[task] for task in printed}
    units = {task: 1_000 if size > 10_000 else 100 for task, size in printed.items()}
    cut = [0 <= sizes[task] - printed[task] < units[task] for task in sizes]
    rounded = [near(sizes[task], printed[task], units[task]) for task in sizes]
    return Derived(sizes, all(a or b for a, b in zip(cut, rounded, strict=True)))


def b23(printed):
    tuned, pals = TABLE_2["fine-tuned"], TABLE_2["pals-204"]
    values = {"gem": 100 * (printed["three_BERTs"] - printed["PALs"])}
    values |= {"paper_accuracy": tuned["qqp_acc"] - pals["qqp_acc"], "paper_f1": tuned["qqp_f1"] - pals["qqp_f1"]}
    return Derived(values, values["gem"] <= max(values["paper_accuracy"], values["paper_f1"]))


# ── What follows ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _compared(row: paper.Row, values: Number | dict) -> list[tuple[float, float, float]]:
    """Our number, the printed one and its unit, for each name that is in `unit` or, if that is one for all, in both."""
    if row.unit is None:
        return []
    if not isinstance(row.published, dict):
        return [(values, row.published, row.unit)]
    units = row.unit if isinstance(row.unit, dict) else dict.fromkeys(row.published, row.unit)
    return [(values[name], row.published[name], unit) for name, unit in units.items() if name in values]


def examine(row: paper.Row) -> Derived:
    """What is derived for a row A or B, with its pairs, and whether what is printed follows."""
    if not row.counted:
        values = NUMBERS[row.id] if row.id in NUMBERS else globals()[row.id.lower()](row.published)
    elif isinstance(row.derived, dict):
        values = {name: _counted(row.counted, name) for name in row.derived}
    else:
        values = _counted(row.counted, "per_task")
    derived = values if isinstance(values, Derived) else Derived(values)
    pairs = _compared(row, derived.values) if derived.pairs is None else derived.pairs
    agree = [near(ours, printed, unit) for ours, printed, unit in pairs]
    by_pairs = all(agree) if row.kind == "A" else any(agree)
    follows = by_pairs if derived.follows is None else derived.follows
    return Derived(derived.values, follows, pairs)


def possible(row: paper.Row) -> list[tuple[float, float, float, bool]]:
    """For a row computed from rounded numbers, for each value: the least and the most that it can have been, what is
    printed, and whether a number in that range would be printed so. Empty if inputs are exact."""
    half, pairs = row.width / 2, examine(row).pairs if row.width else ()
    return [(ours - half, ours + half, printed, near(ours, printed, unit + row.width)) for ours, printed, unit in pairs]


def derive(row_id: str) -> Number | dict:
    """The value of a row A or B, or its values by name: exact, with the names of its `derived`.

    Raises ValueError for an unknown row, and for one of C or D, which no formula decides.
    """
    row = paper.load_ledger()[check_name("ledger row", row_id, paper.load_ledger())]
    if row.kind not in "AB":
        raise ValueError(f"ledger row {row_id} is not derived: only A and B are; runs decide C, and D are switches")
    return examine(row).values


def agrees_with_ledger(row_id: str) -> bool:
    """Whether the derived values equal those that the ledger states, name by name, to the decimals that it states."""
    derived, stated = derive(row_id), paper.load_ledger()[row_id].derived
    if isinstance(stated, dict) and list(stated) != list(derived):
        return False
    return all(near(a, b, 10.0 ** -places(b)) for a, b in zip(numbers(derived), numbers(stated), strict=True))
