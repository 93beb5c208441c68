"""The engines that execute the runs of a grid: slots of this machine, or jobs of Slurm.

Each run is a separate process with a lock and a time limit: a crash, an out-of-memory kill or a hang affects only that
run. An engine has `slots`, `submit` (which returns a job with `done()` and `result()`) and `close`.
"""

import contextlib
import errno
import itertools
import json
import math
import os
import platform
import queue
import re
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
from palslib.common.lock import PARENT, RUN_FILES, InUse, run_lock
from palslib.common.reading import read_object
from palslib.plan.config import RunConfig
from palslib.plan.content import exchanged_since
from palslib.records import check_fields, fields_of

_ENDED_WITH_US = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG, which stays over exec
if os.getppid() == int(sys.argv[1]):  # else the sweep has ended already
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""A program that becomes another one, to which Linux sends SIGTERM when the sweep that started it ends, even if the
sweep is killed: the run saves a checkpoint and ends too."""

GRACE = 20.0
"""Seconds that a run has to save a checkpoint when it is stopped; Slurm warns 30 s before it ends a job."""


@dataclass(frozen=True)
class Terms:
    """The conditions under which a sweep executes its runs."""

    command: tuple[str, ...] = (sys.executable, "-m", "palslib", "train")
    """The command that trains; the path of the config is appended."""
    limit: float | None = None
    """Time limit of one try in seconds."""
    retries: int = 1
    """Further tries after a failed one; each resumes from the run's checkpoint."""
    since: float = field(default_factory=time.time)
    """When the sweep began: a run that failed earlier is tried again, one that failed later in another sweep is not."""


def finished(config: RunConfig) -> dict | None:
    """The record of a run that has finished and kept the weights that its config asks for, or None. Raises ValueError
    for a file that is not a record, or is another run's."""
    path = Path(config.folder) / "record.json"
    if not path.exists():
        return None
    record = read_object(path, "fields of a record")
    check_fields(path, record)
    if record["key"] != config.key:
        raise ValueError(f"{path} is the record of another run, {record['key']}, not of {config.key}")
    return record if config.has_kept(record["config"].get("keep")) else None


_FAILURE = fields_of(status=str, reason=str, seconds=float, ended=float)


def failed(config: RunConfig, since: float) -> dict | None:
    """The failure of a run that has failed since that time, or None; one with a time in the future (a clock was wrong)
    does not count. Raises ValueError for a file without a failure."""
    path = Path(config.folder) / "failure.json"
    if not path.exists():
        return None
    failure = read_object(path, "fields of a failure")
    check_fields(path, failure, _FAILURE)
    return failure if since <= failure["ended"] <= time.time() + 60 else None  # clocks may differ by a minute


def log_end(config: RunConfig) -> str:
    """The last eight lines in the log of a run's last try; of a progress bar only its last state."""
    path = Path(config.folder) / "log.txt"
    text = path.read_bytes()[-20_000:].decode(errors="replace") if path.is_file() else ""
    text = text.rpartition("=== try ")[2]
    kept = [line.rsplit("\r", 1)[-1] for line in text.split("\n")[1:] if line.strip()]
    return "\n".join(f"    {line}" for line in kept[-8:])


def perform(config: RunConfig, terms: Terms, threads: int, gpu: str | None = None, stop=None) -> dict:
    """Executes a run until it has its record, unless another process works on it.

    Args:
        threads: number of threads of a process, for matrix products.
        gpu: the number of the only GPU that the run may see, or None for all.
        stop: a `threading.Event` that ends the run early.

    Returns `status` (`finished`, `failed`, `elsewhere` or `stopped`), and for a failure `reason`, `seconds` of the last
    try and `ended` (a time stamp). A failure is also written to the folder, for other sweeps to see.
    """
    folder, stop = Path(config.folder), stop or threading.Event()
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(run_lock(folder, (*RUN_FILES, "config.json", "log.txt", "failure.json")))
        except InUse:
            return {"status": "elsewhere"}
        stale = finished(config)
        if stale and not exchanged_since(stale, config):
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
            if (record := finished(config)) and record != stale:  # a record of other inputs shows no success
                return {"status": "finished"}
            if stop.is_set():
                return {"status": "stopped"}
        outcome = {"status": "failed", "reason": reason, "seconds": time.monotonic() - began, "ended": time.time()}
        write_text(folder / "failure.json", json.dumps(outcome) + "\n")
        return outcome


def _run_process(words, environment, log, lock, limit, stop) -> str:
    """Runs one process to its end or to its time limit; returns how it ended.

    The process has its own session, so that it can be killed with all its children, and it inherits the lock: if the
    sweep itself is killed, Linux asks its runs to end, and until they have ended, no other sweep starts them a second
    time. A process that is stopped early may first save a checkpoint.
    """
    if not shutil.which(words[0]):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), words[0])
    leash = [sys.executable, "-ISc", _ENDED_WITH_US, str(os.getpid())] if platform.system() == "Linux" else []
    pipes = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT, "env": environment}
    more = {"start_new_session": True, "pass_fds": [lock.file.fileno()]}
    process = subprocess.Popen([*leash, *words], **pipes, **more)
    deadline = time.monotonic() + (math.inf if limit is None else limit)
    try:
        while process.poll() is None and not stop.is_set():
            if time.monotonic() > deadline:
                return f"over the limit of {limit:g} s"
            time.sleep(0.05)
    finally:
        if process.poll() is None or stop.is_set():  # Slurm's warning may have ended the parent only
            _ask_to_end(process)
        with contextlib.suppress(ProcessLookupError):  # also after its end: its children would keep the lock
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode >= 0:
        return f"exit status {process.returncode}" + ("" if process.returncode else ", but no record")
    name = signal.Signals(-process.returncode).name
    return f"killed by {name}" + (", perhaps for lack of memory" if name == "SIGKILL" else "")


