"""Methods on top of BERT: small layers between V^E and V^D, or one whole BERT layer, for each task.

Stickland & Murray 2019, section 3.2:

    h = V^D z_n        z_0 = V^E h_L, z_i = LN(g(z_{i-1}) + z_{i-1}); g: attention, or a feed-forward network

There is no residual around the whole of this, so the model starts at random, not as BERT. BERT's own layers are
computed once for all tasks.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from palslib.bert.later import Module, drop, nn
from palslib.bert.layer import adapted_layer
from palslib.methods.adaptation import Adaptation
from palslib.methods.feed_forward import Network, WithNetwork
from palslib.methods.method import Box, Init, Method, Part, Term
from palslib.methods.pal import ProjectedAttention, Projection, attention_operations, attention_text, pair_term


@dataclass(frozen=True, kw_only=True)
class BertLayerOnTop(Method, kind="bert-layer-on-top"):
    """One more ordinary BERT layer for each task."""

    init: Init = "identity"
    """How its layer norms start: `identity` for gain 1 and shift 0, `normal` as in the released code (ledger D8)."""

    def terms(self, backbone):
        weights = backbone.layer_weights
        yield Term("a BERT layer", "4d² + 2d·d_ff", weights, extras=backbone.layer_parameters - weights)

    def operations(self, backbone, tokens):
        return backbone.layer_operations(tokens)

    def parts(self, backbone):
        sizes = f"{backbone.num_heads} heads, inner size {backbone.intermediate_size}"
        return [Part("on top", (Box(f"one more BERT layer\n{sizes}"),))]

    def build(self, encoder, pooler, shared=None):
        return OneMoreLayer(self, encoder, pooler)


class OneMoreLayer(Adaptation):
    """A task's BERT layer."""

    starts_as_bert = False

    def __init__(self, method: BertLayerOnTop, encoder, pooler):
        super().__init__(method, encoder, pooler)
        self.number = encoder.config.num_hidden_layers
        self.top_layer = type(encoder.encoder.layer[-1])(encoder.config, layer_idx=self.number)

    def on_top(self, states, rows):
        return adapted_layer(self.top_layer, states[-1], rows, i=self.number)


@dataclass(frozen=True, kw_only=True)
class ProjectedOnTop(Method, ABC):
    """V^E, `on_top` small layers and V^D; a subclass defines the layers."""

    size: int = 204
    """s, the projected size."""
    on_top: int = 6
    """Number of layers on top of BERT."""
    residual: bool = True
    """Whether there is a residual sum around each of these layers (ledger C20)."""
    layer_norm: bool = True
    """Whether there is a layer norm after each of these layers (ledger C20)."""
    init: Init = "identity"
    """How the layer norms start: `identity` for gain 1 and shift 0, `normal` as in the released code (ledger D8)."""

    @property
    def norm_parameters(self) -> int:
        """Number of gains and shifts of one small layer's norm."""
        return 2 * self.size * self.layer_norm

    @abstractmethod
    def small_layer(self) -> Box:
        """The box of one small layer."""

    @abstractmethod
    def make_layer(self, config) -> "SmallLayer":
        """One small layer."""

    def parts(self, backbone):
        d, s = backbone.hidden_size, self.size
        norm = (Box("layer norm"),) if self.layer_norm else ()
        yield Part("on top", (Box(f"$V^E$  {d}→{s}"),))
        yield Part("on top", (self.small_layer(), *norm), self.on_top, self.residual)
        yield Part("on top", (Box(f"$V^D$  {s}→{d}"),))

    def build(self, encoder, pooler, shared=None):
        return SmallLayers(self, encoder, pooler)


class SmallLayer(Module):
    """LN(dropout(g(z)) + z) in the small space; residual and norm can be left out (ledger C20)."""

    def __init__(self, method: ProjectedOnTop, config):
        super().__init__()
        s = method.size
        self.residual, self.dropout = method.residual, config.hidden_dropout_prob
        self.norm = nn.LayerNorm(s, eps=config.layer_norm_eps) if method.layer_norm else nn.Identity()

    def close(self, g, z):
        """LN(dropout(g) + z), for g = g(z); (N, s) to (N, s)."""
        g = drop(g, self.dropout, self.training)
        return self.norm(g + z if self.residual else g)


class SmallLayers(Adaptation):
    """A task's V^E, small layers and V^D."""

    starts_as_bert = False

    def __init__(self, method: ProjectedOnTop, encoder, pooler):
        super().__init__(method, encoder, pooler)
        self.first = encoder.config.num_hidden_layers  # the small layers' numbers continue BERT's
        self.projection = Projection(encoder.config.hidden_size, method.size)
        self.top_layers = nn.ModuleList(method.make_layer(encoder.config) for _ in range(method.on_top))

    def on_top(self, states, rows):
        z = self.projection.encoder(states[-1])
        for i, layer in enumerate(self.top_layers, self.first):
            z = layer(z, rows, i)
        return self.projection.decoder(z)


@dataclass(frozen=True, kw_only=True)
class AttentionOnTop(ProjectedOnTop, kind="attention-on-top"):
    """Small attention layers, which keep an output matrix: 4s² weights each."""

    heads: int = 12
    """Number of attention heads; s is a multiple of it."""

    def terms(self, backbone):
        n, s = self.on_top, self.size
        yield pair_term(backbone.hidden_size, s)
        extras = n * (4 * s + self.norm_parameters)
        yield Term("query, key, value, output", f"{n} · 4s²", n * 4 * s * s, extras=extras)

    def operations(self, backbone, tokens):
        s, output = self.size, tokens * self.size**2
        return tokens * 2 * backbone.hidden_size * s + self.on_top * (attention_operations(s, tokens) + output)

    def small_layer(self):
        return Box(attention_text(self.size, self.heads))

    def make_layer(self, config):
        return SmallAttention(self, config)


class SmallAttention(SmallLayer):
    """A small layer whose g is attention; it keeps BERT's output matrix."""

    def __init__(self, method, config):
        super().__init__(method, config)
        self.attention = ProjectedAttention(method.size, method.heads, config)
        self.output = nn.Linear(method.size, method.size)

    def forward(self, z, rows, layer: int):
        """z (N, s) to (N, s); `layer` is its number, following those of BERT's layers."""
        return self.close(self.output(self.attention(z, rows, layer)), z)


@dataclass(frozen=True, kw_only=True)
class FeedForwardOnTop(WithNetwork, ProjectedOnTop, kind="ffn-on-top"):
    """Small feed-forward layers s -> inner sizes -> s."""

    inner: tuple[int, ...] = (408,)
    """Inner sizes; they scale with a new `size` unless they are given."""

    def terms(self, backbone):
        yield pair_term(backbone.hidden_size, self.size)
        yield self.network_term(self.on_top, self.norm_parameters)

    def operations(self, backbone, tokens):
        return tokens * (2 * backbone.hidden_size * self.size + self.on_top * self.network_weights)

    def small_layer(self):
        return Box(self.network_text)

    def make_layer(self, config):
        return SmallFeedForward(self, config)


class SmallFeedForward(SmallLayer):
    """A small layer whose g is a feed-forward network."""

    def __init__(self, method, config):
        super().__init__(method, config)
        self.feed_forward = Network(method.network_sizes, config)

    def forward(self, z, rows, layer: int):
        """z (N, s) to (N, s)."""
        return self.close(self.feed_forward(z), z)
