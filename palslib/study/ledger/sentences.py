"""A comparison of runs in words, as the ledger's rows C print it."""

from collections.abc import Sequence

from palslib.data.tasks import TASK_LABELS
from palslib.methods.table import LABELS
from palslib.study.ledger.arms import Term

_WHERE = {task: f" on {label}" for task, label in (TASK_LABELS | {"sts": "STS"}).items()}
_WHERE |= {"": "", "backward": " in backward transfer"}
"""What a comparison names after its colon -> the words for it."""
_BASELINES = {"glue": "eight BERTs", "minbert": "three BERTs"}
"""Data -> the name of the baseline: a BERT for each task."""
_WORDS = {
    "freeze=backbone": "BERT frozen",
    "weights=random": "from random weights",
    "pooler=per-task": "separate poolers",
    "memory=32": "with memory",
    "activation=gelu": "with GELU",
    "pretraining=mlm": "pre-trained further",
    "size=paper": "the paper's size",
    "sharing=tasks": "in each layer",
    "residual=false": "without residual",
    "layer_norm=false": "without layer norm",
    "single-task": "a model for each task",
    "square-root": "square root",
    "round-robin": "round robin",
    "sequential": "one task after another",
}
"""Option or schedule of a term -> the words for it."""


def in_words(term: Term) -> str:
    """The runs of one term in words: `PALs (annealed, BERT frozen)`."""
    if term.arm == "fine-tuned" and term.alone:
        return _BASELINES.get(term.data, "a BERT for each task")
    method, *options = term.arm.split()
    words = [_WORDS.get(word, word.replace("_", " ").replace("=", " = ")) for word in (term.schedule, *options)]
    return f"{LABELS.get(method, method)} ({', '.join(words)})"


def sentence(left: Sequence[Term], right: Sequence[Term], relation: str, what: str) -> str:
    """What a comparison states; `a + d > b + c` compares what a gains over b with what c gains over d.

    Args:
        what: a task or one of `claims.MEASURES`; empty for the average.
    """
    (first, *more), (other, *others) = ([in_words(term) for term in side] for side in (left, right))
    if what == "spread":
        return f"{first} should spread more over seeds than {other}"
    if more:
        return f"the gain of {first} over {other} should be larger than that of {others[0]} over {more[0]}"
    better = "better" if relation == ">" else "no worse"
    return f"{first} should be {better} than {other}{_WHERE.get(what, f' on {what}')}"
