"""The command line: `python -m palslib COMMAND ...`, or `palslib COMMAND ...`.

Every setting is a flag; `--help` shows its default and its meaning, from the dataclass that declares it: for `train`
and `pretrain` `plan.config.RunConfig`, for each other command a class here. A wrong call ends with status 2 and a
failure while running with 1, each with one line of message. Of several processes only the first one prints results.
"""

import json
import shlex
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import field, replace
from inspect import getdoc
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

import tyro
from pydantic import Field
from tyro import _errors  # private: pyproject.toml pins the exact version
from tyro.conf import Positional
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from palslib.common.names import check_name, unknown
from palslib.common.places import runs_folder
from palslib.common.processes import FIRST, end_with_launcher
from palslib.common.reading import read_object
from palslib.plan.config import MOST_STEPS, PRESETS, RunConfig
from palslib.plan.settings import Names, Number, settings


class CommandLineError(ValueError):
    """An error in a command line, found by tyro or here."""


# ------------------------------------------------------------------------------------------------------- the commands


def train(words: list[str]) -> Callable[[], int]:
    """Trains and evaluates a model, and prints the run's key and dev average. CONFIG.json holds settings by name
    ("preset" too); it overrides --preset, and flags override both. If the run is killed, the same call
    resumes from the last checkpoint.

    Several processes, each with its own GPU or all on CPUs, train the same model as one process:
    accelerate launch --multi_gpu --num_processes 2 -m palslib train ...
    torchrun --standalone --nproc_per_node 2 -m palslib train ..."""
    config = _run_config("train", words)

    def run() -> int:
        from palslib.training.loop import train

        record = train(config)
        _say({"key": record["key"], "dev_average": record["results"]["last"]["dev_average"]})
        return 0

    return run


def pretrain(words: list[str]) -> Callable[[], int]:
    """Pre-trains a backbone further, as a masked language model on the texts of tasks; its folder is a backbone again
    (--backbone FOLDER). Settings are those of `train`; those of methods, heads and evaluations have no effect."""
    config = _run_config("pretrain", words)

    def run() -> int:
        from palslib.training.pretraining import pretrain

        record = pretrain(config)
        _say({k: record[k] for k in ("key", "before", "after")})
        return 0

    return run


_Count = Annotated[int, Field(ge=1, le=MOST_STEPS)]


@settings
class Adapters:
    """Trains adapters for tasks one by one on a frozen BERT, then removes those of each span of layers in turn."""

    record: Positional[Path]
    """The JSON file to write."""
    tasks: Names
    """Tasks, in the order of training."""
    folder: Path
    """Folder of the tasks' runs; when the command is called again, finished runs are not repeated."""
    method: str = "houlsby-64"
    """A method that trains no parameters shared by tasks."""
    rows: _Count | None = None
    """Dev rows of each task, at most, for the evaluations without adapters; None: all."""
    epochs: Annotated[int, Field(ge=1, le=10_000)] = 10
    """Epochs for each task, each followed by an evaluation; the weights with the best dev score are kept."""
    epoch_steps: _Count | None = None
    """Steps of an epoch, at most; None: one pass over the task's data."""
    start: str | None = None
    """A folder of weights with earlier tasks, to start from."""
    options: dict = field(default_factory=dict)
    """Other settings of `train`, which replace those of the adapters report: learning_rate=1e-3 seed=1."""


def adapters(words: list[str]) -> Callable[[], int]:
    """A function that runs the command with the settings `words` (of `Adapters`) and returns the exit status."""
    given = dict(vars(_parse(Adapters, "adapters", words)))
    path, options = given.pop("record"), given.pop("options")
    if twice := set(given) & set(options):
        raise CommandLineError(f"{min(twice)} is a flag of its own, not one of the options")

    def run() -> int:
        from palslib.analysis.adapter_removal import ablate
        from palslib.records import write_record

        record = ablate(**given, **options)
        write_record(path, record)
        best = {run["config"]["tasks"][0]: run["results"]["best"]["dev_average"] for run in record["runs"]}
        _say({"record": str(path), "dev_average": best})
        return 0

    return run


