"""Diagrams: every method is drawn, with its sizes, at its place, and no text leaves its box or covers another."""

import itertools
from dataclasses import dataclass

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch

from palslib.methods.backbone import Backbone
from palslib.methods.ia3 import IA3
from palslib.methods.lora import LoRA
from palslib.methods.method import Box, Method, Part
from palslib.methods.table import METHODS, get_method
from palslib.study.figures.diagrams import OWNERS, draw_figure_1, draw_layer, draw_methods
from palslib.study.figures.style import method_name


@dataclass(frozen=True, kw_only=True)
class Several(Method):
    """Several methods at once."""

    methods: tuple = ()

    def parts(self, backbone):
        return [part for method in self.methods for part in get_method(method).parts(backbone)]


LORA, ONE_IA3, RELEASED = LoRA("lora-8"), IA3("ia3"), get_method("houlsby-64", second="parallel")
COMBINED = {
    "lora": LORA,
    "lora + ia3 + pal": Several("several", methods=(LORA, ONE_IA3, "pals-204")),
    "released houlsby": RELEASED,
    "lhuc + serial": Several("several", methods=("lhuc", "serial-100", "houlsby-64-not-shared")),
    "lhuc + features": Several("several", methods=("lhuc", "feature-extraction", "bert-layer-on-top")),
}


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def boxes(ax) -> dict[str, FancyBboxPatch]:
    """The text of each box -> the box. Of equal texts, the highest."""
    patches = [patch for patch in ax.patches if isinstance(patch, FancyBboxPatch)]
    inside = {patch: [t for t in ax.texts if patch.get_bbox().contains(*t.get_position())] for patch in patches}
    return {max(found, key=lambda text: text.get_position()[1]).get_text(): box for box, found in inside.items()}


@pytest.mark.parametrize("method", [*METHODS, *COMBINED.values()], ids=[*METHODS, *COMBINED])
def test_every_method_is_drawn_and_nothing_overlaps(method):
    """Warnings are errors here, so a missing glyph or a layout that does not fit fails too."""
    ax = draw_layer(method)
    ax.figure.canvas.draw()
    assert ax.get_title() == method_name(method)
    for part in get_method(method).parts(Backbone.of("bert-base-uncased")):
        assert {box.text for box in part.boxes} <= set(texts(ax))
    extents = [text.get_window_extent() for text in ax.texts]
    frames = [patch.get_window_extent() for patch in ax.patches if isinstance(patch, FancyBboxPatch)]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(extents, 2))
    for outer, inner in itertools.product([ax.figure.bbox, *frames], [*extents, *frames]):
        within = outer.x0 <= inner.x0 and inner.x1 <= outer.x1 and outer.y0 <= inner.y0 and inner.y1 <= outer.y1
        around = inner.x0 <= outer.x0 and outer.x1 <= inner.x1 and inner.y0 <= outer.y0 and outer.y1 <= inner.y1
        assert within or (inner in frames and around) or not outer.overlaps(inner)


PAL = {"$V^E$  768→204": "task", "attention\n12 heads of 17": "layer", "$V^D$  204→768": "task"}
SMALL = get_method("pals-204", size=120, heads=10)


