"""The set-up of a training process: its accelerator, its cooperation with other processes, and its memory.

`palslib train --help` says how several processes are started, each with its own GPU or all on CPUs.
"""

import ctypes
import json
import os
import platform
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Lock

import torch
from accelerate import Accelerator
from accelerate.tracking import get_available_trackers
from accelerate.utils import DistributedDataParallelKwargs, broadcast_object_list

from palslib.common.files import one_writer
from palslib.common.processes import end_with_launcher
from palslib.plan.config import RunConfig


def make_accelerator(log_with: str | None = None, folder: Path | None = None) -> Accelerator:
    """The accelerator of a run, for all processes that were started; on CPUs they communicate by gloo. `log_with`: the
    tracker of `RunConfig.log_with`, which `tracked` starts; its files go to `folder`. Raises ImportError if its package
    is not installed.
    """
    if log_with and log_with not in map(str, get_available_trackers()):  # accelerate would ignore it silently
        raise ImportError(f"log_with={log_with!r} needs the package {log_with}: pip install {log_with}")
    end_with_launcher()
    keep_freed_memory()
    # Apple's GPUs have no float64, which the memory needs. Under torch's launcher on CPUs, accelerate must be told to
    # use CPUs: else each process would be a separate run.
    several = int(os.environ.get("WORLD_SIZE", 1)) > 1
    on_cpus = torch.backends.mps.is_available() or (several and not torch.cuda.is_available())
    # Tasks not in a step have no gradients. Autocast is our own: accelerate's precision is fixed for a whole process.
    handlers = [DistributedDataParallelKwargs(find_unused_parameters=True)]
    # Other settings in accelerate's environment would change results: GRADIENT_ACCUMULATION_STEPS divides gradients.
    others = [name for name in os.environ if name.startswith("ACCELERATE_") and name != "ACCELERATE_USE_CPU"]
    taken = {name: os.environ.pop(name) for name in others}
    try:
        return Accelerator(
            cpu=on_cpus, mixed_precision="no", kwargs_handlers=handlers, log_with=log_with, project_dir=folder
        )
    finally:
        os.environ.update(taken)


_ALONE = Lock()


@contextmanager
def alone(config: RunConfig, precision: str) -> Iterator[None]:
    """A block for the steps of a run. Raises ValueError where another run of this process is under way and torch has
    one state for both: its generator (for fused attention's dropout on a GPU, and for a user's own method), or the
    weights that autocast has cast to bf16 or fp16."""
    shares = torch.cuda.is_available() or config.own_method or precision in ("bf16", "fp16")
    if shares and not _ALONE.acquire(blocking=False):
        raise ValueError("another run of this process is under way: start each in a process of its own")
    try:
        yield
    finally:
        if shares:
            _ALONE.release()


@contextmanager
def _tracker_may_fail() -> Iterator[None]:
    """A block in which an exception of a tracker becomes a warning: it never ends a run."""
    try:
        yield
    except Exception as error:
        warnings.warn(f"the tracker failed, and training goes on: {type(error).__name__}: {error}", stacklevel=3)


@contextmanager
def tracked(run) -> Iterator[None]:
    """A block in which the values given to `log` go to the tracker that a run's config names, if any."""
    accelerator, config, name = run.accelerator, run.config, run.folder.name
    if config.log_with:
        plain = {k: v if isinstance(v, (str, int, float)) else json.dumps(v) for k, v in asdict(config).items()}
        options = {"trackio": {"name": name, "resume": "allow"}, "wandb": {"name": name}}
        project = "tensorboard" if config.log_with == "tensorboard" else "palslib"  # there a folder's name
        with _tracker_may_fail():
            accelerator.init_trackers(project, plain, options)
    try:
        yield
    finally:
        for tracker in accelerator.trackers:
            with _tracker_may_fail():
                tracker.finish()


def log(accelerator: Accelerator, values: dict[str, float], step: int) -> None:
    """Gives values to the tracker, under names that every tracker takes."""
    with _tracker_may_fail():
        accelerator.log({re.sub(r"[^\w./ -]", "_", name): value for name, value in values.items()}, step=step)


def decided_by_first(decide: Callable):
    """Runs `decide` in the first process; every process returns its result, or raises its ValueError or OSError."""
    accelerator, outcome = make_accelerator(), [None, None]
    if accelerator.is_main_process:
        try:
            outcome[0] = decide()
        except (ValueError, OSError) as error:
            outcome[1] = error
    broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


@contextmanager
def locked_by_first(folder: Path) -> Iterator[Callable[[], None]]:
    """`one_writer` for a run of any number of processes: the first one holds it; if it is refused, all raise its error.
    Yields `one_writer`'s check, which in the other processes does nothing."""
    with ExitStack() as stack:
        checks = [lambda: None]
        decided_by_first(lambda: checks.append(stack.enter_context(one_writer(folder))))
        yield checks[-1]


def keep_freed_memory() -> None:
    """Makes glibc keep freed memory (blocks of up to 1 GiB) for later tensors; with another C library, it does nothing.

    By default glibc returns the memory of every large tensor to the system, and the pages of the next tensor are mapped
    and cleared again: a tenth of a training step in bf16.
    """
    if platform.libc_ver()[0] == "glibc":
        trim_threshold, mmap_threshold = -1, -3  # numbers of malloc.h
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(mmap_threshold, 1 << 30)
        mallopt(trim_threshold, (1 << 31) - 1)
