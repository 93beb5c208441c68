"""The command line: `palslib COMMAND ...`, or `python -m palslib COMMAND ...`.

A command is a class: its fields are flags, the texts under them their help, and `run` does the work and returns the
exit status, where None is 0. The commands of the study are in `study/commands.py`. A wrong call, which a class refuses
when it is made, ends with status 2; what fails later ends with status 1; each with a message of one line.
"""

import dataclasses
import io
import itertools
import json
import os
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from csv import QUOTE_ALL
from functools import cached_property
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Required, TypedDict, get_args, get_origin

import tyro
from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo
from tyro.conf import Positional
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from palslib import __version__
from palslib.common.names import check_name, unknown
from palslib.common.places import place, runs_folder
from palslib.common.processes import FIRST, end_with_launcher
from palslib.common.reading import read_object, without_repeats
from palslib.common.settings import File, Names, Number, command, in_one_line

# ------------------------------------------------------------------------------------------------------- the commands


@command
class BeforeFlags:
    """What the settings of a run start from."""

    config: Positional[Names] = ()
    """A JSON file with settings by name (also "preset"); it overrides --preset, and flags override both."""
    preset: str | None = None
    """Several settings at once: smoke, mini, paper, minbert or gem."""


class OfRun:
    """A command with the settings of a run, `RunConfig`."""

    def __init__(self, config: Sequence[str] = (), **flags):
        from palslib.plan.config import RunConfig

        if len(config) > 1:
            raise ValueError(f"unexpected argument {config[1]!r}")
        preset = {name: flags.pop(name) for name in {"preset"} & {*flags}}
        self.given = preset | (read_object(config[0]) if config else {}) | flags
        try:
            self.config = RunConfig.from_dict(self.given)
        except ValueError as error:
            if config:
                error.add_note(f"with the settings in {config[0]}")
            raise
        if FIRST and self.config.data == "synthetic" and not {*self.config.tasks} <= {*self.config.own}:
            print("palslib: data=synthetic: the texts are generated; --data glue takes the real ones", file=sys.stderr)

    def say(self, **result) -> None:
        if FIRST:  # one line, whatever the number of processes
            print(json.dumps(result))


def fields_of_run() -> dict[str, FieldInfo]:
    """The flags of a command with the settings of a run, by name."""
    from palslib.plan.config import RunConfig

    return BeforeFlags.flags | RunConfig.__pydantic_fields__


class Train(OfRun):
    """Trains and evaluates a model, and prints the run's key and dev average. The weights at the end are kept (--keep).
    If the run is killed, the same call resumes from the last checkpoint (--checkpoint-every).

    Several processes, each with its own GPU or all on CPUs, share every batch; each draws its own dropout:

    accelerate launch --multi_gpu --num_processes 2 -m palslib train ...

    torchrun --standalone --nproc_per_node 2 -m palslib train ..."""

    def run(self) -> None:
        from palslib.training.loop import train

        config = self.config
        if config.keep == "none" and "keep" not in self.given:
            config = dataclasses.replace(config, keep="last")
        record = train(config)
        self.say(key=record["key"], dev_average=record["results"]["last"]["dev_average"])
        if FIRST and config.progress:  # on stderr, since a program may read the result on stdout
            folder = shlex.quote(str(record.folder))
            print(f"the run is in {folder}; next: palslib predict {folder} FILE.csv", file=sys.stderr)


class Pretrain(OfRun):
    """Pre-trains a backbone further, as a masked language model on the texts of tasks; its folder serves as a backbone
    (--backbone FOLDER). Settings are those of `train`; those of methods, heads and evaluations have no effect."""

    def run(self) -> None:
        from palslib.training.pretraining import pretrain

        record = pretrain(self.config)
        self.say(**{name: record[name] for name in ("key", "before", "after")})


