"""Figures of the minBERT report's table and of our runs (notebook 12)."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from palslib.study.figures.style import PAGE_WIDTH

_SCHEDULES = ("annealed", "round-robin", "proportional")
_COLOURS = dict(zip(_SCHEDULES, sns.color_palette("colorblind"), strict=False)) | {"single-task": "black"}


def results_dots(frame: pd.DataFrame, places: pd.DataFrame, titles: Mapping[str, str]) -> Figure:
    """Scores, a panel for each task and the mean, and places by mean: filled dots are ours, hollow ones the report's.

    Bars are standard errors over seeds.

    Args:
        frame: columns `model`, `task`, `report`, `ours`, `standard_error`, as `results.minbert.results_frame` gives it.
        places: columns `model`, `report`, `ours`, as `results.minbert.rank_frame` gives it.
        titles: task -> the title of its panel.
    """
    models, blue = list(frame["model"].unique())[::-1], sns.color_palette("colorblind")[0]
    y = np.arange(len(models))
    figure, axes = plt.subplots(1, len(titles) + 1, figsize=(PAGE_WIDTH * 1.15, 3.1), sharey=True)
    panels = {title: frame[frame["task"] == task] for task, title in titles.items()}
    panels["place by mean"] = places.assign(standard_error=np.nan)
    for ax, (title, part) in zip(axes, panels.items(), strict=True):
        part = part.set_index("model").reindex(models)
        ax.hlines(y, part["report"], part["ours"], color="0.8", zorder=1)
        ax.scatter(part["report"], y, marker="D", s=22, facecolor="white", edgecolor="black", label="report", zorder=2)
        error = part["standard_error"].fillna(0)
        ax.errorbar(part["ours"], y, xerr=error, fmt="o", markersize=5, color=blue, label="ours", zorder=3)
        ax.set(title=title, xlabel="percent", yticks=y, yticklabels=models)
        ax.margins(x=0.1)  # no dot on the edge
    ranks = range(1, max(4, len(places)) + 1)
    axes[-1].set(xlabel="1 is best", xticks=ranks, xlim=(0.5, len(ranks) + 0.5))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def seed_dots(frame: pd.DataFrame, titles: Mapping[str, str]) -> Figure:
    """A dot for each run: the steps and the score of a task, a panel with its own axes for each task, a colour for each
    schedule.

    Args:
        frame: columns `task`, `schedule`, `steps`, `score`.
        titles: task -> the title of its panel.
    """
    figure, axes = plt.subplots(1, len(titles), figsize=(PAGE_WIDTH, 2.6))
    for ax, (task, title) in zip(axes, titles.items(), strict=True):
        for schedule, part in frame[frame["task"] == task].groupby("schedule"):
            ax.scatter(part["steps"], part["score"], s=26, color=_COLOURS.get(schedule, "0.5"), label=schedule)
        ax.set(title=title, xlabel="steps of this task", ylabel="score (%)" if ax is axes[0] else "")
    if len(frame):
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def training_curves(frame: pd.DataFrame, titles: Mapping[str, str]) -> Figure:
    """Dev scores over steps, means over seeds with standard errors: a row of panels for each kind of model, a column
    for each task, a colour for each schedule; in one more column the training loss of the last task.

    Args:
        frame: columns `kind`, `schedule`, `task`, `step`, `score`, `loss`, as `results.minbert.curves_frame` gives it.
        titles: task -> the title of its column.
    """
    kinds = list(frame["kind"].unique())
    look = {"hue": "schedule", "palette": _COLOURS, "marker": "o", "markersize": 4, "errorbar": "se"}
    size = (PAGE_WIDTH, 1.4 * len(kinds) + 0.6)
    shared = {"sharex": True, "sharey": "col", "squeeze": False}
    figure, axes = plt.subplots(len(kinds), len(titles) + 1, figsize=size, **shared)
    columns = [(task, "score", title) for task, title in titles.items()]
    columns.append((task := list(titles)[-1], "loss", f"{titles[task]}, training loss"))
    shown = {}
    for row, kind in zip(axes, kinds, strict=True):
        for ax, (task, value, title) in zip(row, columns, strict=True):
            part = frame[(frame["task"] == task) & (frame["kind"] == kind)]
            sns.lineplot(part, x="step", y=value, ax=ax, **look)
            shown |= dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
            ax.legend([], frameon=False)
            ax.set(xlabel="step", ylabel=f"{kind}\ndev score (%)" if ax is row[0] else "", title=title)
    for ax in axes[1:].flat:
        ax.set_title("")
    names = ["three BERTs" if schedule == "single-task" else schedule for schedule in shown]
    figure.legend(shown.values(), names, loc="outside lower center", ncols=4)
    return figure


def similarity_range(low: float, high: float, ax: Axes) -> None:
    """The curve 5·σ(cos) over all cosines, its ends `low` and `high`, and in grey the scores that it never gives."""
    cosines, blue = np.linspace(-1, 1, 201), sns.color_palette("colorblind")[0]
    for below, above in ((0, low), (high, 5)):
        ax.axhspan(below, above, color="0.9", zorder=0)
    ax.plot(cosines, 5 / (1 + np.exp(-cosines)), color=blue)
    for cosine, score, sign in ((-1, low, -1), (1, high, 1)):
        ax.plot(cosine, score, "o", color=blue)
        ax.annotate(
            f"{score:.2f}", (cosine, score), (0, 12 * sign), textcoords="offset points", ha="center", va="center"
        )
    ax.set(xlabel="cos(h₁, h₂)", ylabel="score 5·σ(cos)", xlim=(-1.15, 1.15), ylim=(0, 5))
