"""The role of a process: the first one of a run, a worker of a launcher, one that shows a progress bar."""

import ctypes
import os
import platform
import signal
import sys
from collections.abc import Iterable

FIRST = os.environ.get("RANK", "0") == "0"
"""Whether this is the first process of a run, the only one that prints and writes."""


def end_with_launcher() -> None:
    """Lets the kernel kill this process when the launcher that started it ends (only on Linux).

    Otherwise a worker of `torchrun` or `accelerate launch` would go on alone, or wait for the others, for half an hour.
    """
    if platform.system() == "Linux" and {"TORCHELASTIC_RUN_ID", "ACCELERATE_MIXED_PRECISION"} & set(os.environ):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def progress_bar(steps: Iterable | None, what: str, show: bool, **options):
    """A tqdm bar for a long phase, over `steps` or up to the option `total`. It appears after three seconds, is removed
    at the end and shown only if `show`, in the first process, on a terminal or in a live notebook; not in a log,
    nor on a static page (`PALSLIB_STATIC`), where one bar below another would leave traces."""
    from tqdm import tqdm  # here, because most commands show no bar

    live = type(sys.stderr).__module__.startswith("ipykernel") and not os.environ.get("PALSLIB_STATIC")
    seen = sys.stderr.isatty() or live
    return tqdm(steps, what, delay=3, leave=False, disable=not (show and seen and FIRST), **options)
