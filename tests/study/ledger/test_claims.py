"""Rows C: runs in pairs decide, by hand arithmetic; every kind of verdict from made-up records of known difference."""

import json
import math
from dataclasses import asdict, replace
from itertools import chain

import numpy as np
import pytest
from scipy import stats

from palslib.data.tasks import get_task
from palslib.methods.table import METHODS
from palslib.plan.config import RunConfig
from palslib.study.ledger.arms import Term, named
from palslib.study.ledger.claims import (
    Comparison,
    claim_verdict,
    on_other_processors,
    smallest_difference,
    task_margin,
)
from palslib.study.ledger.paper import load_ledger
from palslib.study.ledger.verdicts import verdict_frame

LEDGER = load_ledger()
CLAIM = "pals-204 annealed > shared annealed"
NO_WORSE = "pals-204 annealed >= shared annealed"
SENTENCE = "PALs (annealed) should be better than shared (annealed)"
MINBERT = {"data": "minbert", "tasks": ("sst5", "quora", "sts")}


def made_up(seed: int, average: float, rte: float = 60.0, **changes) -> dict:
    """A finished run's record with those scores."""
    config = RunConfig(**{"data": "glue", "steps": 2_000, "seed": seed} | changes)
    scores = {task: {get_task(task).metrics[0]: rte if task == "rte" else average} for task in config.tasks}
    record = {
        "status": "finished",
        "config": asdict(config),
        "method": asdict(config.resolved_method()),
        "precision": "float32",
        "data": {"train": dict.fromkeys(config.tasks, 2_490)},
        "results": {"last": {"dev_average": average, "scores": scores}},
    }
    return json.loads(json.dumps(record))  # as it is read from its file: tuples are lists


def runs(method: str, *averages: float, **changes) -> list[dict]:
    """One for each seed from 0."""
    return [made_up(seed, average, method=method, **changes) for seed, average in enumerate(averages)]


def decide(comparison: str, records: list[dict]):
    return Comparison.parse(comparison).decide(records)


SHARED, EVEN = (64.0, 62.0, 66.0), (60.0, 60.0, 60.0)


@pytest.mark.parametrize(
    ("claim", "pals", "shared", "expected"),
    [
        (CLAIM, (66.0, 64.1, 67.9), SHARED, "reproduced"),  # +2.0, +2.1, +1.9: 2 ± 4.30 · .1 / √3 = 2 ± .25
        (CLAIM, (62.0, 60.1, 63.9), SHARED, "not reproduced"),
        (CLAIM, (66.0, 60.0, 68.0), SHARED, "inconclusive"),  # +2, -2, +2
        (CLAIM, (66.0, 64.1), SHARED, "inconclusive"),  # two pairs
        (CLAIM, (66.0,), (64.0,), "inconclusive"),
        (CLAIM, (66.0, 66.2, 66.1), (), "not run"),
        (CLAIM, (), (), "not run"),
        (CLAIM, SHARED, SHARED, "too small to matter"),
        (CLAIM, (64.2, 62.0, 65.9), SHARED, "too small to matter"),  # +.2, 0, -.1: .033 ± .379
        (CLAIM, (64.3, 62.0, 65.7), SHARED, "inconclusive"),  # +.3, 0, -.3: 0 ± .745
        (CLAIM, (64.0, math.nan, 66.0), SHARED, "inconclusive"),  # two seeds are left
        (CLAIM, (64.0, None, 66.0), SHARED, "inconclusive"),  # as JSON has it
        (f"{CLAIM} : cola", (64.4, 62.0, 65.6), SHARED, "too small to matter"),  # ± .994, less than CoLA's 1 point
        (CLAIM, (60.18, 60.28, 60.38), EVEN, "reproduced, only just"),  # .28 ± .248
        (CLAIM, (60.30, 60.40, 60.50), EVEN, "reproduced"),
        (NO_WORSE, (59.68, 59.78, 59.88), EVEN, "reproduced, only just"),  # -.22 ± .248 lies above -.5
        (NO_WORSE, (60.17, 60.27, 60.37), EVEN, "reproduced"),
        (NO_WORSE, (59.19, 59.20, 59.21), EVEN, "not reproduced"),  # -.8 ± .025
        (CLAIM, (59.69, 59.70, 59.71), EVEN, "not reproduced"),  # which would be no worse
    ],
)
def test_differences_of_pairs_decide_and_fewer_than_three_never_do(claim, pals, shared, expected):
    """The scores themselves are 2 points apart from seed to seed."""
    found = decide(claim, runs("pals-204", *pals) + runs("shared", *shared))
    assert found.verdict + ", only just" * found.only_just == expected
    assert (", only just (" in str(found)) == found.only_just
    assert task_margin("rte", 277) == pytest.approx(300 / 277) and task_margin("mnli", 9815) == 0.5


