"""A run seen while it goes on: a tracker, which never ends it, and bars, which come where somebody looks."""

import io
import sys

import pytest
from accelerate import Accelerator
from small_runs import small, two_classes

from palslib import train
from palslib.common.processes import progress_bar
from palslib.training import accelerator
from palslib.training.pretraining import pretrain


class Picky:
    """A tracker that refuses all but plain names, as MLflow does, and loses its connection at the end."""

    name = "tensorboard"

    def __init__(self):
        self.values = {}

    def log(self, values, step, **_):
        assert all(name.replace("/", "").replace("_", "").replace(" ", "").isalnum() for name in values), values
        self.values |= {(name, step): value for name, value in values.items()}

    def finish(self):
        raise ConnectionError("gone")


def test_a_tracker_gets_losses_and_scores_under_plain_names_and_never_ends_a_run(tmp_path, monkeypatch):
    two_classes(tmp_path / "a,b [c].csv")
    about = {"tasks": (str(tmp_path / "a,b [c].csv"),), "steps": 2, "log_with": "tensorboard"}
    seen = Picky()
    monkeypatch.setattr(Accelerator, "init_trackers", lambda one, *_: setattr(one, "trackers", [seen]))
    with pytest.warns(UserWarning, match="the tracker failed, and training goes on: ConnectionError: gone"):
        record = train(small(tmp_path / "run", **about))
    assert record["status"] == "finished" and "log_with" not in record["config"]
    assert seen.values["dev/average", 2] == record["results"]["last"]["dev_average"]
    assert {("loss/a_b _c_", 2), ("dev/a_b _c_/accuracy", 2)} <= seen.values.keys()
    with pytest.warns(UserWarning, match="gone"):
        pretrain(small(tmp_path / "backbone", **about))
    assert {("dev/perplexity", 0), ("dev/perplexity", 2)} <= seen.values.keys()
    monkeypatch.setattr(Accelerator, "init_trackers", lambda *_: 1 / 0)
    with pytest.warns(UserWarning, match="training goes on: ZeroDivisionError"):
        assert train(small(tmp_path / "other", **about))["status"] == "finished"


def test_a_tracker_that_is_not_installed_is_named(tmp_path, monkeypatch):
    """Accelerate would leave it out without a word."""
    monkeypatch.setattr(accelerator, "get_available_trackers", list)
    with pytest.raises(ImportError, match="log_with='trackio' needs the package trackio"):
        train(small(tmp_path / "run", log_with="trackio"))


@pytest.mark.parametrize("where", ["a log", "a terminal", "a notebook"])
def test_a_bar_comes_where_somebody_looks(monkeypatch, where):
    """In a notebook it is on stdout, which is not red, and not on a static page."""
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"} if where == "a notebook" else {})
    for name in ("stderr", "stdout"):
        monkeypatch.setattr(sys, name, stream())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: where == "a terminal")
    assert progress_bar(range(3), where, False).disable
    assert list(progress_bar(range(3), where, True, delay=0)) == [0, 1, 2]
    assert ("0/3" in sys.stderr.getvalue()) == (where == "a terminal")
    assert ("0/3" in sys.stdout.getvalue()) == (where == "a notebook")
    monkeypatch.setenv("PALSLIB_STATIC", "1")
    assert progress_bar(range(3), where, True).disable == (where != "a terminal")
