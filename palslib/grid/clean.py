"""The weights and checkpoints of finished runs, which can be removed; records and predictions stay."""

from pathlib import Path

from palslib.common.lock import MARK, RUN_FILES
from palslib.common.reading import read_object

WEIGHTS = RUN_FILES[:3]
"""What may be removed of a finished run: its checkpoint, the best and the last weights, and what a killed writer left
of them (but not what was set aside)."""


def finished_runs(folder: Path) -> dict[Path, list[Path]]:
    """The folder of each finished run within a folder -> what may be removed there. Raises ValueError where there is no
    run: only folders with our mark are looked into, and no link is followed."""
    marks = sorted(folder.rglob(MARK))
    if not marks:
        raise ValueError(f"{folder} holds no run of palslib ({MARK} is missing): nothing there is touched")
    records = {mark.parent: mark.with_name("record.json") for mark in marks}
    runs = [run for run, file in records.items() if file.is_file() and read_object(file).get("status") == "finished"]
    parts = {run: [path for path in sorted(run.iterdir()) if not path.is_symlink()] for run in runs}
    ours = {run: [path for path in paths if path.name.partition(".")[0] in WEIGHTS] for run, paths in parts.items()}
    return {run: [path for path in paths if ".aside-" not in path.name] for run, paths in ours.items()}


def megabytes(path: Path) -> float:
    """The size of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir()) / 1e6
