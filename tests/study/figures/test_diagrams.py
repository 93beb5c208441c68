"""Diagrams: every method is drawn, with its sizes, at its place, and no text leaves its box or covers another."""

import itertools
from dataclasses import dataclass

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch

from palslib.methods.backbone import Backbone
from palslib.methods.ia3 import IA3
from palslib.methods.method import Box, Method, Part
from palslib.methods.table import METHODS, get_method
from palslib.study.figures.blocks import ALL_TASKS, BERT, TASK, TASK_ALL_LAYERS
from palslib.study.figures.diagrams import draw_figure_1, draw_layer, draw_methods
from palslib.study.figures.style import method_name


@dataclass(frozen=True, kw_only=True)
class LoRA(Method):
    """q + BAh and v + BAh (Hu et al. 2021), drawn as one pair for both or as a pair each."""

    kind = "LoRA, drawn"
    size: int = 8
    apart: bool = False

    def parts(self, backbone):
        d = backbone.hidden_size
        for words in ("query", "value") if self.apart else ("query, value",):
            boxes = Box(f"$A$  {d}→{self.size}"), Box(f"$B$  {self.size}→{d}\n{words}")
            yield Part("attention", boxes, residual=True)

    def captions(self, backbone):
        return [("layer", "$A$, $B$: two pairs per task and layer")]


@dataclass(frozen=True, kw_only=True)
class Together(Method):
    """Several methods at once."""

    methods = ()

    def parts(self, backbone):
        return [part for one in self.methods for part in get_method(one).parts(backbone)]


def together(*methods) -> Method:
    return type("Several", (Together,), {"methods": methods})("several")


LORA, LORA_APART, ONE_IA3 = LoRA("lora-8"), LoRA("lora-8 twice", apart=True), IA3("ia3")
COMBINED = {
    "houlsby + pal": get_method("houlsby-64", second="pal"),
    "houlsby + parallel": get_method("houlsby-64-not-shared", second="parallel"),
    "scaled pal": get_method("pals-204", scaled=True),
    "lora": LORA,
    "lora twice": LORA_APART,
    "ia3": ONE_IA3,
    "lora + ia3": together(LORA, ONE_IA3),
    "ia3 + pal": together(ONE_IA3, "pals-204"),
    "lora + houlsby + pal": together(LORA_APART, get_method("houlsby-64", second="pal")),
    "pal + houlsby": together("pals-204", get_method("houlsby-64", second="parallel")),
    "lhuc + serial": together(LORA, "lhuc", "serial-100", "houlsby-64-not-shared"),
    "pal + on top": together("pals-204", "ffn-on-top-252x2"),
    "lhuc + features": together("lhuc", "feature-extraction", "bert-layer-on-top"),
}
every_method = pytest.mark.parametrize("method", [*METHODS, *COMBINED.values()], ids=[*METHODS, *COMBINED])


def texts(ax) -> list[str]:
    return [text.get_text() for text in ax.texts]


def boxes(ax) -> list[FancyBboxPatch]:
    return [patch for patch in ax.patches if isinstance(patch, FancyBboxPatch)]


def by_text(ax) -> dict[str, FancyBboxPatch]:
    """The text of each box -> the box. Of equal texts, the highest."""
    found = {}
    for box in boxes(ax):
        middle = (box.get_x() + box.get_width() / 2, box.get_y() + box.get_height() / 2)
        (text,) = [t for t in ax.texts if t.get_position() == pytest.approx(middle)]
        found[text.get_text()] = box
    return found


def coloured(ax) -> dict[str, tuple]:
    """The text of each box -> its (fill, edge)."""
    return {text: (to_hex(box.get_facecolor()), to_hex(box.get_edgecolor())) for text, box in by_text(ax).items()}


def places(ax) -> list[tuple]:
    """Where the coloured boxes are."""
    return sorted(
        (round(b.get_x() + b.get_width() / 2, 3), round(b.get_y(), 3))
        for b in boxes(ax)
        if to_hex(b.get_facecolor()) != BERT[0]
    )


