"""The command line: `palslib COMMAND ...`, or `python -m palslib COMMAND ...`.

A command is a class of which tyro makes flags and help, from the fields and the texts under them. Its `check` refuses
a wrong call before anything is loaded; its `run` does the work and returns the exit status, where None is 0. A wrong
call ends with status 2, what fails later with status 1. The commands of the study are in `study/commands.py`.
"""

import itertools
import json
import os
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Sequence
from csv import QUOTE_ALL
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypedDict, Union, get_type_hints

import tyro
from tyro.conf import Positional
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec

from palslib import __version__
from palslib.common.names import MEANT, check_least, in_words
from palslib.common.places import runs_folder
from palslib.common.processes import FIRST, end_with_launcher
from palslib.common.reading import read_object, without_repeats

# ------------------------------------------------------------------------------------------------------- the commands


def flags_of_run() -> type:
    """The settings of a run, `RunConfig`, as tyro takes them: a dict of those that are given."""
    from palslib.plan.config import RunConfig

    flags, kinds = {}, get_type_hints(RunConfig)
    for name, setting in RunConfig.__pydantic_fields__.items():
        default = setting.get_default(call_default_factory=True)
        default = " ".join(default) if isinstance(default, (tuple, dict)) else default
        default = "last with palslib train, else none" if name == "keep" else default
        text = re.sub(r"`(\{.*?\})`", as_words, " ".join(setting.description.split()))
        flags[name] = Annotated[kinds[name], tyro.conf.arg(help=text, help_behavior_hint=f"(default: {default})")]
    return TypedDict("Settings", flags, total=False)


def as_words(code: re.Match) -> str:
    """A dict in the text of a setting, as it is given in a shell: `heads=6`."""
    values = json.loads(code[1])
    return " ".join(f"{k}={v if isinstance(v, str) else shlex.quote(json.dumps(v))}" for k, v in values.items())


@dataclass(frozen=True)
class OfRun:
    """A command with the settings of a run."""

    settings: Annotated[dict, tyro.conf.arg(constructor_factory=flags_of_run), tyro.conf.OmitArgPrefixes]
    config: Positional[Path | None] = None
    """A JSON file with settings by name (also "preset"); it overrides --preset, and flags override both."""
    preset: str | None = None
    """Several settings at once: smoke, mini, paper, minbert or gem."""

    @cached_property
    def stated(self) -> dict:
        """The settings that the user states, by name."""
        preset = {"preset": self.preset} if self.preset else {}
        instead = {"passes": None} if "steps" in self.settings else {}  # the file's passes would override --steps
        return preset | (read_object(self.config) if self.config else {}) | instead | self.settings

    @cached_property
    def run_config(self):
        from palslib.plan.config import RunConfig

        try:
            return RunConfig.from_dict(self.stated)
        except ValueError as error:
            if self.config:
                error.add_note(f"with the settings in {self.config}")
            raise

    def check(self) -> None:
        config = self.run_config
        if FIRST and config.data == "synthetic" and not {*config.tasks} <= {*config.own}:
            print("palslib: data=synthetic: the texts are generated; --data glue takes the real ones", file=sys.stderr)

    def say(self, **result) -> None:
        if FIRST:  # one line, whatever the number of processes
            print(json.dumps(result))


@dataclass(frozen=True)
class Train(OfRun):
    """Trains and evaluates a model, and prints the run's key and dev average. The weights at the end are kept (--keep).
    If the run is killed, the same call resumes from the last checkpoint (--checkpoint-every). Several processes, each
    with its own GPU or all on CPUs, share every batch; each draws its own dropout:

    accelerate launch --multi_gpu --num_processes 2 -m palslib train ...

    torchrun --standalone --nproc_per_node 2 -m palslib train ..."""

    def run(self) -> None:
        from palslib.training.loop import train

        config = self.run_config
        if config.keep == "none" and "keep" not in self.stated:
            config = replace(config, keep="last")
        record = train(config)
        self.say(key=record["key"], dev_average=record["results"]["last"]["dev_average"])
        if FIRST and config.progress and config.keep != "none":
            # On stderr, since a program may read the result on stdout.
            folder, task = shlex.quote(str(record.folder)), f" --task {shlex.quote(config.tasks[0])}"
            print(f"the run is in {folder}; next: palslib predict {folder} FILE.csv{task}", file=sys.stderr)


