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
from pathlib import Path

import pytest

from palslib.__main__ import main
from palslib.common.files import in_use
from palslib.grid import sweep
from palslib.grid.sweep import Grid
from palslib.plan.config import RunConfig
from palslib.records import load_records

BASE = {"backbone": "tiny", "size": 24, "tasks": ["rte"], "steps": 6, "batch_size": 8, "max_length": 32}
BASE |= {"precision": "float32"}

TRAINING = """
import json, os, signal, sys, time
from pathlib import Path

config = json.loads(Path(sys.argv[1]).read_text())
struck = Path(sys.argv[1] + ".struck")
fault = None if struck.exists() else {1: "kill", 2: "raise", 3: "hang"}.get(config["seed"])
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

training.Run.train_step = train_step
from palslib.__main__ import main

sys.exit(main(["train", *sys.argv[1:]]))
"""
"""Real training, into which each of three seeds brings a fault, once."""

STAND_IN = """
import json, os, signal, subprocess, sys, time
from pathlib import Path

config = json.loads(Path(sys.argv[1]).read_text())
folder = Path(config["folder"])
with open(f"{folder}.starts", "a") as file:
    print(os.environ.get("SWEEP"), os.environ.get("OMP_NUM_THREADS"), os.environ.get("CUDA_VISIBLE_DEVICES"), file=file)
record = {"key": folder.name[-10:], "status": "finished", "config": config | {"size": "budget"}, "content": {}}
record |= {"method": {"size": 24}, "counts": {"ratio": 1.1}, "precision": "float32", "seconds": {"total": 1.5}}
last = {"step": config["steps"], "dev_average": 50.0, "glue_average": None, "scores": {}}
record["results"] = {"last": last, "best": last}
BODY
folder.mkdir(exist_ok=True)
(folder / "record.tmp").write_text(json.dumps(record))
os.replace(folder / "record.tmp", folder / "record.json")
"""


@pytest.fixture(autouse=True)
def one_core_each(monkeypatch):
    """Two processes of many threads each are slow on few cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.fixture
def write(tmp_path):
    """Writes a grid and a stand-in for training into a folder; returns the arguments of a sweep."""

    def written(seeds, body="", *more, training=None, **base):
        (tmp_path / "grid.json").write_text(json.dumps({"base": BASE | base, "product": {"seed": list(seeds)}}))
        (tmp_path / "train.py").write_text(training or STAND_IN.replace("BODY", body))
        command = shlex.join([sys.executable, str(tmp_path / "train.py")])
        return [str(tmp_path / "grid.json"), "--folder", str(tmp_path / "runs"), "--command", command, *more]

    return written


@pytest.fixture
def configs(tmp_path):
    return lambda: Grid.from_file(tmp_path / "grid.json").configs((tmp_path / "runs").resolve())


def swept(arguments):
    """The exit status of a sweep, in this process."""
    return main(["sweep", *arguments])


def start(arguments, **environment):
    """A sweep in the foreground: where the tests themselves run in the background, Ctrl-C would be ignored."""
    call = [sys.executable, "-m", "palslib", "sweep", *arguments]
    options = {"env": os.environ | environment, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(call, **options, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def starts(config):
    """A line for each time that the stand-in was started on a run."""
    path = sweep.beside(config, ".starts")
    return path.read_text().splitlines() if path.exists() else []


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited for a minute"
        time.sleep(0.02)


# --------------------------------------------------------------------------------------------------- with real training
@pytest.mark.slow
def test_faults_cost_one_run_each_and_a_second_call_completes_what_is_missing(write, configs, capsys):
    """Five runs; seeds 1 to 3 are killed, raise and hang. With checkpoints every 2 steps those at step 5 go on from 4.
    What a run takes on this machine is seen on seed 0, before a limit is set."""
    began = time.monotonic()
    assert swept(write([0], "", "--retries", "0", training=TRAINING, checkpoint_every=2)) == 0
    limit = 10 + 4 * round(time.monotonic() - began)
    call = write(range(5), "", "--limit", str(limit), "--retries", "0", training=TRAINING, checkpoint_every=2)
    assert swept(call) == 1
    out, runs = capsys.readouterr().out, configs()
    for reason in ("killed by SIGKILL", "exit status 1, without", f"over the limit of {limit} s", "a fault at step 5"):
        assert reason in out
    assert out.endswith(f"\n2 of 5 runs finished, in {Path(runs[0].folder).parent}\n")
    assert sweep.progress(runs[0]).startswith("6/6 steps, ") and sweep.progress(runs[0]).endswith(" 00:00 left")
    untouched = {seed: Path(runs[seed].folder, "record.json").stat().st_mtime_ns for seed in (0, 4)}
    assert swept(call) == 0
    assert {seed: Path(runs[seed].folder, "record.json").stat().st_mtime_ns for seed in (0, 4)} == untouched
    steps = ["".join(re.findall(r"step (\d)$", sweep.log_end(config), re.MULTILINE)) for config in runs]
    assert steps == ["012345", "45", "45", "012345", "012345"]
    frame = load_records([Path(config.folder, "record.json") for config in runs])
    assert list(frame["key"]) == [config.key for config in runs]


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
    sweeps = [start(call, SWEEP=name) for name in ("one", "two")]
    printed = [process.communicate(timeout=120)[0] for process in sweeps]
    assert [process.returncode for process in sweeps] == [1, 1]
    assert [len(starts(config)) for config in configs()] == [1] * 8
    assert {starts(config)[0].split()[0] for config in configs()} == {"one", "two"}
    for text in printed:  # both name what the other did
        assert text.count("  finished\n") == 7 and text.count("  failed: exit status 1, without a record\n") == 1
        assert "\n7 of 8 runs finished" in text


def test_a_run_that_outlives_its_killed_sweep_is_waited_for(write, configs):
    """It holds its lock; the next sweep starts no second process."""
    body = """
