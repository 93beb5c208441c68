"""What every notebook shows: source as it is written, tables that are the same in every run, small figures."""

import inspect
import io

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from PIL import Image

from palslib import notebook
from palslib.methods.functions import LowRankLayers, Scales


@pytest.fixture
def shown(monkeypatch) -> list:
    things = []
    monkeypatch.setattr(notebook, "display", things.append)
    return things


def test_source_keeps_its_indentation(shown):
    notebook.show_source(Scales, LowRankLayers.parallel)
    whole, method = (thing.data for thing in shown)
    assert whole == f"```python\n{inspect.getsource(Scales).strip()}\n```"
    assert method.startswith("```python\ndef parallel(self, layer, h, rows):\n    return ")


def test_a_table_is_the_same_text_every_time(shown):
    for _ in range(2):
        notebook.show_table(pd.DataFrame({"method": ["lhuc"], "count": [9216], "score": [None]}))
    assert shown[0].data == shown[1].data
    assert all(text in shown[0].data for text in ("lhuc", "9,216", "–"))


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
