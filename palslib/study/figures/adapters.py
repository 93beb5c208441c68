"""A figure of adapters: what the adapters of each span of layers are worth."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from palslib.study.figures.style import readable_numbers


def ablation_heatmap(frame: pd.DataFrame, ax: Axes, most: float | None = None) -> None:
    """The change of a task's score without the adapters of layers first to last: the upper triangle, numbers in cells.

    On the diagonal one layer's adapters are removed, in the upper right corner all.

    Args:
        frame: columns `first`, `last` and `change` (relative, in percent of the whole), as
            `adapter_removal.ablation_frame` gives it for one task.
        most: the change of the strongest colours, by default the frame's largest. Give compared maps the same one.
    """
    table = frame.pivot(index="first", columns="last", values="change").astype(float)
    most = most or np.nanmax(np.abs(table.to_numpy()), initial=0) or 1.0  # if all are 0, any scale
    numbers = {"annot": True, "fmt": ".1f", "annot_kws": {"size": float(np.clip(60 / len(table), 6, 9))}}
    sns.heatmap(table, cmap="vlag_r", vmin=-most, vmax=most, square=True, cbar=False, ax=ax, **numbers)
    readable_numbers(ax)
    ax.grid(visible=False)
    ax.tick_params(rotation=0, length=0)
    ax.set(xlabel="last layer without adapters", ylabel="first layer without adapters")