from palslib.common.files import one_writer
with one_writer(folder):
    while not (folder.parent / "go").exists():
        time.sleep(0.01)
"""
    call = write([0], body)
    (config,) = configs()
    first = start(call)
    wait_for(lambda: in_use(Path(config.folder)))
    first.kill()
    first.communicate()
    second = start(call)
    time.sleep(5)
    assert second.poll() is None and len(starts(config)) == 1
    (Path(config.folder).parent / "go").touch()
    assert "1 of 1 runs finished" in second.communicate(timeout=60)[0] and len(starts(config)) == 1


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_sweep_that_is_stopped_takes_its_runs_along(write, configs, by):
    """Also the child of a command that ends at once; it may save first. What had not begun does not begin."""
    body = """
if "child" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), Path(f"{folder}.saved").touch(), sys.exit()))
    Path(f"{folder}.ready").touch()
    time.sleep(1000)
if config["seed"] == 0 and not Path(f"{folder}.saved").exists():
    subprocess.run([sys.executable, *sys.argv, "child"])
"""
    call = write([0, 1], body, "--slots", "1")
    first, second = configs()
    process = start(call)
    wait_for(sweep.beside(first, ".ready").exists)
    process.send_signal(by)
    process.communicate(timeout=60)
    assert process.returncode == {signal.SIGTERM: 143, signal.SIGINT: 130}[by]
    assert sweep.beside(first, ".saved").exists() and not starts(second)
    assert swept(call) == 0


# -------------------------------------------------------------------------------------------------------- one run's end
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("sys.exit(9)", "exit status 9, without a record"),
        ("os._exit(0)", "exit status 0, without a record"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
    ],
)
def test_reasons(write, configs, capsys, body, reason):
    assert swept(write([0], f"print('the last words', flush=True); {body}")) == 1
    out = capsys.readouterr().out
    assert f"failed: {reason}" in out and f"{configs()[0].folder}.log:\n    the last words\n" in out
    assert len(starts(configs()[0])) == 2  # a retry
    assert swept(write([0])) == 0  # a failure of an earlier sweep is no obstacle


def test_a_command_that_does_not_exist(write, capsys):
    assert swept([*write([0]), "--command", "/nowhere/train"]) == 1
    assert "failed: [Errno 2] No such file or directory: '/nowhere/train'" in capsys.readouterr().out


def test_the_limit_ends_all_that_a_run_has_started(write, configs, monkeypatch, capsys):
    """Also a child that does not listen."""
    monkeypatch.setattr(sweep, "GRACE", 0.3)
    child = "signal.signal(signal.SIGTERM, signal.SIG_IGN); Path(f'{folder}.child').write_text(str(os.getpid()))"
    body = f"if not os.fork(): {child}\ntime.sleep(1000)"
    assert swept(write([0], body, "--retries", "0", "--limit", "1")) == 1
    assert "failed: over the limit of 1 s" in capsys.readouterr().out
    child = Path("/proc", sweep.beside(configs()[0], ".child").read_text(), "cmdline")
    wait_for(lambda: not child.exists() or not child.read_text())


def test_cores_and_gpus_are_shared_out(write, configs, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    both = "while len([*folder.parent.glob('*.starts')]) < 2: time.sleep(0.01)"
    assert swept(write([0, 1], both, "--slots", "2")) == 0
    assert sorted(starts(configs()[0]) + starts(configs()[1])) == ["None 4 3", "None 4 5"]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert sweep.slot_environments(2).get() == {"OMP_NUM_THREADS": "1"}


def test_the_parts_of_a_gpu_are_no_further_gpus(tmp_path, monkeypatch):
    """What `nvidia-smi -L` prints for a card that is divided in two (MIG), and for a whole one."""
    listed = (
        "GPU 0: H100 (UUID: a)\n  MIG 3g.40gb Device 0: (UUID: b)\n  MIG 3g.40gb Device 1: (UUID: c)\nGPU 1: H100\n"
    )
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '{listed}'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert sweep.visible_gpus() == ["0", "1"]


# --------------------------------------------------------------------------------------------------- what is damaged
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[]", b"{}", None])
def test_a_damaged_record_costs_its_run_alone(write, configs, capsys, content):
    """The failure names the file; None: a folder in its place."""
    call = write([0, 1])
    damaged, other = configs()
    path = Path(damaged.folder) / "record.json"
    path.parent.mkdir(parents=True)
    path.mkdir() if content is None else path.write_bytes(content)
    assert swept(call) == 1
    out = capsys.readouterr().out
    assert out.count("  finished\n") == 1 and "\n1 of 2 runs finished" in out
    assert "  failed: " in out and str(path) in out
    assert (len(starts(damaged)), len(starts(other))) == (0, 1)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("record = []", "record.json: must be a JSON object"),
        ("record['key'] = 'abc'", "is the record of another run, abc, not of "),
        (
            "record['content'] = {'rte/train': 'x'}",
            "made from inputs that have changed since (rte/train): move it away",
        ),
    ],
)
def test_a_run_that_leaves_what_is_not_its_record_has_failed(write, configs, capsys, body, reason):
    """Nor is it collected."""
    assert swept(write([0, 1], f"if config['seed'] == 1: {body}")) == 1
    out = capsys.readouterr().out
    assert reason in out and "\n1 of 2 runs finished" in out
    assert swept(write([0, 1], "", "--collect", str(Path(configs()[0].folder).parent / "kept"))) == 1
    assert reason in capsys.readouterr().err


def test_names_with_a_dot_do_not_share_a_file(write, configs):
    """A method's name may have one: what is beside a folder has the folder's whole name."""
    own = {"method": "lora-1.5", "own_method": {"kind": "lora", "size": 8}, "size": None}
    assert swept(write([0, 1], **own)) == 0
    assert [json.loads(Path(f"{config.folder}.json").read_text())["seed"] for config in configs()] == [0, 1]


# --------------------------------------------------------------------------------------------------------- what it says
def test_how_far_runs_are_is_shown_while_they_work(write, configs, monkeypatch, capsys):
    """Once a minute, here at once; from the bar in the log, whatever other bars are there."""
    monkeypatch.setattr(sweep, "MINUTE", 0.1)
    bars = r"\rLoading: 100%|##| 9/9 [00:00<00:00, 9it/s]\n\rpals: 33%|#| 2/6 [00:01<00:02, 7.16it/s, rte 0.69]\r"
    assert swept(write([0], f"print('{bars}', end='', flush=True); time.sleep(2)")) == 0
    name, out = configs()[0].name, capsys.readouterr().out
    assert f"{name}  2/6 steps, 7.16it/s, 00:02 left\n" in out and f"{name}  50.0  2 s  finished\n" in out


def test_a_label_says_what_tells_runs_apart(tmp_path):
    """Method, schedule and seed are in a name already; other settings that differ come first."""
    runs = [{"learning_rate": rate, "method": name} for rate in (0.5, 0.25) for name in ("pals-204", "lhuc")]
    configs = Grid(BASE | {"size": "budget"}, {}, runs).configs(tmp_path)
    assert list(sweep.labels(configs).values()) == [f"learning_rate={c.learning_rate}  {c.name}" for c in configs]
    assert list(sweep.labels(configs[:2]).values()) == [c.name for c in configs[:2]]
    mine = Grid(BASE | {"size": None}, {}, [{"own_method": {"kind": "ia3"}, "method": "mine"}, {"method": "lhuc"}])
    own, lhuc = mine.configs(tmp_path)
    assert list(sweep.labels([own, lhuc]).values()) == [f"own_method={{'kind': 'ia3'}}  {own.name}", lhuc.name]


def test_collect(write, configs, tmp_path, capsys):
    kept = tmp_path / "kept"
    swept(write([0]))
    (config,) = configs()
    Path(config.folder, "predictions.npz").write_bytes(b"p")
    for _ in range(2):
        assert swept(write([0, 1], "", "--collect", str(kept))) == 0
        assert {path.name for path in kept.iterdir()} == {f"{config.name}.json", f"{config.name}.npz"}
    assert (kept / f"{config.name}.json").read_bytes() == Path(config.folder, "record.json").read_bytes()
    (other := kept / f"{config.name}.npz").write_text("another machine's")
    assert swept(write([0, 1], "", "--collect", str(kept))) == 1
    assert "differs from" in capsys.readouterr().err and other.read_text() == "another machine's"


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
    assert configs[1].key == RunConfig.from_dict(BASE | {"steps": 100}).key


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ('{"base": }', "not JSON: Expecting value"),
        ("[]", "must be a JSON object with base, product, runs, not a list"),
        ({"produkt": {}}, "unknown part of a grid 'produkt': did you mean 'product'? Valid: base, product, runs"),
        ({"base": []}, "part of a grid 'base' must be a valid dictionary, not []"),
        ({"product": {"sed": [1]}}, "unknown parameter in product 'sed': did you mean 'seed'?"),
        ({"product": {"seed": []}}, "product: seed must be a list of one value or more, not []"),
        ({"product": {"seed": [0, 1, -1]}}, "run 3, {'seed': -1}: seed must be greater than or equal to 0"),
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


def test_base_cannot_replace_what_single_runs_say(write, capsys):
    """It would be dropped in silence."""
    assert swept(write([0], "", "--base", "seed=7")) == 2
    assert "--base: seed is set by the grid's product or runs" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------------------------------- Slurm
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
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} Gres=gpu:4 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=60 State=UP OverSubscribe=FORCE:4
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def slurm(monkeypatch):
    """A cluster of this one machine on its loopback: munged, slurmctld and slurmd; four devices stand for GPUs."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name)]
    if missing:
        pytest.skip(f"needs Debian's slurm-wlm and munge: {', '.join(missing)} not installed")
    if os.geteuid():
        pytest.skip("slurmd starts jobs as root only")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # a short path: it is to hold a socket
    folder.chmod(0o755)  # munge refuses a folder that others may write to, and one that they may not enter
    for name in ("state", "spool"):
        (folder / name).mkdir()
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o400)
    values = {"host": socket.gethostname().split(".")[0], "folder": folder, "cpus": os.cpu_count()}
    ports = [free_port(), free_port()]
    (folder / "slurm.conf").write_text(SLURM_CONF.format(**values, ports=ports))
    (folder / "gres.conf").write_text(
        "".join(f"Name=gpu File=/dev/{name}\n" for name in ("null", "zero", "full", "tty"))
    )
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    files = {"key-file": "key", "socket": "munge.sock", "pid-file": "munge.pid", "log-file": "munge.log"}
    munge = ["munged", "--foreground", "--force", f"--seed-file={folder}/seed"]
    munge += [f"--{option}={folder}/{name}" for option, name in files.items()]
    daemons = []
    try:
        for command in (munge, ["slurmctld", "-D"], ["slurmd", "-D"]):
            daemons.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            wait_for((folder / "munge.sock").exists)
        wait_for(lambda: answer("sinfo", "-h", "-o", "%T") == "idle")
        yield
        answer("scancel", "--me")
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(timeout=30)
        shutil.rmtree(folder)


