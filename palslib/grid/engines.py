"""Where the runs of a grid take place: in slots of this machine, or as jobs of Slurm.

Each run is a process of its own, under a lock and a time limit: a crash, an out-of-memory kill or a hang costs that run
and nothing else. An engine has `slots`, `submit` (which returns a job with `done()` and `result()`) and `close`.
"""

import contextlib
import itertools
import json
import math
import os
import queue
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from palslib.common.files import write_text
from palslib.common.lock import PARENT, InUse, run_lock
from palslib.common.reading import read_object
from palslib.plan.config import RunConfig
from palslib.plan.content import exchanged_since

TRAIN = (sys.executable, "-m", "palslib", "train")
GRACE = 20.0
"""Seconds that a run has to save a checkpoint where it is ended; Slurm warns 30 s before it ends a job."""


@dataclass(frozen=True)
class Terms:
    """On which the runs of one sweep are taken."""

    command: tuple[str, ...] = TRAIN
    """What trains; the path of the config is added."""
    limit: float | None = None
    """Seconds that one try may take."""
    retries: int = 1
    """Further tries after one that failed; each goes on from the run's checkpoint."""
    since: float = field(default_factory=time.time)
    """When the sweep began: a failure before that is tried again, a later one, of another sweep, is not."""


def finished(config: RunConfig) -> dict | None:
    """The record of a run that has ended as its config asks, or None. Raises ValueError for what is no record."""
    path = Path(config.folder) / "record.json"
    if not path.exists():
        return None
    record = read_object(path, "fields of a record")
    try:
        last, kept = record["results"]["last"], record["config"]["keep"]
        _ = last["step"], last["dev_average"], record["seconds"]["total"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: not the record of a run: {error} is missing") from error
    return record if config.has_kept(kept) else None


def failed(config: RunConfig, since: float) -> dict | None:
    """What became of a run that has failed since then, or None. Raises ValueError for what does not say that."""
    path = Path(config.folder) / "failure.json"
    if not path.exists():
        return None
    failure = read_object(path, "fields of a failure")
    if not isinstance(failure.get("ended"), (int, float)):
        raise ValueError(f"{path}: not a failure of a run: it does not say when it ended")
    return failure if failure["ended"] >= since else None


def log_end(config: RunConfig) -> str:
    """The last eight lines of a run's last try; of a progress bar its last state."""
    path = Path(config.folder) / "log.txt"
    text = path.read_bytes()[-20_000:].decode(errors="replace") if path.is_file() else ""
    text = text.rpartition("=== try ")[2]
    kept = [line.rsplit("\r", 1)[-1] for line in text.split("\n")[1:] if line.strip()]
    return "\n".join(f"    {line}" for line in kept[-8:])


def perform(config: RunConfig, terms: Terms, threads: int, gpu: str | None = None, stop=None) -> dict:
    """Takes a run to its record, unless another process is at it.

    Args:
        threads: of a process, for matrix products.
        gpu: the one GPU that it may see, by number, or None for all.
        stop: a `threading.Event` that ends it early.

    Returns:
        `status` (`finished`, `failed`, `elsewhere` or `stopped`), and of a failure `reason`, `seconds` of the last try
        and `ended` (a time stamp). A failure is also written to the folder, for other sweeps to see.
    """
    folder, stop = Path(config.folder), stop or threading.Event()
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(run_lock(folder))
        except InUse:
            return {"status": "elsewhere"}
        if (record := finished(config)) and not exchanged_since(record, config):
            return {"status": "finished"}
        if failure := failed(config, terms.since):
            return failure
        write_text(folder / "config.json", json.dumps(asdict(config), indent=1) + "\n")
        environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
        environment |= {PARENT: lock.holder} | ({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})
        for number in range(1 + terms.retries):
            began = time.monotonic()
            with open(folder / "log.txt", "a") as log:
                print(f"=== try {number + 1}, {time.strftime('%Y-%m-%d %H:%M:%S')}", file=log, flush=True)
                words = [*terms.command, str(folder / "config.json")]
                reason = _run_process(words, environment, log, lock, terms.limit, stop)
            if finished(config):
                return {"status": "finished"}
            if stop.is_set():
                return {"status": "stopped"}
        outcome = {"status": "failed", "reason": reason, "seconds": time.monotonic() - began, "ended": time.time()}
        write_text(folder / "failure.json", json.dumps(outcome) + "\n")
        return outcome


def _run_process(words, environment, log, lock, limit, stop) -> str:
    """Runs one process to its end, at the latest to its limit; returns how it ended.

    It has a session of its own, so that it can be killed with all that it started, and it inherits the lock: where the
    sweep itself is killed, its runs go on, and still nobody starts them a second time. Where it is to end before its
    time, it may first save a checkpoint.
    """
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
        pass_fds=[lock.file.fileno()],
    )
    deadline = time.monotonic() + (math.inf if limit is None else limit)
    try:
        while process.poll() is None and not stop.is_set():
            if time.monotonic() > deadline:
                return f"over the limit of {limit:g} s"
            time.sleep(0.05)
    finally:
        if process.poll() is None or stop.is_set():  # Slurm's warning may have ended the first
            _ask_to_end(process)
        with contextlib.suppress(ProcessLookupError):  # also after its end: what it had started would keep the lock
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode >= 0:
        return f"exit status {process.returncode}" + ("" if process.returncode else ", but no record")
    name = signal.Signals(-process.returncode).name
    return f"killed by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")


