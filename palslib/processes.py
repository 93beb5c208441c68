"""Several processes that train one model, and what can go wrong when they are started."""

import os

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs


def make_accelerator() -> Accelerator:
    """The accelerator of a run: on as many processes as were started, with gloo on CPUs.

    Raises ValueError where `accelerate launch` was to start several and started one, as it does without `--multi_gpu`
    on a machine with fewer than two GPUs.
    """
    # Started by torch's launcher but not told to use CPUs, accelerate would make each process a run of its own.
    on_cpus = int(os.environ.get("WORLD_SIZE", 1)) > 1 and not torch.cuda.is_available()
    # Tasks that rest have no gradients. Autocast is ours: accelerate fixes its precision once for a whole process.
    handlers = [DistributedDataParallelKwargs(find_unused_parameters=True)]
    accelerator = Accelerator(cpu=on_cpus, mixed_precision="no", kwargs_handlers=handlers)
    # The simple launcher tells a process whom to meet only if there were to be others, but not how many.
    launched = {"ACCELERATE_MIXED_PRECISION", "MASTER_ADDR"} <= set(os.environ) and "WORLD_SIZE" not in os.environ
    if launched and accelerator.num_processes == 1:
        raise ValueError(
            "accelerate launch was asked for several processes and started one; on CPUs too it takes --multi_gpu: "
            "accelerate launch --multi_gpu --num_processes 2 -m palslib.training CONFIG.json"
        )
    return accelerator
