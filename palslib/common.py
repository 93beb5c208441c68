"""What every room uses: names looked up in one way, where things lie, files written whole by one writer, seeds from
words."""

import ctypes
import difflib
import glob
import hashlib
import json
import math
import operator
import os
import platform
import secrets
import shutil
import signal
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


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


_PACKAGE = Path(__file__).resolve().parent
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


# ------------------------------------------------------------------------------------------------ files written whole


@contextmanager
def atomic_write(path: str | Path, keep: bool = False) -> Iterator[Path]:
    """Writes a file or a folder whole or not at all.

    Gives a name beside `path` that nobody can guess. What the block makes there, a file or a folder, is flushed to the
    disk and takes the place of `path` at the block's end; after an error nothing is left of it and `path` is as it was.
    A folder cannot take another's place in one step: for a moment the one before is whole at `path.old` alone.

        with atomic_write(folder / "checkpoint") as temporary:
            temporary.mkdir()
            ...

    Args:
        keep: the folder that was there before stays at `path.old`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        temporary.touch(exist_ok=False)
        usual = temporary.stat().st_mode & 0o777  # under the umask
        temporary.unlink()
        yield temporary
        for part in [*temporary.rglob("*"), temporary]:
            if ".safetensors" in (part.suffix, path.suffix) and part.is_file():  # written for their owner alone
                part.chmod(usual)
            _flush(part)
        if temporary.is_dir():
            replace_folder(temporary, path, keep)
        else:
            os.replace(temporary, path)
            _flush(path.parent)  # the new name, too
    except OSError as error:
        if error.errno and error.filename is None:  # that of a full disk names no file
            error.filename = str(path)
        raise
    finally:
        remove(temporary)


def _flush(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def remove(path: Path) -> None:
    """Removes a file, or a folder with all that it holds, if there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_temporaries(path: Path) -> None:
    """Removes what `atomic_write(path)` left where it was killed. Only for who may write there alone (`run_lock`)."""
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.tmp"):
        remove(left)


def replace_folder(temporary: Path, target: Path, keep: bool = False) -> None:
    """Puts a folder that is complete in the place of another: at every moment it or `target.old` is whole, on the disk,
    too. `keep`: and there that one stays."""
    old = target.with_name(target.name + ".old")
    if target.exists():  # if not, an earlier call was killed between its renames, and `old` is all there is
        remove(old)
        os.replace(target, old)
    os.replace(temporary, target)
    _flush(target.parent)
    if not keep:
        remove(old)


def restore(target: Path) -> None:
    """Where writing a folder was killed between its two renames: the one before takes its place again."""
    old = target.with_name(target.name + ".old")
    if not target.exists() and old.exists():
        os.replace(old, target)


def set_aside(paths: Iterable[Path]) -> str:
    """Renames what is there of these files and folders of one folder, and returns the ending that all of them got.

    Under no such name is anything read again, nor removed.
    """
    paths = [path for path in paths if path.exists()]
    number = 1
    while any(path.with_name(f"{path.name}.aside-{number}").exists() for path in paths):
        number += 1
    for path in paths:
        os.replace(path, path.with_name(f"{path.name}.aside-{number}"))
    return f".aside-{number}"


# ----------------------------------------------------------------------------------------- folders that know themselves

MANIFEST = "manifest.json"


class Damaged(ValueError):
    """A folder does not hold what was written into it; the message names the file."""


def _checksum(path: Path) -> str:
    """CRC-32: changes with every burst of up to 32 bits, at the speed of reading."""
    value = 0
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            value = zlib.crc32(part, value)
    return f"{value:08x}"


def _own_checksum(about: dict) -> str:
    return f"{zlib.crc32(json.dumps(about, sort_keys=True).encode()):08x}"


def seal(folder: Path, **about) -> None:
    """Writes `manifest.json`: the checksum of every file of a folder, and what else is to be known of it."""
    about["files"] = {path.name: _checksum(path) for path in sorted(folder.iterdir())}
    text = json.dumps(about | {"checksum": _own_checksum(about)}, indent=1)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def prove(folder: Path) -> dict:
    """What `seal` was told of a folder, each file of which is as it was then. Raises Damaged naming the first that is
    not, OSError where one cannot be read."""
    try:
        about = read_object(folder / MANIFEST)
        own = about.pop("checksum", None)
    except ValueError as error:
        raise Damaged(f"{MANIFEST} is damaged") from error
    if own != _own_checksum(about):
        raise Damaged(f"{MANIFEST} is damaged: its checksum is {_own_checksum(about)}, not {own}")
    for name, expected in about["files"].items():
        path = folder / name
        if not path.is_file():
            raise Damaged(f"{name} is missing")
        if (found := _checksum(path)) != expected:
            raise Damaged(f"{name} is damaged: its checksum is {found}, not {expected}")
    return about


