"""Methods on top of BERT: small layers between V^E and V^D, or one whole BERT layer, for each task.

Stickland & Murray 2019, section 3.2: h = V^D z, with z the output of n small layers on V^E h_L. There is no residual
around them, so the model starts at random, not as BERT; BERT's own layers are computed once for all tasks.
"""

from dataclasses import dataclass
from typing import ClassVar

from palslib.methods.backbone import Backbone
from palslib.methods.method import Box, Init, Method, Part, Term
from palslib.methods.projected import (
    attention_operations,
    attention_text,
    feed_forward_term,
    feed_forward_text,
    feed_forward_weights,
    pair_term,
    scaled_inner,
)


def layer_operations(backbone: Backbone, tokens: int) -> int:
    """Multiply-adds of a BERT layer: S (4d² + 2d·d_ff) in its matrices and 2S² d in its attention."""
    return tokens * backbone.layer_weights + 2 * tokens * tokens * backbone.hidden_size


@dataclass(frozen=True, kw_only=True)
class BertLayerOnTop(Method):
    """One more ordinary BERT layer for each task."""

    kind: ClassVar[str] = "bert-layer-on-top"

    init: Init = "identity"
    """Start of its layer norms: `identity` for gain 1 and shift 0, `normal` as in the released code (ledger D8)."""

    def terms(self, backbone):
        weights = backbone.layer_weights
        yield Term("a BERT layer", "4d² + 2d·d_ff", weights, extras=backbone.layer_parameters - weights)

    def operations(self, backbone, tokens):
        return layer_operations(backbone, tokens)

    def parts(self, backbone):
        sizes = f"{backbone.num_heads} heads, inner size {backbone.intermediate_size}"
        return [Part("on top", (Box(f"one more BERT layer\n{sizes}"),))]

    def captions(self, backbone):
        return [("layer", "one per task")]

    def build(self, encoder, pooler, shared=None):
        from palslib.methods.functions_on_top import OneMoreLayer

        return OneMoreLayer(self, encoder, pooler)


@dataclass(frozen=True, kw_only=True)
class ProjectedOnTop(Method):
    """V^E, `on_top` small layers and V^D; a subclass defines the layers."""

    size: int = 204
    """s, the projected size."""
    on_top: int = 6
    """Number of layers on top of BERT."""
    residual: bool = True
    """Whether there is a residual sum around each of them (ledger C20)."""
    layer_norm: bool = True
    """Whether there is a layer norm after each of them (ledger C20)."""
    init: Init = "identity"
    """Start of the layer norms: `identity` for gain 1 and shift 0, `normal` as in the released code (ledger D8)."""

    @property
    def norm_parameters(self) -> int:
        """Number of gains and shifts of one small layer's norm."""
        return 2 * self.size * self.layer_norm

    def small_layer(self) -> Box:
        """The box of one small layer."""
        raise AttributeError(f"family {type(self).__name__} names no small layer")

    def parts(self, backbone):
        d, s = backbone.hidden_size, self.size
        norm = (Box("layer norm"),) if self.layer_norm else ()
        ends = Box(f"$V^E$  {d}→{s}"), Box(f"$V^D$  {s}→{d}")
        return [Part("on top", ends, (self.small_layer(), *norm), self.on_top, self.residual)]

    def captions(self, backbone):
        return [("layer", "one per task")]


@dataclass(frozen=True, kw_only=True)
class AttentionOnTop(ProjectedOnTop):
    """Small attention layers, which keep an output matrix: 4s² weights each."""

    kind: ClassVar[str] = "attention-on-top"

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

    def build(self, encoder, pooler, shared=None):
        from palslib.methods.functions_on_top import AttentionLayers

        return AttentionLayers(self, encoder, pooler)


@dataclass(frozen=True, kw_only=True)
class FeedForwardOnTop(ProjectedOnTop):
    """Small feed-forward layers s -> inner sizes -> s."""

    kind: ClassVar[str] = "ffn-on-top"

    inner: tuple[int, ...] = (408,)
    """Inner sizes; they scale with a new `size` unless they are given."""

    def with_options(self, **options):
        return super().with_options(**scaled_inner(self, options))

    def terms(self, backbone):
        yield pair_term(backbone.hidden_size, self.size)
        yield feed_forward_term(self, self.on_top, self.norm_parameters)

    def operations(self, backbone, tokens):
        return tokens * (2 * backbone.hidden_size * self.size + self.on_top * feed_forward_weights(self))

    def small_layer(self):
        return Box(feed_forward_text(self))

    def build(self, encoder, pooler, shared=None):
        from palslib.methods.functions_on_top import FeedForwardLayers

        return FeedForwardLayers(self, encoder, pooler)
