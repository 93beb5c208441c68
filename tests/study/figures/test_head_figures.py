"""Entropies by layer and single removals: what is drawn is what the frame says."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from palslib.study.figures.heads import entropy_by_layer, removal_dots


@pytest.fixture
def ax():
    return plt.figure().add_subplot()


def test_entropies_are_means_over_tasks_and_the_least_of_all(ax):
    """BERT's heads in layer 0: mean of 0.5 and 0.7, the sharpest of 0.2 and 0.1."""
    rows = [
        (t, k, i, m, low)
        for k in ("bert", "pal")
        for i in (0, 1)
        for t, m, low in (("rte", 0.5, 0.2), ("mnli", 0.7, 0.1))
    ]
    entropy_by_layer(pd.DataFrame(rows, columns=["task", "kind", "layer", "mean", "min"]), ax)
    assert [list(line.get_ydata()) for line in ax.lines] == [pytest.approx([y, y]) for y in (0.6, 0.1, 0.6, 0.1)]
    assert [line.get_label() for line in ax.lines][2:] == ["the PALs' heads", "the PALs' heads, the sharpest"]


def test_removals_are_a_dot_a_head_at_its_task(ax):
    rows = [(t, k, h, -h if k == "bert" else 0.0) for t in ("rte", "sst2") for k in ("bert", "pal") for h in range(3)]
    removal_dots(pd.DataFrame(rows, columns=["task", "kind", "head", "change"]), 0.4, ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["SST-2", "RTE"]
    assert [list(line.get_xdata()) for line in ax.lines] == [[0, -1, -2], [0, 0, 0]] * 2
    places = [set(map(round, line.get_ydata())) for line in ax.lines]
    assert places == [{0}, {0}, {1}, {1}]
