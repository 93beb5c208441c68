"""Where parameters go: by part, by number of tasks, beside the budget."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from palslib.study.figures.style import different_colours, method_name, symbols


def parameter_bars(frame: pd.DataFrame, ax: Axes) -> None:
    """Where a task's parameters go: one bar for each method, stacked by part, with its total (in millions) at the end.

    Args:
        frame: columns `method`, `part`, `parameters`, in the order in which they are drawn.
    """
    methods, parts = list(frame["method"].unique()), list(frame["part"].unique())
    table = frame.pivot_table("parameters", "method", "part", "sum", 0).loc[methods, parts] / 1e6
    table.rename(index=method_name, columns=symbols).plot.barh(stacked=True, width=0.7, legend=False, ax=ax)
    totals, clear = table.sum(axis=1), {"facecolor": "white", "edgecolor": "none", "pad": 1.5}  # hides the grid's lines
    ax.bar_label(ax.containers[-1], [f"{total:.3f}" for total in totals], padding=4, size=8, bbox=clear)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="parameters added for one task (millions)", ylabel="", xlim=(0, totals.max() * 1.12))
    ax.figure.legend(loc="outside upper center", ncols=3)


def cost_lines(frame: pd.DataFrame, ax: Axes) -> None:
    """Parameters, divided by one backbone's, as tasks are added; both axes are logarithmic, each line named at its end.

    Args:
        frame: columns `method`, `tasks` and `ratio`; `fine-tuned`, the line to beat, is dashed black.
    """
    colours = different_colours(frame["method"].nunique())
    for number, (method, line) in enumerate(frame.groupby("method", sort=False)):
        style = {"color": "black", "linestyle": "--"} if method == "fine-tuned" else {"color": colours[number]}
        ax.plot(line["tasks"], line["ratio"], **style)
        end = (line["tasks"].max() * 1.06, line["ratio"].iloc[-1])
        name = "a BERT for each task" if method == "fine-tuned" else method_name(method)  # of any number of tasks
        ax.text(*end, name, va="center", color=style["color"])
    ax.set(xscale="log", yscale="log", xlabel="number of tasks", ylabel="parameters / one BERT")
    ax.set_xlim(right=frame["tasks"].max())  # the names stand beside the grid, not on it
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(10, (1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())


def budget_bar(frame: pd.DataFrame, budget: int, ax: Axes) -> None:
    """What a method adds for all tasks, stacked by part in one bar, and the budget as a line (both in millions).

    Args:
        frame: columns `part` and `parameters`, as `explore.methods.parts_frame` gives it; without rows there is no bar.
        budget: in parameters.
    """
    colours, left = different_colours(len(frame)), 0.0
    for number, (part, value) in enumerate(zip(frame["part"], frame["parameters"] / 1e6, strict=True)):
        ax.barh([0], [value], left=left, height=0.6, color=colours[number], label=symbols(part))
        left += value
    ax.axvline(budget / 1e6, color="black", linestyle="--", linewidth=1.2, label="the paper's budget")
    ax.set(xlabel="parameters added for all tasks (millions)", ylim=(-0.5, 0.5), yticks=[])
    ax.set_xlim(0, 1.08 * max(left, budget / 1e6))
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
