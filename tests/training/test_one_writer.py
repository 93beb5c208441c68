"""One run, one writer: who comes second is refused and touches nothing."""

import os
import shutil
from pathlib import Path

import pytest
from small_runs import names_in, small

from palslib.common.lock import PARENT, InUse, in_use, run_lock
from palslib.training.in_turn import train_in_turn
from palslib.training.loop import train
from palslib.training.pretraining import pretrain

TINY = {"steps": 4, "checkpoint_every": 2, "keep": "last"}
TURN = {"backbone": "tiny", "epochs": 1, "epoch_steps": 3, "batch_size": 4, "progress": False}

pytestmark = pytest.mark.usefixtures("one_thread")


def files(folder):
    """What lies in a folder, and when it was written."""
    return {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*") if path.name != "lock"}


def in_turn(config, on_step):
    return train_in_turn(["cola", "rte"], config.folder, on_step=on_step, **TURN)


@pytest.mark.parametrize(("run", "steps"), [(train, 4), (pretrain, 4), (in_turn, 6)])
def test_a_run_is_started_once(tmp_path, run, steps):
    """After each step it is started once more, and refused: tasks in turn also while the second one is trained and the
    first is finished."""
    config, refused = small(tmp_path / "run", **TINY), []

    def again(_):
        before = files(tmp_path)
        with pytest.raises(InUse, match=rf"in use by process {os.getpid()} on .*; a run has only one writer$"):
            run(config, on_step=None)
        assert files(tmp_path) == before
        refused.append(True)

    run(config, on_step=again)
    assert len(refused) == steps
    assert names_in(tmp_path) == ["run"] and "lock" not in names_in(tmp_path / "run")


def test_who_is_started_by_the_holder_works_under_its_lock(tmp_path, monkeypatch):
    """As the run of a sweep does, through any number of processes between; nobody else does."""
    config = small(tmp_path / "run", **TINY)
    with run_lock(Path(config.folder)) as lock:
        monkeypatch.setenv(PARENT, lock.holder + "x")
        with pytest.raises(InUse):
            train(config)
        monkeypatch.setenv(PARENT, lock.holder)
        assert train(config)["status"] == "finished"
        assert in_use(Path(config.folder))


def test_a_folder_that_is_deleted_midway_is_not_finished(tmp_path):
    config = small(tmp_path / "run", **TINY | {"checkpoint_every": 0})

    def delete(run):
        if run.step == 2:
            shutil.rmtree(run.folder)

    with pytest.raises(InUse, match="run was deleted or taken over during the run; repeat the call to begin anew"):
        train(config, on_step=delete)
    assert not Path(config.folder).exists()


def test_a_refused_config_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="max_length 200 exceeds the 128 positions"):
        train(small(tmp_path / "run", max_length=200))
    assert list(tmp_path.iterdir()) == []
