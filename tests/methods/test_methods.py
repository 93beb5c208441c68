"""Every method by name, what contradicts it, and the solver that fits its size to a budget."""

import json

import pytest
from shapes import tiny_encoder

from palslib import METHODS, Method, MultiTaskModel, RunConfig, fit_budget, get_method
from palslib.methods.counting import BACKBONES, PAPER_BUDGET, count_parameters
from palslib.methods.low_rank import LowRank
from palslib.methods.operations import count_operations
from palslib.methods.pal import PAL
from palslib.methods.table import LABELS
from palslib.methods.whole import FineTuned


def test_every_row_is_there_under_its_own_name():
    """The size in a name is the size: s, m for Houlsby, the inner sizes for a network; only pal-common names none."""
    assert all(name == method.name for name, method in METHODS.items()) and set(LABELS) == set(METHODS)
    assert [name for name, method in METHODS.items() if method.label != name] == ["pal-common"]
    frozen = {name for name, method in METHODS.items() if method.freeze != "nothing"}
    assert frozen == {"houlsby-64", "houlsby-64-not-shared", "houlsby-64-3-shared", "feature-extraction"}


def test_a_method_is_given_back_and_a_name_is_looked_up():
    """And is read as it was written."""
    row = METHODS["pals-204"]
    assert get_method("pals-204") is row and get_method(row) is row
    assert get_method(row, heads=6) == PAL("pals-204", heads=6)
    for name, row in METHODS.items():
        method = get_method(name, **({"size": 48} if row.has_size else {}))
        assert Method.from_dict(json.loads(json.dumps(method.to_dict()))) == method


@pytest.mark.parametrize(
    ("method", "label"),
    [
        (get_method("pals-204", size=120), "pals (s=120)"),
        (get_method("pal-common"), "pal-common (s=204)"),
        (get_method("houlsby-64-3-shared", size=32), "houlsby-3-shared (s=32)"),
        (get_method("ffn-on-top-252x2", size=102), "ffn-on-top (s=102, inner 126, 126)"),
        (get_method("ffn-on-top-252x2", inner=[252, 100]), "ffn-on-top (s=204, inner 252, 100)"),
        (LowRank("mine", size=7), "mine (s=7)"),
        (LowRank("mine-7", size=7), "mine-7"),
    ],
)
def test_a_label_tells_one_size_the_one_that_is_used(method, label):
    assert method.label == label


def test_inner_sizes_scale_with_the_size_unless_they_are_given():
    """306 · 102 / 204 = 153; 252 · 102 / 204 = 126, twice; fitted, 306 · 207 / 204 = 310.5, to the even 310."""
    assert get_method("ffn-306", size=102).inner == (153,)
    assert get_method("ffn-on-top-252x2", size=102).inner == (126, 126)
    assert get_method("ffn-306", size=102, inner=[7]).inner == (7,)  # a list, as from JSON
    assert get_method("ffn-306", inner=(3,)).with_options(size=1).inner == (1,)  # and not 0
    assert (fit_budget("ffn-306").size, fit_budget("ffn-306").inner) == (207, (310,))
    assert RunConfig(method="ffn-306", method_options={"inner": [100]}).resolved_method().inner == (100,)