# --------------------------------------------------------------------------------------------------- one run, one write

FIRST = os.environ.get("RANK", "0") == "0"
"""Whether this is the process of a run that prints, and that alone writes."""
PARENT = "PALSLIB_LOCK"
"""Environment variable of a process that is started by the holder of a lock to work under it: what the lock says."""


class InUse(ValueError):
    """Another process works in a run's folder."""


class Lock:
    """A run's folder, held by this process or by the one that started it."""

    def __init__(self, folder: Path, path: Path, holder: str, file: IO[str] | None):
        self.folder, self.path, self.holder = folder, path, holder
        self.file = file
        """Open while the lock is held; a child that inherits it holds the lock on. None where a parent has it."""

    def check(self) -> None:
        """Raises InUse unless the folder is still the one that was locked: no run ends in one that was deleted."""
        with suppress(OSError):
            if self.path.read_text(encoding="utf-8") == self.holder:
                return
        raise InUse(f"{self.folder} was deleted or taken over while the run was at it; the same call begins anew")


@contextmanager
def run_lock(folder: Path, beside: bool = False) -> Iterator[Lock]:
    """The lock of a run's folder. Raises InUse, which names the folder and who is at it, where a process has it.

    It is `flock`, not a file that merely exists, because the kernel lets go of it when the last process that holds it
    is gone, however it died: a killed run or a lost machine leaves no lock behind. (On NFS it holds between machines
    too, from version 4 on.) A process that the holder started with `PARENT` set may enter under its lock.

    Args:
        beside: the lock lies beside the folder, which is not there yet.
    """
    path = folder.with_name(folder.name + ".lock") if beside else folder / "lock"
    holder = f"process {os.getpid()} on {platform.node()} ({secrets.token_hex(4)})"
    empty = not folder.exists()
    file = _locked(path, folder)
    try:
        if file is not None:
            file.truncate(0)
            file.write(holder)
            file.flush()
        yield Lock(folder, path, holder if file else os.environ[PARENT], file)
    finally:
        if file is not None:
            with suppress(OSError):
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    path.unlink()  # before it is let go: who waits at it sees that it is gone, and makes a new one
            file.close()
            if empty and not beside:
                with suppress(OSError):  # no longer empty
                    folder.rmdir()


def _locked(path: Path, folder: Path) -> IO[str] | None:
    """The locked file; None where the process that has it started this one to work under it."""
    import fcntl  # here: Windows has none, and counts and plans all the same

    holder = ""
    for _ in range(10):  # who only asks (`in_use`) has it for a moment; who leaves takes file and folder along
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            file = open(path, "a+", encoding="utf-8")  # noqa: SIM115
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    return file
            except BlockingIOError:
                file.seek(0)
                holder = file.read()
            file.close()
            if holder and holder == os.environ.get(PARENT):
                return None
        time.sleep(0.05)
    raise InUse(f"{folder} is in use by {holder or 'another process'}: a run has one writer; wait for it or end it")


def end_with_launcher() -> None:
    """Lets the kernel kill this process when the launcher that started it ends (Linux; else nothing is done).

    A worker of `torchrun` or `accelerate launch` would go on alone, or wait for the others, half an hour.
    """
    if platform.system() == "Linux" and {"TORCHELASTIC_RUN_ID", "ACCELERATE_MIXED_PRECISION"} & set(os.environ):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def in_use(folder: Path) -> bool:
    """Whether a process has the lock of a run's folder."""
    import fcntl

    try:
        with open(folder / "lock", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def progress_bar(steps: Iterable | None, what: str, show: bool, **options):
    """tqdm's bar for a phase that may take long: it comes after three seconds and goes at the end, on a terminal or in
    a notebook, where `show`; a log has none. It counts what it is iterated over, or `total` of the options."""
    from tqdm import tqdm  # here: most commands show none

    seen = sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")
    return tqdm(steps, what, delay=3, leave=False, disable=not (show and seen and FIRST), **options)


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
        hooks = {"parse_constant": _number, "parse_float": _number, "parse_int": _whole, "object_pairs_hook": _object}
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


def _whole(text: str) -> int:
    _number(text)  # 1 and 400 zeros is as infinite as 1e400
    return int(text)


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
