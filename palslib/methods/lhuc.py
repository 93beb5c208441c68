"""Learning hidden unit contributions: a learned scale for each hidden unit of each layer.

Stickland & Murray 2019, section 2.2, after Swietojanski & Renals 2014: y · 2σ(w), L·d parameters. w starts at zero, so
every scale starts at one.
"""

from dataclasses import dataclass

from palslib.bert.later import Module, nn, torch
from palslib.methods.adaptation import Adaptation
from palslib.methods.method import Box, Half, Method, Part, Term


@dataclass(frozen=True, kw_only=True)
class LHUC(Method, kind="lhuc"):
    """y · 2σ(w) after each layer."""

    layers: Half = "all"
    """Which layers are adapted: `all`, the `top` half or the `bottom` half."""

    def terms(self, backbone):
        n = len(self.adapted_layers(backbone.num_layers))
        yield Term("scales", f"{n}d", n * backbone.hidden_size)

    def parts(self, backbone):
        return [Part("scale", (Box(f"scale by $2\\sigma(w)$\n{backbone.hidden_size} numbers"),))]

    def build(self, encoder, pooler, shared=None):
        return Scales(self, encoder, pooler)


class Vectors(Module):
    """The vectors w (d,) of the layers; the released code applies weight decay to them (ledger D15)."""

    def __init__(self, layers, d: int):
        super().__init__()
        for i in layers:
            self.register_parameter(str(i), nn.Parameter(torch.zeros(d)))

    def forward(self, layer: int):
        """A layer's scale 2σ(w), (d,)."""
        return 2 * torch.sigmoid(getattr(self, str(layer)))


class Scales(Adaptation):
    """A task's scales."""

    def __init__(self, method: LHUC, encoder, pooler):
        super().__init__(method, encoder, pooler)
        self.scales = Vectors(self.layers, encoder.config.hidden_size)

    def after_layer(self, layer, y):
        return y * self.scales(layer)
