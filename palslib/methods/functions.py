"""The task functions TS as modules: one module holds all that a task adds to BERT, for all layers.

Stickland & Murray 2019, sections 2.2 and 3.1 to 3.3 (https://arxiv.org/abs/1902.02671). `bert/layer.py` names the
places that an `Adaptation` can fill; a class here fills one or two of them, and the others stay the identity:

    TS(h) = V^D g(V^E h)      g: multi-head attention (PAL), feed-forward network, or nothing (low rank)

V^E (d -> s) is `encoder`, V^D (s -> d) `decoder`. Within layers V^D starts at zero, so that the model starts as BERT.
Modules on top of BERT are in `functions_on_top.py`.
"""

import copy
import itertools

import torch
from torch import nn
from torch.nn import functional
from transformers.activations import ACT2FN

from palslib.bert.attention import attend
from palslib.bert.layer import Places
from palslib.bert.rows import Rows


class Adaptation(nn.Module, Places):
    """One task's own parameters under a method. This base class adds nothing (method `shared`)."""

    starts_as_bert = True
    """Whether V^D starts at zero (unless the method's `init` is `normal`); on top of BERT all outputs would be zero."""

    def __init__(self, method, encoder: nn.Module, pooler: nn.Module):
        super().__init__()
        self.method, self.layers = method, method.adapted_layers(encoder.config.num_hidden_layers)
        acts = [n for n, plain in vars(Places).items() if callable(plain) and getattr(type(self), n) != plain]
        if acts and not method.adapted_layers(2):
            raise ValueError(
                f"{type(self).__name__} of method {method.name!r} has {', '.join(acts)} within layers, but its family "
                "adapts none: give that a field `layers: Half = 'all'`, or an `adapted_layers` of its own"
            )
        self.pooler = copy.deepcopy(pooler) if method.pooler == "per-task" else None

    def on_top(self, states: tuple[torch.Tensor, ...], rows: Rows) -> torch.Tensor:
        """The output (N, d) after the last layer; `states`, each (N, d), ends with the last layer's output."""
        return states[-1]

    def pool(self, first: torch.Tensor, pooler: nn.Module) -> torch.Tensor:
        """The pooled states (B, d) of each row's first word piece, [CLS] (B, d), by the task's own pooler, if any."""
        return (self.pooler or pooler)(first[:, None])  # a pooler expects (B, S, d) and reads the first piece

    def copied(self) -> list[nn.Module]:
        """The parts that start as copies of the backbone's and are not drawn at random."""
        return [self.pooler] if self.pooler is not None else []

    def draw(self, std: float) -> "Adaptation":
        """Draws added parameters: matrices N(0, std), unless they are of zeros, biases 0, norms 1 and 0; V^D zero
        within layers (ledger D8). A family of your own may draw them otherwise by overriding this."""
        initialise(self, std, getattr(self.method, "init", "identity"), self.starts_as_bert, self.copied())
        return self


@torch.no_grad()
def initialise(module: nn.Module, std: float, init: str, starts_as_bert: bool, copied=()) -> None:
    """Draws a module's matrices N(0, std) from torch's global random state, except those of `copied` parts."""
    kept = {id(p) for part in copied for p in part.parameters()}
    for part in module.modules():
        if isinstance(part, nn.Linear) and id(part.weight) not in kept:
            if part.weight.is_meta or part.weight.any():  # `nn.Linear` draws no zeros: its author meant them
                part.weight.normal_(0, std)
            if part.bias is not None:
                part.bias.zero_()
        elif isinstance(part, nn.LayerNorm) and init == "normal" and id(part.weight) not in kept:
            for parameter in part.parameters():
                parameter.normal_(0, std)
    if starts_as_bert and init == "identity":
        for part in module.modules():
            if isinstance(part, Projection):
                part.decoder.weight.zero_()


class Projection(nn.Module):
    """A pair V^E, V^D; its output is V^D V^E x, with an activation between the two if one is given."""

    def __init__(self, d: int, s: int, activation: str = "identity"):
        super().__init__()
        self.encoder = nn.Linear(d, s)
        self.decoder = nn.Linear(s, d)
        self.activation = functional.gelu if activation == "gelu" else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.activation(self.encoder(x)))


