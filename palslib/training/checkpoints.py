"""Checkpoints of a run: one file each, written whole or not at all, and verified before use.

A checkpoint is the run's state: plain values, tensors, and what it belongs to (the config's key, the hashes of its
inputs). `torch.save` writes a zip file, whose CRC-32 of every part shows damage. The two newest checkpoints are kept: if
the newest is damaged, a run resumes from the one before.
"""

import os
import zipfile
from pathlib import Path
from pickle import UnpicklingError

import torch

from palslib.common.files import atomic_write

NEWEST, BEFORE = "checkpoint.pt", "checkpoint.before.pt"


def save(folder: Path, state: dict) -> None:
    """Writes the next checkpoint."""
    with atomic_write(folder / NEWEST) as temporary:
        torch.save(state, temporary)
        if (folder / NEWEST).exists():
            os.replace(folder / NEWEST, folder / BEFORE)


def load(folder: Path) -> tuple[dict | None, list[str]]:
    """The state in the newest undamaged checkpoint (None if there is none), and a sentence on each damaged one, which
    is renamed."""
    said = []
    for path in (folder / NEWEST, folder / BEFORE):
        if not path.exists():
            continue
        try:
            with zipfile.ZipFile(path) as file:
                if part := file.testzip():
                    raise zipfile.BadZipFile(f"the checksum of {part} is wrong")
            return torch.load(path, map_location="cpu", weights_only=True), said
        except (zipfile.BadZipFile, UnpicklingError, RuntimeError, EOFError) as error:
            said.append(f"{path.name} is damaged ({error}): kept as {path.name}.damaged")
            os.replace(path, f"{path}.damaged")
    return None, said


def remove(folder: Path) -> None:
    """Removes all checkpoints, once the run has its record."""
    for path in folder.glob("checkpoint.*pt*"):
        path.unlink()
