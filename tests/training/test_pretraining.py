"""Further pre-training: which pieces are chosen and what becomes of them, the loss at them alone, whole folders."""

import json
import math
from functools import partial

import pytest
import torch
from safetensors.torch import load_file
from small_runs import check_same, names_in, small, stop_at
from torch.nn.functional import cross_entropy

from palslib.bert.backbones import load_encoder, load_tokenizer
from palslib.bert.minbert import MinBert
from palslib.common.seeds import seed_from
from palslib.data.tokens import some_rows, tokenise_task
from palslib.training.loop import train
from palslib.training.masked_language_model import HEAD, dev_scores, mask, masked_language_model, predict_chosen
from palslib.training.pretraining import Pretraining, pretrain

# One task of one text, and one of two that are encoded apart.
config = partial(small, tasks=("cola", "sts"), steps=6, batch_size=8, max_length=24, learning_rate=3e-3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run without interruption, and its folder."""
    folder = tmp_path_factory.mktemp("whole") / "backbone"
    return pretrain(config(folder)), folder


def within(count, n, p):
    """Whether a count of n draws of probability p is within four standard deviations of what is expected."""
    return abs(count - n * p) <= 4 * math.sqrt(n * p * (1 - p))


# -------------------------------------------------------------------------------------------------------------- masking
def test_rates(tokenizer):
    """Of 400,000 pieces 15 % are chosen; of those 80 % are masked, 10 % random (of 30,522, one in 30,522 the same)."""
    ids = torch.randint(1000, 30_000, (4_000, 100), generator=torch.Generator().manual_seed(1))
    seen, chosen = mask(ids, tokenizer, seed=0)
    n = int(chosen.sum())
    assert within(n, ids.numel(), 0.15)
    assert torch.equal(seen[~chosen], ids[~chosen])
    masked = int((seen == tokenizer.mask_token_id)[chosen].sum())
    same = int((seen == ids)[chosen].sum())
    assert within(masked, n, 0.8) and within(same, n, 0.1) and within(n - masked - same, n, 0.1)
    random = seen[chosen & (seen != ids) & (seen != tokenizer.mask_token_id)]
    assert within(int((random < 15_261).sum()), len(random), 0.5)  # from the whole vocabulary, evenly


def test_special_pieces_are_never_chosen(tokenizer):
    special = torch.tensor(tokenizer.all_special_ids).repeat(2_000)
    assert {tokenizer.cls_token_id, tokenizer.sep_token_id} <= set(special.tolist())
    seen, chosen = mask(special, tokenizer, seed=0)
    assert torch.equal(seen, special) and not chosen.any()


def test_loss_at_the_chosen_places_alone(tokenizer):
    """Equal to the model's own loss on the padded batch, with labels of -100 everywhere else."""
    model = masked_language_model("tiny")
    rows = tokenise_task("cola", tokenizer, "synthetic", "train", 32).batch(range(8))["rows"]
    logits, labels = predict_chosen(model, rows, tokenizer, 5)
    seen, chosen = mask(rows.input_ids, tokenizer, 5)
    assert torch.equal(labels, rows.input_ids[chosen])
    there = rows.padded(torch.ones_like(seen))
    assert there.sum() == len(seen) < there.numel()
    inputs = {"attention_mask": there, "token_type_ids": rows.padded(rows.token_type_ids)}
    targets = rows.padded(rows.input_ids.where(chosen, -100)).where(there > 0, -100)
    plain = model(input_ids=rows.padded(seen), labels=targets, **inputs)
    torch.testing.assert_close(cross_entropy(logits, labels), plain.loss)


def test_measured_by_a_plain_loop(tokenizer):
    """Of 100 rows in batches of 64, the mean over chosen pieces, not over batches."""
    model = masked_language_model("tiny").eval()
    rows = some_rows(tokenise_task("cola", tokenizer, "synthetic", "train", 24), 100)
    found = dev_scores(model, {"cola": rows}, tokenizer, config(None), torch.device("cpu"))
    losses, right = [], []
    model.eval()
    for i in (0, 64):
        some = rows.batch(range(i, min(i + 64, 100)))["rows"]
        with torch.no_grad():
            logits, labels = predict_chosen(model, some, tokenizer, seed_from(0, "cola", i))
        losses += cross_entropy(logits, labels, reduction="none").tolist()
        right += (logits.argmax(-1) == labels).tolist()
    mean = sum(losses) / len(losses)
    expected = {"accuracy": 100 * sum(right) / len(right), "loss": mean, "perplexity": math.exp(mean)}
    assert found == pytest.approx(expected | {"pieces": len(losses)}, rel=1e-4)


# ------------------------------------------------------------------------------------------------------------ the model
def test_what_is_new_is_drawn_from_the_seed():
    """MiniLM's package has no head: the transform is drawn, the decoder is the word embeddings. From scratch all is."""
    models = [masked_language_model("tiny", seed) for seed in (0, 0, 1)]
    for model in models:
        assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    dense = [model.cls.predictions.transform.dense.weight for model in models]
    assert torch.equal(dense[0], dense[1]) and not torch.equal(dense[0], dense[2])
    known, new = (masked_language_model("minilm", weights=weights) for weights in ("pretrained", "random"))
    assert not torch.equal(*(m.bert.encoder.layer[0].output.dense.weight for m in (known, new)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"micro_batches": 2}, "micro_batches=2: leave it at 1"),
        ({"memory": 4}, "memory=4: leave it at 0"),
        ({"recipe_options": {"epsilon": 1e-6}}, "epsilon=1e-06: leave it at 1e-08"),
        ({"recipe": "released", "tasks": ("cola",)}, "dropout='until evaluated': leave it at 'throughout'"),
        ({"max_length": 200}, "max_length 200 exceeds the 128 positions of 'tiny'"),
    ],
)
def test_a_setting_that_plays_no_part_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        pretrain(config(tmp_path / "new", **changes))
    assert not list(tmp_path.glob("*/*.json"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roberta"}))
    with pytest.raises(ValueError, match="is of type roberta; further pre-training needs type bert"):
        masked_language_model(str(tmp_path))


# ----------------------------------------------------------------------------------------------------------- the folder
def test_the_folder_is_a_backbone(whole):
    """As Hugging Face's BERT and as ours: weights moved by training, but for the pooler, which is not used."""
    _, folder = whole
    start, kept = load_encoder("tiny").state_dict(), load_file(folder / "model.safetensors")
    plain, ours = load_encoder(str(folder)).state_dict(), load_encoder(f"minbert:{folder}")
    assert isinstance(ours, MinBert)
    assert plain.keys() == kept.keys() == ours.state_dict().keys()
    for name, tensor in kept.items():
        assert torch.equal(plain[name], tensor) and torch.equal(ours.state_dict()[name], tensor)
    same = {name for name in start if torch.equal(start[name], kept[name])}
    assert same == {"pooler.dense.weight", "pooler.dense.bias"}
    assert load_tokenizer(str(folder)).mask_token_id == load_tokenizer("tiny").mask_token_id


def test_going_on_from_the_folder(whole, tmp_path):
    """The head comes along: a further run begins where this one ended, on the same dev texts."""
    further = pretrain(config(tmp_path / "further", backbone=str(whole[1]), steps=1))
    assert further["before"] == pytest.approx(whole[0]["after"], rel=1e-5)


def test_record(whole):
    """The same call finds it."""
    record, folder = whole
    assert record == json.loads((folder / "record.json").read_text()) == pretrain(config(folder))
    assert len(record["losses"]) == 6 and record["before"]["pieces"] == record["after"]["pieces"] > 100
    assert str(folder.parent) not in json.dumps(record)
    with pytest.raises(ValueError, match="of the other command"):
        train(config(folder))


def test_a_stopped_run_goes_on_bit_for_bit(whole, tmp_path):
    """Whatever `keep` says, which plays no part."""
    settings = config(tmp_path / "backbone", checkpoint_every=2, keep="best")
    assert pretrain(settings, on_step=stop_at(4))["step"] == 4
    assert names_in(tmp_path / "backbone") == ["checkpoint.before.pt", "checkpoint.pt"]
    seen = []
    record = pretrain(settings, on_step=lambda run: seen.append(run.step))
    assert seen == [5, 6]
    assert record | {"environment": None} == whole[0] | {"environment": None}
    for name in ("model.safetensors", HEAD):
        check_same(load_file(tmp_path / "backbone" / name), load_file(whole[1] / name))


# ------------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize("call", [train, pretrain])
def test_word_pieces_without_embeddings_are_refused_before_the_first_step(tmp_path, call):
    """A tokenizer with words added; masks would draw them even from texts that have none."""
    load_encoder("tiny").save_pretrained(tmp_path / "bert")
    (tokenizer := load_tokenizer("tiny")).add_tokens(["zyzzyva"])
    tokenizer.save_pretrained(tmp_path / "bert")
    (tmp_path / "mood.csv").write_text("text,label\n" + "".join(f"zyzzyva {i},{i % 2}\n" for i in range(60)))
    about = {"backbone": str(tmp_path / "bert"), "steps": 1}
    with pytest.raises(ValueError, match=r"task 'mood', split 'train': word piece 30522, .* 0 to 30,521"):
        call(small(tmp_path / "run", tasks=(str(tmp_path / "mood.csv"),), **about))
    if call is pretrain:
        with pytest.raises(ValueError, match="the tokenizer: word piece"):
            call(small(tmp_path / "run", **about))


def test_the_optimiser_takes_the_configs_numbers(tmp_path, monkeypatch):
    """Its gradients are clipped to `clip`, its rate rises over two steps and falls over two."""
    numbers = {"clip": 0.05, "weight_decay": 0.3, "learning_rate": 1e-3, "warmup": 0.5, "steps": 4}
    run = Pretraining(config(tmp_path, tasks=("cola",), **numbers), tmp_path)
    monkeypatch.setattr(run.optimizer, "zero_grad", lambda set_to_none: None)
    for rate in (5e-4, 1e-3, 1e-3, 5e-4):
        run.model.zero_grad()
        run.train_step()
        norm = torch.nn.utils.get_total_norm([p.grad for p in run.parameters if p.grad is not None])
        matrices, vectors = run.optimizer.param_groups
        assert [float(norm), matrices["lr"], vectors["lr"]] == pytest.approx([0.05, rate, rate], rel=1e-3)
        assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.3, 0.0)


def test_a_weight_that_is_not_finite_is_no_backbone(tmp_path):
    """That of the last position, which no text has: loss and scores stay finite."""

    def spoil(run):
        run.model.bert.embeddings.position_embeddings.weight.data[-1] = math.inf

    with pytest.raises(FloatingPointError, match="a weight is not finite"):
        pretrain(config(tmp_path / "backbone", steps=1), on_step=spoil)
    assert names_in(tmp_path / "backbone") == []


def test_a_batch_without_a_chosen_piece(tmp_path, monkeypatch):
    monkeypatch.setattr("palslib.training.masked_language_model.CHOSEN", 0.0)
    assert pretrain(config(tmp_path / "backbone", steps=2))["losses"] == [0.0, 0.0]
