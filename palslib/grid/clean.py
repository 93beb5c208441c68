"""The weights and checkpoints of finished runs, which can be removed; records and predictions stay."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from palslib.common.files import LOCK, one_writer
from palslib.common.reading import read_object

_WEIGHTS = ("checkpoint.*pt*", "best", "last")


def _weights(run: Path) -> list[Path]:
    return [path for pattern in _WEIGHTS for path in run.glob(pattern) if not path.is_symlink()]


def finished_runs(folder: Path) -> dict[Path, float]:
    """The folders of finished runs within a folder -> the size of their weights in MB."""
    runs = [mark.parent for mark in sorted(folder.rglob(LOCK)) if mark.with_name("record.json").is_file()]
    runs = [run for run in runs if read_object(run / "record.json").get("status") == "finished" and _weights(run)]
    return {run: sum(f.stat().st_size for p in _weights(run) for f in [p, *p.rglob("*")]) / 1e6 for run in runs}


def remove_weights(runs: Iterable[Path]) -> None:
    """Removes the weights of runs."""
    for run in runs:
        with one_writer(run):
            for path in _weights(run):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
