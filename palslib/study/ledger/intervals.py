"""Intervals of differences between methods, from all seeds of each.

In the first study scores spread about equally for all methods, and averages of runs with the same seed are no more
alike than others. So one variance is estimated from all runs; the Brown-Forsythe test checks this. Where many methods
are compared with one, Dunnett's intervals (1955) hold for all together.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np
import pandas as pd
from scipy import stats

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


def student(value: float, error: float, degrees: float, level: float, seeds: tuple[int, int]) -> Difference:
    """value ± t · error, with Student's t of these degrees of freedom; NaN if there are none."""
    half = float(stats.t.ppf((1 + level) / 2, degrees) * error)
    return Difference(value, value - half, value + half, seeds)


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
    return student(fmean(differences) if n else math.nan, error, n - 1, level, (n, n))


def welch(left: Sequence[float], right: Sequence[float], level: float = 0.95) -> Difference:
    """left - right of two groups that share nothing, with Welch's interval; NaN where one has fewer than two runs."""
    seeds = len(left), len(right)
    value = fmean(left) - fmean(right) if min(seeds) else math.nan
    if min(seeds) < 2:
        return Difference(value, math.nan, math.nan, seeds)
    a, b = (variance(side) / len(side) for side in (left, right))  # of the means; both may be 0, which scipy warns of
    degrees = (a + b) ** 2 / (a**2 / (len(left) - 1) + b**2 / (len(right) - 1)) if a + b else 1
    return student(value, math.sqrt(a + b), degrees, level, seeds)
