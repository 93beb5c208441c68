"""Maps of BERT's and the PALs' heads: what they are equal to, what is restored, and statistics by hand."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from shapes import randomised
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertModel, PreTrainedTokenizerFast

from palslib.bert.rows import Rows
from palslib.study.analysis.attention_maps import (
    STATISTICS,
    AttentionMaps,
    _seen,
    attention_maps,
    head_divergences,
    head_statistics,
    js_divergence,
    numbers_of_heads,
)

TEXT, PAIR = "the old bridge was closed", "nobody may cross"


def make_tokenizer(names=("[CLS]", "[SEP]", "[PAD]", "[UNK]"), processor=processors.BertProcessing):
    """A whole-word tokenizer with these special tokens, whose ids are neither BERT's nor RoBERTa's."""
    cls, sep, pad, unk = names
    vocabulary = {token: number for number, token in enumerate([unk, pad, cls, sep, *TEXT.split(), *PAIR.split()])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processor((sep, vocabulary[sep]), (cls, vocabulary[cls]))
    tokens = {"cls_token": cls, "sep_token": sep, "pad_token": pad, "unk_token": unk}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def model():
    """Three layers of four heads, each with a PAL of three heads."""
    return randomised("pals-204")


# --- what the maps are


def test_roberta_by_the_ids_of_its_own_special_tokens():
    """<s> 5 words </s></s> 3 words </s>: three separators."""
    tokenizer = make_tokenizer(("<s>", "</s>", "<pad>", "<unk>"), processors.RobertaProcessing)
    maps = attention_maps(randomised("pals-204", "roberta"), "rte", tokenizer, TEXT, PAIR)
    assert maps.tokens == ("<s>", *TEXT.split(), "</s>", "</s>", *PAIR.split(), "</s>")
    assert maps.of("pal").shape == (3, 3, 12, 12) and np.flatnonzero(maps.cls).tolist() == [0]
    assert np.flatnonzero(maps.sep).tolist() == [6, 7, 11]
    assert maps.texts.tolist() == [-1, 0, 0, 0, 0, 0, -1, -1, 1, 1, 1, -1]
    assert head_statistics(maps)["to_other"].notna().all()


def test_plain_maps_equal_those_of_hugging_face_and_a_task_changes_those_above_its_first_layer(model, tokenizer):
    """The same weights in a BertModel that was never adapted, asked by its own option. Layer 0 reads the embeddings,
    which tasks share; layer 1 reads what the task function has changed."""
    plain = BertModel(copy.deepcopy(model.config)).eval()
    plain.load_state_dict(model.backbone.state_dict())
    plain.set_attn_implementation("eager")
    inputs = tokenizer(TEXT, PAIR, return_token_type_ids=True, return_tensors="pt")
    with torch.inference_mode():
        theirs = torch.cat(plain(**inputs, output_attentions=True).attentions).numpy()
    ours, rte = (attention_maps(model, task, tokenizer, TEXT, PAIR) for task in (None, "rte"))
    np.testing.assert_allclose(ours.of("bert"), theirs, atol=1e-5)
    assert ours.task == "plain" and set(ours.weights) == {"bert"}
    np.testing.assert_allclose(rte.of("bert")[0], theirs[0], atol=1e-5)
    assert np.abs(rte.of("bert")[1] - theirs[1]).max() > 1e-3


def test_pal_maps_reproduce_what_the_pal_adds(model, tokenizer):
    """TS(h) = V^D [map_1 v_1, ..., map_H v_H], with v = W_v V^E h, against what the model adds."""
    maps = attention_maps(model, "rte", tokenizer, TEXT, PAIR)
    inputs, pals = tokenizer(TEXT, PAIR, return_token_type_ids=True, return_tensors="pt"), model.adaptations["rte"]
    rows = Rows.from_padded(**inputs)
    with torch.inference_mode():
        states = model.encode("rte", rows)
        for layer in range(3):
            z = pals.projection(layer).encoder(states[layer])
            value = pals.functions[str(layer)].qkv(z)[:, 24:]  # after query and key, 12 wide each
            context = torch.from_numpy(maps.of("pal")[layer]) @ value.unflatten(-1, (3, 4)).transpose(0, 1)
            ours = pals.projection(layer).decoder(context.transpose(0, 1).flatten(1))
            torch.testing.assert_close(ours, pals.parallel(layer, states[layer], rows), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("method", "options", "bert", "pal", "heads"),
    [
        ("pals-276-top", {}, 3, (2,), 3),
        ("pals-shared-across-tasks-204", {}, 3, (0, 1, 2), 3),
        ("attention-on-top-204", {}, 3, (3, 4, 5, 6, 7, 8), 3),  # the six on top of BERT count on
        ("houlsby-64", {"second": "pal", "pal_size": 24}, 3, (0, 1, 2), 12),  # in the place of a second adapter
        ("low-rank-100", {}, 3, (), 0),
        ("bert-layer-on-top", {}, 4, (), 0),  # a whole layer on top is BERT's next
        ("fine-tuned", {}, 3, (), 0),
    ],
)
def test_layers_of_berts_and_of_added_attention(tokenizer, method, options, bert, pal, heads):
    model = randomised(method, **options)
    maps = attention_maps(model, "rte", tokenizer, TEXT)
    added = {"pal": dict.fromkeys(pal, heads)} if pal else {}
    assert numbers_of_heads(model, "rte") == {"bert": dict.fromkeys(range(bert), 4)} | added
    assert numbers_of_heads(model, None) == {"bert": dict.fromkeys(range(3), 4)}
    assert maps.layers == {kind: tuple(layers) for kind, layers in numbers_of_heads(model, "rte").items()}
    for kind, layers in maps.layers.items():
        np.testing.assert_allclose(maps.of(kind).sum(-1), 1, atol=1e-6)
        assert set(head_statistics(maps).query("kind == @kind")["layer"]) == {*layers}


# --- training mode, and errors


def test_a_model_in_training_is_looked_at_without_dropout(tokenizer):
    """And each of its parts is in the mode that it was in."""
    model = randomised("pals-204", dropout=0.1)
    still = attention_maps(model, "rte", tokenizer, TEXT).of("bert")
    model.train()
    model.pooler.eval()
    modes = [part.training for part in model.modules()]
    np.testing.assert_array_equal(attention_maps(model, "rte", tokenizer, TEXT).of("bert"), still)
    assert [part.training for part in model.modules()] == modes


def test_errors_say_what_there_is(model, tokenizer):
    plain, other = attention_maps(model, None, tokenizer, TEXT), attention_maps(model, "rte", tokenizer, PAIR)
    for named, act in {
        "'rtee'.* rte, stsb": lambda: attention_maps(model, "rtee", tokenizer, TEXT),
        "no task is named": lambda: plain.of("pal"),
        "only BERT's maps": lambda: attention_maps(randomised("low-rank-100"), "rte", tokenizer, TEXT).of("pal"),
        "'brt'.*bert": lambda: plain.of("brt"),
        "layer 3.* 0, 1, 2": lambda: plain.layer("bert", 3),
        "texts": lambda: head_divergences([plain], [other], ("bert", "bert")),
        "task's maps": lambda: head_divergences([plain, other], [plain, other], ("bert", "bert")),
    }.items():
        with pytest.raises(ValueError, match=named):
            act()


# --- statistics by hand


def by_hand(task="rte", texts=None, **heads) -> AttentionMaps:
    """The maps of one layer's heads, by their kind, of hand-made tokens: [CLS] first, [SEP] last."""
    weights = {kind: np.array(maps, dtype=np.float32)[None] for kind, maps in heads.items()}
    size = next(iter(weights.values())).shape[-1]
    places, texts = np.arange(size), np.array([-1] * size if texts is None else texts)
    parts = (tuple("abcdefgh"[:size]), texts, places == 0, places == size - 1)
    return AttentionMaps(task, *parts, weights, dict.fromkeys(weights, (0,)))


