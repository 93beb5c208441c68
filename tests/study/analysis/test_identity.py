"""What notebook 01 says of every method: it starts as BERT or it does not, and it holds what its formula says."""

import pytest
import torch
from shapes import STARTS_AS_BACKBONE, batch, tiny_encoder, tiny_method

from palslib.methods.pal import PAL
from palslib.methods.table import METHODS
from palslib.study.analysis.identity import compare_with_backbone


@pytest.mark.parametrize("shape", ["bert", "bert-without-pooler"])
def test_the_encoder_is_as_it_was(shape):
    """After every method in turn, also one that froze it: keys and weights, each part's mode and class, and what of it
    is trained. Dropout, of an encoder in training, does not enter."""
    encoder = tiny_encoder(shape, dropout=0.1).train()
    encoder.embeddings.eval()
    encoder.encoder.layer[0].requires_grad_(False)

    def state():
        parts = [(name, type(part), part.training, set(vars(part))) for name, part in encoder.named_modules()]
        return parts, [(name, p.data_ptr(), p.requires_grad) for name, p in encoder.named_parameters()]

    before, values = state(), {name: value.clone() for name, value in encoder.state_dict().items()}
    methods = [*map(tiny_method, METHODS), PAL("my-pals", size=24, heads=3)]
    table = compare_with_backbone(methods, encoder, batch(shape))
    assert table["starts as BERT"].sum() == len(STARTS_AS_BACKBONE) + 1
    assert table["per task, BERT-base"].iloc[-1] == 2 * 768 * 24 + 12 * 3 * 24**2
    assert state() == before and encoder.state_dict().keys() == values.keys()
    assert all(torch.equal(value, values[name]) for name, value in encoder.state_dict().items())
