"""Files and folders written whole or not at all."""

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LEFT = re.compile(r"\.[0-9a-f]{16}\.(tmp|old)")
"""The ending of a file that `atomic_write` makes beside another one. Nobody else makes such a name."""


@contextmanager
def atomic_write(path: str | Path, keep: bool = False) -> Iterator[Path]:
    """Writes a file or a folder whole or not at all.

    Yields an unguessable temporary path beside `path`. At the block's end, the file or folder that the block made
    there is flushed to the disk and replaces `path`; after an error it is removed and `path` stays as it was.
    A folder cannot replace another in one step: for a moment, the complete old folder has another name (`whole`).
    What a killed writer of the same path left is first removed. Raises FileExistsError where `path` is a link.

        with atomic_write(folder / "checkpoint") as temporary:
            temporary.mkdir()
            ...

    Args:
        keep: keeps the folder that was there before as `path.old`.
    """
    path = Path(path)
    if path.is_symlink():
        raise FileExistsError(errno.EEXIST, "a link is neither followed nor replaced; remove it first", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    with _writing(path):
        try:
            temporary.touch(exist_ok=False)
            usual = temporary.stat().st_mode & 0o777  # the usual permissions under the umask
            temporary.unlink()
            yield temporary
            for part in [*temporary.rglob("*"), temporary]:
                if part.is_symlink():  # copied from the earlier folder, as it is
                    continue
                if ".safetensors" in (part.suffix, path.suffix) and part.is_file():  # readable by their owner alone
                    part.chmod(usual)
                _flush(part)
            if temporary.is_dir():
                replace_folder(temporary, path, keep)
            else:
                os.replace(temporary, path)
                _flush(path.parent)  # so that the new name is on the disk too
        except OSError as error:
            if error.errno and error.filename is None:  # the error of a full disk names no file
                error.filename = str(path)
            raise
        finally:
            remove(temporary)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A block that writes `path` and holds a shared lock on its folder. A writer that gets this lock exclusively knows
    that no other writer is alive, and removes what killed ones left."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    number = os.open(path.parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # somebody else writes in this folder, or its file system has no locks
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            recover(path)
        with suppress(OSError):
            fcntl.flock(number, fcntl.LOCK_SH)
        yield
    finally:
        os.close(number)


def _flush(path: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder, and flushes only what is open for writing
        return
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def remove(path: Path) -> None:
    """Removes a file, or a folder with its contents, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _left(path: Path) -> list[Path]:
    """What writers of `path` made beside it and have not removed (yet)."""
    if not path.parent.is_dir():
        return []
    beside = [other for other in path.parent.iterdir() if other.name.startswith(path.name)]
    return sorted(other for other in beside if _LEFT.fullmatch(other.name.removeprefix(path.name)))


def recover(path: Path) -> None:
    """Undoes a killed `atomic_write(path)`: the old folder gets its name back, and all else that it left is removed.
    Only for the one process that may write there (`run_lock`)."""
    for left in _left(path):
        if left.suffix == ".old" and not path.exists():
            os.replace(left, path)
        else:
            remove(left)


def whole(path: Path) -> Path:
    """The place of the complete folder: `path`, or the old folder where a writer is, or was killed, between its two
    renames."""
    old = [] if path.exists() else [left for left in _left(path) if left.suffix == ".old"]
    return old[-1] if old else path


def replace_folder(temporary: Path, target: Path, keep: bool = False) -> None:
    """Replaces a folder by a complete one: at every moment one of the two is whole, also on the disk (`whole`). With
    `keep`, the replaced folder stays at `target.old`, in place of the one there. Raises FileExistsError where `target`
    is a file."""
    old = target.with_name(target.name + ".old") if keep else temporary.with_suffix(".old")
    if there := target.exists():  # if not, an earlier call may have been killed between its renames
        if not target.is_dir():
            raise FileExistsError(errno.EEXIST, "a file has the name of a new folder; move it away", str(target))
        remove(old)
        os.replace(target, old)
    os.replace(temporary, target)
    _flush(target.parent)
    if there and not keep:
        remove(old)


def set_aside(paths: Iterable[Path]) -> str:
    """Renames whichever of these files and folders (all in one folder) exist, and returns their new common ending.

    Files under such names are never read or removed again.
    """
    paths = [path for path in paths if path.exists()]
    number = 1
    while any(path.with_name(f"{path.name}.aside-{number}").exists() for path in paths):
        number += 1
    for path in paths:
        os.replace(path, path.with_name(f"{path.name}.aside-{number}"))
    return f".aside-{number}"


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
