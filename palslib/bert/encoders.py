"""The pre-trained encoders that can be adapted, and their embedding of word pieces before the first layer."""

import torch
from torch import nn
from torch.nn import functional

from palslib.bert.backbones import LIKE_ROBERTA, check_kind
from palslib.bert.dropout import drop, without_dropout
from palslib.bert.layer import adapted_layer
from palslib.bert.rows import Rows

_TRIAL = {  # two rows, the second padded
    "input_ids": [[0, 7, 8, 9, 10, 2], [0, 9, 2, 1, 1, 1]],
    "attention_mask": [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]],
    "token_type_ids": [[0, 0, 0, 1, 1, 1], [0, 1, 1, 0, 0, 0]],
}


def max_positions(config) -> int:
    """The most word pieces of a row: all positions in BERT; in RoBERTa, those above the padding piece's number."""
    first = config.pad_token_id + 1 if config.model_type in LIKE_ROBERTA else 0
    return config.max_position_embeddings - first


def _positions(config, rows: Rows) -> torch.Tensor:
    """(N,) the position of each word piece. Raises ValueError for a row longer than the encoder's positions."""
    roberta = config.model_type in LIKE_ROBERTA
    width, most = rows.width if roberta else rows.reach, max_positions(config)
    if width > most:
        what = f"{width} word pieces (with the padding before them)"
        raise ValueError(f"a row has {what}, but this encoder has positions for {most}; cut the text")
    if not roberta:
        return rows.positions
    pads = (rows.input_ids == config.pad_token_id).long()
    past = rows.positions - pads.cumsum(0)  # a word within a row that the mask hides keeps its position
    row = torch.searchsorted(rows.starts, torch.arange(pads.shape[0], device=pads.device), right=True) - 1
    row = row.clamp(min=0)
    first = (past + pads).index_select(0, rows.starts)  # (B,)
    return (past - first[row] + 1).clamp(min=0) * (1 - pads) + config.pad_token_id  # 0: hidden words before a row


def embed(encoder: nn.Module, rows: Rows, sparse: bool = False):
    """h_0 (N, d): LN( word + token type + position ).

    `sparse` makes the gradient of the word embeddings sparse: a batch uses a few hundred of the 30,522 rows. Raises
    ValueError for a row longer than the encoder's positions, and on a CPU for a word piece without an embedding.
    """
    parts, config = encoder.embeddings, encoder.config
    types = rows.token_type_ids if config.type_vocab_size > 1 else torch.zeros_like(rows.token_type_ids)
    if rows.input_ids.device.type == "cpu" and not torch.compiler.is_compiling():  # a check on a GPU would have to wait
        check_pieces(rows.input_ids, parts.word_embeddings.num_embeddings, "this batch")
        check_pieces(types, config.type_vocab_size, "this batch", "token type")
    words = functional.embedding(rows.input_ids, parts.word_embeddings.weight, sparse=sparse)
    h = words + parts.token_type_embeddings(types) + parts.position_embeddings(_positions(config, rows))
    return drop(parts.LayerNorm(h), parts.dropout.p, parts.training)


def hidden_states(encoder: nn.Module, rows: Rows):
    """h_L (N, d), the last hidden states of the plain encoder."""
    h = embed(encoder, rows)
    for i, layer in enumerate(encoder.encoder.layer):
        h = adapted_layer(layer, h, rows, i=i)
    return h


def check_pieces(ids, known: int, whose: str, what: str = "word piece") -> None:
    """Raises ValueError where one of the numbers (n,), a tensor or an array, has none of the `known` embeddings."""
    for wrong in (int(ids.min()), int(ids.max())) if len(ids) else ():
        if not 0 <= wrong < known:
            advice = "; for added words, call resize_token_embeddings(len(tokenizer)) on it"
            more = advice if what == "word piece" else ""
            raise ValueError(f"{whose}: {what} {wrong}, but the backbone knows 0 to {known - 1:,}{more}")


def check_encoder(encoder: nn.Module) -> None:
    """Raises ValueError, naming the encoder, unless palslib's forward pass equals its own on a short padded batch. The
    encoder is not changed."""
    name, config = type(encoder).__name__, getattr(encoder, "config", None)
    check_kind(name, config)
    if not (hasattr(encoder, "embeddings") and hasattr(getattr(encoder, "encoder", None), "layer")):
        raise ValueError(f"{name} has a head around its encoder; give the encoder itself (for BERT, `model.bert`)")
    layers, told = len(encoder.encoder.layer), config.num_hidden_layers
    if layers != told:
        raise ValueError(f"{name} has {layers} layers, but its configuration says {told}: change both")
    weight = encoder.embeddings.word_embeddings.weight
    if weight.device.type == "meta":
        return  # its weights are loaded later
    inputs = {k: torch.tensor(v, device=weight.device) for k, v in _TRIAL.items()}
    there = inputs["attention_mask"].bool()
    inputs["input_ids"] = inputs["input_ids"].where(there, config.pad_token_id or 0)
    inputs["token_type_ids"] %= config.type_vocab_size
    with without_dropout(encoder), torch.no_grad():
        theirs = encoder(**inputs)[0][there]
        rows = Rows.from_padded(**inputs)
        ours = rows.padded(hidden_states(encoder, rows))[there]
    off = ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1)).item()
    if not off <= (1e-3 if weight.dtype.itemsize >= 4 else 0.1):  # `not <=`, so that NaN is refused
        raise ValueError(
            f"{name} calls itself {config.model_type!r} but computes something else: its last hidden states differ "
            f"from palslib's by up to {off:.1e} of their size. Layers with additional parts cannot be adapted"
        )