def row(maps) -> dict:
    (values,) = head_statistics(maps).to_dict("records")
    return values


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (np.eye(4), [0, 0, 0.25, 0.25, 1, 0, 0, 0]),
        (np.full((4, 4), 0.25), [math.log(4), 1] + [0.25] * 6),
        (0.25 * np.eye(4) + 0.75 * np.eye(4)[[1, 2, 3, 3]], [0.4217, 0.3042, 0.0625, 0.4375, 0.4375, 0, 0.75, 0.375]),
    ],
    ids=["identity", "uniform", "shifted"],
)
def test_statistics_by_hand(weights, expected):
    """Entropy and its share of log 4; attention to [CLS], [SEP], itself, the previous, the next token, the other text.

    Shifted: row i looks at i + 1 with 0.75 and at itself with 0.25, the last row at itself. To the next token: rows 0,
    1, 2 have one, 0.75 each. Entropy of such a row: 0.75 log(4/3) + 0.25 log 4 = 0.5623; the mean of three of them and
    0 is 0.4217. To itself: (3 · 0.25 + 1)/4 = 0.4375. To [SEP]: (0.75 + 1)/4 = 0.4375. To the other text: of token 1
    (text 0), 0.75; of token 2 (text 1), 0: mean 0.375.
    """
    got = row(by_hand(texts=[-1, 0, 1, -1], bert=[weights]))
    assert list(got) == ["task", "kind", "layer", "head", *STATISTICS]
    assert [got[name] for name in STATISTICS] == pytest.approx(expected, abs=1e-4)


