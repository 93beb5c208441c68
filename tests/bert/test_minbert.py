"""BERT from scratch: equal to Hugging Face's part by part, and adapted as any other encoder is."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import VOCABULARY, D, batch, equal_states, moved, randomise, tiny_encoder, tiny_method
from transformers import AutoModel, BertConfig, BertModel, RobertaConfig
from transformers.masking_utils import create_bidirectional_mask

from palslib.bert import minbert
from palslib.bert.backbones import load_encoder, load_tokenizer
from palslib.bert.minbert import MinBert
from palslib.methods.table import METHODS
from palslib.model.multi_task import MultiTaskModel

ATTENTION = pytest.mark.parametrize("attention", ["eager", "sdpa"])


def check_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)


@torch.no_grad()
def check_parts(plain: BertModel, ours: MinBert, inputs: dict) -> None:
    """Each part of one on the same input as that part of the other, so that no error hides behind another."""
    ids, types, mask = inputs["input_ids"], inputs.get("token_type_ids"), inputs.get("attention_mask")
    h = plain.embeddings(ids, token_type_ids=types)
    check_close(ours.embeddings(ids, types), h)
    theirs = create_bidirectional_mask(plain.config, h, mask)
    made = ours.mask(mask, h.dtype)
    for layer, mine in zip(plain.encoder.layer, ours.encoder.layer, strict=True):
        context, weights = layer.attention.self(h, theirs)
        heads, maps = mine.attention.self(h, made)
        check_close(heads, context)
        assert (maps is None) == (plain.config._attn_implementation == "sdpa")
        if maps is not None:
            check_close(maps, weights)
        a = layer.attention(h, theirs)[0]
        check_close(mine.attention(h, made), a)
        check_close(mine.intermediate(a), layer.intermediate(a))
        y = layer(h, theirs)
        check_close(mine(h, made), y)
        h = y
    check_close(ours.pooler(h), plain.pooler(h))
    one, other = (model(**inputs, output_hidden_states=True) for model in (plain, ours))
    check_close(other.pooler_output, one.pooler_output)
    assert len(one.hidden_states) == len(other.hidden_states) == len(plain.encoder.layer) + 1
    for state, mine in zip(one.hidden_states, other.hidden_states, strict=True):
        check_close(mine, state)
    assert torch.equal(other.last_hidden_state, other.hidden_states[-1])


# --- equal to Hugging Face's
@ATTENTION
def test_minilm(attention):
    """A real backbone on real sentences: pairs with both token types, padding at three lengths."""
    plain, ours = load_encoder("minilm"), load_encoder("minbert:minilm")
    for model in (plain, ours):
        model.set_attn_implementation(attention)
    pairs = [["a cat", "A cat sat on the mat."], ["who?", "me"], ["Can attention be projected?", "It can, they say."]]
    check_parts(plain, ours, load_tokenizer("minilm")(pairs, return_tensors="pt", padding=True))
    assert equal_states(plain, ours)


@given(
    heads=st.integers(1, 5),
    width=st.integers(1, 9),
    sizes=st.tuples(*[st.integers(1, n) for n in (29, 3, 3, 11)]),
    activation=st.sampled_from(sorted(minbert.ACTIVATIONS)),
    attention=st.sampled_from(["eager", "sdpa"]),
    given_inputs=st.sets(st.sampled_from(["attention_mask", "token_type_ids"])),
)
@settings(max_examples=25, deadline=None)
def test_any_sizes(heads, width, sizes, activation, attention, given_inputs):
    """Odd sizes show where two are mixed up; masks and token types each with and without. In float64, for the norm of a
    few numbers that are nearly equal blows up what float32 rounds."""
    inner, layers, rows, tokens = sizes
    about = {"hidden_size": heads * width, "num_attention_heads": heads, "intermediate_size": inner}
    about |= {"num_hidden_layers": layers, "vocab_size": VOCABULARY, "max_position_embeddings": 13}
    config = BertConfig(**about, type_vocab_size=3, hidden_act=activation, initializer_range=0.3)
    plain = AutoModel.from_config(config, attn_implementation=attention).eval()
    randomise(plain, std=0.1)
    draw = torch.Generator().manual_seed(tokens)
    lengths = torch.randint(1, tokens + 1, (rows, 1), generator=draw)
    inputs = {
        "input_ids": torch.randint(0, VOCABULARY, (rows, tokens), generator=draw),
        "attention_mask": (torch.arange(tokens) < lengths).long(),
        "token_type_ids": torch.randint(0, 3, (rows, tokens), generator=draw),
    }
    taken = {name: value for name, value in inputs.items() if name in {"input_ids", *given_inputs}}
    check_parts(plain.double(), MinBert.of(plain).double(), taken)


def gradients(model, **inputs) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    model.zero_grad()
    output = model(**inputs)
    (output.last_hidden_state.square().sum() + output.pooler_output.sum()).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@ATTENTION
def test_gradients(attention):
    """Of every weight, as Hugging Face's, with dropout: from the same random state each falls in its place."""
    plain = tiny_encoder(attention=attention, dropout=0.2).train()
    ours = MinBert.of(plain).train()
    theirs, mine = gradients(plain, **batch()), gradients(ours, **batch())
    assert theirs.keys() == mine.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(mine[name], gradient, atol=1e-5, rtol=1e-4)


