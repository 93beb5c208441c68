"""BERT from scratch: equal to Hugging Face's part by part, adapted by the same mixin, loaded from its checkpoints."""

import inspect
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from shapes import VOCABULARY, D, batch, equal_states, randomise, tiny_encoder, tiny_method
from transformers import (
    AutoModel,
    BertConfig,
    BertForPreTraining,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraForPreTraining,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaModel,
)
from transformers.masking_utils import create_bidirectional_mask

from palslib.bert import minbert
from palslib.bert.backbones import load_encoder, load_tokenizer
from palslib.bert.minbert import MinBert
from palslib.bert.minbert_weights import load_minbert, minbert_from_state
from palslib.methods.table import METHODS
from palslib.model.multi_task import AdaptedLayer, MultiTaskModel
from palslib.plan.config import RunConfig
from palslib.training.loop import train

ATTENTION = pytest.mark.parametrize("attention", ["eager", "sdpa"])

pytestmark = pytest.mark.usefixtures("one_thread")


def ours_of(plain) -> MinBert:
    return minbert_from_state(plain.config, plain.state_dict())


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


def test_at_most_220_lines():
    """It is to be read from top to bottom."""
    assert len(inspect.getsource(minbert).splitlines()) <= 220


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
    config = BertConfig(
        hidden_size=heads * width,
        num_attention_heads=heads,
        intermediate_size=inner,
        num_hidden_layers=layers,
        vocab_size=VOCABULARY,
        max_position_embeddings=13,
        type_vocab_size=3,
        hidden_act=activation,
        initializer_range=0.3,
    )
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
    check_parts(plain.double(), ours_of(plain).double(), taken)


@ATTENTION
def test_padding_changes_nothing(attention):
    """What stands at padding, and how much there is of it, does not reach the tokens."""
    ours = ours_of(tiny_encoder(attention=attention))
    short, long = batch(rows=1), batch(rows=1, pad=5)
    long["input_ids"][:, 7:] = 17
    with torch.no_grad():
        check_close(ours(**long).last_hidden_state[:, :7], ours(**short).last_hidden_state)


@ATTENTION
def test_dropout_falls_where_hugging_faces_falls(attention):
    """From the same random state, the same sums with the same numbers left out: every dropout is in its place."""
    plain = tiny_encoder(attention=attention, dropout=0.5)
    ours = ours_of(plain)
    outputs = []
    for model in (plain.train(), ours.train()):
        torch.manual_seed(3)
        outputs.append(model(**batch()).last_hidden_state)
    check_close(outputs[1], outputs[0])
    torch.manual_seed(4)
    assert not torch.allclose(ours(**batch()).last_hidden_state, outputs[1], atol=0.1)
    assert torch.equal(*(ours.eval()(**batch()).last_hidden_state for _ in range(2)))


