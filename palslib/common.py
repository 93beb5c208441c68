"""What every room uses: names looked up in one way, where things lie, files written whole, seeds from words."""

import difflib
import hashlib
import json
import math
import operator
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Writes a file or a folder whole or not at all.

    Gives a name beside `path`, of this process's own. What the block makes there, a file or a folder, is flushed to the
    disk and takes the place of `path` at the block's end; after an error nothing is left of it and `path` is as it was.
    A folder cannot take another's place in one step: for a moment the one before is whole at `path.old` alone.

        with atomic_write(folder / "checkpoint") as temporary:
            temporary.mkdir()
            ...
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    _remove(temporary)  # of a killed process that had this number
    try:
        yield temporary
        for part in [*temporary.rglob("*"), temporary]:
            _flush(part)
        if temporary.is_dir():
            replace_folder(temporary, path)
        else:
            os.replace(temporary, path)
        _flush(path.parent)  # the new name, too
    except OSError as error:
        if error.filename is None:  # that of a full disk names no file
            error.filename = str(path)
        raise
    finally:
        _remove(temporary)


def _flush(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def replace_folder(temporary: Path, target: Path) -> None:
    """Puts a folder that is complete in the place of another: at every moment it or `target.old` is whole."""
    old = target.with_name(target.name + ".old")
    if target.exists():  # if not, an earlier call was killed between its renames, and `old` is all there is
        shutil.rmtree(old, ignore_errors=True)
        os.replace(target, old)
    os.replace(temporary, target)
    shutil.rmtree(old, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def seed_from(*words: str | int, bits: int = 63) -> int:
    """A random seed below 2^bits (at most 128) that depends on these words and numbers, and on their order, alone.

    The same on every machine and in every version; what differs in one word is as good as independent.

    >>> seed_from(0, "dropout", 1), seed_from(0, "dropout", 2)
    (8662194159269085001, 8142819072565669564)
    """
    plain = tuple(str(word) if isinstance(word, str) else operator.index(word) for word in words)  # NumPy's, too
    digest = hashlib.sha256(repr(plain).encode()).digest()
    return int.from_bytes(digest[:16], "little") % 2**bits


def read_json(path: str | Path, what: str = "JSON") -> object:
    """What a JSON file holds.

    Raises ValueError naming the file where that is no UTF-8 or no JSON (NaN and infinity are not), nested deeper than
    any of ours, or an object that has a key twice; OSError where it cannot be read.
    """
    path = Path(path)
    try:
        hooks = {"parse_constant": _number, "parse_float": _number, "object_pairs_hook": _object}
        level = [values := json.loads(path.read_text(encoding="utf-8"), **hooks)]
        for _ in range(_DEPTH):
            level = [inner for value in level for inner in _inside(value)]
    except ValueError as error:
        raise ValueError(f"{path}: not {what}: {error}") from error
    except RecursionError:
        level = [path]
    if level:
        raise ValueError(f"{path}: not {what} of ours: nested more than {_DEPTH} deep")
    return values


_DEPTH = 64
"""Of our files: a record has 7 levels."""


def _inside(value: object) -> Iterable:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _object(pairs: list[tuple[str, object]]) -> dict:
    values = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"the key {name!r} comes twice")
        values[name] = value
    return values


def read_object(path: str | Path, parts: str = "parameters") -> dict:
    """A JSON file that must hold an object of `parts`; else ValueError, or `read_json`'s errors, naming the file."""
    if not isinstance(values := read_json(path), dict):
        raise ValueError(f"{path}: not an object of {parts} but a {type(values).__name__}")
    return values


def shown(value: object, most: int = 200) -> str:
    """A value as a message has it: its `repr`, of what is long the beginning."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"
