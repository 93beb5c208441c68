"""A grid of runs: `python -m palslib sweep GRID.json`, or `make sweep GRID=GRID.json`.

Each run has a folder named by a hash of its config, and the file system is the queue: a run with a record is finished,
a run with a checkpoint is resumed, a run that another sweep works on is left to it. So a sweep may be called again, or
twice at the same time, and does only the missing runs.
"""

import contextlib
import itertools
import json
import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import field, fields, replace
from pathlib import Path

from palslib.common.files import atomic_write
from palslib.common.lock import in_use, run_lock
from palslib.common.names import check_name, shown
from palslib.common.reading import read_object
from palslib.common.settings import settings
from palslib.grid.engines import LocalSlots, Slurm, failed, finished, log_end
from palslib.plan.config import RunConfig
from palslib.plan.content import exchanged_since

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


def state(config: RunConfig, since: float = 0) -> dict:
    """The state of a run, read from its folder: run, status, reason, step, steps, dev average, seconds.

    A failure that is older than `since` does not count. A damaged file counts as a failure of this run.
    """
    row = {"run": config.name, "status": "waiting", "reason": "", "step": 0, "steps": config.steps}
    row |= {"dev average": None, "seconds": None}
    try:
        if record := finished(config):
            last = record["results"]["last"]
            row |= {"status": "finished", "step": last["step"], "dev average": last["dev_average"]}
            return row | {"seconds": record["seconds"]["total"]}
        failure = failed(config, since) or {}
    except (ValueError, OSError) as error:
        return row | {"status": "failed", "reason": str(error)}
    # There may be no checkpoint yet, or one that is being renamed or is damaged, which the run itself detects.
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        saved = json.loads((Path(config.folder) / "checkpoint" / "run.json").read_text(encoding="utf-8"))
        average = float(saved["history"][-1]["dev_average"]) if saved["history"] else None
        row |= {"step": int(saved["step"]), "dev average": average}
    return row | {name: value for name, value in failure.items() if name in row}


def labels(configs: Sequence[RunConfig]) -> dict[str, str]:
    """A label for each run by name: the settings in which runs differ (None and {} left out), then the name."""
    known = ("method", "schedule", "seed", "folder", "checkpoint_every")
    more = [f for f, v in vars(configs[0]).items() if f not in known and any(vars(c)[f] != v for c in configs)]
    said = [[f"{f}={vars(c)[f]}" for f in more if vars(c)[f] not in (None, {})] for c in configs]
    return {c.name: "  ".join([*of, c.name]) for of, c in zip(said, configs, strict=True)}


def line(label: str, row: dict) -> str:
    """A run's state in one line: its label, steps, dev average, seconds, status."""
    average = "" if row["dev average"] is None else f"{row['dev average']:.1f}"
    seconds = "" if row["seconds"] is None else f"{row['seconds']:.0f} s"
    status = f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]
    return f"{label}  {row['step']:>6}/{row['steps']:<6} {average:>5}  {seconds:>8}  {status}"


