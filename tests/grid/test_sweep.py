"""Grids of runs: what is killed, raises or hangs costs one run, and nothing is run twice. All with real processes.

Where only the scheduling is tested, a script that starts in no time stands for the training.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from palslib.common.lock import in_use, run_lock
from palslib.grid.engines import LocalSlots, Slurm, Terms, failed, log_end

from palslib.__main__ import main
from palslib.grid import engines, sweep
from palslib.grid.sweep import Grid, state
from palslib.plan.config import RunConfig
from palslib.records import load_records

BASE = {"backbone": "tiny", "size": 24, "tasks": ["rte"], "steps": 6, "batch_size": 8, "max_length": 32}
BASE |= {"precision": "float32"}

TRAINING = """
import json, os, signal, sys, time
from pathlib import Path

config = json.loads(Path(sys.argv[1]).read_text())
struck = Path(config["folder"]) / "struck"
fault = None if struck.exists() else {1: "kill", 2: "raise", 3: "hang", 4: "nan"}.get(config["seed"])
struck.touch()
if fault == "hang":
    time.sleep(1000)

from palslib.training import loop as training

plain = training.Run.train_step

def train_step(run):
    print("step", run.step, flush=True)
    if run.step == 5 and fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if run.step == 5 and fault == "raise":
        raise RuntimeError("a fault at step 5")
    plain(run)
    if fault == "nan":
        run.pending[-1] = run.pending[-1] * float("nan")

training.Run.train_step = train_step
from palslib.__main__ import main

sys.exit(main(["train", *sys.argv[1:]]))
"""
"""Real training, into which each of four seeds brings a fault, once."""

STAND_IN = """
import json, os, shutil, signal, sys, time
from pathlib import Path

config = json.loads(Path(sys.argv[1]).read_text())
folder = Path(config["folder"])
with open(folder / "starts", "a") as file:
    print(os.environ.get("SWEEP"), os.environ.get("OMP_NUM_THREADS"), os.environ.get("CUDA_VISIBLE_DEVICES"), file=file)
