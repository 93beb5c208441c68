"""What goes on top of BERT, and the table of all task functions.

Stickland & Murray 2019, section 3.1: h = V^D z after six small layers z on V^E h_L, or one whole BERT layer for each
task. There is no residual around them, so these start at random, not as BERT.
"""

import copy

import torch
from torch import nn

from palslib.methods.functions import (
    LHUC,
    PAL,
    Adaptation,
    FeedForward,
    Houlsby,
    LowRank,
    ProjectedAttention,
    ProjectedWithin,
    Projection,
    Serial,
)
from palslib.methods.table import Method


class TopLayer(nn.Module):
    """z = LN(dropout(g(z)) + z) in the small space; residual and norm can be left out (ledger C20)."""

    def __init__(self, method: Method, config):
        super().__init__()
        s = method.size
        self.method = method
        self.attention = self.output = self.feed_forward = None
        if method.kind == "attention-on-top":  # this one keeps BERT's output matrix
            self.attention, self.output = ProjectedAttention(s, method.heads, config), nn.Linear(s, s)
        else:
            self.feed_forward = FeedForward(s, method.inner, config)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.norm = nn.LayerNorm(s, eps=config.layer_norm_eps) if method.layer_norm else nn.Identity()

    def forward(self, z: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """(B, S, s) to (B, S, s)."""
        g = self.output(self.attention(z, mask)[0]) if self.attention else self.feed_forward(z)
        return self.norm(self.dropout(g) + z if self.method.residual else self.dropout(g))


class ProjectedOnTop(Adaptation):
    """h = V^D z after six layers z on V^E h_L: projected attention or feed-forward on top (section 3.1)."""

    def __init__(self, method, encoder, pooler, shared=None):
        super().__init__(method, encoder, pooler)
        self.projection = Projection(encoder.config.hidden_size, method.size)
        self.top_layers = nn.ModuleList(TopLayer(method, encoder.config) for _ in range(method.on_top))

    def on_top(self, states, mask):
        z = self.projection.encoder(states[-1])
        for layer in self.top_layers:
            z = layer(z, mask)
        return self.projection.decoder(z)


class BertLayerOnTop(Adaptation):
    """One more ordinary layer for each task (section 3.1)."""

    def __init__(self, method, encoder, pooler, shared=None):
        super().__init__(method, encoder, pooler)
        kind = plain_class(encoder.encoder.layer[-1])
        self.top_layer = kind(encoder.config, layer_idx=encoder.config.num_hidden_layers)

    def on_top(self, states, mask):
        return self.top_layer(states[-1], mask)


class FeatureExtraction(Adaptation):
    """γ Σ softmax(w)_l h_l over the frozen backbone's embeddings and layers (Peters et al. 2019; ledger C18)."""

    needs_all_layers = True

    def __init__(self, method, encoder, pooler, shared=None):
        super().__init__(method, encoder, pooler)
        self.mix = nn.Parameter(torch.zeros(encoder.config.num_hidden_layers + 1))
        self.gamma = nn.Parameter(torch.ones(1))

    def on_top(self, states, mask):
        return self.gamma * torch.einsum("l,lbsd->bsd", self.mix.softmax(0), torch.stack(states))


class FineTuned(Adaptation):
    """A whole copy of the backbone for each task: the 8x that the paper saves."""

    def __init__(self, method, encoder, pooler, shared=None):
        super().__init__(method, encoder, pooler)
        self.encoder, self.pooler = copy.deepcopy(encoder), copy.deepcopy(pooler)


ADAPTATIONS: dict[str, type[Adaptation]] = {
    "shared": Adaptation,
    "fine-tuned": FineTuned,
    "pal": PAL,
    "ffn": ProjectedWithin,
    "low-rank": LowRank,
    "serial": Serial,
    "lhuc": LHUC,
    "houlsby": Houlsby,
    "attention-on-top": ProjectedOnTop,
    "ffn-on-top": ProjectedOnTop,
    "bert-layer-on-top": BertLayerOnTop,
    "feature-extraction": FeatureExtraction,
}
"""The class of each kind of method."""


def plain_class(layer: nn.Module) -> type:
    """The class of a backbone's layer before `model.adapt_layers` put the mixin in front of it."""
    return getattr(type(layer), "plain_class", type(layer))


@torch.no_grad()
def initialise(module: nn.Module, method: Method, std: float) -> None:
    """Draws what a method adds: matrices N(0, std), biases 0, norms 1 and 0; V^D zero within layers (ledger D8)."""
    kept = {id(p) for part in _copied(module) for p in part.parameters()}
    for part in module.modules():
        if isinstance(part, nn.Linear) and id(part.weight) not in kept:
            part.weight.normal_(0, std)
            part.bias.zero_()
        elif isinstance(part, nn.LayerNorm) and id(part.weight) not in kept and method.init == "normal":
            part.weight.normal_(0, std)
            part.bias.normal_(0, std)
    within = method.kind in ("pal", "ffn", "low-rank", "serial", "houlsby")
    if within and method.init == "identity":
        for part in module.modules():
            if isinstance(part, Projection):
                part.decoder.weight.zero_()


def _copied(module: nn.Module):
    """The parts of an adaptation that start as copies of the backbone's."""
    return [p for n in ("pooler", "own_norms", "encoder") if (p := getattr(module, n, None)) is not None]


def build_adaptation(method: Method, encoder: nn.Module, pooler: nn.Module, shared=None) -> Adaptation:
    """One task's parameters under a method, initialised from torch's global random state."""
    adaptation = ADAPTATIONS[method.kind](method, encoder, pooler, shared)
    initialise(adaptation, method, encoder.config.initializer_range)
    return adaptation