@ATTENTION
@pytest.mark.parametrize("part", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_each_dropout_acts_in_train_mode(attention, part):
    encoder = tiny_encoder(attention=attention)
    setattr(encoder.config, part, 0.5)
    ours = ours_of(encoder)
    still = ours(**batch()).last_hidden_state
    assert not torch.allclose(ours.train()(**batch()).last_hidden_state, still, atol=0.1)


def gradients(model, **inputs) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    model.zero_grad()
    output = model(**inputs)
    (output.last_hidden_state.square().sum() + output.pooler_output.sum()).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@ATTENTION
def test_gradients(attention):
    """Of every weight, as Hugging Face's; and to the bit the same where activations are recomputed, with dropout."""
    plain = tiny_encoder(attention=attention, dropout=0.2).train()
    ours = ours_of(plain).train()
    theirs, mine = gradients(plain, **batch()), gradients(ours, **batch())
    assert theirs.keys() == mine.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(mine[name], gradient, atol=1e-5, rtol=1e-4)
    calls = []
    ours.encoder.layer[1].register_forward_pre_hook(lambda *_: calls.append(1))
    ours.activation_checkpointing_enable()
    again = gradients(ours, **batch())
    assert len(calls) == 2  # forward, and again on the way back
    assert all(torch.equal(again[name], mine[name]) for name in mine)


# --- adapted as Hugging Face's is


def adapted(encoder, name: str, tasks=("rte", "sts")) -> MultiTaskModel:
    """A model as training may leave it, the same whatever the encoder's class."""
    model = MultiTaskModel.from_backbone(encoder, tiny_method(name), tasks)
    randomise(model.adaptations)
    if model.shared is not None:
        randomise(model.shared)
    return model


@ATTENTION
@pytest.mark.parametrize("name", METHODS)
def test_every_method_adapts_it(name, attention):
    """Keys, logits and gradients are those of the adapted Hugging Face model; `sts` encodes its texts apart."""
    plain = tiny_encoder(attention=attention)
    theirs, mine = adapted(plain, name), adapted(ours_of(tiny_encoder(attention=attention)), name)
    assert equal_states(theirs, mine)
    assert all(
        isinstance(layer, AdaptedLayer) and isinstance(layer, minbert.Layer) for layer in mine.backbone.encoder.layer
    )
    inputs = batch(rows=4)
    for task, labels in (("rte", torch.tensor([0, 1, 1, 0])), ("sts", torch.tensor([1.0, 4.0]))):
        outputs = [model(task, **inputs, labels=labels) for model in (theirs, mine)]
        torch.testing.assert_close(outputs[1].logits, outputs[0].logits, atol=1e-6, rtol=1e-5)
        for output in outputs:
            output.loss.backward()
    pairs = list(zip(theirs.named_parameters(), mine.named_parameters(), strict=True))
    assert [p.requires_grad for (_, p), _ in pairs] == [p.requires_grad for _, (_, p) in pairs]
    moved = [(one.grad, other.grad) for (_, one), (_, other) in pairs if one.grad is not None]
    assert moved
    for one, other in moved:
        torch.testing.assert_close(other, one, atol=1e-5, rtol=1e-4)


def test_a_model_without_pooler_gets_one():
    """As with any encoder that has none: drawn from the seed, and trained even where the backbone is not."""
    plain = tiny_encoder()
    state = {k: v for k, v in plain.state_dict().items() if not k.startswith("pooler.")}
    ours = minbert_from_state(plain.config, state)
    assert ours.pooler is None and ours(**batch()).pooler_output is None
    model = MultiTaskModel.from_backbone(ours, tiny_method("feature-extraction"), ["rte"])
    assert model.pooler_is_new and model.pooler.dense.weight.requires_grad


@pytest.mark.parametrize("name", ["pals-204", "bert-layer-on-top", "fine-tuned"])
def test_saved_and_loaded(name, tmp_path):
    """A whole model comes back as our own BERT, with the same bits."""
    model = adapted(load_encoder("minbert:tiny"), name)
    model.save_pretrained(tmp_path)
    other = MultiTaskModel.from_pretrained(tmp_path)
    assert isinstance(other.backbone, MinBert)
    assert equal_states(model, other)
    with torch.no_grad():
        assert torch.equal(other("rte", **batch()).logits, model("rte", **batch()).logits)


def test_a_task_fits_either_class(tmp_path):
    """The weights are the same, so a task trained on one may be loaded into the other."""
    model, other = (adapted(load_encoder(name), "pals-204") for name in ("minbert:tiny", "tiny"))
    assert model.fingerprint() == other.fingerprint()
    randomise(model.adaptations["rte"], seed=8)
    assert other.load_task(model.save_task("rte", tmp_path)) == "rte"
    assert equal_states(other, model)


RUN = {
    "method": "pals-204",
    "size": 24,
    "tasks": ("sst5", "quora", "sts"),
    "steps": 6,
    "batch_size": 6,
    "max_length": 24,
    "head_dropout": 0.3,
    "evaluate_every": 3,
    "progress": False,
}


def test_training(tmp_path):
    """The report's three tasks, with dropout: the same losses and scores as on Hugging Face's class, and kept whole."""
    records = []
    for backbone in ("tiny", "minbert:tiny"):
        config = RunConfig(**RUN, backbone=backbone, keep="last", folder=str(tmp_path / backbone.replace(":", "-")))
        records.append(train(config))
    assert records[1]["config"]["backbone"] == "minbert:tiny"
    one, other = (record["history"] for record in records)
    assert [point["step"] for point in other] == [3, 6]
    for theirs, mine in zip(one, other, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], abs=1e-4)
        assert mine["scores"].keys() == theirs["scores"].keys() == {"sst5", "quora", "sts"}
    weights = [load_file(tmp_path / name / "last" / "model.safetensors") for name in ("tiny", "minbert-tiny")]
    assert weights[0].keys() == weights[1].keys()
    for key, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][key], tensor, atol=1e-4, rtol=1e-3)
    assert isinstance(MultiTaskModel.from_pretrained(tmp_path / "minbert-tiny" / "last").backbone, MinBert)