@pytest.mark.parametrize("seeds", [3, 5])
def test_smallest_difference_is_found_four_times_of_five(seeds):
    """By drawing: 100,000 times so many differences around it, with s = 1; and with many pairs 1.96 + .84 over √n."""
    drawn = np.random.default_rng(0).normal(smallest_difference(1.0, seeds), 1, (100_000, seeds))
    t = drawn.mean(1) / (drawn.std(1, ddof=1) / seeds**0.5)
    assert (t > stats.t.ppf(0.975, seeds - 1)).mean() == pytest.approx(0.8, abs=0.005)
    assert smallest_difference(2.0, 10_000) == pytest.approx(2 * 2.802 / 100, rel=1e-3)


def test_what_was_seen_is_said():
    """66.1 ± .058: s = .1 over √3; the interval is 4.303 times that, .248."""
    one = decide(CLAIM, runs("pals-204", 66.0) + runs("shared", 64.0))
    assert str(one) == f"{SENTENCE}: 66.0 against 64.0 (1 seed)"
    three = decide(CLAIM, runs("pals-204", 66.0, 66.1, 66.2) + runs("shared", 64.0, 64.0, 64.0))
    assert str(three) == f"{SENTENCE}: 66.1 ± 0.06 against 64.0 ± 0.00, +2.10 [+1.85, +2.35] (3 seeds)"
    assert [r["config"]["method"] for r in three.records] == ["pals-204"] * 3 + ["shared"] * 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{CLAIM} : rte", f"{SENTENCE} on RTE"),
        ("pals-204 annealed >= fine-tuned single-task", "PALs (annealed) should be no worse than eight BERTs"),
        (
            "pals-204 sequential memory=32 > pals-204 sequential : backward",
            "PALs (one task after another, with memory) should be better than PALs (one task after another)"
            " in backward transfer",
        ),
        (f"{CLAIM} : spread", "PALs (annealed) should spread more over seeds than shared (annealed)"),
    ],
)
def test_a_comparison_is_said_in_a_sentence(text, sentence):
    assert Comparison.parse(text).sentence == sentence


def test_models_of_one_task_each_share_nothing_with_a_mixed_run():
    """So the interval is Welch's: PALs 66.1, s = .1; eight BERTs, in eight runs a seed, 64.1, s = .1: 4 degrees of
    freedom, 2 ± 2.776 · √(2 · .01 / 3). In one mixed run they draw what PALs draw, and 2, 1.9, 2.1 are pairs."""
    pals, mixed = runs("pals-204", 66.0, 66.1, 66.2), runs("fine-tuned", 64.0, 64.2, 64.1)
    outcome = decide("pals-204 annealed > fine-tuned single-task", pals + mixed)
    assert outcome.in_pairs and outcome.interval.high == pytest.approx(2 + 4.303 * 0.1 / 3**0.5, abs=1e-3)
    for run in mixed:
        run["config"]["tasks"] = ["rte"]
    apart = replace(outcome, records=(*pals, *mixed))
    assert not apart.in_pairs and apart.interval.high == pytest.approx(2 + 2.776 * (0.02 / 3) ** 0.5, abs=1e-3)


