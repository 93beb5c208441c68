"""A model saved whole, one task saved by itself, and what is refused on loading."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from shapes import EVERY, equal_states, logits_of, randomise, randomised, tiny_encoder, tiny_method, tiny_model
from transformers import AutoModel

from palslib.bert.backbones import load_tokenizer
from palslib.data.tasks import TASKS, get_task
from palslib.model.multi_task import MultiTaskModel


def trained(name, shape="bert", tasks=("rte", "stsb"), **options):
    """A model in which everything has moved, the backbone too, and that draws further tasks from a seed of its own."""
    model = randomised(name, shape, tasks=tasks, seed=5, **options)
    randomise(model.backbone, seed=11, std=0.05)
    randomise(model.pooler, seed=12, std=0.05)
    randomise(model.heads, seed=13, std=0.05)
    return model


def same_backbone(model, tasks):
    """Another model object: its backbone, pooler and shared projections are the first one's; its tasks are new."""
    other = tiny_model(model.method, tasks=tasks)
    shared = {k: v for k, v in model.state_dict().items() if not k.startswith(("adaptations.", "heads."))}
    other.load_state_dict(shared, strict=False)
    return other


@pytest.mark.parametrize("shape", ["bert", "roberta", "xlm-roberta", "bert-without-pooler"])
@pytest.mark.parametrize("name", EVERY)
def test_whole_model(name, shape, tmp_path):
    """Logits of every task are equal bit for bit, and everything that the model knows comes back."""
    model = trained(name, shape)
    model.head_dropout = 0.3
    model.save_pretrained(tmp_path / "model")
    torch.manual_seed(4)
    state = torch.get_rng_state()
    other = MultiTaskModel.from_pretrained(tmp_path / "model")
    assert torch.equal(torch.get_rng_state(), state)
    assert equal_states(model, other)
    for task in model.tasks:
        assert torch.equal(logits_of(model, shape, task), logits_of(other, shape, task))
    for about in ("method", "tasks", "seed", "backbone_name", "head_dropout"):
        assert getattr(other, about) == getattr(model, about)
    assert not any(module.training for module in other.modules())
    assert [p.requires_grad for p in other.parameters()] == [p.requires_grad for p in model.parameters()]


def test_saving_again_replaces_its_own_files_and_keeps_what_else_is_there(tmp_path):
    """A tokenizer of ours goes, a tokenizer's file of the user stays; a card and a link stay as they are."""
    first, second = MultiTaskModel.from_backbone("tiny", tiny_method("shared"), ["rte"]), tiny_model("pals-204", seed=3)
    (tmp_path / "README.md").symlink_to(tmp_path / "elsewhere")
    first.save_pretrained(tmp_path)
    mine = {"vocab_of_my_thesis.md": "mine", "special_tokens_map.json": "{}"}
    for name, text in mine.items():
        (tmp_path / name).write_text(text)
    second.save_pretrained(tmp_path)
    loaded = MultiTaskModel.from_pretrained(tmp_path)
    assert equal_states(loaded, second) and loaded.own_tokenizer is None
    ours = ["README.md", "config.json", "model.safetensors", "palslib.json"]
    assert sorted(os.listdir(tmp_path)) == sorted([*ours, *mine])
    assert (tmp_path / "README.md").is_symlink() and not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", EVERY)
def test_one_task_onto_another_model(name, tmp_path):
    """On a model with the same trained backbone the task's logits are equal; the other tasks keep their bits."""
    model = trained(name)
    path = model.save_task("rte", tmp_path)
    for tasks in (("cola",), ("rte", "cola")):  # a task that is new there, and one that is replaced
        other = same_backbone(model, tasks)
        if name == "pals-204":  # what is frozen is about training
            other.method = replace(other.method, freeze="backbone")
        before = logits_of(other, task="cola")
        assert other.load_task(path) == "rte" and other.tasks["rte"] == model.tasks["rte"]
        assert torch.equal(logits_of(other), logits_of(model))
        assert torch.equal(logits_of(other, task="cola"), before)
        assert all(p.requires_grad for p in other.adaptations.parameters())
        assert not any(module.training for module in other.modules())


@pytest.mark.parametrize("shape", ["bert", "bert-without-pooler"])
def test_fingerprint_is_of_all_that_is_shared(shape):
    """It changes with the backbone, the pooler (also a new one) and projections across tasks, not with a task's
    parameters."""
    model = tiny_model("pals-shared-across-tasks-204", shape)
    start = model.fingerprint()
    assert start == tiny_model("pals-shared-across-tasks-204", shape, tasks=("cola",)).fingerprint()
    randomise(model.adaptations)
    randomise(model.heads)
    model.add_task("mrpc")
    assert model.fingerprint() == start
    seen = {start}
    for part in (model.backbone.encoder.layer[2].output.LayerNorm, model.pooler, model.shared):
        randomise(part)
        seen.add(model.fingerprint())
    assert len(seen) == 4
    own = {tiny_model("fine-tuned", shape, seed=seed).fingerprint() for seed in (0, 1)}  # nobody reads a new pooler
    assert len(own) == 1