# --- what is refused
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: get_method("pals-204", head=6), r"'head': did you mean 'heads'\? Valid: "),
        (lambda: Method.from_dict({"name": "mine", "kind": "pall"}), r"'pall': did you mean 'pal'\?"),
        (lambda: Method.from_dict(METHODS["lhuc"].to_dict() | {"heads": 12}), "option of 'lhuc' 'heads'"),
        (lambda: MultiTaskModel.from_backbone(tiny_encoder(layers=1), "pals-276-top", ["rte"]), "adapts no layer of"),
        (lambda: get_method("pals-204", layers="upper"), r"layers of 'pals-204' 'upper'.*all, top, bottom"),
        (lambda: get_method("houlsby-64", second="pal", pal_size=100), "pal_size 100 of 'houlsby-64' is not divisible"),
        (lambda: get_method("pals-204", scaled=1), "scaled of 'pals-204' must be true or false, not 1"),
        (lambda: FineTuned("mine", freeze="backbone"), "freeze of 'mine' 'backbone'. Valid: nothing"),
        (lambda: get_method("houlsby-64-not-shared", second="pal"), "second adapter: adapters_per_layer must be 1"),
        (lambda: get_method("shared", freeze="backbone but norms"), "freeze of 'shared' .* Valid: nothing"),
        (lambda: get_method("feature-extraction", freeze="nothing"), "'nothing'. Valid: backbone, backbone but norms"),
        (lambda: get_method("pals-204", size=100), r"size 100 .* 12 heads .*\[1, 2, 4, 5, 10, 20, 25, 50, 100\]"),
        (lambda: fit_budget("lhuc"), "method 'lhuc' has no size s to fit to a budget"),
        *((lambda x=x: fit_budget("pals-204", added=x), "no size of .pals-204. fits") for x in (float("nan"), -1)),
        # s = 12: 8 (1,536 · 12 + 36 · 144) = 8 · 23,616
        (lambda: fit_budget("pals-204", added=1_000), "no size .* fits 1,000 parameters .* s=12, adds 188,928"),
        (lambda: count_operations("shared", tokens=0), "tokens must be a positive integer, not 0"),
        (lambda: count_parameters("pals-204", "bert-base-uncasd"), "'bert-base-uncasd': .* 'bert-base-uncased'"),
        *((lambda x=x: count_parameters("lhuc", num_tasks=x), "num_tasks must be a positive") for x in (0, 2.0, "8")),
        *((lambda x=x: get_method("pals-204", size=x), "size of .* positive integer") for x in (0, 12.0, True)),
        *((lambda x=x: get_method("ffn-306", inner=x), "inner of .* positive integers") for x in ((), (3, 0), (3.0,))),
    ],
)
def test_a_wrong_name_or_value_says_what_is_valid(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- the budget solver (ledger A13, A27)
@pytest.mark.parametrize(
    ("backbone", "num_tasks", "added", "size", "heads"),
    [
        ("minilm", 8, None, 120, 12),
        ("bert-base-uncased", 3, None, 348, 12),
        ("bert-base-uncased", 8, 1_500_000, 48, 3),
        ("bert-base-uncased", 8, 3_500_000, 84, 4),
        ("bert-base-uncased", 8, 20_000_000, 240, 12),
        ("minilm", 8, 1_100_000, 60, 6),
    ],
)
def test_the_budget_is_for_all_tasks_and_small_sizes_have_fewer_heads(backbone, num_tasks, added, size, heads):
    """MiniLM: d = 384, 6 layers, a budget of 15,000,000 · 22,713,216 / 109,482,240 = 3,111,904.4. s = 120 costs
    8 · (768 · 120 + 18 · 14,400) = 8 · 351,360 = 2,810,880; 132: 8 · (101,376 + 313,632) = 3,320,064.

    Three tasks share what eight shared, 15,000,000 / 3 = 5,000,000 a task: 1,536 s + 36 s² is at 348
    534,528 + 36 · 121,104 = 4,894,272, at 360 552,960 + 4,665,600 = 5,218,560.

    Heads: the divisor of s nearest to 12 s / (204 d / 768), that is 12 s / 204 on BERT-base and 12 s / 102 on MiniLM.
    48: 12 · 48 / 204 = 2.8, divisor 3. 84: 4.9, divisors 4 and 6: 4 is nearer (0.94 against 1.06). 60 on MiniLM: 7.06,
    divisors 6 and 10: 6. At 204 and above the twelve heads stay. Costs: 8 (1,536 · 84 + 36 · 84²) = 3,064,320, and
    3,833,856 at 96; 8 (1,536 · 240 + 36 · 240²) = 19,537,920, and 21,385,728 at 252; MiniLM 8 (768 · 60 + 18 · 3,600) =
    887,040, and 1,188,864 at 72.
    """
    fitted = fit_budget("pals-204", backbone, num_tasks, added)
    assert (fitted.size, fitted.heads) == (size, heads)


def test_heads_that_are_asked_for_stay():
    """On MiniLM PALs without sharing get s = 54 and 6 heads, unless others are asked for."""
    asked = RunConfig(method="pals-no-sharing-84", method_options={"heads": 3}).resolved_method()
    assert (asked.size % 3, asked.heads) == (0, 3)
    assert RunConfig(method="pals-no-sharing-84").resolved_method().heads != 3


def test_every_fitted_size_is_the_largest_that_fits():
    """s is within the budget, and the next s (or the next multiple of the heads) is not.

    But for Houlsby not shared: on `tiny` its own norms and hidden layer leave no room, whatever its m.
    """
    for backbone in ("bert-base-uncased", "bert-large-uncased", "minilm", "tiny"):
        budget = PAPER_BUDGET * BACKBONES[backbone].parameters // 109_482_240
        for name, row in METHODS.items():
            if row.has_size and name != "houlsby-64-not-shared":
                fitted, step = fit_budget(name, backbone), getattr(row, "heads", 1)
                assert fitted.size % step == 0
                assert count_parameters(fitted, backbone).added <= budget, (name, backbone)
                assert count_parameters(row, backbone, size=fitted.size + step).added > budget, (name, backbone)
