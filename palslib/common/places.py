"""The locations of files: the clone or the installed package, records, runs, data."""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
PROJECT = _PACKAGE.parent
"""The clone, if there is one; otherwise the folder into which the package is installed, where nothing is written."""
CLONED = (PROJECT / "figures" / "records").is_dir() and (PROJECT / "pyproject.toml").is_file()
RECORDS = PROJECT / "figures" / "records" if CLONED else _PACKAGE / "shipped" / "records"
"""The folder of the tracked records: in a clone beside the package, else within it (pyproject.toml puts them there)."""


def _home() -> Path:
    """The folder from which relative names start: the clone, or the working folder if the package is installed."""
    return PROJECT if CLONED else Path.cwd()


def runs_folder() -> Path:
    """The folder of runs, checkpoints, executed notebooks and cached tokens: `$PALSLIB_RUNS`, or else `runs`."""
    return (_home() / as_path(os.environ.get("PALSLIB_RUNS") or "runs")).resolve()


def data_folder() -> Path | None:
    """The folder of local mirrors that `$PALSLIB_DATA` names, or None."""
    name = os.environ.get("PALSLIB_DATA")
    return (_home() / as_path(name)).resolve() if name else None


def as_path(path: str | Path) -> Path:
    """A path as a user writes it, where `~` is the home folder."""
    return Path(path).expanduser()
