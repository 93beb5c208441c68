"""Figures of what the runs say: our results beside the paper's, with intervals, on one axis."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from palslib.study.figures.style import TASK_COLOURS, different_colours, task_name

_OURS, _PAPER = sns.color_palette("colorblind")[0], "0.55"


def forest(
    frame: pd.DataFrame, labels: Mapping[str, str], base: str, ax: Axes, ours: str = "here", least: int = 0
) -> None:
    """Every method minus the method `base`, paper and ours on one axis, with 95 % intervals; 0 is `base`.

    Args:
        frame: columns `method`, `difference`, `low`, `high`, `seeds`, `paper` and `paper half`, as
            `results.tables.against` gives it.
        labels: method -> its name.
        ours: what the legend calls our runs.
        least: the number of seeds that decides; with fewer nothing is drawn.
    """
    places = np.arange(len(frame))[::-1]
    printed, run = frame["paper"].notna(), frame["seeds"] >= max(least, 1)
    style = {"fmt": "o", "markersize": 5, "capsize": 2, "linewidth": 1.3}
    ax.axvline(0, color="black", linewidth=1)
    if printed.any():
        label = "paper (BERT-base),\neach interval by itself"
        ax.errorbar(frame["paper"], places + 0.14, xerr=frame["paper half"], color=_PAPER, label=label, **style)
    if run.any():
        means, label = frame["difference"].where(run), f"{ours},\nintervals for all together"
        ends = [means - frame["low"], frame["high"] - means]
        ax.errorbar(means, places - 0.14, xerr=ends, color=_OURS, label=label, **style)
    names = [labels.get(method, method) for method in frame["method"]]
    seeds = [f"{n} seeds" if n > 1 else "not run" if n == 0 else "1 seed" for n in frame["seeds"]]
    ax.set_yticks(places, [f"{name}  ({n})" for name, n in zip(names, seeds, strict=True)])
    for tick, known in zip(ax.get_yticklabels(), run, strict=True):
        tick.set_color("black" if known else "0.55")
    ax.set(xlabel=f"dev average minus that of “{labels.get(base, base)}” (points)", ylim=(-0.6, len(frame) - 0.4))
    ax.grid(axis="y", visible=False)
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), title="mean and 95 % interval")


def schedule_lines(frame: pd.DataFrame, labels: Mapping[str, str], methods, axes) -> None:
    """Dev averages by schedule, a colour for each method, the paper's on the left and ours on the right; both y axes
    span the same number of points, from different starts.

    Args:
        frame: columns `method`, `schedule`, `mean`, `error`, `seeds`, `paper` and `paper error`, as
            `results.tables.table_3` gives it.
        axes: two, side by side.
    """
    order = list(frame["schedule"].unique())
    colours = different_colours(len(methods))
    columns = (("paper", "paper", "paper error"), ("here", "mean", "error"))
    for ax, (title, value, error) in zip(axes, columns, strict=True):
        for number, method in enumerate(methods):
            part = frame[(frame["method"] == method) & frame[value].notna()]
            if title == "here":
                part = part[part["seeds"] > 1]
            x = [order.index(schedule) + 0.1 * (number - (len(methods) - 1) / 2) for schedule in part["schedule"]]
            style = {"fmt": "o", "capsize": 2, "color": colours[number], "label": labels[method]}
            ax.errorbar(x, part[value], part[error].fillna(0), **style)
        if not any(len(line.get_xdata()) for line in ax.lines):
            note = "no method has two seeds" if title == "here" else "no such runs"
            ax.text(0.5, 0.5, note, transform=ax.transAxes, ha="center", color="0.55")
            ax.set_yticks([])
        ax.set_xticks(range(len(order)), order, rotation=20, ha="right")
        ax.set(title=title, ylabel="dev average (%)", xlim=(-0.4, len(order) - 0.6))
    widest = max(np.ptp(ax.get_ylim()) for ax in axes)
    for ax in axes:
        ax.set_ylim(np.mean(ax.get_ylim()) + widest * np.array([-0.5, 0.5]))
    axes[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5), title="mean ± standard error")


def difference_rows(frame: pd.DataFrame, names: Iterable[str], ax: Axes, what: str, colours: Sequence = ()) -> None:
    """Differences with their intervals, one in each row.

    Args:
        frame: columns `difference`, `low`, `high`.
        names: what the rows are called.
        what: the label of the x axis.
        colours: of the rows; by default all have the same.
    """
    places = np.arange(len(frame))[::-1]
    ax.axvline(0, color="black", linewidth=1)
    for y, row, colour in zip(places, frame.itertuples(), colours or [_OURS] * len(frame), strict=True):
        ends = [[row.difference - row.low], [row.high - row.difference]]
        ax.errorbar([row.difference], [y], xerr=ends, fmt="o", color=colour, capsize=2)
    ax.set_yticks(places, list(names))
    ax.grid(axis="y", visible=False)
    ax.set(xlabel=what, ylim=(-0.6, max(len(frame), 1) - 0.4))


def answer_rows(frame: pd.DataFrame, ax: Axes) -> None:
    """The answers of `results.answer.answered` as intervals, one in each row; a hollow diamond is the difference
    without RTE, the smallest of the dev sets."""
    names = frame["compared"] + "\n(" + frame["study"] + (100 * frame["level"]).map(", {:g} %)".format)
    difference_rows(frame, names, ax, "points of the mean of eight tasks")
    places = np.arange(len(frame))[::-1] + 0.18
    style = {"marker": "D", "s": 22, "facecolor": "white", "edgecolor": _OURS, "zorder": 3}
    ax.scatter(frame["without RTE"], places, label="without RTE", **style)
    ax.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False)


def task_forest(frame: pd.DataFrame, ax: Axes, what: str = "difference") -> None:
    """One method minus another, task by task, with simultaneous 95 % intervals.

    Args:
        frame: columns `task`, `difference`, `low`, `high`, `seeds`, as `results.tables.task_differences` gives it.
        what: the difference in words, such as "PALs − shared".
    """
    frame = frame[frame["seeds"] > 1]
    colours = [TASK_COLOURS.get(task, "black") for task in frame["task"]]
    words = f"{what} (points; simultaneous 95 % intervals)"
    difference_rows(frame, map(task_name, frame["task"]), ax, words, colours)


def acting_panels(sizes: pd.DataFrame, off: pd.DataFrame, axes) -> None:
    """‖TS(h)‖ / ‖h‖ by layer, and what switching the adaptations off costs, a colour for each setting; lines and points
    are means over seeds, with standard errors; a point of one seed is hollow.

    Args:
        sizes: columns `setting`, `layer`, `size`, `seed`. off: columns `setting`, `difference`, `seed`.
        axes: two, side by side.
    """
    settings = list(dict.fromkeys([*sizes["setting"], *off["setting"]]))
    palette = dict(zip(settings, sns.color_palette("viridis", len(settings)), strict=True))
    style = {"y": "size", "hue": "setting", "hue_order": settings, "palette": palette, "errorbar": "se", "marker": "o"}
    if len(sizes):
        sns.lineplot(sizes, x="layer", ax=axes[0], legend=False, **style)
    ends = sizes[sizes["layer"] == sizes["layer"].max()].groupby("setting")["size"].mean()
    for setting, end in ends.items():
        beside = (sizes["layer"].max() + 0.2, end)
        axes[0].text(*beside, setting.removesuffix(" BERT's rate"), color=palette[setting], va="center", fontsize=9)
    words = "size of TS(h),\n‖TS(h)‖ / ‖h‖"
    axes[0].set(xlabel="layer", ylabel=words, yscale="log", title="after the last step")
    axes[0].set_xticks(sorted(sizes["layer"].unique()))
    for y, setting in enumerate(settings[::-1]):
        values = off.loc[off["setting"] == setting, "difference"]
        hollow = {"markerfacecolor": "white"} if len(values) == 1 else {}
        style = {"fmt": "o", "capsize": 2, "color": palette[setting]} | hollow
        axes[1].errorbar([values.mean()], [y], xerr=[values.sem() if len(values) > 1 else 0], **style)
    axes[1].axvline(0, color="black", linewidth=1)
    words = "change of the dev average\n(points; mean ± s.e.)"
    axes[1].set(xlabel=words, title="TS switched off")
    axes[1].yaxis.tick_right()
    axes[1].tick_params(axis="y", length=0)  # a tick before the text would look like a minus sign
    axes[1].set_yticks(range(len(settings)), settings[::-1])
