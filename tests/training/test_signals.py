"""Signals end a run with a checkpoint and one line; no worker outlives its launcher."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from dataclasses import asdict

import psutil
import pytest
from small_runs import TORCHRUN, finish, on_cpus, small

from palslib.__main__ import main
from palslib.training.loop import Run, train
from palslib.training.signals import HANDLED, Stopped, StopSignals

ACCELERATE = ["accelerate.commands.launch", "--num_processes", "2", "--multi_gpu", "--main_process_port", "0"]
TINY = {"steps": 6, "checkpoint_every": 4, "keep": "last"}


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


def test_a_signal_saves_a_checkpoint(tmp_path, monkeypatch, capsys):
    """And is one line; the run goes on."""
    step, config = Run.train_step, small(tmp_path / "run", **TINY)
    (tmp_path / "config.json").write_text(json.dumps(asdict(config)))
    with monkeypatch.context() as patch:
        patch.setattr(Run, "train_step", lambda run: (step(run), send(signal.SIGUSR1, 3)(run)))
        assert main(["train", str(tmp_path / "config.json")]) == 128 + signal.SIGUSR1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("palslib train: stopped by SIGUSR1 at step 3 of 6; a call with folder=")
    assert Stopped("one line", 10)._render_traceback_() == ["one line"]  # what a notebook shows
    assert finish(config)[0] == [4, 5, 6]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU"])
def test_each_signal_is_noted_but_one_that_is_ignored(name):
    """As SIGHUP is under `nohup`. What handled it before does so again."""
    number = getattr(signal, name)
    for handler, noted in ((signal.getsignal(number), number), (signal.SIG_IGN, 0)):
        signal.signal(number, handler)
        with pytest.raises(Stopped, match=name) if noted else nullcontext(), StopSignals() as signals:
            os.kill(os.getpid(), number)
        assert signals.number == noted and signal.getsignal(number) == handler


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


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [TORCHRUN, ACCELERATE], ids=["torchrun", "accelerate"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_worker_outlives_its_launcher(tmp_path, launcher, number):
    """Killed, it takes its workers along; asked to end, it passes that on, and the run saves a checkpoint first."""
    settings = small(tmp_path / "run", steps=100_000, checkpoint_every=90_000, keep="last", progress=True)
    (tmp_path / "config.json").write_text(json.dumps(asdict(settings)))
    with open(tmp_path / "log", "w") as log:
        call = [sys.executable, "-m", *launcher, "-m", "palslib", "train", str(tmp_path / "config.json")]
        process = subprocess.Popen(call, env=on_cpus(), stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while not re.search(r"[1-9]\d*/100000", (tmp_path / "log").read_text()):  # until the bar has moved
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.05)
        workers = psutil.Process(process.pid).children(recursive=True)
        assert len(workers) >= 2
        process.send_signal(number)
        process.wait(60)
        left = psutil.wait_procs(workers, timeout=10)[1]
        assert {worker.status() for worker in left} <= {psutil.STATUS_ZOMBIE}  # has ended, and nobody has asked how
        saved = tmp_path / "run" / "checkpoint.pt"
        assert saved.exists() == (number == signal.SIGTERM), (tmp_path / "log").read_text()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
