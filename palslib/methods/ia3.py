"""(IA)³: vectors that scale keys, values and the inner activation. Not in the paper: it is what one would use today.

Liu et al. 2022 (https://arxiv.org/abs/2205.05638), section 3.3:

    l_k · k,  l_v · v,  l_ff · GELU(W₁ a)        2d + d_ff numbers a layer, which start at one
"""

from dataclasses import dataclass

from palslib.bert.later import nn, torch
from palslib.methods.adaptation import Adaptation
from palslib.methods.method import Box, Freeze, Half, Method, Part, Term


@dataclass(frozen=True, kw_only=True)
class IA3(Method, kind="ia3"):
    """Keys, values and the inner activation of each layer, each multiplied by a vector."""

    layers: Half = "all"
    freeze: Freeze = "backbone"
    """As published; `nothing` trains BERT too, as PALs do."""

    def terms(self, backbone):
        d, d_ff = backbone.hidden_size, backbone.intermediate_size
        n = len(self.adapted_layers(backbone.num_layers))
        yield Term("scales", f"{n} (2d + d_ff)", n * (2 * d + d_ff))

    def parts(self, backbone):
        yield Part("attention", (Box("scale $k$, $v$"),))
        yield Part("inner", (Box("scale"),))

    def build(self, encoder, pooler, shared=None):
        return Rescaled(self, encoder, pooler)


class Rescaled(Adaptation):
    """A task's vectors."""

    def __init__(self, method: IA3, encoder, pooler):
        super().__init__(method, encoder, pooler)
        d, d_ff = encoder.config.hidden_size, encoder.config.intermediate_size
        sizes = {"k": d, "v": d, "ff": d_ff}
        ones = {f"{name}{i}": nn.Parameter(torch.ones(n)) for i in self.layers for name, n in sizes.items()}
        self.scales = nn.ParameterDict(ones)

    def key(self, layer, k, h):
        return k * self.scales[f"k{layer}"]

    def value(self, layer, v, h):
        return v * self.scales[f"v{layer}"]

    def inner(self, layer, x, a):
        return x * self.scales[f"ff{layer}"]
