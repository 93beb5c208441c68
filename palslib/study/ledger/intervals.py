"""Intervals of differences between methods, from all seeds of each.

In the first study scores spread about equally for all methods, and averages of runs with the same seed are no more
alike than others. So one variance is estimated from all runs; the Brown-Forsythe test checks this. Where many methods
are compared with one, Dunnett's intervals (1955) hold for all together.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np
import pandas as pd
from scipy import stats

from palslib.data.tasks import get_task

MARGIN = 0.5
"""Points of the dev average: a difference whose whole interval lies within ±0.5 is too small to matter."""
POSITIVE, NEGATIVE, TOO_SMALL, OPEN = "positive", "negative", "too small to matter", "open"
NO_WORSE = "no worse"
"""The verdict on a claim that asks for no more than this: the interval lies above minus the margin."""
Scores = Mapping[str, Sequence[float]]
"""Method -> the scores of its runs, one for each seed."""


@dataclass(frozen=True)
class Difference:
    """A difference of means, in points."""

    value: float
    low: float
    """The lower end of its interval."""
    high: float
    seeds: tuple[int, int]
    """The numbers of runs on both sides."""

    def kind(self, margin: float = MARGIN) -> str:
        """`positive` or `negative` if the interval lies on one side of 0; else `too small to matter` if it lies within
        the margin; else `open`."""
        if self.low > 0 or self.high < 0:
            return POSITIVE if self.low > 0 else NEGATIVE
        return TOO_SMALL if -margin <= self.low and self.high <= margin else OPEN

    @property
    def cells(self) -> dict:
        """Columns of a frame: `difference`, `low`, `high`, and `seeds` of both sides as text."""
        seeds = f"{self.seeds[0]} and {self.seeds[1]}"
        return {"difference": self.value, "low": self.low, "high": self.high, "seeds": seeds}

    @property
    def text(self) -> str:
        """`+0.73 [+0.27, +1.19]`; the value alone if the interval is unbounded or unknown, and a dash for NaN."""
        if math.isnan(self.value):
            return "–"
        bounded = math.isfinite(self.high - self.low)
        return f"{self.value:+.2f}" + (f" [{self.low:+.2f}, {self.high:+.2f}]" if bounded else "")

    def __str__(self) -> str:
        """`+0.73 [+0.27, +1.19], 8 seeds against 5`, or `8 seeds` on both sides."""
        left, right = self.seeds
        against = "" if left == right else f" against {right}"
        return f"{self.text}, {left} seed{'s' if left != 1 else ''}{against}"


def equal_variances(scores: Scores) -> float:
    """The p-value of the Brown-Forsythe test that all methods have one variance; NaN where it cannot be computed."""
    several = [list(runs) for runs in scores.values() if len(runs) > 2]  # two are always equally far from their median
    return float(stats.levene(*several, center="median").pvalue) if len(several) > 1 else math.nan


def _student(value: float, error: float, degrees: float, level: float, seeds: tuple[int, int]) -> Difference:
    """value ± t · error, with Student's t of these degrees of freedom; NaN if there are none."""
    half = float(stats.t.ppf((1 + level) / 2, degrees) * error)
    return Difference(value, value - half, value + half, seeds)


def difference(scores: Scores, left: str, right: str, level: float = 0.95) -> Difference:
    """left - right with the interval of this level: Student's t with one variance for all methods of `scores`, or
    Welch's for these two where `equal_variances` is below 0.01. The interval is NaN if the variance is unknown."""
    a, b = np.asarray(scores[left], float), np.asarray(scores[right], float)
    seeds, value = (len(a), len(b)), float(a.mean() - b.mean()) if len(a) and len(b) else math.nan
    if equal_variances(scores) < 0.01 and min(seeds) > 1:
        return welch(a, b, level)
    degrees = sum(len(runs) - 1 for runs in scores.values() if len(runs))
    if not degrees or not all(seeds):
        return Difference(value, math.nan, math.nan, seeds)
    pooled = sum(np.var(runs) * len(runs) for runs in scores.values() if len(runs)) / degrees
    return _student(value, math.sqrt(pooled * (1 / seeds[0] + 1 / seeds[1])), degrees, level, seeds)


