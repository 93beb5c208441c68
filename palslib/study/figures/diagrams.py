"""Where in BERT a method adds something, as block diagrams (the counterpart of figure 1 of Stickland & Murray 2019).

There is one picture of a layer, and in it the places at which something can be added. A method says which boxes stand
at which place (`Method.parts`, at `PLACES`) and how many of each there are (`captions`). Grey is BERT, shared by all
tasks. Light orange is a part that each task has for itself; dark orange one that each task has once for several layers;
blue one that all tasks share beside BERT. Data flow from bottom to top. Texts are set for panels of about 2.3 inches,
three on a page; a panel is 10.6 units wide at any size.
"""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Patch, Rectangle
from matplotlib.path import Path
from matplotlib.textpath import TextPath

from palslib.methods.backbone import Backbone
from palslib.methods.counting import count_parameters
from palslib.methods.method import Box, Method, Part
from palslib.methods.table import get_method
from palslib.study.figures.style import PAGE_WIDTH, method_name

# Fill and edge of a box by its owner; they differ in lightness too, so that the picture survives a grey print.
OWNERS = {"bert": ("#e9edf1", "#5b6875"), "layer": ("#fde2c4", "#c75000"), "task": ("#f6ab5b", "#c75000")}
OWNERS |= {"tasks": ("#bfe0f2", "#0173b2")}
GREY, ORANGE, INK, FONT = OWNERS["bert"][1], OWNERS["layer"][1], "#2b3138", 7.0

WIDE, NARROW, GAP = 4.7, 3.9, 0.7  # width of a box in BERT's column, and beside it; the usual distance between two
ALONE, LEFT, BESIDE = 5.1, 3.2, 8.05  # x of BERT's column: alone, and with a second beside it; x of the second
BETWEEN = 5.83  # x of a line between the columns
X_LIMITS = (-0.2, 10.4)
PLUS, STEP = 0.3, 0.45  # radius of the sign of a sum; least distance between boxes in the second column
FRAME = WIDE / 2 + 0.95  # half the width of a frame around BERT's column


def height(*boxes: Box, between: float = 0.0) -> float:
    """The height of boxes with one line of text, or two, and of a distance after each."""
    return sum((1.5 if "\n" in box.text else 0.95) + between for box in boxes)


def width(text: str) -> float:
    """The width of the longest line, if a panel takes a third of a page: a unit then has 14 points or more."""
    return max(TextPath((0, 0), line, size=FONT).get_extents().width for line in text.split("\n")) / 14


