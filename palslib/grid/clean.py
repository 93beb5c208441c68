"""The weights and checkpoints of finished runs, which can be removed; records and predictions stay."""

from collections.abc import Iterable
from pathlib import Path

from palslib.common.files import LOCK, InUse, in_use, one_writer
from palslib.common.reading import read_object

_WEIGHTS = ("last/model.safetensors", "best/model.safetensors", "checkpoint.pt", "checkpoint.before.pt")
"""What may be removed of a finished run."""


def weights(run: Path) -> list[Path]:
    """The files of a run's weights and checkpoints; none that a link leads to, as it may be another run's."""
    paths = [run.resolve() / name for name in _WEIGHTS]
    return [path for path in paths if path.is_file() and path.resolve() == path]


def finished_runs(folder: Path) -> dict[Path, float]:
    """The folders of finished runs within a folder -> the size of their weights in MB. Only folders with a run's lock
    are looked into. Raises ValueError naming a damaged record."""
    runs = [lock.parent for lock in sorted(folder.rglob(LOCK)) if lock.with_name("record.json").is_file()]
    runs = [run for run in runs if read_object(run / "record.json").get("status") == "finished" and weights(run)]
    return {run: sum(path.stat().st_size for path in weights(run)) / 1e6 for run in runs}


def remove_weights(runs: Iterable[Path]) -> None:
    """Removes the weights and checkpoints of runs. Raises InUse where a process works on one."""
    for run in runs:
        if in_use(run.parent):
            raise InUse(f"{run.parent} is in use: its next task starts from weights that are there")
        with one_writer(run):
            for path in weights(run):
                path.unlink()
