"""Signals end a run with a checkpoint and one line; no worker outlives its launcher."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import pytest
from small_runs import ACCELERATE, SEVERAL, TORCHRUN, finish, on_cpus, small

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
def test_a_signal_saves_a_checkpoint(tmp_path, monkeypatch, capsys, number):
    """And is one line; what handled the signals before does so again; the run goes on."""
    handlers, step, config = [signal.getsignal(one) for one in HANDLED], Run.train_step, small(tmp_path / "run", **TINY)
    (tmp_path / "config.json").write_text(json.dumps(asdict(config)))
    with monkeypatch.context() as patch:
        patch.setattr(Run, "train_step", lambda run: (step(run), send(number, 3)(run)))
        assert main(["train", str(tmp_path / "config.json")]) == 128 + number
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"palslib train: stopped by {number.name} at step 3 of 6; a call with folder=")
    assert Stopped("one line", number)._render_traceback_() == ["one line"]  # what a notebook shows
    assert [signal.getsignal(one) for one in HANDLED] == handlers
    assert finish(config)[0] == [4, 5, 6]


def test_what_is_ignored_stays_ignored():
    """As SIGHUP is under `nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGHUP)
    assert not signals.number


def test_what_goes_on_is_said(tmp_path):
    """At the end the run is finished first; without checkpoints nothing is kept."""
    config = small(tmp_path / "run", **TINY)
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
    with open(tmp_path / "log", "w") as log:
        call = [sys.executable, "-m", *launcher, "-m", "palslib", "train", str(tmp_path / "config.json")]
        process = subprocess.Popen(call, env=on_cpus(), stdout=log, stderr=log, start_new_session=True)
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
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
