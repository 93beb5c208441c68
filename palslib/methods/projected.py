"""Methods within BERT, beside the feed-forward: projected attention layers (PALs), or feed-forward networks instead.

Stickland & Murray 2019, section 3.3: TS(h) = V^D g(V^E h) with V^E (d -> s) and V^D (s -> d) shared by a task's layers,
and g multi-head attention (PAL) or a feed-forward network in the small space.
"""

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Literal

from palslib.methods.backbone import Backbone
from palslib.methods.method import Activation, Box, Half, Init, Method, Part, Term, half_of, nearest_divisor

Sharing = Literal["layers", "none", "tasks", "layers and tasks", "everything"]
_PAIRS = {  # by `sharing`: the owner of V^E and V^D, and the words of the caption
    "layers": ("task", "one pair per task, for all its layers"),
    "none": ("layer", "a pair per task and layer"),
    "tasks": ("tasks", "a pair per layer, for all tasks"),
    "layers and tasks": ("tasks", "one pair for all tasks and layers"),
    "everything": ("tasks", "one pair for all tasks and layers"),
}


def pair_term(d: int, s: int, pairs: int = 1, owner: str = "task") -> Term:
    """The term of pairs V^E (d -> s), V^D (s -> d): 2ds weights a pair."""
    return Term("V^E and V^D", f"{pairs} · 2ds" if pairs > 1 else "2ds", pairs * 2 * d * s, owner, pairs * (s + d))


@dataclass(frozen=True, kw_only=True)
class Projected(Method):
    """V^D g(V^E h) beside each layer; a subclass defines g."""

    size: int = 204
    """s, the projected size."""
    layers: Half = "all"
    """Which layers are adapted: `all`, the `top` half or the `bottom` half."""
    sharing: Sharing = "layers"
    """What shares a pair V^E, V^D: a task's `layers`, `none` (each task has a pair for each layer), `tasks` (a pair for
    each layer, for all tasks), `layers and tasks` (one pair in all), or `everything`: all tasks use one pair, and in
    each layer one function g, so that no parameter is a task's own."""
    init: Init = "identity"
    """`identity`: V^D and its bias start at zero, so that the model starts as BERT; `normal`: all matrices are drawn
    N(0, 0.02) as in the released code (ledger D8)."""

    def pairs(self, num_layers: int) -> int:
        """The number of pairs V^E, V^D of one owner."""
        return len(self.adapted_layers(num_layers)) if self.sharing in ("none", "tasks") else 1

    @property
    def owners(self) -> tuple[str, str]:
        """Whose V^E and V^D are, and whose the functions g are: each a `task`'s, or one for all `tasks`."""
        return _PAIRS[self.sharing][0].replace("layer", "task"), "tasks" if self.sharing == "everything" else "task"

    def make_function(self, config):
        """The module g of one layer."""
        raise AttributeError(f"{type(self).__name__} names no function g")

    def projections(self, backbone: Backbone) -> Term:
        """The term of V^E and V^D."""
        return pair_term(backbone.hidden_size, self.size, self.pairs(backbone.num_layers), self.owners[0])

    def beside(self, backbone: Backbone, function: str) -> Part:
        """The part of a diagram with V^E, the function in the small space, and V^D."""
        d, s, owner = backbone.hidden_size, self.size, _PAIRS[self.sharing][0]
        g = Box(function, "tasks" if self.sharing == "everything" else "layer")
        return Part("beside", (Box(f"$V^E$  {d}→{s}", owner), g, Box(f"$V^D$  {s}→{d}", owner)))

    def captions_for(self, function: str) -> list[tuple[str, str]]:
        """The captions of V^E and V^D, and of the functions g."""
        owner, words = _PAIRS[self.sharing]
        if self.sharing == "everything":
            return [(owner, f"$V^E$, $V^D$: {words}; {function}: one per layer, for all tasks")]
        return [(owner, f"$V^E$, $V^D$: {words}"), ("layer", f"{function}: {half_of(self.layers)}")]

    def build_shared(self, encoder):
        from palslib.methods.functions import SharedByTasks

        return SharedByTasks(self, encoder.config) if "tasks" in self.owners else None


def attention_text(size: int, heads: int) -> str:
    """The text of a box of projected attention."""
    return f"attention\n{heads} heads of {size // heads}"


def attention_operations(size: int, tokens: int) -> int:
    """Multiply-adds of one layer's projected attention: S · 3s² for q, k, v and 2S² s for their products."""
    return tokens * 3 * size * size + 2 * tokens * tokens * size