def sweep(configs: Sequence[RunConfig], engine: LocalSlots | Slurm) -> list[dict]:
    """Executes every run to its end; returns the `state` of each, and prints a line whenever a status changes.

    It waits for runs that another sweep works on. A run that fails there counts as failed here too: nothing is run
    twice. A run that had finished with other texts, labels or weights under the same names is run again.
    """
    since, names = engine.terms.since, labels(configs)
    said, width = dict.fromkeys(names, "waiting"), max(map(len, names.values()))

    def say() -> None:
        for name, row in rows.items():
            if said[name] != row["status"]:
                print(line(names[name].ljust(width), row), flush=True)
            said[name] = row["status"]

    rows = {config.name: state(config, since) for config in configs}
    known: dict[tuple, str] = {}  # hashes of splits, each read once
    done = {name for name, row in rows.items() if row["status"] == "finished"}
    anew = {c.name for c in configs if c.name in done and _outdated(c, known)}
    waiting = [c for c in configs if c.name not in done or c.name in anew]
    jobs: dict[str, tuple] = {}
    for place in (Path(config.folder) for config in configs if config.name in done):
        if (place / "lock").exists():  # of a run that finished after its sweep was killed
            with contextlib.suppress(ValueError, OSError), run_lock(place):  # which removes it, unless it is in use
                pass
    try:
        while waiting or jobs:
            for name, (config, job) in list(jobs.items()):
                if job.done():
                    del jobs[name]
                    try:
                        result = job.result()
                    except (ValueError, OSError) as error:  # a damaged file, no such command, a full disk
                        result = {"status": "failed", "reason": str(error)}
                    rows[name] = state(config, since) | {k: v for k, v in result.items() if k in rows[name]}
                    if result["status"] == "elsewhere":
                        waiting.append(config)
                    else:
                        anew.discard(name)
            # Only with a free slot: checking 30 waiting runs all the time took a sixth of a core from the running ones.
            for config in list(waiting) if len(jobs) < engine.slots else ():
                row = rows[config.name] = state(config, since)
                if row["status"] != "waiting" and config.name not in anew:
                    waiting.remove(config)
                elif len(jobs) < engine.slots:
                    try:
                        row["status"] = "elsewhere" if in_use(Path(config.folder)) else "running"
                    except OSError as error:  # the path named `lock` is no lock file
                        row |= {"status": "failed", "reason": str(error)}
                    if row["status"] == "running":
                        jobs[config.name] = config, engine.submit(config)
                    if row["status"] != "elsewhere":
                        waiting.remove(config)
            say()
            time.sleep(0.2)
    finally:
        engine.close()
    for config in configs:
        if rows[config.name]["status"] == "finished" and (now := state(config, since))["status"] != "finished":
            reason = now["reason"] or "its record has been deleted since"
            rows[config.name] |= {"status": "failed", "reason": reason}
    say()
    return list(rows.values())


def _outdated(config: RunConfig, known: dict[tuple, str]) -> bool:
    """Whether a finished run's inputs have been exchanged, or cannot be read (the run itself then says why)."""
    try:
        record = finished(config)  # None if it has been deleted meanwhile
        return record is None or bool(exchanged_since(record, config, known))
    except ValueError:
        return True


def summary(configs: Sequence[RunConfig], rows: Sequence[dict]) -> str:
    """A text with the runs that did not finish, each with the end of its log, and the number that did."""
    names = labels(configs)
    bad = [(c, row) for c, row in zip(configs, rows, strict=True) if row["status"] != "finished"]
    ends = [f"{names[c.name]}: {row['reason']}; the end of {c.folder}/log.txt:\n{log_end(c)}\n" for c, row in bad]
    return "\n".join(["", *ends, f"{len(rows) - len(bad)} of {len(rows)} runs finished"])


def collect(configs: Sequence[RunConfig], folder: Path) -> int:
    """Copies what finished runs leave as evidence into a folder, `NAME.json` (record) and `NAME.npz` (predictions), and
    returns the number of records. Runs whose texts, labels or weights have been exchanged since count as missing.
    Raises FileExistsError, before it copies, where the folder has another record or other predictions of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    known: dict[tuple, str] = {}
    done = [config for config in configs if finished(config) and not _outdated(config, known)]
    sources = [(c.name, Path(c.folder, name)) for c in done for name in ("record.json", "predictions.npz")]
    copies = {folder / f"{name}{source.suffix}": source for name, source in sources if source.is_file()}
    for copy, source in copies.items():
        if copy.is_file() and copy.read_bytes() != source.read_bytes():
            raise FileExistsError(f"{copy} differs from {source}: move it away, or collect into another folder")
    for copy, source in copies.items():
        with atomic_write(copy) as temporary:
            shutil.copyfile(source, temporary)
    return len(done)
