"""The choice of the task and of its examples at every step of training.

Stickland & Murray 2019, section 4.1. A task with N examples is drawn with probability p ∝ N^α. Proportional sampling
has α = 1, square-root sampling α = 1/2; annealed sampling goes from proportional to nearly equal over the epochs,

    α_e = 1 - 0.8 (e - 1) / (E - 1)        e = 1 ... E

Or the tasks take turns (round robin), or are trained one after another (Lopez-Paz & Ranzato 2017). A `TrainingPlan` is
a pure function of its fields (seed, sizes, schedule, steps, ...): step k does not depend on earlier calls, so a run can
resume at any step, and all processes have the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from numbers import Real

from palslib.common.later import np, pd
from palslib.common.names import check_name, check_type, plain, shown
from palslib.common.seeds import seed_from
from palslib.data.glue import TRAIN_SIZES

SCHEDULES = {
    "proportional": "p ∝ N: every example of every task equally often",
    "square-root": "p ∝ √N",
    "annealed": "p ∝ N^α, α from 1 in the first epoch to 0.2 in the last",
    "round-robin": "the tasks take turns",
    "sequential": "one task after another, with equal shares of the steps",
}
MIXED = ("proportional", "square-root", "annealed", "round-robin")
"""The paper's schedules, which mix the tasks."""
MOST_STEPS = 10_000_000
"""The largest number of steps of a run, ten times BERT's pre-training."""
PAPER_EPOCHS = 25  # of 2,400 steps: 60,000 in all (set-up; ledger A20)


def annealed_alpha(epoch: int, epochs: int) -> float:
    """α of an epoch counted from 1: 1 in the first, 0.2 in the last (section 4.1), 1 in a single one.
    Raises ValueError for an epoch that there is not."""
    if not 1 <= epoch <= epochs:
        raise ValueError(f"epoch must be between 1 and epochs={epochs}, not {epoch}")
    return 1.0 if epochs == 1 else 1.0 - 0.8 * (epoch - 1) / (epochs - 1)


def task_probabilities(sizes: Mapping[str, int], alpha: float) -> dict[str, float]:
    """p_i = N_i^α / Σ_j N_j^α for every task.

    >>> task_probabilities({"rte": 100, "mnli": 300}, 1)
    {'rte': 0.25, 'mnli': 0.75}
    """
    check_type("alpha", alpha, Real, "a number")
    for task, size in check_type("sizes", sizes, Mapping, "a dict of each task's number of examples").items():
        if size < 1:
            raise ValueError(f"task {task!r} has {size} training examples; every task needs at least one")
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.array([float(n) for n in sizes.values()]) ** alpha
    if not 0 < weights.sum() < np.inf:
        raise ValueError(f"alpha={alpha!r}: the sum of N^alpha must be above 0 and finite for {shown(dict(sizes))}")
    return dict(zip(sizes, (weights / weights.sum()).tolist(), strict=True))


def _generator(seed: int, *names: str | int) -> np.random.Generator:
    """A random generator that depends on the seed and the names alone, not on what was drawn before."""
    return np.random.Generator(np.random.PCG64(seed_from(seed, *names, bits=128)))


