"""Figures of attention heads: maps with tokens on both axes, all heads of a layer, statistics over layer and head."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator

from palslib.study.figures.style import PAGE_WIDTH, task_name, task_order

COLOURS = "mako_r"  # light to dark in lightness too


def printable(token: str) -> str:
    """A token as the figure's font can write it: characters that the font lacks by their number, long tokens cut.

    >>> printable("attention"), printable("\u4e2d")
    ('attention', '\\\\u4e2d')
    """
    glyphs = get_font(findfont(FontProperties())).get_charmap()
    known = (c if ord(c) in glyphs and c.isprintable() else c.encode("unicode_escape").decode() for c in token)
    text = "".join(known) or "''"
    text = text if len(text) <= 14 else text[:13] + "…"
    return text.replace("$", r"\$")  # else a pair of them would be taken for a formula


def attention_map(
    weights: np.ndarray, tokens: Sequence[str], ax: Axes, vmax: float | None = None, bar: bool = True
) -> None:
    """One head: row i says where token i looks.

    Args:
        weights: (S, S), rows sum to 1.
        tokens: the S tokens of both axes.
        vmax: attention of the darkest colour; by default the map's own largest. Give compared maps the same one.
        bar: whether to draw the colour scale.
    """
    size, tokens = len(tokens), [printable(token) for token in tokens]
    image = ax.imshow(weights, cmap=COLOURS, vmin=0, vmax=vmax)
    font = float(np.clip(160 / size, 3, 8))  # points: legible up to some 40 tokens on half a page
    ax.set_xticks(range(size), tokens, rotation=90, fontsize=font)
    ax.set_yticks(range(size), tokens, fontsize=font, va="center")  # else a "." stands on the label below
    ax.grid(visible=False)
    ax.set(xlabel="is looked at (key)", ylabel="looks (query)")
    if bar:
        _colour_bar(image, ax, shrink=0.7, pad=0.02)


def _colour_bar(image: AxesImage, axes: Axes | list[Axes], **options) -> Colorbar:
    """The colour scale of an image, beside the axes."""
    bar = image.figure.colorbar(image, ax=axes, **options)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)
    return bar


def darkest(*maps: np.ndarray) -> float:
    """The attention drawn darkest on a shared scale of maps (..., S, S): the largest value, at least 2/S (else a
    uniform head would be black)."""
    return max(2 / maps[0].shape[-1], *(one.max() for one in maps))


def head_grid(maps: np.ndarray, title: str, figure: Figure) -> None:
    """All heads of a layer as small multiples, six in a row, on one colour scale (`darkest`).

    Args:
        maps: (heads, S, S).
    """
    axes, most = figure.subplots(-(-len(maps) // 6), 6, squeeze=False).ravel(), darkest(maps)
    for ax in axes[len(maps) :]:
        ax.set_visible(False)
    for head, (ax, weights) in enumerate(zip(axes, maps, strict=False)):
        image = ax.imshow(weights, cmap=COLOURS, vmin=0, vmax=most)
        ax.set(xticks=[], yticks=[])
        ax.set_title(f"head {head}", fontsize=7, pad=2)
    figure.suptitle(title, x=0.01, ha="left", fontsize=9)
    _colour_bar(image, axes.tolist(), shrink=0.8, pad=0.02)


def head_panels(frame: pd.DataFrame, values: dict[str, str]) -> Figure:
    """Statistics over task, layer and head: a row of panels for each statistic, with a panel for each task.

    Args:
        frame: one row a head, with `task`, `layer`, `head` and the columns that `values` names.
        values: column -> its name beside the colour scale, which a row's panels share. A column with values below 0,
            or named `change`, is red below 0, white at 0 and blue above.
    """
    tasks = task_order(frame["task"])
    size = (PAGE_WIDTH, 1.35 * len(values) + 0.4)
    figure, axes = plt.subplots(len(values), len(tasks), figsize=size, sharex=True, sharey=True, squeeze=False)
    for row, (value, label) in zip(axes, values.items(), strict=True):
        numbers = frame[value].to_numpy(float)
        most = np.abs(numbers[np.isfinite(numbers)]).max(initial=0) or 1.0  # if all are 0, any scale
        signed = value == "change" or (numbers < 0).any()
        scale = {"cmap": "vlag_r", "vmin": -most} if signed else {"cmap": COLOURS, "vmin": 0}
        for ax, task in zip(row, tasks, strict=True):
            table = frame[frame["task"] == task].pivot(index="layer", columns="head", values=value)
            corners = (-0.5, table.shape[1] - 0.5, table.index[0] - 0.5, table.index[-1] + 0.5)
            image = ax.imshow(table.to_numpy(float), origin="lower", aspect="auto", extent=corners, vmax=most, **scale)
            ax.grid(visible=False)
            ax.tick_params(labelsize=7)
            ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        _colour_bar(image, row.tolist(), pad=0.01, aspect=10).set_label(label, fontsize=8)
        row[0].set_ylabel("layer", fontsize=8)
    for top, bottom, task in zip(axes[0], axes[-1], tasks, strict=True):
        top.set_title(task_name(task))
        bottom.set_xlabel("head", fontsize=8)
    return figure


KIND_LABELS = {"bert": "BERT's heads", "pal": "the PALs' heads"}
KIND_COLOURS = dict(zip(KIND_LABELS, sns.color_palette("colorblind"), strict=False))


def entropy_by_layer(frame: pd.DataFrame, ax: Axes) -> None:
    """How spread out heads are, layer by layer: the mean over heads and tasks, and, dashed, the sharpest head of all.

    Args:
        frame: columns `task`, `kind`, `layer`, `mean` and `min` of entropy / log S, as records of heads hold them.
    """
    for kind, label in KIND_LABELS.items():
        layers = frame[frame["kind"] == kind].groupby("layer")
        style = {"color": KIND_COLOURS[kind], "marker": "o", "markersize": 4}
        ax.plot(layers["mean"].mean(), label=label, **style)
        ax.plot(layers["min"].min(), linestyle="--", label=f"{label}, the sharpest", **style)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="layer", ylabel="entropy / log S", ylim=(0, 1.05))


def removal_dots(frame: pd.DataFrame, row: float, ax: Axes) -> None:
    """What a score loses or gains without one head: a dot for each head, a line for each task and kind of head.

    Args:
        frame: columns `task`, `kind`, `head` and `change`, in points.
        row: what one example of the dev set is worth, in points, shown as a grey band.
    """
    tasks = task_order(frame["task"])
    for y, task in enumerate(tasks):
        for side, kind in zip((-0.19, 0.19), KIND_LABELS, strict=True):
            some = frame[(frame["task"] == task) & (frame["kind"] == kind)]
            spread = 0.26 * (some["head"] / max(1, some["head"].max()) - 0.5)
            label = KIND_LABELS[kind] if not y else None
            ax.plot(some["change"], y + side + spread, "o", markersize=3, color=KIND_COLOURS[kind], label=label)
    ax.axvspan(-row, row, color="0.9", zorder=0, label="one example")
    ax.set_yticks(range(len(tasks)), list(map(task_name, tasks)))
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="change without one head (points)", ylim=(len(tasks) - 0.5, -0.5))
