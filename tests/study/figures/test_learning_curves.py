"""Learning curves: a line for every task, also for one that the paper does not know."""

import pandas as pd
from matplotlib.figure import Figure

from palslib.study.figures.learning_curves import learning_curves
from palslib.study.figures.style import TASK_COLOURS


def test_every_task_has_a_line():
    """The paper's in their colours, one's own and the average after them."""
    tasks = ("rte", "mood", "average", "sst5")
    frame = pd.DataFrame(
        [(step, task, 50.0 + step) for step in (1, 2) for task in tasks], columns=["step", "task", "score"]
    )
    ax = Figure().add_subplot()
    learning_curves(frame, ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["RTE", "mood", "sst5", "average"]
    assert ax.lines[0].get_color() == TASK_COLOURS["rte"]
