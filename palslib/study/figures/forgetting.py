"""Figures of tasks that come one after another: the matrix R, and the projection of a gradient in the plane."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from palslib.study.figures.style import readable_numbers, task_name


def accuracy_frame(R: pd.DataFrame) -> pd.DataFrame:
    """R (`analysis.forgetting.accuracy_matrix`) as a tidy frame: columns `after`, `task` and `score`."""
    return R.rename_axis(columns="task").stack().rename("score").reset_index()


def accuracy_heatmap(R: pd.DataFrame, ax: Axes) -> None:
    """R (`analysis.forgetting.accuracy_matrix`), in percent, as a heat map; cells above the stepped line were measured
    before their task was trained."""
    tasks = list(R)
    sns.heatmap(R, vmin=0, vmax=100, annot=True, fmt=".1f", cmap="crest", cbar=False, square=True, ax=ax)
    readable_numbers(ax)
    edge = np.arange(len(tasks) + 1)
    ax.step(np.append(edge[1:], edge[-1]), edge, where="pre", color="black", linewidth=1.5, clip_on=False)
    ax.set_xticklabels(map(task_name, tasks))
    ax.set_yticklabels(map(task_name, tasks), rotation=0)
    ax.set(xlabel="score on", ylabel="after training on")


def forgetting_lines(frame: pd.DataFrame, axes) -> None:
    """A row of panels for each method, a column for each task: its score after training on each task, means over
    seeds with standard errors.

    A dotted line marks the task's own training; a drop to its right is forgetting.

    Args:
        frame: columns `method`, `run` (a line each), `seed`, `after`, `task` and `score` in percent.
        axes: Axes, (methods, tasks).
    """
    tasks = list(frame["task"].unique())
    labels = list(map(task_name, tasks))
    runs = list(frame["run"].unique())
    look = {"errorbar": "se", "err_style": "bars", "err_kws": {"capsize": 3}, "hue_order": runs, "style_order": runs}
    for row, (method, lines) in zip(axes, frame.groupby("method", sort=False), strict=True):
        for ax, task in zip(row, tasks, strict=True):
            part = lines[lines["task"] == task].assign(place=lambda rows: rows["after"].map(tasks.index))
            sns.lineplot(part, x="place", y="score", hue="run", style="run", markers=True, dashes=False, ax=ax, **look)
            ax.axvline(tasks.index(task), color="black", linestyle=":", linewidth=1, zorder=0)
            ax.set(xlabel="after training on", ylabel=f"{method}: score (%)")
            ax.set_xticks(range(len(tasks)), labels)
            ax.margins(x=0.2)  # so that labels of neighbouring panels do not meet
            ax.grid(axis="x", visible=False)
            ax.legend().remove()
            ax.label_outer()
    for ax, label in zip(axes[0], labels, strict=True):
        ax.set_title(label)
    axes[0][0].figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2)


def projection_picture(g, G, projected, ax: Axes) -> None:
    """A gradient, memories' gradients, and the projection, all in the plane.

    The shaded area is what a memory forbids: the half plane in which the inner product with its gradient is negative.

    Args:
        g: (2,). G: (t, 2). projected: (2,), as `training.episodic_memory.project(g, G, margin)` gives it.
    """
    g, G, projected = (np.asarray(x, dtype=np.float64) for x in (g, G, projected))
    reach = 1.25 * np.abs(np.stack([g, *G, projected])).max()
    for m in G:
        unit = m / np.linalg.norm(m)
        along = 3 * reach * np.array([-unit[1], unit[0]])  # the border, at right angles to m
        corners = np.stack([along, -along, -along - 6 * reach * unit, along - 6 * reach * unit])
        ax.fill(*corners.T, color="0.5", alpha=0.18, linewidth=0)
        ax.plot(*np.stack([along, -along]).T, color="0.5", linewidth=0.8)
    vectors = [(m, "0.35", f"memory {j + 1}") for j, m in enumerate(G)]
    colours = sns.color_palette("colorblind")
    allowed = np.mean([m / np.linalg.norm(m) for m in G], axis=0)
    for vector, colour, name in [*vectors, (g, colours[3], "g"), (projected, colours[0], "g̃")]:
        ax.annotate("", vector, (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.8})
        beyond = vector / max(np.linalg.norm(vector), 1e-9) + 0.6 * allowed  # beside the borders, not on them
        tip = vector + 0.13 * reach * beyond / max(np.linalg.norm(beyond), 1e-9)
        ax.annotate(name, tip, color=colour, ha="center", va="center", fontsize="small")
    ax.plot(*np.stack([g, projected]).T, ":", color="0.3", linewidth=1.2)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
    ax.grid(visible=False)
