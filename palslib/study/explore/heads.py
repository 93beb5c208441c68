"""An explorer of attention maps on a typed sentence or pair: BERT's heads and the PALs', for two tasks side by side."""

import math
from dataclasses import replace
from functools import lru_cache

import ipywidgets as widgets
from matplotlib.figure import Figure

from palslib.bert.encoders import max_positions
from palslib.study.analysis import attention_maps as attention
from palslib.study.analysis.attention_maps import AttentionMaps
from palslib.study.explore.widgets import WIDE, Explorer, Picture, bound, dropdown, slider, table
from palslib.study.figures.heads import attention_map, darkest, head_grid
from palslib.study.figures.style import task_name

MOST_TOKENS = 32  # more cannot be read along an axis
_KINDS = {"BERT's": "bert", "the PAL's": "pal"}


def head_rows(sides: list[AttentionMaps], kind: str, layer: int, head: int) -> list[list[str]]:
    """The rows of a table: one head's statistics under each of two tasks, and the divergence of the two maps."""
    weights = [maps.layer(kind, layer)[head] for maps in sides]  # (S, S) each
    both = []
    for maps, one in zip(sides, weights, strict=True):
        alone = replace(maps, weights={kind: one[None, None]}, layers={kind: (layer,)})  # without the other heads
        both.append(attention.head_statistics(alone).iloc[0])
    rows = []
    for name, words in attention.STATISTICS.items():
        rows.append([words, *("–" if math.isnan(values[name]) else f"{values[name]:.3f}" for values in both)])
    apart = attention.js_divergence(*weights).mean()
    return [*rows, ["Jensen–Shannon divergence (nats)", f"{apart:.3f}", ""]]


def draw_beside(sides: list[AttentionMaps], kind: str, layer: int, head: int, titles: list[str], figure: Figure):
    """Draws one head's map under each of several tasks, on one colour scale; of long texts only the first 32 tokens."""
    shown = [maps.layer(kind, layer)[head, :MOST_TOKENS, :MOST_TOKENS] for maps in sides]
    axes = figure.subplots(1, len(sides))
    for ax, maps, weights, title in zip(axes, sides, shown, titles, strict=True):
        tokens = maps.tokens[:MOST_TOKENS]
        attention_map(weights, tokens, ax, darkest(*shown), bar=False)
        ax.set_title(title)
    axes[1].set(ylabel="", yticks=[])
    figure.colorbar(axes[0].images[0], ax=list(axes), shrink=0.8, label="attention")


def explore_attention(
    model, tokenizer, text: str = "The doctor asked the nurse a question.", pair: str = "She answered it."
) -> Explorer:
    """An explorer in which to choose task, layer and head, and a second task to compare with. It starts with the last
    layer, of the PALs where the model has some.

    Args:
        model: a `MultiTaskModel` with at least one task; `tokenizer`: its backbone's.
        pair: the second text; empty for none.

    The model reads up to 512 word pieces of the text, and no more than its backbone can; the maps show the first 32
    tokens, and a note says so.
    """
    words = {task_name(name): name for name in model.tasks}
    first, *others = model.tasks
    numbers_by_kind = attention.numbers_of_heads(model, first)
    kind = "pal" if "pal" in numbers_by_kind else "bert"
    last = max(numbers_by_kind[kind])  # where PALs that were trained select most
    limit = min(512, max_positions(model.config), tokenizer.model_max_length)
    line = {"continuous_update": False, "layout": WIDE}
    c = {
        "text": widgets.Text(text, description="text", **line),
        "pair": widgets.Text(pair, description="second", placeholder="none", **line),
        "task": dropdown("task", words, first),
        "other": dropdown("beside", words, (others or [first])[0]),
        "layer": slider("layer", last, 0, last, continuous_update=False),
        "head": slider("head", 0, 0, 0, continuous_update=False),
        "kind": dropdown("heads", _KINDS, kind),
    }
    note, numbers = widgets.HTML(), widgets.HTML()
    maps_picture = Picture(3.9, left=0.14, right=0.98, bottom=0.24, top=0.93, wspace=0.04)
    heads_picture = Picture(2.74, left=0.01, right=0.98, bottom=0.02, top=0.84, wspace=0.08, hspace=0.3)

    @lru_cache(maxsize=2)  # the two that are shown, so that another head needs no forward pass
    def maps_of(name: str, text: str, pair: str | None) -> AttentionMaps:
        return attention.attention_maps(model, name, tokenizer, text, pair, max_length=limit)

    def fit(change=None):
        """Limits the sliders to the layers and heads that exist; a method without PALs leaves them as they are."""
        layers = numbers_by_kind.get(c["kind"].value, numbers_by_kind["bert"])
        bound(c["head"], 0, layers[min(layers)] - 1)  # equal in all layers
        bound(c["layer"], min(layers), max(layers))

    def update(text: str, pair: str, task: str, other: str, kind: str, layer: int, head: int):
        texts = text, pair or None
        sides = [maps_of(name, *texts) for name in (task, other)]
        names = [task_name(maps.task) for maps in sides]
        titles = [f"{name}: layer {layer}, head {head}" for name in names]
        maps_picture.draw(lambda figure: draw_beside(sides, kind, layer, head, titles, figure))
        numbers.value = table([f"layer {layer}, head {head}", *names], head_rows(sides, kind, layer, head))
        title, heads = f"All heads of layer {layer}, {names[0]}", sides[0].layer(kind, layer)
        heads_picture.draw(lambda figure: head_grid(heads[:, :MOST_TOKENS, :MOST_TOKENS], title, figure))

        whole, size = len(tokenizer(*texts, verbose=False)["input_ids"]), len(sides[0].tokens)
        notes = [f"{size} tokens"]
        if whole > size:
            notes.append(f"the text has {whole:,} and was cut")
        if size > MOST_TOKENS:
            notes.append(f"the maps show the first {MOST_TOKENS}, the numbers use all")
        if not (text + pair).strip():
            notes.append("type a sentence: these are only the special tokens")
        if kind == "pal" and task != other and getattr(model.method, "sharing", "") != "everything":
            notes.append("heads with the same number in two tasks' PALs do not correspond")
        note.value = "; ".join(notes)

    c["kind"].observe(fit, "value")
    fit()
    return Explorer("attention", c, [note, maps_picture, numbers, heads_picture]).follow(update)
