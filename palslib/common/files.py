"""Files and folders written whole or not at all."""

import errno
import glob
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: str | Path, keep: bool = False) -> Iterator[Path]:
    """Writes a file or a folder whole or not at all.

    Yields an unguessable temporary path beside `path`. At the block's end, the file or folder that the block made
    there is flushed to the disk and replaces `path`; after an error it is removed and `path` stays as it was.
    A folder cannot replace another in one step: for a moment, only `path.old` holds the complete old folder.

        with atomic_write(folder / "checkpoint") as temporary:
            temporary.mkdir()
            ...

    Args:
        keep: keeps the folder that was there before as `path.old`.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        temporary.touch(exist_ok=False)
        usual = temporary.stat().st_mode & 0o777  # the usual permissions under the umask
        temporary.unlink()
        yield temporary
        for part in [*temporary.rglob("*"), temporary]:
            if ".safetensors" in (part.suffix, path.suffix) and part.is_file():  # made for their owner alone
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


def _flush(path: Path) -> None:
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


def remove_temporaries(path: Path) -> None:
    """Removes what a killed `atomic_write(path)` left. Only for a process that alone may write there (`run_lock`)."""
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.tmp"):
        remove(left)


def replace_folder(temporary: Path, target: Path, keep: bool = False) -> None:
    """Replaces a folder by a complete one: at every moment `target` or `target.old` is whole, also on the disk. With
    `keep`, the replaced folder stays at `target.old`, in place of the one there; else a folder of that name may be
    anybody's, and is set aside. Raises FileExistsError where `target` is a file."""
    old, there = target.with_name(target.name + ".old"), target.exists()
    if there:  # if not, an earlier call may have been killed between its renames, and only `old` exists
        if not target.is_dir():
            raise FileExistsError(errno.EEXIST, "a file is there, not a folder", str(target))
        if keep:
            remove(old)
        elif old.exists():
            set_aside([old])
        os.replace(target, old)
    os.replace(temporary, target)
    _flush(target.parent)
    if there and not keep:
        remove(old)


def restore(target: Path) -> None:
    """Moves the old folder back into place if writing a folder was killed between its two renames."""
    old = target.with_name(target.name + ".old")
    if not target.exists() and old.exists():
        os.replace(old, target)


def set_aside(paths: Iterable[Path]) -> str:
    """Renames those of these files and folders (all in one folder) that exist, and returns their new common ending.

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
        temporary.write_text(text, encoding="utf-8")