def answer(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


@pytest.mark.slow
@pytest.mark.slurm
def test_an_array_of_sweeps_shares_a_grid(slurm, write, configs, tmp_path):
    """Four sweeps, six runs: each run is done once, and on the GPU that Slurm has given its sweep."""
    call = write(range(6), "time.sleep(3)", "--slots", "1")
    wrapped = shlex.join(["exec", sys.executable, "-m", "palslib", "sweep", *call])
    options = ["--array=1-4", "--gpus=1", "--time=10", f"--output={tmp_path}/%a.out"]
    assert answer("sbatch", *options, "--wrap", wrapped).startswith("Submitted batch job")
    outputs = [tmp_path / f"{number}.out" for number in range(1, 5)]
    wait_for(lambda: all(path.exists() and "6 of 6 runs finished" in path.read_text() for path in outputs))
    assert [len(starts(config)) for config in configs()] == [1] * 6
    assert {starts(config)[0].split()[-1] for config in configs()} <= set("0123")


@pytest.mark.parametrize(("quota", "known"), [("max 100000\n", 8), ("150000 100000\n", 1), ("400000 100000\n", 4)])
def test_a_containers_quota_counts(tmp_path, monkeypatch, quota, known):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    (tmp_path / "cpu.max").write_text(quota)
    assert sweep.cores(tmp_path / "cpu.max") == known and sweep.cores(tmp_path / "none") == 8
