"""Backbones by name: what is read, and that nothing else is taken for it."""

import copy
import json

import pytest
import torch
from safetensors.torch import save_file
from shapes import LAYERS, equal_states, randomise, tiny_encoder
from tokenizers import Tokenizer
from transformers import BertForPreTraining, PreTrainedTokenizerFast, RobertaForMaskedLM

import palslib.bert.backbones as backbones
from palslib.model.multi_task import MultiTaskModel


@pytest.fixture(scope="module")
def pretrained() -> BertForPreTraining:
    """An encoder with the two heads of BERT's pre-training."""
    model = BertForPreTraining(tiny_encoder().config).eval()
    randomise(model, std=0.1)
    return model


def written(folder, config, state) -> str:
    """A checkpoint as somebody else may have written it."""
    config.save_pretrained(folder)
    save_file({k: v.clone() for k, v in state.items()}, folder / "model.safetensors")
    return str(folder)


def test_minilm(tmp_path, monkeypatch):
    """22,713,216 parameters, BERT's lower-case word pieces; no folder that has its name, as a task saved as `minilm`
    leaves it; no other weights than those that records name by their hash."""
    (tmp_path / "minilm").mkdir()
    monkeypatch.chdir(tmp_path)
    tokenizer = backbones.load_tokenizer("minilm")
    assert sum(p.numel() for p in backbones.load_encoder("minilm").parameters()) == 22_713_216
    assert tokenizer.is_fast and tokenizer("A PAL").tokens() == ["[CLS]", "a", "pal", "[SEP]"]
    monkeypatch.setattr(backbones, "MINILM_SHA256", "0" * 64)
    with pytest.raises(ValueError, match="SHA-256 is not the known one"):
        backbones.load_encoder("minilm")


@pytest.mark.parametrize(("name", "weights"), [("tiny", "pretrained"), ("minilm", "random")])
def test_random_weights_have_the_architecture_and_depend_on_the_seed_alone(name, weights):
    """Also training from scratch; embeddings are N(0, 0.02). Nothing is drawn from torch's generator."""
    state = torch.get_rng_state()
    drawn, again, other = (backbones.load_encoder(name, seed, weights) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state) and not drawn.training
    assert equal_states(drawn, again) and not equal_states(drawn, other)
    assert drawn.config.hidden_size == backbones.load_config(name).hidden_size
    assert drawn.embeddings.word_embeddings.weight[1:].std().item() == pytest.approx(0.02, rel=0.01)
    with pytest.raises(ValueError, match=r"weights='random'.* BertModel"):
        MultiTaskModel.from_backbone(tiny_encoder(), weights="random")


# --- folders
@pytest.mark.parametrize("form", ["safetensors", "bfloat16", "sharded", "pickled"])
def test_forms_of_a_checkpoint(form, pretrained, tmp_path, caplog):
    """With heads, in bfloat16, in parts, pickled with gamma and beta for a norm's weight and bias: the same encoder, in
    float32."""
    pretrained = copy.deepcopy(pretrained).to(torch.bfloat16 if form == "bfloat16" else torch.float32)
    pretrained.save_pretrained(tmp_path, max_shard_size="10KB" if form == "sharded" else "1GB")
    assert (len(list(tmp_path.glob("*.safetensors"))) > 2) == (form == "sharded")
    if form == "pickled":
        (tmp_path / "model.safetensors").unlink()
        state = pretrained.state_dict() | {"bert.embeddings.position_ids": torch.arange(40)[None]}
        state = {k.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): v for k, v in state.items()}
        torch.save(state, tmp_path / "pytorch_model.bin")
    encoder = backbones.load_encoder(str(tmp_path))
    assert equal_states(encoder, pretrained.bert.float()) and encoder.dtype == torch.float32 and not encoder.training
    assert not caplog.text  # no report on the heads, which are not loaded


@pytest.mark.parametrize("ours", ["", "minbert:"])
def test_a_checkpoint_without_pooler(ours, pretrained, tmp_path):
    """Transformers would draw one from whatever random state there is; here it is drawn from the seed and trained, even
    where the backbone is not."""
    state = {k: v for k, v in pretrained.bert.state_dict().items() if not k.startswith("pooler.")}
    name = ours + written(tmp_path / "backbone", pretrained.config, state)
    before = torch.get_rng_state()
    models = [MultiTaskModel.from_backbone(name, "feature-extraction", ["rte"], seed) for seed in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), before)
    assert models[0].backbone.pooler is None and models[0].pooler.dense.weight.requires_grad
    assert equal_states(models[0], models[1]) and not equal_states(models[0].pooler, models[2].pooler)


