"""Every row of the ledger gets the verdict it should, and what is derived is what the hand arithmetic says."""

import shutil
import subprocess
import sys
from dataclasses import fields, replace
from math import e

import matplotlib.pyplot as plt
import pytest

from palslib.common.places import PROJECT, RECORDS
from palslib.data.glue import RELEASED_SIZES
from palslib.plan.recipes import RECIPES, Recipe, rate_factor
from palslib.study.figures.verdicts import verdict_tiles
from palslib.study.ledger.derivations import agrees_with_ledger, derive, numbers, possible
from palslib.study.ledger.paper import GLUE_TRAIN_SIZES, load_ledger
from palslib.study.ledger.verdicts import VERDICTS, evidence, verdict, verdict_frame
from palslib.study.ledger.view import find

LEDGER = load_ledger()
FRAME = verdict_frame(records=[])
BASE = 109_482_240


# --- A and B ----------------------------------------------------------------------------------------------------------


def _ratio(added):
    return (BASE + added) / BASE


def _shares(alpha):
    weights = [n**alpha for n in GLUE_TRAIN_SIZES.values()]
    return [weight / sum(weights) for weight in weights]


BY_HAND = {
    "A1": 23_837_184 + 12 * 7_087_872 + 590_592,
    "A2": [12 * 768**2, 12 * 768**2 + 13 * 768],
    "A3": [313_344 + 1_498_176, 1_811_520 + 8_316],
    "A4": [8 * 1_811_520, _ratio(14_492_160)],
    "A5": [12 * 2 * 768 * 100, _ratio(8 * 1_843_200), 1_843_200 + 12 * 868],
    "A6": [12 * (129_024 + 21_168), _ratio(8 * 1_802_304)],
    "A7": [423_936 + 6 * 228_528, _ratio(8 * 1_795_104)],
    "A8": 313_344 + 12 * 124_848,
    "A9": [313_344 + 6 * 166_464, _ratio(8 * 1_312_128)],
    "A10": [1_312_128, 313_344 + 6 * (102_816 + 63_504), _ratio(8 * 1_312_128), _ratio(8 * 1_311_264)],
    "A11": [768**2, 768**2 + 768, _ratio(7 * 590_592)],
    "A12": 12 * 768,
    "A13": [10, 8 * 24 * 768 * 10, 53, 48],
    "A14": 12 * 99_136,
    "A15": 24 * 99_136 + 24 * 1_536 + 590_592,
    "A16": 4 * 99_136,
    "A17": [n / 949_098 for n in GLUE_TRAIN_SIZES.values()] + _shares(0.5) + _shares(0.2) + [0.125] * 8,
    "A18": [1.0, 0.2, 1.0],
    "A19": 392_702 / 2_490,
    "A20": [60_000, 6_000],
    "A21": [716.0 / 9, 719.0 / 9, 716.7 / 9, 723.6 / 9],
    "A22": [1.824 / 3, 1.768 / 3, 1.784 / 3, 1.778 / 3, 1.742 / 3, 1.675 / 3, 1.777 / 3, 1.768 / 3],
    "A23": [717.7 / 9, 714.9 / 9],
    "A24": 857.0 / 12,
    "A25": 8 / (1 + 14_492_160 / 109_482_240),
    "A26": [31_782_912 + 24 * 12_596_224 + 1_049_600, 335_141_888 / BASE],
    "A27": [204, 84, 276, 101],
    "A28": 15_000_000 / 8,
    "B1": [8 * 7_077_888, _ratio(56_623_104), 8 * 7_087_872, _ratio(56_702_976)],
    "B2": [716.0 / 9, 719.0 / 9, 716.7 / 9, 723.6 / 9, 729.9 / 9, 731.7 / 9, 729.9 / 9, 737.2 / 9],
    "B3": [12 * 12 * 768**2, 12 * 6 * 768**2],
    "B4": [3 * 1_811_520, _ratio(5_434_560)],
    "B5": [0, 1],
    "B6": [324, 40, 5_850 * 32],
    "B7": [1.679 / 3, 1.598 / 3, 1.987 / 3, 1.9335 / 3, 2.179 / 3],
    "B8": [715.9 / 9, 714.5 / 9],
    "B9": 899.7 / 12,
    "B10": 204,
    "B11": [204 // 12, 204 // 6],
    "B12": 1.742 / 3,
    "B13": _ratio(15_000_000),
    "B14": BASE,
    "B15": [2 * 768, 1],
    "B16": [5 / (1 + e), 5 / (1 + 1 / e)],
    "B17": [0.529, 1.777 / 3],
    "B18": [9 + 12, 8 + 12, 5, 820.4 / 11, 818.1 / 11],
    "B19": -3.0,
    "B20": [0.4, 1.3],
    "B21": 0.2,
    "B22": [392_702, 363_846, 104_743, 67_349, 8_551, 5_749, 3_668, 2_490],
    "B23": [2.6, 0.0, -0.3],
}


@pytest.mark.parametrize("row_id", BY_HAND)
def test_what_is_derived_is_what_comes_out_by_hand(row_id):
    """d = 768, L = 12, eight tasks; A26 d = 1024, L = 24.

    A1, A26   word pieces, places, types and their norm (30,522 + 512 + 2 + 2)d, layers 12d² + 13d, pooler d² + d
    A3        PALs 2d · 204 + 12 · 3 · 204²; biases 204 + 768 + 12 · 3 · 204 = 8,316
    A6, A7    12 · (2d · 84 + 3 · 84²); 2d · 276 + 6 · 3 · 276²
    A8 - A10  2d · 204 + 12 · 2 · 204 · 306; + 6 · 4 · 204²; + 6 · 2 · 204 · 408, + 6 · (2 · 204 · 252 + 252²)
    A13       low rank 147,456 s, ten fit into 1.5M; PALs 8(1,536 s + 36 s²), 1,460,256 at 53, 1,503,360 at 54
    A14, A15  an adapter 2d · 64 + 768 + 64 = 99,136; norms 24 · 2d; the classifier's hidden layer d² + d
    A20       25 epochs of 300 · 8 steps, a tenth of them to warm up
    A21       fine-tuned 84.6 + 83.4 + 71.2 + 90.1 + 93.5 + 52.1 + 85.8 + 88.9 + 66.4 = 716.0
    A27       8 · count ≤ 15M: PALs at 204 14,492,160, at 216 16,091,136; low rank at 101 14,893,056, at 102 15,040,512
    B2        the first numbers: 716.0 - 71.2 - 88.9 + 89.2 + 84.8 = 729.9, so 81.1 where 79.6 is printed
    B3        the second with an inner size of d
    B6        (8,544 + 141,506 + 6,040) / 2 = 78,045; / 40 = 1,951 steps, / 32 = 2,439; printed 1,950 and 5,850
    B7        .515 + .780 + .384, .515 + .754 + .329; with (r + 1) / 2 for STS .692 and .6645; with .884 for it
    B16       5σ(∓1)
    B18       GLUE's columns, MNLI twice; without political message: 899.7 - 79.3, 857.0 - 38.9
    """
    assert numbers(derive(row_id)) == pytest.approx(numbers(BY_HAND[row_id]), rel=1e-9, abs=1e-9)


def test_every_row_of_a_and_b_is_derived():
    """Nothing is left out above, and what is derived is what the ledger states, by the same names."""
    rows = {row.id for row in LEDGER.values() if row.kind in "AB"}
    assert rows == BY_HAND.keys(), "a new row A or B is worked out by hand in BY_HAND"
    assert [row_id for row_id in rows if not agrees_with_ledger(row_id)] == []


@pytest.mark.parametrize(
    ("row_id", "expected"),
    [
        ("B8", [(715.45 / 9, 716.35 / 9, False), (714.05 / 9, 714.95 / 9, True)]),  # nine scores, each ± 0.05
        ("B12", [(1.7405 / 3, 1.7435 / 3, True)]),
        ("B13", [(_ratio(14_500_000), _ratio(15_500_000), True)]),
        ("B20", [(90.05, 90.15, False), (85.75, 85.85, False)]),
        ("B22", []),
    ],
)
def test_what_rounded_inputs_allow(row_id, expected):
    ranges = [(low, high, fits) for low, high, _, fits in possible(LEDGER[row_id])]
    assert ranges == [pytest.approx(numbers) for numbers in expected]


def changed(values):
    """The numbers of a row, each replaced by another."""
    return {name: changed(value) for name, value in values.items()} if isinstance(values, dict) else 2 * values + 1


def test_other_printed_numbers_would_not_hold_and_derived_ones_would_follow():
    """(What other rows of B say is no number, or is below.)"""
    for row in (row for row in LEDGER.values() if row.kind == "A" and row.published):
        assert verdict(replace(row, published=changed(row.published))).verdict == "does not hold", row.id
    for row_id in ("B1", "B3", "B4", "B5", "B7", "B8", "B9", "B10", "B12", "B14", "B15", "B16", "B17", "B19", "B22"):
        row, printed = LEDGER[row_id], LEDGER[row_id].derived
        if isinstance(row.published, dict):
            ours = printed if isinstance(printed, dict) else dict.fromkeys(row.published, printed)
            printed = {name: ours.get(name, 0) for name in row.published}
        assert verdict(replace(row, published=printed)).verdict == "not demonstrated", row_id


@pytest.mark.parametrize(
    ("row_id", "published", "expected"),
    [
        ("A22", {"PALs_annealed": 0.581}, "does not hold"),  # then B12 would hold
        ("B1", {"ratio_in_table": 1.52}, "not demonstrated"),
        ("B2", {"eight_BERTs": 80.0}, "not demonstrated"),
        ("B6", {"s_in_table": 324}, "not demonstrated"),
        ("B11", {"paper": 6}, "does not follow"),  # the recipes decide this
        ("B13", {"ratio": 1.14}, "not demonstrated"),
        ("B20", {"adapters_qnli": 90.1}, "not demonstrated"),
        ("B22", {"qnli": 104_000, "mrpc": 3_700}, "not demonstrated"),
        ("B23", {"PALs": 0.780}, "not demonstrated"),
    ],
)
def test_a_source_that_printed_something_else_would_get_another_verdict(row_id, published, expected):
    row = LEDGER[row_id]
    published = row.published | published if isinstance(published, dict) else published
    assert verdict(replace(row, published=published)).verdict == expected


def test_folders_that_decide_nothing(tmp_path):
    """What is aside, at any depth, and a grid of section 4 that is not complete; one's own folder may have any name."""
    for name in ("gem", "gem-mixed", "pilot", "pilot/second"):
        shutil.copytree(RECORDS / "gem", tmp_path / name, ignore=shutil.ignore_patterns("*.npz"))
    assert {record["file"].split("/")[-2] for record in evidence(tmp_path)} == {"gem"}
    assert {record["file"].split("/")[-2] for record in evidence(tmp_path / "pilot")} == {"pilot", "second"}


def test_rows_c_and_d_and_unknown_rows_are_not_derived():
    with pytest.raises(ValueError, match="C1 is not derived"):
        derive("C1")
    with pytest.raises(ValueError, match="unknown ledger row 'A99'"):
        derive("A99")


# --- D ----------------------------------------------------------------------------------------------------------------


def test_every_field_of_the_recipe_has_its_row():
    named = [name for row in LEDGER.values() if row.source == "released" for name in row.fields]
    assert sorted(named) == sorted(f.name for f in fields(Recipe)), "each field of Recipe has one row D, and no more"


def test_a_field_that_does_not_differ_is_no_switch(monkeypatch):
    monkeypatch.setitem(RECIPES, "released", RECIPES["paper"])
    assert verdict(LEDGER["D10"]).verdict == "not switchable"


def test_numbers_of_d_are_those_of_the_recipes():
    """D11, warm-up over a tenth of 100 steps: update 10 has 1 - 0.1 = 0.9 there, 1.0 here, and update 0 has 0 there."""
    paper, released = RECIPES["paper"], RECIPES["released"]
    assert [paper.pal_heads, released.pal_heads] == [LEDGER["D6"].derived, LEDGER["D6"].published]
    assert [paper.houlsby_size, released.houlsby_size] == [LEDGER["D15"].derived, LEDGER["D15"].published]
    assert released.epsilon == LEDGER["D10"].published["epsilon"] != paper.epsilon
    assert LEDGER["D5"].derived == {task: GLUE_TRAIN_SIZES[task] for task in ("qnli", "qqp")}
    assert LEDGER["D5"].published == {"factor": 25 / 32} | {task: RELEASED_SIZES[task] for task in ("qnli", "qqp")}
    after = [rate_factor(10, 100, 0.1, decay) for decay in ("jump", "linear")]
    assert after == pytest.approx([row["just_after"] for row in (LEDGER["D11"].published, LEDGER["D11"].derived)])
    assert rate_factor(0, 100, 0.1, "jump") == 0.0


# --- the frame, the look-up and the figure ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("term", "found", "not_found"),
    [
        ("110 million", {"A1"}, {"A26"}),
        ("127M", {"B14"}, {"A1"}),
        ("1,811,520", {"A3", "A8"}, {"A5"}),
        ("Round robin", {"B5", "C3", "D1"}, {"A1"}),
        (1.13, {"A4", "A5", "A6", "A7", "B4", "B13", "paper T3"}, {"A9"}),  # what rounds to it
        ("1.13x", {"A4", "B13", "paper T3"}, {"A9"}),
        ("8.1", set(), {"A25"}),
        ("4.0", {"C29"}, {"A4"}),
        ("91.8", {"adapters, figure 6"}, set()),
        ("NER", {"adapters, figure 6"}, {"A10"}),  # no part of "inner"
    ],
)
def test_a_number_or_a_word_is_found_in_its_rows(term, found, not_found):
    where = set(find(term, FRAME)["where"])
    assert found <= where and not not_found & where
    assert all(find(term, FRAME).empty for term in ("odd", "157", "1,13"))  # an integer finds itself alone


