"""Models that go elsewhere: without what they were made from, to the Hub and back, into Transformers, as programs."""

import shutil
from pathlib import Path

import huggingface_hub
import pytest
import torch
from shapes import batch, equal_states, randomise, randomised, tiny_encoder, tiny_method, tiny_model
from transformers import AutoModel, AutoModelForSequenceClassification

import palslib.model.saving
from palslib.bert.backbones import load_encoder, load_tokenizer
from palslib.data.tasks import Task
from palslib.methods.lora import LoRA
from palslib.model.multi_task import MultiTaskModel

TEXTS = ("It rains.", "The street is wet.")


@pytest.fixture
def folder(tmp_path) -> Path:
    """A backbone's folder, with its tokenizer."""
    load_encoder("tiny", seed=3).save_pretrained(tmp_path / "somewhere")
    load_tokenizer("tiny").save_pretrained(tmp_path / "somewhere")
    return tmp_path / "somewhere"


def small(backbone, *tasks, **options) -> MultiTaskModel:
    return MultiTaskModel.from_backbone(backbone, "pals-204", tasks or ["rte", "stsb"], size=12, **options)


@pytest.mark.parametrize("prefix", ["", "minbert:"])
def test_a_model_on_a_folder_outlives_it(prefix, folder, tmp_path):
    """Saved, loaded, saved again, with the weights and answers of before (to rounding: tensors of a file lie elsewhere
    in memory, and sums depend on that); no file has a word of where anything lay, nor where a task's rows lie."""
    mood = Task("mood", ("text",), ("no", "yes"), data=str(tmp_path / "rows.csv"))
    model = small(f"{prefix}{folder}", "rte", "stsb", mood)
    answers = model.predict(TEXTS, ["rte", "stsb"])
    shutil.rmtree(folder)
    model.save_pretrained(tmp_path / "one")
    loaded = MultiTaskModel.from_pretrained(tmp_path / "one")
    shutil.rmtree(tmp_path / "one")
    loaded.save_pretrained(tmp_path / "two")
    again = MultiTaskModel.from_pretrained(tmp_path / "two")
    assert equal_states(again, model)
    assert again.predict(TEXTS, ["rte", "stsb"])["score"].tolist() == pytest.approx(answers["score"].tolist(), abs=1e-6)
    assert again.backbone_name == f"{prefix}somewhere"
    path = model.save_task("mood", tmp_path)
    assert not [p for p in (path, *(tmp_path / "two").iterdir()) if str(tmp_path).encode() in p.read_bytes()]
    assert model.load_task(path) == "mood" and model.tasks["mood"] == mood  # it fits the model that saved it


def test_a_model_on_an_encoder_object_has_the_tokenizer_that_it_is_given(folder, tmp_path):
    encoder, tokenizer = AutoModel.from_pretrained(folder), load_tokenizer(str(folder))
    without, model = small(encoder), small(encoder, tokenizer=tokenizer)
    shutil.rmtree(folder)
    model.save_pretrained(tmp_path / "with")
    without.save_pretrained(tmp_path / "without")
    loaded = MultiTaskModel.from_pretrained(tmp_path / "with")
    assert loaded.predict(TEXTS, ["rte"]).equals(model.predict(TEXTS, ["rte"]))
    for model in (without, MultiTaskModel.from_pretrained(tmp_path / "without")):  # it is not looked for on the Hub
        with pytest.raises(OSError, match="came without a tokenizer: give tokenizer="):
            model.predict(TEXTS, ["rte"])


@pytest.mark.parametrize("shape", ["bert", "roberta", "bert-without-pooler"])
def test_auto_model_reads_the_backbone(shape, tmp_path):
    """Every tensor of it, and a pooler also where it had none; a model can be made on the folder as on any other."""
    model = randomised("pals-204", shape)
    model.save_pretrained(tmp_path)
    encoder = AutoModel.from_pretrained(tmp_path)
    assert type(encoder) is type(model.backbone) and equal_states(encoder.pooler, model.pooler)
    assert all(torch.equal(encoder.state_dict()[name], value) for name, value in model.backbone.state_dict().items())
    on_it = MultiTaskModel.from_backbone(tmp_path, tiny_method("lhuc"), ["rte"])
    assert equal_states(on_it.backbone, encoder)


