"""Rows C: runs in pairs decide, by hand arithmetic; every kind of verdict from made-up records of known difference."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from made_up import record_of
from scipy import stats

from palslib.data.tasks import TASKS, get_task
from palslib.study.ledger.arms import Term, named
from palslib.study.ledger.claims import Comparison, claim_verdict, smallest_difference
from palslib.study.ledger.paper import load_ledger

LEDGER = load_ledger()
CLAIM = "pals-204 annealed > shared annealed"
NO_WORSE = "pals-204 annealed >= shared annealed"


def made_up(seed: int, average: float, rte: float = 60.0, **changes) -> dict:
    """A finished run's record with those scores."""
    tasks = changes.get("tasks", TASKS)
    scores = {task: {get_task(task).metrics[0]: rte if task == "rte" else average} for task in tasks}
    return record_of(scores, average, **{"data": "glue", "steps": 2_000, "seed": seed} | changes)


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
        (CLAIM, (66.0, 66.2, 66.1), (), "not run"),
        (CLAIM, (64.2, 62.0, 65.9), SHARED, "too small to matter"),  # +.2, 0, -.1: .033 ± .379
        (CLAIM, (64.3, 62.0, 65.7), SHARED, "inconclusive"),  # +.3, 0, -.3: 0 ± .745
        (CLAIM, (64.0, None, 66.0), SHARED, "inconclusive"),  # two seeds are left
        (f"{CLAIM} : cola", (64.4, 62.0, 65.6), SHARED, "too small to matter"),  # ± .994, less than CoLA's 1 point
        (CLAIM, (60.18, 60.28, 60.38), EVEN, "reproduced, only just"),  # .28 ± .248
        (NO_WORSE, (59.68, 59.78, 59.88), EVEN, "reproduced, only just"),  # -.22 ± .248 lies above -.5
        (NO_WORSE, (59.19, 59.20, 59.21), EVEN, "not reproduced"),  # -.8 ± .025
    ],
)
def test_differences_of_pairs_decide_and_fewer_than_three_never_do(claim, pals, shared, expected):
    """The scores themselves are 2 points apart from seed to seed."""
    outcome = decide(claim, runs("pals-204", *pals) + runs("shared", *shared))
    assert (outcome.verdict, outcome.only_just) == (expected.removesuffix(", only just"), "only just" in expected)


@pytest.mark.parametrize("seeds", [3, 5])
def test_smallest_difference_is_found_four_times_of_five(seeds):
    """By drawing: 100,000 times so many differences around it, with s = 1; and with many pairs 1.96 + .84 over √n."""
    drawn = np.random.default_rng(0).normal(smallest_difference(1.0, seeds), 1, (100_000, seeds))
    t = drawn.mean(1) / (drawn.std(1, ddof=1) / seeds**0.5)
    assert (t > stats.t.ppf(0.975, seeds - 1)).mean() == pytest.approx(0.8, abs=0.005)
    assert smallest_difference(2.0, 10_000) == pytest.approx(2 * 2.802 / 100, rel=1e-3)


def test_models_of_one_task_each_share_nothing_with_a_mixed_run():
    """So the interval is Welch's: PALs 66.1, s = .1; eight BERTs, in eight runs a seed, 64.1, s = .1: 4 degrees of
    freedom, 2 ± 2.776 · √(2 · .01 / 3). In one mixed run they draw what PALs draw, and 2, 1.9, 2.1 are pairs."""
    made = {"pals-204": (66.0, 66.1, 66.2), "fine-tuned": (64.0, 64.2, 64.1)}  # on each task
    pals, mixed = ([made_up(i, x, x, method=name) for i, x in enumerate(scores)] for name, scores in made.items())
    outcome = decide("pals-204 annealed > fine-tuned single-task", pals + mixed)
    assert outcome.in_pairs and outcome.interval.high == pytest.approx(2 + 4.303 * 0.1 / 3**0.5, abs=1e-3)
    for run in mixed:
        run["config"]["tasks"] = ["rte"]
    apart = replace(outcome, records=(*pals, *mixed))
    assert not apart.in_pairs and apart.interval.high == pytest.approx(2 + 2.776 * (0.02 / 3) ** 0.5, abs=1e-3)