@pytest.mark.parametrize(
    ("method", "labels"),
    [
        ("pals-204", PAL | {"attention\n12 heads of 64": "bert", "feed-forward\n768→3072→768": "bert"}),
        (SMALL, {"attention\n12 heads of 32": "bert", "$V^E$  384→120": "task", "attention\n10 heads of 12": "layer"}),
        ("pals-shared-across-tasks-204", {"$V^E$  768→204": "tasks", "attention\n12 heads of 17": "layer"}),
        ("lhuc", {"scale by $2\\sigma(w)$\n768 numbers": "layer"}),
        ("serial-100", {"$V^D V^E$\n768→100→768": "layer"}),
        ("houlsby-64", {"adapter\n768→64→768": "layer", "layer norm": "bert", "BERT: shared by all tasks, frozen": ""}),
        ("houlsby-64-not-shared", {"own layer norm": "layer"}),
        ("ffn-on-top-252x2", {"feed-forward\n204→252→252→204": "layer", "× 6": "", "× 12": ""}),
        ("feature-extraction", {"softmax-weighted sum\nof 12 layers and embeddings": "", "14 numbers per task": ""}),
        ("fine-tuned", {"attention\n12 heads of 64": "layer", "layer norm": "layer"}),
        (get_method("attention-on-top-204", on_top=3), dict.fromkeys(PAL, "layer") | {"× 3": ""}),
    ],
    ids=lambda value: getattr(value, "label", None),
)
def test_labels_hold_the_sizes_and_colour_says_who_owns_a_part(method, labels):
    """17 = 204 / 12, 64 = 768 / 12; 14 = 12 layers + embeddings + γ. MiniLM: 384 wide, 12 heads of 32."""
    ax = draw_layer(method, backbone="minilm" if method is SMALL else "bert-base-uncased")
    assert set(labels) <= set(texts(ax))
    for text, box in boxes(ax).items():
        if labels.get(text):
            assert (to_hex(box.get_facecolor()), to_hex(box.get_edgecolor())) == OWNERS[labels[text]]


@pytest.mark.parametrize(
    ("method", "text", "place"),
    [
        ("pals-204", "$V^D$  204→768", "beside"),
        ("houlsby-64", "adapter\n768→64→768", "between"),
        ("lhuc", "scale by $2\\sigma(w)$\n768 numbers", "above"),
        ("serial-100", "$V^D V^E$\n768→100→768", "above"),
        (LORA, "$BA$ on $q$, $v$\nrank 8", "attention\n12 heads of 64"),
        (ONE_IA3, "scale", "feed-forward\n768→3072→768"),
    ],
    ids=lambda value: getattr(value, "label", None),
)
def test_what_is_added_stands_at_its_place(method, text, place):
    """Beside BERT's column, in it, above the last norm, or inside a block."""
    found = {text: box.get_bbox() for text, box in boxes(draw_layer(method)).items()}
    box, norm = found[text], found["layer norm"]
    assert (box.x0 > norm.x1) == (place == "beside") and (box.y0 > norm.y1) == (place == "above")
    inside = [name for name, other in found.items() if other.y0 < box.y0 < box.y1 < other.y1 and other.x1 > box.x1]
    assert inside == ([place] if place in found else [])


def test_what_has_no_place_in_a_diagram_is_refused():
    with pytest.raises(ValueError, match="did you mean 'attention'"):
        Part("atention", ())
    with pytest.raises(ValueError, match="did you mean 'task"):
        Box("one", "taskz")
    with pytest.raises(ValueError, match="'two' has 2 parts beside BERT"):
        draw_layer(Several("two", methods=("pals-204", RELEASED)))


def test_captions_say_what_is_shared():
    """Every way of sharing has a caption of its own."""
    shared = ("none", "tasks", "layers and tasks", "everything")
    ways = [{}, {"layers": "top"}, {"pooler": "per-task"}, *({"sharing": way} for way in shared)]
    assert len({frozenset(texts(draw_layer(get_method("pals-204", **options)))) for options in ways}) == len(ways)


def test_panels_share_their_scale():
    axes = draw_methods(["shared", "serial-100"]).axes
    assert axes[0].get_ylim() == axes[1].get_ylim() and axes[0].get_xlim() == axes[1].get_xlim()


def test_figure_1():
    """Counts: PALs 2·768·204 + 12·3·204² = 1,811,520; on top 2·768·204 + 6·4·204² = 1,312,128; BERT 109,482,240."""
    figure = draw_figure_1()
    figure.canvas.draw()
    numbers = [["109.5 million"], ["+1.81 million", "1.13 times"], ["+1.31 million", "1.10 times"]]
    for ax, words in zip(figure.axes, numbers, strict=True):
        assert all(any(word in text for text in texts(ax)) for word in words)
        extents = [text.get_window_extent() for text in (*ax.texts, ax.title)]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(extents, 2))