@dataclass(frozen=True)
class Pretrain(OfRun):
    """Pre-trains a backbone further, as a masked language model on the texts of tasks; its folder serves as a backbone
    (--backbone FOLDER). Settings are those of `train`; those of methods, heads and evaluations have no effect, or are
    refused."""

    def run(self) -> None:
        from palslib.training.pretraining import pretrain

        record = pretrain(self.run_config)
        self.say(**{name: record[name] for name in ("key", "before", "after")})


@dataclass(frozen=True)
class Predict:
    """Predicts the rows of files, labelled or not, and writes CSV: the file's own columns, then `predicted` (the label
    or the score) and the probability of each label, `p(label)`."""

    model: Positional[Path]
    """The folder of a saved model or of a run (its last weights; RUN/best for the best), or a task's file."""
    files: Positional[tuple[str, ...]]
    """One or more CSV, TSV, JSON Lines (each also .gz) or Parquet files with the task's texts."""
    task: str | None = None
    """The task; may be left out if the model has only one."""
    text: tuple[str, ...] = ()
    """The column of the text, or the two columns of a pair; none: as in training."""
    separator: str | None = None
    """The separator between the cells of a CSV or TSV (a tab: $'\\t'); None: as in training, or that of the ending."""
    backbone: str = "minilm"
    """For a task's file: the backbone that it was trained on, or the folder of the saved model."""
    output: Path | None = None
    """The CSV file to write, a new one; None: standard output."""
    progress: bool = True
    """Show a progress bar."""

    def check(self) -> None:
        from palslib.data.sources import locate

        if not self.files or len({*self.files}) < len(self.files):
            raise ValueError("give at least one FILE that exists, and each once")
        for file in self.files:
            locate(file)  # an error if there is none
        if self.output and (self.output.suffix.lower() != ".csv" or os.path.lexists(self.output)):
            raise ValueError(f"--output {self.output}: give a file that ends in .csv and does not exist yet")

    def opened(self) -> tuple:
        """The model, and the settings that are options of its methods."""
        import torch

        from palslib.training.trained import open_model

        model = open_model(self.model, self.backbone).to("cuda" if torch.cuda.is_available() else "cpu")
        ours = ("model", "files", "backbone", "output")
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
        new = table.columns.isin(tables[self.files[0]].loc[:, "predicted":])
        table = table.iloc[:, new.argsort(kind="stable")]  # other columns of later files come before these, too
        table = table.iloc[:, 0 if len(tables) > 1 else 1 :]  # the name of a single file is left out
        csv = table.to_csv(index=False)
        if "\r" in csv:  # ends a row for many readers, and pandas does not put it in quotation marks by itself
            csv = table.to_csv(index=False, quoting=QUOTE_ALL)
        self.write(csv, csv)