def make_projections(method, config) -> nn.ModuleList:
    """The pairs V^E, V^D that a task owns, or that all tasks share: one, or one for each adapted layer."""
    return nn.ModuleList(
        Projection(config.hidden_size, method.size) for _ in range(method.pairs(config.num_hidden_layers))
    )


class ProjectedAttention(nn.Module):
    """Multi-head attention in the small space, without an output matrix: V^D takes its place (paper 3.3)."""

    def __init__(self, s: int, heads: int, config):
        super().__init__()
        self.config, self.heads, self.dropout = config, heads, config.attention_probs_dropout_prob
        self.qkv = nn.Linear(s, 3 * s)  # one product for query, key and value

    def forward(self, z: torch.Tensor, rows: Rows, layer: int) -> torch.Tensor:
        """z (N, s) to the context (N, s)."""
        q, k, v = self.qkv(z).chunk(3, dim=-1)
        q = rows.look("task query", layer, q)
        dropout, see = self.dropout if self.training else 0.0, rows.watch("task attention", layer)
        context = attend(q, k, v, rows, self.heads, dropout, self.config._attn_implementation, see)
        return rows.look("task context", layer, context)


class FeedForward(nn.Sequential):
    """A feed-forward network s -> inner sizes -> s, with the backbone's activation in between."""

    def __init__(self, s: int, inner: tuple[int, ...], config):
        linears = [nn.Linear(a, b) for a, b in itertools.pairwise((s, *inner, s))]
        between = [part for linear in linears[:-1] for part in (linear, ACT2FN[config.hidden_act])]
        super().__init__(*between, linears[-1])

    def forward(self, z: torch.Tensor, rows: Rows | None = None, layer: int = 0) -> torch.Tensor:
        """z (N, s) to (N, s)."""
        return super().forward(z)


def make_functions(method, config) -> nn.ModuleDict:
    """The functions g, one for each adapted layer."""
    layers = method.adapted_layers(config.num_hidden_layers)
    return nn.ModuleDict({str(i): method.make_function(config) for i in layers})


class SharedByTasks(nn.Module):
    """What all tasks share of V^D g(V^E h): the pairs V^E, V^D and, where they share everything, the functions g."""

    def __init__(self, method, config):
        super().__init__()
        self.projections = make_projections(method, config)
        self.functions = make_functions(method, config) if method.owners[1] == "tasks" else None


class ProjectedWithin(Adaptation):
    """V^D g(V^E h) beside the feed-forward, with V^E and V^D shared by layers, by tasks, by both or by neither, or
    with everything shared by tasks: then a task owns nothing here."""

    def __init__(self, method, encoder, pooler, shared: SharedByTasks | None = None):
        super().__init__(method, encoder, pooler)
        pairs, functions = method.owners
        self.projections = make_projections(method, encoder.config) if pairs == "task" else None
        self.functions = make_functions(method, encoder.config) if functions == "task" else None
        object.__setattr__(self, "shared", shared)  # owned by the model, so not registered here again

    def projection(self, layer: int) -> Projection:
        """The pair V^E, V^D of a layer."""
        pairs = self.shared.projections if self.projections is None else self.projections
        return pairs[layer - self.layers.start] if len(pairs) > 1 else pairs[0]

    def function(self, layer: int) -> nn.Module:
        """The function g of a layer."""
        return (self.shared.functions if self.functions is None else self.functions)[str(layer)]

    def parallel(self, layer, h, rows):
        v = self.projection(layer)
        return v.decoder(self.function(layer)(v.encoder(h), rows, layer))


class PALs(ProjectedWithin):
    """Projected attention layers: TS(h) = V^D MH(V^E h) (paper 3.3)."""

    def __init__(self, method, encoder, pooler, shared=None):
        super().__init__(method, encoder, pooler, shared)
        self.scales = Scales.make(self.layers, encoder.config) if method.scaled else None

    def parallel(self, layer, h, rows):
        ts = super().parallel(layer, h, rows)
        ts = functional.gelu(ts) if self.method.activation == "gelu" else ts  # released code: ledger D6
        return ts if self.scales is None else ts * (2 * torch.sigmoid(self.scales[str(layer)]))


