"""Projected attention layers (PALs): a small multi-head attention beside each layer of BERT.

Stickland & Murray 2019, section 3.3 (https://arxiv.org/abs/1902.02671):

    TS(h) = V^D MH(V^E h)        V^E (d -> s) is `encoder`, V^D (s -> d) `decoder`

MH has no output matrix, as V^D takes its place: 3s² weights a layer. All layers of a task share one pair V^E, V^D: 2ds.
TS(h) is computed in `ProjectedWithin.parallel` and added to the second residual sum in `bert/layer.py`
(`adapted_layer`); diagrams draw it `beside` the layer, and it is watched as `task function`. V^D starts at zero, so the
model starts as BERT.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from palslib.bert.later import Module, attend, functional, nn
from palslib.methods.adaptation import Adaptation
from palslib.methods.lhuc import Vectors
from palslib.methods.method import Activation, Box, Half, Init, Method, Part, Term, half_of


class Projection(Module):
    """A pair V^E (d -> s), V^D (s -> d): its output is V^D V^E x, with an activation in between if one is given."""

    def __init__(self, d: int, s: int, activation: str = "identity"):
        super().__init__()
        self.encoder = nn.Linear(d, s)
        self.decoder = nn.Linear(s, d)
        self.activation = functional.gelu if activation == "gelu" else nn.Identity()

    def forward(self, x):
        """x (N, d) to (N, d)."""
        return self.decoder(self.activation(self.encoder(x)))

    def start_as_bert(self) -> None:
        """Sets V^D to zero."""
        self.decoder.weight.zero_()


def pair_term(d: int, s: int, pairs: int = 1, owner: str = "task") -> Term:
    """The term of pairs V^E (d -> s), V^D (s -> d): 2ds weights a pair."""
    return Term("V^E and V^D", f"{pairs} · 2ds" if pairs > 1 else "2ds", pairs * 2 * d * s, owner, pairs * (s + d))


class ProjectedAttention(Module):
    """Multi-head attention in the small space, without an output matrix."""

    def __init__(self, s: int, heads: int, config):
        super().__init__()
        self.heads, self.dropout = heads, config.attention_probs_dropout_prob
        self.qkv = nn.Linear(s, 3 * s)  # one product for query, key and value

    def forward(self, z, rows, layer: int):
        """z (N, s) to the context (N, s), or of [CLS] alone (B, s)."""
        q, k, v = self.qkv(z).chunk(3, dim=-1)
        q = rows.look("task query", layer, rows.wanted(q))
        dropout, see = self.dropout if self.training else 0.0, rows.watch("task attention", layer)
        context = attend(q, k, v, rows, self.heads, dropout, see)
        return rows.look("task context", layer, context)


def attention_operations(size: int, tokens: int) -> int:
    """Multiply-adds of one layer's projected attention: S · 3s² for q, k, v and 2S² s for their products."""
    return tokens * 3 * size * size + 2 * tokens * tokens * size


def attention_text(size: int, heads: int) -> str:
    """The text of a box of projected attention."""
    return f"attention\n{heads} heads of {size // heads}"


_PAIRS = {  # by `sharing`: the owner of V^E and V^D, and the words of the caption
    "layers": ("task", "one pair per task, for all its layers"),
    "none": ("layer", "a pair per task and layer"),
    "tasks": ("tasks", "a pair per layer, for all tasks"),
    "layers and tasks": ("tasks", "one pair for all tasks and layers"),
    "everything": ("tasks", "one pair for all tasks and layers"),
}


