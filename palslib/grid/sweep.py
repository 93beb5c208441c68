"""A grid of runs: `python -m palslib sweep GRID.json`, or `make sweep GRID=GRID.json`.

Each run has a folder named by a hash of its config, and the file system is the queue: a run with a record is finished,
a run with a checkpoint is resumed, a run that another sweep works on is left to it. So a sweep may be called again, or
many times at once, and does only the missing runs. On a cluster, several sweeps of one grid share its runs:

    sbatch --array=1-8 --gpus-per-task=1 --time=600 --wrap "palslib sweep table3 --slots 1"

Each run is a separate process with a time limit: a crash, an out-of-memory kill or a hang affects only that run.
"""

import itertools
import json
import math
import os
import queue
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from threading import Event

from filelock import FileLock, Timeout

from palslib.common.files import atomic_write, in_use, write_text
from palslib.common.names import check_name, shown
from palslib.common.reading import read_object
from palslib.common.settings import settings
from palslib.plan.config import RunConfig
from palslib.plan.content import exchanged
from palslib.records import check_fields

MOST_RUNS = 10_000
"""Maximum number of runs of a grid, which are counted before their configs are made."""

PLANS = Path(__file__).with_name("plans")
"""The folder of the grids that come with the package."""


@settings(part="part of a grid")
class Grid:
    """Configs that differ in some fields: each combination of `product` with each of `runs`, on top of `base`."""

    base: dict = field(default_factory=dict)
    """Fields of `RunConfig` that all runs share, also `preset`."""
    product: dict = field(default_factory=dict)
    """Lists of values by field, as in `{"method": ["shared", "pals-204"], "seed": [0, 1, 2]}`."""
    runs: list = field(default_factory=lambda: [{}])
    """Fields of single runs, as in `[{"method": "pals-204", "learning_rate": 1e-4}, {"method": "shared"}]`."""

    @classmethod
    def named(cls, name: str | Path) -> "Grid":
        """The grid in a JSON file, or one of the package's grids by its name (`table3`)."""
        if Path(name).suffix or Path(name).is_file():
            return cls.from_file(name)
        names = sorted(path.stem for path in PLANS.glob("*.json"))
        return cls.from_file(PLANS / f"{check_name('grid (and no such file exists)', str(name), names)}.json")

    @classmethod
    def from_file(cls, path: str | Path) -> "Grid":
        """The grid in a JSON file. Raises ValueError naming a file that is not a grid."""
        values = read_object(path, ", ".join(field.name for field in fields(cls)))
        try:
            return cls(**values)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def configs(self, folder: Path) -> list[RunConfig]:
        """The configs of all runs, each with its folder under `folder`. Raises ValueError naming the run and the field.

        A run without checkpoints gets one every tenth of its steps, which changes no result.
        """
        known = sorted({f.name for f in fields(RunConfig)} | {"preset"})
        for name, values in self.product.items():
            check_name("parameter in product", name, known)
            if not isinstance(values, list) or not values:
                raise ValueError(f"product: {name} must be a list of one value or more, not {shown(values)}")
        for own in self.runs:
            if not isinstance(own, dict):
                raise ValueError(f"runs: each must be an object of parameters, not {shown(own)}")
        number = len(self.runs) * math.prod(map(len, self.product.values()))
        if not 1 <= number <= MOST_RUNS:
            raise ValueError(f"runs and product: a grid has 1 to {MOST_RUNS:,} runs, not {number:,}")
        configs: dict[str, RunConfig] = {}
        combinations = [dict(zip(self.product, c, strict=True)) for c in itertools.product(*self.product.values())]
        for combination, own in itertools.product(combinations, self.runs):
            try:
                if twice := set(own) & set(combination):
                    raise ValueError(f"{min(twice)} is both in runs and in product")
                config = RunConfig.from_dict({"progress": False} | self.base | own | combination).with_steps()
                if config.folder:
                    raise ValueError("leave out folder, which the sweep chooses")
                config.resolved_method()  # raises ValueError where it does not fit the backbone
                if config.name in configs:
                    raise ValueError("this run occurs twice (keep and checkpoint_every make no difference)")
            except ValueError as error:
                raise ValueError(f"run {len(configs) + 1}, {shown(own | combination)}: {error}") from error
            every = config.checkpoint_every or max(1, config.steps // 10)
            configs[config.name] = replace(config, folder=str(folder / config.name), checkpoint_every=every)
        return list(configs.values())


GRACE = 20.0
"""Seconds that a run has to save a checkpoint when it is stopped."""
COMMAND = (sys.executable, "-m", "palslib", "train")


def finished(config: RunConfig) -> dict | None:
    """The record of a run that has finished with the weights that its config asks for and the present inputs, or None.
    Raises ValueError for a file that is not a record, or is another run's."""
    path = Path(config.folder) / "record.json"
    if not path.exists():
        return None
    check_fields(path, record := read_object(path))
    if record["key"] != config.key:
        raise ValueError(f"{path} is the record of another run, {record['key']}, not of {config.key}")
    if changed := exchanged(record.get("content") or {}, config):
        raise ValueError(f"{path} was made from inputs that have changed since ({', '.join(changed)}): move it away")
    return record if config.has_kept(record["config"].get("keep")) else None


def labels(configs: Sequence[RunConfig]) -> dict[str, str]:
    """A label for each run by name: the settings in which runs differ (None and {} left out), then the name."""
    known = ("method", "schedule", "seed", "folder", "checkpoint_every")
    more = [f for f, v in vars(configs[0]).items() if f not in known and any(vars(c)[f] != v for c in configs)]
    said = [[f"{f}={vars(c)[f]}" for f in more if vars(c)[f] not in (None, {})] for c in configs]
    return {c.name: "  ".join([*of, c.name]) for of, c in zip(said, configs, strict=True)}


def _process(words: Sequence[str], environment: dict, log: Path, limit: float | None, stop: Event) -> str:
    """Runs a process to its end, to its time limit, or until `stop`; returns how it ended. When it is stopped early, it
    may first save a checkpoint."""
    with open(log, "a") as file:
        print(f"=== {time.strftime('%Y-%m-%d %H:%M:%S')}", file=file, flush=True)
        pipes = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(words, env=environment, start_new_session=True, **pipes)
    deadline = time.monotonic() + (limit or math.inf)
    while process.poll() is None and not stop.is_set() and time.monotonic() < deadline:
        stop.wait(0.05)
    late = process.poll() is None and not stop.is_set()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)  # also its children
            process.wait(GRACE)
    return f"over the limit of {limit:g} s" if late else f"exit status {process.returncode}"