def test_seeds_without_a_partner_do_not_count():
    left = [made_up(seed, 70.0 + seed, method="pals-204") for seed in (1, 2, 3, 9)]
    found = decide(CLAIM, left + runs("shared", 60.0, 61.0, 62.0, 63.0))
    assert found.seeds == (1, 2, 3) and found.differences == [10.0, 10.0, 10.0]
    assert sorted(r["config"]["seed"] for r in found.records) == [1, 1, 2, 2, 3, 3]
    none = decide(CLAIM, left[-1:] + runs("shared", 60.0))
    assert none.verdict == "inconclusive" and str(none).endswith("no seed in common")


def test_a_sum_of_runs_compares_gains():
    """PALs gain 3 by annealing, shared 1: 63 + 60 > 60 + 61, by 2."""
    both = {"pals-204": (60.0, 63.0), "shared": (60.0, 61.0)}
    found = []
    for method, (proportional, annealed) in both.items():
        for schedule, score in (("proportional", proportional), ("annealed", annealed)):
            found += runs(method, score, score + 1, score + 2.5, schedule=schedule)
    claim = "pals-204 annealed + shared proportional > pals-204 proportional + shared annealed"
    outcome = decide(claim, found)
    assert outcome.verdict == "reproduced" and outcome.differences == [2.0, 2.0, 2.0]
    assert decide(claim, found[:9]).verdict == "not run"
    gain = "the gain of PALs (annealed) over PALs (proportional) should be larger than that of shared (annealed) over "
    assert outcome.comparison.sentence == f"{gain}shared (proportional)"


def test_spread_compares_distances_from_the_median_and_needs_five_seeds():
    """Of mean 63.2: (60, 61, 64, 65, 66) lie 4, 3, 0, 1, 2 from 64, (70, ...) 0: δ = 2 ± 2.776 · 1.581 / √5 = 1.96."""
    wide, narrow = (60.0, 61.0, 64.0, 65.0, 66.0), (70.0,) * 5
    claim = f"{CLAIM} : spread"
    found = decide(claim, runs("pals-204", *wide) + runs("shared", *narrow))
    assert found.left == (4, 3, 0, 1, 2) and found.verdict == "reproduced"
    assert decide(claim, runs("pals-204", *wide[:4]) + runs("shared", *narrow[:4])).verdict == "inconclusive"


FLAT, REPLAYED = {"recipe_options": {"decay": "constant"}}, {"recipe_options": {"order": "reshuffled"}}


@pytest.mark.parametrize(
    ("pals", "shared", "verdict"),
    [
        ({}, {"steps": 4_000}, "not run"),
        ({"precision": "bf16"}, {}, "not run"),
        ({}, {"train": {"qqp": 363_846}}, "not run"),  # the whole of GLUE beside a part of it
        (FLAT, FLAT, "reproduced"),  # as the minBERT and GEM reports have it
        (FLAT, {}, "not run"),
        (REPLAYED, {}, "not run"),
        ({"adaptation_rate": 10}, {"adaptation_rate": 3}, "reproduced"),  # which shared does not use
    ],
)
def test_runs_that_differ_in_anything_else_are_not_compared(pals, shared, verdict):
    found = []
    for method, scores, changes in (("pals-204", (66.0, 66.1, 66.2), pals), ("shared", (64.0, 64.0, 64.0), shared)):
        config = {name: value for name, value in changes.items() if name not in ("precision", "train")}
        for record in runs(method, *scores, **config):
            record["data"]["train"] |= changes.get("train", {})
            found.append(record | {"precision": changes.get("precision", "float32")})
    assert decide(CLAIM, found).verdict == verdict


