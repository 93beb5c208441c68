"""A tenth of `fuzz_inputs.py`, and whether that tool itself can tell what becomes of an input."""

import time

import pytest
from fuzz_inputs import BAD, KINDS, OUTCOMES, Case, fuzz, outcome, table

from palslib.common.files import write_text
from palslib.common.reading import read_object


@pytest.mark.slow
def test_no_input_does_harm():
    """100 inputs of a fixed seed, a few of each kind: named errors, or accepted and right."""
    counts, bad = fuzz(runs=100, seed=2026)
    assert set(counts) == set(KINDS) and sum(found.total() for found in counts.values()) > 90
    assert bad == [], table(counts)


def _raises(error):
    raise error


def _ours():
    return read_object("nowhere/config.json")


CASES = {
    "named error": (_ours, lambda value: True),
    "accepted and right": (lambda: 1, lambda value: value == 1),
    "silent": (lambda: 2, lambda value: value == 1),
    "raw traceback": (lambda: {}["x"], lambda value: True),
    "hang": (lambda: time.sleep(60), lambda value: True),
}


@pytest.mark.parametrize("word", OUTCOMES)
def test_outcomes_are_told_apart(word, tmp_path, monkeypatch):
    """One made-up input for each."""
    monkeypatch.setattr("fuzz_inputs.LIMIT", 1.0)
    folder = tmp_path / "inside"
    folder.mkdir()
    act, right = CASES.get(word, (lambda: write_text(tmp_path / ("inside/x" * (word == "left-over") or "x"), ""), bool))
    assert outcome(Case("none", act, right, ("config.json",)), folder)[0] == word
    assert (word in BAD) == (word not in ("named error", "accepted and right"))


@pytest.mark.parametrize("error", [ValueError("config.json"), OSError("config.json"), UnicodeError("config.json")])
def test_an_error_from_elsewhere_is_raw_whatever_it_says(error, tmp_path):
    """Only palslib's own errors count, and the system's of a file."""
    (tmp_path / "inside").mkdir()
    case = Case("none", lambda: _raises(error), bool, ("config.json",))
    assert outcome(case, tmp_path / "inside")[0] == "raw traceback"


def test_an_error_after_a_change_is_silent(tmp_path):
    (tmp_path / "inside").mkdir()
    case = Case("none", _ours, bool, ("config.json",), unchanged=lambda: False)
    assert outcome(case, tmp_path / "inside")[0] == "silent"