def perform(config: RunConfig, command: Sequence[str], environment: dict, limit, retries: int, stop: Event) -> str:
    """Executes a run until it has its record; returns `finished`, `elsewhere`, or how it failed."""
    folder, why = Path(config.folder), "stopped"
    try:
        with FileLock(folder.with_suffix(".claim"), timeout=0):  # of this sweep, while it starts the run
            for _ in range(1 + retries):
                if in_use(folder):
                    return "elsewhere"
                if finished(config) or stop.is_set():
                    break
                write_text(place := folder.with_suffix(".json"), json.dumps(asdict(config), indent=1) + "\n")
                why = _process([*command, str(place)], environment, folder.with_suffix(".log"), limit, stop)
            return "finished" if finished(config) else f"failed: {why}"
    except Timeout:
        return "elsewhere"


def sweep(configs, slots: int = 2, command: Sequence[str] = COMMAND, limit=None, retries: int = 1) -> dict[str, str]:
    """Executes every run to its end, `slots` at a time; returns the status of each by name, and prints a line for each
    that ends. It waits for runs that another sweep works on. GPUs and cores are divided among the slots."""
    names, found, stop = labels(configs), {}, Event()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, cores // slots))}
    gpus, free = visible_gpus(), queue.SimpleQueue()
    for gpu in itertools.islice(itertools.cycle(gpus if len(gpus) > 1 else [None]), slots):
        free.put({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})

    def job(config: RunConfig) -> str:
        gpu = free.get()
        try:
            status = perform(config, command, os.environ | threads | gpu, limit, retries, stop)
        except (ValueError, OSError) as error:
            status = f"failed: {error}"
        finally:
            free.put(gpu)
        if status != "elsewhere":
            print(f"{names[config.name]}  {status}", flush=True)
        return status

    with ThreadPoolExecutor(slots) as pool:
        try:
            while left := [config for config in configs if found.get(config.name, "elsewhere") == "elsewhere"]:
                time.sleep(bool(found))
                found |= zip((config.name for config in left), pool.map(job, left), strict=True)
        finally:
            stop.set()
    return found


def visible_gpus() -> list[str]:
    """The numbers of the NVIDIA GPUs that a process started here may use; torch, which is slow to load, is not used."""
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [gpu for gpu in given.split(",") if gpu]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    return [str(number) for number in range(f"\n{listed}".count("\nGPU "))]


def log_end(config: RunConfig) -> str:
    """The last eight lines of a run's log; of a progress bar only its last state."""
    path = Path(config.folder).with_suffix(".log")
    text = path.read_text(errors="replace")[-20_000:] if path.is_file() else ""
    kept = [line.rsplit("\r", 1)[-1] for line in text.rpartition("=== ")[2].split("\n")[1:] if line.strip()]
    return "\n".join(f"    {line}" for line in kept[-8:])


def summary(configs: Sequence[RunConfig], found: dict[str, str]) -> str:
    """A text with the runs that did not finish, each with the end of its log, and the number that did."""
    bad = [config for config in configs if found[config.name] != "finished"]
    ends = [f"{c.name}: {found[c.name]}; the end of its log:\n{log_end(c)}\n" for c in bad]
    return "\n".join(["", *ends, f"{len(found) - len(bad)} of {len(found)} runs finished"])


def collect(configs: Sequence[RunConfig], folder: Path) -> int:
    """Copies what finished runs leave as evidence into a folder, `NAME.json` (record) and `NAME.npz` (predictions), and
    returns the number of records. Raises FileExistsError where the folder has another record of a run."""
    done = [config for config in configs if finished(config)]
    for config, name in itertools.product(done, ("record.json", "predictions.npz")):
        source, copy = Path(config.folder, name), folder / f"{config.name}{Path(name).suffix}"
        if copy.is_file() and copy.read_bytes() != source.read_bytes():
            raise FileExistsError(f"{copy} differs from {source}: move it away, or collect into another folder")
        with atomic_write(copy) as temporary:
            shutil.copyfile(source, temporary)
    return len(done)