def _ask_to_end(process: subprocess.Popen) -> None:
    """SIGTERM for a process and all that it started, which have `GRACE` to end: what trains may not be the first."""
    deadline = time.monotonic() + GRACE
    with contextlib.suppress(ProcessLookupError):  # all have ended
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.05)


class LocalSlots:
    """Some runs at once on this machine: its GPUs are shared out among them if it has several, and its cores, unless
    `OMP_NUM_THREADS` says how many threads each is to have (cores that other work is on make a run of more slow)."""

    def __init__(self, slots: int, terms: Terms):
        self.slots, self.terms, self.stop = slots, terms, threading.Event()
        said = os.environ.get("OMP_NUM_THREADS", "")
        self.threads = int(said) if said.isdecimal() else max(1, len(os.sched_getaffinity(0)) // slots)
        self.pool = ThreadPoolExecutor(slots)
        self.gpus: queue.SimpleQueue = queue.SimpleQueue()
        gpus = visible_gpus()
        for gpu in itertools.islice(itertools.cycle(gpus if len(gpus) > 1 else [None]), slots):
            self.gpus.put(gpu)

    def submit(self, config: RunConfig) -> Future:
        def job() -> dict:
            gpu = self.gpus.get()
            try:
                return perform(config, self.terms, self.threads, gpu, self.stop)
            finally:
                self.gpus.put(gpu)

        return self.pool.submit(job)

    def close(self) -> None:
        """Kills what still runs."""
        self.stop.set()
        self.pool.shutdown()


def visible_gpus() -> list[str]:
    """The numbers of NVIDIA's GPUs that a process started here may use; no torch, which takes seconds to load."""
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [gpu for gpu in given.split(",") if gpu]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    return [str(number) for number in range(listed.count("\n"))]


class Slurm:
    """Each run a job of Slurm, through submitit; the folder must be seen by all machines of the cluster.

    Jobs outlive the sweep: calling it again waits for those that still run.
    """

    def __init__(self, slots: int, terms: Terms, folder: Path, options: dict):
        try:
            import submitit
        except ImportError as error:
            raise ValueError("Slurm needs the package submitit: pip install 'palslib[cluster]'") from error
        if not shutil.which("srun"):
            raise ValueError("this machine has no Slurm: the command srun is missing")
        if terms.limit is None and "time" not in options:
            raise ValueError("Slurm wants to know how long a job may take: give a limit, or time=MINUTES")
        if terms.limit is not None:  # Slurm's limit is beyond ours, and Slurm warns (by a signal) 30 s before it
            options = {"time": math.ceil(terms.limit * (1 + terms.retries) / 60) + 2} | options
        self.slots, self.terms, self.threads = slots, terms, options.get("cpus_per_task", 1)
        self.folder = folder / "slurm"
        self.executor = submitit.SlurmExecutor(self.folder)
        self.executor.update_parameters(**{"job_name": "palslib", "signal_delay_s": 30} | options)
        self.asked, self.queue = -math.inf, set()

    def submit(self, config: RunConfig) -> "SlurmJob":
        place = self.folder / f"{config.name}-{secrets.token_hex(8)}.json"
        job = self.executor.submit(perform_in_job, config, self.terms, self.threads, place)
        self.queue.add(job.job_id)
        return SlurmJob(self, job, place)

    def listed(self) -> set[str]:
        """Numbers of the jobs that wait or run, asked for at most every ten seconds."""
        if time.monotonic() - self.asked > 10:
            self.asked = time.monotonic()
            call = ["squeue", "--me", "--noheader", "--format=%A"]
            said = subprocess.run(call, capture_output=True, text=True)
            if said.returncode == 0:  # a controller that does not answer says nothing about the jobs
                self.queue = set(said.stdout.split())
        return self.queue

    def close(self) -> None:
        """Nothing to do."""


def perform_in_job(config: RunConfig, terms: Terms, threads: int, place: Path) -> None:
    """`perform` within a job of Slurm, whose warning ends the run with a checkpoint; writes what it returns as JSON."""
    stop = threading.Event()
    signal.signal(signal.SIGUSR2, lambda *_: stop.set())  # the one that submitit asks for
    try:
        outcome = perform(config, terms, threads, stop=stop)
    except (ValueError, OSError) as error:
        outcome = {"status": "failed", "reason": str(error)}
    write_text(place, json.dumps(outcome) + "\n")


class SlurmJob:
    """One job. Its result is a file; a job without one that Slurm no longer lists is lost (no accounting is needed)."""

    def __init__(self, engine: Slurm, job, place: Path):
        self.engine, self.job, self.place = engine, job, place

    def done(self) -> bool:
        return self.place.exists() or self.job.job_id not in self.engine.listed()

    def result(self) -> dict:
        """As `perform` returns it."""
        deadline = time.monotonic() + 5  # a shared file system may show the file late
        while not self.place.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        if self.place.exists():
            return read_object(self.place, "fields of a result")
        return {"status": "failed", "reason": f"Slurm ended job {self.job.job_id}, see {self.job.paths.stderr}"}
