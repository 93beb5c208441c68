"""Files and folders written whole or not at all."""

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


def write_text(path: Path, text: str) -> None:
    """Writes a text file whole or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
