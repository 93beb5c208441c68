"""A grid of runs: `python -m palslib sweep GRID.json`, or `make sweep GRID=GRID.json`.

Each run has a folder named by a hash of its config, and the file system is the queue: a run with a record is finished,
a run with a checkpoint is resumed, a run that another sweep works on is left to it. So a sweep may be called again, or
many times at once, and does only the missing runs. On a cluster, several sweeps of one grid share its runs:

    sbatch --array=1-8 --gpus=1 --time=600 --wrap "exec palslib sweep table3 --slots 1"

Each run is a separate process with a time limit: a crash, an out-of-memory kill or a hang affects only that run.
"""

import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Annotated

from filelock import FileLock, Timeout
from joblib import cpu_count
from pydantic import Field
from tqdm import tqdm

from palslib.common.files import atomic_write, clear, in_use, write_text
from palslib.common.names import check_name, in_words, shown
from palslib.common.processes import say
from palslib.common.reading import read_object
from palslib.common.settings import settings
from palslib.plan.config import RunConfig
from palslib.plan.content import exchanged
from palslib.records import check_fields

PLANS = Path(__file__).with_name("plans")
"""The folder of the grids that come with the package."""


@settings(part="grid")
class Grid:
    """Configs that differ in some fields: each combination of `product` with each of `runs`, on top of `base`."""

    base: dict = field(default_factory=dict)
    """Fields of `RunConfig` that all runs share, also `preset`."""
    product: dict[str, Annotated[list, Field(min_length=1)]] = field(default_factory=dict)
    """Lists of values by field, as in `{"method": ["shared", "pals-204"], "seed": [0, 1, 2]}`."""
    runs: Annotated[list[dict], Field(min_length=1)] = field(default_factory=lambda: [{}])
    """Fields of single runs, as in `[{"method": "pals-204", "learning_rate": 1e-4}, {"method": "shared"}]`."""
    title: str = ""
    """What the grid is about, for readers."""

    @classmethod
    def named(cls, name: str | Path) -> "Grid":
        """The grid in a JSON file, or one of the package's grids by its name (`table3`). Raises ValueError naming a
        file that is not a grid."""
        path = Path(name)
        if not path.suffix and not path.is_file():
            names = sorted(plan.stem for plan in PLANS.glob("*.json"))
            path = PLANS / f"{check_name('grid (and no such file exists)', str(name), names)}.json"
        values = read_object(path, "base, product, runs, title")
        try:
            return cls(**values)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @property
    def size(self) -> int:
        """The number of its runs."""
        return len(self.runs) * math.prod(map(len, self.product.values()))

    def configs(self, folder: Path) -> list[RunConfig]:
        """The configs of all runs, each with its folder under `folder`. Raises ValueError naming the run and the field.

        A run without checkpoints gets one every tenth of its steps, which changes no result.
        """
        configs: dict[str, RunConfig] = {}
        rows: dict[tuple, int] = {}
        combinations = [dict(zip(self.product, c, strict=True)) for c in itertools.product(*self.product.values())]
        for combination, own in itertools.product(combinations, self.runs):
            try:
                if twice := set(own) & set(combination):
                    raise ValueError(f"{min(twice)} is both in runs and in product")
                config = RunConfig.from_dict(self.base | own | combination).with_steps(rows)
                if config.folder:
                    raise ValueError("leave out folder, which the sweep chooses")
                config.resolved_method()  # raises ValueError where it does not fit the backbone
                if (name := config.name) in configs:
                    raise ValueError("this run occurs twice (keep and checkpoint_every make no difference)")
            except ValueError as error:
                raise ValueError(f"run {len(configs) + 1}, {shown(own | combination)}: {error}") from error
            every = config.checkpoint_every or max(1, config.steps // 10)
            configs[name] = replace(config, folder=str(folder / name), checkpoint_every=every)
        return list(configs.values())


GRACE = 20.0
"""Seconds that a run has to save a checkpoint when it is stopped."""
MINUTE = 60.0
"""Seconds between two reports on the runs under way, where a sweep prints into a file."""


@dataclass(frozen=True)
class Terms:
    """The conditions under which a sweep executes its runs."""

    command: Sequence[str]
    """The command that trains; the path of the config is appended."""
    limit: float | None = None
    """Seconds that one attempt at a run may take."""
    retries: int = 1
    """Further attempts at a failed run, each from its checkpoint."""
    began: float = field(default_factory=time.time)
    """When the sweep began: a run that has failed since then, in another sweep, is not tried again."""
    stop: Event = field(default_factory=Event)
    """Set when the sweep ends before its runs."""
    hashes: dict[tuple, str] = field(default_factory=dict)
    """The hashes of splits, as `content.run_content` takes them, so that each is read once."""


def beside(config: RunConfig, ending: str) -> Path:
    """A file of the sweep, beside the folder of a run, into which only the run itself writes: its config (`.json`), its
    `.log`, its `.claim` (the lock of the sweep that works on it), and how it `.failed`."""
    return Path(config.folder + ending)


def finished(config: RunConfig, hashes: dict[tuple, str] | None = None) -> dict | None:
    """The record of a run that has finished with the weights that its config asks for, or None. Raises ValueError for a
    file that is not a record, is another run's, or was made from inputs that have changed since."""
    path = Path(config.folder) / "record.json"
    if not path.exists():
        return None
    check_fields(path, record := read_object(path))
    if record["key"] != config.key:
        raise ValueError(f"{path} is the record of another run, {record['key']}, not of {config.key}")
    if changed := exchanged(record.get("content") or {}, config, known=hashes):
        raise ValueError(f"{path} was made from inputs that have changed since ({', '.join(changed)}): move it away")
    names = {name: record["config"].get(name) for name in ("study", "arm", "setting")}
    say((f"its record keeps {n}={was!r}" for n, was in names.items() if was != getattr(config, n)), config.name)
    return record if config.has_kept(record["config"].get("keep")) else None


def perform(config: RunConfig, terms: Terms, environment: dict[str, str]) -> str:
    """Executes a run until it has its record; returns `finished`, `failed: REASON`, `stopped`, or `elsewhere` where
    another sweep works on it, or a process of the run that outlived its sweep."""
    file, failure = beside(config, ".json"), beside(config, ".failed")
    file.parent.mkdir(parents=True, exist_ok=True)
    with suppress(Timeout), FileLock(beside(config, ".claim"), timeout=0):
        clear(file.parent, Path(config.folder).name)
        if failure.exists() and failure.stat().st_mtime > terms.began:
            return failure.read_text(encoding="utf-8")
        failure.unlink(missing_ok=True)
        reasons = []
        while not in_use(Path(config.folder)):
            if finished(config, terms.hashes):
                return "finished"
            if terms.stop.is_set():
                return "stopped"
            if len(reasons) > terms.retries:
                write_text(failure, f"failed: {reasons[-1]}")
                return f"failed: {reasons[-1]}"
            write_text(file, json.dumps(asdict(config), indent=1) + "\n")
            reasons.append(run_process([*terms.command, str(file)], environment, beside(config, ".log"), terms))
    return "elsewhere"


def run_process(words: Sequence[str], environment: dict[str, str], log: Path, terms: Terms) -> str:
    """Runs a process to its end, to its time limit, or until the sweep stops; returns how it ended."""
    with open(log, "a") as file:
        print(f"=== {time.strftime('%Y-%m-%d %H:%M:%S')}", file=file, flush=True)
        pipes = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(words, env=environment, start_new_session=True, **pipes)
    deadline = time.monotonic() + (terms.limit or math.inf)
    while process.poll() is None and not terms.stop.is_set() and time.monotonic() < deadline:
        terms.stop.wait(0.05)
    late = process.poll() is None and not terms.stop.is_set()
    end_session(process)
    if late:
        return f"over the limit of {terms.limit:g} s"
    if process.returncode >= 0:
        return f"exit status {process.returncode}, without a record"
    return f"killed by {signal.Signals(-process.returncode).name} (SIGKILL: perhaps for lack of memory)"


def end_session(process: subprocess.Popen) -> None:
    """Asks a process and its children, one of which may be training, to end; those that have not within `GRACE` seconds
    are killed."""
    deadline = time.monotonic() + GRACE
    with suppress(ProcessLookupError, PermissionError):  # none is left (macOS: only ended ones)
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            process.poll()  # a process whose end nobody has asked for still counts as one of the session
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def slot_environments(slots: int) -> list[dict[str, str]]:
    """What each slot adds to the environment of its runs: its share of the cores (threads on busy cores slow a run
    down), and its share of the GPUs, at least one, if there are several."""
    import torch  # only here, because it is slow to load

    environment = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, cpu_count() // slots))}
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = chosen.strip(",").split(",") if chosen else [str(number) for number in range(torch.cuda.device_count())]
    if len(gpus) < 2:
        return [environment] * slots
    return [environment | {"CUDA_VISIBLE_DEVICES": ",".join(gpus[slot % len(gpus) :: slots])} for slot in range(slots)]


def sweep(configs: Sequence[RunConfig], slots: int, terms: Terms) -> dict[str, str]:
    """Executes every run to its end, `slots` at a time; returns by folder how each ended, `finished` or `failed: WHY`.
    It waits for runs that another sweep works on. GPUs and cores are divided among the slots.

    A line is printed for each run that has ended. How far those under way are is shown on a terminal's last line, each
    for three seconds, and in a file every minute, on a line for each.
    """
    names, environments = labels(configs), slot_environments(slots)
    states = dict.fromkeys(names, "waiting")
    shown = {"bar_format": "{n} of {total} ended; now {desc}", "dynamic_ncols": True, "leave": False}
    bar = tqdm(total=len(configs), disable=None, file=sys.stdout, **shown)

    def job(config: RunConfig) -> None:
        states[config.folder], environment, result = "under way", environments.pop(), ""
        try:
            state = perform(config, terms, os.environ | environment)
            if state == "finished":
                record = read_object(Path(config.folder) / "record.json")
                average, seconds = record["results"]["last"]["dev_average"], record["seconds"]["total"]
                result = f"{'undefined' if average is None else f'{average:.1f}'}  {seconds:.0f} s  "
        except Exception as error:  # its inputs are read by libraries, which have many
            state = f"failed: {in_words(error)}"
        finally:
            environments.append(environment)
        states[config.folder] = state
        if state not in ("elsewhere", "stopped"):
            with tqdm.external_write_mode(sys.stdout):
                print(f"{names[config.folder]}  {result}{state}", flush=True)
            bar.update()

    left, reported = configs, time.monotonic()
    with bar, ThreadPoolExecutor(slots) as pool:
        try:
            while left:
                jobs = [pool.submit(job, config) for config in left]
                while not all(one.done() for one in jobs):
                    time.sleep(0.5)
                    under_way = [c for c in left if states[c.folder] in ("under way", "elsewhere")]
                    under_way = [c for c in under_way if not Path(c.folder, "record.json").exists()]
                    lines = [f"{names[config.folder]}  {progress(config)}" for config in under_way]
                    if bar.disable and time.monotonic() > reported + MINUTE:
                        reported = time.monotonic()
                        print(*lines, sep="\n", flush=True)
                    elif lines:
                        bar.set_description_str(lines[int(time.monotonic() / 3) % len(lines)])
                for one in jobs:
                    one.result()  # raises what is no failure of a run
                left = [config for config in left if states[config.folder] == "elsewhere"]  # look again
        finally:
            terms.stop.set()
            pool.shutdown(cancel_futures=True)
    return states


def labels(configs: Sequence[RunConfig]) -> dict[str, str]:
    """A label for each run by its folder: the settings in which runs differ (None and {} left out), then the name."""
    in_name = ("method", "schedule", "seed", "folder", "checkpoint_every")
    differing = [f for f, v in vars(configs[0]).items() if f not in in_name and any(vars(c)[f] != v for c in configs)]
    labels = {}
    for config in configs:
        settings = [f"{name}={vars(config)[name]}" for name in differing if vars(config)[name] not in (None, {})]
        labels[config.folder] = "  ".join([*settings, config.name])
    return labels


def log_end(config: RunConfig) -> str:
    """The end of what a run's last attempt wrote into its log."""
    path = beside(config, ".log")
    if not path.is_file():
        return ""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 20_000))
        return file.read().decode(errors="replace").rpartition("=== ")[2]