def test_a_run_without_a_name_is_called_by_its_method_and_what_most_others_do_not_have():
    """The rate of adaptations is compared within a method, as `shared` does not use it."""
    most = [*runs("pals-204", 60.0, 60.0, 60.0, adaptation_rate=10), *runs("shared", 60.0, 60.0, adaptation_rate=3)]
    for changes, arm in (
        ({"adaptation_rate": 10.0}, "pals-204"),
        ({}, "pals-204 adaptation_rate=1"),
        ({"adaptation_rate": 10, "method_options": {"init": "normal"}}, "pals-204 init=normal"),
        ({"adaptation_rate": 10, "method_options": {"heads": 6}, "size": 48}, "pals-204 heads=6 size=48"),
        ({"adaptation_rate": 10, "memory": 32, "weights": "random"}, "pals-204 memory=32 weights=random"),
        ({"adaptation_rate": 10, "evaluate_every": 5, "keep": "last", "schedule": "proportional"}, "pals-204"),
        ({"method": "shared", "steps": 4_000}, "shared adaptation_rate=1 steps=4000"),
        ({"method": "mine", "own_method": {"kind": "lora", "freeze": "nothing"}}, "mine freeze=nothing"),
    ):
        found = named([*most, made_up(5, 60.0, **changes)])[-1]["config"]
        assert (found["study"], found["arm"]) == ("", arm)
    stated = made_up(0, 60.0, study="mine", arm="pals")
    assert named([*most, stated])[-1] is not stated and named([*most, stated])[-1] == stated
    assert named([stated | {"status": "running"}]) == named([]) == []
    longer = [made_up(0, 60.0, method=m, steps=4_000, study="longer") for m in ("pals-204", "shared")]
    found = [run["config"] for run in named([*most, *longer])][-2:]
    assert [(of["study"], of["arm"]) for of in found] == [("longer", "pals-204"), ("longer", "shared")]


def test_a_study_with_other_steps_is_refused():
    found = [made_up(0, 60.0, method=m, steps=s, study="x", arm=m) for m, s in (("pals-204", 10), ("shared", 20))]
    with pytest.raises(ValueError, match="runs of the study 'x' differ in steps"):
        decide(CLAIM, found)


def test_the_study_with_the_longest_runs_decides_once_it_has_enough_seeds():
    """One seed of 4,000 steps does not; three do, even against eight of 2,000."""

    def study(steps, pals, shared):
        pairs = {"pals-204": pals, "shared": shared}.items()
        return [run for m, of in pairs for run in runs(m, *of, steps=steps, study=f"{steps} steps", arm=m)]

    many = study(2_000, [66.0, 66.1] * 4, [64.0] * 8)
    found = decide(CLAIM, study(4_000, [60.0], [70.0]) + many)
    assert found.verdict == "reproduced" and found.records[0]["config"]["steps"] == 2_000
    found = decide(CLAIM, study(4_000, [60.0, 60.1, 60.2], [70.0] * 3) + many)
    assert found.verdict == "not reproduced" and found.seeds == (0, 1, 2)


def test_one_tasks_score_decides_where_the_claim_is_about_it():
    """By RTE the order is the other way round."""
    records = [made_up(s, 66 + s / 10, 60.0, method="pals-204") for s in range(3)]
    records += [made_up(s, 64.0, 70.0, method="shared") for s in range(3)]
    verdicts = [decide(claim, records).verdict for claim in (CLAIM, f"{CLAIM} : rte")]
    assert verdicts == ["reproduced", "not reproduced"]


def test_models_for_one_task_each_are_compared_by_their_mean_over_tasks():
    """Adapters: (70 + 60) / 2 = 65, fine-tuned: (60 + 66) / 2 = 63, a third task only there, each at its own rate."""

    def alone(method, task, score, seed):
        record = made_up(seed, score + seed / 10, tasks=(task,), study="alone", arm=method, size="paper", method=method)
        record["results"]["last"]["scores"] = {task: {get_task(task).metrics[0]: score + seed / 10}}
        return record

    made = {"houlsby-64": {"rte": 70, "mrpc": 60}, "fine-tuned": {"rte": 60, "mrpc": 66, "sst2": 99}}
    found = [alone(m, t, v, s) for m, of in made.items() for t, v in of.items() for s in range(3)]
    claim = "houlsby-64 single-task size=paper > fine-tuned single-task"
    outcome = decide(claim, found)
    assert outcome.verdict == "reproduced"
    assert [*outcome.left, *outcome.right] == pytest.approx([65, 65.1, 65.2, 63, 63.1, 63.2])
    assert decide(f"{claim} : mrpc", found).verdict == "not reproduced"
    without = [r for r in found if not (r["config"]["seed"] == 2 and "mrpc" in r["config"]["tasks"])]
    assert decide(claim, without).seeds == (0, 1)  # the third lacks a task of the two
    assert not decide(
        claim, [r for r in found if (r["config"]["method"] == "fine-tuned") == ("rte" in r["config"]["tasks"])]
    ).seeds


