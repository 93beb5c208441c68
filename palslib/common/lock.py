"""The lock of a run's folder, so that a run has one writer."""

import glob
import os
import platform
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

PARENT = "PALSLIB_LOCK"
"""Environment variable with the text of a lock file; the holder sets it for a process that works under its lock."""


class InUse(ValueError):
    """Another process works in a run's folder, or the folder was deleted or taken over."""


class Lock:
    """The lock of a run's folder, held by this process or by the one that started it."""

    def __init__(self, folder: Path, path: Path, holder: str, file: IO[str] | None):
        self.folder, self.path, self.holder = folder, path, holder
        self.file = file
        """The locked file, open while the lock is held; a child process that inherits it keeps the lock. None where the
        lock belongs to a parent process."""

    def check(self) -> None:
        """Raises InUse if the folder was deleted or taken over after it was locked."""
        with suppress(OSError):
            if self.path.read_text(encoding="utf-8") == self.holder:
                return
        raise InUse(f"{self.folder} was deleted or taken over during the run; repeat the call to begin anew")


MARK = "palslib.mark"
"""The file that marks a folder as one that palslib writes into; without it nothing there is touched."""
_WORDS = "palslib writes runs into this folder, and may replace or remove what it wrote here.\n"
RUN_FILES = ("checkpoint", "best", "last", "record.json", "predictions.npz")
"""What a run writes into its folder, besides the lock."""


def _check_owner(folder: Path, names: Iterable[str]) -> None:
    """Raises ValueError where one of `names` is a link, or lies in a folder without our mark and so is not ours."""
    for name in (MARK, "lock", *names):
        if (folder / name).is_symlink():
            raise ValueError(f"{folder / name} is a link, through which a run does not write: remove it first")
    if (folder / MARK).is_file():
        return
    theirs = [folder / f"{name}{ending}" for name in names for ending in ("", ".old", ".damaged")]
    theirs += [path for name in names for path in folder.glob(f"{glob.escape(name)}.*.tmp")]
    with suppress(FileNotFoundError):  # the text of a lock says that it is ours
        lock = folder / "lock"
        if not lock.is_file() or not lock.read_bytes().startswith(b"process "):
            theirs += [lock]
    for path in theirs:
        if os.path.lexists(path):
            raise ValueError(f"{path} was not written by palslib ({MARK} is missing): choose another folder")


def _mark(folder: Path) -> None:
    if not (folder / MARK).exists():
        (folder / MARK).write_text(_WORDS, encoding="utf-8")


@contextmanager
def run_lock(folder: Path, names: Iterable[str] = RUN_FILES) -> Iterator[Lock]:
    """Holds the lock of a run's folder. Raises InUse, naming the folder and the holder, if another process has it, and
    ValueError for a folder that holds a file of one of these `names` which palslib did not write.

    The lock is `flock`, not the mere existence of a file, because the kernel releases it when the last process that
    holds it ends, for whatever reason: a killed run or a lost machine leaves no lock behind. (On NFS, from version 4
    on, it also holds between machines.) A process that the holder started with `PARENT` set may enter under its lock.
    """
    path = folder / "lock"
    holder = f"process {os.getpid()} on {platform.node()} ({secrets.token_hex(4)})"
    new = not folder.exists()
    file = _locked(path, folder, tuple(names))
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
                    if {other.name for other in folder.iterdir()} <= {MARK, "lock"}:
                        (folder / MARK).unlink(missing_ok=True)
                    path.unlink()  # before the release, so that a waiting process sees it and makes a new file
            file.close()
            if new:
                with suppress(OSError):  # the folder is not empty
                    folder.rmdir()


def _opened(path: Path, flags: int) -> IO[str]:
    """Opens a lock file. Raises OSError for a symbolic link, and does not wait for a named pipe in its place."""
    more = flags | os.O_NOFOLLOW | os.O_NONBLOCK
    mode = "r+" if flags & os.O_RDWR else "r"
    return open(path, mode, encoding="utf-8", opener=lambda name, _: os.open(name, more, 0o666))


def _locked(path: Path, folder: Path, names: tuple[str, ...]) -> IO[str] | None:
    """The open, locked file; None where its holder started this process to work under the lock."""
    try:
        import fcntl  # here, because Windows lacks it but can count and plan
    except ImportError as error:
        raise OSError(f"a run must lock its folder, {folder}, which Windows cannot do: use Linux or WSL") from error

    holder, theirs = "", None
    for _ in range(10):  # `in_use` holds the lock for a moment; a leaving holder removes lock, mark and folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            if folder.is_file():
                raise  # else it existed, and a leaving holder has removed it since
        with suppress(FileNotFoundError):
            try:
                _check_owner(folder, names)
            except ValueError as error:
                theirs = error
                time.sleep(0.05)
                continue
            theirs = None
            _mark(folder)
            file = _opened(path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    _mark(folder)  # a leaving holder may have removed it
                    return file
            except BlockingIOError:
                holder = file.read()
            except OSError as error:  # as on some network file systems
                file.close()
                why = f"a run must lock its folder, which its disk does not allow ({error.strerror}): choose another"
                raise OSError(error.errno, why, str(folder)) from error
            file.close()
            if holder and holder == os.environ.get(PARENT):
                return None
        time.sleep(0.05)
    raise theirs or InUse(
        f"{folder} is in use by {holder or 'another process'}: wait for it or end it; a run has only one writer"
    )


def in_use(folder: Path) -> bool:
    """Whether a process holds the lock of a run's folder."""
    import fcntl

    try:
        with _opened(folder / "lock", os.O_RDONLY) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
