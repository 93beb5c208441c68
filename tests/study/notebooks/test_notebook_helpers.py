"""What every notebook shows: versions, source as it is written, the same tables in every run, small figures."""

import io

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from palslib.study import notebook
from palslib.study.figures.style import TASK_COLOURS, save_figure


@pytest.fixture
def shown(monkeypatch, tmp_path):
    """What would have been displayed; figures are saved in a folder of their own."""
    things = []
    monkeypatch.setattr(notebook, "display", things.append)
    monkeypatch.setenv("PALSLIB_FIGURES", str(tmp_path / "figures"))
    return things


def test_no_text_of_a_table_is_html(shown):
    """How tables look is in every notebook, whose outputs `pytest --nbval notebooks` compares."""
    notebook.show_table(pd.DataFrame({"a < b": ["<i>"]}))
    assert "a &lt; b</th>" in shown[0].data and "&lt;i&gt;</td>" in shown[0].data


def test_a_figure_is_saved_shown_small_and_closed(shown, tmp_path):
    figure, ax = plt.subplots(figsize=(4, 2))
    ax.plot([0, 1], [1, 0])
    notebook.show_figure(figure, "line", colours=16)
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["line.png", "line.svg"]
    picture = Image.open(io.BytesIO(shown[0].data))
    assert picture.size == (600, 300) and len(picture.getcolors()) <= 16  # 4 x 2 inches at 150 dots
    assert len(shown[0].data) < (tmp_path / "figures" / "line.png").stat().st_size
    assert not plt.fignum_exists(figure.number)
    notebook.show_figure(figure, "line")  # again: it is ours


@pytest.mark.parametrize(("ending", "link"), [("png", True), ("svg", False)])
def test_a_figure_replaces_no_file_that_is_not_ours(ending, link, shown, tmp_path):
    place, path = (tmp_path / "figures" / f"line.{ending}"), tmp_path / "mine"
    place.parent.mkdir()
    path.write_text("my own")
    place.symlink_to(path) if link else path.rename(place)
    with pytest.raises(ValueError, match=f"line.{ending} is not a figure that palslib wrote"):
        save_figure(plt.figure(), "line")
    assert place.read_text() == "my own"
    place.unlink()
    plt.figure().savefig(place)
    with pytest.raises(ValueError, match=f"line.{ending} is not a figure that palslib wrote"):
        save_figure(plt.figure(), "line")


def test_the_colour_of_every_task_survives(shown, tmp_path):
    """The smallest tasks are slivers, as under proportional sampling, beside a map of many colours. STS-B once came out
    in SST-2's orange: 64 colours, and the two are the nearest of the eight."""
    shares = np.array([0.009, 0.071, 0.006, 0.006, 0.382, 0.41, 0.11, 0.006])
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.8))
    axes[0].bar(0, shares, bottom=shares.cumsum() - shares, color=list(TASK_COLOURS.values()))
    axes[1].imshow(np.random.default_rng(0).random((30, 30)), cmap="viridis")
    notebook.show_figure(figure, "tasks")
    files = io.BytesIO(shown[0].data), tmp_path / "figures" / "tasks.png"
    here, there = (np.asarray(Image.open(file).convert("RGB")).astype(int) for file in files)
    assert here.shape == there.shape and len(np.unique(here.reshape(-1, 3), axis=0)) <= 128
    colours = np.rint(255 * np.array(list(TASK_COLOURS.values())))
    for colour in colours:
        where = (there == colour).all(-1)
        assert where.any() and np.abs(here[where] - colour).max() <= 12  # less than half of what two of them differ by
    assert np.abs(colours[:, None] - colours).max(-1)[~np.eye(len(colours), dtype=bool)].min() > 24


def test_parameters_are_checked_by_value():
    """None is what is usual."""
    for value in (99, None):
        notebook.check_value("steps", value, range(1, 100))
    with pytest.raises(ValueError, match="'steps' must be from 1 to 99, not 0"):
        notebook.check_value("steps", 0, range(1, 100))
    with pytest.raises(ValueError, match="'pals204': did you mean 'pals-204'"):
        notebook.check_value("methods", ["lhuc", "pals204"], ["pals-204", "lhuc"])
