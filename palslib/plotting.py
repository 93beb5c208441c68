"""Figures: a tidy frame in, Axes out. One style, and every task always in the same order and colour."""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from palslib.paths import runs_folder
from palslib.tasks import TASKS

TASK_LABELS = dict(zip(TASKS, ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE"), strict=True))
"""Task -> its name as printed in the papers."""
TASK_COLOURS = dict(zip(TASKS, sns.color_palette("colorblind", len(TASKS)), strict=True))
"""Task -> colour, safe for colour-blind readers."""
PAGE_WIDTH = 7.0  # inches


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
    colours = {**TASK_COLOURS, "average": "black"} if hue == "task" else None
    order = [k for k in (colours or {}) if k in set(frame[hue])] or None
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
    order = [task for task in TASKS if task in set(frame["task"])]
    sns.barplot(frame, x="task", y=y, hue=hue, order=order, errorbar=None, ax=ax)
    ax.set_xticks(range(len(order)), [TASK_LABELS[task] for task in order])
    ax.set(xlabel="", ylabel=y)
    ax.legend(title="")
    return ax
