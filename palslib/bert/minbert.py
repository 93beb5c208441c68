"""BERT from scratch, to be read from top to bottom: the same weights and outputs as Hugging Face's `BertModel`.

Devlin et al. 2019, in the order of section 3.1 of *BERT and PALs* (Stickland & Murray 2019,
https://arxiv.org/abs/1902.02671). Letters: `B` batch, `S` tokens, `d` hidden size, `d_ff` inner size, `H` heads:

    MH(h)   =  W^o [head_1, ..., head_H],   head_i = softmax(q_i k_iᵀ / √(d/H)) v_i
    FFN(a)  =  W_2 GELU(W_1 a + b_1) + b_2
    a = LN( h + MH(h) )       y = LN( a + FFN(a) )       one layer; a dropout before each residual sum

Submodules, and so weights, have the names of Hugging Face's class: weights are loaded by their keys (`MinBert.of`), and
`MultiTaskModel` adapts this BERT like any other.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from palslib.common.names import check_name

ACTIVATIONS = {"gelu": F.gelu, "gelu_new": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu, "silu": F.silu}


class SelfAttention(nn.Module):
    """The heads: each token gets a mean of all tokens' values, weighted by how well its query fits their keys."""

    def __init__(self, config):
        super().__init__()
        d, self.heads, self.config = config.hidden_size, config.num_attention_heads, config
        if d % self.heads:
            raise ValueError(f"hidden size {d} is not divisible by {self.heads} heads")
        self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(self, h, mask=None):
        """The heads' concatenated outputs (B, S, d), and their attention weights (B, H, S, S) if the configuration's
        attention is `eager`; None under `sdpa`, torch's fused form. `mask` is the result of `MinBert.mask`."""
        split = (self.heads, h.shape[-1] // self.heads)
        q, k, v = (w(h).unflatten(-1, split).transpose(1, 2) for w in (self.query, self.key, self.value))
        if self.config._attn_implementation == "eager":  # q, k, v: (B, H, S, d/H)
            scores = q @ k.transpose(-1, -2) * split[1] ** -0.5  # (B, H, S, S)
            weights = self.dropout((scores if mask is None else scores + mask).softmax(-1))
            context = weights @ v  # (B, H, S, d/H)
        else:
            dropout, weights = self.dropout.p if self.training else 0.0, None
            context = F.scaled_dot_product_attention(q, k, v, mask, dropout)  # (B, H, S, d/H)
        return context.transpose(1, 2).flatten(-2), weights  # (B, S, d)


class ResidualNorm(nn.Module):
    """LN( residual + dropout(W x + b) ): how both halves of a layer end, with W^o in the first, W_2 in the second."""

    def __init__(self, width, config):
        super().__init__()
        self.dense = nn.Linear(width, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x, residual):  # (B, S, width), (B, S, d)
        return self.LayerNorm(residual + self.dropout(self.dense(x)))  # (B, S, d)


class Attention(nn.Module):
    """a = LN( h + MH(h) )."""

    def __init__(self, config):
        super().__init__()
        self.self = SelfAttention(config)
        self.output = ResidualNorm(config.hidden_size, config)

    def forward(self, h, mask=None):
        return self.output(self.self(h, mask)[0], h)  # (B, S, d)


class Intermediate(nn.Module):
    """GELU(W_1 a + b_1), the wide half of the feed-forward network."""

    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACTIVATIONS[check_name("activation", config.hidden_act, ACTIVATIONS)]

    def forward(self, a):
        return self.activation(self.dense(a))  # (B, S, d_ff)


class Layer(nn.Module):
    """y = LN( a + FFN(a) ) with a = LN( h + MH(h) )."""

    def __init__(self, config, layer_idx=None):
        super().__init__()
        self.attention = Attention(config)
        self.intermediate = Intermediate(config)
        self.output = ResidualNorm(config.intermediate_size, config)

    def forward(self, h, mask=None):
        a = self.attention(h, mask)  # (B, S, d)
        return self.output(self.intermediate(a), a)  # (B, S, d_ff) to (B, S, d)


class Embeddings(nn.Module):
    """h_0 = LN( word + token type + position ): which token it is, which text it belongs to, and its position."""

    def __init__(self, config):
        super().__init__()
        d = config.hidden_size
        self.word_embeddings = nn.Embedding(config.vocab_size, d, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, d)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, d)
        self.LayerNorm = nn.LayerNorm(d, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids, token_type_ids=None):  # (B, S), (B, S)
        size, most = input_ids.shape[-1], self.position_embeddings.num_embeddings
        if size > most:
            raise ValueError(f"{size} tokens, but this BERT has {most} positions; cut the texts to {most}")
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        places = torch.arange(size, device=input_ids.device)  # (S,)
        h = self.word_embeddings(input_ids) + self.token_type_embeddings(types) + self.position_embeddings(places)
        return self.dropout(self.LayerNorm(h))  # (B, S, d)


