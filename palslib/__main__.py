"""The command line: `python -m palslib COMMAND ...`, or `palslib COMMAND ...`.

Every setting is a flag; `--help` shows its default and its meaning, taken from the dataclass that declares it:
`plan.config.RunConfig` for `train` and `pretrain`, a class in this file for each other command. A call with wrong
arguments ends with status 2, and one that fails later with status 1, each with a message of one line. If there are
several processes, only the first one prints results.
"""

import itertools
import json
import os
import shlex
import shutil
import signal
import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from csv import QUOTE_ALL
from dataclasses import field, replace
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from palslib import __version__
from palslib.common.files import write_text
from palslib.common.names import check_name
from palslib.common.places import place, runs_folder
from palslib.common.processes import FIRST, end_with_launcher
from palslib.common.reading import read_object
from palslib.common.settings import Names, Number, settings
from palslib.plan.config import MOST_STEPS, PRESETS, RunConfig
from palslib.plan.flags import FlagParser, Positional, Positionals


class WrongCall(Exception):
    """A call that cannot run; its argument is the error that says why."""


@contextmanager
def wrong_call() -> Iterator[None]:
    """Within the block, which checks a call before anything runs, an error means that the call is wrong."""
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        raise WrongCall(error) from error


# ------------------------------------------------------------------------------------------------------- the commands


def train(given: RunConfig) -> None:
    """Trains and evaluates a model, and prints the run's key and dev average. CONFIG.json holds settings by name
    (also "preset"); it overrides --preset, and flags override both. If the run is killed, the same call
    resumes from the last checkpoint.

    Several processes, each with its own GPU or all on CPUs, share every batch; each draws its own dropout:

    accelerate launch --multi_gpu --num_processes 2 -m palslib train ...

    torchrun --standalone --nproc_per_node 2 -m palslib train ..."""
    from palslib.training.loop import train

    record = train(given)
    _say({"key": record["key"], "dev_average": record["results"]["last"]["dev_average"]})
    if FIRST and given.progress:  # on stderr, since a program may read the result on stdout
        first = [row["dev_average"] for row in record["history"] if row["step"] == 0]
        before = [f"{score:.1f} before the first step; " for score in first if score is not None]  # None: undefined
        load = f"palslib predict {shlex.quote(str(record.folder))} FILE.csv"
        then = "to predict, train into another folder with --keep last" if given.keep == "none" else load
        print("".join(before) + f"the run is in {record.folder}; next: {then}", file=sys.stderr)


def pretrain(given: RunConfig) -> None:
    """Pre-trains a backbone further, as a masked language model on the texts of tasks; its folder serves as a backbone
    (--backbone FOLDER). Settings are those of `train`; those of methods, heads and evaluations have no effect."""
    from palslib.training.pretraining import pretrain

    record = pretrain(given)
    _say({k: record[k] for k in ("key", "before", "after")})