@every_method
def test_every_method_is_drawn_and_nothing_overlaps(method):
    """Warnings are errors here, so a missing glyph or a layout that does not fit fails too."""
    ax = draw_layer(method)
    ax.figure.canvas.draw()
    assert ax.get_title() == method_name(method)
    shown = texts(ax)
    for part in get_method(method).parts(Backbone.of("bert-base-uncased")):
        assert all(box.text in shown for box in (*part.boxes, *part.repeated))
    extents = {text: text.get_window_extent() for text in ax.texts}
    for a, b in itertools.combinations(extents, 2):
        assert not extents[a].overlaps(extents[b]), (a.get_text(), b.get_text())
    whole = ax.figure.bbox
    for text, extent in extents.items():
        assert extent.x0 >= whole.x0 and extent.x1 <= whole.x1, text.get_text()
        assert extent.y0 >= whole.y0 and extent.y1 <= whole.y1, text.get_text()
    for box in boxes(ax):
        frame = box.get_window_extent()
        for text, extent in extents.items():
            if frame.overlaps(extent):
                assert frame.x0 <= extent.x0 and extent.x1 <= frame.x1, text.get_text()
                assert frame.y0 <= extent.y0 and extent.y1 <= frame.y1, text.get_text()
    for a, b in itertools.combinations(boxes(ax), 2):
        assert not a.get_window_extent().overlaps(b.get_window_extent())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shared", ["attention\n12 heads of 64", "feed-forward\n768→3072→768"]),
        ("pals-204", ["$V^E$  768→204", "attention\n12 heads of 17", "$V^D$  204→768"]),
        ("pals-no-sharing-84", ["$V^E$  768→84", "attention\n12 heads of 7", "$V^D$  84→768"]),
        ("pals-276-top", ["$V^E$  768→276", "attention\n12 heads of 23", "$V^D$  276→768"]),
        ("low-rank-100", ["$V^E$  768→100", "$V^D$  100→768"]),
        ("ffn-306", ["$V^E$  768→204", "feed-forward\n204→306→204", "$V^D$  204→768"]),
        ("lhuc", ["scale by $2\\sigma(w)$\n768 numbers"]),
        ("serial-100", ["$V^D V^E$\n768→100→768"]),
        ("houlsby-64", ["adapter\n768→64→768"]),
        ("attention-on-top-204", ["$V^E$  768→204", "attention\n12 heads of 17", "$V^D$  204→768", "× 6", "× 12"]),
        ("ffn-on-top-408", ["feed-forward\n204→408→204", "× 6"]),
        ("ffn-on-top-252x2", ["feed-forward\n204→252→252→204", "× 6"]),
        ("bert-layer-on-top", ["one more BERT layer\n12 heads, inner size 3072", "× 12"]),
        ("feature-extraction", ["softmax-weighted sum\nof 12 layers and embeddings", "14 numbers per task"]),
    ],
)
def test_labels_hold_the_sizes(name, expected):
    """17 = 204 / 12, 7 = 84 / 12, 23 = 276 / 12, 64 = 768 / 12; 14 = 12 layers + embeddings + γ."""
    shown = texts(draw_layer(name))
    assert [label for label in expected if label not in shown] == []


def test_sizes_follow_the_backbone_and_the_options():
    """MiniLM: 384 wide, 12 heads of 32; s = 120 with 10 heads of 12."""
    shown = texts(draw_layer(get_method("pals-204", size=120, heads=10), backbone="minilm"))
    assert {"attention\n12 heads of 32", "feed-forward\n384→1536→384", "$V^E$  384→120"} <= set(shown)
    assert "attention\n10 heads of 12" in shown
    assert "× 3" in texts(draw_layer(get_method("attention-on-top-204", on_top=3)))


@pytest.mark.parametrize(
    ("name", "colours"),
    [
        ("pals-204", {"$V^E$  768→204": TASK_ALL_LAYERS, "attention\n12 heads of 17": TASK}),
        ("pals-no-sharing-84", {"$V^E$  768→84": TASK, "attention\n12 heads of 7": TASK}),
        ("pals-shared-across-tasks-204", {"$V^E$  768→204": ALL_TASKS, "attention\n12 heads of 17": TASK}),
        ("houlsby-64", {"adapter\n768→64→768": TASK, "layer norm": BERT}),
        ("houlsby-64-not-shared", {"adapter\n768→64→768": TASK, "own layer norm": TASK}),
        ("houlsby-64-3-shared", {"adapter\n768→64→768": TASK_ALL_LAYERS, "layer norm": BERT}),
        ("shared", {"attention\n12 heads of 64": BERT, "feed-forward\n768→3072→768": BERT, "layer norm": BERT}),
        ("fine-tuned", {"attention\n12 heads of 64": TASK, "feed-forward\n768→3072→768": TASK, "layer norm": TASK}),
    ],
)
def test_colour_says_who_owns_a_part(name, colours):
    found = coloured(draw_layer(name))
    assert {text: found[text] for text in colours} == colours


