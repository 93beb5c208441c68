"""Learning hidden unit contributions: y · 2σ(w), a learned scale for each hidden unit of each layer.

Stickland & Murray 2019, section 2.2, after Swietojanski & Renals 2014: L·d parameters.
"""

from dataclasses import dataclass
from typing import ClassVar

from palslib.methods.method import Box, Half, Method, Part, Term, half_of


@dataclass(frozen=True, kw_only=True)
class LHUC(Method):
    """y · 2σ(w) after each layer; w starts at zero, so that the scale is one."""

    kind: ClassVar[str] = "lhuc"

    layers: Half = "all"
    """Which layers are adapted: `all`, the `top` half or the `bottom` half."""

    def terms(self, backbone):
        n = len(self.adapted_layers(backbone.num_layers))
        yield Term("scales", f"{n}d", n * backbone.hidden_size)

    def parts(self, backbone):
        return [Part("scale", (Box(f"scale by $2\\sigma(w)$\n{backbone.hidden_size} numbers"),))]

    def captions(self, backbone):
        return [("layer", f"$w$: {half_of(self.layers)}")]

    def build(self, encoder, pooler, shared=None):
        from palslib.methods.functions import Scales

        return Scales(self, encoder, pooler)
