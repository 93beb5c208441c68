"""One run, one writer: who comes second is refused and touches nothing."""

import os
import shutil

import pytest
from small_runs import TURN, small

from palslib.common.files import InUse
from palslib.training.in_turn import train_in_turn
from palslib.training.loop import train
from palslib.training.pretraining import pretrain


def in_turn(config, on_step):
    return train_in_turn(["cola", "rte"], config.folder, on_step=on_step, **TURN | {"epochs": 1})


@pytest.mark.parametrize("run", [train, in_turn])
def test_a_run_is_started_once(tmp_path, run):
    """After each step it is started once more: tasks in turn also while the second is trained and the first is done."""
    config, refused = small(tmp_path / "run", steps=4), []

    def again(_):
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
        with pytest.raises(InUse, match="run is in use"):
            run(config, on_step=None)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
        refused.append(True)

    run(config, on_step=again)
    assert len(refused) == 4 and os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize(("run", "every"), [(train, 0), (train, 1), (pretrain, 0)])
def test_a_folder_that_is_deleted_midway_is_not_made_again(tmp_path, run, every):
    config = small(tmp_path / "run", steps=4, checkpoint_every=every, keep="last")
    with pytest.raises(InUse, match="run was deleted or taken over during the run"):
        run(config, on_step=lambda _: shutil.rmtree(tmp_path / "run", ignore_errors=True))
    assert not (tmp_path / "run").exists()
