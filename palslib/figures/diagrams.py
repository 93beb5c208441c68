"""Where in BERT each method adds something, as block diagrams (the counterpart of figure 1 of Stickland & Murray 2019).

Grey is BERT, shared by all tasks. Light orange is a part that each task has for itself; dark orange one that each task
has once for several layers; blue one that all tasks share beside BERT. Data flows from bottom to top. Texts
are set for panels of about 2.3 inches, three on a page; a panel is 10.6 units wide at any size.
"""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from palslib.figures.blocks import ACCENT, ALL_TASKS, BERT, FONT, GAP, INK, PLUS, TASK, TASK_ALL_LAYERS, WIDE, Pen
from palslib.figures.style import PAGE_WIDTH
from palslib.methods.counting import Backbone, count_parameters
from palslib.methods.table import Method, get_method

ALONE, LEFT, BESIDE = 5.1, 3.2, 8.05  # x of BERT's column alone, of BERT's beside a task function, of that function
X_LIMITS = (-0.2, 10.4)
_STACKED = ("bert-layer-on-top", "attention-on-top", "ffn-on-top", "feature-extraction")
_PAIRS = {  # by the option `sharing`: the colour of V^E and V^D, and how many there are
    "layers": (TASK_ALL_LAYERS, "one pair per task, for all its layers"),
    "none": (TASK, "a pair per task and layer"),
    "tasks": (ALL_TASKS, "a pair per layer, for all tasks"),
    "layers and tasks": (ALL_TASKS, "one pair for all tasks and layers"),
}


def _ends(m: Method) -> tuple:
    """The colour of V^E and V^D."""
    return TASK_ALL_LAYERS if m.span > 1 else _PAIRS[m.sharing][0] if m.kind in ("pal", "ffn") else TASK


def _between(m: Method) -> str:
    """What a method computes in the small space."""
    if m.kind in ("pal", "attention-on-top"):
        return f"attention\n{m.heads} heads of {m.size // m.heads}"
    return "feed-forward\n" + "→".join(map(str, (m.size, *m.inner, m.size)))


def _draw_beside(pen, m: Method, d: int, x: float, start: float, end: float) -> None:
    """A task function beside the layer: reads the column x at `start`, is added to it at `end`."""
    boxes = [(f"$V^E$  {d}→{m.size}", _ends(m)), (f"$V^D$  {m.size}→{d}", _ends(m))]
    if m.kind == "houlsby":
        boxes = [(f"adapter\n{d}→{m.size}→{d}", _ends(m))]
    elif m.kind != "low-rank":
        boxes.insert(1, (_between(m), TASK))
    pen.line((x, start), (BESIDE, start), colour=ACCENT)
    gap, y = (end - start - 0.95 * len(boxes) - 0.55 * sum("\n" in text for text, _ in boxes)) / (len(boxes) + 1), start
    for text, colour in boxes:
        pen.arrow((BESIDE, y), (BESIDE, y + gap), colour=ACCENT)
        y = pen.box(BESIDE, y + gap, text, colour, wide=3.9)
    pen.arrow((BESIDE, y), (BESIDE, end), (x + PLUS, end), colour=ACCENT)


def _draw_half(pen, m: Method, d: int, x: float, y: float, text: str, adapter: bool, beside: float | None) -> float:
    """Half a layer from its input at y: attention or feed-forward, an adapter, the sum, the norm. Returns its top."""
    whole = TASK if m.kind == "fine-tuned" else BERT
    top = pen.next(x, y, text, whole, gap=0.85)
    right, after = x + WIDE / 2 + 0.65, top
    if adapter:  # in series, and around it once more: x + V^D g(V^E x)
        top = pen.next(x, top, f"adapter\n{d}→{m.size}→{d}", _ends(m))
        pen.sum(x, top, after + 0.3, right, colour=ACCENT)
    if beside is not None:
        _draw_beside(pen, m, d, x, beside, top + 0.75)
    top = pen.sum(x, top, y + 0.4, x - WIDE / 2 - 0.55)
    norm, colour = ("own layer norm", TASK) if m.own_norms else ("layer norm", whole)
    return pen.next(x, top, norm, colour, gap=0.4)