def test_seeds_without_a_partner_do_not_count():
    left = [made_up(seed, 70.0 + seed, method="pals-204") for seed in (1, 2, 3, 9)]
    outcome = decide(CLAIM, left + runs("shared", 60.0, 61.0, 62.0, 63.0))
    assert outcome.seeds == (1, 2, 3) and outcome.differences == [10.0, 10.0, 10.0]
    assert sorted(r["config"]["seed"] for r in outcome.records) == [1, 1, 2, 2, 3, 3]


def test_a_sum_of_runs_compares_gains():
    """PALs gain 3 by annealing, shared 1: 63 + 60 > 60 + 61, by 2."""
    both = {"pals-204": (60.0, 63.0), "shared": (60.0, 61.0)}
    records = []
    for method, (proportional, annealed) in both.items():
        for schedule, score in (("proportional", proportional), ("annealed", annealed)):
            records += runs(method, score, score + 1, score + 2.5, schedule=schedule)
    claim = "pals-204 annealed + shared proportional > pals-204 proportional + shared annealed"
    outcome = decide(claim, records)
    assert outcome.verdict == "reproduced" and outcome.differences == [2.0, 2.0, 2.0]
    assert decide(claim, records[:9]).verdict == "not run"


def test_spread_compares_distances_from_the_median_and_needs_five_seeds():
    """Of mean 63.2: (60, 61, 64, 65, 66) lie 4, 3, 0, 1, 2 from 64, (70, ...) 0: δ = 2 ± 2.776 · 1.581 / √5 = 1.96."""
    wide, narrow = (60.0, 61.0, 64.0, 65.0, 66.0), (70.0,) * 5
    claim = f"{CLAIM} : spread"
    outcome = decide(claim, runs("pals-204", *wide) + runs("shared", *narrow))
    assert outcome.left == (4, 3, 0, 1, 2) and outcome.verdict == "reproduced"
    assert decide(claim, runs("pals-204", *wide[:4]) + runs("shared", *narrow[:4])).verdict == "inconclusive"


FLAT, TWO = {"recipe_options": {"decay": "constant"}}, {"tasks": ("rte", "sst2")}


@pytest.mark.parametrize(
    ("pals", "shared", "verdict"),
    [
        ({}, {"steps": 4_000}, "not run"),
        ({"precision": "bf16"}, {}, "not run"),
        ({}, {"train": {"qqp": 363_846}}, "not run"),  # the whole of GLUE beside a part of it
        (FLAT, FLAT, "reproduced"),  # as the minBERT and GEM reports have it
        (FLAT, {}, "not run"),
        (TWO, TWO, "not run"),  # two of GLUE's tasks say nothing of eight
        ({"adaptation_rate": 10}, {"adaptation_rate": 3}, "reproduced"),  # which shared does not use
    ],
)
def test_runs_that_differ_in_anything_else_are_not_compared(pals, shared, verdict):
    records = []
    for method, scores, changes in (("pals-204", (66.0, 66.1, 66.2), pals), ("shared", (64.0, 64.0, 64.0), shared)):
        config = {name: value for name, value in changes.items() if name not in ("precision", "train")}
        for record in runs(method, *scores, **config):
            record["data"]["train"] |= changes.get("train", {})
            records.append(record | {"precision": changes.get("precision", "float32")})
    assert decide(CLAIM, records).verdict == verdict


