"""Where things lie: the clone or the package, the records, runs, data."""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
PROJECT = _PACKAGE.parent
"""The clone, where there is one; else what the package is installed into, where nothing is written."""
CLONED = (PROJECT / "figures" / "records").is_dir() and (PROJECT / "pyproject.toml").is_file()
RECORDS = PROJECT / "figures" / "records" if CLONED else _PACKAGE / "shipped" / "records"
"""The tracked records: in a clone beside the package, installed within it (setup.py copies them)."""


def _home() -> Path:
    """From where the names of folders count: the clone, or, where the package is installed, the working folder."""
    return PROJECT if CLONED else Path.cwd()


def runs_folder() -> Path:
    """Where runs, checkpoints, executed notebooks and cached tokens go: `$PALSLIB_RUNS`, or `runs/` of the clone, or of
    the working folder where the package is installed without one."""
    return Path(os.environ.get("PALSLIB_RUNS") or _home() / "runs").resolve()


def data_folder() -> Path | None:
    """The folder of local mirrors that `$PALSLIB_DATA` names, or None. Relative names count from the clone, or else
    from the working folder."""
    name = os.environ.get("PALSLIB_DATA")
    return (_home() / name).resolve() if name else None
