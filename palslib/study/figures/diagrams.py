"""Where in BERT a method adds something, as block diagrams (the counterpart of figure 1 of Stickland & Murray 2019).

A method says which parts go where (`Method.parts`, at `PLACES`) and how many of each there are (`captions`); all else
is layout, done here. Grey is BERT, shared by all tasks. Light orange is a part that each task has for itself; dark
orange one that each task has once for several layers; blue one that all tasks share beside BERT. Data flows from
bottom to top. Texts are set for panels of about 2.3 inches, three on a page; a panel is 10.6 units wide at any size.
"""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from palslib.methods.backbone import Backbone
from palslib.methods.counting import count_parameters
from palslib.methods.method import Box, Method, Part
from palslib.methods.table import get_method
from palslib.study.figures.blocks import ACCENT, BERT, FONT, GAP, INK, OWNERS, PLUS, TASK, WIDE, Pen, height
from palslib.study.figures.style import PAGE_WIDTH, method_name

ALONE, LEFT, BESIDE = 5.1, 3.2, 8.05  # x of BERT's column: alone, and with a second beside it; x of the second
NARROW = 3.9  # width of a box in the second column
BETWEEN, EDGE = 5.83, 10.2  # x of lines between the columns, and to the right of both
STEP = 0.45  # least distance between boxes in the second column
X_LIMITS = (-0.2, 10.4)
FRAME = WIDE / 2 + 1.2  # half the width of a frame around one column
_SECOND = ("attention", "inner", "beside", "beside feed-forward")
_ON_TOP = ("on top", "over all layers")


def _stacked(boxes, step: float = STEP) -> float:
    """The height of boxes above each other, `step` apart."""
    return sum(height(box.text) + step for box in boxes) - step


