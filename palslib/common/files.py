"""Files written whole or not at all, digests that show whether they are still the same, and one writer a folder."""

import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from filelock import FileLock, Timeout

from palslib.common.reading import read_object

LOCK = "palslib.lock"
"""The lock of a run's folder, an empty file. It stays there, and marks the folder as one that palslib writes into."""
TEMPORARY = ".palslib-tmp"
"""The ending of what is being written."""
LIST = "palslib.json"
"""The file in a saved folder that lists the folder's other files with their digests, and says what they are."""


class InUse(ValueError):
    """Another process works in a run's folder, or the folder was deleted or taken over."""


def _flush(path: Path) -> None:
    """Waits until a file is on the disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yields a temporary file beside `path`, which replaces `path` at the end, or is removed after an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY}")
    try:
        temporary.touch()
        mode = (path if path.exists() else temporary).stat().st_mode
        yield temporary
        temporary.chmod(stat.S_IMODE(mode))  # safetensors writes files that only their owner can read
        _flush(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def clear(folder: Path, name: str = "") -> None:
    """Removes what killed writers were writing in a folder, of files whose names begin with `name`."""
    for left in folder.glob(f".{name}*{TEMPORARY}"):
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def digest(*parts: str | Path | Mapping) -> str:
    """A hash of texts, files, and tensors by name; equal content has an equal one, on every machine."""
    content = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with open(part, "rb") as file:
                content.update(hashlib.file_digest(file, "sha256").digest())
        elif isinstance(part, Mapping):
            for name, tensor in sorted(part.items()):
                content.update(name.encode())
                content.update(tensor.detach().cpu().float().numpy().tobytes())
        else:
            content.update(part.encode())
    return content.hexdigest()[:32]


@contextmanager
def saved_files(folder: Path, description: dict) -> Iterator[Path]:
    """Yields a new folder to write files into. At the end they replace the files of an earlier save in `folder`, and no
    others; `description` says what they are. After an error `folder` is as before.

    The first file that is moved to its place is the new list: if the process is killed before the last one is,
    `check_files` moves the others. Raises FileExistsError for files of these names that were not saved by palslib,
    ValueError for a list that was not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    clear(folder)
    earlier = {LIST, *read_list(folder)["files"]} if (folder / LIST).exists() else set()
    with TemporaryDirectory(prefix=".", suffix=TEMPORARY, dir=folder) as temporary:
        yield (new := Path(temporary))
        listed = description | {"files": {path.name: digest(path) for path in sorted(new.iterdir()) if path.is_file()}}
        write_text(new / LIST, json.dumps(listed | {"digest": digest(json.dumps(listed))}, indent=1))
        names = [LIST, *listed["files"]]
        if theirs := [name for name in names if name not in earlier and os.path.lexists(folder / name)]:
            raise FileExistsError(f"{folder} holds {theirs[0]}, which palslib did not write: choose another folder")
        for name in names:
            if (folder / name).exists():
                shutil.copymode(folder / name, new / name)
            _flush(new / name)
        for name in names:
            os.replace(new / name, folder / name)
        for name in earlier - {*names}:
            (folder / name).unlink(missing_ok=True)


def read_list(folder: Path) -> dict:
    """What the list of a saved folder says. Raises ValueError where it is damaged, FileNotFoundError where there is
    none."""
    listed = read_object(folder / LIST)
    if digest(json.dumps({k: v for k, v in listed.items() if k != "digest"})) != listed.get("digest"):
        raise ValueError(f"{folder / LIST} is damaged, or was not written by this version of palslib")
    return listed


def check_files(folder: Path) -> dict:
    """The same, once the files are known to be those that were saved; what a killed save had not yet moved is moved.
    Raises ValueError naming a file that is not."""
    listed = read_list(folder)
    for name, known in listed["files"].items():
        places = [folder / name, *folder.glob(f".*{TEMPORARY}/{name}")]
        if not (there := [path for path in places if path.is_file() and digest(path) == known]):
            raise ValueError(f"{folder / name} is missing, damaged, or not of the save that {LIST} lists: save again")
        if there[0] != folder / name:
            os.replace(there[0], folder / name)
    return listed


def discard(folder: Path) -> None:
    """Removes the files of a save, and no others."""
    if (folder / LIST).is_file():
        for name in (*read_list(folder)["files"], LIST):
            (folder / name).unlink(missing_ok=True)


@contextmanager
def one_writer(folder: Path) -> Iterator[Callable[[], None]]:
    """Holds the lock of a folder, which is released when its process ends, for whatever reason.

    Yields a function that raises InUse where the folder was deleted or taken over since. Raises InUse where another
    process has the lock, and ValueError for a folder with files that palslib did not write. (On a file system without
    `flock`, of which filelock warns, no lock stays there: a run can then not be resumed.)
    """
    path = folder / LOCK
    if folder.is_dir() and any(folder.iterdir()) and not (path.is_file() and path.stat().st_size == 0):
        raise ValueError(f"{folder} has files in it that palslib did not write: choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(path, timeout=0.5).acquire()  # `in_use` holds it for a moment
    except Timeout:
        raise InUse(f"{folder} is in use: wait for the other process or end it; a run has only one writer") from None
    with lock:
        locked = path.stat()

        def check() -> None:
            if not (path.exists() and os.path.samestat(locked, path.stat())):
                raise InUse(f"{folder} was deleted or taken over during the run; repeat the call to begin anew")

        clear(folder)
        yield check


def in_use(folder: Path) -> bool:
    """Whether a process holds the lock of a run's folder."""
    if not (folder / LOCK).is_file():
        return False
    try:
        with FileLock(folder / LOCK, timeout=0):
            return False
    except Timeout:
        return True