record = {"key": folder.name[-10:], "status": "finished", "config": config | {"size": "budget"}, "content": {}}
record |= {"method": {"size": 24}, "counts": {"ratio": 1.1}, "precision": "float32", "seconds": {"total": 1.5}}
last = {"step": config["steps"], "dev_average": 50.0, "glue_average": None, "scores": {}}
record["results"] = {"last": last, "best": last}
BODY
(folder / "record.tmp").write_text(json.dumps(record))
os.replace(folder / "record.tmp", folder / "record.json")
"""


@pytest.fixture(autouse=True)
def one_core_each(monkeypatch):
    """Two processes of many threads each are slow on few cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_cores_are_shared_out_unless_threads_are_said(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert [LocalSlots(slots, Terms()).threads for slots in (1, 2, 3, 9)] == [8, 4, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert LocalSlots(2, Terms()).threads == 1
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    assert engines.cores() == os.cpu_count()


def written(folder, seeds, body="", *more, training=None, **base):
    """Writes a grid and a stand-in for training into a folder; returns the arguments of a sweep."""
    (folder / "grid.json").write_text(json.dumps({"base": BASE | base, "product": {"seed": list(seeds)}}))
    (folder / "train.py").write_text(training or STAND_IN.replace("BODY", body))
    command = shlex.join([sys.executable, str(folder / "train.py")])
    return [str(folder / "grid.json"), "--folder", str(folder / "runs"), "--command", command, *more]


def configs_in(folder):
    return Grid.from_file(folder / "grid.json").configs((folder / "runs").resolve())


@pytest.fixture
def write(tmp_path):
    return partial(written, tmp_path)


@pytest.fixture
def configs(tmp_path):
    return partial(configs_in, tmp_path)


def swept(arguments):
    """The exit status of a sweep, in this process."""
    return main(["sweep", *arguments])


def start(arguments, **environment):
    """A sweep in the foreground: where the tests themselves run in the background, Ctrl-C would be ignored."""
    call = [sys.executable, "-m", "palslib", "sweep", *arguments]
    about = {"env": os.environ | environment, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(call, **about, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def starts(config):
    """A line for each time that the stand-in was started on a run."""
    path = Path(config.folder, "starts")
    return path.read_text().splitlines() if path.exists() else []


def statuses(configs):
    return [state(config)["status"] for config in configs]


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited for a minute"
        time.sleep(0.02)


# --------------------------------------------------------------------------------------------------- with real training
@pytest.mark.slow
def test_faults_cost_one_run_each_and_a_second_call_completes_what_is_missing(write, configs, capsys):
    """Six runs; seeds 1 to 4 are killed, raise, hang and meet a NaN. With checkpoints every 2 steps the killed one, at
    step 5, goes on from 4. What a run takes on this machine is seen on seed 0, before a limit is set."""
    began = time.monotonic()
    assert swept(write([0], "", "--retries", "0", training=TRAINING, checkpoint_every=2)) == 0
    limit = 10 + 4 * round(time.monotonic() - began)
    call = write(range(6), "", "--limit", str(limit), "--retries", "0", training=TRAINING, checkpoint_every=2)
    assert swept(call) == 1
    out = capsys.readouterr().out
    runs = configs()
    first = [state(config) for config in runs]
    assert [row["status"] for row in first] == ["finished", "failed", "failed", "failed", "failed", "finished"]
    assert [row["reason"] for row in first[1:5]] == [
        "killed by SIGKILL, perhaps for lack of memory",
        "exit status 1",
        f"over the limit of {limit} s",
        "exit status 1",
    ]
    assert [first[seed]["step"] for seed in (1, 2, 5)] == [4, 4, 6]
    assert "    RuntimeError: a fault at step 5\n" in out
    assert "    palslib train: the loss is nan at step 0, task 'rte'; last good checkpoint: none\n" in out
    assert out.endswith(f"\n2 of 6 runs finished, in {Path(runs[0].folder).parent}\n")
    untouched = {seed: Path(runs[seed].folder, "record.json").stat().st_mtime_ns for seed in (0, 5)}

    assert swept(call) == 0
    assert statuses(runs) == ["finished"] * 6
    assert {seed: Path(runs[seed].folder, "record.json").stat().st_mtime_ns for seed in (0, 5)} == untouched
    steps = ["".join(re.findall(r"^    step (\d)$", log_end(config), re.M)) for config in runs]
    assert steps == ["012345", "45", "45", "012345", "012345", "012345"]
    frame = load_records([Path(config.folder, "record.json") for config in runs])
    assert list(frame["key"]) == [config.key for config in runs] and list(frame["seed"]) == list(range(6))
    assert [state(config)["dev average"] for config in runs] == list(frame["last dev average"])


# ------------------------------------------------------------------------------------------------------ several sweeps
def test_two_sweeps_at_once_share_the_work(write, configs):
    """Every run waits until both sweeps have started one, so both do; one run fails, once for both."""
    body = """
(folder.parent / os.environ["SWEEP"]).touch()
while not ((folder.parent / "one").exists() and (folder.parent / "two").exists()):
    time.sleep(0.01)
if config["seed"] == 3:
    raise RuntimeError("no")
"""
    call = write(range(8), body, "--slots", "2", "--retries", "0")
    sweeps = [start(call, SWEEP="one"), start(call, SWEEP="two")]
    said = [process.communicate(timeout=120)[0] for process in sweeps]
    assert [process.returncode for process in sweeps] == [1, 1]
    assert [len(starts(config)) for config in configs()] == [1] * 8
    assert {starts(config)[0].split()[0] for config in configs()} == {"one", "two"}
    for text in said:  # what the other did is in the table of both
        assert text.count(" finished\n") == 7 and text.count(" failed: exit status 1\n") == 1
        assert "\n7 of 8 runs finished" in text
    assert any("elsewhere" in text for text in said)  # for a moment, which the first to start may not see


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_a_killed_sweep_takes_its_runs_along(write, configs):
    """Each saves first; no other sweep starts it before it has."""
    save = "signal.signal(signal.SIGTERM, lambda *_: ((folder / 'saved').touch(), sys.exit()))"
    call = write([0, 1], f"if not (folder / 'saved').exists():\n    {save}\n    time.sleep(1000)")
    first = start(call)
    wait_for(lambda: all(starts(config) for config in configs()))
    time.sleep(0.2)
    first.kill()
    first.communicate()
    wait_for(lambda: not any(in_use(Path(config.folder)) for config in configs()))
    assert all(Path(config.folder, "saved").exists() for config in configs())
    assert swept(call) == 0 and [len(starts(config)) for config in configs()] == [2, 2]


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_sweep_that_is_stopped_takes_its_runs_along(write, configs, by):
    process = start(write([0], "time.sleep(1000)"))
    wait_for(lambda: starts(configs()[0]))
    process.send_signal(by)
    process.communicate(timeout=60)
    assert process.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130}[by]
    with run_lock(Path(configs()[0].folder)) as lock:
        assert lock
    assert statuses(configs()) == ["waiting"] and failed(configs()[0], 0) is None
    assert swept(write([0])) == 0
    assert len(starts(configs()[0])) == 2


def test_a_failure_since_the_start_is_not_tried_again(write, configs):
    swept(write([0], "sys.exit(7)", "--retries", "0"))
    (config,) = configs()
    assert failed(config, 0)["reason"] == "exit status 7"
    terms = Terms(("false",), since=0)
    assert engines.perform(config, terms, 1) == failed(config, 0)
    assert len(starts(config)) == 1
    path = Path(config.folder, "failure.json")
    path.write_text(json.dumps(failed(config, 0) | {"ended": time.time() + 1e9}))  # by a clock that was wrong
    assert failed(config, 0) is None and state(config)["status"] == "waiting"


def test_the_record_of_other_inputs_is_no_success(write, configs, monkeypatch):
    """It stays where a new run fails before it puts it aside."""
    swept(write([0]))
    (config,) = configs()
    monkeypatch.setattr(engines, "exchanged_since", lambda record, config: ["rte/train"])
    assert engines.perform(config, Terms(("false",), retries=0), 1)["reason"] == "exit status 1"


def test_inputs_that_cannot_be_read_cost_their_run_alone(write, configs, monkeypatch, capsys):
    swept(write([0]))
    stale = configs()[0].name

    def exchanged_since(record, config, known=None):
        if config.name == stale:
            raise ValueError("mood.csv, line 62, column 'label': 'x' is not a label")
        return []

    for module in (sweep, engines):
        monkeypatch.setattr(module, "exchanged_since", exchanged_since)
    assert swept(write([0, 1])) == 1
    assert "line 62" in (said := capsys.readouterr().out) and "1 of 2 runs finished" in said


class Engine:
    """Stands for two slots: its jobs end at once, with these results."""

    slots, terms, running, most = 2, Terms(("true",)), 0, 0

    def __init__(self, *results):
        self.results = list(results)

    def submit(self, config):
        self.running += 1
        self.most = max(self.most, self.running)
        return SimpleNamespace(done=lambda: True, result=self.result)

    def result(self):
        self.running -= 1
        return self.results.pop(0)

    def close(self): ...


def test_an_outdated_run_that_another_sweep_began_is_waited_for(write, configs, monkeypatch):
    """Its old record is still there, and says finished; so does one that is deleted meanwhile."""
    swept(write([0]))
    (config,) = configs()
    monkeypatch.setattr(sweep, "exchanged_since", lambda record, config, known: bool(record["results"]))
    engine = Engine({"status": "elsewhere"}, {"status": "failed", "reason": "no"})
    assert sweep.sweep([config], engine)[0]["reason"] == "no" and not engine.results
    (Path(config.folder) / "record.json").unlink()
    assert sweep._outdated(config, {})


def test_while_all_slots_are_busy_no_job_is_submitted_and_no_waiting_run_looked_at(tmp_path, monkeypatch):
    """On this machine a pool of threads keeps to the slots, too; on Slurm only this does. Each look costs a
    millisecond, five times a second: of two cores that compute, 32 runs took a sixth of one."""
    looks, engine = Counter(), Engine(*[{"status": "failed", "reason": "no"}] * 5)
    monkeypatch.setattr(sweep, "state", lambda config, since: looks.update([config.name]) or state(config, since))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    asked, submit = iter([False] * 100 + [True] * 100), engine.submit
    engine.submit = lambda config: SimpleNamespace(**vars(submit(config)) | {"done": lambda: next(asked)})
    assert len(sweep.sweep(Grid(BASE, {"seed": list(range(5))}).configs(tmp_path), engine)) == 5
    assert engine.most == 2 and max(looks.values()) < 10


def test_base_cannot_replace_what_single_runs_say(write, capsys):
    """It would be dropped in silence."""
    assert swept(write([0], "", "--base", "seed=7")) == 2
    assert "--base: seed is set by the grid's product or runs" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------------- one run's end
def test_a_retry(write, configs, capsys):
    """A line is printed when a status changes. The lock that a killed sweep left beside a record goes."""
    assert swept([*write([0]), "--command", "/nowhere/train"]) == 1
    assert "failed: [Errno 2] No such file or directory: '/nowhere/train'" in capsys.readouterr().out
    call = write([0, 1], "if len(open(folder / 'starts').readlines()) < 2: sys.exit(3)\ntime.sleep(0.5)")
    assert swept(call) == 0
    assert [len(starts(config)) for config in configs()] == [2, 2]
    assert Path(configs()[0].folder, "log.txt").read_text().count("=== try 2") == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if configs()[0].name in line]
    assert [line.split()[-1] for line in lines] == ["running", "finished"] and " 50.0 " in lines[1]
    lock = Path(configs()[0].folder, "lock")
    lock.write_text("process 1 on a machine that is gone")
    assert swept(call) == 0 and not lock.exists()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("sys.exit(9)", "exit status 9"),
        ("os._exit(0)", "exit status 0, but no record"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL, perhaps for lack of memory"),
        ("os.abort()", "killed by SIGABRT"),
    ],
)
def test_reasons(write, configs, capsys, body, reason):
    assert swept(write([0], f"print('the last words', flush=True); {body}", "--retries", "0")) == 1
    assert state(configs()[0])["reason"] == reason
    assert f": {reason}; the end of {configs()[0].folder}/log.txt:\n    the last words\n" in capsys.readouterr().out


def test_the_limit_kills_all_that_a_run_has_started(write, configs):
    """Its child has inherited the lock, so the lock is free only if the child is dead too."""
    body = "import subprocess; subprocess.Popen(['sleep', '1000'], close_fds=False); time.sleep(1000)"
    assert swept(write([0], body, "--retries", "0", "--limit", "1")) == 1
    assert state(configs()[0])["reason"] == "over the limit of 1 s"
    wait_for(lambda: not in_use(Path(configs()[0].folder)))


def test_cores_and_gpus_are_shared_out(write, configs, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    monkeypatch.delenv("SWEEP", raising=False)
    assert swept(write([0, 1], "", "--slots", "2")) == 0
    assert sorted(starts(configs()[0]) + starts(configs()[1])) == ["None 4 3", "None 4 5"]


def test_the_parts_of_a_gpu_are_no_further_gpus(tmp_path, monkeypatch):
    """What `nvidia-smi -L` prints for a card that is divided in two (MIG), and for a whole one."""
    said = "GPU 0: H100 (UUID: a)\n  MIG 3g.40gb Device 0: (UUID: b)\n  MIG 3g.40gb Device 1: (UUID: c)\nGPU 1: H100\n"
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '{said}'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert engines.visible_gpus() == ["0", "1"]


@pytest.mark.parametrize(("given", "seen"), [("3", ["3"]), ("", []), (None, [])])
def test_one_gpu_or_none(monkeypatch, given, seen):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert engines.visible_gpus() == seen
    engine = LocalSlots(2, Terms())
    assert [engine.gpus.get(), engine.gpus.get()] == [None, None]
    engine.close()


# --------------------------------------------------------------------------------------------------------- what it says
def test_a_label_says_what_tells_runs_apart(tmp_path):
    """Method, schedule and seed are in a name already; other settings that differ come first."""
    runs = [{"learning_rate": rate, "method": name} for rate in (0.5, 0.25) for name in ("pals-204", "lhuc")]
    configs = Grid(BASE | {"size": "budget"}, {}, runs).configs(tmp_path)
    assert list(sweep.labels(configs).values()) == [f"learning_rate={c.learning_rate}  {c.name}" for c in configs]
    assert list(sweep.labels(configs[:2]).values()) == [c.name for c in configs[:2]]
    mine = Grid(BASE | {"size": None}, {}, [{"own_method": {"kind": "ia3"}, "method": "mine"}, {"method": "lhuc"}])
    own, lhuc = mine.configs(tmp_path)
    assert list(sweep.labels([own, lhuc]).values()) == [f"own_method={{'kind': 'ia3'}}  {own.name}", lhuc.name]


def test_collect(write, configs, tmp_path, monkeypatch, capsys):
    swept(write([0]))
    (config,) = configs()
    Path(config.folder, "predictions.npz").write_bytes(b"p")
    assert swept(write([0, 1], "", "--collect", str(tmp_path / "kept"))) == 0
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {f"{config.name}.json", f"{config.name}.npz"}
    assert (tmp_path / "kept" / f"{config.name}.json").read_bytes() == Path(config.folder, "record.json").read_bytes()
    assert statuses(configs()) == ["finished", "waiting"]
    assert swept(write([0, 1], "", "--collect", str(tmp_path / "kept"))) == 0
    (other := tmp_path / "kept" / f"{config.name}.json").write_text("another machine's")
    assert swept(write([0, 1], "", "--collect", str(tmp_path / "kept"))) == 2
    assert "differs from" in capsys.readouterr().err and other.read_text() == "another machine's"
    monkeypatch.setattr(sweep, "exchanged_since", lambda *_: ["rte/train"])
    assert swept(write([0, 1], "", "--collect", str(tmp_path / "none"))) == 0 and not any((tmp_path / "none").iterdir())


# ------------------------------------------------------------------------------------------------------------- the grid
def test_product_and_single_runs(tmp_path):
    """3 seeds x 2 single runs: all runs of a combination come before the next, so that a seed is one machine's."""
    grid = Grid(BASE, {"seed": [0, 1, 2]}, [{"method": "shared", "size": "budget"}, {"steps": 100}])
    configs = grid.configs(tmp_path)
    assert [(c.method, c.steps, c.seed) for c in configs] == [
        run for seed in range(3) for run in (("shared", 6, seed), ("pals-204", 100, seed))
    ]
    assert [Path(c.folder) for c in configs] == [tmp_path / c.name for c in configs]
    assert {c.checkpoint_every for c in configs[::2]} == {1} and {c.checkpoint_every for c in configs[1::2]} == {10}
    plain = RunConfig.from_dict(BASE | {"steps": 100})
    assert configs[1].key == plain.key
    assert {state(config)["status"] for config in configs} == {"waiting"}


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ('{"base": }', "not JSON: Expecting value"),
        ("[]", "must be a JSON object with base, product, runs, not a list"),
        ({"produkt": {}}, "unknown part of a grid 'produkt': did you mean 'product'? Valid: base, product, runs"),
        ({"base": []}, "part of a grid 'base' must be a dict, not []"),
        ({"product": {"sed": [1]}}, "unknown parameter in product 'sed': did you mean 'seed'?"),
        ({"product": {"seed": []}}, "product: seed must be a list of one value or more, not []"),
        ({"product": {"seed": [0, 1, -1]}}, "run 3, {'seed': -1}: seed must be an integer of at least 0"),
        ({"runs": [{"seed": 1}], "product": {"seed": [1]}}, "seed is both in runs and in product"),
        ({"runs": [3]}, "runs: each must be an object of parameters, not 3"),
        ({"runs": []}, "runs and product: a grid has 1 to 10,000 runs, not 0"),
        ({"product": {name: [*range(200)] for name in ("seed", "steps")}}, "1 to 10,000 runs, not 40,000"),
        ({"product": {"keep": ["none", "last"]}}, "occurs twice (keep and checkpoint_every make no difference)"),
        ({"base": {"folder": "here"}}, "leave out folder, which the sweep chooses"),
        (None, "No such file or directory"),
    ],
)
def test_a_grid_is_refused_before_anything_starts(tmp_path, capsys, grid, message):
    if grid is not None:
        (tmp_path / "grid.json").write_text(grid if isinstance(grid, str) else json.dumps(grid))
    assert swept([str(tmp_path / "grid.json"), "--folder", str(tmp_path / "runs")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and err.startswith("palslib sweep: ") and message in err
    assert not (tmp_path / "runs").exists()


# ---------------------------------------------------------------------------------------------------------------- Slurm
def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


SLURM_CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=60 State=UP OverSubscribe=FORCE:4
"""


@pytest.fixture(scope="module")
def slurm():
    """A cluster of this one machine on its loopback, without accounting: munged, slurmctld and slurmd."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", "srun") if not shutil.which(name)]
    if missing:
        pytest.skip(f"needs Debian's slurm-wlm and munge: {', '.join(missing)} not installed")
    if os.geteuid():
        pytest.skip("slurmd starts jobs as root only")
    pytest.importorskip("submitit")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # a short path: it is to hold a socket
    folder.chmod(0o755)  # munge refuses a folder that others may write to, and one that they may not enter
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o400)
    settings = {"host": socket.gethostname().split(".")[0], "folder": folder, "cpus": os.cpu_count()}
    (folder / "slurm.conf").write_text(SLURM_CONF.format(**settings, ports=[free_port(), free_port()]))
    files = {"key-file": "key", "socket": "munge.sock", "pid-file": "munge.pid", "log-file": "munge.log"}
    munge = ["munged", "--foreground", "--force", f"--seed-file={folder}/seed"]
    munge += [f"--{option}={folder}/{name}" for option, name in files.items()]
    environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}
    daemons = []
    try:
        for command in (munge, ["slurmctld", "-D"], ["slurmd", "-D"]):
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            daemons.append(subprocess.Popen(command, env=environment, **quiet))
            wait_for((folder / "munge.sock").exists)

        def idle():
            nodes = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True).stdout
            return nodes.strip() == "idle"

        wait_for(idle)
        yield environment["SLURM_CONF"]
        subprocess.run(["scancel", "--me"], env=environment, check=True)
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(timeout=30)
        shutil.rmtree(folder)