# --- checkpoints


def small(**options) -> BertConfig:
    return BertConfig(**(tiny_encoder().config.to_dict() | options))


def pretrained() -> BertForPreTraining:
    """An encoder with the two heads of BERT's pre-training, every bias and norm away from 0 and 1."""
    model = BertForPreTraining(small()).eval()
    randomise(model, std=0.1)
    return model


def test_names_of_any_age():
    """Heads are left out; `bert.` before the names, gamma and beta for a norm's, and a constant buffer are known."""
    model = pretrained()
    old = {k.replace("LayerNorm.weight", "LayerNorm.gamma"): v for k, v in model.state_dict().items()}
    old = {k.replace("LayerNorm.bias", "LayerNorm.beta"): v for k, v in old.items()}
    assert "bert.embeddings.LayerNorm.gamma" in old and any(k.startswith("cls.") for k in old)
    old["bert.embeddings.position_ids"] = torch.arange(40)[None]
    ours = minbert_from_state(model.config, old)
    assert equal_states(ours, model.bert)
    check_parts(model.bert, ours, batch())


def test_weights_are_copied_in_float32():
    """The checkpoint's own tensors stay as they are, whatever happens to the model."""
    plain = tiny_encoder().to(torch.bfloat16)
    before = plain.pooler.dense.weight.clone()
    ours = ours_of(plain)
    assert {p.dtype for p in ours.parameters()} == {torch.float32} and not ours.training
    randomise(ours)
    assert torch.equal(plain.pooler.dense.weight, before)
    same = tiny_encoder()
    randomise(ours_of(same))
    assert equal_states(same, tiny_encoder())


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_folder(file, tmp_path):
    """A folder that Hugging Face wrote, in either of its formats, also by the name of a backbone."""
    model = pretrained()
    model.save_pretrained(tmp_path)
    if file.endswith("bin"):
        (tmp_path / "model.safetensors").unlink()
        torch.save(model.state_dict(), tmp_path / file)
    assert equal_states(load_minbert(tmp_path), model.bert)
    named = MultiTaskModel.from_backbone(f"minbert:{tmp_path}", tiny_method("shared"), ["rte"])
    assert isinstance(named.backbone, MinBert) and named.backbone_name == f"minbert:{tmp_path}"


def others() -> dict:
    sizes = {"hidden_size": D, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 37}
    return {
        "RoBERTa": RobertaForMaskedLM(RobertaConfig(**sizes, vocab_size=99)),
        "DistilBERT": DistilBertModel(DistilBertConfig(dim=D, n_heads=4, n_layers=2, hidden_dim=37, vocab_size=99)),
        "ELECTRA": ElectraForPreTraining(ElectraConfig(**sizes, vocab_size=99, embedding_size=20)),
    }


def test_other_architectures():
    """Named, with what does not fit; and by a folder's configuration before any weight is read."""
    for name, model in others().items():
        with pytest.raises(ValueError, match=f"it is of {name}, another architecture") as error:
            minbert_from_state(small(), model.state_dict(), "weights.bin")
        assert str(error.value).startswith("weights.bin is no checkpoint of this BERT")
        assert "missing: " in str(error.value) and "unexpected: " in str(error.value)


