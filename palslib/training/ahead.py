"""The next step's batch is made in a thread while a GPU computes this step.

A GPU runs what it has been told while Python goes on, and Python must tell it the next thing in time. Cutting a batch
out of the data takes up to a millisecond, a fifth of what a small model's step takes on a fast card. On a CPU the step
itself needs the processor, and nothing is gained.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """`make(step)`; the result for the step after it is begun in a thread at once, up to step `end` (exclusive).

    `make` must be a function of the step alone, as batches are. Its error is raised when its step is asked for.
    """

    def __init__(self, make: Callable[[int], T], end: int):
        self.make, self.end = make, end
        self.thread = ThreadPoolExecutor(1)
        self.coming: dict[int, Future] = {}

    def __call__(self, step: int) -> T:
        known = self.coming.pop(step, None)
        made = known.result() if known else self.make(step)
        self.coming = {step + 1: self.thread.submit(self.make, step + 1)} if step + 1 < self.end else {}
        return made
