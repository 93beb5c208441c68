"""The weights and checkpoints of finished runs, which can be removed; records and predictions stay."""

from pathlib import Path

from palslib.common.files import remove
from palslib.common.lock import MARK, RUN_FILES, run_lock
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
    return {
        run: [part for part in sorted(run.iterdir()) if _is_weights(part)]
        for run, record in records.items()
        if record.is_file() and read_object(record).get("status") == "finished"
    }


def _is_weights(path: Path) -> bool:
    return path.name.partition(".")[0] in WEIGHTS and ".aside-" not in path.name and not path.is_symlink()


def megabytes(path: Path) -> float:
    """The size of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir()) / 1e6


def remove_weights(run: Path, parts: list[Path]) -> None:
    """Removes these parts of a run. Raises InUse where a process works in its folder."""
    with run_lock(run):
        for part in parts:
            remove(part)
