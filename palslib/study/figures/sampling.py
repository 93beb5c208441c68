"""Schedules: the chance of every task, the order in which tasks come, and how often their data are gone through."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from palslib.data.tasks import TASK_LABELS
from palslib.study.figures.style import task_colours, task_name, task_order


def probability_areas(frame: pd.DataFrame, axes) -> None:
    """The chance of each task over the epochs, stacked to 1: one panel for each schedule, the legend beside the last.

    Args:
        frame: columns `schedule`, `epoch`, `task` and `probability`.
        axes: as many Axes as there are schedules, in one row.
    """
    tasks = task_order(frame["task"])
    for ax, (schedule, part) in zip(axes, frame.groupby("schedule", sort=False), strict=True):
        table = part.pivot(index="epoch", columns="task", values="probability")[tasks]
        colours = list(task_colours(tasks).values())
        ax.stackplot(table.index, table.to_numpy().T, colors=colours, labels=list(map(task_name, tasks)))
        ax.set(title=schedule, xlabel="epoch", xlim=(table.index.min(), table.index.max()), ylim=(0, 1))
    axes[0].set(ylabel="probability")
    handles, labels = axes[-1].get_legend_handles_labels()
    axes[-1].legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1, 0.5))


def draw_strips(frame: pd.DataFrame, ax: Axes) -> None:
    """The task of every step as a coloured cell, one row for each schedule; `frame` has `row`, `step` and `task`."""
    rows, colours = list(frame["row"].unique()), task_colours(frame["task"])
    for task in colours:
        mine = frame[frame["task"] == task]
        y = [rows.index(row) for row in mine["row"]]
        ax.barh(y, 1, left=mine["step"], height=0.7, color=colours[task], label=task_name(task), linewidth=0)
    ax.set_yticks(range(len(rows)), rows)
    ax.invert_yaxis()
    ax.grid(visible=False)
    ax.set(xlabel="training step", xlim=(frame["step"].min(), frame["step"].max() + 1))
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def plan_panels(frame: pd.DataFrame, axes) -> None:
    """The chance of each task at one step, and how often training goes through each task's examples.

    Args:
        frame: columns `task`, `probability` and `passes`, as `explore.methods.plan_frame` gives it.
        axes: two Axes, side by side.
    """
    tasks = task_order(frame["task"])
    table, places = frame.set_index("task").loc[tasks], np.arange(len(tasks))
    colours = list(task_colours(tasks).values())
    axes[0].bar(places, table["probability"], color=colours)
    axes[0].set(ylabel="probability", ylim=(0, 1.05 * table["probability"].max()))
    # Passes run from less than one to hundreds, and a bar from 0 has no place on a logarithmic axis.
    passes = table["passes"].clip(lower=1e-3)
    axes[1].scatter(places, passes, color=colours, zorder=3)
    axes[1].axhline(1, color="black", linestyle="--", linewidth=1)
    ends = (min(0.1, passes.min() / 2), max(100, 2 * passes.max()))
    axes[1].set(yscale="log", ylabel="passes over the data", ylim=ends)
    axes[1].yaxis.set_minor_locator(NullLocator())
    for ax in axes:
        names = [TASK_LABELS.get(task, task if len(task) < 9 else f"{task[:6]}…") for task in tasks]
        ax.set_xticks(places, names, rotation=45, ha="right", rotation_mode="anchor")
        ax.grid(axis="x", visible=False)


def task_points(frame: pd.DataFrame, y: str, hue: str, ax: Axes) -> None:
    """A group of points for each task, in the package's order of tasks; `frame` has `task`, `y` and `hue`."""
    order = task_order(frame["task"])
    look = {"palette": "viridis", "markers": ["o", "s", "D", "^"], "linestyle": "none", "dodge": 0.4, "errorbar": None}
    sns.pointplot(frame, x="task", y=y, hue=hue, order=order, ax=ax, **look)
    ax.set_xticks(range(len(order)), list(map(task_name, order)))
    ax.set(xlabel="", ylabel=y)
    ax.legend(title="")