@dataclass(frozen=True, kw_only=True)
class Projected(Method, ABC):
    """V^D g(V^E h) beside each layer; a subclass defines g."""

    size: int = 204
    """s, the projected size."""
    layers: Half = "all"
    sharing: Literal["layers", "none", "tasks", "layers and tasks", "everything"] = "layers"
    """What shares a pair V^E, V^D: a task's `layers`, `none` (each task has a pair for each layer), `tasks` (a pair for
    each layer, for all tasks), `layers and tasks` (one pair in all), or `everything`: all tasks use one pair, and in
    each layer one function g, so, besides its head, a task owns only w (if `scaled`) and a pooler `per-task`."""
    init: Init = "identity"
    """`identity`: V^D and its bias start at zero, so that the model starts as BERT; `normal`: all matrices are drawn
    from N(0, 0.02) as in the released code (ledger D8)."""

    def pairs(self, num_layers: int) -> int:
        """The number of pairs V^E, V^D of one owner."""
        return len(self.adapted_layers(num_layers)) if self.sharing in ("none", "tasks") else 1

    @property
    def owners(self) -> tuple[str, str]:
        """Who owns V^E and V^D, and who owns the functions g: a single `task`, or all `tasks` together."""
        return _PAIRS[self.sharing][0].replace("layer", "task"), "tasks" if self.sharing == "everything" else "task"

    def projections(self, backbone) -> Term:
        """The term of V^E and V^D."""
        return pair_term(backbone.hidden_size, self.size, self.pairs(backbone.num_layers), self.owners[0])

    def beside(self, backbone, function: str) -> Part:
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

    @abstractmethod
    def make_function(self, config):
        """The module g of one layer."""

    def make_functions(self, config):
        """The modules g, one for each adapted layer."""
        layers = self.adapted_layers(config.num_hidden_layers)
        return nn.ModuleDict({str(i): self.make_function(config) for i in layers})

    def make_projections(self, config):
        """The pairs V^E, V^D of one owner: one pair, or one for each adapted layer."""
        pairs = self.pairs(config.num_hidden_layers)
        return nn.ModuleList(Projection(config.hidden_size, self.size) for _ in range(pairs))

    def build_shared(self, encoder):
        return SharedByTasks(self, encoder.config) if "tasks" in self.owners else None


class SharedByTasks(Module):
    """What all tasks share: the pairs V^E, V^D and, where they share everything, the functions g."""

    def __init__(self, method: Projected, config):
        super().__init__()
        self.projections = method.make_projections(config)
        self.functions = method.make_functions(config) if method.owners[1] == "tasks" else None


class ProjectedWithin(Adaptation):
    """V^D g(V^E h), with V^E and V^D of the task or shared by tasks. If tasks share everything, this owns nothing."""

    def __init__(self, method: Projected, encoder, pooler, shared: SharedByTasks | None = None):
        super().__init__(method, encoder, pooler)
        pairs, functions = method.owners
        self.projections = method.make_projections(encoder.config) if pairs == "task" else None
        self.functions = method.make_functions(encoder.config) if functions == "task" else None
        object.__setattr__(self, "shared", shared)  # owned by the model, so not registered here again

    def projection(self, layer: int) -> Projection:
        """The pair V^E, V^D of a layer."""
        pairs = self.shared.projections if self.projections is None else self.projections
        return pairs[self.layers.index(layer)] if len(pairs) > 1 else pairs[0]

    def function(self, layer: int):
        """The function g of a layer."""
        return (self.shared.functions if self.functions is None else self.functions)[str(layer)]

    def parallel(self, layer, h, rows):
        v, g = self.projection(layer), self.function(layer)
        return v.decoder(g(v.encoder(h), rows, layer))


@dataclass(frozen=True, kw_only=True)
class PAL(Projected, kind="pal"):
    """Projected attention layers: g is multi-head attention without an output matrix, 3s² a layer."""

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
        scale = [("layer", f"$w$: {half_of(self.layers)}")] if self.scaled else []
        return [*self.captions_for("attention"), *scale]

    def make_function(self, config):
        return ProjectedAttention(self.size, self.heads, config)

    def build(self, encoder, pooler, shared=None):
        return PALs(self, encoder, pooler, shared)


class PALs(ProjectedWithin):
    """A task's projected attention layers: TS(h) = V^D MH(V^E h)."""

    def __init__(self, method: PAL, encoder, pooler, shared=None):
        super().__init__(method, encoder, pooler, shared)
        self.scales = Vectors(self.layers, encoder.config.hidden_size) if method.scaled else None

    def parallel(self, layer, h, rows):
        ts = super().parallel(layer, h, rows)
        ts = functional.gelu(ts) if self.method.activation == "gelu" else ts  # released code: ledger D6
        return ts if self.scales is None else ts * self.scales(layer)