@pytest.mark.parametrize("task", ["rte", "stsb"])
@pytest.mark.parametrize("name", ["lora", "shared", "fine-tuned"])
def test_a_task_merged_into_plain_bert_is_loaded_by_transformers_alone(name, task, tmp_path):
    method = LoRA("lora", size=3) if name == "lora" else name
    model = MultiTaskModel.from_backbone(tiny_encoder(), method, ["rte", "stsb"])
    randomise(model.adaptations)
    randomise(model.heads)
    model.backbone.config.problem_type = "multi_label_classification"  # of the classifier that it came from
    model.merged(task).save_pretrained(tmp_path)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(plain(**batch()).logits, model(task, **batch()).logits)
        labels = torch.tensor([0.2, 0.4, 0.1] if task == "stsb" else [0, 1, 1])
        torch.testing.assert_close(plain(**batch(), labels=labels).loss, model(task, **batch(), labels=labels).loss)
    assert list(plain.config.label2id) == list(model.tasks[task].labels or [task])


@pytest.mark.parametrize(
    ("name", "shape"), [("pals-204", "bert"), ("bert-layer-on-top", "bert"), ("shared", "roberta")]
)
def test_what_cannot_be_merged_is_refused(name, shape):
    with pytest.raises(ValueError, match=r"cannot be merged: it|merged only with a linear head on a BERT"):
        tiny_model(name, shape).merged("rte")


def test_to_the_hub_and_back(tmp_path, monkeypatch):
    """With a hub that is a folder. Its card lists the tasks."""
    model, hub = small("tiny"), tmp_path / "hub"
    address = huggingface_hub.RepoUrl("https://huggingface.co/me/two-tasks")
    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", lambda api, **options: address)
    copied = lambda api, folder_path, **options: shutil.copytree(folder_path, hub)  # noqa: E731
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", copied)
    model.push_to_hub("me/two-tasks")
    card = (hub / "README.md").read_text()
    assert "library_name: palslib" in card and "# 2 tasks on one tiny" in card
    assert "\n| rte | sentence1, sentence2 | entailment, not_entailment |\n| stsb | sentence1, sentence2 | a sc" in card
    with pytest.raises(FileNotFoundError, match="there is no folder me/none, nor is that model on the Hub"):
        MultiTaskModel.from_pretrained("me/none")
    download = lambda name, revision: str(hub) if (name, revision) == ("me/two-tasks", "main") else name  # noqa: E731
    monkeypatch.setattr(palslib.model.saving, "snapshot_download", download)
    assert equal_states(MultiTaskModel.from_pretrained("me/two-tasks", revision="main"), model)
    with pytest.raises(ValueError, match="revision is an option for a model on the Hub"):
        MultiTaskModel.from_pretrained(hub, revision="main")


def test_scores_on_the_tasks_own_scale():
    """STS-B's 0 to 5 are five times what the model itself takes as labels and gives as logits. As in a `Trainer`."""
    model, scores = tiny_model("pals-204"), torch.tensor([0.0, 2.5, 5.0])
    divided, alone = model("stsb", **batch(), labels=scores / 5), model.one_task("stsb")(**batch(), labels=scores)
    assert torch.equal(alone.loss, divided.loss) and torch.equal(alone.logits, 5 * divided.logits)
    classes = {"labels": torch.tensor([0, 1, 1])}
    assert torch.equal(model.one_task("rte")(**batch(), **classes).loss, model("rte", **batch(), **classes).loss)


@pytest.mark.parametrize("shape", ["bert", "roberta", "bert-without-pooler"])
def test_export(shape, tmp_path):
    """Of any batch and width, with padding, what the model itself gives; after saving, too."""
    one, sizes = randomised("pals-204", shape).one_task("rte").eval(), {0: torch.export.Dim("B")}
    shapes = dict.fromkeys(batch(shape), sizes | {1: torch.export.Dim("S", max=38)})
    with torch.no_grad():
        program = torch.export.export(one, (), batch(shape), dynamic_shapes=shapes)
        torch.export.save(program, tmp_path / "rte.pt2")
        loaded = torch.export.load(tmp_path / "rte.pt2").module()
        padded = batch(shape, rows=5, width=9, pad=2)
        for inputs in (batch(shape), padded, {name: x.flip(1) for name, x in padded.items()}):  # also on the left
            torch.testing.assert_close(loaded(**inputs).logits, one(**inputs).logits, rtol=1e-5, atol=1e-5)