@settings
class Predict:
    """The settings of `predict`."""

    model: Positional
    """The folder of a saved model or of a run (its last weights; RUN/best for the best), or a task's file."""
    files: Positionals
    """CSV, TSV, JSON Lines (each also .gz), Parquet or Excel files with the task's texts."""
    task: str | None = None
    """The task; may be left out if the model has only one."""
    text: Names = ()
    """The column of the text, or the two columns of a pair; none: as in training."""
    separator: str | None = None
    """The separator between the cells of a CSV or TSV (a tab: $'\\t'); None: as in training, or that of the ending."""
    quoted: bool | None = None
    """Whether quotation marks enclose cells; None: as in training."""
    encoding: str | None = None
    """The files' encoding, such as cp1252; None: as in training."""
    backbone: str = "minilm"
    """For a task's file: the backbone that it was trained on, or the folder of the saved model."""
    output: Path | None = None
    """The CSV file to write; None: standard output."""
    force: bool = False
    """Replace the output file if there is one."""
    progress: bool = True
    """Show a progress bar."""

    def opened(self) -> tuple:
        """The model, and the settings that are options of its methods. A wrong call ends before a model is loaded."""
        with wrong_call():
            from palslib.data.sources import locate

            for file in self.files:
                locate(place(file))
                if self.files.count(file) > 1:
                    raise ValueError(f"{file} is given twice")
            there = self.output and os.path.lexists(self.output)
            plain = there and self.force and self.output.is_file() and not self.output.is_symlink()
            if self.output and (self.output.suffix.lower() != ".csv" or (there and not plain)):
                raise ValueError(f"--output {self.output}: give a new file that ends in .csv; --force replaces a file")
        import torch

        from palslib.training.trained import open_model

        model = open_model(self.model, self.backbone).to("cuda" if torch.cuda.is_available() else "cpu")
        ours = ("model", "files", "backbone", "output", "force")
        return model, {name: value for name, value in vars(self).items() if name not in ours}

    def write(self, csv: str, screen: str) -> None:
        """Writes the text `csv` to the output file, if there is one, else prints the text `screen`."""
        write_text(place(self.output), csv) if self.output else print(screen, end="", flush=True)


def predict(given: Predict) -> None:
    """Predicts the rows of files, labelled or not, and writes CSV: the file's own columns, then `predicted` (the label
    or the score) and the probability of each label, `p(label)`."""
    model, options = given.opened()
    import pandas as pd

    tables = {file: model.predict_file(file, **options) for file in given.files}
    for file, table in tables.items():
        if len(tables) > 1 and (twice := table.columns[table.columns.duplicated()]).size:
            raise ValueError(f"{file} has two columns {twice[0]!r}: rename one, or predict this file by itself")
    table = pd.concat(tables, names=["file"]).reset_index("file", allow_duplicates=True)
    table = table.iloc[:, 0 if len(tables) > 1 else 1 :]  # the name of a single file is left out
    csv = table.to_csv(index=False)
    if "\r" in csv:  # ends a row for many readers, and pandas does not put it in quotation marks by itself
        csv = table.to_csv(index=False, quoting=QUOTE_ALL)
    given.write(csv, csv)


@settings
class Evaluate(Predict):
    """The settings of `evaluate`."""

    label: str | None = None
    """The column of the label; None: as in training."""
    splits: Names = ()
    """Splits of each file, to be scored separately (train validation test); none: all rows of a file. FILES may also be
    names with {split}, or other data that `train` takes (glue)."""
    skip_unlabelled: bool | None = None
    """Leave out rows without a label, which would otherwise be an error."""


def evaluate(given: Evaluate) -> None:
    """Scores a model on files or splits, side by side: the task's metrics and, for classes, macro F1, precision and
    recall of each class, in percent."""
    model, options = given.opened()
    table = model.evaluate_file(*given.files, **options)
    shown = table.map(lambda value: f"{value:.1f}" if isinstance(value, float) else f"{value:,}")
    given.write(table.to_csv(), f"{shown.to_string()}\n")


_Count = Annotated[int, Field(ge=1, le=MOST_STEPS)]


@settings
class Adapters:
    """The settings of `adapters`."""

    record: Positional
    """The JSON file to write."""
    tasks: Names
    """Tasks, in the order of training."""
    folder: Path
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
    options: dict = field(default_factory=dict)
    """Other settings of `train`, which replace those of the adapters report: learning_rate=1e-3 seed=1."""

    def __post_init__(self):
        if twice := set(vars(self)) & set(self.options):
            raise ValueError(f"{min(twice)} has its own flag: give it there, not among the options")


def adapters(given: Adapters) -> None:
    """Trains adapters for tasks one by one on a frozen BERT, then removes those of one span of layers at a time."""
    from palslib.records import check_place, write_record

    with wrong_call():
        check_place(given.record, "spans")
    from palslib.study.analysis.adapter_removal import ablate

    flags = {name: value for name, value in vars(given).items() if name not in ("record", "options")}
    record = ablate(**flags, **given.options)
    write_record(given.record, record)
    best = {run["config"]["tasks"][0]: run["results"]["best"]["dev_average"] for run in record["runs"]}
    _say({"record": str(given.record), "dev_average": best})


