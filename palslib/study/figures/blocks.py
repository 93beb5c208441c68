"""Boxes, arrows and sums of block diagrams, for `diagrams.py`: one look, whatever is drawn."""

from matplotlib.axes import Axes
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.textpath import TextPath

# Fill and edge of a box; they differ in lightness too, so that the picture survives a grey print.
BERT = ("#e9edf1", "#5b6875")
TASK = ("#fde2c4", "#c75000")
TASK_ALL_LAYERS = ("#f6ab5b", "#c75000")
ALL_TASKS = ("#bfe0f2", "#0173b2")
OWNERS = {"layer": TASK, "task": TASK_ALL_LAYERS, "tasks": ALL_TASKS, "bert": BERT}
INK, ACCENT, FONT = "#2b3138", TASK[1], 7.0

WIDE, GAP = 4.7, 0.7  # width of a box; the usual distance between two
PLUS = 0.3  # radius of the sign of a sum
POINTS = 14.0  # points in a unit, at least, if a panel takes a third of a page


def height(text: str) -> float:
    """The height of a box with one line of text, or two."""
    return 1.5 if "\n" in text else 0.95


def width(text: str) -> float:
    """The width of the longest line, in units of a panel that takes a third of a page."""
    return max(TextPath((0, 0), line, size=FONT).get_extents().width for line in text.split("\n")) / POINTS


class Pen:
    """Boxes, arrows and sums on one Axes."""

    def __init__(self, ax: Axes):
        self.ax = ax

    def text(self, x, y, text, most=None, **options):
        """Centred at (x, y) unless the options say otherwise; smaller where it would be wider than `most`."""
        options = {"ha": "center", "va": "center", "fontsize": FONT, "color": INK} | options
        if most:
            options["fontsize"] = min(options["fontsize"], FONT * most / width(text))
        self.ax.text(x, y, text, **options)

    def box(self, x, bottom, text, colour=BERT, wide=WIDE, most=0.0, high=0.0) -> float:
        """A box of one or two lines of text, centred at x, at least `wide` and `high`; returns its top.

        It is as wide as its text needs, up to `most`; for longer texts the font is smaller.
        """
        high, wide = max(high, height(text)), max(wide, min(most, width(text) + 0.5))
        shape, corner = "round,pad=0,rounding_size=0.18", (x - wide / 2, bottom)
        style = {"fc": colour[0], "ec": colour[1], "lw": 0.8 if colour is BERT else 1.2, "zorder": 2}
        self.ax.add_patch(FancyBboxPatch(corner, wide, high, shape, **style))
        self.text(x, bottom + high / 2, text, wide - 0.3, linespacing=1.15, zorder=3)
        return bottom + high

    def line(self, *points, colour=INK, zorder=1):
        """Straight lines through the points."""
        style = {"lw": 0.9, "solid_joinstyle": "miter", "snap": False}
        self.ax.plot(*zip(*points, strict=True), color=colour, zorder=zorder, **style)

    def arrow(self, *points, colour=INK):
        """Straight lines through the points, with a head at the last."""
        self.line(*points[:-1], colour=colour)
        style = {"arrowstyle": "-|>,head_length=0.35,head_width=0.18", "mutation_scale": 8, "shrinkA": 0, "shrinkB": 0}
        self.ax.add_patch(FancyArrowPatch(*points[-2:], color=colour, lw=0.9, snap=False, zorder=1, **style))

    def sum(self, x, y, start, at, sign=BERT, colour=INK) -> float:
        """Adds to the column at y what leaves it at `start` and bypasses it at x = `at`; returns the sum's top."""
        middle = y + 0.75
        self.arrow((x, y), (x, middle - PLUS))
        self.arrow((x, start), (at, start), (at, middle), (x + (PLUS if at > x else -PLUS), middle), colour=colour)
        self.ax.add_patch(Circle((x, middle), PLUS, fc="white", ec=sign[1], lw=0.9, zorder=2))
        for dx, dy in ((0.55 * PLUS, 0), (0, 0.55 * PLUS)):
            self.line((x - dx, middle - dy), (x + dx, middle + dy), colour=sign[1], zorder=3)
        return middle + PLUS

    def next(self, x, y, text, colour=BERT, wide=WIDE, gap=GAP, **options) -> float:
        """An arrow up from y to a box; returns the box's top."""
        self.arrow((x, y), (x, y + gap))
        return self.box(x, y + gap, text, colour, wide, **options)

    def frame(self, x, bottom, top, half, times, colour=ACCENT):
        """A dashed frame around parts that are repeated; above its corner, how often."""
        style = {"fill": False, "ec": colour, "lw": 0.8, "ls": (0, (3, 2)), "zorder": 1}
        self.ax.add_patch(Rectangle((x - half, bottom), 2 * half, top - bottom, **style))
        self.text(x + half, top + 0.3, f"× {times}", ha="right", color=colour, weight="bold")
