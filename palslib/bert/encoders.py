"""Which pre-trained encoders can be adapted, and what becomes of word pieces before their first layer."""

import torch
from torch import nn
from torch.nn import functional

from palslib.bert.dropout import drop
from palslib.bert.layer import adapted_layer
from palslib.bert.rows import Rows

FIRST_POSITION = {
    "bert": lambda config: 0,
    "ernie": lambda config: 0,
    "electra": lambda config: 0,
    "roberta": lambda config: config.pad_token_id + 1,
    "xlm-roberta": lambda config: config.pad_token_id + 1,
    "camembert": lambda config: config.pad_token_id + 1,
    "data2vec-text": lambda config: config.pad_token_id + 1,
}
"""Model type -> the position of a row's first word piece. These are the encoders whose layers are BERT's: attention and
feed-forward, each with a residual sum and a layer norm after it, and learned positions."""
_TRIAL = ((0, 7, 8, 9, 10, 2), (0, 9, 2, 1, 1, 1))  # two rows of word pieces, the second padded


def max_positions(config) -> int:
    """How many word pieces a row may have: BERT's positions; RoBERTa's, less those before the first."""
    first = FIRST_POSITION.get(config.model_type, lambda config: 0)(config)
    return config.max_position_embeddings - first


def embed(encoder: nn.Module, rows: Rows, sparse: bool = False):
    """h_0 (N, d): LN( word + token type + position ), widened where the embeddings are narrower than the layers.

    `sparse` makes the gradient of the word embeddings sparse: a batch has a few hundred of 30,522. Raises ValueError
    for a row that is longer than the encoder has positions.
    """
    parts, config = encoder.embeddings, encoder.config
    if rows.width > (most := max_positions(config)):
        raise ValueError(f"a row has {rows.width} word pieces, but this encoder has positions for {most}; cut the text")
    types = rows.token_type_ids if config.type_vocab_size > 1 else torch.zeros_like(rows.token_type_ids)
    positions = rows.positions + FIRST_POSITION[config.model_type](config)
    words = functional.embedding(rows.input_ids, parts.word_embeddings.weight, sparse=sparse)
    h = parts.LayerNorm(words + parts.token_type_embeddings(types) + parts.position_embeddings(positions))
    h = drop(h, parts.dropout.p, parts.training)
    return encoder.embeddings_project(h) if hasattr(encoder, "embeddings_project") else h  # ELECTRA


def check_encoder(encoder: nn.Module) -> None:
    """Raises ValueError, naming the encoder, unless our own forward of it equals its own on a short padded batch.

    Nothing of the encoder is changed.
    """
    name, config = type(encoder).__name__, getattr(encoder, "config", None)
    kind = getattr(config, "model_type", None)
    if kind not in FIRST_POSITION:
        raise ValueError(
            f"{name} (model type {kind!r}) is not supported; palslib adapts encoders of these types: "
            + ", ".join(FIRST_POSITION)
        )
    if getattr(config, "is_decoder", False):
        raise ValueError(f"{name} is a decoder; palslib adapts encoders")
    if not (hasattr(encoder, "embeddings") and hasattr(getattr(encoder, "encoder", None), "layer")):
        raise ValueError(f"{name} has a head around its encoder; give the encoder itself (for BERT, `model.bert`)")
    weight = encoder.embeddings.word_embeddings.weight
    if weight.device.type == "meta":
        return  # its weights are yet to come
    ids = torch.tensor(_TRIAL, device=weight.device) % config.vocab_size
    mask = torch.ones_like(ids)
    mask[1, 3:] = 0
    ids[1, 3:] = config.pad_token_id or 0
    modes = {module: module.training for module in encoder.modules()}
    encoder.eval()
    try:
        with torch.no_grad():
            theirs = encoder(input_ids=ids, attention_mask=mask).last_hidden_state[mask.bool()]
            rows = Rows.from_padded(ids, mask)
            h = embed(encoder, rows)
            for layer in encoder.encoder.layer:
                h = adapted_layer(layer, h, rows)
            ours = rows.padded(h)[mask.bool()]
    except (AttributeError, TypeError, RuntimeError, IndexError) as error:
        raise ValueError(f"{name} calls itself {kind!r} but is not built like one: {error}") from error
    finally:
        for module, mode in modes.items():
            module.training = mode
    tolerance = 1e-3 if theirs.dtype == torch.float32 else 0.1
    if not torch.allclose(ours.float(), theirs.float(), rtol=tolerance, atol=tolerance):
        raise ValueError(
            f"{name} calls itself {kind!r} but computes something else: its last hidden states differ from palslib's "
            f"by up to {(ours - theirs).abs().max():.1e}. Encoders with parts of their own in a layer cannot be adapted"
        )
