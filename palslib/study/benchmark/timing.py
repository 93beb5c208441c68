"""The tools of `parts.py`: turns, device events, quartiles, the rate of matrix products, memory."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch
from torch.profiler import profile

from palslib.study.benchmark.others import Other
from palslib.training.accelerator import give_back_freed_memory

STARTS = {
    "Python alone": "",
    "import palslib": "import palslib",
    "first cell": "from palslib.study.notebook import begin, show_figure, show_source, show_table; begin('torch')",
    "a model of 8 tasks": "from palslib import TASKS, MultiTaskModel; MultiTaskModel.from_backbone('minilm', "
    "'pals-204', list(TASKS), size=120)",
}
"""Name -> code with which a notebook may begin."""


KINDS = {
    "AdamW": ("Optimizer.step",),
    "clipping": ("linalg_vector_norm", "_foreach_norm", "_foreach_mul_"),
    "attention": ("CpuAttention", "scaled_dot_product", "ScaledDotProduct"),
    "products of linear maps": ("aten::mm", "aten::addmm"),
    "casts to bf16 and back": ("aten::_to_copy",),
    "GELU": ("aten::gelu",),
    "layer norm": ("aten::native_layer_norm",),
    "dropout's bits": ("aten::random_", "aten::clamp_", "aten::sub_"),
}
"""Kind of operation in a training step -> parts of the name of such an operation, or of one that contains it."""

REST = "the rest"


def spread(values) -> dict:
    """Median and quartiles of at least one number."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return {"median": median, "low": low, "high": high, "times": len(values)}


def seconds(function: Callable, device: torch.device) -> float:
    """The seconds that one call takes: on a GPU between two of its events, else by the clock."""
    if device.type != "cuda":
        began = time.perf_counter()
        function()
        return time.perf_counter() - began
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    function()
    last.record()
    torch.cuda.synchronize(device)
    return first.elapsed_time(last) / 1000


def in_turn(functions: Mapping[str, Callable], rounds: int, device: torch.device, warm: int = 1) -> dict[str, list]:
    """The seconds of `rounds` calls of each function, one of each per round, after `warm` rounds that do not count.

    An `Other` measures its own time.
    """
    times = {name: [] for name in functions}
    for i in range(warm + rounds):
        for name, function in functions.items():
            spent = function() if isinstance(function, Other) else seconds(function, device)
            if i >= warm:
                times[name].append(spent)
    return times


def made_of(function: Callable, rounds: int, device: torch.device) -> tuple[list[float], dict[str, float]]:
    """The seconds of `rounds` calls, and the share of each of `KINDS` in them, by torch's profiler; the rest is small
    operations and Python. As many calls are made first, which do not count."""
    for _ in range(rounds):
        function()
    with profile() as seen:
        spent = [seconds(function, device) for _ in range(rounds)]
    time_of = attrgetter("self_device_time_total" if device.type == "cuda" else "self_cpu_time_total")
    shares = dict.fromkeys([*KINDS, REST], 0.0)
    for event in (event for event in seen.events() if event.device_type.name == "CPU"):  # kernels count within them
        shares[_kind(event)] += time_of(event) / 1e6 / sum(spent)
    shares[REST] = 1 - sum(shares[kind] for kind in KINDS)
    return spent, shares


def _kind(event) -> str:
    """The first of `KINDS` that the event, or one that contains it, belongs to."""
    names = []
    while event is not None:
        names.append(event.name)
        event = event.cpu_parent
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts for name in names)), REST)


def matrix_rate(device: torch.device, precision: str, rounds: int) -> dict:
    """Operations per second, two per multiply-add, of a matrix product as in BERT-base; on a GPU, of a larger one."""
    n, k, m = (8192, 8192, 8192) if device.type == "cuda" else (1280, 768, 3072)
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(shape, device=device, dtype=kind) for shape in ((n, k), (k, m)))
    times = in_turn({"product": lambda: a @ b}, rounds, device, warm=2)["product"]
    return spread([2 * n * k * m / t for t in times])


def resident(device: torch.device) -> int:
    """Bytes of memory in use: on a GPU by tensors, else by this whole process (0 where the system does not say)."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    gc.collect()
    give_back_freed_memory()
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if pages.exists() else 0


def start_up(rounds: int = 3, names=tuple(STARTS)) -> list[dict]:
    """The times of the starts in `STARTS`, each in a Python process of its own; the floor is Python alone."""
    start = partial(subprocess.run, check=True, capture_output=True)
    starts = {name: partial(start, [sys.executable, "-c", STARTS[name]]) for name in names}
    times = in_turn(starts, rounds, torch.device("cpu"))
    floor = float(np.median(times[names[0]]))
    return [{"what": name, "seconds": spread(spent), "floor": floor} for name, spent in times.items()]