class _Picture:
    """BERT's column, x, and beside it a second one, with the parts that a method adds."""

    def __init__(self, ax: Axes, method: Method, backbone: Backbone):
        self.ax, self.backbone, self.parts = ax, backbone, tuple(method.parts(backbone))
        self.top_parts = self.at("over all layers", "on top")
        beside = self.at("beside", "beside feed-forward")
        if len(beside) > 1:
            raise ValueError(f"{method.name!r} has {len(beside)} parts beside BERT: a diagram has room for one")
        self.x = LEFT if beside else ALONE
        self.owner = "layer" if self.at("copy") else "bert"

    def at(self, *places: str) -> list[Part]:
        return [part for part in self.parts if part.place in places]

    def boxes(self, *places: str) -> list[Box]:
        return [box for part in self.at(*places) for box in part.boxes]

    def text(self, x, y, text, most=10.0, **options):
        """Centred at (x, y) unless the options say otherwise; smaller where it would be wider than `most`."""
        options = {"ha": "center", "va": "center", "fontsize": FONT, "color": INK} | options
        options["fontsize"] = min(options["fontsize"], FONT * most / width(text))
        self.ax.text(x, y, text, **options)

    def box(self, x, y, box, wide=WIDE, most=0.0, room=0.0) -> float:
        """A box from y upwards, as wide as its text needs, between `wide` and `most`, with `room` below the text;
        returns its top."""
        top, wide, (fill, edge) = y + height(box) + room, max(wide, min(most, width(box.text) + 0.5)), OWNERS[box.owner]
        style = {"fc": fill, "ec": edge, "lw": 0.8 if box.owner == "bert" else 1.2, "zorder": 2}
        self.ax.add_patch(FancyBboxPatch((x - wide / 2, y), wide, top - y, "round,pad=0,rounding_size=0.18", **style))
        self.text(x, top - height(box) / 2, box.text, wide - 0.3, linespacing=1.15, zorder=3)
        return top

    def wire(self, *points, colour=INK, head="-|>,head_length=0.35,head_width=0.18"):
        """Straight lines through the points, with a head at the last."""
        style = {"color": colour, "fill": head != "-", "lw": 0.9, "mutation_scale": 8, "snap": False, "zorder": 1}
        self.ax.add_patch(FancyArrowPatch(path=Path(points), arrowstyle=head, **style))

    def plus(self, x, y, colour=GREY):
        """The sign of a sum."""
        self.ax.add_patch(Circle((x, y), PLUS, fc="white", ec=colour, lw=0.9, zorder=4))
        self.ax.plot(x, y, "+", color=colour, markersize=5, markeredgewidth=0.9, zorder=5)

    def frame(self, bottom, top, times, colour=ORANGE, wide=False):
        """A dashed frame around what is there several times, and above its corner, how often."""
        x, half = (ALONE, 5.2) if wide else (self.x, FRAME)
        style = {"fill": False, "ec": colour, "lw": 0.8, "ls": (0, (3, 2)), "zorder": 1}
        self.ax.add_patch(Rectangle((x - half, bottom), 2 * half, top - bottom, **style))
        self.text(x + half, top + 0.3, f"× {times}", ha="right", color=colour, weight="bold")

    def up(self, y, box, gap=GAP, **options) -> float:
        """An arrow up from y to a box of BERT's column; returns the box's top."""
        self.wire((self.x, y), (self.x, y + gap))
        return self.box(self.x, y + gap, box, **options)

    def sum(self, y, start, lane, colour=INK, rise=0.75, sign=GREY) -> float:
        """Adds to the column, `rise` above y, what leaves it at `start` and bypasses it at x = `lane`; returns the top
        of the sum."""
        x, middle = self.x, y + rise
        self.wire((x, y), (x, middle - PLUS))
        side = x + PLUS if lane > x else x - PLUS
        self.wire((x, start), (lane, start), (lane, middle), (side, middle), colour=colour)
        self.plus(x, middle, sign)
        return middle + PLUS

    def layer(self, y: float) -> float:
        """One layer from its input at y; returns its top."""
        b, d, h = self.backbone, self.backbone.hidden_size, y + 0.4
        block = Box(f"attention\n{b.num_heads} heads of {d // b.num_heads}", self.owner)
        y = self.block(y, block, "attention", "after attention")
        block = Box(f"feed-forward\n{d}→{b.intermediate_size}→{d}", self.owner)
        y = self.block(y, block, "inner", "after feed-forward", h if self.boxes("beside") else y + 0.4)
        for box in self.boxes("scale"):
            y = self.up(y, box)
        for box in self.boxes("serial"):
            start, y = y + 0.3, self.up(y, box)
            y = self.sum(y, start, self.x + WIDE / 2 + 0.65, ORANGE, sign=ORANGE)
        return y

    def block(self, y: float, block: Box, inside: str, after: str, read: float | None = None) -> float:
        """Attention or feed-forward with what is inside it, what is in series after it, the sum with what is beside it
        and reads BERT's column at y = `read`, and the norm; returns the norm's top."""
        x, start, room, series = self.x, y + 0.4, height(*self.boxes(inside), between=0.25), self.boxes(after)
        end = y + 0.85 + room + height(block) + height(*series, between=GAP) + 0.75
        beside = [] if read is None else self.boxes("beside", "beside feed-forward")
        tall = height(*beside, between=STEP) + STEP
        spare = max(0.0, read + tall - end) / 2 if beside else 0.0  # more room below and above the block
        y = made = self.up(y, block, 0.85 + spare, room=room)
        self.nested(inside, y - height(block) - room)
        for box in series:
            y = self.up(y, box)
        if series:  # around them once more: x + V^D g(V^E x)
            self.sum(y, made + 0.3, x + WIDE / 2 + 0.65 if x == ALONE else BETWEEN, ORANGE, spare + 0.75)
        if beside:
            self.beside(beside, read, y + spare + 0.75)
        y = self.sum(y, start, x - WIDE / 2 - 0.55, rise=spare + 0.75)
        for box in self.boxes("norms") or [Box("layer norm", self.owner)]:
            y = self.up(y, box, gap=0.4)
        return y

    def nested(self, place: str, y: float) -> None:
        """What changes a block from within, from the block's bottom y upwards; a plus where it is added."""
        for part in self.at(place):
            for box in part.boxes:
                y = self.box(self.x, y + 0.25, box, NARROW)
            if part.residual:
                self.plus(self.x - NARROW / 2, y - height(box) / 2, ORANGE)

    def beside(self, boxes: list[Box], start: float, end: float) -> None:
        """A task function in the second column: it reads BERT's column at `start`, and is added to it at `end`."""
        step = (end - start - height(*boxes)) / (len(boxes) + 1)
        top, turns = start, [(self.x, start), (BESIDE, start)]
        for box in boxes:
            self.wire(*turns, (BESIDE, top + step), colour=ORANGE)
            top = self.box(BESIDE, top + step, box, NARROW)
            turns = [(BESIDE, top)]
        self.wire((BESIDE, top), (BESIDE, end), (self.x + PLUS, end), colour=ORANGE)

    def model(self) -> float:
        """All of BERT, its layers in full or as a box, and what is on top of them; returns the top."""
        x, y = self.x, self.box(self.x, 0, Box("embeddings", "bert"))
        bottom, reads, lane = y + 0.5, [y + 0.25], x - WIDE / 2 - 0.75
        if len(self.top_parts) < len(self.parts) or not self.top_parts:
            self.wire((x, y), (x, y + 0.65), head="-")
            y = self.layer(y + 0.65)
        else:
            y = self.up(y, Box("BERT layer", "bert"), gap=0.95)
        self.frame(bottom, y + 0.4, self.backbone.num_layers, GREY, wide=x == LEFT)
        reads.append(y + 0.2)
        for number, part in enumerate(self.top_parts):
            start, gap = y, 0.85 if number and not part.times else 1.1  # a frame is below, or begins
            if part.place == "over all layers":
                for read in reads:
                    self.wire((x, read), (lane, read), (lane, y + gap), colour=ORANGE)
            for box in part.boxes:
                y = self.up(y, box, gap, most=6.4 if part.times else 2 * x)
                if part.residual and box is part.boxes[0]:
                    y = self.sum(y, start + 0.7, lane, sign=ORANGE)
                gap = 0.4 if part.times else GAP
            if part.times:
                self.frame(start + 0.35, y + 0.3, part.times)
        return y