@dataclass(frozen=True)
class TrainingPlan:
    """The whole order of training: `plan.tasks[k]` and `plan.examples(k)` are the task and the examples of step k."""

    sizes: Mapping[str, int]
    """Training examples of each task, in the order of the tasks."""
    schedule: str
    """A name of `SCHEDULES`."""
    steps: int
    """Steps of training, one task each."""
    batch_size: int = 32
    """Examples per step."""
    seed: int = 0
    epochs: int = PAPER_EPOCHS
    """Number of equal parts of the steps, in each of which α is constant."""
    sampling_sizes: Mapping[str, int] | None = None
    """Sizes for the probabilities, if these are not `sizes` (for example GLUE's official ones)."""
    alpha: float | None = None
    """A constant exponent in place of the schedule's own, for `proportional` only: 0 is equal sampling."""
    round_robin_advances: bool = True
    """False: `round-robin` stays at the first task for ever, as the released code does (ledger D1)."""
    reshuffle: bool = True
    """False: the first pass's batches, the last one partial, are replayed in the same order (ledger D4)."""

    def __post_init__(self):
        check_name("schedule", self.schedule, SCHEDULES)
        object.__setattr__(self, "sizes", dict(self.sizes))
        if not self.sizes:
            raise ValueError("a plan needs at least one task")
        for name in ("steps", "batch_size", "epochs"):
            object.__setattr__(self, name, plain(getattr(self, name)))
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ValueError(f"{name} must be a positive integer, not {getattr(self, name)!r}")
        if self.alpha is not None and self.schedule != "proportional":
            raise ValueError(f"alpha={self.alpha} contradicts schedule {self.schedule!r}; give it with 'proportional'")
        task_probabilities(self.sizes, 1)  # raises ValueError for an empty task
        if self.sampling_sizes is not None and set(self.sampling_sizes) != set(self.sizes):
            missing = sorted(set(self.sizes) ^ set(self.sampling_sizes))
            raise ValueError(f"sizes and sampling_sizes must name the same tasks; only one has: {', '.join(missing)}")

    def epoch(self, step: int) -> int:
        """The epoch of a step, from 1; steps are spread evenly over the epochs."""
        return step * self.epochs // self.steps + 1

    def probabilities(self, step: int) -> dict[str, float]:
        """The probability of each task at a step. For schedules without random draws (round robin, sequential) it is a
        task's share, 1/T; if round robin does not advance, 1 for the first task and 0 for the others (ledger D1)."""
        if self.schedule == "round-robin" and not self.round_robin_advances:
            return {task: float(task == next(iter(self.sizes))) for task in self.sizes}
        if self.schedule in ("round-robin", "sequential"):
            return {task: 1 / len(self.sizes) for task in self.sizes}
        alpha = {
            "proportional": 1.0 if self.alpha is None else self.alpha,
            "square-root": 0.5,
            "annealed": annealed_alpha(self.epoch(step), self.epochs),
        }[self.schedule]
        sizes = self.sampling_sizes or self.sizes
        return task_probabilities({task: sizes[task] for task in self.sizes}, alpha)

    def _epoch_bounds(self) -> list[tuple[int, int]]:
        """The first step and the end (exclusive) of every epoch that has steps."""
        firsts = np.unique(np.arange(self.steps) * self.epochs // self.steps, return_index=True)[1].tolist()
        return list(pairwise([*firsts, self.steps]))

    @cached_property
    def _task_numbers(self) -> np.ndarray:
        if self.schedule == "round-robin":
            steps = np.arange(self.steps)
            return steps % len(self.sizes) if self.round_robin_advances else np.zeros_like(steps)
        if self.schedule == "sequential":
            return np.arange(self.steps) * len(self.sizes) // self.steps
        uniform = _generator(self.seed, "tasks", self.schedule).random(self.steps)
        numbers = np.empty(self.steps, dtype=np.int64)
        for first, last in self._epoch_bounds():
            edges = np.cumsum(list(self.probabilities(first).values()))
            numbers[first:last] = np.searchsorted(edges / edges[-1], uniform[first:last], side="right")
        return numbers

    @cached_property
    def tasks(self) -> list[str]:
        """The task of every step."""
        names = list(self.sizes)
        return [names[i] for i in self._task_numbers]

    @cached_property
    def _turns(self) -> np.ndarray:
        """For every step, the number of earlier steps of its task."""
        return pd.Series(self._task_numbers).groupby(self._task_numbers).cumcount().to_numpy()

    @cached_property
    def _permutations(self) -> dict[str, dict[int, np.ndarray]]:
        """Each task's permutations of the two passes asked for last: to draw one can take longer than a step."""
        return {task: {} for task in self.sizes}

    def _permutation(self, task: str, number: int) -> np.ndarray:
        """(N,) the order of a task's examples in a pass, from 0."""
        kept = self._permutations[task]
        if (order := kept.get(number)) is None:
            order = _generator(self.seed, "pass", task, number).permutation(self.sizes[task])
            self._permutations[task] = dict([*kept.items()][-1:]) | {number: order}
        return order

    def examples(self, step: int) -> np.ndarray:
        """The indices of a step's examples in its task's training data, (batch_size,).

        Each pass over the data is a new permutation; a batch at the end of a pass takes its rest from the next pass, so
        batches are always full. Without `reshuffle`, every pass repeats the first one's batches, the last one partial.
        """
        if not 0 <= step < self.steps:
            raise IndexError(f"step {step} is not in a plan of {self.steps} steps")
        task, turn = self.tasks[step], int(self._turns[step])
        size, batch = self.sizes[task], self.batch_size
        if not self.reshuffle:
            first = turn % -(-size // batch) * batch
            return self._permutation(task, 0)[first : first + batch].copy()
        passes, places = np.divmod(np.arange(turn * batch, (turn + 1) * batch), size)
        return np.concatenate([self._permutation(task, p)[places[passes == p]] for p in np.unique(passes).tolist()])

    def expected_steps(self, until: int | None = None) -> dict[str, float]:
        """The expected number of each task's steps (the mean over seeds) among the first `until` (by default all)."""
        totals, until = dict.fromkeys(self.sizes, 0.0), self.steps if until is None else until
        for first, last in self._epoch_bounds():
            for task, p in self.probabilities(first).items():
                totals[task] += p * max(0, min(last, until) - first)
        return totals

    def drawn_steps(self, until: int | None = None) -> dict[str, int]:
        """The number of steps of each task in this plan's first `until` steps (all by default)."""
        counts = np.bincount(self._task_numbers[:until], minlength=len(self.sizes))
        return dict(zip(self.sizes, counts.tolist(), strict=True))

    def passes(self, until: int | None = None) -> dict[str, float]:
        """The number of passes over each task's data in these steps: drawn steps / steps of one pass."""
        batch = self.batch_size
        per_pass = {t: n / batch if self.reshuffle else -(-n // batch) for t, n in self.sizes.items()}  # steps
        return {task: n / per_pass[task] for task, n in self.drawn_steps(until).items()}


def official_sizes(tasks) -> dict[str, int]:
    """GLUE's official training sizes of these tasks (ledger A17), for `sampling_sizes`."""
    return {task: TRAIN_SIZES[check_name("GLUE task", task, TRAIN_SIZES)] for task in tasks}
