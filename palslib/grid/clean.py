"""The weights and checkpoints of finished runs, which can be removed; records and predictions stay."""

import re
from pathlib import Path

from palslib.common.files import remove
from palslib.common.lock import MARK
from palslib.common.reading import read_object
from palslib.common.sealed import MANIFEST, sealed_files

_WEIGHTS = re.compile(r"(checkpoint(\.old|\.damaged)?|best|last)(\.[0-9a-f]{16}\.(tmp|old))?")
"""What may be removed of a finished run: its checkpoint, the best and the last weights, and what a killed writer left
of them (but not what was set aside)."""


def finished_runs(folder: Path) -> dict[Path, list[Path]]:
    """The folder of each finished run within a folder -> what may be removed there. Only folders with our mark are
    searched, and no link is followed. Raises ValueError where there is no run."""
    marks = sorted(folder.rglob(MARK))
    if not marks:
        raise ValueError(f"{folder} contains no run of palslib ({MARK} is missing): nothing was removed")
    records = {mark.parent: mark.with_name("record.json") for mark in marks}
    runs = [run for run, file in records.items() if file.is_file() and read_object(file).get("status") == "finished"]
    ours = {run: filter(lambda path: _WEIGHTS.fullmatch(path.name), sorted(run.iterdir())) for run in runs}
    return {run: [p for p in paths if p.is_dir() and not p.is_symlink()] for run, paths in ours.items()}


def remove_weights(part: Path) -> list[str]:
    """Removes one of these parts; returns the names of the files there that palslib did not write, which stay."""
    written = ("run.json", "tensors.bin") if part.name.startswith("checkpoint") else sealed_files(part)
    ours = {*written, "README.md", MANIFEST}
    there = list(part.iterdir()) if part.suffix != ".tmp" else []
    others = sorted(path.name for path in there if path.name not in ours)
    for path in [path for path in there if path.name in ours] if others else [part]:
        remove(path)
    return others


def megabytes(path: Path) -> float:
    """The size of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir()) / 1e6