def test_a_roberta_without_pooler(tmp_path):
    """As released: with the head of a masked language model."""
    model = RobertaForMaskedLM(tiny_encoder("roberta").config)
    state = {k: v for k, v in model.state_dict().items() if "decoder" not in k}
    encoder = backbones.load_encoder(written(tmp_path, model.config, state))
    assert encoder.pooler is None and equal_states(encoder, model.roberta)


@pytest.mark.parametrize(
    ("layers", "values", "words"),
    [
        (12, {}, r"missing: encoder\.layer\.10\.attention\.output\.LayerNorm\.bias, "),
        (2, {}, r"unexpected: .*encoder\.layer\.2\.attention"),
        (LAYERS, {"pooler.dense.weight": torch.zeros(24, 25)}, "mismatch"),
    ],
)
def test_what_does_not_fit_is_listed(layers, values, words, pretrained, tmp_path):
    """Else layers would be left out in silence, or drawn at random: a checkpoint of three is said to have 12, or 2."""
    config = type(pretrained.config)(**pretrained.config.to_dict() | {"num_hidden_layers": layers})
    with pytest.raises((ValueError, RuntimeError), match=words):
        backbones.load_encoder(written(tmp_path, config, pretrained.bert.state_dict() | values))


# --- no code is run
def test_a_pickle_runs_no_code(pretrained, tmp_path):
    """What would open a file when it is unpickled is refused, and the file is not there."""

    class Evil:
        def __reduce__(self):
            return open, (str(tmp_path / "opened"), "w")

    pretrained.config.save_pretrained(tmp_path)
    torch.save({"embeddings.word_embeddings.weight": Evil()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(Exception, match=r"[Uu]npickl|weights_only"):
        backbones.load_encoder(str(tmp_path))
    assert not (tmp_path / "opened").exists()


def test_code_in_a_folder_is_never_run_nor_asked_about(pretrained, tmp_path, monkeypatch):
    """Nor that of the Hub ("kernels")."""
    written(tmp_path, pretrained.config, pretrained.bert.state_dict())
    backbones.load_tokenizer("tiny").save_pretrained(tmp_path)
    (tmp_path / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))

    def change(name, **values):
        (tmp_path / name).write_text(json.dumps(json.loads((tmp_path / name).read_text()) | values))

    for name in ("config.json", "tokenizer_config.json"):
        change(name, auto_map={"AutoConfig": "theirs.C", "AutoModel": "theirs.M", "AutoTokenizer": ["theirs.T", None]})
    assert equal_states(backbones.load_encoder(str(tmp_path)), pretrained.bert)
    backbones.load_tokenizer(str(tmp_path))
    kernels = {"model_type": "bert", "attn_implementation": "somebody/kernels"}
    for values, words in (({"model_type": "theirs"}, "custom code"), (kernels, "attn_implementation")):
        change("config.json", **values)
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
    with pytest.raises(ValueError, match=r"puts no \[CLS\] and \[SEP\]"):
        MultiTaskModel.from_backbone(tiny_encoder(), "shared", ["sst2"], tokenizer=tokenizer)
    (tmp_path / "tokenizer.json").unlink()
    tiny_encoder().config.save_pretrained(tmp_path / "other")
    (tmp_path / "other" / "sentencepiece.bpe.model").touch()  # not a file that a BERT's tokenizer reads
    for folder in (tmp_path, tmp_path / "other"):
        with pytest.raises(OSError, match="could not load the tokenizer"):
            backbones.load_tokenizer(str(folder))


def test_what_is_not_there(pretrained, tmp_path):
    """What to try is told. An error of Transformers, as of a damaged file, has a note with the backbone's name."""
    for load in (backbones.load_config, backbones.load_encoder, backbones.load_tokenizer):
        for name in ("no-such/backbone", "./no/bert"):
            with pytest.raises(OSError, match=f"{name}.* backbone='minilm'.*hf download {name}"):
                load(name)
    pretrained.config.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(Exception) as error:
        backbones.load_encoder(str(tmp_path))
    assert str(tmp_path) in error.value.__notes__[0]
