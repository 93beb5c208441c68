"""Feed-forward networks in the place of a PAL's attention.

Stickland & Murray 2019, section 3.3:

    TS(h) = V^D FFN(V^E h)        FFN: s -> inner sizes -> s, with BERT's activation in between

V^E and V^D are those of `pal.py`. `on_top.py` uses the same networks on top of BERT.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

from palslib.bert.later import Module, activations, nn
from palslib.methods.method import Term
from palslib.methods.pal import Projected, ProjectedWithin


class Network(Module):
    """A feed-forward network s -> inner sizes -> s."""

    def __init__(self, sizes: tuple[int, ...], config):
        super().__init__()
        linears = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        between = [part for linear in linears[:-1] for part in (linear, activations.ACT2FN[config.hidden_act])]
        for i, part in enumerate([*between, linears[-1]]):
            self.add_module(str(i), part)

    def forward(self, z, rows=None, layer: int = 0):
        """z (N, s) to (N, s), or of [CLS] alone (B, s)."""
        z = z if rows is None else rows.wanted(z)
        for part in self.children():
            z = part(z)
        return z


class WithNetwork:
    """What methods with a network in the small space have in common."""

    size: int
    inner: tuple[int, ...]

    @property
    def network_sizes(self) -> tuple[int, ...]:
        """The sizes of a network: s, the inner sizes, s."""
        return (self.size, *self.inner, self.size)

    @property
    def network_weights(self) -> int:
        """The number of weights of one network, without biases."""
        return sum(a * b for a, b in pairwise(self.network_sizes))

    @property
    def network_text(self) -> str:
        """The text of a network's box."""
        return "feed-forward\n" + "→".join(map(str, self.network_sizes))

    def network_term(self, layers: int, norm: int = 0, owner: str = "task") -> Term:
        """The term of the networks of `layers` layers, each with a layer norm of `norm` parameters."""
        formula = " + ".join(f"{a}·{b}" for a, b in pairwise(self.network_sizes))
        extras = layers * (sum(self.network_sizes[1:]) + norm)
        return Term("feed-forward", f"{layers} · ({formula})", layers * self.network_weights, owner, extras)

    def with_options(self, **options):
        changed = super().with_options(**options)
        scaled = tuple(max(1, round(i * changed.size / self.size)) for i in self.inner)
        return changed if "inner" in options else replace(changed, inner=scaled)


@dataclass(frozen=True, kw_only=True)
class FeedForward(WithNetwork, Projected, kind="ffn"):
    """A feed-forward network in each layer; its module is `pal.ProjectedWithin`, with a `Network` as g."""

    inner: tuple[int, ...] = (306,)
    """Inner sizes; they scale with a new `size` unless they are given."""

    def terms(self, backbone):
        yield self.projections(backbone)
        yield self.network_term(len(self.adapted_layers(backbone.num_layers)), owner=self.owners[1])

    def operations(self, backbone, tokens):
        n = len(self.adapted_layers(backbone.num_layers))
        return tokens * n * (2 * backbone.hidden_size * self.size + self.network_weights)

    def parts(self, backbone):
        return [self.beside(backbone, self.network_text)]

    def captions(self, backbone):
        return self.captions_for("feed-forward")

    def make_function(self, config):
        return Network(self.network_sizes, config)

    def build(self, encoder, pooler, shared=None):
        return ProjectedWithin(self, encoder, pooler, shared)
