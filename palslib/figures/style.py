"""Figures: a tidy frame in, Axes out. One style, and every task always in the same order and colour."""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from palslib.common import runs_folder
from palslib.data.tasks import TASKS
from palslib.methods.method import Method
from palslib.methods.table import LABELS, get_method

TASK_LABELS = dict(zip(TASKS, ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE"), strict=True))
"""Task -> its name as printed in the papers."""
TASK_COLOURS = dict(zip(TASKS, sns.color_palette("colorblind", len(TASKS)), strict=True))
"""Task -> colour, safe for colour-blind readers."""
PAGE_WIDTH = 7.0  # inches


def method_name(method: str | Method) -> str:
    """A method as a figure names it: `PALs, s = 120`; one that is not in the table by its own label.

    >>> method_name("pals-no-sharing-84"), method_name("houlsby-64"), method_name("lhuc")
    ('PALs, no sharing, s = 84', 'Houlsby, m = 64', 'LHUC')
    """
    method = get_method(method)
    if method.name not in LABELS:
        return method.label
    letter = "m" if method.name.startswith("houlsby") else "s"
    size = f", {letter} = {method.size}" if method.has_size else ""
    return LABELS[method.name] + size


def task_order(tasks) -> list[str]:
    """Tasks, each once: the paper's in its order, then one's own as they come."""
    named = list(dict.fromkeys(tasks))
    return [task for task in TASKS if task in named] + [task for task in named if task not in TASKS]


def task_colours(tasks) -> dict[str, tuple]:
    """The colour of each task, in `task_order`: the paper's tasks have theirs everywhere, one's own get others."""
    order = task_order(tasks)
    own = sorted(task for task in order if task not in TASK_COLOURS)
    mine = dict(zip(own, sns.color_palette("husl", len(own)), strict=True))
    return {task: (TASK_COLOURS | mine)[task] for task in order}


def symbols(words: str) -> str:
    """V^E and V^D set as formulas, for matplotlib."""
    return words.replace("V^E", "$V^E$").replace("V^D", "$V^D$")


def use_style() -> None:
    """The package's look, readable at the width of a page, and figures that are the same bytes every time."""
    sns.set_theme(context="paper", style="whitegrid", palette="colorblind", font_scale=1.05)
    plt.rcParams |= {
        "figure.figsize": (PAGE_WIDTH, 3.2),
        "figure.constrained_layout.use": True,
        "figure.dpi": 100,
        "savefig.dpi": 150,
        "axes.titlelocation": "left",
        "axes.titlesize": "medium",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "svg.hashsalt": "palslib",
        "svg.fonttype": "none",
    }


def save_figure(figure: Figure, name: str) -> list[Path]:
    """Writes `name.svg` and `name.png` into `$PALSLIB_FIGURES`, or `runs/figures/`."""
    folder = Path(os.environ.get("PALSLIB_FIGURES") or runs_folder() / "figures")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{ending}" for ending in ("svg", "png")]
    for path in paths:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


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
    names = TASK_LABELS | {"average": "average"}
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles, [names.get(label, label) for label in labels], loc="center left", bbox_to_anchor=(1, 0.5))
    ax.set(xlabel="training step", ylabel="dev score (%)")
    return ax


def task_bars(frame: pd.DataFrame, y: str, hue: str, ax: Axes | None = None) -> Axes:
    """A group of bars for each task, in the package's order of tasks; `frame` has `task`, `y` and `hue`."""
    ax = ax or plt.gca()
    order = task_order(frame["task"])
    sns.barplot(frame, x="task", y=y, hue=hue, order=order, errorbar=None, ax=ax)
    ax.set_xticks(range(len(order)), [TASK_LABELS.get(task, task) for task in order])
    ax.set(xlabel="", ylabel=y)
    ax.legend(title="")
    return ax


def parameter_bars(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Where a task's parameters go: one bar a method, stacked by part, its total (in millions) at the end.

    Args:
        frame: columns `method`, `part`, `parameters`, in the order in which they are drawn.
    """
    ax = ax or plt.gca()
    methods, parts = list(frame["method"].unique()), list(frame["part"].unique())
    table = frame.pivot_table("parameters", "method", "part", "sum", 0).loc[methods, parts] / 1e6
    left = np.zeros(len(methods))
    for part in parts:
        ax.barh(list(map(method_name, methods)), table[part], left=left, label=symbols(part), height=0.7)
        left += table[part].to_numpy()
    for row, total in enumerate(left):
        ax.text(total, row, f" {total:.3f}", va="center", fontsize="small")
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="parameters a task (millions)", xlim=(0, left.max() * 1.12))
    ax.figure.legend(loc="outside upper center", ncols=3)
    return ax


def cost_lines(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Parameters over one backbone as tasks are added, both axes logarithmic, each line named at its end.

    Args:
        frame: columns `method`, `tasks` and `ratio`; `fine-tuned`, the line to beat, is dashed black.
    """
    ax = ax or plt.gca()
    colours = sns.color_palette("colorblind")
    for number, (method, line) in enumerate(frame.groupby("method", sort=False)):
        style = {"color": "black", "linestyle": "--"} if method == "fine-tuned" else {"color": colours[number]}
        ax.plot(line["tasks"], line["ratio"], **style)
        ax.text(
            line["tasks"].max() * 1.06, line["ratio"].iloc[-1], method_name(method), va="center", color=style["color"]
        )
    ax.set(xscale="log", yscale="log", xlabel="number of tasks", ylabel="parameters / one BERT")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(10, (1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    return ax


def probability_areas(frame: pd.DataFrame, axes) -> list[Axes]:
    """The chance of each task over the epochs, stacked to 1: one panel for each schedule, the legend beside the last.

    Args:
        frame: columns `schedule`, `epoch`, `task` and `probability`.
        axes: as many Axes as there are schedules, in one row.
    """
    tasks = task_order(frame["task"])
    for ax, (schedule, part) in zip(axes, frame.groupby("schedule", sort=False), strict=True):
        table = part.pivot(index="epoch", columns="task", values="probability")[tasks]
        ax.stackplot(
            table.index,
            table.to_numpy().T,
            colors=list(task_colours(tasks).values()),
            labels=[TASK_LABELS.get(task, task) for task in tasks],
        )
        ax.set(title=schedule, xlabel="epoch", xlim=(table.index.min(), table.index.max()), ylim=(0, 1))
    axes[0].set(ylabel="probability")
    handles, labels = axes[-1].get_legend_handles_labels()
    axes[-1].legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1, 0.5))
    return list(axes)


def draw_strips(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """The task of every step as a coloured cell, one row for each schedule; `frame` has `row`, `step` and `task`."""
    ax = ax or plt.gca()
    rows, colours = list(frame["row"].unique()), task_colours(frame["task"])
    for task in colours:
        mine = frame[frame["task"] == task]
        y = [rows.index(row) for row in mine["row"]]
        label = TASK_LABELS.get(task, task)
        ax.barh(y, 1, left=mine["step"], height=0.7, color=colours[task], label=label, linewidth=0)
    ax.set_yticks(range(len(rows)), rows)
    ax.invert_yaxis()
    ax.grid(visible=False)
    ax.set(xlabel="training step", xlim=(frame["step"].min(), frame["step"].max() + 1))
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def budget_bar(frame: pd.DataFrame, budget: int, ax: Axes | None = None) -> Axes:
    """What a method adds for all tasks, stacked by part in one bar, and the budget as a line (both in millions).

    Args:
        frame: columns `part` and `parameters`, as `explore.parts_frame` gives it; no rows draw no bar.
        budget: in parameters.
    """
    ax = ax or plt.gca()
    colours, left = sns.color_palette("colorblind"), 0.0
    for number, (part, value) in enumerate(zip(frame["part"], frame["parameters"] / 1e6, strict=True)):
        ax.barh([0], [value], left=left, height=0.6, color=colours[number], label=symbols(part))
        left += value
    ax.axvline(budget / 1e6, color="black", linestyle="--", linewidth=1.2, label="the paper's budget")
    ax.set(
        xlabel="parameters added for all tasks (millions)", xlim=(0, 1.08 * max(left, budget / 1e6)), ylim=(-0.5, 0.5)
    )
    ax.set_yticks([])
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return ax


def plan_panels(frame: pd.DataFrame, axes) -> list[Axes]:
    """The chance of each task at one step, and how often training goes through each task's examples.

    Args:
        frame: columns `task`, `probability` and `passes`, as `explore.plan_frame` gives it.
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
    axes[1].set(
        yscale="log", ylabel="passes over the data", ylim=(min(0.1, passes.min() / 2), max(100, 2 * passes.max()))
    )
    axes[1].yaxis.set_minor_locator(NullLocator())
    for ax in axes:
        names = [TASK_LABELS.get(task, task if len(task) < 9 else f"{task[:6]}…") for task in tasks]
        ax.set_xticks(places, names, rotation=45, ha="right", rotation_mode="anchor")
        ax.grid(axis="x", visible=False)
    return list(axes)


def step_losses(frame: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """The loss of every step, a line for each task through its own steps; `frame` has `step`, `task` and `loss`."""
    ax = ax or plt.gca()
    colours = task_colours(frame["task"])
    for task in colours:
        mine = frame[frame["task"] == task]
        label = TASK_LABELS.get(task, task)
        ax.plot(mine["step"], mine["loss"], ".-", color=colours[task], label=label, linewidth=1)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="training step", ylabel="training loss")
    return ax
