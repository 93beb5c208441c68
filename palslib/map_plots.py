"""Attention maps as figures: one head with its tokens on both axes, all heads of a layer as small multiples."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from palslib.attention import AttentionMaps
from palslib.plotting import PAGE_WIDTH, TASK_LABELS

MOST_TOKENS = 32  # that can be read along an axis


def printable(token: str, most: int = 14) -> str:
    """A token as the figure's font can write it: other characters by their number (`\\u4e2d`), long tokens cut.

    >>> printable("attention")
    'attention'
    """
    font = font_manager.get_font(font_manager.findfont(font_manager.FontProperties()))
    glyphs = font.get_charmap()
    known = (c if ord(c) in glyphs and c.isprintable() else c.encode("unicode_escape").decode() for c in token)
    text = "".join(known) or "''"
    return text if len(text) <= most else text[: most - 1] + "…"


def map_frame(maps: AttentionMaps, kind: str, layer: int, head: int | None = None, most: int = MOST_TOKENS):
    """One layer's maps as a tidy frame: task, kind, layer, head, query and key (places), their tokens, and weight.

    Args:
        head: one head alone, or None for all of the layer.
        most: only the first so many tokens; their rows then sum to less than 1.

    Raises ValueError for a layer or head that is not there. Padding is left out.
    """
    weights = maps.layer(kind, layer)[:, :most, :most]  # (heads, S, S)
    heads = range(len(weights)) if head is None else [head]
    if head is not None and not 0 <= head < len(weights):
        raise ValueError(f"no {kind} head {head}; a layer has {len(weights)}, counted from 0")
    tokens = np.array(maps.tokens, dtype=object)[maps.real][:most]
    place, query, key = (axis.ravel() for axis in np.indices((len(heads), len(tokens), len(tokens))))
    columns = {"head": np.array(heads)[place], "query": query, "key": key}
    columns |= {"query_token": tokens[query], "key_token": tokens[key], "weight": weights[list(heads)].ravel()}
    return pd.DataFrame({"task": maps.name, "kind": kind, "layer": layer} | columns)


def _square(frame: pd.DataFrame) -> np.ndarray:
    return frame.pivot(index="query", columns="key", values="weight").to_numpy()


def draw_map(frame: pd.DataFrame, ax: Axes | None = None, top: float | None = None) -> Axes:
    """One head: each row says where that token looks. `top` is the darkest weight, by default the largest.

    Args:
        frame: of one task and head, as `map_frame` gives it.
    """
    ax = ax or plt.gca()
    ax.imshow(_square(frame), cmap="Blues", vmin=0, vmax=top or frame["weight"].max())
    tokens = [printable(token) for token in frame.drop_duplicates("key").sort_values("key")["key_token"]]
    size = {"fontsize": 8 if len(tokens) <= 20 else 5.5, "parse_math": False}
    ax.set_xticks(range(len(tokens)), tokens, rotation=90, **size)
    ax.set_yticks(range(len(tokens)), tokens, **size)
    ax.set(xlabel="looks at", ylabel="token")
    ax.grid(visible=False)
    return ax


def draw_beside(frames: list[pd.DataFrame], figure: Figure | None = None) -> Figure:
    """Maps of one head under several tasks, side by side in one scale of colours."""
    figure = figure or plt.figure(figsize=(PAGE_WIDTH, 3.7))
    axes, top = figure.subplots(1, len(frames), squeeze=False)[0], max(frame["weight"].max() for frame in frames)
    for ax, frame in zip(axes, frames, strict=True):
        task, layer, head = frame[["task", "layer", "head"]].iloc[0]
        draw_map(frame, ax, top).set_title(f"{TASK_LABELS.get(task, task)}: layer {layer}, head {head}")
        if ax is not axes[0]:
            ax.set(ylabel="", yticks=[])
    figure.colorbar(axes[0].images[0], ax=list(axes), shrink=0.7, aspect=30, label="attention")
    return figure


def draw_heads(frame: pd.DataFrame, figure: Figure | None = None, columns: int = 6) -> Figure:
    """All heads of a layer, small, in one scale of colours; `frame` as `map_frame` gives it with `head=None`."""
    figure = figure or plt.figure(figsize=(PAGE_WIDTH, 2.5))
    groups, top = list(frame.groupby("head")), frame["weight"].max()
    axes = figure.subplots(-(-len(groups) // columns), min(columns, len(groups)), squeeze=False).ravel()
    for ax in axes:
        ax.axis("off")
    for ax, (head, one) in zip(axes, groups, strict=False):
        ax.imshow(_square(one), cmap="Blues", vmin=0, vmax=top)
        ax.set_title(f"head {head}", fontsize=8)
    figure.colorbar(axes[0].images[0], ax=list(axes), shrink=0.7, label="attention")
    return figure
