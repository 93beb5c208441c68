"""LoRA: low-rank updates of queries and values. Not in the paper: it is what one would use today.

Hu et al. 2021 (https://arxiv.org/abs/2106.09685), section 4:

    q + B A h,  v + B A h        4dr weights a layer; B starts at zero

The published factor α / r is 1 here: `adaptation_rate` takes its place.
"""

from dataclasses import dataclass

from palslib.bert.later import nn
from palslib.methods.adaptation import Adaptation
from palslib.methods.method import Box, Freeze, Half, Method, Part, Term


@dataclass(frozen=True, kw_only=True)
class LoRA(Method, kind="lora"):
    """B A h, added to the queries and to the values of each layer."""

    size: int = 8
    """r, the rank."""
    layers: Half = "all"
    freeze: Freeze = "backbone"
    """As published; `nothing` trains BERT too, as PALs do."""

    def terms(self, backbone):
        n = 2 * len(self.adapted_layers(backbone.num_layers))
        yield Term("A and B", f"{n} · 2dr", n * 2 * backbone.hidden_size * self.size)

    def operations(self, backbone, tokens):
        return tokens * sum(term.value for term in self.terms(backbone))

    def parts(self, backbone):
        yield Part("attention", (Box(f"$BA$ on $q$, $v$\nrank {self.size}"),), residual=True)

    def build(self, encoder, pooler, shared=None):
        return LowRankUpdates(self, encoder, pooler)


class LowRankUpdates(Adaptation):
    """A task's pairs, A (d -> r) and B (r -> d), without biases."""

    def __init__(self, method: LoRA, encoder, pooler):
        super().__init__(method, encoder, pooler)
        d, r = encoder.config.hidden_size, method.size
        self.pairs = nn.ModuleDict()
        for name in (f"{x}{i}" for i in self.layers for x in "qv"):
            a, b = nn.Linear(d, r, bias=False), nn.Linear(r, d, bias=False)
            nn.init.zeros_(b.weight)
            self.pairs[name] = nn.Sequential(a, b)

    def query(self, layer, q, h):
        return q + self.pairs[f"q{layer}"](h)

    def value(self, layer, v, h):
        return v + self.pairs[f"v{layer}"](h)

    def merge(self, layers):
        if type(self) is not LowRankUpdates:  # a class of your own may change more: this refuses it
            return super().merge(layers)
        for name, (a, b) in self.pairs.items():
            attention = layers[int(name[1:])].attention.self
            matrix = attention.query if name.startswith("q") else attention.value
            matrix.weight.data += b.weight @ a.weight
