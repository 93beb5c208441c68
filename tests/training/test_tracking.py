"""A run seen while it goes on: a tracker gets its losses and scores, bars come where somebody looks."""

import io
import sys

import pytest
from accelerate import Accelerator
from accelerate.tracking import LOGGER_TYPE_TO_CLASS
from small_runs import small, two_classes

from palslib import train
from palslib.common.processes import progress_bar
from palslib.plan.config import TRACKERS
from palslib.training import accelerator
from palslib.training.pretraining import pretrain

ABOUT = {"tasks": ("rte", "cola"), "max_length": 16}


def tags(folder) -> dict[str, dict[int, float]]:
    """What TensorBoard would draw: by name, by step."""
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    seen = events.EventAccumulator(str(folder))
    seen.Reload()
    return {tag: {one.step: one.value for one in seen.Scalars(tag)} for tag in seen.Tags()["scalars"]}


def test_tensorboard_gets_losses_and_scores(tmp_path):
    about = ABOUT | {"steps": 45, "evaluate_every": 30, "log_with": "tensorboard"}
    record = train(small(tmp_path / "run", **about))
    seen = tags(tmp_path / "run" / "tensorboard")
    expected = {point["step"]: pytest.approx(point["dev_average"]) for point in record["history"]}
    assert seen["dev/average"] == expected and list(expected) == [30, 45]
    assert seen["dev/rte/accuracy"][45] == pytest.approx(record["results"]["last"]["scores"]["rte"]["accuracy"])
    assert set(seen["loss/rte"]) | set(seen["loss/cola"]) == {20, 30, 40, 45}
    assert "log_with" not in record["config"]  # it changes no result
    record = pretrain(small(tmp_path / "backbone", **ABOUT, steps=2, log_with="tensorboard"))
    seen = tags(tmp_path / "backbone" / "tensorboard")
    assert seen["dev/accuracy"] == pytest.approx({0: record["before"]["accuracy"], 2: record["after"]["accuracy"]})


def test_a_tracker_that_is_not_installed_is_named_before_anything_is_loaded(tmp_path, monkeypatch):
    assert set(TRACKERS) == set(LOGGER_TYPE_TO_CLASS)
    with pytest.raises(ValueError, match=r"log_with.*'tensorbord': did you mean 'tensorboard'"):
        small(tmp_path, log_with="tensorbord")
    monkeypatch.setattr(accelerator, "get_available_trackers", list)
    for begin in (train, pretrain):
        with pytest.raises(ImportError, match="log_with='trackio' needs the package trackio: pip install trackio"):
            begin(small(tmp_path / "run", log_with="trackio"))


class Picky:
    """A tracker that refuses all but plain names, as MLflow does, and loses its connection at the end."""

    name = "tensorboard"

    def __init__(self):
        self.values = {}

    def log(self, values, step, **_):
        assert all(name.replace("/", "").replace("_", "").replace(" ", "").isalnum() for name in values), values
        self.values |= dict.fromkeys(values, step)

    def finish(self):
        raise ConnectionError("gone")


def test_a_tracker_never_ends_a_run(tmp_path, monkeypatch):
    """Names are made plain; an exception, here and as it begins, is a warning."""
    two_classes(tmp_path / "a,b [c].csv")
    picky = Picky()
    for begin in (lambda one, *_: setattr(one, "trackers", [picky]), lambda *_: 1 / 0):
        monkeypatch.setattr(Accelerator, "init_trackers", begin)
        about = {"tasks": (str(tmp_path / "a,b [c].csv"),), "steps": 2, "log_with": "tensorboard"}
        with pytest.warns(
            UserWarning, match="the tracker failed, and training goes on: (ConnectionError|ZeroDivision)"
        ):
            record = train(small(tmp_path / f"run-{len(picky.values)}", **about))
        assert record["status"] == "finished" and list(record["results"]["last"]["scores"]) == ["a,b [c]"]
    assert "dev/a_b _c_/accuracy" in picky.values


@pytest.mark.parametrize("where", ["a log", "a terminal", "a notebook"])
def test_a_bar_comes_where_somebody_looks(monkeypatch, where):
    """In a notebook it is not red, leaves nothing behind, and is not on a static page."""
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"} if where == "a notebook" else {})
    for name in ("stderr", "stdout"):
        monkeypatch.setattr(sys, name, stream())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: where == "a terminal")
    assert progress_bar(range(3), where, False).disable
    with progress_bar(range(3), where, True, delay=0) as bar:
        assert bar.disable == (where == "a log") and list(bar) == [0, 1, 2]
    assert ("0/3" in sys.stderr.getvalue(), "0/3" in sys.stdout.getvalue()) == (
        where == "a terminal",
        where == "a notebook",
    )
    if where == "a notebook":
        assert sys.stdout.getvalue().rpartition("\r")[0].rpartition("\r")[2].isspace()
        monkeypatch.setenv("PALSLIB_STATIC", "1")
        assert progress_bar(range(3), where, True).disable


def test_phases_are_named_in_their_order(tmp_path):
    said = []
    train(small(tmp_path / "run", **ABOUT, steps=2), on_phase=said.append)
    assert said[:2] == ["reading rte, train", "reading cola, train"]
    assert said[-2:] == ["loading the model", "evaluating, after 2 of 2 steps"]