@settings
class Sweep:
    """Trains a grid of runs, each in its own process. Called again, or twice at the same time, it does only the missing
    runs. The exit status is 0 if every run finished, else 1."""

    grid: Positional[Path]
    """A JSON file with base, product and runs (see `palslib.Grid`), or the name of one in palslib/grid/plans: `table3`
    (the paper's runs, BERT-base on a GPU), `main` and the others in figures/records/PLAN.md."""
    base: dict = field(default_factory=dict)
    """Settings of all runs, which replace those of the grid's base: steps=100 data=synthetic."""
    expect: Path | None = None
    """Runs nothing; estimates the hours that the grid takes on the machine of this record of `palslib benchmark`."""
    folder: Path | None = None
    """Folder of the runs; None: runs/sweeps/ and the grid's name."""
    slots: Annotated[int, Field(ge=1, le=10_000)] = 2
    """Runs (or Slurm jobs) at the same time."""
    limit: Annotated[Number, Field(gt=0, le=1_000_000_000)] | None = None
    """Seconds that one attempt at a run may take."""
    retries: Annotated[int, Field(ge=0, le=1000)] = 1
    """Further attempts at a failed run, each from its checkpoint."""
    command: str = f"{shlex.quote(sys.executable)} -m palslib train"
    """The command that trains a CONFIG.json."""
    slurm: dict | None = None
    """Run as Slurm jobs, with these options of sbatch: partition=gpu gpus_per_node=1 cpus_per_task=8."""


def sweep(words: list[str]) -> Callable[[], int]:
    """A function that runs the command with the settings `words` (of `Sweep`) and returns the exit status."""
    given = _parse(Sweep, "sweep", words)
    from palslib.grid.engines import LocalSlots, Slurm, Terms
    from palslib.grid.expect import attained, expected_hours
    from palslib.grid.sweep import Grid, summary, sweep

    folder = (given.folder or runs_folder() / "sweeps" / given.grid.stem).resolve()
    grid = Grid.named(given.grid)
    configs = replace(grid, base=grid.base | given.base).configs(folder)
    terms = Terms(tuple(shlex.split(given.command)), given.limit, given.retries)
    engine = LocalSlots(given.slots, terms) if given.slurm is None else Slurm(given.slots, terms, folder, given.slurm)

    def run() -> int:
        if given.expect:
            hours = expected_hours(configs, attained(read_object(given.expect), configs[0].backbone))
            print(f"{len(configs)} runs, {hours:,.1f} hours one after the other")
            return 0
        rows = sweep(configs, engine)
        print(f"{summary(configs, rows)}, in {folder}")
        return int(any(row["status"] != "finished" for row in rows))

    return run


@settings
class Benchmark:
    """Measures the speed of training and evaluation, prints and records it, and draws the figure `benchmark`."""

    record: Path | None = None
    """The file of the record; None: runs/benchmark/MACHINE.json."""
    draw: Path | None = None
    """Measures nothing; prints and draws this record instead."""
    quick: bool = False
    """Use a tiny model and few rounds, only to check that the benchmark works."""
    adapters_python: Path | None = None
    """A Python that has the package `adapters` 1.3, to compare its adapters with ours; None: they are left out."""
    against: Path | None = None
    """A folder with an earlier palslib (`git worktree add FOLDER COMMIT`), to compare its training steps with ours."""


def benchmark(words: list[str]) -> Callable[[], int]:
    """A function that runs the command with the settings `words` (of `Benchmark`) and returns the exit status."""
    given = _parse(Benchmark, "benchmark", words)

    def run() -> int:
        from palslib.benchmark.measure import benchmark

        benchmark(**vars(given))
        return 0

    return run


@settings
class Reproduce:
    """Runs the notebooks headless, one after the other, and prints a table with the time and headline of each."""

    notebooks: str | None = None
    """Only these notebooks, by number or name: 01,04."""
    parameters: dict = field(default_factory=dict)
    """Parameters of each notebook: steps=100."""
    out: Path | None = None
    """Folder of the executed copies; None: runs/notebooks."""


