"""What is damaged, deleted or exchanged in a run's folder costs that run alone, and is never taken for its end.

A script that starts in no time stands for the training, but for the runs that say otherwise.
"""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from palslib.common.lock import InUse, in_use
from palslib.grid.engines import SlurmJob, Terms, perform_in_job
from test_sweep import configs_in, starts, swept, wait_for, written

from palslib.grid import engines
from palslib.grid.sweep import line, state
from palslib.training.loop import train


@pytest.fixture
def write(tmp_path):
    """Writes a grid of three seeds and a stand-in for training; returns the arguments of a sweep without retries."""
    return lambda body="", *more, seeds=(0, 1, 2): written(tmp_path, seeds, body, "--retries", "0", *more)


@pytest.fixture
def folders(tmp_path):
    return lambda: [Path(config.folder) for config in configs_in(tmp_path)]


GARBAGE = [b"", b"{", b"\xff\xfe\x00", b"[]", b"{}", b"null"]


@pytest.mark.parametrize("name", ["record.json", "failure.json"])
def test_a_damaged_file_costs_its_run_alone(write, folders, capsys, tmp_path, name):
    """It is that run's failure, with the file's name; the last two are done, and the frame has all."""
    call = write(seeds=range(len(GARBAGE) + 2))
    damaged = folders()[:-2]
    for folder, content in zip(damaged, GARBAGE, strict=True):
        folder.mkdir(parents=True)
        (folder / name).write_bytes(content)
    assert swept(call) == 1
    out = capsys.readouterr().out
    assert out.count(" finished\n") == 2 and "\n2 of 8 runs finished" in out
    assert all(f"failed: {folder / name}: " in out for folder in damaged)
    assert [len(starts(config)) for config in configs_in(tmp_path)] == [0] * 6 + [1] * 2
    found = list(map(state, configs_in(tmp_path)))
    assert [one["status"] for one in found] == ["failed"] * 6 + ["finished"] * 2
    assert [one["dev average"] is not None for one in found] == [False] * 6 + [True] * 2


@pytest.mark.parametrize("name", ["record.json", "failure.json", "checkpoint/run.json"])
@pytest.mark.parametrize("odd", ["x", [], True])
def test_odd_numbers_in_a_runs_files_do_not_end_the_table(tmp_path, write, folders, name, odd):
    write(seeds=[0])
    (path := folders()[0] / name).parent.mkdir(parents=True)
    (config,) = configs_in(tmp_path)
    last = {"step": 4, "dev_average": odd, "glue_average": None, "scores": {}}
    about = {"key": config.key, "config": asdict(config), "method": {}, "precision": "float32", "counts": {"ratio": 1}}
    about |= {"results": {"last": last, "best": last}, "seconds": {"total": 1}}
    about |= {"ended": time.time(), "status": "failed", "reason": "", "step": odd, "history": [last]}
    path.write_text(json.dumps(about | ({"seconds": odd} if name == "failure.json" else {})))
    row = state(config)
    assert row["status"] == ("waiting" if "run" in name else "failed") and line("x", row)


def test_a_folder_in_place_of_a_file_costs_its_run_alone(write, folders, capsys):
    call, names = write(seeds=range(5)), ("record.json", "failure.json", "lock")
    places = [folder / name for folder, name in zip(folders()[:3], names, strict=True)]
    for place in places:
        place.mkdir(parents=True)
    assert swept(call) == 1
    out = capsys.readouterr().out
    assert all(f"failed: [Errno 21] Is a directory: '{place}'" in out for place in places)
    assert "\n2 of 5 runs finished" in out


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("(folder / 'record.json').write_text('{')", "record.json: not JSON: "),
        (
            "record['key'] = 'abc'; (folder / 'record.json').write_text(json.dumps(record))",
            "is the record of another run",
        ),
        ("shutil.rmtree(folder)", "failed: exit status 0, but no record"),
    ],
)
def test_a_run_that_leaves_garbage_or_nothing_has_failed(write, capsys, body, reason):
    assert swept(write(f"if config['seed'] == 1: {body}; sys.exit()")) == 1
    out = capsys.readouterr().out
    assert reason in out and "\n2 of 3 runs finished" in out


