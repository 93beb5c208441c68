"""One run, one writer: the lock of a run's folder."""

import os
import platform
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

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