def reproduce(words: list[str]) -> Callable[[], int]:
    """A function that runs the command with the settings `words` (of `Reproduce`) and returns the exit status."""
    given = _parse(Reproduce, "reproduce", words)
    from palslib.reproduce import check, reproduce

    out = given.out or runs_folder() / "notebooks"
    paths = check(given.notebooks, given.parameters, out)
    return lambda: reproduce(paths, given.parameters, out)


@settings
class Heads:
    """Writes a record of all attention heads of one model: attention statistics, and dev scores without the heads."""

    folder: Positional[Path]
    """A folder with a saved model."""
    out: Positional[Path]
    """The JSON file to write."""
    data: str = "synthetic"
    """Where the dev examples come from, as `train` takes it."""
    tasks: Names = ("sst2",)
    """Tasks for which heads are removed."""
    own: dict = field(default_factory=dict)
    """Data files of your own tasks: mood=mood.csv."""
    rows: _Count = 500
    """Dev rows of each task, at most, for the evaluations without heads."""
    texts: _Count = 4
    """Dev examples of every task for the attention maps."""
    precision: Literal["float32", "bf16"] = "float32"
    """Precision of the evaluations."""


def heads(words: list[str]) -> Callable[[], int]:
    """A function that runs the command with the settings `words` (of `Heads`) and returns the exit status."""
    given = dict(vars(_parse(Heads, "heads", words)))
    out = given.pop("out")

    def run() -> int:
        from palslib.analysis.head_table import inspect
        from palslib.records import write_record

        write_record(out, inspect(**given))
        _say({"record": str(out)})
        return 0

    return run


COMMANDS = {command.__name__: command for command in (train, pretrain, adapters, sweep, benchmark, reproduce, heads)}
_DECLARED = {command: globals()[command.capitalize()] for command in list(COMMANDS)[2:]}


# ------------------------------------------------------------------------------------------- from words to settings

_RULES = ConstructorRegistry()


