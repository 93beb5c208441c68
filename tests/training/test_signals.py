"""Signals end a run with a checkpoint and one line; no worker outlives its launcher."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import pytest
from small_runs import ACCELERATE, SEVERAL, TORCHRUN, finish, small

from palslib.__main__ import main
from palslib.training.loop import Run, train
from palslib.training.signals import HANDLED, Stopped, StopSignals

TINY = {"steps": 6, "checkpoint_every": 4, "keep": "last"}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def as_at_a_terminal():
    """A shell that starts tests in the background has some of these signals ignored."""
    usual = {one: signal.default_int_handler if one == signal.SIGINT else signal.SIG_DFL for one in HANDLED}
    before = {one: signal.signal(one, handler) for one, handler in usual.items()}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


def send(number, at):
    """After a step of a run."""
    return lambda run: os.kill(os.getpid(), number) if run.step == at else None


@pytest.mark.parametrize("number", HANDLED)
def test_a_signal_saves_a_checkpoint(tmp_path, number):
    """What handled the signals before does so again; and the run goes on."""
    handlers = [signal.getsignal(one) for one in HANDLED]
    config = small(tmp_path / "run", **TINY)
    message = f"stopped by {number.name} at step 3 of 6; a call with folder='.*run' resumes it"
    with pytest.raises(Stopped, match=message) as stopped:
        train(config, on_step=send(number, 3))
    assert stopped.value.number == number and isinstance(stopped.value, KeyboardInterrupt)
    assert [signal.getsignal(one) for one in HANDLED] == handlers
    assert finish(config)[0] == [4, 5, 6]


def test_what_is_ignored_stays_ignored():
    """As SIGHUP is under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
        assert not signals.number
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_goes_on_is_said(tmp_path):
    """The same call would start anew again, in another folder; at the end the run is finished first; without
    checkpoints nothing is kept."""
    config = small(tmp_path / "run", **TINY)
    with pytest.raises(Stopped, match=r"a call with folder='.*run-1' resumes it"):
        train(config, resume=False, on_step=send(signal.SIGTERM, 3))
    assert finish(small(tmp_path / "run-1", **TINY))[0] == [4, 5, 6]
    with pytest.raises(Stopped, match="SIGTERM came after the run had ended or stopped"):
        train(config, on_step=send(signal.SIGTERM, 6))
    assert (tmp_path / "run" / "record.json").exists()
    with pytest.raises(Stopped, match=r"no checkpoint is kept \(checkpoint_every=0\)"):
        train(small(tmp_path / "other", steps=6), on_step=send(signal.SIGINT, 3))


def test_a_second_interrupt_ends_at_once():
    with pytest.raises(KeyboardInterrupt) as ended, StopSignals():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # a launcher's, of the same Ctrl-C
        time.sleep(0.6)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    assert not isinstance(ended.value, Stopped)


def test_in_another_thread_training_leaves_signals_alone(tmp_path):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(train, small(tmp_path / "run", **TINY)).result()["status"] == "finished"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_one_line_from_the_command_line(tmp_path, monkeypatch, capsys, number, status):
    (tmp_path / "config.json").write_text(json.dumps(asdict(small(tmp_path / "run", **TINY))))
    step = Run.train_step
    monkeypatch.setattr(Run, "train_step", lambda run: (step(run), send(number, 3)(run)))
    assert main(["train", str(tmp_path / "config.json")]) == status
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "stopped" in line]
    assert line.startswith(f"palslib train: stopped by {number.name} at step 3 of 6; a call with folder=")


def children(process):
    """Numbers of the processes that a process has started, and those that these have."""
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(number) for number in found] + [inner for number in found for inner in children(number)]


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [TORCHRUN, ACCELERATE + SEVERAL], ids=["torchrun", "accelerate"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_worker_outlives_its_launcher(tmp_path, launcher, number):
    """Killed, it takes its workers along; asked to end, it passes that on, and the run saves a checkpoint first."""
    settings = small(tmp_path / "run", steps=100_000, checkpoint_every=90_000, keep="last", progress=True)
    (tmp_path / "config.json").write_text(json.dumps(asdict(settings)))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ACCELERATE")}
    environment |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    call = [sys.executable, "-m", *launcher, "-m", "palslib", "train", str(tmp_path / "config.json")]
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen(call, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        training = re.compile(r"[1-9]\d*/100000")  # a bar that has moved
        assert until(lambda: training.search((tmp_path / "log").read_text())), (tmp_path / "log").read_text()
        workers = children(process.pid)
        assert len(workers) >= 2
        process.send_signal(number)
        process.wait(60)
        assert until(lambda: not any(map(alive, workers)), 10), workers
        saved = tmp_path / "run" / "checkpoint.pt"
        assert saved.exists() == (number == signal.SIGTERM), (tmp_path / "log").read_text()
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            assert process.poll() is not None