@dataclass(frozen=True)
class Evaluate(Predict):
    """Scores a model on files or splits, side by side: the task's metrics and, for classes, also accuracy, Matthews,
    F1, macro F1, precision and recall of each class, in percent. A file may also be a name with {split}, or data that
    `train` takes (glue)."""

    label: str | None = None
    """The column of the label; None: as in training."""
    splits: tuple[str, ...] = ()
    """Splits of each file, to be scored separately (train validation test); none: all rows of a file."""
    skip_unlabelled: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Leave out rows without a label, which is an error unless it was done in training."""

    def run(self) -> None:
        model, options = self.opened()
        table = model.evaluate_file(*self.files, **options | {"skip_unlabelled": self.skip_unlabelled or None})
        shown = table.map(lambda value: f"{value:.1f}" if isinstance(value, float) else f"{value:,}")
        self.write(table.to_csv(), f"{shown.to_string()}\n")


@dataclass(frozen=True)
class Sweep:
    """Trains a grid of runs, each in its own process. Called again, or several times at once, it does only the missing
    runs. The exit status is 0 if every run finished, else 1."""

    grid: Positional[Path]
    """A JSON file with base, product and runs (see `palslib.Grid`), or the name of one in palslib/grid/plans: `table3`
    (the paper's runs, BERT-base on a GPU), `main` and others (figures/records/FIRST_STUDY.md, DEVIATIONS.md)."""
    base: dict = field(default_factory=dict)
    """Settings of all runs, which replace those of the grid's base: steps=100 data=synthetic."""
    recorded: Path | None = None
    """Leaves out the runs that the records in this folder or its subfolders (figures/records) show as finished."""
    folder: Path | None = None
    """Folder of the runs; None: runs/sweeps/ and the grid's name."""
    collect: Path | None = None
    """Runs nothing; copies records and predictions of the finished runs into this folder, each under its run's name."""
    slots: int = 2
    """Runs at the same time."""
    limit: float | None = None
    """Seconds that one attempt at a run may take."""
    retries: int = 1
    """Further attempts at a failed run, each from its checkpoint."""
    command: str | None = None
    """The command that trains a CONFIG.json. None: `python -m palslib train`, or, if a run has a method of your own,
    `python FILE train`, where FILE is the program that called this, by `palslib.__main__.start()`."""

    def check(self) -> None:
        check_least(1, slots=self.slots, limit=self.limit)
        check_least(0, retries=self.retries)
        _ = self.configs

    @property
    def grid_folder(self) -> Path:
        return (self.folder or runs_folder() / "sweeps" / self.grid.stem).resolve()

    @cached_property
    def configs(self) -> list:
        """The configs of all runs that are not recorded."""
        from palslib.grid.sweep import Grid
        from palslib.records import read_records

        grid = Grid.named(self.grid)
        configs = replace(grid, base=grid.base | self.base).configs(self.grid_folder)
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
        from palslib.grid.sweep import Terms, collect, summary, sweep

        if self.collect and self.configs:
            print(f"{collect(self.configs, self.collect)} of {len(self.configs)} runs copied to {self.collect}")
        elif self.configs:
            states = sweep(self.configs, self.slots, Terms(self.words(), self.limit, self.retries))
            print(f"{summary(self.configs, states)}, in {self.grid_folder}")
            return int(any(state != "finished" for state in states.values()))
        return 0


@dataclass(frozen=True)
class Clean:
    """Shows finished runs and their sizes, asks whether to go on, and removes their weights and checkpoints. Records
    and predictions stay, so that tables and sweeps still know the runs; what palslib did not write stays too."""

    folder: Path | None = None
    """The folder whose runs are shown, with its subfolders; None: runs/."""
    yes: bool = False
    """Remove without asking."""

    def check(self) -> None:
        if self.folder and not self.folder.is_dir():
            raise FileNotFoundError(f"there is no folder {self.folder}")

    def run(self) -> None:
        from palslib.grid.clean import finished_runs, remove_weights

        folder = self.folder or runs_folder()
        runs = finished_runs(folder)
        for run, megabytes in runs.items():
            print(f"{megabytes:10,.1f} MB  {run.relative_to(folder)}")
        if runs and (self.yes or input("Remove these weights? Records stay. [y/N] ").strip().lower() in ("y", "yes")):
            remove_weights(runs)
            print("removed")


# ------------------------------------------------------------------------------------------------------ from a terminal

STUDY = ("adapters", "benchmark", "heads", "reproduce")
SIGNS = {"true": "--", "false": "--no-"}
"""What a flag begins with that is given as true or false."""
LISTS = {"--text": "", "--splits": "", "--tasks": ".json"}
"""Flags that take several values, and the ending of files that are none of these."""


def commands(name: str = "") -> dict[str, type]:
    """The commands' classes by name. Those of the study need the notebooks' packages: where these are missing, they are
    left out, or ModuleNotFoundError is raised if `name` is one of them."""
    kinds = [Predict, Evaluate, Train, Pretrain, Sweep, Clean]  # of the first one tyro reads the fields at once
    try:
        from palslib.study.commands import Adapters, Benchmark, Heads, Reproduce

        kinds += [Adapters, Benchmark, Heads, Reproduce]
    except ModuleNotFoundError:
        if name in STUDY:
            raise
    return {kind.__name__.lower(): kind for kind in kinds}


def _holds_data(word: str) -> bool:
    """Whether a word is a file, or the folder of a run or of a saved model."""
    return any(map(os.path.isfile, (word, f"{word}/record.json", f"{word}/palslib.json")))


def as_tyro_takes_them(words: Sequence[str], kind: type) -> list[str]:
    """The words after a command, where `--progress false` is `--no-progress`, `~` after `=` is the home folder, and
    files and models after a list of columns, splits or tasks come first: tyro would take them for more of these. Raises
    ValueError for a flag of other programs, and for one that is given twice, of which tyro would drop the first."""
    types = get_type_hints(kind) | (get_type_hints(flags_of_run()) if issubclass(kind, OfRun) else {})
    apart = itertools.chain(*(word.split("=", 1) if word.startswith("--") else [word] for word in words))
    first, then, flag, name = [], [], "", ""
    for word in apart:
        if word.startswith("--"):
            flag, name = word.replace("_", "-"), word[2:].replace("-", "_")
            if flag in then:
                raise ValueError(f"{flag} is given twice: give all its values after one {flag}")
            if issubclass(kind, OfRun) and name not in types and (ours := MEANT.get(name)) in types:
                raise ValueError(f"unknown flag {flag}: did you mean --{ours.replace('_', '-')}?")
            then.append(flag)
        elif types.get(name) is bool and word.lower() in SIGNS and then[-1] == flag:
            then[-1] = SIGNS[word.lower()] + flag[2:]
        elif flag in LISTS and then[-1] != flag and word.endswith(LISTS[flag]) and _holds_data(word):
            first.append(word)
        else:
            (then if flag else first).append(os.path.expanduser(word) if word.startswith("~/") else word)
    return first + then


def pair(word: str) -> tuple[str, object]:
    """The name and the value of a word such as `heads=6`; the value is JSON, `None`, or else a string."""
    name, equals, value = word.partition("=")
    if not (name and equals):
        raise ValueError(f"{word!r} is not of the form NAME=VALUE")
    try:
        return name, None if value == "None" else json.loads(value, object_pairs_hook=without_repeats)
    except json.JSONDecodeError:
        return name, value


READING = ConstructorRegistry()


@READING.primitive_rule
def by_name(info) -> PrimitiveConstructorSpec | None:
    """How tyro reads settings by name, a dict."""
    if dict not in (info.type, info.type_origin):
        return None
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="[NAME=VALUE ...]",
        instance_from_str=lambda words: without_repeats(map(pair, words)),
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda value: [f"{name}={one}" for name, one in value.items()],
    )