def test_a_job_that_slurm_refuses_is_named(tmp_path):
    """No such partition, no account, too many jobs: submitit raises a RuntimeError for each."""
    engine = object.__new__(Slurm)
    engine.__dict__ |= {"folder": tmp_path, "terms": None, "threads": 1}
    engine.executor = Mock(submit=Mock(side_effect=RuntimeError("invalid partition")))
    config = RunConfig(folder=str(tmp_path), **BASE)
    with pytest.raises(ValueError, match=f"Slurm refused the job of {config.name}: invalid partition"):
        engine.submit(config)


@pytest.mark.slurm
def test_a_grid_on_slurm(slurm, write, configs, monkeypatch, capsys):
    """Real training in one job; in others the run is killed, or the job's own process, so that it has no result."""
    monkeypatch.setenv("SLURM_CONF", slurm)
    body = """
import signal, subprocess
(folder / "job").write_text(os.environ["SLURM_JOB_ID"])
first = len((folder / "starts").read_text().splitlines()) == 1
if config["seed"] == 0:
    sys.exit(subprocess.run([sys.executable, "-m", "palslib", "train", sys.argv[1]]).returncode)
if first and config["seed"] == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if first and config["seed"] == 2:
    os.kill(os.getppid(), signal.SIGKILL)
    sys.exit()
"""
    call = write(range(4), body, "--slots", "4", "--retries", "0", "--slurm", "cpus_per_task=1", "time=10")
    assert swept(call) == 1
    assert statuses(configs()) == ["finished", "failed", "waiting", "finished"]  # a lost job writes nothing down
    assert failed(configs()[1], 0)["reason"] == "killed by SIGKILL, perhaps for lack of memory"
    lost = Path(configs()[2].folder, "job").read_text()
    assert f"failed: Slurm ended job {lost}, see " in capsys.readouterr().out
    assert swept(call) == 0
    assert [len(starts(config)) for config in configs()] == [1, 2, 2, 1]
    jobs = [Path(config.folder, "job").read_text() for config in configs()]
    assert len({*jobs, lost}) == 5
    assert json.loads(Path(configs()[0].folder, "record.json").read_text())["threads"] == 1


