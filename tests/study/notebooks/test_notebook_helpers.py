"""What every notebook shows: versions, source as it is written, the same tables in every run, small figures."""

import inspect
import io
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from palslib.methods.lhuc import Scales
from palslib.methods.low_rank import LowRankLayers
from palslib.study import notebook
from palslib.study.figures.sampling import probability_areas
from palslib.study.figures.style import TASK_COLOURS, save_figure


@pytest.fixture
def shown(monkeypatch):
    """What would have been displayed."""
    things = []
    monkeypatch.setattr(notebook, "display", things.append)
    return things


def test_begin_prints_versions(capsys):
    notebook.begin("numpy")
    assert re.fullmatch(r"Python 3\.\d+\.\d+\S* · palslib \S+ · numpy \S+\n", capsys.readouterr().out)


def test_source_keeps_its_indentation(shown):
    notebook.show_source(Scales, LowRankLayers.parallel)
    whole, method = (thing.data for thing in shown)
    assert whole == f"```python\n{inspect.getsource(Scales).strip()}\n```"
    assert method.startswith("```python\ndef parallel(self, layer, h, rows):\n    return ")


def test_show_table(shown):
    frame = pd.DataFrame({"task": ["rte", None], "rows": [392702, 5], "score": [66.449, float("nan")]}, index=[7, 8])
    notebook.show_table(frame)
    notebook.show_table(frame)
    notebook.show_table(frame, digits=2)
    html = shown[0].data
    assert html == shown[1].data  # no address of an object in it
    dash = '<span style="color: #999">–</span>'
    cells = [("left", "rte"), ("", "392,702"), ("", "66.4"), ("left", dash), ("", "5"), ("", dash)]
    assert re.findall(r'<td(?: style="text-align: (left)")? >(.*?)</td>', html) == cells
    assert "<style" not in html and "class=" not in html  # JupyterLab would drop the one, and nothing reads the other
    assert "66.45" in shown[2].data
    assert re.findall(r"<th[^>]*>([^<]*)</th>", html) == ["task", "rows", "score"]  # no index
    notebook.show_table(pd.DataFrame({"seed": [1, 2], "a < b": [1.5, 2.5], "text": ["<script>", "b"]}))
    assert '<td style="text-align: left" >&lt;script&gt;</td>' in shown[3].data
    assert '<th >seed</th><th >a < b</th><th style="text-align: left" >text</th>' in shown[3].data


def test_a_figure_is_saved_shown_small_and_closed(shown, tmp_path, monkeypatch):
    monkeypatch.setenv("PALSLIB_FIGURES", str(tmp_path))
    figure, ax = plt.subplots(figsize=(4, 2))
    ax.plot([0, 1], [1, 0])
    notebook.show_figure(figure, "line", colours=16)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["line.png", "line.svg"]
    picture = Image.open(io.BytesIO(shown[0].data))
    assert picture.size == (600, 300) and len(picture.getcolors()) <= 16  # 4 x 2 inches at 150 dots
    assert len(shown[0].data) < (tmp_path / "line.png").stat().st_size
    assert not plt.fignum_exists(figure.number)
    notebook.show_figure(figure, "line")  # again: it is ours


@pytest.mark.parametrize("ending", ["png", "svg"])
@pytest.mark.parametrize("link", [False, True])
def test_a_figure_replaces_no_file_that_is_not_ours(ending, link, tmp_path, monkeypatch):
    monkeypatch.setenv("PALSLIB_FIGURES", str(tmp_path / "figures"))
    (tmp_path / "figures").mkdir()
    path = tmp_path / "mine" if link else tmp_path / "figures" / f"line.{ending}"
    path.write_text("my own")
    if link:
        (tmp_path / "figures" / f"line.{ending}").symlink_to(path)
    with pytest.raises(ValueError, match=f"line.{ending} is not a figure that palslib wrote"):
        save_figure(plt.figure(), "line")
    assert path.read_text() == "my own"


SHARES = dict(zip(TASK_COLOURS, (0.009, 0.071, 0.004, 0.006, 0.383, 0.414, 0.110, 0.003), strict=True))


def areas(axes):
    """The smallest tasks are slivers, as under proportional sampling."""
    rows = [(epoch, task, p) for epoch in (1, 2) for task, p in SHARES.items()]
    frame = pd.DataFrame(rows, columns=["epoch", "task", "probability"]).assign(schedule="proportional")
    probability_areas(frame, [axes[0]])


def heat(axes):
    """A map of many colours beside the tasks': they take most of the palette."""
    axes[0].imshow(np.random.default_rng(0).random((30, 30)), cmap="viridis")
    for place, colour in enumerate(TASK_COLOURS.values()):
        axes[1].plot([0, 1], [0, place], color=colour)


@pytest.mark.parametrize("draw", [areas, heat])
def test_the_colour_of_every_task_survives(draw, shown, tmp_path, monkeypatch):
    """STS-B once came out in SST-2's orange: 64 colours, and the two are the nearest of the eight."""
    monkeypatch.setenv("PALSLIB_FIGURES", str(tmp_path))
    notebook.use_style()
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.8))
    draw(axes)
    notebook.show_figure(figure, "tasks")
    files = io.BytesIO(shown[0].data), tmp_path / "tasks.png"
    here, there = (np.asarray(Image.open(file).convert("RGB")).astype(int) for file in files)
    assert here.shape == there.shape and len(np.unique(here.reshape(-1, 3), axis=0)) <= 128
    colours = np.rint(255 * np.array(list(TASK_COLOURS.values())))
    for colour in colours:
        where = (there == colour).all(-1)
        assert where.any() and np.abs(here[where] - colour).max() <= 12  # less than half of what two of them differ by
    assert np.abs(colours[:, None] - colours).max(-1)[~np.eye(len(colours), dtype=bool)].min() > 24


def test_parameters_are_checked_by_value():
    for name, value, valid, said in (
        ("epochs", 0, range(1, 100), "parameter 'epochs' must be from 1 to 99, not 0"),
        ("method", "pals204", ["pals-204", "lhuc"], "'pals204': did you mean 'pals-204'"),
        ("methods", ["lhuc", "pals204"], ["pals-204", "lhuc"], "'pals204'"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            notebook.check_value(name, value, valid)
    notebook.check_value("epochs", 99, range(1, 100))
    notebook.check_value("epochs", None, range(1, 100))  # what is usual
    notebook.check_value("methods", ["lhuc"], ["pals-204", "lhuc"])