class _Diagram:
    """What a method adds to a backbone; the second column is filled from below."""

    def __init__(self, ax: Axes, method: Method, backbone: Backbone):
        self.pen, self.backbone, self.parts = Pen(ax), backbone, tuple(method.parts(backbone))
        self.on_top = any(part.place in _ON_TOP for part in self.parts)
        self.within = any(part.place not in _ON_TOP for part in self.parts)
        self.x = LEFT if any(part.place in _SECOND for part in self.parts) else ALONE
        self.bert = TASK if self.at("copy") else BERT
        self.low = 0.0  # the top of what is in the second column

    def at(self, place: str) -> list[Part]:
        return [part for part in self.parts if part.place == place]

    def boxes(self, place: str) -> list[Box]:
        return [box for part in self.at(place) for box in part.boxes]

    def next(self, y: float, box: Box, wide: float = WIDE, most: float = WIDE, **options) -> float:
        """A box on top of BERT's column; returns its top."""
        return self.pen.next(self.x, y, box.text, OWNERS[box.owner], wide, most=most, **options)

    def layer(self, y: float) -> float:
        """One layer from its input at y; returns its top."""
        b, d, start = self.backbone, self.backbone.hidden_size, y + 0.4
        words = f"attention\n{b.num_heads} heads of {d // b.num_heads}"
        y = self.half(y, words, self.at("attention"), self.boxes("after attention"), [])
        beside = [(start, part.boxes) for part in self.at("beside")]
        beside += [(y + 0.4, part.boxes) for part in self.at("beside feed-forward")]
        words = f"feed-forward\n{d}→{b.intermediate_size}→{d}"
        y = self.half(y, words, self.at("inner"), self.boxes("after feed-forward"), beside)
        for box in self.boxes("scale"):
            y = self.next(y, box)
        for box in self.boxes("serial"):
            start, y = y, self.next(y, box)
            y = self.pen.sum(self.x, y, start + 0.3, self.x + WIDE / 2 + 0.65, TASK, ACCENT)
        return y

    def half(self, y: float, words: str, inside: list[Part], after: list[Box], beside: list[tuple]) -> float:
        """Attention or feed-forward, what is in series after it, the sum with what is beside it, the norm."""
        pen, x, foot, start = self.pen, self.x, y + 0.85, y + 0.4
        high = max(height(words), sum(_stacked(part.boxes) + STEP for part in inside) - STEP)
        if inside:
            foot = max(foot, self.low + STEP)
        end = foot + high + sum(GAP + height(box.text) for box in after) + 0.75  # the middle of the sum
        if beside:
            low = foot + high if inside else max(self.low, beside[0][0])
            more = max(0.0, low + STEP + sum(_stacked(boxes) + STEP for _, boxes in beside) - end)
            foot, end = foot + (0 if inside else more / 2), end + more
        pen.arrow((x, y), (x, foot))
        top = made = pen.box(x, foot, words, self.bert, high=high)
        for part in inside:
            self.low = self.inside(part, start, foot if part is inside[0] else self.low + STEP)
        for box in after:
            top = self.next(top, box)
        pen.line((x, top), (x, end - 0.75))
        if after:  # around them once more: x + V^D g(V^E x)
            pen.sum(x, end - 0.75, made + 0.3, x + WIDE / 2 + 0.65 if x == ALONE else BETWEEN, colour=ACCENT)
        for number, (reads, boxes) in enumerate(beside, start=1):
            self.beside(boxes, reads, end, number == len(beside))
        top = pen.sum(x, end - 0.75, start, x - WIDE / 2 - 0.55)
        norm = next(iter(self.boxes("norms")), None)
        return self.next(top, norm, gap=0.4) if norm else pen.next(x, top, "layer norm", self.bert, gap=0.4)

    def second(self, boxes, y: float, step: float) -> float:
        """Boxes in the second column, the first at y; returns the top of the last."""
        for number, box in enumerate(boxes):
            if number:
                self.pen.arrow((BESIDE, y), (BESIDE, y + step), colour=ACCENT)
                y += step
            y = self.pen.box(BESIDE, y, box.text, OWNERS[box.owner], NARROW)
        return y

    def read(self, start: float, y: float) -> None:
        """An arrow from BERT's column at `start` to a box of the second column at y, around what is already there."""
        turns = [(EDGE, start), (EDGE, y - 0.25), (BESIDE, y - 0.25)] if self.low > start else [(BESIDE, start)]
        self.pen.arrow((self.x, start), *turns, (BESIDE, y), colour=ACCENT)

    def inside(self, part: Part, start: float, y: float) -> float:
        """A part beside the block that it changes: reads the block's input or output, and gives its result back."""
        top, left, right = self.second(part.boxes, y, STEP), self.x + WIDE / 2, BESIDE - NARROW / 2
        back = top - 0.3 * height(part.boxes[-1].text)
        if part.residual:
            self.read(start, y)
        else:
            out = y + 0.3 * height(part.boxes[0].text)
            self.pen.arrow((left, out), (right, out), colour=ACCENT)
        self.pen.arrow((right, back), (left, back), colour=ACCENT)
        return top

    def beside(self, boxes, start: float, end: float, last: bool) -> None:
        """A task function: reads BERT's column at `start`, is added to it at `end`."""
        low = max(self.low, start)
        step = (end - low - _stacked(boxes, 0)) / (len(boxes) + 1) if last else STEP
        self.read(start, low + step)
        self.low = y = self.second(boxes, low + step, step)
        leaves = [(BESIDE, y), (BESIDE, end)]
        if not last:
            leaves = [(BESIDE - NARROW / 2, y - 0.45), (BETWEEN, y - 0.45), (BETWEEN, end)]
        self.pen.arrow(*leaves, (self.x + PLUS, end), colour=ACCENT)

    def model(self) -> float:
        """All of BERT, its layers in full or as a box, and what is on top of them; returns the top."""
        pen, x, L, over = self.pen, self.x, self.backbone.num_layers, self.at("over all layers")
        y = pen.box(x, 0, "embeddings")
        if self.within or not self.on_top:
            pen.line((x, y), (x, y + 0.65))
            top = self.layer(y + 0.65)
            pen.frame(ALONE, y + 0.5, top + 0.35, FRAME if x == ALONE else 5.2, L, BERT[1])
            y = top
            if self.on_top:
                pen.line((x, top), (x, y := top + 0.6), (ALONE, y))
                self.x = ALONE
        elif over:
            bus, above = x + WIDE / 2 + 0.5, [y, pen.next(x, y, "layer 0")]
            pen.line((x, above[1]), (x, above[1] + 0.4))
            pen.text(x, above[1] + 0.8, "⋮", fontsize=FONT + 2)
            y = pen.next(x, above[1] + 1.15, f"layer {L - 1}", gap=0.45)
            for top in above:
                pen.line((x, top + 0.25), (bus, top + 0.25), colour=ACCENT)
            pen.arrow((bus, above[0] + 0.25), (bus, y + GAP), colour=ACCENT)
        else:
            y = pen.next(x, y, "BERT layer", gap=0.95)
            pen.frame(x, y - 1.4, y + 0.35, FRAME, L, BERT[1])
        for box in self.boxes("over all layers"):
            y = self.next(y, box, 6.4, 9)
        for part in self.at("on top"):
            y = self.stack(part, y)
        return y

    def stack(self, part: Part, y: float) -> float:
        """Boxes on top of BERT, and between the first and the others a layer in a frame."""
        pen, gap = self.pen, GAP
        for box in part.boxes[:1]:
            y = self.next(y, box, most=9, gap=1.1)
        if part.repeated:
            start, gap = y, 0.85
            for number, box in enumerate(part.repeated):
                y = self.next(y, box, most=6.4, gap=0.4 if number else 1.1)
                if part.residual and not number:
                    y = pen.sum(self.x, y, start + 0.7, self.x - WIDE / 2 - 0.8, TASK)
            pen.frame(self.x, start + 0.35, y + 0.3, FRAME, part.times)
        for box in part.boxes[1:]:
            y, gap = self.next(y, box, most=9, gap=gap), GAP
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
    diagram = _Diagram(ax, m, b)
    pen = diagram.pen
    if diagram.on_top:
        top, goes = diagram.model(), "to the pooler and the task's head"
    else:
        top, goes = diagram.layer(0.4), "$y$"
        pen.text(diagram.x, 0, "$h$", fontsize=FONT + 1.5)
    pen.arrow((diagram.x, top), (diagram.x, top + GAP))
    pen.text(diagram.x, top + 1.1, goes, fontsize=FONT + 1.5 * (goes == "$y$"))
    for i, (owner, words) in enumerate(_captions(m, b)):
        y = -1.1 - 0.75 * i
        ax.add_patch(Rectangle((-0.1, y - 0.22), 0.44, 0.44, fc=OWNERS[owner][0], ec=OWNERS[owner][1], lw=0.8))
        pen.text(0.6, y, words, 9.7, ha="left", fontsize=FONT - 0.7)
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
        diagram, count = _Diagram(ax, get_method(method), b), count_parameters(method, b)
        top, pen, x = diagram.model(), diagram.pen, diagram.x
        pen.arrow((x, top), (x, 12.5))
        pen.text(x, 12.9, "to the pooler and the task's head")
        words = f"{b.parameters / 1e6:.1f} million parameters,\nthe same for every task"
        if count.per_task:
            words = f"+{count.per_task / 1e6:.2f} million for each task:\n{count.ratio:.2f} times BERT for eight tasks"
        pen.text(5.1, -0.8, words, fontsize=FONT + 0.5, linespacing=1.3, va="top")
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
