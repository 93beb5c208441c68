"""The order of training: probabilities by hand (over GLUE's sizes: A17 to A20 in ledger/test_verdicts.py), golden
vectors, and what holds for every plan."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palslib import RunConfig, TrainingPlan, annealed_alpha, task_probabilities
from palslib.data.glue import RELEASED_SIZES
from palslib.plan.config import make_plan
from palslib.plan.sampling import PAPER_EPOCHS, SCHEDULES, official_sizes
from palslib.study.ledger.paper import GLUE_TRAIN_SIZES

SIZES = {"cola": 50, "mrpc": 20, "mnli": 200, "rte": 10}
FEW = settings(deadline=None, max_examples=25, derandomize=True)


def plan(schedule="annealed", steps=20, batch_size=8, seed=7, epochs=5, sizes=SIZES, **options):
    return TrainingPlan(sizes, schedule, steps, batch_size, seed, epochs, **options)


# --- probabilities --------------------------------------------------------------------------------------------------
def test_probabilities_by_hand():
    """4, 16 and 100: α = 1 gives 4, 16, 100 of 120; α = 1/2 gives 2, 4, 10 of 16; α = 0 a third each."""
    sizes = {"a": 4, "b": 16, "c": 100}
    assert task_probabilities(sizes, 1) == pytest.approx({"a": 4 / 120, "b": 16 / 120, "c": 100 / 120})
    assert task_probabilities(sizes, 0.5) == pytest.approx({"a": 0.125, "b": 0.25, "c": 0.625})
    assert task_probabilities(sizes, 0) == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})


@pytest.mark.parametrize(
    ("sizes", "alpha", "named"),
    [([1, 2], 1, "sizes"), *(({"a": 10, "b": 30}, alpha, "alpha") for alpha in ("annealed", 1e308, math.nan))],
)
def test_what_leaves_no_probabilities_is_named(sizes, alpha, named):
    """They would be NaN, and every step the first task's."""
    with pytest.raises(ValueError, match=f"^{named}( must be|=.*'a': 1)"):
        task_probabilities(sizes, alpha)


# --- annealing ------------------------------------------------------------------------------------------------------
def test_a18_annealing():
    """1 - 0.8 · 12 / 24 = 0.6 half-way through 25 epochs; the ends are 1 and 0.2; one epoch alone has 1."""
    assert annealed_alpha(1, 25) == 1
    assert annealed_alpha(13, 25) == pytest.approx(0.6)
    assert annealed_alpha(25, 25) == pytest.approx(0.2)
    assert annealed_alpha(1, 1) == 1
    assert [annealed_alpha(e, 2) for e in (1, 2)] == pytest.approx([1, 0.2])
    long = plan(steps=60_000, epochs=PAPER_EPOCHS)  # A20: 25 epochs of 2,400 steps
    assert [long.epoch(k) for k in (0, 2_399, 2_400, 57_599, 57_600, 59_999)] == [1, 1, 2, 24, 25, 25]
    for epoch, epochs in ((0, 25), (26, 25), (1, 0)):
        with pytest.raises(ValueError, match=f"epochs={epochs}, not {epoch}"):
            annealed_alpha(epoch, epochs)


