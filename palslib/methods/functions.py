"""The task functions TS: what one task adds to BERT, each a small class.

Stickland & Murray 2019, sections 2 and 3 (https://arxiv.org/abs/1902.02671). `model.AdaptedLayer` calls five places;
a class here fills one or two of them, and the others stay the identity:

    TS(h) = V^D g(V^E h)      g: multi-head attention (PAL), feed-forward network, or nothing (low rank)

V^E (d -> s) is `encoder`, V^D (s -> d) `decoder`. One module holds all of one task's parameters, for all layers.
Within layers V^D starts at zero, so that the model starts as BERT. What goes on top of BERT is in `on_top.py`.
"""

import copy
import itertools
import math

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bert.modeling_bert import eager_attention_forward

from palslib.methods.table import Method


class Adaptation(nn.Module):
    """The places that a task function can fill. As it stands it adds nothing (`shared`)."""

    needs_all_layers = False
    """Whether `on_top` reads all layers' outputs, not only the last one's."""

    def __init__(self, method: Method, encoder: nn.Module, pooler: nn.Module, shared: nn.Module | None = None):
        super().__init__()
        self.method, self.layers = method, method.adapted_layers(encoder.config.num_hidden_layers)
        self.pooler = copy.deepcopy(pooler) if method.pooler == "per-task" else None

    def after_attention(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        """A₁, on the attention's output before its residual sum; (B, S, d) to (B, S, d)."""
        return x

    def after_feed_forward(self, layer: int, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """A₂, on the feed-forward's output before its residual sum; `attended` is the feed-forward's input."""
        return x

    def parallel(self, layer: int, h: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor | None:
        """TS(h), added to the second residual sum; `h` is the layer's input. None adds nothing."""
        return None

    def after_layer(self, layer: int, y: torch.Tensor) -> torch.Tensor:
        """On the layer's output: LHUC's scale, or a serial task function."""
        return y

    def on_top(self, states: tuple[torch.Tensor, ...], mask: torch.Tensor | None) -> torch.Tensor:
        """After the last layer; `states` ends with its output."""
        return states[-1]

    def norms(self, layer: int) -> tuple[nn.Module, nn.Module] | None:
        """The task's own layer norms after attention and feed-forward, in place of the layer's."""
        return None

    def pool(self, states: torch.Tensor, pooler: nn.Module) -> torch.Tensor:
        """(B, S, d) to (B, d), by the task's own pooler where it has one."""
        return (self.pooler or pooler)(states)


class Projection(nn.Module):
    """V^E and V^D, with what stands between them and after them given at the call."""

    def __init__(self, d: int, s: int):
        super().__init__()
        self.encoder = nn.Linear(d, s)
        self.decoder = nn.Linear(s, d)


def make_projections(method: Method, config) -> nn.ModuleList:
    """The pairs V^E, V^D that a task, or all tasks together, own: one, or one for each adapted layer."""
    pairs = 1 if method.sharing.startswith("layers") else len(method.adapted_layers(config.num_hidden_layers))
    return nn.ModuleList(Projection(config.hidden_size, method.size) for _ in range(pairs))


class ProjectedAttention(nn.Module):
    """Multi-head attention in the small space, without an output matrix: V^D takes its part (section 3.1)."""

    is_causal = False  # else sdpa takes a `None` mask for a causal one

    def __init__(self, s: int, heads: int, config):
        super().__init__()
        self.config, self.heads, self.scaling = config, heads, (s // heads) ** -0.5
        self.dropout = config.attention_probs_dropout_prob
        self.qkv = nn.Linear(s, 3 * s)  # one product for query, key and value

    def forward(self, z: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """z (B, S, s) to (B, S, s), and the attention weights (B, heads, S, S) where the backbone's attention is
        `eager`. The mask is whatever the backbone's layers got: boolean, additive or None."""
        qkv = self.qkv(z).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)  # (B, heads, 3, S, s/heads)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        dropout = self.dropout if self.training else 0.0
        context, weights = attend(self, *qkv.unbind(2), mask, dropout=dropout, scaling=self.scaling)
        return context.flatten(-2), weights  # (B, S, heads, s/heads) to (B, S, s)


class FeedForward(nn.Sequential):
    """s -> inner sizes -> s with the backbone's activation between."""

    def __init__(self, s: int, inner: tuple[int, ...], config):
        sizes = (s, *inner, s)
        linears = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
        between = [part for linear in linears[:-1] for part in (linear, ACT2FN[config.hidden_act])]
        super().__init__(*between, linears[-1])


class ProjectedWithin(Adaptation):
    """V^D g(V^E h) beside the feed-forward, with V^E and V^D shared by layers, by tasks, by both or by nothing."""

    def __init__(self, method, encoder, pooler, shared=None):
        super().__init__(method, encoder, pooler)
        config = encoder.config
        # What tasks share, the model owns; in a tuple it is not registered a second time here.
        self._shared = (shared,)
        self.projections = None if shared else make_projections(method, config)
        self.functions = nn.ModuleDict({str(i): self.make_function(config) for i in self.layers})

    def make_function(self, config) -> nn.Module:
        """The g of one layer."""
        return FeedForward(self.method.size, self.method.inner, config)

    def projection(self, layer: int) -> Projection:
        """The V^E and V^D of a layer."""
        pairs = self.projections or self._shared[0]
        return pairs[layer - self.layers.start] if len(pairs) > 1 else pairs[0]

    def parallel(self, layer, h, mask):
        if layer not in self.layers:
            return None
        v = self.projection(layer)
        return v.decoder(self.functions[str(layer)](v.encoder(h)))


class PAL(ProjectedWithin):
    """Projected attention layer: TS(h) = V^D MH(V^E h), equation 6 and section 3.3."""

    def make_function(self, config) -> nn.Module:
        return ProjectedAttention(self.method.size, self.method.heads, config)

    def parallel(self, layer, h, mask):
        if layer not in self.layers:
            return None
        v = self.projection(layer)
        context, _ = self.functions[str(layer)](v.encoder(h), mask)
        y = v.decoder(context)
        return ACT2FN["gelu"](y) if self.method.activation == "gelu" else y  # released code: ledger D6


class LowRank(Adaptation):
    """TS(h) = V^D V^E h, one pair for each layer (section 3.3, "low rank layers")."""

    def __init__(self, method, encoder, pooler, shared=None):
        super().__init__(method, encoder, pooler)
        d = encoder.config.hidden_size
        self.projections = nn.ModuleDict({str(i): Projection(d, method.size) for i in self.layers})

    def low_rank(self, layer: int, h: torch.Tensor) -> torch.Tensor:
        """V^D V^E h, or V^D GELU(V^E h) as in the released code (ledger D7)."""
        v = self.projections[str(layer)]
        z = v.encoder(h)
        return v.decoder(ACT2FN["gelu"](z) if self.method.activation == "gelu" else z)

    def parallel(self, layer, h, mask):
        return self.low_rank(layer, h) if layer in self.layers else None


class Serial(LowRank):
    """y + TS(y): the low-rank function after the layer, not beside it (section 3.2, "serial connections")."""

    def parallel(self, layer, h, mask):
        return None

    def after_layer(self, layer, y):
        return y + self.low_rank(layer, y) if layer in self.layers else y


class LHUC(Adaptation):
    """y · 2σ(w), a learned scale for each hidden unit (section 2.1; Swietojanski & Renals 2014)."""

    def __init__(self, method, encoder, pooler, shared=None):
        super().__init__(method, encoder, pooler)
        d = encoder.config.hidden_size
        self.scales = nn.ParameterDict({str(i): nn.Parameter(torch.zeros(d)) for i in self.layers})

    def after_layer(self, layer, y):
        return y * (2 * torch.sigmoid(self.scales[str(layer)])) if layer in self.layers else y


class Houlsby(Adaptation):
    """x + V^D GELU(V^E x) after attention and after the feed-forward (Houlsby et al. 2019), in the three forms of the
    adapters report: one adapter a layer used twice, two a layer with own norms, one for three consecutive layers."""

    def __init__(self, method, encoder, pooler, shared=None):
        super().__init__(method, encoder, pooler)
        config = encoder.config
        number = math.ceil(config.num_hidden_layers / method.span) * method.adapters_per_layer
        self.adapters = nn.ModuleList(Projection(config.hidden_size, method.size) for _ in range(number))
        self.own_norms = None
        if method.own_norms:
            self.own_norms = nn.ModuleList(
                nn.ModuleList(
                    copy.deepcopy(norm) for norm in (layer.attention.output.LayerNorm, layer.output.LayerNorm)
                )
                for layer in encoder.encoder.layer
            )
        d = config.hidden_size
        self.hidden = nn.Sequential(nn.Linear(d, d), nn.Tanh()) if method.classifier_layers == 2 else None

    def adapter(self, layer: int, place: int, x: torch.Tensor) -> torch.Tensor:
        """V^D GELU(V^E x) of a layer's first (0) or second (1) place."""
        each = self.method.adapters_per_layer
        v = self.adapters[layer // self.method.span * each + min(place, each - 1)]
        z = v.encoder(x)
        return v.decoder(ACT2FN["gelu"](z) if self.method.activation == "gelu" else z)

    def after_attention(self, layer, x):
        return x + self.adapter(layer, 0, x)

    def after_feed_forward(self, layer, x, attended):
        return x + self.adapter(layer, 1, attended if self.method.second == "parallel" else x)  # ledger D9

    def norms(self, layer):
        return tuple(self.own_norms[layer]) if self.own_norms else None

    def pool(self, states, pooler):
        pooled = super().pool(states, pooler)
        return self.hidden(pooled) if self.hidden else pooled
