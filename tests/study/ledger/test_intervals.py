"""Intervals against scipy's own, by hand, and by simulation of whole studies."""

import math

import numpy as np
from pytest import approx
from scipy import stats

from palslib.study.ledger.intervals import Difference, family, welch


def test_a_familys_intervals_are_scipys_dunnett():
    rng = np.random.default_rng(2)
    scores = {name: list(rng.normal(mean, 1, n)) for name, mean, n in (("base", 0, 8), ("a", 2, 8), ("b", 0, 3))}
    frame = family(scores, "base").set_index("method")
    ends = stats.dunnett(scores["a"], scores["b"], control=scores["base"], rng=rng).confidence_interval()
    assert frame["low"].tolist() == approx(ends.low, abs=5e-3)
    assert frame["high"].tolist() == approx(ends.high, abs=5e-3)
    assert frame["seeds"].tolist() == [8, 3] and frame["base seeds"].tolist() == [8, 8]
    alone = welch(scores["a"], scores["base"])
    assert frame.loc["a", "low"] < alone.low < alone.high < frame.loc["a", "high"]
    equal = family({"base": [50.0] * 3, "a": [50.0] * 3}, "base")  # constant predictions, without any variance
    assert equal["low"].isna().all() and equal["verdict"].tolist() == ["open"]
    some = family({"base": [60.0, 61.0, 62.0], "a": [61.0, 62.0, 63.5], "b": [40.0, math.nan, 41.0]}, "base")
    assert some["low"].isna().tolist() == [False, True]
    one = family({"base": [60.0, 61.0, 62.0], "a": [61.0, 62.0, 63.0], "b": [40.0]}, "base")
    assert one["low"].isna().tolist() == [False, True] and family({"base": []}, "base").empty  # b is of a single run


def test_what_an_interval_shows():
    ends = [(0.1, 0.3), (-9, -0.1), (-0.4, 0.5), (-0.6, 0.2), (math.nan, math.nan)]
    kinds = [Difference(0.2, *of_one, (3, 3)).kind() for of_one in ends]
    assert kinds == ["positive", "negative", "too small to matter", "open", "open"]