def called(words: list[str]):
    """The command that is called, with its settings. Raises SystemExit after tyro's help, or its complaint."""
    name = words[0] if words else ""
    options = {"config": [tyro.conf.PositionalMetavarFromFieldName], "registry": READING, "console_outputs": FIRST}
    if kind := (known := commands(name)).get(name):  # alone, so that tyro suggests flags of this command only
        return tyro.cli(kind, prog=f"palslib {name}", args=as_tyro_takes_them(words[1:], kind), **options)
    note = "With any command, --debug shows the traceback of an error. palslib --version: the version."
    return tyro.cli(Union[*known.values()], prog="palslib", description=note, args=words, **options)


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    words = list(sys.argv[1:] if words is None else words)
    debug, status = "--debug" in words, 2
    words = [word for word in words if word != "--debug"]
    try:
        if words == ["--version"]:
            print(f"palslib {__version__}", flush=True)
            return 0
        call = called(words)
        call.check()
        status = 1
        return call.run() or 0
    except SystemExit as end:
        return end.code or 0
    except KeyboardInterrupt as error:  # a run that ends itself raises `signals.Stopped`, with the number of its signal
        if FIRST:
            complain(words, str(error) or "interrupted")
        return 128 + getattr(error, "number", signal.SIGINT)
    except Exception as error:
        if debug:
            traceback.print_exc()
        common = isinstance(error, (ValueError, ImportError, FloatingPointError))
        if FIRST or not common:  # a disk, a network or a device may fail in one process only
            complain(words, in_words(error))
        return status


def complain(words: list[str], text: str) -> None:
    """Prints an error as one line."""
    print(" ".join(["palslib", *words[:1]]) + ": " + " ".join(text.split()), file=sys.stderr)


def start() -> None:
    """The entry point `palslib`."""
    end_with_launcher()
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # on one task several processes get long warnings
    for stream in (sys.stdout, sys.stderr):  # a terminal that has no α, as in cp1252, shows its number; files are UTF-8
        stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            # This runs `finally` blocks, so that no run of a sweep is left behind. A run has handlers of its own.
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    sys.exit(main())


if __name__ == "__main__":
    start()
