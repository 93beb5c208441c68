"""The next step's batch is made in a thread while a GPU computes this step.

A GPU runs what it has been told while Python goes on, and Python must tell it the next thing in time. Cutting a batch
out of the data takes up to a millisecond, a fifth of what a small model's step takes on a fast card. On a CPU the step
itself needs the processor, and nothing is gained.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class Ahead:
    """Gives `make(step)`, and at once begins `make(step + 1)` in a thread, up to the step `end` (exclusive).

    `make` must be a function of the step alone, as batches are; an error in it is raised when its step is asked for. It
    is a method of the run and is not kept: two objects that hold each other would keep the run in memory.
    """

    def __init__(self, end: int):
        self.end, self.thread = end, ThreadPoolExecutor(1)
        self.coming = {}  # the next step -> its `Future`

    def __call__(self, make: Callable, step: int):
        known = self.coming.pop(step, None)
        made = known.result() if known else make(step)
        self.coming = {step + 1: self.thread.submit(make, step + 1)} if step + 1 < self.end else {}
        return made