def test_the_exponent_is_constant_within_an_epoch_and_falls_between():
    """20 steps in 5 epochs of 4: α = 1, 0.8, 0.6, 0.4, 0.2. The other schedules do not change."""
    for step in range(20):
        assert plan().probabilities(step) == pytest.approx(task_probabilities(SIZES, 1 - 0.2 * (step // 4)))
        for alpha, same in ((1, {}), (0.3, {"alpha": 0.3}), (0, {"alpha": 0.0})):
            assert plan("proportional", **same).probabilities(step) == task_probabilities(SIZES, alpha)
        assert plan("square-root").probabilities(step) == task_probabilities(SIZES, 0.5)
        assert plan("round-robin").probabilities(step) == dict.fromkeys(SIZES, 0.25)


# --- golden vectors: a change of these changes every run ever recorded ----------------------------------------------

GOLDEN = {
    "proportional": "mnli mnli mnli mnli mnli mnli mnli mnli mnli mnli cola mnli mnli mrpc rte cola rte mnli mnli mnli",
    "square-root": "mnli mnli mnli mnli mrpc cola mnli cola mnli mnli rte cola mnli mnli mnli mnli mnli cola mnli mnli",
    "annealed": "mrpc mnli rte mnli mnli mnli mnli mnli cola mnli mrpc mrpc mnli mnli mnli mrpc cola mrpc rte mnli",
    "round-robin": "cola mrpc mnli rte cola mrpc mnli rte cola mrpc mnli rte cola mrpc mnli rte cola mrpc mnli rte",
    "sequential": "cola cola cola cola cola mrpc mrpc mrpc mrpc mrpc mnli mnli mnli mnli mnli rte rte rte rte rte",
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_tasks_of_twenty_steps(schedule):
    """Proportional: the edges of cola, mrpc, mnli, rte are 50, 70, 270, 280 of 280: .179, .250, .964, 1.

    The first uniform numbers are .346 .908 .908 .666 .277 .473: all between .250 and .964, so six times mnli. Annealed
    begins with .245 .953 .988, by the same edges mrpc, mnli, rte. Square root: 7.07, 4.47, 14.14, 3.16 of 28.85 make
    edges .245, .400, .890; its fourth to sixth numbers .641 .283 .241 are mnli, mrpc, cola.
    """
    drawn = " ".join(plan(schedule).tasks)
    assert plan(schedule).drawn_steps(14) == {task: plan(schedule).tasks[:14].count(task) for task in SIZES}
    assert GOLDEN.get(schedule) == drawn, f"of a new schedule GOLDEN holds what it draws: {drawn}"


def test_the_examples_of_some_steps():
    """Round robin, batches of 8: rte (10 examples) comes at steps 3, 7, 11.

    Its permutations are 7 4 5 1 9 3 6 8 0 2, then 8 1 2 3 7 5 6 4 0 9, then 3 0 9 7 ...: the second batch takes the two
    that are left of the first pass and six of the second.
    """
    robin = plan("round-robin")
    assert robin.examples(0).tolist() == [19, 22, 47, 42, 16, 33, 21, 30]
    assert robin.examples(3).tolist() == [7, 4, 5, 1, 9, 3, 6, 8]
    assert robin.examples(7).tolist() == [0, 2, 8, 1, 2, 3, 7, 5]
    assert robin.examples(11).tolist() == [6, 4, 0, 9, 3, 0, 9, 7]


def test_a_task_meets_its_examples_in_the_same_order_whatever_the_schedule():
    """A pass depends on seed, task and size alone: mnli's first batch is the same in all plans of a seed."""
    firsts = [p.examples(p.tasks.index("mnli")).tolist() for p in map(plan, SCHEDULES)]
    assert firsts == [[195, 109, 128, 80, 4, 120, 134, 5]] * len(SCHEDULES)


# --- a pure function of the step ------------------------------------------------------------------------------------
@FEW
@given(st.sampled_from(list(SCHEDULES)), st.permutations(range(20)), st.integers(0, 2**40))
def test_a_step_needs_nothing_that_came_before(schedule, order, seed):
    """Asked in any order, or alone of a new object, a step has the same task and the same examples."""
    one, other = plan(schedule, seed=seed), plan(schedule, seed=seed)
    there = {k: one.examples(k).tolist() for k in order}
    assert there == {k: other.examples(k).tolist() for k in range(20)} and one.tasks == other.tasks
    k = order[0]
    assert plan(schedule, seed=seed).examples(k).tolist() == there[k]


# --- batches and passes ---------------------------------------------------------------------------------------------
@FEW
@given(
    st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(1, 40), min_size=1),
    st.sampled_from(list(SCHEDULES)),
    st.integers(1, 50),
    st.integers(0, 99),
)
def test_batches_are_full_and_every_pass_is_a_permutation(sizes, schedule, batch_size, seed):
    """Also where a batch is larger than the task: it then runs through several passes."""
    it = TrainingPlan(sizes, schedule, 40, batch_size, seed, epochs=3)
    streams = {task: [] for task in sizes}
    for k in range(40):
        batch = it.examples(k)
        assert batch.shape == (batch_size,)
        streams[it.tasks[k]] += batch.tolist()
    for task, size in sizes.items():
        for first in range(0, len(streams[task]) - size + 1, size):
            assert sorted(streams[task][first : first + size]) == list(range(size))


def test_passes_are_steps_times_batch_over_examples():
    """Five steps each of 8 examples: 40/50, 40/20, 40/200, 40/10."""
    assert plan("round-robin").passes() == {"cola": 0.8, "mrpc": 2.0, "mnli": 0.2, "rte": 4.0}
    whole = {"cola": 5 / 7, "mrpc": 5 / 3, "mnli": 5 / 25, "rte": 5 / 2}  # whole batches, also the last of a pass
    assert plan("round-robin", reshuffle=False).passes() == pytest.approx(whole)


# --- expected and drawn ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("steps", "epochs"), [(20, 5), (23, 5), (3, 25), (1, 1)])
def test_expected_and_drawn_steps_sum_to_the_steps(schedule, steps, epochs):
    """Also where epochs do not divide the steps, or outnumber them."""
    it = plan(schedule, steps=steps, epochs=epochs)
    assert sum(it.expected_steps().values()) == pytest.approx(steps)
    assert sum(it.drawn_steps().values()) == len(it.tasks) == steps
    assert it.drawn_steps() == {task: it.tasks.count(task) for task in SIZES}
    by_step = [it.probabilities(k) for k in range(steps)]
    for task, expected in it.expected_steps().items():
        assert expected == pytest.approx(sum(p[task] for p in by_step))


# --- what the released code does ------------------------------------------------------------------------------------
def test_d1_round_robin_that_never_advances():
    stuck = plan("round-robin", round_robin_advances=False)
    assert stuck.tasks == ["cola"] * 20
    assert stuck.probabilities(0) == stuck.probabilities(19) == {"cola": 1.0, "mrpc": 0.0, "mnli": 0.0, "rte": 0.0}
    assert stuck.expected_steps() == stuck.drawn_steps() == {"cola": 20, "mrpc": 0, "mnli": 0, "rte": 0}
    assert plan("annealed", round_robin_advances=False).tasks == plan("annealed").tasks  # no other schedule has it


def test_d4_the_first_pass_is_replayed_with_its_partial_batch():
    """mrpc: 20 = 8 + 8 + 4, so its turns 0, 3, 6 ... are one batch, and every third has four examples.

    rte: 10 = 8 + 2. 16 = 8 + 8 has no partial batch. The first pass is the one that reshuffling has too.
    """
    replayed, fresh = (plan("round-robin", steps=40, reshuffle=r) for r in (False, True))
    mrpc = [replayed.examples(k).tolist() for k in range(1, 40, 4)]
    assert [len(batch) for batch in mrpc] == [8, 8, 4, 8, 8, 4, 8, 8, 4, 8]
    assert mrpc[:3] == mrpc[3:6] == mrpc[6:9] and mrpc[9] == mrpc[0]
    assert sorted(mrpc[0] + mrpc[1] + mrpc[2]) == list(range(20))
    assert mrpc[0] == fresh.examples(1).tolist() and mrpc[3] != fresh.examples(13).tolist()
    assert [len(replayed.examples(k)) for k in range(3, 40, 4)] == [8, 2] * 5
    even = plan("round-robin", sizes={"a": 16}, reshuffle=False)
    assert [len(even.examples(k)) for k in range(4)] == [8, 8, 8, 8]


def test_d5_probabilities_from_other_sizes_than_the_datas():
    """Sizes of 1, 1, 1 and 5: an eighth each and five eighths; the examples still come from the data loaded."""
    it = plan("proportional", sampling_sizes={"rte": 5, "cola": 1, "mrpc": 1, "mnli": 1})
    assert it.probabilities(0) == {"cola": 0.125, "mrpc": 0.125, "mnli": 0.125, "rte": 0.625}
    assert max(it.examples(it.tasks.index("rte"))) < 10


def test_each_quirk_is_a_field_of_the_recipe():
    """One field changes one thing of the plan, and nothing else; the recipe `released` has all three. Of its sizes
    (D5), QNLI has 108,436 for 104,743, QQP 363,849 for 363,846."""
    assert RELEASED_SIZES == GLUE_TRAIN_SIZES | {"qnli": 108_436, "qqp": 363_849}
    plain = plan("round-robin", batch_size=3, seed=4, epochs=2)

    def made(recipe="paper", **options):
        settings = {"schedule": "round-robin", "steps": 20, "batch_size": 3, "seed": 4, "alpha_parts": 2}
        return make_plan(RunConfig(tasks=tuple(SIZES), recipe=recipe, recipe_options=options, **settings), SIZES)

    official, released = ({task: known[task] for task in SIZES} for known in (GLUE_TRAIN_SIZES, RELEASED_SIZES))
    assert made() == plain
    assert made(round_robin_advances=False) == replace(plain, round_robin_advances=False)
    assert made(order="replayed") == replace(plain, reshuffle=False)
    assert made(sizes="released") == replace(plain, sampling_sizes=released)
    assert made(sizes="official") == replace(plain, sampling_sizes=official)
    all_three = {"round_robin_advances": False, "reshuffle": False, "sampling_sizes": released}
    assert made("released") == replace(plain, **all_three)


# --- what is refused ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"schedule": "anealed"}, "anealed"),
        ({"sizes": {}}, "task"),
        ({"sizes": {"cola": 5, "rte": 0}}, "'rte'"),
        *(({name: number}, name) for name, number in (("steps", 0), ("batch_size", -1), ("epochs", 0))),
        ({"schedule": "round-robin", "alpha": 0.0}, "alpha=0.0 .*'round-robin'"),
        ({"sampling_sizes": {"cola": 1, "mrpc": 1, "mnli": 1}}, "rte"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(options, named):
    with pytest.raises(ValueError, match=named):
        plan(**options)
    for step in (-1, 20):
        with pytest.raises(IndexError, match=f"step {step} .*20"):
            plan().examples(step)
    with pytest.raises(ValueError, match="'sst'"):
        official_sizes(["rte", "sst"])
