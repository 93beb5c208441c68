"""Files written whole or not at all, a digest that tells whether content is the same, and one writer for each folder."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = "palslib.lock"
"""The lock of a run's folder. It stays there, and marks the folder as one that palslib writes into."""


class InUse(ValueError):
    """Another process works in a run's folder."""


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yields a temporary file beside `path`; it replaces `path` once it is on the disk, or is removed after an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def digest(*parts: "str | bytes | Path | Mapping") -> str:
    """A hash of texts, files, and tensors by name; equal content has an equal one, on every machine."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with open(part, "rb") as file:
                found.update(hashlib.file_digest(file, "sha256").digest())
        elif isinstance(part, Mapping):
            for name, tensor in sorted(part.items()):
                found.update(name.encode())
                found.update(tensor.detach().cpu().float().numpy().tobytes())
        else:
            found.update(part if isinstance(part, bytes) else part.encode())
    return found.hexdigest()[:32]


@contextmanager
def one_writer(folder: Path) -> Iterator[FileLock]:
    """Holds the lock of a folder, which dies with its process; raises InUse where another process has it, and
    ValueError for a folder with files that palslib did not write."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / LOCK).is_file():
        raise ValueError(f"{folder} has files in it that palslib did not write: choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK, timeout=0) as lock:
            for left in folder.glob(".*.tmp"):  # of a killed writer
                left.unlink()
            yield lock
    except Timeout:
        raise InUse(f"{folder} is in use: wait for the other process or end it; a run has only one writer") from None


def in_use(folder: Path) -> bool:
    """Whether a process holds the lock of a run's folder."""
    if not (folder / LOCK).exists():  # which taking the lock would make
        return False
    try:
        with FileLock(folder / LOCK, timeout=0):
            return False
    except Timeout:
        return True