def _draw_within(pen, m: Method, b: Backbone, y: float = 0.4) -> tuple[float, float]:
    """One layer with what is added in it, from its input at y; returns x and y of its top."""
    d, houlsby, start = b.hidden_size, m.kind == "houlsby", y + 0.4
    beside = m.kind in ("pal", "ffn", "low-rank") or (houlsby and m.second == "parallel")
    x = LEFT if beside else ALONE
    y = _draw_half(pen, m, d, x, y, f"attention\n{b.num_heads} heads of {d // b.num_heads}", houlsby, None)
    reads = (y + 0.4 if houlsby else start) if beside else None
    inner = f"feed-forward\n{d}→{b.intermediate_size}→{d}"
    y = _draw_half(pen, m, d, x, y, inner, houlsby and not beside, reads)
    if m.kind == "lhuc":
        y = pen.next(x, y, f"scale by $2\\sigma(w)$\n{d} numbers", TASK)
    elif m.kind == "serial":
        start, y = y, pen.next(x, y, f"$V^D V^E$\n{d}→{m.size}→{d}", TASK)
        y = pen.sum(x, y, start + 0.3, x + WIDE / 2 + 0.65, TASK, ACCENT)
    return x, y


def _draw_stack(pen, m: Method, b: Backbone) -> tuple[float, float]:
    """BERT's layers as boxes, and what is added on top of them; returns x and y of the top."""
    x, d = ALONE, b.hidden_size
    y = pen.box(x, 0, "embeddings")
    if m.kind == "feature-extraction":
        bus, above = x + WIDE / 2 + 0.5, [y, pen.next(x, y, "layer 1")]
        pen.line((x, above[1]), (x, above[1] + 0.4))
        pen.text(x, above[1] + 0.8, "⋮", fontsize=FONT + 2)
        y = pen.next(x, above[1] + 1.15, f"layer {b.num_layers}", gap=0.45)
        for top in above:
            pen.line((x, top + 0.25), (bus, top + 0.25), colour=ACCENT)
        pen.arrow((bus, above[0] + 0.25), (bus, y + GAP), colour=ACCENT)
        return x, pen.next(x, y, f"softmax-weighted sum\nof {b.num_layers} layers and embeddings", TASK, 7.2)
    y = pen.next(x, y, "BERT layer", gap=0.95)
    pen.frame(x, y - 1.4, y + 0.35, WIDE / 2 + 1.2, b.num_layers, BERT[1])
    if m.kind == "bert-layer-on-top":
        sizes = f"{b.num_heads} heads, inner size {b.intermediate_size}"
        return x, pen.next(x, y, f"one more BERT layer\n{sizes}", TASK, 6.4, gap=1.1)
    start = pen.next(x, y, f"$V^E$  {d}→{m.size}", TASK, gap=1.1)
    y = pen.next(x, start, _between(m), TASK, 5.2 if len(m.inner) > 1 else WIDE, gap=1.1)
    if m.residual:
        y = pen.sum(x, y, start + 0.7, x - WIDE / 2 - 0.8, TASK)
    if m.layer_norm:
        y = pen.next(x, y, "layer norm", TASK, gap=0.4)
    pen.frame(x, start + 0.35, y + 0.3, WIDE / 2 + 1.2, m.on_top)
    return x, pen.next(x, y, f"$V^D$  {m.size}→{d}", TASK, gap=0.85)


def _caption(m: Method, b: Backbone) -> list:
    """(colour, words) of each part: how many of it there are, and for whom."""
    each = "per task and layer" + (f", {m.layers} half" if m.layers != "all" else "")
    pairs = (_PAIRS[m.sharing][0], f"$V^E$, $V^D$: {_PAIRS[m.sharing][1]}")
    adapters = f"{('one adapter', 'two adapters')[m.adapters_per_layer - 1]} per task and "
    lines = {
        "shared": [],
        "fine-tuned": [(TASK, "a whole BERT per task")],
        "pal": [pairs, (TASK, f"attention: {each}")],
        "ffn": [pairs, (TASK, f"feed-forward: {each}")],
        "low-rank": [(TASK, f"$V^E$, $V^D$: a pair {each}")],
        "serial": [(TASK, f"$V^E$, $V^D$: a pair {each}")],
        "lhuc": [(TASK, f"$w$: {each}")],
        "houlsby": [(_ends(m), adapters + ("layer" if m.span == 1 else f"{m.span} layers"))],
        "feature-extraction": [(TASK, f"{b.num_layers + 2} numbers per task")],
    }.get(m.kind, [(TASK, "one per task")])
    if m.own_norms:
        lines.append((TASK, "layer norms: two per task and layer"))
    if m.classifier_layers == 2:
        lines.append((TASK, "hidden layer before the head: per task"))
    if m.pooler == "per-task":
        lines.append((TASK, "pooler: one per task"))
    frozen = {"nothing": "", "backbone": ", frozen", "backbone but norms": ", frozen but its norms"}[m.freeze]
    return lines if m.kind == "fine-tuned" else [*lines, (BERT, f"BERT: shared by all tasks{frozen}")]


