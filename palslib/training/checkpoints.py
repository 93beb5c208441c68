"""Checkpoints of a run: one file each, written whole or not at all, and verified before use.

A checkpoint is the run's state: plain values, tensors, and what it belongs to (the run's config, the hashes of its
inputs); `Run.state` and `Run.resume` in `loop.py` say what is in it. `torch.save` writes a zip file, whose CRC-32 of
every part shows damage. The two newest checkpoints are kept: if the newest is damaged, a run resumes from the one
before.
"""

import os
import zipfile
from pathlib import Path

import torch

from palslib.common.files import atomic_write

NEWEST, BEFORE = "checkpoint.pt", "checkpoint.before.pt"
DAMAGED = ".damaged"


def save(folder: Path, state: dict) -> None:
    """Writes the next checkpoint. Raises OSError where there is no room for it."""
    with atomic_write(folder / NEWEST) as temporary:
        try:
            torch.save(state, temporary)
        except RuntimeError as error:  # torch's error for a full disk
            raise OSError(f"{folder / NEWEST}: not saved, is the disk full? ({error})") from error
        if (folder / NEWEST).exists():
            os.replace(folder / NEWEST, folder / BEFORE)  # a run that is killed now resumes from this one


def newest(folder: Path) -> tuple[Path | None, list[str]]:
    """The newest undamaged checkpoint (None if there is none), and a sentence on each damaged one, which is renamed."""
    damaged = []
    for path in (folder / NEWEST, folder / BEFORE):
        if not path.exists():
            continue
        try:
            with zipfile.ZipFile(path) as file:
                if part := file.testzip():
                    raise zipfile.BadZipFile(f"the checksum of {part} is wrong")
            torch.load(path, "meta", weights_only=True)  # without the tensors, which are whole
        except (OSError, MemoryError):  # nothing is known of the file: another try may read it
            raise
        except Exception as error:  # zipfile and torch have many for a file that is not what it was
            damaged.append(f"{path.name} is damaged ({error}): kept as {path.name}{DAMAGED}")
            os.replace(path, f"{path}{DAMAGED}")
        else:
            return path, damaged
    return None, damaged


def remove(folder: Path) -> None:
    """Removes all checkpoints, once the run has its record: the newest last, so that none resumes from an older one."""
    for name in (BEFORE, NEWEST):
        for path in (folder / f"{name}{DAMAGED}", folder / name):
            if path.exists():  # an unlink fails where the disk is read-only, also of a file that is not there
                path.unlink(missing_ok=True)  # several processes remove them