# --- adapted as Hugging Face's is
@ATTENTION
@pytest.mark.parametrize("name", METHODS)
def test_every_method_adapts_it(name, attention):
    """Keys, logits and gradients are those of the adapted Hugging Face model; `sts` encodes its texts apart."""
    plain, own = tiny_encoder(attention=attention), MinBert.of(tiny_encoder(attention=attention))
    theirs, mine = (moved(MultiTaskModel(encoder, tiny_method(name), ["rte", "sts"])) for encoder in (plain, own))
    assert equal_states(theirs, mine)
    assert all(type(layer) is minbert.Layer for layer in mine.backbone.encoder.layer)
    inputs = batch(rows=4)
    for task, labels in (("rte", torch.tensor([0, 1, 1, 0])), ("sts", torch.tensor([1.0, 4.0]))):
        outputs = [model(task, **inputs, labels=labels) for model in (theirs, mine)]
        torch.testing.assert_close(outputs[1].logits, outputs[0].logits, atol=1e-6, rtol=1e-5)
        for output in outputs:
            output.loss.backward()
    pairs = list(zip(theirs.named_parameters(), mine.named_parameters(), strict=True))
    assert [p.requires_grad for (_, p), _ in pairs] == [p.requires_grad for _, (_, p) in pairs]
    trained = [(one.grad, other.grad) for (_, one), (_, other) in pairs if one.grad is not None]
    assert trained
    for one, other in trained:
        torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-4)


# --- weights
def small(**options) -> BertConfig:
    return BertConfig(**(tiny_encoder().config.to_dict() | options))


def test_weights_are_copied_in_float32():
    """The other encoder stays as it is, whatever happens to ours; nothing is frozen, nothing drawn."""
    plain = tiny_encoder().to(torch.bfloat16).requires_grad_(False)
    state = torch.get_rng_state()
    ours = MinBert.of(plain)
    assert torch.equal(torch.get_rng_state(), state)
    assert {p.dtype for p in ours.parameters()} == {torch.float32} and not ours.training
    assert all(p.requires_grad and p.is_leaf for p in ours.parameters())
    randomise(ours)
    same = tiny_encoder()
    randomise(MinBert.of(same))
    assert equal_states(same, tiny_encoder()) and equal_states(plain, tiny_encoder().to(torch.bfloat16))


# --- configurations and inputs
def test_what_is_refused():
    """Configurations that are none of BERT's; 40 positions take 40 tokens, not 41; unknown attention."""
    configs = {"roberta": RobertaConfig(), "decoder": small(is_decoder=True), "'gelo'": small(hidden_act="gelo")}
    for named, config in (configs | {"24 .* 5 heads": small(num_attention_heads=5)}).items():
        with pytest.raises(ValueError, match=named):
            MinBert(config)
    ours = MinBert.of(tiny_encoder())
    assert ours(torch.zeros(1, 40, dtype=torch.long)).last_hidden_state.shape == (1, 40, D)
    with pytest.raises(ValueError, match=r"41 tokens.* 40 positions"):
        ours(torch.zeros(1, 41, dtype=torch.long))
    with pytest.raises(ValueError, match="'flash'"):
        ours.set_attn_implementation("flash")


def test_from_scratch():
    """Weights start at N(0, 0.02), biases at 0, norms at 1 and 0; the caller's configuration stays as it was."""
    config = small(initializer_range=0.02)
    model = MinBert(config)
    model.set_attn_implementation("eager")
    assert config._attn_implementation != "eager"
    for name, value in model.state_dict().items():
        if name.endswith("LayerNorm.weight"):
            assert torch.equal(value, torch.ones(D))
        elif name.endswith("bias"):
            assert not value.any()
        else:
            assert 0.01 < value.std() < 0.03
