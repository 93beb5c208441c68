"""Models that go elsewhere: without what they were made from, to the Hub and back, into Transformers and ONNX."""

import copy
import math
import shutil
from pathlib import Path

import huggingface_hub
import pytest
import torch
from shapes import batch, equal_states, randomise, randomised, tiny_encoder, tiny_method, tiny_model
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments
from transformers.utils import ModelOutput

import palslib.model.saving
from palslib.bert.backbones import load_encoder, load_tokenizer
from palslib.data.tasks import load_rows
from palslib.methods.lora import LoRA
from palslib.model.multi_task import MultiTaskModel

TEXTS = ("It rains.", "The street is wet.")


@pytest.fixture
def folder(tmp_path) -> Path:
    """A backbone's folder, with its tokenizer."""
    load_encoder("tiny", seed=3).save_pretrained(tmp_path / "somewhere")
    load_tokenizer("tiny").save_pretrained(tmp_path / "somewhere")
    return tmp_path / "somewhere"


def small(backbone, **options) -> MultiTaskModel:
    return MultiTaskModel.from_backbone(backbone, "pals-204", ["rte", "stsb"], size=12, **options)


@pytest.mark.parametrize("prefix", ["", "minbert:"])
def test_a_model_on_a_folder_outlives_it(prefix, folder, tmp_path):
    """Saved, loaded, saved again, with the weights and answers of before (to rounding: tensors of a file lie elsewhere
    in memory, and sums depend on that); no file has a word of where anything lay."""
    model = small(f"{prefix}{folder}")
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
    assert not [p for p in (tmp_path / "two").iterdir() if str(tmp_path).encode() in p.read_bytes()]


def test_a_model_on_an_encoder_object_has_the_tokenizer_that_it_is_given(folder, tmp_path):
    encoder, tokenizer = AutoModel.from_pretrained(folder), load_tokenizer(str(folder))
    without, model = small(encoder), small(encoder, tokenizer=tokenizer)
    shutil.rmtree(folder)
    model.save_pretrained(tmp_path / "with")
    without.save_pretrained(tmp_path / "without")
    loaded = MultiTaskModel.from_pretrained(tmp_path / "with")
    assert loaded.predict(TEXTS, ["rte"]).equals(model.predict(TEXTS, ["rte"]))
    for model in (without, MultiTaskModel.from_pretrained(tmp_path / "without")):  # it is not looked for on the Hub
        with pytest.raises(OSError, match="made from a loaded encoder: give tokenizer="):
            model.predict(TEXTS, ["rte"])
    with pytest.raises(OSError, match="could not load the tokenizer"):  # not one of five word pieces
        load_tokenizer(str(tmp_path / "without"))


@pytest.mark.parametrize("shape", ["bert", "roberta", "bert-without-pooler"])
def test_auto_model_reads_the_backbone(shape, tmp_path):
    """Every tensor of it, and a pooler also where it had none; a model can be made on the folder as on any other."""
    model = randomised("pals-204", shape)
    model.save_pretrained(tmp_path)
    encoder = AutoModel.from_pretrained(tmp_path)
    assert type(encoder) is type(model.backbone) and equal_states(encoder.pooler, model.pooler)
    assert all(torch.equal(encoder.state_dict()[name], value) for name, value in model.backbone.state_dict().items())
    on_it = MultiTaskModel.from_backbone(str(tmp_path), tiny_method("lhuc"), ["rte"])
    assert equal_states(on_it.backbone, encoder)


@pytest.mark.parametrize("task", ["rte", "stsb"])
@pytest.mark.parametrize("name", ["lora", "shared", "fine-tuned"])
def test_a_task_merged_into_plain_bert_is_loaded_by_transformers_alone(name, task, tmp_path):
    method = LoRA("lora", size=3) if name == "lora" else name
    model = MultiTaskModel.from_backbone(tiny_encoder(), method, ["rte", "stsb"])
    randomise(model.adaptations)
    randomise(model.heads)
    model.merged(task).save_pretrained(tmp_path)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(plain(**batch()).logits, model(task, **batch()).logits)
    assert list(plain.config.label2id) == list(model.tasks[task].labels or [task])


@pytest.mark.parametrize(
    ("name", "shape"), [("pals-204", "bert"), ("bert-layer-on-top", "bert"), ("shared", "roberta")]
)
def test_what_cannot_be_merged_is_refused(name, shape):
    with pytest.raises(ValueError, match=r"cannot be merged: it|merged only with a linear head on a BERT"):
        tiny_model(name, shape).merged("rte")


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Path:
    """A hub that is a folder: what huggingface_hub's mixin asks of the real one."""

    def create_repo(api, repo_id, **options):
        (tmp_path / "hub" / repo_id).mkdir(parents=True)
        return huggingface_hub.RepoUrl(f"https://huggingface.co/{repo_id}")

    def upload_folder(api, repo_id, folder_path, **options):
        shutil.copytree(folder_path, tmp_path / "hub" / repo_id, dirs_exist_ok=True)
        return "the commit's address"

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    place = lambda repo_id, **options: str(tmp_path / "hub" / repo_id)  # noqa: E731
    monkeypatch.setattr(palslib.model.saving, "snapshot_download", place)
    return tmp_path / "hub"