def test_memory_is_compared_with_none_by_what_is_forgotten():
    """The first task falls from 80 to 70 without memory and to 78 with it; seeds differ by a tenth."""

    def sequential(memory, seed, end):
        record = made_up(
            seed, 60.0, schedule="sequential", tasks=("rte", "cola"), steps=10, memory=memory, method="shared"
        )
        points = [({"rte": 80.0, "cola": 0.0}, 5), ({"rte": end + seed / 10, "cola": 50.0}, 10)]
        record["history"] = [{"step": k, "scores": {t: {"main": v} for t, v in s.items()}} for s, k in points]
        record["results"]["last"]["dev_average"] = (end + seed / 10 + 50) / 2
        return record

    found = [sequential(memory, seed, end) for memory, end in ((0, 70.0), (32, 78.0)) for seed in range(3)]
    claim = "shared sequential memory=32 > shared sequential"
    outcome = decide(f"{claim} : backward", found)
    assert outcome.verdict == "reproduced" and outcome.left[0] == -2 and outcome.right[0] == -10
    assert decide(f"{claim} : average", found).differences == pytest.approx([4, 4, 4])


def test_tasks_from_files_are_compared_too():
    """C16: adapters on a frozen BERT, all tasks in one run, against fine-tuned models."""
    config = {"data": "crowdflower", "tasks": ("rte",)}
    tuned, frozen = (
        runs("fine-tuned", 71.0, 71.4, 71.2, **config),
        runs("houlsby-64-not-shared", 74.9, 74.8, 74.7, **config),
    )
    for record in tuned + frozen:  # made up of a task with a row, which theirs have not
        record["config"] |= {"tasks": ["airline"], "size": "paper", "study": "own", "arm": record["config"]["method"]}
        record["results"]["last"]["scores"] = {"airline": {"accuracy": record["results"]["last"]["dev_average"]}}
    verdict, value, _, _ = claim_verdict(LEDGER["C16"], tuned + frozen)
    assert verdict == "reproduced" and "+3.60" in value


@pytest.mark.parametrize(
    ("term", "changes", "matches"),
    [
        ("pals-204 annealed", {"arm": "pals-204"}, True),
        ("pals-204 annealed", {"arm": "pals-204 heads=6"}, False),
        ("pals-204 annealed", {"arm": "pals-204", "schedule": "proportional"}, False),
        ("pals-204 annealed", {"arm": "pals-204", "data": "synthetic"}, False),
        ("pals-204 annealed data=minbert activation=gelu", MINBERT | {"arm": "pals-204 activation=gelu"}, True),
        ("pals-204 annealed size=48 heads=6", {"arm": "pals-204 heads=6 size=48"}, True),  # in any order
        ("pals-204 annealed size=paper", {"arm": "pals-204", "size": "paper"}, True),
        ("pals-204 annealed size=paper", {"arm": "pals-204"}, False),
        ("pals-204 annealed", {"arm": "pals-204", "size": "paper"}, True),
        ("fine-tuned single-task", {"arm": "fine-tuned"}, True),  # one BERT a task, in one run
        ("fine-tuned single-task", {"arm": "fine-tuned", "tasks": ("rte",)}, True),
    ],
)
def test_which_runs_a_term_means(term, changes, matches):
    assert Term.parse(term).matches(made_up(0, 60.0, **changes)) is matches


