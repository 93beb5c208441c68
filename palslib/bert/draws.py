"""Random numbers of a run's own: it neither reads nor moves torch's global generator, and other threads' draws do not
change it. The numbers are those that torch's own generator would give from the same seed.

Fused attention on a GPU draws from torch's generator, whatever it is given: there its state is put back afterwards.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import torch
from torch.overrides import TorchFunctionMode

GENERATOR: ContextVar[torch.Generator | None] = ContextVar("generator", default=None)
"""The generator of `dropout.kept` on a CPU; None: torch's own."""
_DRAWS = {"normal_", "uniform_", "kaiming_uniform_", "trunc_normal_", "xavier_uniform_"}


class new_weights(TorchFunctionMode):
    """Within the block, modules that are made draw their weights from a generator with this seed."""

    def __init__(self, seed: int):
        super().__init__()
        self.generator = torch.Generator().manual_seed(int(seed))  # also a NumPy number

    def __torch_function__(self, function, types, args=(), kwargs=None):
        own = {"generator": self.generator} if getattr(function, "__name__", "") in _DRAWS else {}
        return function(*args, **(kwargs or {}) | own)


@contextmanager
def own_draws(seed: int, device: torch.device, foreign: bool = False) -> Iterator[None]:
    """Within the block, dropout draws from a generator with this seed. Code that is `foreign`, of a user's own method,
    may draw from torch's generator, which then has this seed, too."""
    torchs = torchs_own(seed, device) if foreign or device.type != "cpu" else nullcontext()
    with _draws_from(torch.Generator().manual_seed(seed)), torchs:
        yield


@contextmanager
def torchs_own(seed: int, device: torch.device) -> Iterator[None]:
    """Within the block, torch's own generators, of the CPU and of this device, begin with this seed; then they go on
    from where they were."""
    gpus = [] if device.type != "cuda" else [torch.cuda.current_device() if device.index is None else device.index]
    with torch.random.fork_rng(devices=gpus):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed all GPUs
        for gpu in gpus:
            torch.cuda.default_generators[gpu].manual_seed(seed)
        yield


def same_draws() -> tuple[AbstractContextManager, AbstractContextManager]:
    """For gradient checkpointing: contexts of a layer and of its second computation, which draws the same numbers."""
    if (generator := GENERATOR.get()) is None:
        return nullcontext(), nullcontext()
    return nullcontext(), _draws_from(generator.clone_state())


@contextmanager
def _draws_from(generator: torch.Generator) -> Iterator[None]:
    before = GENERATOR.set(generator)
    try:
        yield
    finally:  # also where torch ends the second computation early, by an exception
        GENERATOR.reset(before)
