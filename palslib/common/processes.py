"""The role of a process: the first one of a run, a worker of a launcher, one that shows a progress bar."""

import ctypes
import os
import platform
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

FIRST = os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "") in ("", "1")
"""Whether this is the first process of a run, the only one that prints and writes; a `RANK` left over, without several
processes, means nothing."""


def end_with_launcher() -> None:
    """Lets the kernel kill this process when the launcher that started it ends (only on Linux).

    Otherwise a worker of `torchrun` or `accelerate launch` would go on alone, or wait for the others, for half an hour.
    """
    if platform.system() == "Linux" and {"TORCHELASTIC_RUN_ID", "ACCELERATE_MIXED_PRECISION"} & set(os.environ):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def processor() -> str:
    """The name of this machine's processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def say(sentences: Iterable[str], where: object) -> None:
    """Prints sentences about a run, named by its folder or name, to standard error, in the first process alone."""
    for sentence in sentences if FIRST else ():
        print(f"palslib: {where}: {sentence}", file=sys.stderr)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return type(sys.stderr).__module__.startswith("ipykernel")


def bar_place() -> dict:
    """Options of a tqdm bar that say where it is written: to stderr, but in a notebook, which shows stderr in red,
    to stdout, where it goes away at the end. A static page (`PALSLIB_STATIC`) has none, as its updates would stay."""
    if not in_notebook():
        return {"file": sys.stderr}
    return {"file": sys.stdout, "leave": False} | ({"disable": True} if os.environ.get("PALSLIB_STATIC") else {})


def progress_bar(steps: Iterable | None, what: str, show: bool, **options):
    """A tqdm bar for a long phase, over `steps` or up to the option `total`. It appears after three seconds and is
    removed at the end. Only with `show`, in the first process, on a terminal or in a live notebook; not in a log."""
    from tqdm import tqdm  # here, because most commands show no bar

    hidden = not (show and FIRST and (in_notebook() or sys.stderr.isatty()))
    return tqdm(steps, what, **{"delay": 3, "leave": False, "disable": hidden} | bar_place() | options)