def _captions(m: Method, b: Backbone) -> list[tuple[str, str]]:
    """(owner, words) of each part: how many of it there are, and for whom."""
    lines = list(m.captions(b))
    if m.copies_backbone:
        return lines
    if m.pooler == "per-task":
        lines.append(("layer", "pooler: one per task"))
    frozen = {"nothing": "", "backbone": ", frozen", "backbone but norms": ", frozen but its norms"}[m.freeze]
    return [*lines, ("bert", f"BERT: shared by all tasks{frozen}")]


def draw_layer(method: str | Method, ax: Axes | None = None, backbone="bert-base-uncased") -> Axes:
    """One layer of BERT, bottom to top, with what a method adds in colour at its place and a caption of who owns it.

    What goes on top of BERT is drawn on top of its layers. Without `ax` a new figure is made. Raises ValueError for an
    unknown method or backbone.
    """
    m, b = get_method(method), Backbone.of(backbone)
    if ax is None:
        return draw_methods([m], b).axes[0]
    picture = _Picture(ax, m, b)
    x = picture.x
    if picture.top_parts:
        top, goes, size = picture.model(), "to the pooler and the task's head", FONT
    else:
        top, goes, size = picture.layer(0.4), "$y$", FONT + 1.5
        picture.text(x, 0, "$h$", fontsize=size)
    picture.wire((x, top), (x, top + GAP))
    picture.text(x, top + 1.1, goes, fontsize=size)
    for i, (owner, words) in enumerate(_captions(m, b)):
        y, (fill, edge) = -1.1 - 0.75 * i, OWNERS[owner]
        ax.add_patch(Rectangle((-0.1, y - 0.22), 0.44, 0.44, fc=fill, ec=edge, lw=0.8))
        picture.text(0.6, y, words, 9.7, ha="left", fontsize=FONT - 0.7)
    ax.set_title(method_name(m), loc="center", fontsize=FONT + 1.5)
    ax.set(xlim=X_LIMITS, ylim=(y - 0.5, top + 1.5), aspect="equal", anchor="S")
    ax.axis("off")
    return ax