@pytest.mark.slow
@pytest.mark.slurm
def test_slurms_warning_saves_a_checkpoint(slurm, write, configs, monkeypatch, capsys):
    """Of a run that takes longer than its two minutes, through whatever lies between the job and the training."""
    monkeypatch.setenv("SLURM_CONF", slurm)
    body = """
import subprocess
sys.exit(subprocess.run([sys.executable, "-m", "palslib", "train", sys.argv[1]]).returncode)
"""
    about = {"steps": 50_000, "checkpoint_every": 40_000}
    assert swept(write([0], body, "--retries", "0", "--slurm", "cpus_per_task=1", "time=2", **about)) == 1
    (config,) = configs()
    assert state(config)["step"] > 0 and failed(config, 0) is None
    assert " stopped\n" in capsys.readouterr().out
    assert "stopped by SIG" in Path(config.folder, "log.txt").read_text()


@pytest.mark.parametrize(
    ("submitit", "srun", "more", "message"),
    [
        (False, True, [], "Slurm needs the package submitit: pip install 'palslib[cluster]'"),
        (True, False, ["time=5"], "this machine has no Slurm: the command srun is missing"),
        (True, True, [], "Slurm needs to know how long a job may take: give a limit in seconds, or time=MINUTES"),
    ],
)
def test_slurm_refused(write, monkeypatch, capsys, submitit, srun, more, message):
    if submitit:
        pytest.importorskip("submitit")
    else:
        monkeypatch.setitem(sys.modules, "submitit", None)
    monkeypatch.setattr(shutil, "which", lambda name: name if srun else None)
    assert swept([*write([0]), "--slurm", *more]) == 2
    assert capsys.readouterr().err == f"palslib sweep: {message}\n"