def family(scores: Scores, base: str) -> pd.DataFrame:
    """Every method minus `base`, with Dunnett's simultaneous 95 % intervals: all hold together in 95 of 100 studies.

    Returns a row for each method: `method`, `difference`, `low`, `high`, `seeds`, `base seeds`, `verdict`. The interval
    is NaN where the method or `base` has fewer than three runs or an undefined score, or where all runs of each method
    score the same; without runs of both, the difference is NaN too, and the verdict is `not run`.
    """
    others = [method for method in scores if method != base]
    known = [method for method in others if len(scores[method]) and np.isfinite(scores[method]).all()]
    several, ends_of = [np.asarray(scores[method], float) for method in (*known, base)], {}
    if len(scores[base]) > 2 and max(map(len, several[:-1]), default=0) > 2 and any(map(np.ptp, several)):
        test = stats.dunnett(*several[:-1], control=several[-1], rng=np.random.default_rng(0))
        ends_of = dict(zip(known, zip(*test.confidence_interval(), strict=True), strict=True))
    rows = []
    for method in others:
        seeds = len(scores[method]), len(scores[base])
        value = fmean(scores[method]) - fmean(scores[base]) if min(seeds) else math.nan
        ends = ends_of.get(method) if seeds[0] > 2 else None  # with fewer runs they only count in the variance
        gap = Difference(value, *(ends or (math.nan, math.nan)), seeds)
        rows.append((method, gap.value, gap.low, gap.high, *seeds, gap.kind() if min(seeds) else "not run"))
    columns = ["method", "difference", "low", "high", "seeds", "base seeds", "verdict"]
    return pd.DataFrame(rows, columns=columns)


def paired(differences: Sequence[float], level: float = 0.95) -> Difference:
    """The mean of differences between runs of one seed, with Student's interval; NaN for fewer than two."""
    n = len(differences)
    error = np.std(differences, ddof=1) / math.sqrt(n) if n > 1 else math.nan
    return _student(fmean(differences) if n else math.nan, error, n - 1, level, (n, n))


def welch(left: Sequence[float], right: Sequence[float], level: float = 0.95) -> Difference:
    """left - right of two groups that share nothing, with Welch's interval; NaN where one has fewer than two runs."""
    seeds = len(left), len(right)
    value = fmean(left) - fmean(right) if min(seeds) else math.nan
    if min(seeds) < 2:
        return Difference(value, math.nan, math.nan, seeds)
    a, b = (variance(side) / len(side) for side in (left, right))  # of the means; both may be 0, which scipy warns of
    degrees = (a + b) ** 2 / (a**2 / (len(left) - 1) + b**2 / (len(right) - 1)) if a + b else 1
    return _student(value, math.sqrt(a + b), degrees, level, seeds)


def _accuracy(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return (predictions == labels) @ weights / weights.sum()


def _correlation(labels: np.ndarray, predictions: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Pearson's, which for two classes is Matthews'; 0 where all predictions are equal, as in a run's record."""
    x = labels - np.average(labels, weights=weights)
    y = predictions - np.average(predictions, axis=1, weights=weights)[:, None]
    spread = np.sqrt((x * x) @ weights * ((y * y) @ weights))
    return np.divide((y * x) @ weights, spread, out=np.zeros(len(y)), where=spread > 0)


WEIGHTED = {"accuracy": _accuracy, "matthews": _correlation, "pearson": _correlation}
"""Metric -> function of labels (N,), predictions (runs, N), and how often each row counts, (N,): each run's score."""


def over_examples(
    left: Sequence[Mapping[str, np.ndarray]],
    right: Sequence[Mapping[str, np.ndarray]],
    labels: Mapping[str, np.ndarray],
    level: float = 0.95,
    draws: int = 10_000,
) -> Difference:
    """left - right with an interval that covers dev examples as well as seeds: a bootstrap over both.

    Each draw takes as many runs of each side, and rows of each task, as there are, with replacement; it takes the same
    rows for all runs. A run's score is the mean of its tasks' first metrics, in percent. With few runs the interval is
    too narrow: n runs, drawn out of n, show (n - 1) / n of the variance of a new seed (5/6 for six, 2/3 for three).

    Args:
        left: for each run, task and split (`rte/validation`) -> its predictions, as `read_predictions` gives them.
        labels: task and split -> the true labels; only these take part.
    """
    rng = np.random.default_rng(0)
    metrics = {name: WEIGHTED[get_task(name.partition("/")[0]).metrics[0]] for name in labels}
    predictions = {name: np.stack([run[name] for run in (*left, *right)]) for name in labels}

    def drawn(draw: Callable[[int], np.ndarray]) -> float:
        """The difference of means where each of n rows, and of n runs, counts as often as `draw(n)` says."""
        by_task = [metrics[name](labels[name], predictions[name], draw(len(labels[name]))) for name in labels]
        runs = 100 * np.mean(by_task, axis=0)
        sides = runs[: len(left)], runs[len(left) :]
        first, second = (np.average(side, weights=draw(len(side))) for side in sides)
        return float(first - second)

    each = [drawn(lambda n: np.bincount(rng.integers(n, size=n), minlength=n).astype(float)) for _ in range(draws)]
    low, high = np.quantile(each, [(1 - level) / 2, (1 + level) / 2])
    return Difference(drawn(np.ones), float(low), float(high), (len(left), len(right)))
