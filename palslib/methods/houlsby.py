"""Adapters in series, after attention and after the feed-forward of each layer.

    x + V^D GELU(V^E x)        V^E (d -> m), V^D (m -> d)

Houlsby et al. 2019 (https://arxiv.org/abs/1902.00751), in the forms of the adapters report (one adapter a layer, used
twice; two a layer, with each task's own norms; one for three layers) and of the released code (ledger D9, D15).
"""

import copy
import math
from dataclasses import dataclass
from typing import Literal

from palslib.bert.later import nn
from palslib.methods.adaptation import Adaptation
from palslib.methods.method import Activation, Box, Freeze, Init, Method, Part, Term, check_heads
from palslib.methods.pal import ProjectedAttention, Projection, attention_operations, attention_text, pair_term


@dataclass(frozen=True, kw_only=True)
class Houlsby(Method, kind="houlsby"):
    """Adapters of bottleneck m, on a backbone that is frozen by default."""

    size: int = 64
    """m, the bottleneck."""
    freeze: Freeze = "backbone"
    activation: Activation = "gelu"
    """The activation between the two matrices."""
    init: Init = "identity"
    """`identity`: V^D and its bias start at zero; `normal`: as in the released code (ledger D8)."""
    adapters_per_layer: Literal[1, 2] = 1
    """`1`: one adapter, used at both places of a layer; `2`: one for each place."""
    span: Literal[1, 3] = 1
    """Number of consecutive layers that share their adapters."""
    second: Literal["serial", "parallel", "pal"] = "serial"
    """At the second place: an adapter that reads the feed-forward's output (`serial`); one that reads the attention's
    output and is added (`parallel`, as released; ledger D9); or a `pal` that is added, "Houlsby plus PALs"."""
    pal_size: int = 156
    """s of the PAL at the second place."""
    pal_heads: int = 12
    """Number of the PAL's heads."""
    own_norms: bool = False
    """Whether each task trains its own layer norms."""
    classifier_layers: Literal[1, 2] = 1
    """2 puts a hidden layer of size d before the classifier (ledger A15)."""

    def __post_init__(self):
        super().__post_init__()
        if self.second == "pal" and self.adapters_per_layer == 2:
            raise ValueError(f"second='pal' of {self.name!r} replaces a second adapter: adapters_per_layer must be 1")
        if self.second == "pal":
            check_heads(f"pal_size {self.pal_size} of {self.name!r}", self.pal_size, self.pal_heads)

    def adapted_layers(self, num_layers):
        return range(num_layers)

    def number(self, num_layers: int) -> int:
        """The number of adapters of one task."""
        return math.ceil(num_layers / self.span) * self.adapters_per_layer

    def terms(self, backbone):  # the report also counts biases and norms
        d, m, L, n = backbone.hidden_size, self.size, backbone.num_layers, self.number(backbone.num_layers)
        yield Term("adapters", f"{n} · (2md + d + m)", n * (2 * m * d + d + m))
        if self.second == "pal":
            s = self.pal_size
            yield pair_term(d, s)
            yield Term("query, key, value", f"{L} · 3s²", L * 3 * s * s, extras=L * 3 * s)
        if self.own_norms:
            yield Term("layer norms", f"{2 * L} · 2d", L * 4 * d)
        if self.classifier_layers == 2:
            yield Term("hidden layer of the classifier", "d² + d", d * d + d)

    def operations(self, backbone, tokens):  # an adapter runs at each place of each layer, even if layers share it
        d, L = backbone.hidden_size, backbone.num_layers
        second = tokens * 2 * d * self.size
        if self.second == "pal":
            second = tokens * 2 * d * self.pal_size + attention_operations(self.pal_size, tokens)
        return L * (tokens * 2 * d * self.size + second) + d * d * (self.classifier_layers == 2)

    def parts(self, backbone):
        d, m, owner = backbone.hidden_size, self.size, "task" if self.span > 1 else "layer"
        adapter = Box(f"adapter\n{d}→{m}→{d}", owner)
        yield Part("after attention", (adapter,))
        if self.second == "serial":
            yield Part("after feed-forward", (adapter,))
        elif self.second == "parallel":
            yield Part("beside feed-forward", (adapter,))
        else:
            s, attention = self.pal_size, Box(attention_text(self.pal_size, self.pal_heads))
            down, up = Box(f"$V^E$  {d}→{s}", "task"), Box(f"$V^D$  {s}→{d}", "task")
            yield Part("beside feed-forward", (down, attention, up))
        if self.own_norms:
            yield Part("norms", (Box("own layer norm"),))

    def captions(self, backbone):
        each = "one adapter" if self.adapters_per_layer == 1 else "two adapters"
        places = "layer" if self.span == 1 else f"{self.span} layers"
        yield "task" if self.span > 1 else "layer", f"{each} per task and {places}"
        if self.second == "pal":
            yield "task", "$V^E$, $V^D$: one pair per task, for all its layers"
            yield "layer", "attention: per task and layer"
        if self.own_norms:
            yield "layer", "layer norms: two per task and layer"
        if self.classifier_layers == 2:
            yield "layer", "hidden layer before the head: per task"

    def build(self, encoder, pooler, shared=None):
        return Adapters(self, encoder, pooler)


class Adapters(Adaptation):
    """A task's adapters, and what some forms add: its own norms, a PAL, a hidden layer before the classifier."""

    def __init__(self, method: Houlsby, encoder, pooler):
        super().__init__(method, encoder, pooler)
        config, d = encoder.config, encoder.config.hidden_size
        number = method.number(config.num_hidden_layers)
        self.adapters = nn.ModuleList(Projection(d, method.size, method.activation) for _ in range(number))
        self.own_norms = self.hidden = self.pal = None
        if method.own_norms:
            norms = ((layer.attention.output.LayerNorm, layer.output.LayerNorm) for layer in encoder.encoder.layer)
            self.own_norms = nn.ModuleList(nn.ModuleList(map(copy.deepcopy, both)) for both in norms)
        if method.classifier_layers == 2:
            self.hidden = nn.Sequential(nn.Linear(d, d), nn.Tanh())
        if method.second == "pal":  # "Houlsby plus PALs" of the released code
            self.projection = Projection(d, method.pal_size)
            self.pal = nn.ModuleList(ProjectedAttention(method.pal_size, method.pal_heads, config) for _ in self.layers)

    @property
    def reads_first_alone(self):
        return self.pal is None and super().reads_first_alone  # a PAL reads a at all word pieces

    def copied(self):
        return super().copied() + ([self.own_norms] if self.own_norms is not None else [])

    def adapter(self, layer: int, place: int) -> Projection:
        """The adapter at a layer's first (0) or second (1) place."""
        each = self.method.adapters_per_layer
        return self.adapters[layer // self.method.span * each + min(place, each - 1)]

    def after_attention(self, layer, x):
        return x + self.adapter(layer, 0)(x)

    def after_feed_forward(self, layer, x, a, rows):
        if self.pal is not None:
            v = self.projection
            return x + v.decoder(self.pal[layer](v.encoder(a), rows, layer))
        return x + self.adapter(layer, 1)(a if self.method.second == "parallel" else x)  # ledger D9

    def norms(self, layer):
        return tuple(self.own_norms[layer]) if self.own_norms is not None else None

    def pool(self, first, pooler):
        pooled = super().pool(first, pooler)
        return pooled if self.hidden is None else self.hidden(pooled)
