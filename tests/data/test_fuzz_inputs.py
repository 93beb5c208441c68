"""A tenth of `fuzz_inputs.py`, and whether that tool itself can tell what becomes of an input."""

import time
from functools import partial
from pathlib import Path

import pytest
from fuzz_inputs import KINDS, Case, fuzz, outcome, table

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


CASES = [
    ("named error", _ours),
    ("accepted and right", lambda: 1),
    ("silent", lambda: 2),
    ("raw traceback", lambda: {}["x"]),
    *(("raw traceback", partial(_raises, kind("config.json"))) for kind in (ValueError, OSError, UnicodeError)),
    ("hang", lambda: time.sleep(60)),
    ("left-over", lambda: write_text(Path("x"), "")),
    ("written outside", lambda: write_text(Path("../x"), "")),
]


@pytest.mark.parametrize(("word", "act"), CASES)
def test_outcomes_are_told_apart(word, act, tmp_path, monkeypatch):
    """Only palslib's own errors count as named, and the system's of a file, whatever another error says."""
    monkeypatch.setattr("fuzz_inputs.LIMIT", 1.0)
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    assert outcome(Case("none", act, lambda value: value == 1, ("config.json",)), tmp_path / "inside")[0] == word


def test_an_error_after_a_change_is_silent(tmp_path):
    (tmp_path / "inside").mkdir()
    case = Case("none", _ours, bool, ("config.json",), unchanged=lambda: False)
    assert outcome(case, tmp_path / "inside")[0] == "silent"
