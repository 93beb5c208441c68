"""Heads, learning curves, forgetting and the projection of a gradient: what is drawn is what the frame says."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

from palslib.study.figures.forgetting import forgetting_lines, projection_picture
from palslib.study.figures.heads import entropy_by_layer, removal_dots
from palslib.study.figures.learning_curves import learning_curves
from palslib.study.figures.style import TASK_COLOURS
from palslib.training.episodic_memory import project


@pytest.fixture
def ax():
    return plt.figure().add_subplot()


def test_entropies_are_means_over_tasks_and_the_least_of_all(ax):
    """BERT's heads in layer 0: mean of 0.5 and 0.7, the sharpest of 0.2 and 0.1."""
    values = [("rte", 0.5, 0.2), ("mnli", 0.7, 0.1)]
    rows = [(*of_task, kind, layer) for of_task, kind, layer in itertools.product(values, ("bert", "pal"), (0, 1))]
    entropy_by_layer(pd.DataFrame(rows, columns=["task", "mean", "min", "kind", "layer"]), ax)
    assert [list(line.get_ydata()) for line in ax.lines] == [pytest.approx([y, y]) for y in (0.6, 0.1, 0.6, 0.1)]
    assert [line.get_label() for line in ax.lines][2:] == ["the PALs' heads", "the PALs' heads, the sharpest"]


def test_removals_are_a_dot_a_head_at_its_task(ax):
    heads = itertools.product(("rte", "sst2"), ("bert", "pal"), range(3))
    frame = pd.DataFrame(heads, columns=["task", "kind", "head"])
    removal_dots(frame.assign(change=-frame["head"] * (frame["kind"] == "bert")), 0.4, ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["SST-2", "RTE"]
    assert [list(line.get_xdata()) for line in ax.lines] == [[0, -1, -2], [0, 0, 0]] * 2
    places = [set(map(round, line.get_ydata())) for line in ax.lines]
    assert places == [{0}, {0}, {1}, {1}]


def test_every_task_has_a_line(ax):
    """The paper's in their colours, one's own and the average after them."""
    tasks = ("rte", "mood", "average", "sst5")
    frame = pd.DataFrame(itertools.product((1, 2), tasks, (50.0,)), columns=["step", "task", "score"])
    learning_curves(frame, ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["RTE", "mood", "sst5", "average"]
    assert ax.lines[0].get_color() == TASK_COLOURS["rte"]


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_projection_picture(ax, margin):
    """g = (1, -2) and memory (0, 1): g̃ = (1, 0); with margin 1/2 the same, since v = 2 is above it."""
    g, G = torch.tensor([1.0, -2.0]), torch.tensor([[0.0, 1.0]])
    projection_picture(g, G, project(g, G, margin), ax)
    arrows, names = ax.texts[::2], ax.texts[1::2]
    np.testing.assert_allclose([arrow.xy for arrow in arrows], [(0, 1), (1, -2), (1, 0)], atol=1e-6)
    assert [name.get_text() for name in names] == ["memory 1", "g", "g̃"]
    shaded = ax.patches[0].get_path()
    assert shaded.contains_point((0.3, -0.5)) and not shaded.contains_point((0.3, 0.5))  # what the memory forbids


def test_forgetting_lines():
    """Means over seeds of 60 and 70, and of 80 and 90; the dotted line stands where the panel's task was trained."""
    scores = {("sst2", 0): 60.0, ("sst2", 1): 70.0, ("rte", 0): 80.0, ("rte", 1): 90.0}
    products = itertools.product(("shared", "PALs"), scores.items(), ("sst2", "rte"))
    rows = [("plain", method, after, seed, score, task) for method, ((after, seed), score), task in products]
    figure, axes = plt.subplots(2, 2)
    forgetting_lines(pd.DataFrame(rows, columns=["run", "method", "after", "seed", "score", "task"]), axes)
    assert [ax.get_title() for ax in axes.flat] == ["SST-2", "RTE", "", ""]
    assert [ax.get_ylabel() for ax in axes[:, 0]] == ["shared: score (%)", "PALs: score (%)"]
    for place, ax in [*enumerate(axes[0]), *enumerate(axes[1])]:
        np.testing.assert_allclose(ax.lines[0].get_xydata(), [[0, 65], [1, 85]])
        assert list(ax.lines[-1].get_xdata()) == [place, place]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["plain"]