def test_texts_count_alike_and_tasks_apart():
    """A text of 2 tokens and one of 4: self-attention 1 and 1/4, mean 5/8; `to_other` only where there is a pair."""
    one = by_hand(bert=[np.eye(2)])
    two = by_hand(texts=[-1, 0, 1, -1], bert=[np.full((4, 4), 0.25)])
    got = row([one, two])
    assert got["to_self"] == pytest.approx(0.625) and got["to_other"] == pytest.approx(0.25)
    both = head_statistics([one, replace(two, task="plain")])
    assert both["task"].tolist() == ["rte", "plain"] and both["to_self"].tolist() == [1, 0.25]
    assert math.isnan(row(one)["to_other"])


# --- distances


def test_js_divergence_by_hand():
    """Disjoint: log 2. (1, 0) and (1/2, 1/2): H(3/4, 1/4) − log(2)/2 = 0.5623 − 0.3466 = 0.2158."""
    assert js_divergence([1, 0], [0, 1]) == pytest.approx(math.log(2))
    assert js_divergence([1, 0], [0.5, 0.5]) == pytest.approx(0.2158, abs=1e-4)
    assert js_divergence([[0.3, 0.7], [1, 0]], [0.3, 0.7]).shape == (2,)


def test_heads_are_matched_whatever_their_order():
    """Three heads, looking at themselves, ahead and at the first token; the other task has them in another order."""
    heads = np.stack([np.eye(3), np.eye(3)[[1, 2, 2]], np.eye(3)[[0, 0, 0]]])
    frame = head_divergences([by_hand(pal=heads)], [by_hand("cola", pal=heads[[2, 0, 1]])])
    assert len(frame) == 9 and frame["divergence"].max() <= math.log(2) + 1e-9
    best = frame[frame["matched"]]
    assert dict(zip(best["head"], best["other_head"], strict=True)) == {0: 1, 1: 2, 2: 0}
    assert best["divergence"].tolist() == [0, 0, 0]
    # Heads 0 and 1 agree on the last row alone: log 2 on two rows of three.
    same = frame[(frame["head"] == 0) & (frame["other_head"] == 2)]
    assert same["divergence"].item() == pytest.approx(2 / 3 * math.log(2))


def test_maps_are_as_wide_as_the_text_also_where_rows_are_padded():
    """To a multiple of eight, as on a GPU."""
    row = Rows.pack(torch.arange(5), torch.zeros(5, dtype=torch.long), [5], one_group=True)
    seen = _seen(randomised("pals-204"), "rte", row)
    assert {weights.shape[2:] for layers in seen.values() for weights in layers.values()} == {(5, 5)}