def test_what_is_added_stands_at_its_place():
    """Beside the layer, in its column, above it, or on top of all layers: by height and by column."""
    kinds = ("shared", "pals-204", "low-rank-100", "lhuc", "houlsby-64", "attention-on-top-204", "bert-layer-on-top")
    place = {name: places(draw_layer(name)) for name in (*kinds, "serial-100")}
    assert place["shared"] == []
    beside, column = place["pals-204"][0][0], place["serial-100"][0][0]
    assert beside > column and {x for x, _ in place["low-rank-100"]} == {beside}
    assert len(place["pals-204"]) == 3 and len(place["low-rank-100"]) == 2 and len(place["houlsby-64"]) == 2
    plain = max(b.get_y() for b in boxes(draw_layer("shared")))  # the last layer norm
    assert all(y < plain for _, y in place["pals-204"])
    assert all(y > plain for name in ("lhuc", "serial-100") for _, y in place[name])
    assert {x for x, _ in place["houlsby-64"]} == {column}
    assert len({tuple(place[name]) for name in kinds}) == len(kinds)


def test_the_released_adapter_after_the_feed_forward_stands_beside_it():
    serial, parallel = (draw_layer(get_method("houlsby-64", second=second)) for second in ("serial", "parallel"))
    assert len({x for x, _ in places(serial)}) == 1 and len({x for x, _ in places(parallel)}) == 2


ATTENTION, FEED_FORWARD = "attention\n12 heads of 64", "feed-forward\n768→3072→768"


@pytest.mark.parametrize(
    ("method", "block", "beside", "reads"),
    [
        (LORA, ATTENTION, ["$A$  768→8", "$B$  8→768\nquery, value"], True),
        (LORA_APART, ATTENTION, ["$B$  8→768\nquery", "$B$  8→768\nvalue"], True),
        (ONE_IA3, ATTENTION, ["scale $k$, $v$"], False),
        (ONE_IA3, FEED_FORWARD, ["scale"], False),
    ],
)
def test_what_changes_the_inside_of_a_block_stands_beside_it(method, block, beside, reads):
    """At its height, so that arrows go straight across; what is added reads the block's input, what scales does not."""
    ax = draw_layer(method)
    found = by_text(ax)
    block, beside = found[block].get_bbox(), [found[text].get_bbox() for text in beside]
    assert all(box.x0 > block.x1 and block.y0 <= box.y0 and box.y1 < block.y1 + 1e-6 for box in beside)
    below = [x for line in ax.lines for x, y in line.get_xydata() if block.y0 - 0.85 < y < block.y0]
    assert any(x > block.x1 for x in below) == reads


@pytest.mark.parametrize(("place", "owner"), [("atention", "layer"), ("attention", "taskz")])
def test_a_place_and_an_owner_that_do_not_exist_are_refused(place, owner):
    with pytest.raises(ValueError, match=r"did you mean '(attention|tasks?)'"):
        Part(place, (Box("one", owner),))


def test_captions_say_what_is_shared():
    """Every way of sharing has a caption of its own, and a frozen BERT says so."""
    shared = ("none", "tasks", "layers and tasks", "everything")
    ways = [{}, {"layers": "top"}, {"pooler": "per-task"}, *({"sharing": way} for way in shared)]
    captions = [frozenset(texts(draw_layer(get_method("pals-204", **options)))) for options in ways]
    said = " ".join(texts(draw_layer(get_method("pal-common", scaled=True))))
    assert "attention: one per layer, for all tasks" in said and "$w$: per task and layer" in said
    assert len(set(captions)) == len(ways)
    frozen = {name: any("frozen" in text for text in texts(draw_layer(name))) for name in ("houlsby-64", "shared")}
    assert frozen == {"houlsby-64": True, "shared": False}


def test_panels_share_their_scale():
    axes = draw_methods(["shared", "serial-100"]).axes
    assert [ax.get_title() for ax in axes] == ["shared", "serial low rank, s = 100"]
    assert axes[0].get_ylim() == axes[1].get_ylim() and axes[0].get_xlim() == axes[1].get_xlim()


def test_figure_1():
    """Counts: PALs 2·768·204 + 12·3·204² = 1,811,520; on top 2·768·204 + 6·4·204² = 1,312,128; BERT 109,482,240."""
    figure = draw_figure_1()
    figure.canvas.draw()
    plain, pal, top = figure.axes
    assert any("109.5 million" in text for text in texts(plain))
    assert any("+1.81 million" in text and "1.13 times" in text for text in texts(pal))
    assert any("+1.31 million" in text and "1.10 times" in text for text in texts(top))
    assert {"$V^E$  768→204", "attention\n12 heads of 17"} <= set(texts(pal)) & set(texts(top))
    assert places(plain) == [] and places(pal) != places(top)
    for ax in figure.axes:
        extents = [text.get_window_extent() for text in (*ax.texts, ax.title)]
        assert not any(a.overlaps(b) for a, b in itertools.combinations(extents, 2))
    assert len(figure.legends[0].get_texts()) == 3