@_RULES.primitive_rule
def _from_words(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Parses words by their form alone; the settings check whether a value is allowed, with their own messages."""
    union = get_origin(info.type) in (Union, UnionType)
    kinds = get_args(info.type) if union else (info.type,)
    kinds = [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in kinds]
    kinds = [one for kind in kinds for one in (get_args(kind) if get_origin(kind) is UnionType else (kind,))]
    names = [name for kind in kinds if get_origin(kind) is Literal for name in get_args(kind)]
    if dict in kinds:
        shown = {"nargs": "*", "metavar": "NAME=VALUE ...", "instance_from_str": _pairs}
        words = lambda given: [f"{name}={_word(value)}" for name, value in given.items()] if given else []  # noqa: E731
        return PrimitiveConstructorSpec(is_instance=lambda _: True, str_from_instance=words, **shown)
    if not (names or {int, float} & set(kinds)):
        return None
    wanted = ["{" + ",".join(names) + "}"] * bool(names) + ["NUMBER"] * (float in kinds)
    wanted += ["INTEGER"] * (int in kinds and float not in kinds) + ["None"] * (NoneType in kinds)
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="|".join(wanted),
        instance_from_str=lambda words: _value(words[0]),
        is_instance=lambda _: True,
        str_from_instance=lambda value: [_word(value)],
    )


def _value(word: str) -> object:
    """The value of a word: JSON such as `100`, `1e-4`, `true` or `["a"]`, or `None`; everything else is a string."""
    try:
        return None if word == "None" else json.loads(word)
    except (ValueError, RecursionError):  # not JSON, or a number too long, or brackets too deep
        return word


def _word(value: object) -> str:
    return value if isinstance(value, str) else "None" if value is None else json.dumps(value)


def _pairs(words: list[str]) -> dict[str, object]:
    parts = [word.partition("=") for word in words]
    for word, (name, equals, _) in zip(words, parts, strict=True):
        if not (name and equals):
            raise ValueError(f"{word!r} is not of the form NAME=VALUE")
    return {name: _value(value) for name, _, value in parts}


def _run_config(command: str, words: list[str]) -> RunConfig:
    """The settings of a run: flags override the config file, and the file overrides the preset, if they are given."""
    path = words[0] if words and not words[0].startswith("-") else None
    flags, preset = words[path is not None :], {}
    for i, word in enumerate(flags):
        if word == "--preset" or word.startswith("--preset="):
            value = word.partition("=")[2] or "".join(flags[i + 1 : i + 2])
            flags, preset = flags[:i] + flags[i + 1 + (word == "--preset") :], {"preset": value}
            break
    default = RunConfig.from_dict(preset | (read_object(path) if path else {}))
    usage = f"Usage: palslib {command} [CONFIG.json] [--preset {{{','.join(PRESETS)}}}] [FLAGS]"
    return _parse(RunConfig, command, flags, default, f"{usage}\n\n{getdoc(COMMANDS[command])}")


def _parse(kind: type, command: str, words: list[str], default=None, description: str | None = None):
    """The settings of class `kind` in these words. Raises CommandLineError; ends the process after `--help`."""

    def refuse(event: _errors.ParseErrorEvent) -> None:
        raise CommandLineError(_one_line(event, kind))

    about = {"description": description or getdoc(kind), "registry": _RULES, "console_outputs": FIRST}
    if default is not None:
        about["default"] = default
    with _errors.on_parse_error(refuse), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tyro's, for int defaults of type `int | float`, and for None
        return tyro.cli(kind, prog=f"palslib {command}", args=words, **about)


def _one_line(event: _errors.ParseErrorEvent, kind: type) -> str:
    def named(argument) -> str:
        name = argument.field.intern_name
        return name.upper() if argument.is_positional() else f"--{name.replace('_', '-')}"

    if isinstance(event, _errors.UnrecognizedArgs):
        flags = [f"--{name.replace('_', '-')}" for name in kind.__dataclass_fields__]
        wrong = next((word for word in event.tokens if word.startswith("-")), None)
        return str(unknown("flag", wrong, flags)) if wrong else f"unexpected {event.tokens[0]!r}"
    if isinstance(event, _errors.MissingArgs):
        return f"missing: {', '.join(named(one.arg) for one in event.missing_arguments)}"
    if isinstance(event, _errors.InstantiationFailure):
        return f"{named(event.argument)}: {event.message}" if event.argument else event.message
    return f"{named(event.argument)} needs a value" if isinstance(event, _errors.BadValue) else str(event)


# ------------------------------------------------------------------------------------------------------ from a terminal


def _say(result: dict) -> None:
    if FIRST:  # one line, whatever the number of processes
        print(json.dumps(result))


def main(words: list[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    words = sys.argv[1:] if words is None else words
    if not words or words[0] in ("-h", "--help"):
        about = {name: (_DECLARED.get(name) or command).__doc__ for name, command in COMMANDS.items()}
        lines = [
            f"  {name:<10} {' '.join(text.split()).partition('. ')[0].rstrip('.')}" for name, text in about.items()
        ]
        print("usage: palslib COMMAND ...  (palslib COMMAND --help: its settings)\n", *lines, sep="\n")
        return 0 if words else 2
    try:
        check_name("command", words[0], COMMANDS)
        run = COMMANDS[words[0]](list(words[1:]))
    except (ValueError, OSError, ImportError) as error:
        return _complain(words[0], error, 2)
    try:
        return run()
    except (ValueError, OSError, ImportError, FloatingPointError) as error:
        return _complain(words[0], error, 1)
    except KeyboardInterrupt as error:  # a run that ends itself raises `signals.Stopped`, with the number of its signal
        said = str(error) or "interrupted; the same call goes on"
        return _complain(words[0], said, 128 + getattr(error, "number", signal.SIGINT))


def _complain(command: str, error: object, status: int) -> int:
    if FIRST or isinstance(error, OSError):  # a disk or a network may fail in one process only
        print(f"palslib{' ' + command if command in COMMANDS else ''}: {error}", file=sys.stderr)
    return status


def start() -> None:
    """The entry point `palslib`."""
    end_with_launcher()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs `finally` blocks: no run of a sweep is left behind
    sys.exit(main())


if __name__ == "__main__":
    start()