def draw_methods(methods, backbone="bert-base-uncased") -> Figure:
    """Up to three methods side by side, at the same scale; each takes a third of a page.

    Args:
        backbone: one for all methods, or a list with one for each, which is then named in the title.
    """
    each = backbone if isinstance(backbone, list) else [backbone] * len(methods)
    figure = plt.figure(figsize=(PAGE_WIDTH / 3 * len(methods), 4), layout="constrained")
    axes = figure.subplots(1, len(methods), squeeze=False)[0]
    limits = [draw_layer(m, ax, b).get_ylim() for m, ax, b in zip(methods, axes, each, strict=True)]
    if each is backbone:
        for ax, b in zip(axes, each, strict=True):
            ax.set_title(f"{ax.get_title()}\non {Backbone.of(b).name}", loc="center", fontsize=FONT + 1.5)
    low, high = min(low for low, _ in limits), max(high for _, high in limits)
    plt.setp(axes, ylim=(low, high))
    figure.set_figheight(PAGE_WIDTH / 3 * (high - low) / 10.6 + 0.3)
    return figure


def draw_figure_1() -> Figure:
    """The counterpart of the paper's figure 1: a BERT layer, a PAL beside it, and layers on top of BERT."""
    b = Backbone.of("bert-base-uncased")
    figure = plt.figure(figsize=(PAGE_WIDTH, 3.85), layout="constrained")
    titles = {
        "shared": "a   A BERT layer",
        "pals-204": "b   A PAL beside each layer",
        "attention-on-top-204": "c   Layers on top of BERT",
    }
    for ax, (method, title) in zip(figure.subplots(1, 3), titles.items(), strict=True):
        picture, count = _Picture(ax, get_method(method), b), count_parameters(method, b)
        picture.wire((picture.x, picture.model()), (picture.x, 12.5))
        picture.text(picture.x, 12.9, "to the pooler and the task's head")
        words = f"{b.parameters / 1e6:.1f} million parameters,\nthe same for every task"
        if count.per_task:
            words = f"+{count.per_task / 1e6:.2f} million for each task:\n{count.ratio:.2f} times BERT for eight tasks"
        picture.text(5.1, -0.8, words, fontsize=FONT + 0.5, linespacing=1.3, va="top")
        ax.set_title(title, loc="center", fontsize=FONT + 2.5, weight="bold", color=INK)
        ax.set(xlim=X_LIMITS, ylim=(-2.3, 13.3), aspect="equal", anchor="S")
        ax.axis("off")
    labels = {
        "bert": "shared by all tasks",
        "layer": "each task's own",
        "task": "each task's own, the same in all layers",
    }
    handles = [Patch(fc=OWNERS[o][0], ec=OWNERS[o][1], label=label) for o, label in labels.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=FONT + 0.5, handlelength=1.2)
    return figure
