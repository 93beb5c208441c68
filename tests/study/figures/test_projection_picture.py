"""The projection of a gradient, drawn: what points where, and what is shaded; and scores as tasks come in turn."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

from palslib.study.figures.forgetting import forgetting_lines, projection_picture
from palslib.training.episodic_memory import project


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_projection_picture(margin):
    """g = (1, -2) and memory (0, 1): g̃ = (1, 0); with margin 1/2 the same, since v = 2 is above it."""
    g, G = torch.tensor([1.0, -2.0]), torch.tensor([[0.0, 1.0]])
    ax = plt.figure().add_subplot()
    projection_picture(g, G, project(g, G, margin), ax)
    tips = {text.get_text(): text.xy for text in ax.texts if text.get_text()}
    assert list(tips) == ["memory 1", "g", "g̃"]
    for name, tip in {"memory 1": (0, 1), "g": (1, -2), "g̃": (1, 0)}.items():  # the names, beside the tips
        assert 0 < np.linalg.norm(np.subtract(tips[name], tip)) < 0.2 * 2.5
    assert tips["g̃"][1] > 0.1  # and beside the border
    ((low, high), (bottom, top)) = ax.get_xlim(), ax.get_ylim()
    assert low == bottom == -2.5 and high == top == 2.5
    shaded = ax.patches[0].get_path()
    assert shaded.contains_point((0.3, -0.5)) and not shaded.contains_point((0.3, 0.5))  # what the memory forbids


def test_forgetting_lines():
    """Means over seeds of 60 and 70, and of 80 and 90; the dotted line stands where the panel's task was trained."""
    scores = {("sst2", 0): 60.0, ("sst2", 1): 70.0, ("rte", 0): 80.0, ("rte", 1): 90.0}
    rows = [
        {"method": method, "run": "plain", "seed": seed, "after": after, "task": task, "score": score}
        for method in ("shared", "PALs")
        for (after, seed), score in scores.items()
        for task in ("sst2", "rte")
    ]
    figure, axes = plt.subplots(2, 2)
    forgetting_lines(pd.DataFrame(rows), axes)
    assert [ax.get_title() for ax in axes.flat] == ["SST-2", "RTE", "", ""]
    assert [ax.get_ylabel() for ax in axes[:, 0]] == ["shared: score (%)", "PALs: score (%)"]
    for place, ax in [*enumerate(axes[0]), *enumerate(axes[1])]:
        np.testing.assert_allclose(ax.lines[0].get_xydata(), [[0, 65], [1, 85]])
        assert list(ax.lines[-1].get_xdata()) == [place, place]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["plain"]
