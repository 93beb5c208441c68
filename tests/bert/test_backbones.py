"""Backbones by name: what is read, and that nothing else is taken for it."""

import json

import pytest
import torch
from safetensors.torch import save_file
from shapes import LAYERS, equal_states, randomise, tiny_encoder, tiny_method
from tokenizers import Tokenizer
from transformers import AutoModel, BertForPreTraining, PreTrainedTokenizerFast, RobertaForMaskedLM, RobertaModel

import palslib.bert.backbones as backbones
from palslib.bert.minbert import MinBert
from palslib.bert.rows import Rows
from palslib.methods.counting import Backbone
from palslib.model.multi_task import MultiTaskModel


@pytest.fixture(scope="module")
def minilm():
    return backbones.load_encoder("minilm")


@pytest.fixture(scope="module")
def pretrained() -> BertForPreTraining:
    """An encoder with the two heads of BERT's pre-training."""
    model = BertForPreTraining(tiny_encoder().config).eval()
    randomise(model, std=0.1)
    return model


def written(folder, config, state, file="model.safetensors"):
    """A checkpoint as somebody else may have written it."""
    config.save_pretrained(folder)
    state = {k: v.clone() for k, v in state.items()}
    save_file(state, folder / file) if file.endswith("safetensors") else torch.save(state, folder / file)
    return str(folder)


def changed(path, **values) -> None:
    """Other values in a file of JSON."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_minilm(minilm, tmp_path, monkeypatch):
    """Six layers of 384 in 12 heads, 22,713,216 parameters, in float32 and eval mode; BERT's lower-case word pieces; no
    folder that has its name, as a task saved as `minilm` leaves it."""
    (tmp_path / "minilm").mkdir()
    (tmp_path / "minilm" / "sst2.safetensors").write_text("")
    monkeypatch.chdir(tmp_path)
    config = backbones.load_config("minilm")
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (6, 384, 12)
    assert config.intermediate_size == 1536
    assert sum(p.numel() for p in minilm.parameters()) == Backbone.of("minilm").parameters == 22_713_216
    assert {p.dtype for p in minilm.parameters()} == {torch.float32} and not minilm.training
    tokenizer = backbones.load_tokenizer("minilm")
    assert len(tokenizer) == 30_522 and tokenizer.is_fast
    assert tokenizer.convert_ids_to_tokens(tokenizer("A PAL")["input_ids"]) == ["[CLS]", "a", "pal", "[SEP]"]


def test_minilm_under_pals_starts_as_it_is(minilm):
    """Every hidden state of a real backbone, and its logits, to rounding; to the bit as without PALs."""
    plain = AutoModel.from_pretrained(backbones.minilm_folder(), dtype=torch.float32).eval()
    text = ["A cat sat on the mat.", "Projected attention layers start at zero, so nothing has changed yet."]
    inputs = backbones.load_tokenizer("minilm")(text, return_tensors="pt", padding=True)
    model, rows = MultiTaskModel.from_backbone(minilm, "pals-204", ["rte"], size=120), Rows.from_padded(**inputs)
    with torch.no_grad():
        expected, there = plain(**inputs, output_hidden_states=True), inputs["attention_mask"].bool()
        states, unadapted = model.encode("rte", rows), model.encode(None, rows)
        for ours, theirs in zip(states, expected.hidden_states, strict=True):
            torch.testing.assert_close(rows.padded(ours)[there], theirs[there], atol=1e-5, rtol=1e-5)
        assert all(map(torch.equal, states, unadapted))
        logits = model.heads["rte"](expected.pooler_output)
        torch.testing.assert_close(model("rte", **inputs).logits, logits, atol=1e-5, rtol=1e-5)


def test_other_weights_than_minilms_are_refused(monkeypatch):
    """Records name its weights by this hash."""
    monkeypatch.setattr(backbones, "MINILM_SHA256", "0" * 64)
    with pytest.raises(ValueError, match="SHA-256 is not the known one"):
        backbones.load_encoder("minilm")


def test_tiny():
    torch.manual_seed(9)
    state = torch.get_rng_state()
    encoder = backbones.load_encoder("tiny", 3)
    assert torch.equal(torch.get_rng_state(), state)
    assert equal_states(encoder, backbones.load_encoder("tiny", 3))
    assert not equal_states(encoder, backbones.load_encoder("tiny", 4))
    assert sum(p.numel() for p in encoder.parameters()) == Backbone.of("tiny").parameters and not encoder.training
    assert len(backbones.load_tokenizer("tiny")) == encoder.config.vocab_size


def test_random_weights_have_the_architecture_and_depend_on_the_seed_alone(minilm):
    """Training from scratch: MiniLM's shapes, none of its numbers; its embeddings N(0, 0.02)."""
    drawn, again, other = (backbones.load_encoder("minilm", seed, "random") for seed in (0, 0, 1))
    shapes = [{k: v.shape for k, v in e.state_dict().items()} for e in (drawn, minilm)]
    assert shapes[0] == shapes[1] and not drawn.training
    words = [e.embeddings.word_embeddings.weight for e in (drawn, again, other, minilm)]
    assert [torch.equal(words[0], one) for one in words[1:]] == [True, False, False]
    assert words[0][1:].std().item() == pytest.approx(0.02, rel=0.01)
    with pytest.raises(ValueError, match="'scratch'"):
        backbones.load_encoder("tiny", weights="scratch")
    with pytest.raises(ValueError, match=r"weights='random'.* BertModel"):
        MultiTaskModel.from_backbone(tiny_encoder(), weights="random")


