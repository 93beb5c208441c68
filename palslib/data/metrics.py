"""GLUE's metrics over whole splits, in percent, and the two averages that the paper prints.

Stickland & Murray 2019: table 2 averages nine scores (ledger A21), table 3 eight dev scores (end of ledger D). The
released code averages Matthews and Pearson over batches of eight instead (ledger D3): `batchwise`.
"""

import importlib
import warnings
from collections.abc import Callable, Mapping

import numpy as np

from palslib.data.tasks import BY_CLASS, Task


def _metric(module: str, name: str, constant: float | None = None, **options) -> Callable:
    """A function of scipy or scikit-learn, imported at its first use because that takes longer than importing this
    package. `constant` is its value where all labels or all predictions are equal."""

    def metric(labels: np.ndarray, predictions: np.ndarray) -> float:
        if constant is not None and (np.ptp(predictions) == 0 or np.ptp(labels) == 0):
            return constant
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # about values that are nearly constant
            value = getattr(importlib.import_module(module), name)(labels, predictions, **options)
        return float(getattr(value, "statistic", value))

    return metric


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": _metric("sklearn.metrics", "accuracy_score"),
    "f1": _metric("sklearn.metrics", "f1_score", zero_division=0.0),
    "precision": _metric("sklearn.metrics", "precision_score", zero_division=0.0),
    "recall": _metric("sklearn.metrics", "recall_score", zero_division=float("nan")),  # of a class without rows
    "macro_f1": _metric("sklearn.metrics", "f1_score", average="macro", zero_division=0.0),
    "matthews": _metric("sklearn.metrics", "matthews_corrcoef", constant=0.0),  # by convention, as in scikit-learn
    "pearson": _metric("scipy.stats", "pearsonr", constant=float("nan")),
    "spearman": _metric("scipy.stats", "spearmanr", constant=float("nan")),
}
"""Name -> function of (labels, predictions), both (N,); its values are at most 1."""


def batchwise(metric: str, labels: np.ndarray, predictions: np.ndarray) -> float:
    """The mean of a metric over batches of eight, each weighted by its rows, as in the released code (ledger D3). It is
    biased: a batch with one label counts 0 for Matthews, and one batch of constant predictions makes Pearson NaN."""
    batches = [slice(i, i + 8) for i in range(0, len(labels), 8)]
    values = [METRICS[metric](labels[rows], predictions[rows]) for rows in batches]
    return float(np.average(values, weights=[len(labels[rows]) for rows in batches]))


def class_of(outputs: np.ndarray) -> np.ndarray:
    """The class numbers (N,) of logits (N, classes), or (N, 1) where one logit decides between two classes."""
    return outputs.argmax(-1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).astype(int)


def score(task: Task, labels: np.ndarray, outputs: np.ndarray, by_batches: bool = False) -> dict[str, float]:
    """Every metric of a task in percent; those in `BY_CLASS` are given for each class, as `precision (bad)`;
    `f1` of a task that is not built in is named after its class, as `f1 (bad)`.

    Args:
        labels: (N,) class numbers or scores.
        outputs: (N, classes) logits, (N, 1) for two classes by one logit, or (N, 1) scores on the labels' scale.
        by_batches: computes Matthews and Pearson as means over batches of eight (ledger D3).

    Raises ValueError for a label or output that is NaN or infinite, naming task and row (the first is 0), because the
    argmax of NaNs would be scored as class 0.
    """
    labels, outputs = np.asarray(labels, dtype=np.float64), np.asarray(outputs, dtype=np.float64)
    for what, values in (("label", labels), ("output", outputs)):
        finite = np.isfinite(values).reshape(len(labels), -1).all(1)
        if not finite.all():
            row = int(finite.argmin())
            raise ValueError(f"task {task.name!r}: the {what} of row {row} is {values[row].tolist()}, not finite")
    predictions, scores = outputs[:, 0] if task.is_regression else class_of(outputs), {}
    for metric in task.metrics:
        if metric in BY_CLASS:
            for number, name in enumerate(task.labels):
                scores[f"{metric} ({name})"] = METRICS[metric](labels == number, predictions == number)
        elif metric == "f1":
            number = task.labels.index(task.positive or task.labels[1])
            scores[name_of(task, metric)] = METRICS["f1"](labels == number, predictions == number)
        elif by_batches and metric in ("matthews", "pearson"):
            scores[metric] = batchwise(metric, labels, predictions)
        else:  # constant predictions count 0, as they do for Matthews; only the released code lets the NaN through
            scores[metric] = float(np.nan_to_num(METRICS[metric](labels, predictions), nan=0.0))
    return {name: 100 * value for name, value in scores.items()}


def name_of(task: Task, metric: str) -> str:
    """The name of a metric's score: F1 names its class, except for GLUE's tasks."""
    named = metric == "f1" and (task.positive or not task.built_in)
    return f"f1 ({task.positive or task.labels[1]})" if named else metric


Scores = Mapping[str, Mapping[str, float]]
"""Scores in percent, as `evaluate` returns them: `{"mnli": {"accuracy": 84.6, "accuracy_mm": 83.4}, ...}`."""


def main_scores(scores: Scores) -> dict[str, float]:
    """Each task's first metric, which enters the dev average. NaN where a record has null, which can come from
    the released code's means over batches."""
    first = {task: next(iter(by_metric.values())) for task, by_metric in scores.items()}
    return {task: float("nan") if score is None else score for task, score in first.items()}


def dev_average(scores: Scores) -> float:
    """The average of the paper's table 3: the plain mean over tasks of each task's first metric (MNLI matched)."""
    return float(np.mean(list(main_scores(scores).values())))


def glue_average(scores: Scores) -> float | None:
    """The "Av." column of the paper's table 2: the plain mean of nine scores, MNLI counted twice, QQP and MRPC by F1,
    STS-B by Spearman (ledger A21). None where one of the nine is missing."""
    nine = [("mnli", "accuracy"), ("mnli", "accuracy_mm"), ("qqp", "f1"), ("qnli", "accuracy"), ("sst2", "accuracy")]
    nine += [("cola", "matthews"), ("stsb", "spearman"), ("mrpc", "f1"), ("rte", "accuracy")]
    values = [scores.get(task, {}).get(metric) for task, metric in nine]
    return None if None in values else float(np.mean(values))
