"""The sizes of a BERT-shaped encoder, and the numbers of parameters that follow from them."""

import os
from dataclasses import dataclass

from palslib.bert.backbones import check_kind, load_config
from palslib.common.names import unknown


@dataclass(frozen=True)
class Backbone:
    """The sizes of a BERT-shaped encoder; `parameters` counts all of it, pooler included."""

    name: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int = 512
    token_types: int = 2

    @property
    def layer_weights(self) -> int:
        """Weights of a layer's matrices: 4d² + 2d·d_ff."""
        return 4 * self.hidden_size**2 + 2 * self.hidden_size * self.intermediate_size

    def layer_operations(self, tokens: int) -> int:
        """Multiply-adds of a layer: S (4d² + 2d·d_ff) in its matrices and 2S² d in its attention."""
        return tokens * self.layer_weights + 2 * tokens * tokens * self.hidden_size

    @property
    def layer_parameters(self) -> int:
        """Weights, biases and norms of a layer: 4d² + 2d·d_ff + 9d + d_ff, or 12d² + 13d if d_ff = 4d (ledger A2)."""
        return self.layer_weights + 9 * self.hidden_size + self.intermediate_size

    @property
    def parameters(self) -> int:
        """Parameters of embeddings, layers and pooler: 109,482,240 for BERT-base (ledger A1)."""
        d = self.hidden_size
        embeddings = (self.vocab_size + self.max_positions + self.token_types) * d + 2 * d
        return embeddings + self.num_layers * self.layer_parameters + d * d + d

    @classmethod
    def of(cls, backbone) -> "Backbone":
        """The sizes for a name, a `Backbone`, or any object with the attributes of a Hugging Face configuration."""
        if isinstance(backbone, Backbone):
            return backbone
        if isinstance(backbone, (str, os.PathLike)):
            backbone = os.fspath(backbone).removeprefix("minbert:")  # minBERT has the same sizes
            if backbone in BACKBONES:
                return BACKBONES[backbone]
            try:
                backbone = load_config(backbone)
            except OSError as error:
                raise unknown("backbone (no readable folder or Hub id)", backbone, BACKBONES) from error
        name = getattr(backbone, "name_or_path", "") or backbone.model_type
        check_kind(name, backbone)
        heads, inner = backbone.num_attention_heads, backbone.intermediate_size
        sizes = backbone.vocab_size, backbone.hidden_size, backbone.num_hidden_layers, heads, inner
        return cls(name, *sizes, backbone.max_position_embeddings, backbone.type_vocab_size)


_LISTED = (
    Backbone("bert-base-uncased", 30_522, 768, 12, 12, 3072),
    Backbone("bert-large-uncased", 30_522, 1024, 24, 16, 4096),
    Backbone("minilm", 30_522, 384, 6, 12, 1536),
    Backbone("tiny", 30_522, 48, 2, 4, 101, 128),
)
BACKBONES = {backbone.name: backbone for backbone in _LISTED}