def test_a_run_without_a_name_is_called_by_its_method_and_what_most_others_do_not_have():
    """The rate of adaptations is compared within a method, as `shared` does not use it."""
    most = [*runs("pals-204", 60.0, 60.0, 60.0, adaptation_rate=10), *runs("shared", 60.0, 60.0, adaptation_rate=3)]
    most += runs("mine", 60.0, 60.0, own_method={"kind": "lora"}, adaptation_rate=1)
    most += runs("shared", *[60.0] * 20, adaptation_rate=3, schedule="sequential", memory=32, tasks=("rte", "cola"))
    most += [run for task in ("rte", "cola", "sst2", "mrpc") for run in runs("fine-tuned", 60.0, 60.0, tasks=(task,))]
    for changes, arm in (
        ({"adaptation_rate": 10.0}, "pals-204"),
        ({}, "pals-204 adaptation_rate=1"),
        ({"adaptation_rate": 10, "method_options": {"heads": 6}, "size": 48}, "pals-204 heads=6 size=48"),
        ({"adaptation_rate": 10, "evaluate_every": 5, "keep": "last", "schedule": "proportional"}, "pals-204"),
        ({"method": "shared", "steps": 4_000}, "shared adaptation_rate=1 steps=4000"),
        ({"method": "mine", "own_method": {"kind": "lora", "freeze": "nothing"}}, "mine freeze=nothing"),
        ({"method": "mine", "own_method": {"kind": "ia3"}}, "mine kind=ia3"),
        ({"method": "fine-tuned", "tasks": ("rte",)}, "fine-tuned tasks=one-each"),
        ({"adaptation_rate": 10, "memory": 32}, "pals-204 memory=32"),
    ):
        config = named([*most, made_up(5, 60.0, **changes)])[-1]["config"]
        assert (config["study"], config["arm"]) == ("", arm)
    before = [run | {"content": {"method": "old"}} for run in runs("mine", 60.0, 60.0, own_method={"kind": "lora"})]
    edited = before[0] | {"content": {"method": "new"}}  # the code of one's own class
    assert [run["config"]["arm"] for run in named([*before, edited])] == ["mine", "mine", "mine code=new"]
    stated = made_up(0, 60.0, study="mine", arm="pals")
    assert named([*most, stated])[-1] == stated and named([stated | {"status": "running"}]) == []


def test_a_study_with_other_steps_is_refused():
    records = [made_up(0, 60.0, method=m, steps=s, study="x", arm=m) for m, s in (("pals-204", 10), ("shared", 20))]
    with pytest.raises(ValueError, match="runs of the study 'x' differ in steps"):
        decide(CLAIM, records)


def test_the_study_with_the_longest_runs_decides_once_it_has_enough_seeds():
    """One seed of 4,000 steps does not; three do, even against eight of 2,000."""

    def study(steps, pals, shared):
        config = {"steps": steps, "study": f"{steps} steps"}
        return runs("pals-204", *pals, arm="pals-204", **config) + runs("shared", *shared, arm="shared", **config)

    many = study(2_000, [66.0, 66.1] * 4, [64.0] * 8)
    outcome = decide(CLAIM, study(4_000, [60.0], [70.0]) + many)
    assert outcome.verdict == "reproduced" and outcome.records[0]["config"]["steps"] == 2_000
    outcome = decide(CLAIM, study(4_000, [60.0, 60.1, 60.2], [70.0] * 3) + many)
    assert outcome.verdict == "not reproduced" and outcome.seeds == (0, 1, 2)


def test_models_for_one_task_each_are_compared_by_their_mean_over_tasks():
    """Adapters: (70 + 60) / 2 = 65, fine-tuned: (60 + 66) / 2 = 63, a third task only there, each at its own rate."""

    def alone(method, task, score, seed):
        record = made_up(seed, score + seed / 10, tasks=(task,), study="alone", arm=method, size="paper", method=method)
        record["results"]["last"]["scores"] = {task: {get_task(task).metrics[0]: score + seed / 10}}
        return record

    made = {"houlsby-64": {"rte": 70, "mrpc": 60}, "fine-tuned": {"rte": 60, "mrpc": 66, "sst2": 99}}
    records = []
    for method, scores in made.items():
        records += [alone(method, task, score, seed) for task, score in scores.items() for seed in range(3)]
    claim = "houlsby-64 single-task size=paper > fine-tuned single-task"
    outcome = decide(claim, records)
    assert [*outcome.left, *outcome.right] == pytest.approx([65, 65.1, 65.2, 63, 63.1, 63.2])
    assert decide(f"{claim} : mrpc", records).verdict == "not reproduced"
    without = [r for r in records if not (r["config"]["seed"] == 2 and "mrpc" in r["config"]["tasks"])]
    assert decide(claim, without).seeds == (0, 1)  # the third lacks a task of the two
    mixed = runs("pals-204", 70.0, 70.3, 70.6, study="alone", arm="pals-204")  # of eight tasks, and 60 on RTE
    outcome = decide("pals-204 annealed > fine-tuned single-task", [*mixed, *records])
    assert outcome.differences == pytest.approx([200 / 3 - 75, 200.6 / 3 - 75.1, 201.2 / 3 - 75.2])