class LowRankLayers(Adaptation):
    """TS(h) = V^D V^E h, one pair for each layer (paper 3.3), or V^D GELU(V^E h) as released (ledger D7)."""

    def __init__(self, method, encoder, pooler):
        super().__init__(method, encoder, pooler)
        d = encoder.config.hidden_size
        self.projections = nn.ModuleDict({str(i): Projection(d, method.size, method.activation) for i in self.layers})

    def parallel(self, layer, h, rows):
        return self.projections[str(layer)](h)


class SerialLayers(LowRankLayers):
    """y + TS(y): the low-rank function after the layer, not beside it (paper 3.3, "serial connections")."""

    def parallel(self, layer, h, rows):
        return None

    def after_layer(self, layer, y):
        return y + self.projections[str(layer)](y)


class Vectors(nn.ParameterDict):
    """LHUC's w by layer; a type of its own, because the released code applies weight decay to them (ledger D15)."""


class Scales(Adaptation):
    """LHUC: y · 2σ(w), a learned scale for each hidden unit (paper 2.2; Swietojanski & Renals 2014)."""

    def __init__(self, method, encoder, pooler):
        super().__init__(method, encoder, pooler)
        self.scales = self.make(self.layers, encoder.config)

    @staticmethod
    def make(layers, config) -> "Vectors":
        """The vectors w = 0 of all layers, so that every scale is one."""
        return Vectors({str(i): nn.Parameter(torch.zeros(config.hidden_size)) for i in layers})

    def after_layer(self, layer, y):
        return y * (2 * torch.sigmoid(self.scales[str(layer)]))


class Adapters(Adaptation):
    """x + V^D GELU(V^E x) after attention and after the feed-forward (Houlsby et al. 2019), in the forms that
    `methods/houlsby.py` names."""

    def __init__(self, method, encoder, pooler):
        super().__init__(method, encoder, pooler)
        config, d = encoder.config, encoder.config.hidden_size
        number = method.number(config.num_hidden_layers)
        self.adapters = nn.ModuleList(Projection(d, method.size, method.activation) for _ in range(number))
        self.own_norms = self.hidden = self.pal = None
        if method.own_norms:
            norms = ((layer.attention.output.LayerNorm, layer.output.LayerNorm) for layer in encoder.encoder.layer)
            self.own_norms = nn.ModuleList(nn.ModuleList(map(copy.deepcopy, both)) for both in norms)
        if method.classifier_layers == 2:
            self.hidden = nn.Sequential(nn.Linear(d, d), nn.Tanh())
        if method.second == "pal":  # "Houlsby plus PALs" of the released code
            self.projection = Projection(d, method.pal_size)
            heads = (ProjectedAttention(method.pal_size, method.pal_heads, config) for _ in self.layers)
            self.pal = nn.ModuleList(heads)

    def copied(self):
        return super().copied() + ([self.own_norms] if self.own_norms is not None else [])

    def adapter(self, layer: int, place: int) -> Projection:
        """The adapter at a layer's first (0) or second (1) place."""
        each = self.method.adapters_per_layer
        return self.adapters[layer // self.method.span * each + min(place, each - 1)]

    def after_attention(self, layer, x):
        return x + self.adapter(layer, 0)(x)

    def after_feed_forward(self, layer, x, a, rows):
        if self.pal is not None:
            v = self.projection
            return x + v.decoder(self.pal[layer](v.encoder(a), rows, layer))
        return x + self.adapter(layer, 1)(a if self.method.second == "parallel" else x)  # ledger D9

    def norms(self, layer):
        return tuple(self.own_norms[layer]) if self.own_norms is not None else None

    def pool(self, first, pooler):
        pooled = super().pool(first, pooler)
        return pooled if self.hidden is None else self.hidden(pooled)


class OwnBackbone(Adaptation):
    """A whole copy of the backbone for each task: the 8x parameters that the paper avoids."""

    def __init__(self, method, encoder, pooler):
        super().__init__(method, encoder, pooler)
        self.backbone = copy.deepcopy(encoder)
        self.pooler = copy.deepcopy(pooler) if getattr(encoder, "pooler", None) is None else None

    def pool(self, first, pooler):
        return super().pool(first, self.pooler or self.backbone.pooler)

    def copied(self):
        return [self.backbone, *super().copied()]