def test_a_bare_roberta():
    """It has BERT's names, and is told by one token type in place of two, where the rest is of the same size."""
    roberta = RobertaModel(RobertaConfig(**small(type_vocab_size=1).to_dict() | {"model_type": "roberta"}))
    with pytest.raises(
        ValueError, match=r"1 of another shape: embeddings.token_type_embeddings.weight \(1, 24\), not \(2, 24\)"
    ):
        minbert_from_state(small(), roberta.state_dict())


def test_a_folder_of_another_architecture(tmp_path):
    others()["DistilBERT"].save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is of another architecture, 'distilbert'; minBERT loads 'bert'"):
        load_minbert(tmp_path)


def test_what_does_not_fit_is_listed():
    """Eight of each kind at most, then their number: 12 layers are asked for, with 16 tensors each, and 3 are there."""
    state = tiny_encoder().state_dict()
    state["pooler.dense.weight"] = torch.zeros(D, D + 1)
    state["encoder.extra"] = torch.zeros(1)
    with pytest.raises(ValueError) as error:
        minbert_from_state(small(num_hidden_layers=12), state)
    first, *lines = str(error.value).splitlines()
    assert first == "this state dict is no checkpoint of this BERT: it does not fit its configuration"
    assert lines[0].startswith("144 missing: encoder.layer.3.attention.self.query.weight; ")
    assert lines[0].endswith(", and 136 more") and lines[0].count(";") == 7
    assert lines[1:] == [
        "1 unexpected: encoder.extra",
        "1 of another shape: pooler.dense.weight (24, 25), not (24, 24)",
    ]


def test_half_a_pooler_is_no_pooler():
    state = tiny_encoder().state_dict()
    del state["pooler.dense.bias"]
    with pytest.raises(ValueError, match=r"1 missing: pooler\.dense\.bias"):
        minbert_from_state(small(), state)


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("damage", ["cut", "noise", "empty"])
def test_damaged_file(file, damage, tmp_path):
    """Named, whatever is wrong with it."""
    model = pretrained()
    model.config.save_pretrained(tmp_path)
    path = tmp_path / file
    if file.endswith("bin"):
        torch.save(model.state_dict(), path)
    else:
        save_file({"bert.pooler.dense.bias": torch.zeros(D)}, path)
    content = path.read_bytes()
    path.write_bytes({"cut": content[: len(content) // 2], "noise": b"noise" * 100, "empty": b""}[damage])
    with pytest.raises(ValueError, match=f"{file} of .* is damaged"):
        load_minbert(tmp_path)


def test_no_weights(tmp_path):
    """A configuration alone: both files are named, and by a backbone's name what to try."""
    small().save_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"holds neither model\.safetensors nor pytorch_model\.bin"):
        load_minbert(tmp_path)
    with pytest.raises(OSError, match="backbone='minilm', which needs no hub"):
        load_encoder(f"minbert:{tmp_path}")
    shutil.rmtree(tmp_path)
    with pytest.raises(OSError, match="could not load"):
        load_encoder(f"minbert:{tmp_path}")


# --- configurations and inputs


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (RobertaConfig(), "minBERT is a BERT encoder, not roberta"),
        (small(is_decoder=True), "minBERT is a BERT encoder, not bert decoder"),
        (small(hidden_act="gelo"), "unknown activation 'gelo': did you mean 'gelu'"),
        (small(num_attention_heads=5), "hidden size 24 is not divisible by 5 heads"),
    ],
)
def test_configuration_that_is_none(config, message):
    with pytest.raises(ValueError, match=message):
        MinBert(config)


def test_unknown_attention():
    with pytest.raises(ValueError, match="unknown attention 'flash'"):
        MinBert(small()).set_attn_implementation("flash")


def test_too_long():
    """40 positions take 40 tokens, not 41."""
    ours = ours_of(tiny_encoder())
    assert ours(torch.zeros(1, 40, dtype=torch.long)).last_hidden_state.shape == (1, 40, D)
    with pytest.raises(ValueError, match="41 tokens, but this BERT has 40 positions"):
        ours(torch.zeros(1, 41, dtype=torch.long))


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
