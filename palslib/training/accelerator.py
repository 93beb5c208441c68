"""What a process needs from its machine before it trains: the others, if there are several, and its memory.

Several processes are started by `accelerate launch --multi_gpu --num_processes 2 -m palslib train ...`, which takes a
GPU for each or CPUs alone, or by torch itself: `torchrun --standalone --nproc_per_node 2 -m palslib train ...`.
"""

import ctypes
import json
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import torch
from accelerate import Accelerator
from accelerate.tracking import get_available_trackers
from accelerate.utils import DistributedDataParallelKwargs, broadcast_object_list

from palslib.common.lock import Lock, run_lock
from palslib.common.processes import end_with_launcher
from palslib.plan.config import RunConfig

T = TypeVar("T")


def make_accelerator(log_with: str | None = None, folder: Path | None = None) -> Accelerator:
    """The accelerator of a run: on as many processes as were started, with gloo on CPUs.

    Args:
        log_with: the tracker of `RunConfig.log_with`, which `tracked` starts; its files go to `folder`.

    Raises ValueError where several were asked for and there is one, as without `--multi_gpu` on a machine with fewer
    than two GPUs, ImportError where the tracker's package is not installed.
    """
    if log_with and log_with not in map(str, get_available_trackers()):  # accelerate would go on without
        raise ImportError(f"log_with={log_with!r} needs the package {log_with}: pip install {log_with}")
    end_with_launcher()
    keep_freed_memory()
    # Started by torch's launcher but not told to use CPUs, accelerate would make each process a run of its own.
    on_cpus = int(os.environ.get("WORLD_SIZE", 1)) > 1 and not torch.cuda.is_available()
    # Tasks that rest have no gradients. Autocast is ours: accelerate fixes its precision once for a whole process.
    handlers = [DistributedDataParallelKwargs(find_unused_parameters=True)]
    accelerator = Accelerator(
        cpu=on_cpus, mixed_precision="no", kwargs_handlers=handlers, log_with=log_with, project_dir=folder
    )
    # `accelerate launch` says whom to meet where there are to be others, and how many only where it starts them.
    told = {"ACCELERATE_MIXED_PRECISION", "MASTER_ADDR"} <= set(os.environ) and "WORLD_SIZE" not in os.environ
    if told and accelerator.num_processes == 1:
        raise ValueError(
            "accelerate launch was asked for several processes and started one; with --multi_gpu, which takes a GPU "
            "for each or CPUs alone, it starts all: accelerate launch --multi_gpu --num_processes 2 ..."
        )
    return accelerator


@contextmanager
def tracked(accelerator: Accelerator, config: RunConfig, folder: Path) -> Iterator[None]:
    """Within the block what `accelerator.log` is given goes to the config's tracker, if it names one."""
    if config.log_with:
        plain = {k: v if isinstance(v, (str, int, float)) else json.dumps(v) for k, v in asdict(config).items()}
        about = {"trackio": {"name": folder.name, "resume": "allow"}}
        accelerator.init_trackers("palslib" if config.log_with == "trackio" else config.log_with, plain, about)
    try:
        yield
    finally:
        for tracker in accelerator.trackers:
            tracker.finish()


def decided_by_first(decide: Callable[[], T]) -> T:
    """What the first process finds, in all of them, or the ValueError or OSError that it raised."""
    accelerator, found = make_accelerator(), [None, None]
    if accelerator.is_main_process:
        try:
            found[0] = decide()
        except (ValueError, OSError) as error:
            found[1] = error
    if accelerator.num_processes > 1:
        broadcast_object_list(found)
    if found[1] is not None:
        raise found[1]
    return found[0]


@contextmanager
def one_writer(folder: Path, beside: bool = False) -> Iterator[Lock | None]:
    """`run_lock` for a run of any number of processes: the first holds it, and where it is refused, all are."""
    with ExitStack() as stack:
        held = []
        decided_by_first(lambda: held.append(stack.enter_context(run_lock(folder, beside))))
        yield held[0] if held else None


def keep_freed_memory() -> None:
    """Lets this process keep freed memory for its next tensors, blocks of up to 1 GiB, where the C library is glibc.

    It would give every large tensor's memory back, and the next tensor's pages would be cleared and mapped anew: a
    tenth of a training step in bf16. How much memory the process takes at most does not change.
    """
    if platform.libc_ver()[0] == "glibc":
        trim_threshold, mmap_threshold = -1, -3  # numbers of malloc.h
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(mmap_threshold, 1 << 30)
        mallopt(trim_threshold, (1 << 31) - 1)


def give_back_freed_memory() -> None:
    """Gives what has been kept back to the system, so that what the process holds is what it uses."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
