"""Grids of runs: what is killed, raises or hangs costs one run, and nothing is run twice. All with real processes.

A script that starts in no time stands for the training; `test_plans.py` sweeps a grid of real runs.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from palslib.__main__ import main
from palslib.common.files import in_use
from palslib.grid import sweep
from palslib.grid.sweep import Grid
from palslib.plan.config import RunConfig

BASE = {"backbone": "tiny", "size": 24, "tasks": ["rte"], "steps": 6, "batch_size": 8, "max_length": 32}
BASE |= {"precision": "float32"}

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
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.fixture
def write(tmp_path):
    """Writes a grid and a stand-in for training into a folder; returns the arguments of a sweep."""

    def written(seeds, body="", *more, **base):
        (tmp_path / "grid.json").write_text(json.dumps({"base": BASE | base, "product": {"seed": list(seeds)}}))
        (tmp_path / "train.py").write_text(STAND_IN.replace("BODY", body))
        command = shlex.join([sys.executable, str(tmp_path / "train.py")])
        return ["sweep", str(tmp_path / "grid.json"), "--folder", str(tmp_path / "runs"), "--command", command, *more]

    return written


@pytest.fixture
def configs(tmp_path):
    return lambda: Grid.named(tmp_path / "grid.json").configs((tmp_path / "runs").resolve())


def start(arguments, **environment):
    """A sweep in the foreground: where the tests themselves run in the background, Ctrl-C would be ignored."""
    options = {"env": os.environ | environment, "stdout": subprocess.PIPE, "text": True}
    usual = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    return subprocess.Popen([sys.executable, "-m", "palslib", *arguments], **options, **usual)


def starts(config):
    """A line for each time that the stand-in was started on a run."""
    path = sweep.beside(config, ".starts")
    return path.read_text().splitlines() if path.exists() else []


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited for a minute"
        time.sleep(0.02)


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
    assert process.returncode == 128 + by
    assert sweep.beside(first, ".saved").exists() and not starts(second)
    assert main(call) == 0


# -------------------------------------------------------------------------------------------------------- one run's end
@pytest.mark.parametrize(
    ("body", "reason"),
    [("sys.exit(9)", "exit status 9, without a record"), ("os.kill(os.getpid(), 9)", "killed by SIGKILL")],
)
def test_a_failure_is_told_with_the_last_words_and_is_no_obstacle_later(write, configs, capsys, body, reason):
    assert main(write([0], f"print('the last words', flush=True); {body}")) == 1
    out = capsys.readouterr().out
    assert f"failed: {reason}" in out and f"{configs()[0].folder}.log:\n    the last words\n" in out
    assert len(starts(configs()[0])) == 2  # a retry
    assert main(write([0])) == 0
    assert f"{configs()[0].name}  50.0  2 s  finished\n" in capsys.readouterr().out


def test_the_limit_ends_all_that_a_run_has_started(write, configs, monkeypatch, capsys):
    """Also a child that does not listen."""
    monkeypatch.setattr(sweep, "GRACE", 0.3)
    child = "signal.signal(signal.SIGTERM, signal.SIG_IGN); Path(f'{folder}.child').write_text(str(os.getpid()))"
    body = f"if not os.fork(): {child}\ntime.sleep(1000)"
    assert main(write([0], body, "--retries", "0", "--limit", "1")) == 1
    assert "failed: over the limit of 1 s" in capsys.readouterr().out
    child = int(sweep.beside(configs()[0], ".child").read_text())
    ended = psutil.STATUS_ZOMBIE  # and nobody has asked how
    wait_for(lambda: all(p.info["status"] == ended for p in psutil.process_iter(["status"]) if p.pid == child))


def test_a_file_that_changes_meanwhile_ends_its_runs_and_not_the_sweep(write, tmp_path, capsys):
    file = tmp_path / "mood.csv"
    file.write_text(rows := "text,label\nNice,good\nAwful,bad\n")
    body = f"Path({str(file)!r}).write_text({rows + 'Fine,good'!r}); time.sleep(1)"
    assert main(write([0], body, tasks=["mood"], own={"mood": str(file)})) == 1
    assert "is the record of another run" in capsys.readouterr().out


def test_cores_and_gpus_are_shared_out(write, configs, monkeypatch):
    monkeypatch.setattr(sweep, "cpu_count", lambda: 8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    both = "while len([*folder.parent.glob('*.starts')]) < 2: time.sleep(0.01)"
    assert main(write([0, 1], both, "--slots", "2")) == 0
    assert sorted(starts(configs()[0]) + starts(configs()[1])) == ["None 4 3", "None 4 5"]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert sweep.slot_environments(1)[0]["CUDA_VISIBLE_DEVICES"] == "3,5"  # of a run of several processes
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert sweep.slot_environments(2) == [{"OMP_NUM_THREADS": "1"}] * 2


def test_a_grid_that_names_its_finished_runs_otherwise_is_told(write, capsys):
    assert main(write([0], arm="shared")) == 0
    assert main(write([0], arm="PALs")) == 0
    assert "its record keeps arm='shared'" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------- what is damaged
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("record = {}", "record.json"),
        ("record['key'] = 'abc'", "is the record of another run, abc, not of "),
        ("record['content'] = {'rte/train': 'x'}", "inputs that have changed since (rte/train): move it away"),
    ],
)
def test_what_is_not_a_runs_record_costs_the_run_alone(write, configs, capsys, body, reason):
    """The failure names the file; nothing of the run is collected."""
    call = write([0, 1], f"if config['seed'] == 1: {body}")
    assert main(call) == 1
    out = capsys.readouterr().out
    assert reason in out and out.count("  finished\n") == 1 and "\n1 of 2 runs finished" in out
    assert str(Path(configs()[1].folder) / "record.json") in out
    assert main([*call, "--collect", str(Path(configs()[0].folder).parent / "kept")]) == 1
    assert reason in capsys.readouterr().err


def test_collect(write, configs, tmp_path, capsys):
    """Records and predictions; a name may have a dot. A file of another machine is not replaced."""
    own = {"method": "lora-1.5", "own_method": {"kind": "lora", "size": 8}, "size": None}
    assert main(write([0, 1], **own)) == 0
    (one, other), kept = configs(), tmp_path / "kept"
    Path(one.folder, "predictions.npz").write_bytes(b"p")
    for _ in range(2):
        assert main(write([0, 1, 2], "", "--collect", str(kept), **own)) == 0
        assert {path.name for path in kept.iterdir()} == {f"{one.name}.json", f"{one.name}.npz", f"{other.name}.json"}
    assert (kept / f"{one.name}.json").read_bytes() == Path(one.folder, "record.json").read_bytes()
    (kept / f"{one.name}.npz").write_text("another machine's")
    assert main(write([0, 1, 2], "", "--collect", str(kept), **own)) == 1
    assert "differs from" in capsys.readouterr().err
    assert (kept / f"{one.name}.npz").read_text() == "another machine's"


def test_how_far_runs_are_is_shown_while_they_work(write, configs, monkeypatch, capsys):
    """Once a minute, here at once; from the bar in the log, whatever other bars are there."""
    monkeypatch.setattr(sweep, "MINUTE", 0.1)
    bars = r"\rLoading: 100%|##| 9/9 [00:00<00:00, 9it/s]\n\rpals: 33%|#| 2/6 [00:01<00:02, 7.16it/s, rte 0.69]\r"
    assert main(write([0], f"print('{bars}', end='', flush=True); time.sleep(2)")) == 0
    assert f"{configs()[0].name}  2/6 steps, 7.16it/s, 00:02 left\n" in capsys.readouterr().out


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
        ({"produkt": {}}, "unknown field of grid 'produkt': did you mean 'product'? Valid: base, product, runs"),
        ({"product": {"sed": [1]}}, "unknown parameter 'sed': did you mean 'seed'?"),
        ({"product": {"seed": []}}, "grid: product must have at least 1 item"),
        ({"product": {"seed": "012"}}, "grid: product must be a valid list, not '012'"),
        ({"product": {"seed": [0, 1, -1]}}, "run 3, {'seed': -1}: seed must be greater than or equal to 0"),
        ({"runs": [{"seed": 1}], "product": {"seed": [1]}}, "seed is both in runs and in product"),
        ({"product": {"keep": ["none", "last"]}}, "occurs twice (keep and checkpoint_every make no difference)"),
        ({"base": {"folder": "here"}}, "leave out folder, which the sweep chooses"),
    ],
)
def test_a_grid_is_refused_before_anything_starts(tmp_path, capsys, grid, message):
    (tmp_path / "grid.json").write_text(grid if isinstance(grid, str) else json.dumps(grid))
    assert main(["sweep", str(tmp_path / "grid.json"), "--folder", str(tmp_path / "runs")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and err.startswith("palslib sweep: ") and message in err
    assert not (tmp_path / "runs").exists()