def test_refused_files(tmp_path):
    """Another backbone, method, tokenizer or task of that name; a file of something else; damage: each says what it is,
    and changes nothing."""
    model = trained("pals-204")
    model.own_tokenizer = load_tokenizer("tiny")
    path = model.save_task("rte", tmp_path)
    other, content = same_backbone(model, ("cola",)), path.read_bytes()
    state = {key: value.clone() for key, value in other.state_dict().items()}
    save_file({"x": torch.zeros(2)}, tmp_path / "x.safetensors")
    for name, damaged in (("bit", content[:-9] + bytes([content[-9] ^ 4]) + content[-8:]), ("cut", content[:-9])):
        (tmp_path / f"{name}.safetensors").write_bytes(damaged)
    (cased := same_backbone(model, ())).own_tokenizer = load_tokenizer("tiny")
    cased.own_tokenizer.add_tokens(["zyzzyva"])
    mine = same_backbone(model, [replace(TASKS["rte"], labels=("a", "b", "c"))])
    for target, file, word in (
        (tiny_model("pals-204", heads=6), "rte", "heads 3, not 6"),
        (mine, "rte", r"different task 'rte': labels .*'entailment'"),
        (cased, "rte", "another tokenizer"),
        (other, "x", "not written by save_task"),
        (other, "bit", "is damaged"),
        (other, "cut", "is damaged"),
        (other, "none", "no task file"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=word):
            target.load_task(tmp_path / f"{file}.safetensors")
    assert list(other.tasks) == ["cola"] and state.keys() == other.state_dict().keys()
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in state.items())


def test_the_length_of_its_rows_travels_with_a_task(tmp_path):
    """Through a task's file, a whole model and a run that starts from it, whatever the other tasks have."""
    long, model = "rain " * 60, MultiTaskModel.from_backbone("tiny", "pals-204", ["cola"], size=12)
    randomise(model)
    model.max_length = 32
    path, expected = model.save_task("cola", tmp_path), model.predict(long, "cola")["score"].item()
    other = MultiTaskModel.from_backbone(model.backbone, model.method, ["sst2"], tokenizer=model.tokenizer)
    other.load_task(path)
    scores, longer = (other.predict(long, ["cola", "sst2"], max_length=most)["score"].tolist() for most in (None, 128))
    assert scores == pytest.approx([expected, longer[1]], abs=1e-6) and longer[0] != pytest.approx(expected, abs=1e-6)
    other.save_pretrained(tmp_path / "model")
    again = MultiTaskModel.from_pretrained(tmp_path / "model")
    further = MultiTaskModel.continued(tmp_path / "model", other.method, other.backbone_name, [TASKS["sst2"]])
    further.max_length = 16
    for one in (again, further):
        assert (one.length("cola"), one.predict(long, "cola")["score"].item()) == (32, expected)


@pytest.mark.parametrize("name", ["model.safetensors", "palslib.json", "config.json", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["a bit", "gone", "another model's"])
def test_a_damaged_folder_is_refused(tmp_path, name, damage):
    for folder, method in ((tmp_path / "a", "lhuc"), (tmp_path / "b", "shared")):
        MultiTaskModel.from_backbone("tiny", method, ["rte"]).save_pretrained(folder)
    path = tmp_path / "a" / name
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "a bit":
        path.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
    else:
        path.write_bytes((tmp_path / "b" / name).read_bytes() + b" ")
    with pytest.raises((ValueError, FileNotFoundError), match=r"is missing|damaged"):
        MultiTaskModel.from_pretrained(tmp_path / "a")


def test_where_no_model_is(tmp_path):
    for folder, words in ((tmp_path / "none", "there is no folder"), (tmp_path, "holds no model saved by palslib")):
        with pytest.raises(FileNotFoundError, match=words):
            MultiTaskModel.from_pretrained(folder)


def test_what_could_not_be_read_is_not_saved(tmp_path):
    model = trained("lhuc")
    path = model.save_task("rte", tmp_path)
    model.save_pretrained(tmp_path / "model")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with torch.no_grad():
        model.heads["rte"].bias[0] = float("nan")
    for save in (lambda: model.save_task("rte", tmp_path), lambda: model.save_pretrained(tmp_path / "model")):
        with pytest.raises(ValueError, match=r"not saved, because '\S+bias' has a value that is not finite"):
            save()
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} and path in before


