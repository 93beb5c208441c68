"""Intervals against scipy's own, by hand, and by simulation of whole studies."""

import math

import numpy as np
import pytest
from pytest import approx
from scipy import stats

from palslib.data.metrics import METRICS
from palslib.study.ledger.intervals import WEIGHTED, Difference, difference, equal_variances, family, over_examples


def test_two_methods_have_students_interval_and_unequal_variances_welchs():
    """Of two methods alone the pooled variance is the t-test's own."""
    rng = np.random.default_rng(1)
    equal = {"a": rng.normal(1, 1, 6), "b": rng.normal(0, 1, 9)}
    ends = stats.ttest_ind(equal["a"], equal["b"]).confidence_interval(0.952)  # the level of a second look
    interval = difference(equal, "a", "b", 0.952)
    assert (interval.low, interval.high, interval.seeds) == (approx(ends.low), approx(ends.high), (6, 9))
    unequal = {"a": rng.normal(1, 30, 20), "b": rng.normal(0, 0.1, 20)}
    interval = difference(unequal, "a", "b", 0.995)
    ends = stats.ttest_ind(unequal["a"], unequal["b"], equal_var=False).confidence_interval(0.995)
    assert equal_variances(unequal) < 0.01 and (interval.low, interval.high) == (approx(ends.low), approx(ends.high))


def test_a_third_method_lends_its_runs_to_the_variance():
    """Variances 1 (of 1, 2, 3), 0 and 4 (of 0, 2, 4), two degrees each: 5 / 3; ± t(.975, 6) · √(5/3 · 2/3)."""
    interval = difference({"a": [1.0, 2.0, 3.0], "b": [0.0, 0.0, 0.0], "c": [0.0, 2.0, 4.0]}, "a", "b")
    assert (interval.value, interval.high - interval.value) == (2.0, approx(2.4469 * math.sqrt(10 / 9), rel=1e-4))
    assert math.isnan(difference({"a": [1.0], "b": [2.0]}, "a", "b").low)  # nothing is known of the variance


def test_a_familys_intervals_are_scipys_dunnett():
    rng = np.random.default_rng(2)
    scores = {name: list(rng.normal(mean, 1, n)) for name, mean, n in (("base", 0, 8), ("a", 2, 8), ("b", 0, 3))}
    frame = family(scores, "base").set_index("method")
    ends = stats.dunnett(scores["a"], scores["b"], control=scores["base"], rng=rng).confidence_interval()
    assert frame["low"].tolist() == approx(ends.low, abs=5e-3)
    assert frame["high"].tolist() == approx(ends.high, abs=5e-3)
    assert frame["seeds"].tolist() == [8, 3] and frame["base seeds"].tolist() == [8, 8]
    alone = difference(scores, "a", "base")
    assert frame.loc["a", "low"] < alone.low < alone.high < frame.loc["a", "high"]
    equal = family({"base": [50.0] * 3, "a": [50.0] * 3}, "base")  # constant predictions, without any variance
    assert equal["low"].isna().all() and equal["verdict"].tolist() == ["open"]
    some = family({"base": [60.0, 61.0, 62.0], "a": [61.0, 62.0, 63.5], "b": [40.0, math.nan, 41.0]}, "base")
    assert some["low"].isna().tolist() == [False, True]
    one = family({"base": [60.0, 61.0, 62.0], "a": [61.0, 62.0, 63.0], "b": [40.0]}, "base")
    assert one["low"].isna().tolist() == [False, True] and family({"base": []}, "base").empty  # b is of a single run


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.1, 0.3, "positive"),
        (-9, -0.1, "negative"),
        (-0.4, 0.5, "too small to matter"),
        (-0.6, 0.2, "open"),
        (math.nan, math.nan, "open"),
    ],
)
def test_what_an_interval_shows(low, high, expected):
    assert Difference(0.2, low, high, (3, 3)).kind() == expected


def predictions(rng, labels: dict, right: float) -> dict:
    return {name: np.where(rng.random(len(rows)) < right, rows, 1 - rows) for name, rows in labels.items()}


def test_dev_examples_widen_an_interval_that_seeds_alone_leave_narrow():
    """Three equal runs a side that differ on a tenth of 200 rows: √(.1 · .9 / 200) = 2.1 points, on two tasks 1.5."""
    rng = np.random.default_rng(3)
    labels = {f"{task}/validation": rng.integers(0, 2, 200) for task in ("rte", "mrpc")}
    perfect = {name: rows.copy() for name, rows in labels.items()}
    worse = {name: np.where(np.arange(200) < 20, 1 - rows, rows) for name, rows in labels.items()}
    interval = over_examples([perfect] * 3, [worse] * 3, labels, draws=400)
    assert interval.value == approx(10) and interval.seeds == (3, 3)
    assert (interval.high - interval.low) / 2 == approx(1.96 * 1.5, rel=0.2)
    other = [predictions(rng, labels, right) for right in (0.5, 0.9)]
    wide = over_examples([perfect] * 3, other, labels, draws=400)  # two runs that differ much: seeds count as well
    assert wide.high - wide.low > 2 * (interval.high - interval.low)


@pytest.mark.parametrize("metric", WEIGHTED)
def test_a_row_that_counts_several_times_is_a_row_that_is_there_several_times(metric):
    rng = np.random.default_rng(5)
    labels, runs, weights = rng.integers(0, 2, 50), rng.integers(0, 2, (3, 50)), rng.integers(0, 4, 50)
    runs[2] = 1  # equal predictions have no correlation
    expected = [METRICS[metric](np.repeat(labels, weights), np.repeat(run, weights)) for run in runs]
    assert WEIGHTED[metric](labels, runs, weights.astype(float)) == approx(np.nan_to_num(expected))
