"""The verdicts of the ledger at a glance (notebook 06)."""

from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from palslib.study.figures.style import different_colours


def verdict_tiles(frame: pd.DataFrame, verdicts: Iterable[str], ax: Axes) -> None:
    """Draws every row of the ledger as a tile in its verdict's block, with the number of rows in each block.

    Args:
        frame: columns `id` and `verdict`.
        verdicts: their order from the top; others follow, in black.
    """
    columns = 14  # tiles per line
    verdicts = list(verdicts)
    coloured = [verdict for verdict in verdicts if verdict != "not run"]  # its tiles are empty
    colours = dict(zip(coloured, different_colours(len(coloured)), strict=True))
    others = [v for v in frame["verdict"].unique() if v not in verdicts]
    top = 0.0
    for name in (*verdicts, *others):
        ids = list(frame.loc[frame["verdict"] == name, "id"])
        colour = colours.get(name, (0, 0, 0))
        for number, row_id in enumerate(ids):
            x, y = number % columns, top + number // columns
            look = {"facecolor": (*colour, 0.35), "edgecolor": colour}
            if name == "not run":
                look = {"facecolor": "none", "edgecolor": "0.6", "linestyle": ":"}
            ax.add_patch(Rectangle((x + 0.04, y + 0.06), 0.92, 0.88, **look))
            ax.text(x + 0.5, y + 0.5, row_id, ha="center", va="center", fontsize=("small", "x-small")[len(row_id) > 3])
        ax.text(-0.3, top + 0.5, name, ha="right", va="center")
        ax.text(-5.8, top + 0.5, str(len(ids)), ha="right", va="center", fontweight="bold")
        top += max(1, -(-len(ids) // columns)) + 0.25
    ax.set(xlim=(-6.4, columns), ylim=(top, 0))
    ax.axis("off")
