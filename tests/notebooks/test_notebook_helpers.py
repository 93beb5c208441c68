"""What the first cell of every notebook prints, and how a table's cells are written."""

import re

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from palslib import notebook


@pytest.fixture
def shown(monkeypatch):
    """What would have been displayed."""
    things = []
    monkeypatch.setattr(notebook, "display", things.append)
    return things


def test_begin_prints_versions(capsys):
    with plt.rc_context():
        notebook.begin("numpy")
    assert re.fullmatch(r"Python 3\.\d+\.\d+\S* · palslib \S+ · numpy \S+\n", capsys.readouterr().out)


def test_show_table(shown):
    frame = pd.DataFrame({"task": ["rte", None], "rows": [392702, 5], "score": [66.449, float("nan")]}, index=[7, 8])
    notebook.show_table(frame)
    notebook.show_table(frame)
    notebook.show_table(frame, digits=2)
    html = shown[0].data
    assert html == shown[1].data  # no address of an object in it
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", html)
    assert cells == ["rte", "392,702", "66.4", "–", "5", "–"]
    assert "66.45" in shown[2].data
    assert re.findall(r"<th[^>]*>([^<]*)</th>", html) == ["task", "rows", "score"]  # no index
