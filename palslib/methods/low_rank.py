"""Low-rank layers: a pair of matrices for each layer, beside it or in series.

Stickland & Murray 2019, section 3.3 ("low rank layers", "serial connections"):

    TS(h) = V^D V^E h        2ds weights a layer; in series y + V^D V^E y
"""

from dataclasses import dataclass

from palslib.bert.later import nn
from palslib.methods.adaptation import Adaptation
from palslib.methods.method import Activation, Box, Half, Init, Method, Part, half_of
from palslib.methods.pal import Projection, pair_term


@dataclass(frozen=True, kw_only=True)
class LowRank(Method, kind="low-rank"):
    """V^D V^E h beside each layer."""

    size: int = 100
    """s, the rank."""
    layers: Half = "all"
    activation: Activation = "identity"
    """The activation between the two matrices; `gelu` in the released code (ledger D7)."""
    init: Init = "identity"
    """`identity`: V^D and its bias start at zero; `normal`: as in the released code (ledger D8)."""

    def terms(self, backbone):
        yield pair_term(backbone.hidden_size, self.size, len(self.adapted_layers(backbone.num_layers)))

    def operations(self, backbone, tokens):
        return len(self.adapted_layers(backbone.num_layers)) * tokens * 2 * backbone.hidden_size * self.size

    def parts(self, backbone):
        d, s = backbone.hidden_size, self.size
        return [Part("beside", (Box(f"$V^E$  {d}→{s}"), Box(f"$V^D$  {s}→{d}")))]

    def captions(self, backbone):
        return [("layer", f"$V^E$, $V^D$: a pair {half_of(self.layers)}")]

    def build(self, encoder, pooler, shared=None):
        return LowRankLayers(self, encoder, pooler)


class LowRankLayers(Adaptation):
    """A task's pairs: V^D V^E h, or V^D GELU(V^E h) as released (ledger D7)."""

    def __init__(self, method: LowRank, encoder, pooler):
        super().__init__(method, encoder, pooler)
        d = encoder.config.hidden_size
        self.projections = nn.ModuleDict({str(i): Projection(d, method.size, method.activation) for i in self.layers})

    def parallel(self, layer, h, rows):
        return self.projections[str(layer)](rows.wanted(h))


@dataclass(frozen=True, kw_only=True)
class Serial(LowRank, kind="serial"):
    """y + V^D V^E y after each layer; according to the paper much worse than adding nothing (ledger C8)."""

    def parts(self, backbone):
        return [Part("serial", (Box(f"$V^D V^E$\n{backbone.hidden_size}→{self.size}→{backbone.hidden_size}"),))]

    def build(self, encoder, pooler, shared=None):
        return SerialLayers(self, encoder, pooler)


class SerialLayers(LowRankLayers):
    """A task's pairs, after the layer and not beside it."""

    def parallel(self, layer, h, rows):
        return None

    def after_layer(self, layer, y):
        return y + self.projections[str(layer)](y)