def spans(changes: dict, seeds=range(3), task="sst2", **settings) -> list[dict]:
    """Records of C17: the change in percent that the removal of each span of layers makes."""
    lines = [f"{task},accuracy,80,{first},{last},0,{change}" for (first, last), change in changes.items()]
    about = {"method": "houlsby-64", "size": "paper", "tasks": (task,), "study": "adapters", "arm": "houlsby-64"}
    about |= settings
    return [made_up(s, 80.0, **about) | {"spans": ["task,metric,whole,first,last,score,change", *lines]} for s in seeds]


SPANS = {(0, 0): -2.0, (1, 1): -5.0, (2, 2): -2.0, (0, 1): -9.0, (1, 2): -9.0, (0, 2): -40.0}


@pytest.mark.parametrize(
    ("records", "expected", "said"),
    [
        (spans(SPANS), "reproduced", "sst2: any one layer at most 5.0 % of the score, all 40.0 %"),
        (spans(SPANS | {(0, 0): -11.0}), "not reproduced", ""),  # 11 > 40 / 4
        ([*spans(SPANS, (0, 2)), *spans(SPANS | {(0, 0): 3.0, (0, 2): 2.0}, (1,))], "not reproduced", ""),  # a gain
        (spans(SPANS | {(1, 2): -45.0}), "not reproduced", ""),  # no removal costs more than that of all
        ([*spans(SPANS, (0, 2)), *spans(SPANS | {(0, 0): -11.0}, (1,))], "not reproduced", ""),  # of one seed
        (spans(SPANS, (0, 1)), "inconclusive", "2 of 3 seeds"),
        ([*spans(SPANS), *spans(SPANS, (0, 1), "rte")], "inconclusive", "2 of 3 seeds"),  # of a task with fewer
        ([*spans(SPANS, (0, 1)), *spans(SPANS, (2,), steps=60_000, study="another")], "inconclusive", "2 of 3 seeds"),
        # of a score of 0 a change in percent is undefined: it refutes nothing
        ([*spans(SPANS), *spans(dict.fromkeys(SPANS, ""), task="cola")], "reproduced", "cola: undefined, as its whole"),
        (spans(dict.fromkeys(SPANS, ""), task="cola"), "inconclusive", ""),
        (runs("houlsby-64", 80.0, size="paper", tasks=("sst2",), arm="houlsby-64"), "not run", ""),
    ],
)
def test_c17_asks_what_adapters_are_worth(records, expected, said):
    records = [record | {"file": f"{i}.json"} for i, record in enumerate(records)]
    kind, value, note, files = claim_verdict(LEDGER["C17"], records)
    assert kind == expected and said in f"{value} {note}"
    deciding = [r["file"] for r in records if "spans" in r and r["config"]["steps"] < 60_000]  # of the usual setting
    assert list(files) == deciding


def test_c2_needs_all_three_schedules():
    """With three seeds under each, PALs beat shared: reproduced. Under annealed alone, the other two stay open; with
    the reverse under one, the note says how many are reproduced."""

    def both(pals, shared, **changes):
        return runs("pals-204", pals, pals + 1, pals, **changes) + runs("shared", shared, shared + 1, shared, **changes)

    every = {s: both(66.0, 64.0, schedule=s) for s in ("proportional", "square-root", "annealed")}
    assert claim_verdict(LEDGER["C2"], list(chain(*every.values())))[0] == "reproduced"
    kind, value, note, _ = claim_verdict(LEDGER["C2"], every["annealed"])
    assert kind == "inconclusive" and SENTENCE in value
    assert "still needs pals-204 proportional" in note and "glue, sub-sampled" in note
    every["square-root"] = both(64.0, 66.0, schedule="square-root")
    kind, _, note, _ = claim_verdict(LEDGER["C2"], list(chain(*every.values())))
    assert kind == "not reproduced" and "2 of 3 comparisons reproduced, 1 not reproduced" in note
    assert " reproduced" not in claim_verdict(LEDGER["C11"], every["annealed"])[2]  # of one comparison


