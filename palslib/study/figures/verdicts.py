"""The verdicts of the ledger at a glance (notebook 06)."""

from collections.abc import Iterable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

_COLOURS = {"holds": "C2", "derived": "C8", "does not follow": "C3", "within rounding": "C1", "reproduced": "C2"}
_COLOURS |= {"not reproduced": "C3", "too small to matter": "C9", "inconclusive": "C0", "switchable": "C5"}
_COLOURS |= {"not testable at this scale": "C4", "kept in both": "C7"}
"""Verdict -> colour of the style's palette: green where a source is right, red where it is not; `not run` is empty."""


def verdict_tiles(frame: pd.DataFrame, verdicts: Iterable[str], ax: Axes) -> None:
    """Draws every row of the ledger as a tile in its verdict's block, with the number of rows in each block.

    Args:
        frame: columns `id` and `verdict`.
        verdicts: their order from the top; others follow, in black.
    """
    columns = 14  # tiles per line
    top = 0.0
    for name in dict.fromkeys([*verdicts, *frame["verdict"]]):
        ids = list(frame.loc[frame["verdict"] == name, "id"])
        colour = to_rgb(_COLOURS.get(name, "black"))
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