def progress(config: RunConfig) -> str:
    """The steps, the rate and the time left of a run, as the progress bar in its log last showed them."""
    bars = re.findall(rf"(\d+/{config.steps}) \[[\d:]+<([\d:?]+), *([^,\]]+)", log_end(config))
    return "{0} steps, {2}, {1} left".format(*bars[-1]) if bars else "no step in its log"


def summary(configs: Sequence[RunConfig], states: dict[str, str]) -> str:
    """A text with the runs that did not finish, each with the end of its log (of a progress bar only its last state),
    and the number that did."""
    parts = [""]
    for config in (config for config in configs if states[config.folder] != "finished"):
        lines = [line.rsplit("\r", 1)[-1] for line in log_end(config).split("\n")[1:] if line.strip()]
        parts.append(f"{Path(config.folder).name}: {states[config.folder]}; the end of {beside(config, '.log')}:")
        parts += [f"    {line}" for line in lines[-8:]] + [""]
    return "\n".join([*parts, f"{list(states.values()).count('finished')} of {len(states)} runs finished"])


def collect(configs: Sequence[RunConfig], folder: Path) -> int:
    """Copies what finished runs leave as evidence into a folder, `NAME.json` (record) and `NAME.npz` (predictions), and
    returns the number of records. Raises FileExistsError, before it copies, where the folder has another record or
    other predictions of a run."""
    hashes: dict[tuple, str] = {}
    done = [config for config in configs if finished(config, hashes)]
    sources = [Path(config.folder, name) for config in done for name in ("record.json", "predictions.npz")]
    copies = {source: folder / f"{source.parent.name}{source.suffix}" for source in sources if source.is_file()}
    for source, copy in copies.items():
        if copy.is_file() and copy.read_bytes() != source.read_bytes():
            raise FileExistsError(f"{copy} differs from {source}: move it away, or collect into another folder")
    for source, copy in copies.items():
        with atomic_write(copy) as temporary:
            shutil.copyfile(source, temporary)
    return len(done)