class Encoder(nn.Module):
    """The stack of layers."""

    def __init__(self, config):
        super().__init__()
        self.layer = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))

    def forward(self, h, mask=None):
        states = [h]
        for layer in self.layer:
            states.append(layer(states[-1], mask))
        return tuple(states)  # h_0, ..., h_L, each (B, S, d)


class Pooler(nn.Module):
    """tanh(W h_[CLS] + b), of the first token's state: the input of a classifier."""

    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, states):
        return self.dense(states[:, 0]).tanh()  # (B, d)


class MinBert(nn.Module):
    """The whole encoder. `config` is a Hugging Face `BertConfig`; weights start at N(0, initializer_range)."""

    def __init__(self, config, pooler: bool = True):
        super().__init__()
        if config.model_type != "bert" or config.is_decoder:
            kind = f"{config.model_type} decoder" if config.is_decoder else config.model_type
            raise ValueError(f"minBERT is a BERT encoder, not {kind}")
        self.config = copy.deepcopy(config)
        self.set_attn_implementation(config._attn_implementation or "sdpa")
        self.embeddings = Embeddings(self.config)
        self.encoder = Encoder(self.config)
        self.pooler = Pooler(self.config) if pooler else None
        for part in self.modules():
            if isinstance(part, (nn.Linear, nn.Embedding)):
                nn.init.normal_(part.weight, 0.0, config.initializer_range)
            if isinstance(part, nn.Linear):
                nn.init.zeros_(part.bias)

    @classmethod
    def of(cls, bert) -> "MinBert":
        """A `MinBert` with the weights of a Hugging Face `BertModel`, in float32 and eval mode.

        Raises RuntimeError listing every key that is missing, unexpected or of another shape.
        """
        with torch.device("meta"):  # no memory and no random numbers for weights that are replaced
            model = cls(bert.config, pooler=bert.pooler is not None)
        model.load_state_dict({k: v.to(torch.float32, copy=True) for k, v in bert.state_dict().items()}, assign=True)
        return model.requires_grad_(True).eval()

    def set_attn_implementation(self, name: str) -> None:
        """Chooses `sdpa`, or `eager`, whose attention weights can be inspected."""
        self.config._attn_implementation = check_name("attention", name, ("sdpa", "eager"))

    @staticmethod
    def mask(mask, dtype):
        """The term added to the attention scores, (B, 1, 1, S): 0 at tokens, hugely negative at padding, where `mask`
        (B, S) is 0. None stays None."""
        return None if mask is None else (1 - mask[:, None, None].to(dtype)) * torch.finfo(dtype).min

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, output_hidden_states=False):
        """(B, S) to `last_hidden_state` (B, S, d), `pooler_output` (B, d) and, if asked, all L + 1 `hidden_states`."""
        h = self.embeddings(input_ids, token_type_ids)
        states = self.encoder(h, self.mask(attention_mask, h.dtype))
        pooled = self.pooler(states[-1]) if self.pooler else None
        return BaseModelOutputWithPooling(states[-1], pooled, states if output_hidden_states else None)