@dataclass(frozen=True, kw_only=True)
class PAL(Projected):
    """Projected attention layers: g is multi-head attention without an output matrix, 3s² a layer."""

    kind: ClassVar[str] = "pal"

    heads: int = 12
    """Number of attention heads; s is a multiple of it."""
    activation: Activation = "identity"
    """The activation after V^D; `gelu` in the released code (ledger D6) and in the minBERT report."""
    scaled: bool = False
    """Whether each layer's TS(h) is multiplied by LHUC's 2σ(w), an option of the released code."""

    def terms(self, backbone):
        n, s, d = len(self.adapted_layers(backbone.num_layers)), self.size, backbone.hidden_size
        yield self.projections(backbone)
        yield Term("query, key, value", f"{n} · 3s²", n * 3 * s * s, self.owners[1], n * 3 * s)
        if self.scaled:
            yield Term("scales", f"{n}d", n * d)

    def operations(self, backbone, tokens):
        n, s = len(self.adapted_layers(backbone.num_layers)), self.size
        return n * (tokens * 2 * backbone.hidden_size * s + attention_operations(s, tokens))

    def parts(self, backbone):
        part = self.beside(backbone, attention_text(self.size, self.heads))
        return [Part("beside", (*part.boxes, Box("scale by $2\\sigma(w)$"))) if self.scaled else part]

    def captions(self, backbone):
        return self.captions_for("attention" + ", $w$" * self.scaled)

    def build(self, encoder, pooler, shared=None):
        from palslib.methods.functions import PALs

        return PALs(self, encoder, pooler, shared)

    def make_function(self, config):
        from palslib.methods.functions import ProjectedAttention

        return ProjectedAttention(self.size, self.heads, config)

    def under(self, recipe):
        own = recipe.pal_heads == 12  # keep the method's own number, fitted to a budget or not
        heads = self.heads if own else nearest_divisor(self.size, recipe.pal_heads)
        return super().under(recipe) | {"heads": heads, "activation": recipe.pal_activation}


@dataclass(frozen=True, kw_only=True)
class FeedForward(Projected):
    """A feed-forward network s -> inner sizes -> s in each layer, in the place of a PAL's attention (paper 3.3)."""

    kind: ClassVar[str] = "ffn"

    inner: tuple[int, ...] = (306,)
    """Inner sizes; they scale with a new `size` unless they are given."""

    def with_options(self, **options):
        return super().with_options(**scaled_inner(self, options))

    def terms(self, backbone):
        n = len(self.adapted_layers(backbone.num_layers))
        yield self.projections(backbone)
        yield replace(feed_forward_term(self, n), owner=self.owners[1])

    def operations(self, backbone, tokens):
        n = len(self.adapted_layers(backbone.num_layers))
        return tokens * n * (2 * backbone.hidden_size * self.size + feed_forward_weights(self))

    def parts(self, backbone):
        return [self.beside(backbone, feed_forward_text(self))]

    def captions(self, backbone):
        return self.captions_for("feed-forward")

    def build(self, encoder, pooler, shared=None):
        from palslib.methods.functions import ProjectedWithin

        return ProjectedWithin(self, encoder, pooler, shared)

    def make_function(self, config):
        from palslib.methods import functions

        return functions.FeedForward(self.size, self.inner, config)


def scaled_inner(method, options: dict) -> dict:
    """The options, with inner sizes that scale with a new `size` unless they are given."""
    if (size := options.get("size")) and "inner" not in options:
        options["inner"] = tuple(round(i * size / method.size) for i in method.inner)
    return options


def feed_forward_sizes(method) -> tuple[int, ...]:
    """The sizes of a network: s, the inner sizes, s."""
    return (method.size, *method.inner, method.size)


def feed_forward_weights(method) -> int:
    """The number of weights of one network, without biases."""
    return sum(a * b for a, b in pairwise(feed_forward_sizes(method)))


def feed_forward_term(method, layers: int, norm: int = 0) -> Term:
    """The term of the networks of `layers` layers, each with a layer norm of `norm` parameters."""
    sizes = feed_forward_sizes(method)
    formula = " + ".join(f"{a}·{b}" for a, b in pairwise(sizes))
    extras = layers * (sum(sizes[1:]) + norm)
    return Term("feed-forward", f"{layers} · ({formula})", layers * feed_forward_weights(method), extras=extras)


def feed_forward_text(method) -> str:
    """The text of a feed-forward network's box."""
    return "feed-forward\n" + "→".join(map(str, feed_forward_sizes(method)))