@settings
class Sweep:
    """The settings of `sweep`."""

    grid: Positional
    """A JSON file with base, product and runs (see `palslib.Grid`), or the name of one in palslib/grid/plans: `table3`
    (the paper's runs, BERT-base on a GPU), `main` and the others in figures/records/FIRST_STUDY.md."""
    base: dict = field(default_factory=dict)
    """Settings of all runs, which replace those of the grid's base: steps=100 data=synthetic."""
    recorded: Path | None = None
    """Leaves out the runs that the records in this folder or its subfolders (figures/records) show as finished."""
    folder: Path | None = None
    """Folder of the runs; None: runs/sweeps/ and the grid's name."""
    collect: Path | None = None
    """Runs nothing; copies records and predictions of the finished runs into this folder, each under its run's name."""
    slots: Annotated[int, Field(ge=1, le=10_000)] = 2
    """Runs (or Slurm jobs) at the same time."""
    limit: Annotated[Number, Field(gt=0, le=1_000_000_000)] | None = None
    """Seconds that one attempt at a run may take."""
    retries: Annotated[int, Field(ge=0, le=1000)] = 1
    """Further attempts at a failed run, each from its checkpoint."""
    command: str | None = None
    """The command that trains a CONFIG.json. None: `python -m palslib train`, or, if a run has a method of your own,
    `python FILE train`, where FILE is the program that called this and passes its words on to palslib."""


def sweep(given: Sweep) -> int:
    """Trains a grid of runs, each in its own process. Called again, or twice at the same time, it does only the missing
    runs. The exit status is 0 if every run finished, else 1."""
    with wrong_call():
        from palslib.grid.sweep import Grid, collect, summary, sweep
        from palslib.records import read_records

        folder = (given.folder or runs_folder() / "sweeps" / given.grid.stem).resolve()
        grid = Grid.named(given.grid)
        configs = replace(grid, base=grid.base | given.base).configs(folder)
        if vain := sorted(set(given.base) & {*grid.product, *itertools.chain(*grid.runs)}):
            raise ValueError(f"--base: {vain[0]} is set by the grid's product or runs, which override its base")
        if given.recorded:
            known = {run["key"]: run for run in read_records(given.recorded) if run["status"] == "finished"}
            every = len(configs)
            configs = [c for c in configs if c.key not in known]
            print(f"{every - len(configs)} of {every} runs are recorded in {given.recorded}")
            if not configs:
                return 0
        if given.collect:
            print(f"{collect(configs, given.collect)} of {len(configs)} runs copied to {given.collect}")
            return 0
        own = any(not type(config.base_method()).__module__.startswith("palslib.") for config in configs)
        file = getattr(sys.modules["__main__"], "__file__", None) if own else None  # none in a notebook
        command = [sys.executable, *([str(Path(file).resolve())] if file else ["-m", "palslib"]), "train"]
        if given.command is not None and not (command := shlex.split(given.command)):
            raise ValueError("--command is empty: give the command that trains a CONFIG.json")
    rows = sweep(configs, given.slots, command, given.limit, given.retries)
    print(f"{summary(configs, rows)}, in {folder}")
    return int(any(status != "finished" for status in rows.values()))


@settings
class Clean:
    """The settings of `clean`."""

    folder: Path | None = None
    """The folder whose runs are shown, with its subfolders; None: runs/."""
    yes: bool = False
    """Remove without asking."""


