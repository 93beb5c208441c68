"""What a run looks like: scores and losses over its steps."""

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from palslib.study.figures.style import task_colours, task_name


def learning_curves(frame: pd.DataFrame, ax: Axes, hue: str = "task") -> None:
    """Scores over steps, a line for each value of `hue`.

    Args:
        frame: columns `step`, `score` (percent) and `hue`; as `explore.runs.main_curves` gives it.
    """
    look = {"marker": "o", "errorbar": "se"}
    if hue == "task":
        colours = task_colours(task for task in frame[hue] if task != "average")
        colours |= {"average": "black"} if "average" in set(frame[hue]) else {}
        look |= {"palette": colours, "hue_order": list(colours)}
    sns.lineplot(frame, x="step", y="score", hue=hue, ax=ax, **look)
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles, list(map(task_name, labels)), loc="center left", bbox_to_anchor=(1, 0.5))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    ax.set(xlabel="training step", ylabel="dev score (%)")


def step_losses(frame: pd.DataFrame, ax: Axes, colours: dict[str, tuple]) -> None:
    """The loss of every step, a line for each task through its own steps; `frame` has `step`, `task` and `loss`."""
    for task in colours:
        mine = frame[frame["task"] == task]
        ax.plot(mine["step"], mine["loss"], ".-", color=colours[task], label=task_name(task), linewidth=1)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    ax.set(xlabel="training step", ylabel="training loss")
