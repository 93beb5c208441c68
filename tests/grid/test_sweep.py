"""Grids of runs: what is killed, raises or hangs costs one run, and nothing is run twice. All with real processes.

Where only the scheduling is tested, a script that starts in no time stands for the training.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
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
    return lambda: Grid.named(tmp_path / "grid.json").configs((tmp_path / "runs").resolve())


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
    time.sleep(3)
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
    [("sys.exit(9)", "exit status 9, without a record"), ("os.kill(os.getpid(), 9)", "killed by SIGKILL")],
)
def test_reasons(write, configs, capsys, body, reason):
    assert swept(write([0], f"print('the last words', flush=True); {body}")) == 1
    out = capsys.readouterr().out
    assert f"failed: {reason}" in out and f"{configs()[0].folder}.log:\n    the last words\n" in out
    assert len(starts(configs()[0])) == 2  # a retry
    assert swept(write([0])) == 0  # a failure of an earlier sweep is no obstacle


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


def test_what_a_machine_has(tmp_path, monkeypatch):
    """What `nvidia-smi -L` prints for a card that is divided in two (MIG), and for a whole one; a container's quota."""
    listed = (
        "GPU 0: H100 (UUID: a)\n  MIG 3g.40gb Device 0: (UUID: b)\n  MIG 3g.40gb Device 1: (UUID: c)\nGPU 1: H100\n"
    )
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '{listed}'\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert sweep.visible_gpus() == ["0", "1"]
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)), raising=False)
    for quota, number in (("max 100000\n", 8), ("150000 100000\n", 1), ("400000 100000\n", 4)):
        (tmp_path / "cpu.max").write_text(quota)
        assert sweep.cores(tmp_path / "cpu.max") == number
    assert sweep.cores(tmp_path / "none") == 8


# --------------------------------------------------------------------------------------------------- what is damaged
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (None, "Is a directory"),
        ("record = []", "record.json: must be a JSON object"),
        ("record = {}", "record.json"),
        ("record['key'] = 'abc'", "is the record of another run, abc, not of "),
        ("record['content'] = {'rte/train': 'x'}", "inputs that have changed since (rte/train): move it away"),
    ],
)
def test_what_is_not_a_runs_record_costs_the_run_alone(write, configs, capsys, body, reason):
    """None: a folder in the record's place. The failure names the file; nothing of the run is collected."""
    call = write([0, 1], f"if config['seed'] == 1: {body}")
    if body is None:
        Path(configs()[1].folder, "record.json").mkdir(parents=True)
    assert swept(call) == 1
    out = capsys.readouterr().out
    assert reason in out and out.count("  finished\n") == 1 and "\n1 of 2 runs finished" in out
    assert str(Path(configs()[1].folder) / "record.json") in out
    assert swept([*call, "--collect", str(Path(configs()[0].folder).parent / "kept")]) == 1
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
        ({"product": {"sed": [1]}}, "unknown parameter 'sed': did you mean 'seed'?"),
        ({"product": {"seed": []}}, "'product' must have at least 1 item"),
        ({"product": {"seed": "012"}}, "'product' must be a valid list, not '012'"),
        ({"product": {"seed": [0, 1, -1]}}, "run 3, {'seed': -1}: seed must be greater than or equal to 0"),
        ({"runs": [{"seed": 1}], "product": {"seed": [1]}}, "seed is both in runs and in product"),
        ({"runs": [3]}, "'runs' must be a valid dictionary, not 3"),
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