@pytest.mark.parametrize(
    ("term", "changes", "matches"),
    [
        ("pals-204 annealed", {"arm": "pals-204"}, True),
        ("pals-204 annealed", {"arm": "pals-204 heads=6"}, False),
        ("pals-204 annealed", {"arm": "pals-204", "schedule": "proportional"}, False),
        ("pals-204 annealed", {"arm": "pals-204", "data": "synthetic"}, False),
        ("shared annealed data=minbert", {"arm": "shared", "data": "minbert", "tasks": ("sts",)}, True),
        ("pals-204 annealed size=48 heads=6", {"arm": "pals-204 heads=6 size=48"}, True),  # in any order
        ("pals-204 annealed size=paper", {"arm": "pals-204", "size": "paper"}, True),
        ("pals-204 annealed size=paper", {"arm": "pals-204"}, False),
        ("pals-204 annealed", {"arm": "pals-204", "size": "paper"}, True),
        ("fine-tuned single-task", {"arm": "fine-tuned"}, True),  # one BERT a task, in one run
        ("pals-204 annealed", {"arm": "pals-204", "held_out": True}, False),  # scored on rows of the training set
    ],
)
def test_which_runs_a_term_means(term, changes, matches):
    assert Term.parse(term).matches(made_up(0, 60.0, **changes)) is matches


def spans(changes: dict, seeds=range(3), task="sst2", **settings) -> list[dict]:
    """Records of C17: the change in percent that the removal of each span of layers makes."""
    lines = ["task,metric,whole,first,last,score,change"]
    lines += [f"{task},accuracy,80,{first},{last},0,{change}" for (first, last), change in changes.items()]
    config = {"method": "houlsby-64", "size": "paper", "tasks": (task,), "study": "adapters", "arm": "houlsby-64"}
    config |= settings
    return [made_up(seed, 80.0, **config) | {"spans": lines} for seed in seeds]


SPANS = {(0, 0): -2.0, (1, 1): -5.0, (2, 2): -2.0, (0, 1): -9.0, (1, 2): -9.0, (0, 2): -40.0}


@pytest.mark.parametrize(
    ("records", "expected", "text"),
    [
        (spans(SPANS), "reproduced", "SST-2: any one layer at most 5.0 % of the score, all 40.0 %"),
        (spans(SPANS | {(1, 2): -45.0}), "not reproduced", ""),  # no removal costs more than that of all
        ([*spans(SPANS, (0, 2)), *spans(SPANS | {(0, 0): -11.0}, (1,))], "not reproduced", ""),  # of one seed: > 40 / 4
        ([*spans(SPANS), *spans(SPANS, (0, 1), "rte")], "inconclusive", "2 of 3 seeds"),  # of a task with fewer
        ([*spans(SPANS, (0, 1)), *spans(SPANS, (2,), steps=60_000, study="another")], "inconclusive", "2 of 3 seeds"),
        # of a score of 0 a change in percent is undefined: it refutes nothing
        ([*spans(SPANS), *spans(dict.fromkeys(SPANS, ""), task="cola")], "reproduced", "CoLA: undefined, as its whole"),
    ],
)
def test_c17_asks_what_adapters_are_worth(records, expected, text):
    kind, value, note, _ = claim_verdict(LEDGER["C17"], records)
    assert kind == expected and text in f"{value} {note}"


def test_c2_needs_all_three_schedules():
    """With three seeds under each, PALs beat shared: reproduced. Under annealed alone, the other two stay open; with
    the reverse under one, the note says how many are reproduced."""

    def both(pals, shared, **changes):
        return runs("pals-204", pals, pals + 1, pals, **changes) + runs("shared", shared, shared + 1, shared, **changes)

    every = {s: both(66.0, 64.0, schedule=s) for s in ("proportional", "square-root", "annealed")}
    assert claim_verdict(LEDGER["C2"], list(chain(*every.values())))[0] == "reproduced"
    kind, _, note, _ = claim_verdict(LEDGER["C2"], every["annealed"])
    assert kind == "inconclusive" and "still needs PALs (proportional)" in note and "glue, sub-sampled" in note
    every["square-root"] = both(64.0, 66.0, schedule="square-root")
    kind, _, note, _ = claim_verdict(LEDGER["C2"], list(chain(*every.values())))
    assert kind == "not reproduced" and "2 of 3 comparisons reproduced, 1 not reproduced" in note


