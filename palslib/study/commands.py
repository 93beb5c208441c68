"""The commands of the study: classes of settings with `run`, as in `palslib/__main__.py`."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from palslib.common.names import check_least
from palslib.common.places import runs_folder
from palslib.common.reading import check_place


@dataclass(frozen=True)
class Adapters:
    """Trains adapters for tasks one by one on a frozen BERT, then removes those of one span of layers at a time."""

    record: Positional[Path]
    """The JSON file to write."""
    tasks: tuple[str, ...]
    """Tasks, in the order of training."""
    folder: Path
    """Folder of the tasks' runs; when the command is called again, finished runs are not repeated."""
    method: str = "houlsby-64"
    """A method that trains no parameters shared by tasks."""
    rows: int | None = None
    """The most dev rows of each task to use in the evaluations without adapters; None: all."""
    epochs: int = 10
    """Epochs for each task, each followed by an evaluation; the weights with the best dev score are kept."""
    epoch_steps: int | None = None
    """The most steps in an epoch; None: one pass over the task's data."""
    start: str | None = None
    """A folder of weights with earlier tasks, to start from."""
    options: dict = field(default_factory=dict)
    """Other settings of `train`, which replace those of the adapters report: learning_rate=1e-3 seed=1."""

    def check(self) -> None:
        check_least(1, rows=self.rows, epochs=self.epochs, epoch_steps=self.epoch_steps)
        check_place(self.record, "spans")

    def run(self) -> None:
        from palslib.records import write_record
        from palslib.study.analysis.adapter_removal import ablate

        flags = {name: value for name, value in vars(self).items() if name not in ("record", "options")}
        record = ablate(**flags, **self.options)
        write_record(self.record, record)
        best = {run["config"]["tasks"][0]: run["results"]["best"]["dev_average"] for run in record["runs"]}
        print(json.dumps({"record": str(self.record), "dev_average": best}))


@dataclass(frozen=True)
class Benchmark:
    """Measures the speed of training and evaluation, prints and records it, and draws the figure `benchmark`."""

    record: Path | None = None
    """The file of the record; None: runs/benchmark/MACHINE.json."""
    quick: bool = False
    """Use a tiny model and few rounds, only to check that the benchmark works."""
    parts: tuple[Literal["step", "released", "evaluation", "start_up", "peers"], ...] = ()
    """Measure only these parts."""
    adapters_python: Path | None = None
    """A Python that has the package `adapters` 1.3, to compare its adapters with ours; None: they are left out."""

    def check(self) -> None:  # else an error would only be found after a quarter of an hour
        if self.adapters_python and not shutil.which(self.adapters_python):
            raise FileNotFoundError(f"--adapters-python: {self.adapters_python} is not a program")
        if self.record:
            check_place(self.record, "parts")

    def run(self) -> None:
        from palslib.study.benchmark.parts import benchmark

        benchmark(**vars(self))


@dataclass(frozen=True)
class Heads:
    """Writes a record of all attention heads of one model: attention statistics, and dev scores without the heads."""

    folder: Positional[Path]
    """A folder with a saved model."""
    out: Positional[Path]
    """The JSON file to write."""
    data: str = "synthetic"
    """Where the dev examples come from, as `train` takes it."""
    tasks: tuple[str, ...] = ("sst2",)
    """Tasks for which heads are removed."""
    own: dict = field(default_factory=dict)
    """Data files of your own tasks: mood=mood.csv."""
    rows: int = 500
    """The most dev rows of each task to use in the evaluations without heads."""
    texts: int = 4
    """Dev examples of every task for the attention maps; all tasks read them all."""
    precision: Literal["float32", "bf16"] = "float32"
    """Precision of the evaluations."""

    def check(self) -> None:
        check_least(1, rows=self.rows, texts=self.texts)
        check_place(self.out, "removal")

    def run(self) -> None:
        from palslib.records import write_record
        from palslib.study.analysis.head_table import inspect

        write_record(self.out, inspect(**{name: value for name, value in vars(self).items() if name != "out"}))
        print(json.dumps({"record": str(self.out)}))


@dataclass(frozen=True)
class Reproduce:
    """Runs the notebooks headless, one after the other, and prints a table with the time and headline of each."""

    notebooks: str | None = None
    """Only these notebooks, by number or name: 01,04."""
    parameters: dict = field(default_factory=dict)
    """Parameters of each notebook: steps=100."""
    out: Path | None = None
    """Folder of the executed copies; None: runs/notebooks."""
    record: Path | None = None
    """A JSON file for the seconds and the headline of each notebook."""

    def check(self) -> None:
        from palslib.study.reproduce import check

        if self.record:
            check_place(self.record, "notebooks")
        check(self.notebooks, self.parameters)

    def run(self) -> int:
        from palslib.study.reproduce import check, reproduce

        paths = check(self.notebooks, self.parameters)
        return reproduce(paths, self.parameters, self.out or runs_folder() / "notebooks", self.record)