# --- folders
def test_a_folder(tmp_path):
    """A folder that Hugging Face wrote is a backbone, its pooler included, and is read in float32."""
    plain = tiny_encoder()
    plain.to(torch.bfloat16).save_pretrained(tmp_path)
    model = MultiTaskModel.from_backbone(tmp_path, tiny_method("pals-204"), ["rte"])
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert torch.equal(model.pooler.dense.weight, plain.pooler.dense.weight.float())
    assert model.backbone_name == str(tmp_path)


@pytest.mark.parametrize("ours", ["", "minbert:"])
@pytest.mark.parametrize("form", ["safetensors", "sharded", "bin", "old names"])
def test_forms_of_a_checkpoint(ours, form, pretrained, tmp_path):
    """With heads, in parts, pickled, with gamma and beta for a norm's weight and bias: the same encoder."""
    pretrained.save_pretrained(tmp_path, max_shard_size="10KB" if form == "sharded" else "1GB")
    assert (len(list(tmp_path.glob("*.safetensors"))) > 2) == (form == "sharded")
    state = pretrained.state_dict()
    if form == "old names":
        state = {k.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): v for k, v in state.items()}
        state["bert.embeddings.position_ids"] = torch.arange(40)[None]
    if form in ("bin", "old names"):
        (tmp_path / "model.safetensors").unlink()
        written(tmp_path, pretrained.config, state, "pytorch_model.bin")
    encoder = backbones.load_encoder(f"{ours}{tmp_path}")
    assert isinstance(encoder, MinBert) == bool(ours) and not encoder.training
    assert equal_states(encoder, pretrained.bert)


@pytest.mark.parametrize("ours", ["", "minbert:"])
def test_a_checkpoint_without_pooler(ours, pretrained, tmp_path):
    """Transformers would draw one from whatever random state there is; here it is drawn from the seed and trained, even
    where the backbone is not, and comes back when the model is saved."""
    state = {k: v for k, v in pretrained.bert.state_dict().items() if not k.startswith("pooler.")}
    name = ours + written(tmp_path / "backbone", pretrained.config, state)
    models = [MultiTaskModel.from_backbone(name, "feature-extraction", ["rte"], seed) for seed in (0, 0, 1)]
    assert models[0].backbone.pooler is None and models[0].pooler.dense.weight.requires_grad
    assert equal_states(models[0], models[1]) and not equal_states(models[0].pooler, models[2].pooler)
    models[0].save_pretrained(tmp_path / "model")
    assert equal_states(MultiTaskModel.from_pretrained(tmp_path / "model"), models[0])


def test_a_roberta_without_pooler(tmp_path):
    """As released: with the head of a masked language model, and a buffer that is no weight."""
    model = RobertaForMaskedLM(tiny_encoder("roberta").config)
    state = {k: v for k, v in model.state_dict().items() if "decoder" not in k}
    state["roberta.embeddings.position_ids"] = torch.arange(40)[None]
    encoder = backbones.load_encoder(written(tmp_path, model.config, state))
    assert isinstance(encoder, RobertaModel) and encoder.pooler is None
    assert equal_states(encoder, model.roberta)
    with pytest.raises(ValueError, match="minBERT is a BERT encoder, not roberta"):
        backbones.load_encoder(f"minbert:{tmp_path}")