@command
class Predict:
    """Predicts the rows of files, labelled or not, and writes CSV: the file's own columns, then `predicted` (the label
    or the score) and the probability of each label, `p(label)`."""

    model: Positional[File]
    """The folder of a saved model or of a run (its last weights; RUN/best for the best), or a task's file."""
    file: Positional[str]
    """A CSV, TSV, JSON Lines (each also .gz) or Parquet file with the task's texts."""
    more: Positional[Names] = ()
    """More such files."""
    task: str | None = None
    """The task; may be left out if the model has only one."""
    text: Names = ()
    """The column of the text, or the two columns of a pair; none: as in training."""
    separator: str | None = None
    """The separator between the cells of a CSV or TSV (a tab: $'\\t'); None: as in training, or that of the ending."""
    backbone: str = "minilm"
    """For a task's file: the backbone that it was trained on, or the folder of the saved model."""
    output: File | None = None
    """The CSV file to write, a new one; None: standard output."""
    progress: bool = True
    """Show a progress bar."""

    def __post_init__(self):
        from palslib.data.sources import locate

        for file in self.files:
            locate(place(file))  # an error if there is none
        if self.output and (self.output.suffix.lower() != ".csv" or os.path.lexists(self.output)):
            raise ValueError(f"--output {self.output}: give a new file that ends in .csv")

    @property
    def files(self) -> tuple[str, ...]:
        return (self.file, *self.more)

    def opened(self) -> tuple:
        """The model, and the settings that are options of its methods."""
        import torch

        from palslib.training.trained import open_model

        model = open_model(self.model, self.backbone).to("cuda" if torch.cuda.is_available() else "cpu")
        ours = ("model", "file", "more", "backbone", "output")
        return model, {name: value for name, value in vars(self).items() if name not in ours}

    def write(self, csv: str, screen: str) -> None:
        """Writes the text `csv` to the output file, if there is one, else prints the text `screen`."""
        from palslib.common.files import write_text

        write_text(self.output, csv) if self.output else print(screen, end="", flush=True)

    def run(self) -> None:
        model, options = self.opened()
        import pandas as pd

        tables = {file: model.predict_file(file, **options) for file in self.files}
        table = pd.concat(tables, names=["file"]).reset_index("file", allow_duplicates=True)
        table = table.iloc[:, 0 if len(tables) > 1 else 1 :]  # the name of a single file is left out
        csv = table.to_csv(index=False)
        if "\r" in csv:  # ends a row for many readers, and pandas does not put it in quotation marks by itself
            csv = table.to_csv(index=False, quoting=QUOTE_ALL)
        self.write(csv, csv)


@command
class Evaluate(Predict):
    """Scores a model on files or splits, side by side: the task's metrics and, for classes, macro F1, precision and
    recall of each class, in percent. A file may also be a name with {split}, or data that `train` takes (glue)."""

    label: str | None = None
    """The column of the label; None: as in training."""
    splits: Names = ()
    """Splits of each file, to be scored separately (train validation test); none: all rows of a file."""
    skip_unlabelled: bool | None = None
    """Leave out rows without a label, which would otherwise be an error."""

    def run(self) -> None:
        model, options = self.opened()
        table = model.evaluate_file(*self.files, **options)
        shown = table.map(lambda value: f"{value:.1f}" if isinstance(value, float) else f"{value:,}")
        self.write(table.to_csv(), f"{shown.to_string()}\n")


@command
class Sweep:
    """Trains a grid of runs, each in its own process. Called again, or several times at once, it does only the missing
    runs. The exit status is 0 if every run finished, else 1."""

    grid: Positional[File]
    """A JSON file with base, product and runs (see `palslib.Grid`), or the name of one in palslib/grid/plans: `table3`
    (the paper's runs, BERT-base on a GPU), `main` and the others in figures/records/FIRST_STUDY.md."""
    base: dict = Field(default_factory=dict)
    """Settings of all runs, which replace those of the grid's base: steps=100 data=synthetic."""
    recorded: File | None = None
    """Leaves out the runs that the records in this folder or its subfolders (figures/records) show as finished."""
    folder: File | None = None
    """Folder of the runs; None: runs/sweeps/ and the grid's name."""
    collect: File | None = None
    """Runs nothing; copies records and predictions of the finished runs into this folder, each under its run's name."""
    slots: Annotated[int, Field(ge=1, le=10_000)] = 2
    """Runs at the same time."""
    limit: Annotated[Number, Field(gt=0, le=1_000_000_000)] | None = None
    """Seconds that one attempt at a run may take."""
    retries: Annotated[int, Field(ge=0, le=1000)] = 1
    """Further attempts at a failed run, each from its checkpoint."""
    command: Annotated[str, Field(min_length=1)] | None = None
    """The command that trains a CONFIG.json. None: `python -m palslib train`, or, if a run has a method of your own,
    `python FILE train`, where FILE is the program that called this and passes its words on to palslib."""

    def __post_init__(self):
        _ = self.configs

    @property
    def place(self) -> Path:
        return (self.folder or runs_folder() / "sweeps" / self.grid.stem).resolve()

    @cached_property
    def configs(self) -> list:
        """The configs of all runs that are not recorded."""
        from palslib.grid.sweep import Grid
        from palslib.records import read_records

        grid = Grid.named(self.grid)
        configs = dataclasses.replace(grid, base=grid.base | self.base).configs(self.place)
        if vain := sorted(set(self.base) & {*grid.product, *itertools.chain(*grid.runs)}):
            raise ValueError(f"--base: {vain[0]} is set by the grid's product or runs, which override its base")
        if not self.recorded:
            return configs
        known = {run["key"] for run in read_records(self.recorded) if run["status"] == "finished"}
        missing = [config for config in configs if config.key not in known]
        print(f"{len(configs) - len(missing)} of {len(configs)} runs are recorded in {self.recorded}")
        return missing

    def words(self) -> list[str]:
        """The command that trains one run, without its CONFIG.json."""
        if self.command is not None:
            return shlex.split(self.command)
        own = any(not type(config.base_method()).__module__.startswith("palslib.") for config in self.configs)
        file = getattr(sys.modules["__main__"], "__file__", None) if own else None  # none in a notebook
        return [sys.executable, *([str(Path(file).resolve())] if file else ["-m", "palslib"]), "train"]

    def run(self) -> int:
        from palslib.grid.sweep import collect, summary, sweep

        if self.collect and self.configs:
            print(f"{collect(self.configs, self.collect)} of {len(self.configs)} runs copied to {self.collect}")
        elif self.configs:
            rows = sweep(self.configs, self.slots, self.words(), self.limit, self.retries)
            print(f"{summary(self.configs, rows)}, in {self.place}")
            return int(any(status != "finished" for status in rows.values()))
        return 0


