"""A comparison of runs in words, as the ledger's rows C print it."""

from collections.abc import Sequence

from palslib.data.tasks import TASK_LABELS
from palslib.methods.table import LABELS
from palslib.study.ledger.selection import Selection

_WHERE = {task: f" on {label}" for task, label in (TASK_LABELS | {"sts": "STS"}).items()}
_WHERE |= {"": "", "average": " on average", "backward": " in backward transfer", "forward": " in forward transfer"}
"""What a comparison names after its colon -> the words for it."""
_BASELINES = {"glue": "eight BERTs", "minbert": "three BERTs"}
"""Data -> the name of the baseline: a BERT for each task."""
_WORDS = {
    "freeze=backbone": "BERT frozen",
    "weights=random": "from random weights",
    "pooler=per-task": "separate poolers",
    "gem=on": "with memory",
    "activation=gelu": "with GELU",
    "pretraining=mlm": "pre-trained further",
    "size=paper": "the paper's size",
    "size=budget": "the budget's size",
    "sharing=tasks": "in each layer",
    "residual=False": "without residual",
    "layer_norm=False": "without layer norm",
    "single-task": "a model for each task",
    "sequential": "one task after another",
}
"""Option or schedule of a selection -> the words for it."""


def _named(term: Selection) -> str:
    """The runs of one term in words: `PALs (annealed, BERT frozen)`."""
    if term.method == "fine-tuned" and term.alone:
        return _BASELINES.get(term.options.get("data", "glue"), "a BERT for each task")
    words = [_WORDS.get(term.schedule, term.schedule.replace("-", " "))]
    for name, value in term.options.items():
        if name != "data":
            words.append(_WORDS.get(f"{name}={value}", f"{name.replace('_', ' ')} = {value}"))
    return f"{LABELS.get(term.method, term.method)} ({', '.join(words)})"


def sentence(left: Sequence[Selection], right: Sequence[Selection], relation: str, what: str) -> str:
    """What a comparison states; `a + d > b + c` compares what a gains over b with what c gains over d.

    Args:
        what: a task or a measure of `claims.MEASURES`; empty for the average.
    """
    (first, *more), (other, *others) = ([_named(term) for term in side] for side in (left, right))
    if what == "spread":
        return f"{first} should spread more over seeds than {other}"
    if more:
        return f"the gain of {first} over {other} should be larger than that of {others[0]} over {more[0]}"
    better = "better" if relation == ">" else "no worse"
    return f"{first} should be {better} than {other}{_WHERE.get(what, f' on {what}')}"