def test_runs_of_the_size_that_a_row_asks_for_decide_it():
    """C10b asks for 90,000 steps: with one step less it is not testable, with as many the interval decides."""

    def both(steps):
        random = runs("pals-204", 44.0, 44.2, 44.1, steps=steps, weights="random", arm="pals-204 weights=random")
        return runs("pals-204", 66.0, 66.1, 66.2, steps=steps, arm="pals-204") + random

    kind, _, note, _ = claim_verdict(LEDGER["C10b"], both(89_999))
    assert kind == "not testable at this scale" and note.endswith(f"it would take {LEDGER['C10b'].scale}")
    assert claim_verdict(LEDGER["C10b"], both(90_000))[0] == "reproduced"


def test_a_task_that_neither_side_has_learnt_decides_nothing():
    """Constant predictions have a Matthews correlation of 0; with a median of 0 on both sides CoLA tests nothing."""
    comparison = Comparison.parse("low-rank-100 annealed > pals-204 annealed : cola")

    def outcome(left, right):
        return replace(comparison.decide([]), seeds=(0, 1, 2), left=left, right=right, records=({},))

    assert outcome((0.0, 0.0, 3.0), (0.0, -1.0, 0.0)).verdict == "not testable at this scale"
    assert outcome((2.0, 2.1, 3.0), (0.0, 0.0, 0.0)).verdict == "reproduced"
    assert outcome((0.0, 0.0, 0.0), (4.0, 4.0, 4.1)).verdict == "not reproduced"


def test_different_runs_of_one_seed_are_refused():
    """Which of them counts would be left to the order of files. A run that was merely repeated counts once."""
    records = [r for rate in (1e-4, 1e-3) for r in runs("shared", 60.0, learning_rate=rate, arm="shared")]
    records += runs("pals-204", 60.0, arm="pals-204")
    with pytest.raises(ValueError, match="different runs of one seed, shared, shared"):
        decide(CLAIM, records)
    turn = [r for s in ("annealed", "round-robin") for r in runs("fine-tuned", 60.0, schedule=s, arm="fine-tuned")]
    _, alone = decide("pals-204 annealed > fine-tuned single-task", [*turn, *records[-1:]]).records
    assert alone["config"]["schedule"] == "annealed"
    again = [*runs("pals-204", 60.0), *runs("pals-204", 62.0, evaluate_every=400), *runs("shared", 60.0)]
    outcome = decide(CLAIM, again)
    assert (outcome.left, len(outcome.records)) == ((62.0,), 2)


def test_of_a_repeated_run_that_on_the_others_processor_counts_in_any_order():
    """Shared was run on AMD and, as its partner was for seed 0 alone, on Intel's too."""

    def on(cpu: str, records: list[dict]) -> list[dict]:
        return [record | {"environment": {"cpu": cpu}} for record in records]

    shared = on("AMD EPYC", runs("shared", 60.0, 61.0)), on("Intel(R) Xeon(R)", runs("shared", 50.0, 51.0))
    pals = [*on("Intel(R) Xeon(R) 6", runs("pals-204", 62.0)), *on("AMD EPYC 9", runs("pals-204", 0.0, 63.0)[1:])]
    for records in ([*shared[0], *shared[1], *pals], [*shared[1], *pals, *shared[0]]):
        outcome = decide(CLAIM, records)
        assert (outcome.left, outcome.right, len(outcome.records)) == ((62.0, 63.0), (50.0, 61.0), 4)
    other = on("Other", runs("pals-204", 62.0, 63.0))  # no shared run was made on such a one: the last counts
    assert decide(CLAIM, [*shared[1], *shared[0], *other]).right == (60.0, 61.0)


def test_a_mistyped_task():
    with pytest.raises(ValueError, match="unknown task 'colla': did you mean 'cola'"):
        Comparison.parse(f"{CLAIM} : colla")
