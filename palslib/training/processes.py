"""Several processes that train one model, and what can go wrong when they are started."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.commands.launch import launch_command_parser
from accelerate.utils import DistributedDataParallelKwargs

from palslib.training.allocator import keep_freed_memory


def launched_alone() -> bool:
    """Whether `accelerate launch` was to start several processes and started this one only, as it does without
    `--multi_gpu` on a machine with fewer than two GPUs.

    To a process so started it says whom to meet, which it leaves out where there are to be no others.
    """
    return {"ACCELERATE_MIXED_PRECISION", "MASTER_ADDR"} <= set(os.environ) and "WORLD_SIZE" not in os.environ


def start_the_others(module: str, arguments: Sequence[str]) -> None:
    """On CPUs, becomes the launcher of as many processes of a module as `accelerate launch` was to start.

    How many they are the launcher alone knows, so its command line is read. Nothing happens where that cannot be (not
    on Linux) or does not say so, where they were to be on several machines, or where there is a GPU.
    """
    command = Path(f"/proc/{os.getppid()}/cmdline")
    if not launched_alone() or torch.cuda.is_available() or not command.exists():
        return
    words = command.read_text().split("\0")[:-1]
    start = next((i for i, word in enumerate(words) if word.endswith("launch")), len(words))
    asked, _ = launch_command_parser().parse_known_args(words[start + 1 :] or ["none"])
    if (asked.num_processes or 1) > 1 and (asked.num_machines or 1) == 1:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(asked.num_processes)]
        os.execv(sys.executable, [sys.executable, *torchrun, "-m", module, *arguments])


def make_accelerator() -> Accelerator:
    """The accelerator of a run: on as many processes as were started, with gloo on CPUs.

    Raises ValueError where several were asked for and there is one, see `launched_alone`.
    """
    keep_freed_memory()
    # Started by torch's launcher but not told to use CPUs, accelerate would make each process a run of its own.
    on_cpus = int(os.environ.get("WORLD_SIZE", 1)) > 1 and not torch.cuda.is_available()
    # Tasks that rest have no gradients. Autocast is ours: accelerate fixes its precision once for a whole process.
    handlers = [DistributedDataParallelKwargs(find_unused_parameters=True)]
    accelerator = Accelerator(cpu=on_cpus, mixed_precision="no", kwargs_handlers=handlers)
    if launched_alone() and accelerator.num_processes == 1:
        raise ValueError(
            "accelerate launch was asked for several processes and started one; with --multi_gpu, which takes a GPU "
            "for each or CPUs alone, it starts all: accelerate launch --multi_gpu --num_processes 2 ..."
        )
    return accelerator