def draw_layer(method: str | Method, ax: Axes | None = None, backbone="bert-base-uncased") -> Axes:
    """One layer of BERT, bottom to top, with what a method adds in colour at its place and a caption of who owns it.

    What goes on top of BERT is drawn on top of its layers. Without `ax` a new figure is made. Raises ValueError for an
    unknown method or backbone.
    """
    m, b = get_method(method), Backbone.of(backbone)
    ax = ax or plt.figure(figsize=(PAGE_WIDTH / 3, 3.9), layout="constrained").add_subplot()
    pen, on_top = Pen(ax), m.kind in _STACKED
    x, top = (_draw_stack if on_top else _draw_within)(pen, m, b)
    pen.arrow((x, top), (x, top + GAP))
    pen.text(x, top + 1.1, "to the pooler and the task's head" if on_top else "$y$", fontsize=FONT + 1.5 * (not on_top))
    if not on_top:
        pen.text(x, 0, "$h$", fontsize=FONT + 1.5)
    for i, ((fill, edge), words) in enumerate(_caption(m, b)):
        y = -1.1 - 0.75 * i
        ax.add_patch(Rectangle((-0.1, y - 0.22), 0.44, 0.44, fc=fill, ec=edge, lw=0.8))
        pen.text(0.6, y, words, ha="left", fontsize=FONT - 0.7)
    ax.set_title(m.label, loc="center", fontsize=FONT + 1.5)
    ax.set(xlim=X_LIMITS, ylim=(y - 0.5, top + 1.5), aspect="equal", anchor="S")
    ax.axis("off")
    return ax


def draw_methods(methods, backbone="bert-base-uncased") -> Figure:
    """Up to three methods side by side, at the same scale; each takes a third of a page."""
    figure = plt.figure(figsize=(PAGE_WIDTH / 3 * len(methods), 4), layout="constrained")
    axes = figure.subplots(1, len(methods), squeeze=False)[0]
    limits = [draw_layer(method, ax, backbone).get_ylim() for method, ax in zip(methods, axes, strict=True)]
    low, high = min(low for low, _ in limits), max(high for _, high in limits)
    plt.setp(axes, ylim=(low, high))
    figure.set_figheight(PAGE_WIDTH / 3 * (high - low) / 10.6 + 0.3)
    return figure


def draw_figure_1(figure: Figure | None = None, backbone="bert-base-uncased") -> Figure:
    """The counterpart of the paper's figure 1: a BERT layer, a PAL beside it, and layers on top of BERT."""
    b = Backbone.of(backbone)
    figure = figure or plt.figure(figsize=(PAGE_WIDTH, 3.85), layout="constrained")
    methods = ("shared", "pals-204", "attention-on-top-204")
    titles = ("a   A BERT layer", "b   A PAL beside each layer", "c   Layers on top of BERT")
    axes = figure.subplots(1, 3)
    for ax, method, title in zip(axes, methods, titles, strict=True):
        pen, m, count = Pen(ax), get_method(method), count_parameters(method, b)
        if m.kind in _STACKED:
            x, top = _draw_stack(pen, m, b)
        else:
            x, top = _draw_within(pen, m, b, y=1.6)
            pen.box(x, 0, "embeddings")
            pen.line((x, 0.95), (x, 1.6))
            half = 5.2 if m.kind == "pal" else WIDE / 2 + 1.2
            pen.frame(5.1, 1.45, top + 0.35, half, b.num_layers, BERT[1])
        pen.arrow((x, top), (x, 12.5))
        pen.text(x, 12.9, "to the pooler and the task's head")
        words = f"{b.parameters / 1e6:.1f} million parameters,\nthe same for every task"
        if count.per_task:
            words = f"+{count.per_task / 1e6:.2f} million for each task:\n{count.ratio:.2f} times BERT for eight tasks"
        pen.text(5.1, -0.8, words, fontsize=FONT + 0.5, linespacing=1.3, va="top")
        ax.set_title(title, loc="center", fontsize=FONT + 2.5, weight="bold", color=INK)
        ax.set(xlim=X_LIMITS, ylim=(-2.3, 13.3), aspect="equal", anchor="S")
        ax.axis("off")
    labels = ("shared by all tasks", "each task's own", "each task's own, the same in all layers")
    colours = (BERT, TASK, TASK_ALL_LAYERS)
    handles = [Patch(fc=c[0], ec=c[1], label=label) for c, label in zip(colours, labels, strict=True)]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=FONT + 0.5, handlelength=1.2)
    return figure