def clean(given: Clean) -> None:
    """Shows finished runs and their sizes, asks whether to go on, and removes their weights and checkpoints. Records
    and predictions stay, so that tables and sweeps still know the runs; what palslib did not write stays too."""
    with wrong_call():
        from palslib.grid.clean import finished_runs, remove_weights

        folder = given.folder or runs_folder()
        runs = finished_runs(folder)
    for run, megabytes in runs.items():
        print(f"{megabytes:10,.1f} MB  {run.relative_to(folder)}")
    if runs and (given.yes or input("Remove these weights? Records stay. [y/N] ").strip().lower() in ("y", "yes")):
        remove_weights(runs)
        print("removed")


@settings
class Benchmark:
    """The settings of `benchmark`."""

    record: Path | None = None
    """The file of the record; None: runs/benchmark/MACHINE.json."""
    draw: Path | None = None
    """Measures nothing; prints and draws this record instead."""
    quick: bool = False
    """Use a tiny model and few rounds, only to check that the benchmark works."""
    parts: Names = ()
    """Measure only these parts (`PARTS` in palslib/study/benchmark/parts.py), and draw no figure: mixed_tasks."""
    adapters_python: Path | None = None
    """A Python that has the package `adapters` 1.3, to compare its adapters with ours; None: they are left out."""


def benchmark(given: Benchmark) -> None:
    """Measures the speed of training and evaluation, prints and records it, and draws the figure `benchmark`."""
    from palslib.records import check_place

    with wrong_call():  # else an error would only be found after a quarter of an hour
        if given.adapters_python and not shutil.which(given.adapters_python):
            raise FileNotFoundError(f"--adapters-python: {given.adapters_python} is not a program")
        if given.draw and not given.draw.is_file():
            raise FileNotFoundError(f"--draw: there is no file {given.draw}")
        if given.draw and (others := {k: v for k, v in vars(given).items() if v and k != "draw"}):
            raise ValueError(f"--draw measures nothing, so it takes no --{next(iter(others)).replace('_', '-')}")
        if given.record:
            check_place(given.record, "parts")
    from palslib.study.benchmark.parts import PARTS, benchmark

    with wrong_call():
        for part in given.parts:
            check_name("part of the benchmark", part, PARTS)
    benchmark(**vars(given))


@settings
class Reproduce:
    """The settings of `reproduce`."""

    notebooks: str | None = None
    """Only these notebooks, by number or name: 01,04."""
    parameters: dict = field(default_factory=dict)
    """Parameters of each notebook: steps=100."""
    out: Path | None = None
    """Folder of the executed copies; None: runs/notebooks."""
    record: Path | None = None
    """A JSON file for the seconds, the memory and the disk space that each notebook took."""


def reproduce(given: Reproduce) -> int:
    """Runs the notebooks headless, one after the other, and prints a table with the time and headline of each."""
    with wrong_call():
        from palslib.records import check_place
        from palslib.study.reproduce import check, reproduce

        if given.record:
            check_place(given.record, "notebooks")
        out = given.out or runs_folder() / "notebooks"
        paths = check(given.notebooks, given.parameters, out)
    return reproduce(paths, given.parameters, out, given.record)


@settings
class Heads:
    """The settings of `heads`."""

    folder: Positional
    """A folder with a saved model."""
    out: Positional
    """The JSON file to write."""
    data: str = "synthetic"
    """Where the dev examples come from, as `train` takes it."""
    tasks: Names = ("sst2",)
    """Tasks for which heads are removed."""
    own: dict = field(default_factory=dict)
    """Data files of your own tasks: mood=mood.csv."""
    rows: _Count = 500
    """The most dev rows of each task to use in the evaluations without heads."""
    texts: _Count = 4
    """Dev examples of every task for the attention maps."""
    precision: Literal["float32", "bf16"] = "float32"
    """Precision of the evaluations."""


def heads(given: Heads) -> None:
    """Writes a record of all attention heads of one model: attention statistics, and dev scores without the heads."""
    from palslib.records import check_place, write_record

    with wrong_call():
        check_place(given.out, "removal")
    from palslib.study.analysis.head_table import inspect

    write_record(given.out, inspect(**{name: value for name, value in vars(given).items() if name != "out"}))
    _say({"record": str(given.out)})