def test_every_row_is_a_tile_and_no_two_tiles_overlap():
    ax = plt.figure().add_subplot()
    verdict_tiles(FRAME, VERDICTS, ax)
    assert sorted(t.get_text() for t in ax.texts if t.get_text() in LEDGER) == sorted(LEDGER)
    counts = {str(n) for n in FRAME["verdict"].value_counts()}
    assert {t.get_text() for t in ax.texts} >= {*VERDICTS, *counts}
    places = {(p.get_x(), round(p.get_y(), 3)) for p in ax.patches}
    assert len(places) == len(ax.patches) == len(LEDGER)


def test_every_decided_row_names_its_records():
    frame = verdict_frame()
    decided = frame["verdict"].isin(["reproduced", "not reproduced", "inconclusive"])
    assert frame["files"][decided].map(len).all() and not frame["files"][frame["verdict"] == "not run"].map(len).any()


CODE = """
import sys, palslib
palslib.count_parameters("pals-204"), palslib.fit_budget("pals-204", "minilm")
palslib.TrainingPlan({"rte": 5}, "annealed", 3).examples(2)
from palslib.study.ledger.verdicts import verdict_frame
verdict_frame()
assert "torch" not in sys.modules
"""


def test_numbers_and_verdicts_need_no_torch():
    """In a process of its own, with the committed records."""
    assert subprocess.run([sys.executable, "-c", CODE], cwd=PROJECT).returncode == 0
