"""Scores of methods against the operations of eight tasks (notebook 10)."""

import pandas as pd
from matplotlib.axes import Axes

from palslib.methods.table import LABELS


def trade_off(frame: pd.DataFrame, ax: Axes) -> Axes:
    """A dot a method, with the bar of its error; its name beside it, moved up or down where names would meet.

    Args:
        frame: columns `method`, `operations`, `score` and `error`.
    """
    ax.errorbar(frame["operations"], frame["score"], frame["error"], fmt="o", markersize=4, elinewidth=0.8, capsize=2)
    low, high = ax.get_ylim()
    step = (high - low) / 24  # the height of a line
    for _, side in frame.groupby(frame["operations"] > 6):  # names to the right of the dots on the left, and so on
        free, right = low - step, side["operations"].iloc[0] > 6
        for row in side.sort_values("score").itertuples():
            free = max(free + step, row.score)
            words, at = LABELS[row.method], (row.operations + (-0.35 if right else 0.35), free)
            look = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 2}
            ax.annotate(
                words,
                (row.operations, row.score),
                at,
                ha="right" if right else "left",
                va="center",
                fontsize=7,
                arrowprops=look,
            )
    return ax
