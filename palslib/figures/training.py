"""What a run looks like: scores and losses over its steps."""

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from palslib.data.tasks import TASK_LABELS
from palslib.figures.style import task_colours


def learning_curves(frame: pd.DataFrame, ax: Axes | None = None, hue: str = "task") -> Axes:
    """Scores over steps, a line for each value of `hue`.

    Args:
        frame: columns `step`, `score` (percent) and `hue`; as `records.history_frame` gives it, one metric a task.
    """
    ax = ax or plt.gca()
    colours, order = None, None
    if hue == "task":
        colours = task_colours(task for task in frame[hue] if task != "average")
        colours |= {"average": "black"} if "average" in set(frame[hue]) else {}
        order = list(colours)
    sns.lineplot(
        frame, x="step", y="score", hue=hue, hue_order=order, palette=colours, marker="o", errorbar="se", ax=ax
    )
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles, [TASK_LABELS.get(label, label) for label in labels], loc="center left", bbox_to_anchor=(1, 0.5))
    ax.set(xlabel="training step", ylabel="dev score (%)")
    return ax


def step_losses(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """The loss of every step, a line for each task through its own steps; `frame` has `step`, `task` and `loss`."""
    ax = ax or plt.gca()
    colours = task_colours(frame["task"])
    for task in colours:
        mine = frame[frame["task"] == task]
        label = TASK_LABELS.get(task, task)
        ax.plot(mine["step"], mine["loss"], ".-", color=colours[task], label=label, linewidth=1)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    ax.set(xlabel="training step", ylabel="training loss")
    return ax
