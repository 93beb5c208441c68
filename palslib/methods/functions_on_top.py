"""Modules on top of BERT.

Stickland & Murray 2019, section 3.2: h = V^D z, with z the output of six small layers on V^E h_L; or one whole BERT
layer for each task. There is no residual around them, so the model starts at random, not as BERT.
"""

import torch
from torch import nn

from palslib.bert.dropout import drop
from palslib.bert.layer import adapted_layer
from palslib.methods.functions import Adaptation, FeedForward, ProjectedAttention, Projection


class SmallLayer(nn.Module):
    """z = LN(dropout(g(z)) + z) in the small space; residual and norm can be left out (ledger C20)."""

    def __init__(self, method, config):
        super().__init__()
        s = method.size
        self.residual, self.dropout = method.residual, config.hidden_dropout_prob
        self.norm = nn.LayerNorm(s, eps=config.layer_norm_eps) if method.layer_norm else nn.Identity()

    def function(self, z, rows, layer: int):
        """g(z); (N, s) to (N, s)."""
        raise AttributeError(f"{type(self).__name__} names no function")

    def forward(self, z, rows, layer: int):
        """(N, s) to (N, s); `layer` is its number, counted on from BERT's layers."""
        g = drop(self.function(z, rows, layer), self.dropout, self.training)
        return self.norm(g + z if self.residual else g)


class SmallAttention(SmallLayer):
    """A small layer whose g is attention; it keeps BERT's output matrix."""

    def __init__(self, method, config):
        super().__init__(method, config)
        self.attention = ProjectedAttention(method.size, method.heads, config)
        self.output = nn.Linear(method.size, method.size)

    def function(self, z, rows, layer):
        return self.output(self.attention(z, rows, layer))


class SmallFeedForward(SmallLayer):
    """A small layer whose g is a feed-forward network."""

    def __init__(self, method, config):
        super().__init__(method, config)
        self.feed_forward = FeedForward(method.size, method.inner, config)

    def function(self, z, rows, layer):
        return self.feed_forward(z)


class AttentionLayers(Adaptation):
    """h = V^D z, with z the output of small attention layers on V^E h_L (paper 3.2)."""

    starts_as_bert = False
    small_layer = SmallAttention

    def __init__(self, method, encoder, pooler):
        super().__init__(method, encoder, pooler)
        self.first = encoder.config.num_hidden_layers  # the small layers' numbers go on after BERT's
        self.projection = Projection(encoder.config.hidden_size, method.size)
        self.top_layers = nn.ModuleList(self.small_layer(method, encoder.config) for _ in range(method.on_top))

    def on_top(self, states, rows):
        z = self.projection.encoder(states[-1])
        for i, layer in enumerate(self.top_layers, self.first):
            z = layer(z, rows, i)
        return self.projection.decoder(z)


class FeedForwardLayers(AttentionLayers):
    """h = V^D z, with z the output of small feed-forward layers on V^E h_L (paper 3.2)."""

    small_layer = SmallFeedForward


class OneMoreLayer(Adaptation):
    """One more ordinary BERT layer for each task (paper 3.2)."""

    starts_as_bert = False

    def __init__(self, method, encoder, pooler):
        super().__init__(method, encoder, pooler)
        self.number = encoder.config.num_hidden_layers
        self.top_layer = type(encoder.encoder.layer[-1])(encoder.config, layer_idx=self.number)

    def on_top(self, states, rows):
        return adapted_layer(self.top_layer, states[-1], rows, i=self.number)


class ScalarMix(Adaptation):
    """γ Σ softmax(w)_l h_l over the frozen backbone's embeddings and layers (Peters et al. 2019; ledger C18)."""

    def __init__(self, method, encoder, pooler):
        super().__init__(method, encoder, pooler)
        self.mix = nn.Parameter(torch.zeros(encoder.config.num_hidden_layers + 1))
        self.gamma = nn.Parameter(torch.ones(1))

    def on_top(self, states, rows):
        return self.gamma * torch.einsum("l,lnd->nd", self.mix.softmax(0), torch.stack(states))