@pytest.mark.parametrize("worst", [60.0, 70.0])
def test_what_a_run_of_this_size_cannot_decide_is_said_whatever_was_seen(worst):
    """C13b: that round robin overfits needs curves over several passes; the order alone, either one, is no verdict."""
    scores = {"annealed": 64.0, "proportional": 65.0, "round-robin": worst}
    gelu = MINBERT | {"arm": "pals-204 activation=gelu"}
    found = [r for s, v in scores.items() for r in runs("pals-204", v, v, v, schedule=s, **gelu)]
    kind, value, note, _ = claim_verdict(LEDGER["C13b"], found)
    assert kind == "not testable at this scale" and f"against {worst:.1f}" in value
    assert note.endswith(f"it would take {LEDGER['C13b'].scale}") and "several passes of SST and STS" in note
    assert claim_verdict(LEDGER["C13b"], [])[0] == "not run"
    assert claim_verdict(LEDGER["C13c"], found)[0] == "not run"


def test_runs_of_the_size_that_a_row_asks_for_decide_it():
    """C10b asks for 90,000 steps: with one step less it is not testable, with as many the interval decides."""

    def both(steps):
        random = runs("pals-204", 44.0, 44.2, 44.1, steps=steps, weights="random", arm="pals-204 weights=random")
        return runs("pals-204", 66.0, 66.1, 66.2, steps=steps, arm="pals-204") + random

    assert claim_verdict(LEDGER["C10b"], both(89_999))[0] == "not testable at this scale"
    assert claim_verdict(LEDGER["C10b"], both(90_000))[0] == "reproduced"


def test_a_task_that_neither_side_has_learnt_decides_nothing():
    """Constant predictions have a Matthews correlation of 0; with a median of 0 on both sides CoLA tests nothing."""
    comparison = Comparison.parse("low-rank-100 annealed > pals-204 annealed : cola")

    def outcome(left, right):
        return replace(comparison.decide([]), seeds=(0, 1, 2), left=left, right=right, records=({},))

    assert outcome((0.0, 0.0, 3.0), (0.0, -1.0, 0.0)).verdict == "not testable at this scale"
    assert outcome((2.0, 2.1, 3.0), (0.0, 0.0, 0.0)).verdict == "reproduced"
    assert outcome((0.0, 0.0, 0.0), (4.0, 4.0, 4.1)).verdict == "not reproduced"


def test_without_records_nothing_is_reproduced():
    frame = verdict_frame(records=[])
    claims = frame[frame["kind"] == "C"].set_index("id")
    assert (claims["verdict"] == "not run").all()
    needs = {row.id: bool(row.needs) for row in LEDGER.values() if row.kind == "C"}
    assert claims["note"].str.startswith("needs ").to_dict() == needs
    assert claims.loc["C24", "note"] == "not pursued here" and "dev loss" in claims.loc["C27", "note"]


def test_what_rows_need_and_compare_can_be_read():
    """That each is an arm of some grid: grid/test_plans.py."""
    for row in LEDGER.values():
        needs = list(map(Term.parse, row.needs))
        assert all(need.arm.split()[0] in METHODS for need in needs), row.id
        assert all(need.alone or need.arm != "fine-tuned" for need in needs), row.id
        for comparison in map(Comparison.parse, row.compare):
            assert comparison.left != comparison.right, row.id
            assert all(term in needs for term in comparison.left + comparison.right), row.id