@command
class Clean:
    """Shows finished runs and their sizes, asks whether to go on, and removes their weights and checkpoints. Records
    and predictions stay, so that tables and sweeps still know the runs; what palslib did not write stays too."""

    folder: File | None = None
    """The folder whose runs are shown, with its subfolders; None: runs/."""
    yes: bool = False
    """Remove without asking."""

    def run(self) -> None:
        from palslib.grid.clean import finished_runs, remove_weights

        folder = self.folder or runs_folder()
        runs = finished_runs(folder)
        for run, megabytes in runs.items():
            print(f"{megabytes:10,.1f} MB  {run.relative_to(folder)}")
        if runs and (self.yes or input("Remove these weights? Records stay. [y/N] ").strip().lower() in ("y", "yes")):
            remove_weights(runs)
            print("removed")


OF_STUDY = ("adapters", "benchmark", "heads", "reproduce")


def commands(name: str = "") -> dict[str, type]:
    """The commands by name. Those of the study need the notebooks' packages: without them, ModuleNotFoundError if one
    of these is named."""
    classes = [Train, Predict, Evaluate, Pretrain, Sweep, Clean]
    try:
        from palslib.study import commands as study

        classes += [study.Adapters, study.Benchmark, study.Heads, study.Reproduce]
    except ModuleNotFoundError:
        if name in OF_STUDY:
            raise
    return {kind.__name__.lower(): kind for kind in classes}


# ------------------------------------------------------------------------------------------------------ from a terminal


def flags_of(fields: Mapping[str, FieldInfo]) -> type:
    """The type of a dict from which tyro makes flags; it then has the settings that are given, and no others."""
    kinds = {}
    for name, field in fields.items():
        default = field.get_default(call_default_factory=True)
        shown = " ".join(default) or "none" if isinstance(default, (tuple, dict)) else default
        about = {"help": " ".join(field.description.split()), "help_behavior_hint": f"(default: {shown})"}
        kind, metadata = field.annotation, list(field.metadata)
        if kind is dict:
            kind, about["metavar"] = tuple[str, ...], "[NAME=VALUE ...]"
        elif bool in get_args(kind):  # or None
            kind = bool
        elif kind is not bool and get_origin(kind) is not tuple:
            metadata.append(reading(kind))
        if field.is_required():
            about["help_behavior_hint"] = "(required)"
        kind = Annotated[(kind, tyro.conf.arg(**about), *metadata)]
        kinds[name] = Required[kind] if field.is_required() and Positional in metadata else kind
    return TypedDict("Settings", kinds, total=False)


def reading(kind: object) -> PrimitiveConstructorSpec:
    """Words as tyro reads them for this type; what does not fit stays a word, which the command's class then refuses in
    our words."""
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(kind, set()))

    def value(words: list[str]) -> object:
        try:
            return spec.instance_from_str(words)
        except ValueError:
            return words[0]

    return dataclasses.replace(spec, instance_from_str=value, choices=None)