WRONG = {  # how many layers a checkpoint of three is said to have, a change of its weights, and what is listed
    # eight names at most, then their number: 9 layers more are asked for, with 16 tensors each
    "layers missing": (12, {}, r"missing: encoder\.layer\.10\.attention\.output\.LayerNorm\.bias, .* and 136 more"),
    "a layer more": (2, {}, r"unexpected: .*encoder\.layer\.2\.attention"),
    "half a pooler": (LAYERS, {"pooler.dense.bias": None}, r"missing: pooler\.dense\.bias; unexpected: $"),
    "another shape": (LAYERS, {"pooler.dense.weight": torch.zeros(24, 25)}, "mismatch"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_listed(wrong, pretrained, tmp_path):
    """Else layers would be left out in silence, or drawn at random."""
    layers, values, words = WRONG[wrong]
    config = type(pretrained.config)(**pretrained.config.to_dict() | {"num_hidden_layers": layers})
    state = {k: v for k, v in (pretrained.bert.state_dict() | values).items() if v is not None}
    with pytest.raises((ValueError, RuntimeError), match=words):
        backbones.load_encoder(written(tmp_path, config, state))


# --- no code is run, and what cannot be read is named
def test_a_damaged_file_is_named_with_its_backbone(pretrained, tmp_path):
    """By Transformers' own error, with a note."""
    path = tmp_path / "model.safetensors"
    written(tmp_path, pretrained.config, pretrained.bert.state_dict())
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(Exception) as error:
        backbones.load_encoder(str(tmp_path))
    assert error.value.__notes__ == [f"while reading the weights of {tmp_path}"]


def test_a_pickle_runs_no_code(pretrained, tmp_path):
    """What would open a file when it is unpickled is refused, and the file is not there."""

    class Evil:
        def __reduce__(self):
            return open, (str(tmp_path / "opened"), "w")

    written(tmp_path, pretrained.config, {"embeddings.word_embeddings.weight": torch.zeros(1)}, "pytorch_model.bin")
    torch.save({"embeddings.word_embeddings.weight": Evil()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(Exception, match=r"[Uu]npickl|weights_only"):
        backbones.load_encoder(str(tmp_path))
    assert not (tmp_path / "opened").exists()


def test_code_in_a_folder_is_never_run_nor_asked_about(pretrained, tmp_path, monkeypatch):
    """Nor that of the Hub ("kernels")."""
    written(tmp_path, pretrained.config, pretrained.bert.state_dict())
    backbones.load_tokenizer("tiny").save_pretrained(tmp_path)
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    named = {"AutoConfig": "theirs.C", "AutoModel": "theirs.M", "AutoTokenizer": ["theirs.T", None]}
    for name in ("config.json", "tokenizer_config.json"):
        changed(tmp_path / name, auto_map=named)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    assert equal_states(backbones.load_encoder(str(tmp_path)), pretrained.bert)
    backbones.load_tokenizer(str(tmp_path))
    kernels = {"model_type": "bert", "attn_implementation": "somebody/kernels"}
    for values, words in (({"model_type": "theirs"}, "custom code"), (kernels, "attn_implementation")):
        changed(tmp_path / "config.json", **values)
        with pytest.raises(ValueError, match=words):
            backbones.load_config(str(tmp_path))
    assert not (tmp_path / "ran").exists()


def test_a_tokenizer_that_is_none_of_bert(tmp_path):
    """Without [CLS] and [SEP] the pooler would read the first word of each text; without its vocabulary Transformers
    would make a tokenizer of the special word pieces alone."""
    rules = json.loads(backbones.load_tokenizer("tiny").backend_tokenizer.to_str()) | {"post_processor": None}
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(rules)), **names)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"the tokenizer of {tmp_path} puts no \[CLS\] and \[SEP\]"):
        backbones.load_tokenizer(str(tmp_path))
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(OSError, match="could not load the tokenizer"):
        backbones.load_tokenizer(str(tmp_path))


def test_what_is_not_there(pretrained, tmp_path):
    """What to try is told: `minilm`, a folder, or a download; weights beside a configuration."""
    for load in (backbones.load_config, backbones.load_encoder, backbones.load_tokenizer):
        with pytest.raises(OSError) as error:
            load("no-such/backbone")
        for words in ("no-such/backbone", "backbone='minilm'", "config.json", "hf download", "HF_HUB_OFFLINE"):
            assert words in str(error.value)
    pretrained.config.save_pretrained(tmp_path)
    with pytest.raises(OSError, match="the weights of"):
        backbones.load_encoder(str(tmp_path))