def test_a_difference_that_is_one_tasks_says_so():
    """RTE is 40 points better, the other seven tasks .1: RTE makes 5 of the 5.0875 points."""
    pals = [made_up(s, 65.1, 90.0 + s / 10, method="pals-204") for s in range(3)]
    shared = [made_up(s, 65.0, 50.0, method="shared") for s in range(3)]
    for record in pals + shared:
        last = record["results"]["last"]
        last["dev_average"] = (7 * last["scores"]["cola"]["matthews"] + last["scores"]["rte"]["accuracy"]) / 8
    row = LEDGER["C2"]
    undefined = made_up(0, math.nan, math.nan, method="pals-204")
    undefined["results"]["last"]["dev_average"] = None
    for found in (pals + shared, [*pals, *shared, undefined]):  # a repetition of seed 0 without an average
        note = "RTE accounts for +5.01 of +5.10 points, and the mean over the other 7 tasks is +0.10"
        assert note in claim_verdict(row, found)[2]
    even = [
        made_up(s, 66 + s / 10, 66 + s / 10, method=m) if m != "shared" else made_up(s, 60, 60, method=m)
        for s in range(3)
        for m in ("pals-204", "shared")
    ]
    assert "accounts for" not in claim_verdict(row, even)[2]


# ------------------------------------------------------------------------------------------- rules that few rows reach


def test_different_runs_of_one_seed_are_refused():
    """Which of them counts would be left to the order of files. A run that was merely repeated counts once."""
    found = [r for rate in (1e-4, 1e-3) for r in runs("shared", 60.0, learning_rate=rate, arm="shared")]
    found += runs("pals-204", 60.0, arm="pals-204")
    with pytest.raises(ValueError, match="different runs of one seed, shared, shared: leave one of them out"):
        decide(CLAIM, found)
    again = [*runs("pals-204", 60.0), *runs("pals-204", 62.0, evaluate_every=400), *runs("shared", 60.0)]
    outcome = decide(CLAIM, again)
    assert (outcome.left, len(outcome.records)) == ((62.0,), 2)


def test_pairs_on_processors_of_different_makers_are_told_with_the_verdict():
    pals, shared = runs("pals-204", 62.0, 64.0, 63.0), runs("shared", 60.0, 61.0, 62.0)
    pals[1]["environment"], shared[1]["environment"] = {"cpu": "AMD EPYC"}, {"cpu": "Intel(R) Xeon(R)"}
    assert on_other_processors(decide(CLAIM, pals + shared)) == 1
    note = claim_verdict(LEDGER["C2"], pals + shared)[2]
    assert "1 of 3 pairs are of processors of different makers" in note
    for run, device in zip(pals, ("cpu", "cpu", "NVIDIA H200"), strict=True):
        run["device"] = device
    assert on_other_processors(decide(CLAIM, pals + shared)) == 2


def test_of_a_repeated_run_that_on_the_others_processor_counts_in_any_order():
    """Shared was run on AMD and, as its partner was for seed 0 alone, on Intel's too."""

    def on(cpu: str, found: list[dict]) -> list[dict]:
        return [record | {"environment": {"cpu": cpu}} for record in found]

    shared = on("AMD EPYC", runs("shared", 60.0, 61.0)), on("Intel(R) Xeon(R)", runs("shared", 50.0, 51.0))
    pals = [*on("Intel(R) Xeon(R) 6", runs("pals-204", 62.0)), *on("AMD EPYC 9", runs("pals-204", 0.0, 63.0)[1:])]
    for found in ([*shared[0], *shared[1], *pals], [*shared[1], *pals, *shared[0]]):
        outcome = decide(CLAIM, found)
        assert (outcome.left, outcome.right, len(outcome.records)) == ((62.0, 63.0), (50.0, 61.0), 4)
    other = on("Other", runs("pals-204", 62.0, 63.0))  # no shared run was made on such a one: the last counts
    assert decide(CLAIM, [*shared[1], *shared[0], *other]).right == (60.0, 61.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{CLAIM} : colla", "unknown task 'colla': did you mean 'cola'"),
        ("shared anealed > pals-204 annealed", "unknown schedule 'anealed': did you mean 'annealed'"),
        ("shared annealed < pals-204 annealed", "a comparison is `run > run` or `run >= run`"),
    ],
)
def test_mistyped_comparisons(text, message):
    with pytest.raises(ValueError, match=message):
        Comparison.parse(text)