def test_to_the_hub_and_back(hub, monkeypatch):
    model = small("tiny")
    model.push_to_hub("me/two-tasks")
    loaded = MultiTaskModel.from_pretrained("me/two-tasks", revision="main")
    assert equal_states(loaded, model) and loaded.tasks == model.tasks
    assert loaded.predict(TEXTS, ["stsb"]).equals(model.predict(TEXTS, ["stsb"]))
    tokens = AutoTokenizer.from_pretrained(hub / "me" / "two-tasks")(*TEXTS)["input_ids"]
    assert tokens == load_tokenizer("tiny")(*TEXTS)["input_ids"]
    card = (hub / "me" / "two-tasks" / "README.md").read_text()
    assert "library_name: palslib" in card and "# 2 tasks on one tiny" in card
    assert (
        "\n| rte | sentence1, sentence2 | entailment, not_entailment |\n| stsb | sentence1, sentence2 | a score |\n"
        in card
    )
    monkeypatch.undo()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match="there is no folder me/none, nor is that model on the Hub"):
        MultiTaskModel.from_pretrained("me/none")


def test_what_a_call_gives_is_an_output_as_in_transformers():
    model, labels = tiny_model("pals-204"), torch.tensor([0, 1, 1])
    output = model("rte", **batch(), labels=labels)
    assert isinstance(output, ModelOutput)
    loss, logits = output.to_tuple()
    assert loss is output.loss is output["loss"] and logits is output.logits is output[1]
    assert torch.equal(model("rte", **batch())[0], logits)  # without labels there is no loss


def test_scores_on_the_tasks_own_scale():
    """STS-B's 0 to 5 are a fifth of that as labels."""
    model, scores = tiny_model("pals-204"), torch.tensor([0.0, 2.5, 5.0])
    own, divided = model("stsb", **batch(), scores=scores), model("stsb", **batch(), labels=scores / 5)
    assert torch.equal(own.loss, divided.loss)
    alone = model.one_task("stsb")(**batch(), labels=scores)  # as in a `Trainer`
    assert torch.equal(alone.loss, divided.loss) and torch.equal(alone.logits, 5 * divided.logits)
    for task, given in (("rte", {"scores": scores}), ("stsb", {"scores": scores, "labels": scores})):
        with pytest.raises(ValueError, match=f"task '{task}': give scores without labels, and only"):
            model(task, **batch(), **given)


@pytest.mark.parametrize("task", ["rte", "stsb"])
def test_inside_transformers_trainer(task, tmp_path):
    """Two steps: the task's parameters move, the other's stay; labels are those of `load_rows`."""
    model, other = small("tiny"), {"rte": "stsb", "stsb": "rte"}[task]
    before = copy.deepcopy(model)
    frame = load_rows(task).head(8)
    encoded = model.tokenizer(*(frame[name].tolist() for name in model.tasks[task].texts), padding=True)
    rows = [{**{k: v[i] for k, v in encoded.items()}, "labels": frame["label"].iloc[i].item()} for i in range(8)]
    about = {"max_steps": 2, "per_device_train_batch_size": 4, "learning_rate": 0.1, "warmup_steps": 0}
    about |= {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    arguments = TrainingArguments(str(tmp_path), **about)
    trainer = Trainer(model.one_task(task), arguments, train_dataset=rows, eval_dataset=rows)
    assert trainer.train().global_step == 2
    assert math.isfinite(trainer.evaluate()["eval_loss"])
    assert not equal_states(model.heads[task], before.heads[task])
    assert equal_states(model.heads[other], before.heads[other])


def shapes(inputs: dict) -> dict:
    sizes = {0: torch.export.Dim("B"), 1: torch.export.Dim("S", max=38)}
    return {name: sizes for name in inputs}


@pytest.mark.parametrize("shape", ["bert", "roberta", "bert-without-pooler"])
def test_export(shape, tmp_path):
    """Of any batch and width, with padding, what the model itself gives; after saving, too."""
    one = randomised("pals-204", shape).one_task("rte").eval()
    with torch.no_grad():
        program = torch.export.export(one, (), batch(shape), dynamic_shapes=shapes(batch(shape)))
        torch.export.save(program, tmp_path / "rte.pt2")
        loaded = torch.export.load(tmp_path / "rte.pt2").module()
        padded = batch(shape, rows=5, width=9, pad=2)
        for inputs in (batch(shape), padded, {name: x.flip(1) for name, x in padded.items()}):  # also on the left
            torch.testing.assert_close(loaded(**inputs).logits, one(**inputs).logits, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_onnx(tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    one = randomised("pals-204").one_task("rte").eval()
    torch.onnx.export(one, (), tmp_path / "rte.onnx", kwargs=batch(), dynamic_shapes=shapes(batch()), verbose=False)
    session = runtime.InferenceSession(tmp_path / "rte.onnx")
    for inputs in (batch(), batch(rows=5, width=9, pad=2)):
        given = {name.name: inputs[name.name].numpy() for name in session.get_inputs()}
        with torch.no_grad():
            expected = one(**inputs).logits
        torch.testing.assert_close(torch.from_numpy(session.run(None, given)[0]), expected, rtol=1e-4, atol=1e-4)