def _ask_to_end(process: subprocess.Popen) -> None:
    """Sends SIGTERM to a process and its children, one of which may be training, and waits up to `GRACE` seconds."""
    deadline = time.monotonic() + GRACE
    with contextlib.suppress(ProcessLookupError):  # all have ended
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.05)


class LocalSlots:
    """An engine that executes `slots` runs at a time on this machine. Several GPUs are divided among them, and so are
    the cores, unless `OMP_NUM_THREADS` sets the threads of each run (threads on busy cores slow a run down)."""

    def __init__(self, slots: int, terms: Terms):
        self.slots, self.terms, self.stop = slots, terms, threading.Event()
        said = os.environ.get("OMP_NUM_THREADS", "")
        self.threads = (int(said) if said.isdecimal() else 0) or max(1, cores() // slots)
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
        """Stops the runs that have not ended."""
        self.stop.set()
        self.pool.shutdown()


def cores() -> int:
    """The number of cores that this process may use, or of all cores where the system does not say (macOS)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """The numbers of the NVIDIA GPUs that a process started here may use; torch, which is slow to load, is not used."""
    if (given := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [gpu for gpu in given.split(",") if gpu]
    if not shutil.which("nvidia-smi"):
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    return [str(number) for number in range(len(re.findall("^GPU ", listed, re.MULTILINE)))]  # not their parts (MIG)


class Slurm:
    """An engine that executes each run as a job of Slurm, through submitit; all machines of the cluster must see the
    folder.

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
            raise ValueError("Slurm needs to know how long a job may take: give a limit in seconds, or time=MINUTES")
        if terms.limit is not None:  # Slurm's limit is longer than ours; Slurm sends a signal 30 s before it
            options = {"time": math.ceil(terms.limit * (1 + terms.retries) / 60) + 2} | options
        self.slots, self.terms, self.threads = slots, terms, options.get("cpus_per_task", 1)
        self.folder = folder / "slurm"
        self.executor = submitit.SlurmExecutor(self.folder)
        self.executor.update_parameters(**{"job_name": "palslib", "signal_delay_s": 30} | options)
        self.asked, self.queue = -math.inf, set()

    def submit(self, config: RunConfig) -> "SlurmJob":
        place = self.folder / f"{config.name}-{secrets.token_hex(8)}.json"
        try:
            job = self.executor.submit(perform_in_job, config, self.terms, self.threads, place)
        except RuntimeError as error:  # of sbatch: no such partition, too many jobs
            raise ValueError(f"Slurm refused the job of {config.name}: {error}") from error
        self.queue.add(job.job_id)
        return SlurmJob(self, job, place)

    def listed(self) -> set[str]:
        """The numbers of the jobs that wait or run; Slurm is asked at most every ten seconds."""
        if time.monotonic() - self.asked > 10:
            self.asked = time.monotonic()
            call = ["squeue", "--me", "--noheader", "--format=%A"]
            said = subprocess.run(call, capture_output=True, text=True)
            if said.returncode == 0:  # if Slurm does not answer, the last answer stays
                self.queue = set(said.stdout.split())
        return self.queue

    def close(self) -> None:
        """Does nothing, since jobs outlive the sweep."""


def perform_in_job(config: RunConfig, terms: Terms, threads: int, place: Path) -> None:
    """Calls `perform` within a job of Slurm and writes its result as JSON; Slurm's warning stops the run early."""
    stop = threading.Event()
    signal.signal(signal.SIGUSR2, lambda *_: stop.set())  # the signal that submitit requests
    try:
        outcome = perform(config, terms, threads, stop=stop)
    except (ValueError, OSError) as error:
        outcome = {"status": "failed", "reason": str(error)}
    write_text(place, json.dumps(outcome) + "\n")


class SlurmJob:
    """A job of Slurm. Its result is a file; a job that Slurm no longer lists and that left no such file is lost. So
    no accounting in Slurm is needed."""

    def __init__(self, engine: Slurm, job, place: Path):
        self.engine, self.job, self.place = engine, job, place

    def done(self) -> bool:
        return self.place.exists() or self.job.job_id not in self.engine.listed()

    def result(self) -> dict:
        """The result of `perform`; a failure if the job was lost."""
        deadline = time.monotonic() + 5  # a shared file system may show the file late
        while not self.place.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        if self.place.exists():
            return read_object(self.place, "fields of a result")
        return {"status": "failed", "reason": f"Slurm ended job {self.job.job_id}, see {self.job.paths.stderr}"}
