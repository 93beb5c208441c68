"""The lock of a run's folder, so that a run has one writer."""

import os
import platform
import secrets
import time
from collections.abc import Iterator
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
        raise InUse(f"{self.folder} was deleted or taken over while the run was at it; the same call begins anew")


@contextmanager
def run_lock(folder: Path, beside: bool = False) -> Iterator[Lock]:
    """Holds the lock of a run's folder. Raises InUse, naming the folder and the holder, if another process has it.

    The lock is `flock`, not the mere existence of a file, because the kernel releases it when the last process that
    holds it ends, for whatever reason: a killed run or a lost machine leaves no lock behind. (On NFS, from version 4
    on, it also holds between machines.) A process that the holder started with `PARENT` set may enter under its lock.

    Args:
        beside: puts the lock file beside the folder, which does not exist yet.
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
                    path.unlink()  # before the release, so that a waiting process sees it and makes a new file
            file.close()
            if empty and not beside:
                with suppress(OSError):  # the folder is no longer empty
                    folder.rmdir()


def _locked(path: Path, folder: Path) -> IO[str] | None:
    """The open, locked file; None where its holder started this process to work under the lock."""
    import fcntl  # here, because Windows lacks it but can count and plan

    holder = ""
    for _ in range(10):  # `in_use` holds the lock for a moment; a leaving holder removes file and folder
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            if path.parent.is_file():
                raise  # else it existed, and a leaving holder has removed it since
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
    """Whether a process holds the lock of a run's folder."""
    import fcntl

    try:
        with open(folder / "lock", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
