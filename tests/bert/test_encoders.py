"""Which encoders are supported: equal to their own forward over padded batches; all others are refused by name."""

import copy

import pytest
import torch
from shapes import D, batch, equal_states, tiny_encoder, tiny_method
from torch import nn
from transformers import BertForSequenceClassification

from palslib.bert.backbones import SUPPORTED
from palslib.bert.encoders import check_encoder, hidden_states, max_positions
from palslib.bert.rows import Rows
from palslib.model.multi_task import MultiTaskModel


def padded(kind: str, side: str) -> dict[str, torch.Tensor]:
    """Nine rows of 1 to 9 word pieces and one more column; or three of 7; or words hidden. One has a padding piece."""
    inputs = batch("roberta", rows=9, width=9, pad=1)
    if side == "left":
        inputs = {name: value.flip(1) for name, value in inputs.items()}
    if side == "none":
        inputs = {name: value[:3, :7] for name, value in inputs.items()}
    assert inputs["attention_mask"].all() == (side == "none")
    if side == "a word":  # that only the mask hides: those after it keep their positions
        inputs["attention_mask"][:, 1] = 0
    inputs["input_ids"][0, 4] = 1  # which counts for no position in RoBERTa
    return inputs


@pytest.mark.parametrize("side", ["right", "left", "none", "a word"])
@pytest.mark.parametrize("types", [1, 2])
@pytest.mark.parametrize("kind", SUPPORTED)
def test_equals_its_own_forward(kind, types, side):
    """All of the last hidden states, to 1e-5 in float32: BERT's positions are columns, RoBERTa's count word pieces."""
    encoder, inputs = tiny_encoder(kind, type_vocab_size=types), padded(kind, side)
    if types == 1:
        del inputs["token_type_ids"]
    check_encoder(encoder)
    rows, there = Rows.from_padded(**inputs), inputs["attention_mask"].bool()
    with torch.no_grad():
        theirs = encoder(**inputs).last_hidden_state
        ours = rows.padded(hidden_states(encoder, rows))
    for own, row, real in zip(ours, theirs, there, strict=True):
        torch.testing.assert_close(own[: real.sum()], row[real], atol=1e-5, rtol=1e-5)


# --- refused by name


@pytest.mark.parametrize("kind", ["albert", "electra", "ernie", "roberta-prelayernorm", None])
def test_other_types_are_refused_by_name_with_the_supported_ones(kind):
    """With BERT's layers and BERT's names of parts, too."""
    encoder = nn.Linear(2, 2) if kind is None else tiny_encoder(kind)
    with pytest.raises(ValueError, match=rf"^{type(encoder).__name__} .*{kind!r}.* bert, roberta"):
        MultiTaskModel.from_backbone(encoder, tiny_method("pals-204"), ["rte"])


def test_a_decoder_and_a_head_around_an_encoder():
    """A BERT that reads from left to right is not the paper's; of a head's model the encoder within is named."""
    with pytest.raises(ValueError, match=r"^BertModel calls itself 'bert' but computes something else"):
        check_encoder(tiny_encoder("bert", is_decoder=True))
    model = BertForSequenceClassification(tiny_encoder().config)
    with pytest.raises(ValueError, match=r"^BertForSequenceClassification .*model\.bert"):
        check_encoder(model)
    check_encoder(model.bert)
    model.bert.config.num_hidden_layers -= 1
    with pytest.raises(ValueError, match="BertModel has 3 layers, but its configuration says 2: change both"):
        check_encoder(model.bert)


def slightly_off(layer):
    own = layer.forward
    layer.forward = lambda *given, **others: 1.01 * own(*given, **others)


@pytest.mark.parametrize("change", [slightly_off, lambda layer: layer.output.dense.weight.data.fill_(torch.nan)])
def test_an_impostor(change):
    """It calls itself a BERT, and is off by a hundredth, or no number."""
    encoder = tiny_encoder()
    change(encoder.encoder.layer[1])
    with pytest.raises(ValueError, match=r"^BertModel calls itself 'bert' but computes something else"):
        check_encoder(encoder)


# --- lengths
@pytest.mark.parametrize(("kind", "most"), [("bert", 40), ("roberta", 38), ("camembert", 38)])
def test_positions(kind, most):
    """RoBERTa's table of 40 begins after its padding piece's number, 1: positions 2 to 39. 512 of 514, as released."""
    encoder = tiny_encoder(kind)
    assert max_positions(encoder.config) == most
    ids = torch.full((1, most), 7)
    with torch.no_grad():
        ours, theirs = hidden_states(encoder, Rows.from_padded(ids)), encoder(input_ids=ids)[0][0]
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match=rf"{most + 1} word pieces.* {most}\b"):
        hidden_states(encoder, Rows.from_padded(torch.full((2, most + 1), 7)))


def test_padding_that_leaves_no_position():
    """A row of 3 after 38 columns of padding stands at BERT's 38 to 40, of which it has 39; RoBERTa counts three."""
    inputs = {name: torch.zeros(2, 41, dtype=torch.long) for name in ("input_ids", "attention_mask")}
    inputs["input_ids"][:, -3:], inputs["attention_mask"][:, -3:] = 7, 1
    with pytest.raises(ValueError, match=r"41 word pieces.* 40\b"):
        hidden_states(tiny_encoder("bert"), Rows.from_padded(**inputs))
    assert hidden_states(tiny_encoder("roberta"), Rows.from_padded(**inputs)).shape == (6, D)


# --- the encoder is the caller's
@pytest.mark.parametrize("kind", SUPPORTED)
def test_untouched(kind):
    """Its state, its parts' classes and modes, gradients, and what it computes, in train mode too; nothing is drawn."""
    encoder = tiny_encoder(kind, dropout=0.5, type_vocab_size=2).train()
    encoder.encoder.layer[0].eval()
    before, inputs = copy.deepcopy(encoder), padded(kind, "right")
    torch.manual_seed(1)
    state = torch.get_rng_state()
    model = MultiTaskModel.from_backbone(encoder, tiny_method("pals-204"), ["rte"])
    assert torch.equal(torch.get_rng_state(), state) and model.backbone is encoder
    assert equal_states(encoder, before) and encoder.config.to_dict() == before.config.to_dict()
    for part, was in zip(encoder.modules(), before.modules(), strict=True):
        assert type(part) is type(was) and part.training == was.training
        assert part.__dict__.keys() == was.__dict__.keys() and not part._forward_pre_hooks and not part._forward_hooks
    assert all(p.grad is None and p.requires_grad for p in encoder.parameters())
    model("rte", **inputs)
    outputs = []
    for one in (encoder, before):
        torch.manual_seed(2)
        outputs.append(one(**inputs).last_hidden_state)
    assert torch.equal(*outputs)
