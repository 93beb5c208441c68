"""Feed-forward networks in the place of a PAL's attention.

Stickland & Murray 2019, section 3.3:

    TS(h) = V^D FFN(V^E h)        FFN: s -> inner sizes -> s, with BERT's activation in between

V^E and V^D are those of `pal.py`. The same networks stand on top of BERT in `on_top.py`.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

from palslib.bert.later import Module, activations, nn
from palslib.methods.method import MOST, Term
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
        """z (N, s) to (N, s)."""
        for part in self.children():
            z = part(z)
        return z


def network_sizes(method) -> tuple[int, ...]:
    """The sizes of a method's network: s, the inner sizes, s."""
    return (method.size, *method.inner, method.size)


def network_weights(method) -> int:
    """The number of weights of one network, without biases."""
    return sum(a * b for a, b in pairwise(network_sizes(method)))


def network_term(method, layers: int, norm: int = 0) -> Term:
    """The term of the networks of `layers` layers, each with a layer norm of `norm` parameters."""
    sizes = network_sizes(method)
    formula = " + ".join(f"{a}·{b}" for a, b in pairwise(sizes))
    extras = layers * (sum(sizes[1:]) + norm)
    return Term("feed-forward", f"{layers} · ({formula})", layers * network_weights(method), extras=extras)


def network_text(method) -> str:
    """The text of a network's box."""
    return "feed-forward\n" + "→".join(map(str, network_sizes(method)))


def scaled_inner(method, options: dict) -> dict:
    """The options, with inner sizes that scale with a new `size` unless they are given."""
    size = options.get("size")
    if "inner" not in options and isinstance(size, int) and 1 <= size <= MOST:  # any other is refused by name
        options["inner"] = tuple(round(i * size / method.size) for i in method.inner)
    return options


@dataclass(frozen=True, kw_only=True)
class FeedForward(Projected, kind="ffn"):
    """A feed-forward network in each layer; its module is `pal.ProjectedWithin`, with a `Network` for g."""

    inner: tuple[int, ...] = (306,)
    """Inner sizes; they scale with a new `size` unless they are given."""

    def with_options(self, **options):
        return super().with_options(**scaled_inner(self, options))

    def terms(self, backbone):
        n = len(self.adapted_layers(backbone.num_layers))
        yield self.projections(backbone)
        yield replace(network_term(self, n), owner=self.owners[1])

    def operations(self, backbone, tokens):
        n = len(self.adapted_layers(backbone.num_layers))
        return tokens * n * (2 * backbone.hidden_size * self.size + network_weights(self))

    def parts(self, backbone):
        return [self.beside(backbone, network_text(self))]

    def captions(self, backbone):
        return self.captions_for("feed-forward")

    def make_function(self, config):
        return Network(network_sizes(self), config)

    def build(self, encoder, pooler, shared=None):
        return ProjectedWithin(self, encoder, pooler, shared)
