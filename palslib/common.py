"""What every room uses: names looked up in one way, where things lie, files written whole or not at all, seeds from words."""

import difflib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path


def unknown(kind: str, name: object, valid: Iterable[str]) -> ValueError:
    """The error for an unknown name: says the nearest match and lists what would be valid.

    >>> print(unknown("task", "rtee", ["cola", "rte"]))
    unknown task 'rtee': did you mean 'rte'? Valid: cola, rte
    """
    valid = list(valid)
    near = difflib.get_close_matches(str(name), valid, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return ValueError(f"unknown {kind} {name!r}: {hint}Valid: {', '.join(valid)}")


def check_name(kind: str, name: str, valid: Iterable[str]) -> str:
    """Returns `name` if it is one of `valid`; raises `unknown` otherwise."""
    valid = list(valid)
    if name not in valid:
        raise unknown(kind, name, valid)
    return name


PROJECT = Path(__file__).resolve().parent.parent
FIGURES = PROJECT / "figures"
RECORDS = FIGURES / "records"


def runs_folder() -> Path:
    """Where runs, checkpoints, executed notebooks and cached tokens go: `$PALSLIB_RUNS`, or `runs/` of the project."""
    return Path(os.environ.get("PALSLIB_RUNS") or PROJECT / "runs").resolve()


def data_folder() -> Path | None:
    """The folder of local mirrors that `$PALSLIB_DATA` names, or None. Relative names count from the project."""
    name = os.environ.get("PALSLIB_DATA")
    return (PROJECT / name).resolve() if name else None


def replace_folder(temporary: Path, target: Path) -> None:
    """Puts a folder that is complete in the place of another: at every moment it or `target.old` is whole."""
    old = target.with_name(target.name + ".old")
    if target.exists():  # if not, an earlier call was killed between its renames, and `old` is all there is
        shutil.rmtree(old, ignore_errors=True)
        os.replace(target, old)
    os.replace(temporary, target)
    shutil.rmtree(old, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_object(path: str | Path, parts: str = "parameters") -> dict:
    """A JSON file that must hold an object of `parts`. Raises ValueError naming the file for anything else."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path}: not an object of {parts} but a {type(values).__name__}")
    return values