def test_models_and_tasks_of_other_types(tmp_path):
    """A file of a narrower type is read without loss, and the model that reads it keeps its own; one of float64 stays
    so. A configuration may still say float16, a seed be NumPy's."""
    encoder = AutoModel.from_config(tiny_encoder().half().config).float()
    model = MultiTaskModel(encoder, tiny_method("lhuc"), ["rte"], seed=np.int64(7))
    for dtype, read in ((torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.double, torch.double)):
        randomise(model.to(dtype).backbone, std=1e-9)
        model.save_pretrained(tmp_path / "model")
        other = MultiTaskModel.from_pretrained(tmp_path / "model")
        assert equal_states(model.to(read), other) and other.dtype == read and other.seed == 7
    path = model.float().save_task("rte", tmp_path, torch.float16)
    assert {tensor.dtype for tensor in load_file(path).values()} == {torch.float16}
    assert model.load_task(path) == "rte" and {p.dtype for p in model.parameters()} == {torch.float32}


# ------------------------------------------------------------------------------------- runs that go on from a model


def continued(saved, folder, *tasks, **changes):
    """The saved model, prepared for training tasks with the method, backbone and seed that it has, unless changed."""
    about = {"method": saved.method, "backbone_name": saved.backbone_name, "seed": None} | changes
    saved.save_pretrained(folder)
    return MultiTaskModel.continued(folder, tasks=[get_task(task) for task in tasks], **about)


@pytest.mark.parametrize("name", ["houlsby-64", "pals-204", "fine-tuned"])
def test_further_tasks_leave_the_earlier_ones_alone(name, tmp_path):
    """The earlier task's parameters come back bit for bit and are not trained; the new one's are."""
    saved = trained(name, tasks=("rte",))
    model, other = (continued(saved, tmp_path, "stsb", seed=seed) for seed in (None, saved.seed + 1))
    assert list(model.tasks) == ["rte", "stsb"] and not equal_states(other, model)
    for part in (model.adaptations, model.heads):
        assert not any(p.requires_grad for p in part["rte"].parameters())
        assert all(p.requires_grad for p in part["stsb"].parameters())
    for one in (model, other):
        one.remove_task("stsb")
        assert equal_states(one, saved)


def test_a_task_goes_on_from_its_parameters_and_freezing_is_decided_anew(tmp_path):
    saved = trained("pals-204", tasks=("rte", "cola"))
    frozen = replace(saved.method, freeze="backbone")
    model = continued(saved, tmp_path, "rte", "sst2", method=frozen)
    trains = {name for name, p in model.named_parameters() if p.requires_grad}
    own = {name for name, _ in model.named_parameters() if name.startswith(("adaptations.", "heads."))}
    assert trains == {name for name in own if "cola" not in name}
    model.remove_task("sst2")
    assert equal_states(model, saved) and model.method == frozen
    assert all(p.requires_grad for p in continued(saved, tmp_path, "rte").backbone.parameters())


def test_a_run_goes_on_from_the_same_kind_of_model_and_the_same_task(tmp_path):
    saved = tiny_model("pals-204", tasks=("rte",))
    other = replace(TASKS["rte"], labels=("no", "yes"))
    for task, changes, words in (
        (other, {}, r"a different task 'rte': labels .*'entailment', .*, not \('no', 'yes'\)"),
        ("stsb", {"backbone_name": "minilm"}, "is on the backbone BertModel, not on minilm"),
        ("stsb", {"method": tiny_method("houlsby-64")}, "kind 'pal', not 'houlsby'"),
    ):
        with pytest.raises(ValueError, match=words):
            continued(saved, tmp_path, task, **changes)


@pytest.mark.parametrize(
    ("name", "shape"), [("pals-shared-across-tasks-204", "bert"), ("low-rank-100", "bert-without-pooler")]
)
def test_under_a_frozen_backbone_no_task_but_the_trained_ones_changes(name, shape, tmp_path):
    """Neither by the projections that all tasks share nor by a pooler that the backbone did not have."""
    saved = tiny_model(name, shape, tasks=("rte",))
    for task, trains in (("cola", False), ("rte", True)):
        model = continued(saved, tmp_path, task, method=replace(saved.method, freeze="backbone"))
        shared = [p for part in (model.shared, model.new_pooler) if part is not None for p in part.parameters()]
        assert shared and all(p.requires_grad == trains for p in shared)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "palslib.json", "rte.safetensors"])
def test_nothing_is_saved_over_files_of_others(tmp_path, name):
    """A downloaded BERT's folder, and a file that has a task's name."""
    model = tiny_model("shared")
    (tmp_path / name).write_text("{}")
    save = model.save_pretrained if name != "rte.safetensors" else lambda folder: model.save_task("rte", folder)
    with pytest.raises((FileExistsError, ValueError), match=name):
        save(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "{}"}
