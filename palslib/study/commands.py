"""The commands of the study: classes of settings with `run`, as in `palslib/__main__.py`."""

import json
import shutil
from typing import Annotated, Literal

from pydantic import Field
from tyro.conf import Positional

from palslib.common.names import check_name
from palslib.common.places import runs_folder
from palslib.common.settings import File, Names, command

_Count = Annotated[int, Field(ge=1, le=10_000_000)]


@command
class Adapters:
    """Trains adapters for tasks one by one on a frozen BERT, then removes those of one span of layers at a time."""

    record: Positional[File]
    """The JSON file to write."""
    tasks: Names
    """Tasks, in the order of training."""
    folder: File
    """Folder of the tasks' runs; when the command is called again, finished runs are not repeated."""
    method: str = "houlsby-64"
    """A method that trains no parameters shared by tasks."""
    rows: _Count | None = None
    """The most dev rows of each task to use in the evaluations without adapters; None: all."""
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Epochs for each task, each followed by an evaluation; the weights with the best dev score are kept."""
    epoch_steps: _Count | None = None
    """The most steps in an epoch; None: one pass over the task's data."""
    start: str | None = None
    """A folder of weights with earlier tasks, to start from."""
    options: dict = Field(default_factory=dict)
    """Other settings of `train`, which replace those of the adapters report: learning_rate=1e-3 seed=1."""

    def __post_init__(self):
        from palslib.records import check_place

        if twice := set(vars(self)) & set(self.options):
            raise ValueError(f"{min(twice)} has its own flag: give it there, not among the options")
        check_place(self.record, "spans")

    def run(self) -> None:
        from palslib.records import write_record
        from palslib.study.analysis.adapter_removal import ablate

        flags = {name: value for name, value in vars(self).items() if name not in ("record", "options")}
        record = ablate(**flags, **self.options)
        write_record(self.record, record)
        best = {run["config"]["tasks"][0]: run["results"]["best"]["dev_average"] for run in record["runs"]}
        print(json.dumps({"record": str(self.record), "dev_average": best}))


@command
class Benchmark:
    """Measures the speed of training and evaluation, prints and records it, and draws the figure `benchmark`."""

    record: File | None = None
    """The file of the record; None: runs/benchmark/MACHINE.json."""
    draw: File | None = None
    """Measures nothing; prints and draws this record instead."""
    quick: bool = False
    """Use a tiny model and few rounds, only to check that the benchmark works."""
    parts: Names = ()
    """Measure only these parts (`PARTS` in palslib/study/benchmark/parts.py), and draw no figure: step evaluation."""
    adapters_python: File | None = None
    """A Python that has the package `adapters` 1.3, to compare its adapters with ours; None: they are left out."""

    def __post_init__(self):  # else an error would only be found after a quarter of an hour
        from palslib.records import check_place

        if self.adapters_python and not shutil.which(self.adapters_python):
            raise FileNotFoundError(f"--adapters-python: {self.adapters_python} is not a program")
        if self.draw and not self.draw.is_file():
            raise FileNotFoundError(f"--draw: there is no file {self.draw}")
        if self.draw and (others := {k: v for k, v in vars(self).items() if v and k != "draw"}):
            raise ValueError(f"--draw measures nothing, so it takes no --{next(iter(others)).replace('_', '-')}")
        if self.record:
            check_place(self.record, "parts")
        if self.parts:
            from palslib.study.benchmark.parts import PARTS

            for part in self.parts:
                check_name("part of the benchmark", part, PARTS)

    def run(self) -> None:
        from palslib.study.benchmark.parts import benchmark

        benchmark(**vars(self))


@command
class Heads:
    """Writes a record of all attention heads of one model: attention statistics, and dev scores without the heads."""

    folder: Positional[File]
    """A folder with a saved model."""
    out: Positional[File]
    """The JSON file to write."""
    data: str = "synthetic"
    """Where the dev examples come from, as `train` takes it."""
    tasks: Names = ("sst2",)
    """Tasks for which heads are removed."""
    own: dict = Field(default_factory=dict)
    """Data files of your own tasks: mood=mood.csv."""
    rows: _Count = 500
    """The most dev rows of each task to use in the evaluations without heads."""
    texts: _Count = 4
    """Dev examples of every task for the attention maps."""
    precision: Literal["float32", "bf16"] = "float32"
    """Precision of the evaluations."""

    def __post_init__(self):
        from palslib.records import check_place

        check_place(self.out, "removal")

    def run(self) -> None:
        from palslib.records import write_record
        from palslib.study.analysis.head_table import inspect

        write_record(self.out, inspect(**{name: value for name, value in vars(self).items() if name != "out"}))
        print(json.dumps({"record": str(self.out)}))


@command
class Reproduce:
    """Runs the notebooks headless, one after the other, and prints a table with the time and headline of each."""

    notebooks: str | None = None
    """Only these notebooks, by number or name: 01,04."""
    parameters: dict = Field(default_factory=dict)
    """Parameters of each notebook: steps=100."""
    out: File | None = None
    """Folder of the executed copies; None: runs/notebooks."""
    record: File | None = None
    """A JSON file for the seconds and the headline of each notebook."""

    def __post_init__(self):
        from palslib.records import check_place

        if self.record:
            check_place(self.record, "notebooks")
        self.run(only_check=True)

    def run(self, only_check: bool = False) -> int:
        from palslib.study.reproduce import check, reproduce

        out = self.out or runs_folder() / "notebooks"
        paths = check(self.notebooks, self.parameters, out)
        return 0 if only_check else reproduce(paths, self.parameters, out, self.record)