def pair(word: str) -> tuple[str, object]:
    """The name and the value of a word such as `heads=6`; the value is JSON, `None`, or else a string."""
    name, equals, value = word.partition("=")
    if not (name and equals):
        raise ValueError(f"{word!r} is not of the form NAME=VALUE")
    try:
        return name, None if value == "None" else json.loads(value)
    except (ValueError, RecursionError):  # not JSON, or a number too long, or brackets too deep
        return name, value


def parsed(name: str, words: Sequence[str]) -> object:
    """The command of this name with the settings in these words. Raises ValueError, or SystemExit after `--help`."""
    kind = commands(name)[check_name("command", name, commands(name))]
    fields = fields_of_run() if issubclass(kind, OfRun) else kind.flags
    typed = [word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")]
    flags = {f"--{one.replace('_', '-')}": field for one, field in fields.items() if Positional not in field.metadata}
    for word in typed:
        if word not in ("--", "--help") and word not in flags and word.replace("--no-", "--", 1) not in flags:
            raise unknown("flag", word, flags)
        wanted = flags[word].annotation if word in flags else None
        if typed.count(word) > 1 and (wanted is dict or get_origin(wanted) is tuple):
            raise ValueError(f"{word} is given twice: give all its values after one {word}")
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            given, left = tyro.cli(
                flags_of(fields),
                prog=f"palslib {name}",
                description=getdoc(kind),
                args=words,
                config=[tyro.conf.PositionalMetavarFromFieldName],
                return_unknown_args=True,
                console_outputs=FIRST,
            )
    except SystemExit as end:
        if not end.code:
            sys.stdout.flush()
            raise
        lines = [re.sub("[─│]|^[|]|[|]$|-{5,}", "", line) for line in said.getvalue().splitlines()]  # without the frame
        raise ValueError(" ".join(" ".join(lines[1:-1]).split())) from None
    if left:
        raise ValueError(f"unexpected argument {left[0]!r}")
    dicts = {one: words for one, words in given.items() if fields[one].annotation is dict}
    given |= {one: without_repeats(map(pair, words)) for one, words in dicts.items()}
    try:
        return kind(**given)
    except ValidationError as error:
        raise in_one_line(error, kind) from None


def overview() -> str:
    """The commands, each with its first sentence."""
    texts = {name: " ".join(kind.__doc__.split()) for name, kind in commands().items()}
    lines = [f"  {name:<10} {text.partition('. ')[0].rstrip('.')}" for name, text in texts.items()]
    usage = "usage: palslib COMMAND ...  (palslib COMMAND --help: its settings; --debug: the traceback of an error)"
    return "\n".join([usage, "", *lines])


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    words = list(sys.argv[1:] if words is None else words)
    debug = "--debug" in words or bool(os.environ.get("PALSLIB_DEBUG"))
    words = [word for word in words if word != "--debug"]
    name, status = words[0] if words else "", 2
    try:
        if name == "--version":
            print(f"palslib {__version__}", flush=True)
            return 0
        if name in ("", "-h", "--help"):
            print(overview(), flush=True)
            return 0 if words else 2
        call, status = parsed(name, words[1:]), 1
        return call.run() or 0
    except KeyboardInterrupt as error:  # a run that ends itself raises `signals.Stopped`, with the number of its signal
        if FIRST:
            complain(name, str(error) or "interrupted")
        return 128 + getattr(error, "number", signal.SIGINT)
    except Exception as error:
        if debug:
            traceback.print_exc()
        common = isinstance(error, (ValueError, ImportError, FloatingPointError))
        text = str(error) if common or isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        if FIRST or not common:  # a disk, a network or a device may fail in one process only
            complain(name, "; ".join([text, *getattr(error, "__notes__", ())]))
        return status


def complain(name: str, text: str) -> None:
    """Prints an error as one line."""
    print(" ".join([f"palslib {name}:" if name in commands() else "palslib:", *text.split()]), file=sys.stderr)


def start() -> None:
    """The entry point `palslib`."""
    end_with_launcher()
    for stream in (sys.stdout, sys.stderr):  # a terminal that has no α, as in cp1252, shows its number
        stream.reconfigure(errors="backslashreplace")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            # This runs `finally` blocks, so that no run of a sweep is left behind. A run has handlers of its own.
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    sys.exit(main())


if __name__ == "__main__":
    start()
