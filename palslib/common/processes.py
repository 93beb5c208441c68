"""What a process is among others: the first of a run, a worker of a launcher, one that shows a bar."""

import ctypes
import os
import platform
import signal
import sys
from collections.abc import Iterable

FIRST = os.environ.get("RANK", "0") == "0"
"""Whether this is the process of a run that prints, and that alone writes."""


def end_with_launcher() -> None:
    """Lets the kernel kill this process when the launcher that started it ends (Linux; else nothing is done).

    A worker of `torchrun` or `accelerate launch` would go on alone, or wait for the others, half an hour.
    """
    if platform.system() == "Linux" and {"TORCHELASTIC_RUN_ID", "ACCELERATE_MIXED_PRECISION"} & set(os.environ):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def progress_bar(steps: Iterable | None, what: str, show: bool, **options):
    """tqdm's bar for a phase that may take long: it comes after three seconds and goes at the end, on a terminal or in
    a notebook that somebody watches, where `show`; a log has none, nor has a page (`PALSLIB_STATIC`), where a bar below
    another leaves its traces. It counts what it is iterated over, or `total` of the options."""
    from tqdm import tqdm  # here: most commands show none

    live = type(sys.stderr).__module__.startswith("ipykernel") and not os.environ.get("PALSLIB_STATIC")
    seen = sys.stderr.isatty() or live
    return tqdm(steps, what, delay=3, leave=False, disable=not (show and seen and FIRST), **options)