def test_a_folder_that_is_deleted_later_in_the_sweep_is_not_finished(write, capsys):
    """The last run deletes that of seed 0, which had finished before the sweep began."""
    assert swept(write(seeds=[0])) == 0
    body = "if config['seed'] == 2: [shutil.rmtree(f) for f in folder.parent.glob('*seed0*')]"
    assert swept(write(body, "--slots", "1")) == 1
    out = capsys.readouterr().out
    assert "failed: its record has been deleted since" in out and "\n2 of 3 runs finished" in out


def test_a_run_of_exchanged_texts_is_run_anew(write, tmp_path):
    """Its record says what it was made from; one that does not say stays."""
    body = "record['content'] = {'rte/train': 'of other texts'} if config['seed'] == 1 and not CHANGED else {}"
    assert swept(write(body.replace("CHANGED", "False"))) == 0
    assert swept(write(body.replace("CHANGED", "True"))) == 0
    assert swept(write(body.replace("CHANGED", "True"))) == 0
    assert [len(starts(config)) for config in configs_in(tmp_path)] == [1, 2, 1]


def test_training_runs_under_the_lock_of_its_sweep_and_nobody_beside_it(write, tmp_path):
    """Real training, in a process that the run's own process starts; meanwhile a terminal is refused."""
    go, inner = tmp_path / "go", "import subprocess; sys.exit(subprocess.call(RUN))"
    inner = inner.replace("RUN", "[sys.executable, '-m', 'palslib', 'train', sys.argv[1]]")
    call = write(f"while not Path({str(go)!r}).exists(): time.sleep(0.01)\n{inner}", seeds=[0])
    (config,) = configs_in(tmp_path)
    statuses = []
    thread = threading.Thread(target=lambda: statuses.append(swept(call)))
    thread.start()
    wait_for(lambda: starts(config))
    with pytest.raises(InUse, match="a run has only one writer"):
        train(config)
    go.touch()
    thread.join(120)
    assert statuses == [0] and state(config)["step"] == 6


# ------------------------------------------------------------------------------------------------------- asked to end

SAVES = "signal.signal(signal.SIGTERM, lambda *_: ((folder / 'saved').touch(), sys.exit())); time.sleep(1000)"


def test_a_run_over_its_limit_may_save_first(write, folders):
    assert swept(write(SAVES, "--limit", "2", seeds=[0])) == 1
    assert (folders()[0] / "saved").exists()


def test_who_does_not_end_is_killed(write, folders, monkeypatch, capsys):
    monkeypatch.setattr(engines, "GRACE", 0.3)
    began = time.monotonic()
    body = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
    assert swept(write(body, "--limit", "1", seeds=[0])) == 1
    assert time.monotonic() - began < 30 and not in_use(folders()[0])
    assert "over the limit of 1 s" in capsys.readouterr().out


def test_slurms_warning_ends_a_job_with_a_result_in_json(write, folders, tmp_path):
    """The run may save first. What is read again is JSON: nothing that a file says is executed."""
    write(SAVES, seeds=[0])
    (config,), place = configs_in(tmp_path), tmp_path / "result.json"
    before = signal.getsignal(signal.SIGUSR2)

    def warn():
        wait_for(lambda: starts(config))
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGUSR2)

    threading.Thread(target=warn).start()
    try:
        perform_in_job(config, Terms((sys.executable, str(tmp_path / "train.py")), retries=0), 1, place)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert (folders()[0] / "saved").exists()
    assert SlurmJob(None, None, place).result() == json.loads(place.read_text()) == {"status": "stopped"}
    place.write_bytes(b"\x80\x04cos\nsystem\n")  # a pickle
    with pytest.raises(ValueError, match=r"result\.json: not JSON"):
        SlurmJob(None, None, place).result()