_ALL = (train, predict, evaluate, pretrain, adapters, sweep, clean, benchmark, reproduce, heads)
COMMANDS = {command.__name__: command for command in _ALL}
"""Name -> a function of a command's settings that returns the exit status, where None is 0; its docstring is the help.
The function itself does the slow imports, so that a wrong call ends before them."""


# ------------------------------------------------------------------------------------------------------ from a terminal

GROUPS = {"method": "what is trained", "tasks": "data", "schedule": "training", "evaluate_every": "evaluation, output"}
"""In `train --help`: the first field of each group of settings -> the group's title."""


def _parse(command: str, words: list[str]):
    """The settings that these words give a command. Raises ValueError or OSError; ends the process after `--help`."""
    function, values, path = COMMANDS[command], {}, None
    kind, options = function.__annotations__["given"], {"prog": f"palslib {command}", "description": getdoc(function)}
    if kind is RunConfig:  # a file overrides the preset, and flags override both
        path = words[0] if words and not words[0].startswith("-") else None
        parser = ArgumentParser(add_help=False, allow_abbrev=False, argument_default=SUPPRESS)
        parser.add_argument("--preset", nargs="?", const="")
        preset, words = parser.parse_known_args(words[path is not None :])
        values = vars(preset) | (read_object(path) if path else {})
        usage = f"palslib {command} [CONFIG.json] [--preset {{{','.join(PRESETS)}}}] [FLAGS]"
        options |= {"groups": GROUPS, "usage": usage}
    if {"-h", "--help"} & set(words):
        if FIRST:
            defaults = vars(RunConfig.from_dict(values)) if values else {}
            print(FlagParser(kind, defaults=defaults, **options).format_help(), end="", flush=True)
        raise SystemExit(0)
    given = values | FlagParser(kind, **options).values(words)
    try:
        return RunConfig.from_dict(given) if kind is RunConfig else kind(**given)
    except ValueError:
        if path:  # the error names the file if the fault is in the file, and not in a flag
            RunConfig.from_file(path)
        raise


def _say(result: dict) -> None:
    if FIRST:  # one line, whatever the number of processes
        print(json.dumps(result))


def main(words: list[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    words = sys.argv[1:] if words is None else words
    name = words[0] if words else ""
    try:
        if name == "--version":
            print(f"palslib {__version__}", flush=True)
            return 0
        if not words or name in ("-h", "--help"):
            about = {name: " ".join(command.__doc__.split()) for name, command in COMMANDS.items()}
            lines = [f"  {name:<10} {text.partition('. ')[0].rstrip('.')}" for name, text in about.items()]
            print("usage: palslib COMMAND ...  (palslib COMMAND --help: its settings)\n", *lines, sep="\n", flush=True)
            return 0 if words else 2
        with wrong_call():
            given = _parse(check_name("command", name, COMMANDS), words[1:])
        return COMMANDS[name](given) or 0
    except WrongCall as error:
        return _complain(name, error.args[0], 2)
    except (ValueError, OSError, ImportError, FloatingPointError, MemoryError) as error:
        return _complain(name, error, 1)
    except KeyboardInterrupt as error:  # a run that ends itself raises `signals.Stopped`, with the number of its signal
        return _complain(name, str(error) or "interrupted", 128 + getattr(error, "number", signal.SIGINT))


def _complain(command: str, error: object, status: int) -> int:
    if FIRST or isinstance(error, OSError):  # a disk or a network may fail in one process only
        print(f"palslib{' ' + command if command in COMMANDS else ''}: {error}", file=sys.stderr)
    return status


def start() -> None:
    """The entry point `palslib`."""
    end_with_launcher()
    for stream in (sys.stdout, sys.stderr):  # a terminal that has no α, as in cp1252, shows its number
        stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs `finally` blocks: no run of a sweep is left behind
    sys.exit(main())


if __name__ == "__main__":
    start()
