"""The tools of `parts.py`: turns, quartiles, the rate of matrix products."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch.utils.benchmark import timer  # a clock that waits for a GPU to be done

from palslib.study.benchmark.others import Other


def spread(values) -> dict:
    """Median and quartiles of at least one number."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return {"median": median, "low": low, "high": high, "times": len(values)}


def seconds(function: Callable) -> float:
    """The seconds that one call takes; an `Other` measures its own time."""
    if isinstance(function, Other):
        return function()
    began = timer()
    function()
    return timer() - began


def in_turn(functions: Mapping[str, Callable], rounds: int, warm: int = 1) -> dict[str, list[float]]:
    """The seconds of `rounds` calls of each function, one of each per round, after `warm` rounds that do not count."""
    times = [{name: seconds(function) for name, function in functions.items()} for _ in range(warm + rounds)]
    return {name: [row[name] for row in times[warm:]] for name in functions}


def matrix_rate(device: torch.device, precision: str, rounds: int) -> dict:
    """Operations per second, two per multiply-add, of a matrix product as in BERT-base; on a GPU, of a larger one."""
    n, k, m = (8192, 8192, 8192) if device.type == "cuda" else (1280, 768, 3072)
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(shape, device=device, dtype=kind) for shape in ((n, k), (k, m)))
    times = in_turn({"product": lambda: a @ b}, rounds, warm=2)["product"]
    return spread([2 * n * k * m / t for t in times])
