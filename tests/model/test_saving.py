"""A model saved whole, one task saved by itself, and what is refused on loading."""

import errno
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from shapes import equal_states, logits_of, randomise, randomised, tiny_encoder, tiny_method, tiny_model
from transformers import AutoModel

from palslib.common.sealed import SEAL, seal, seal_file
from palslib.data.tasks import TASKS, Task
from palslib.methods.table import METHODS
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
    other = tiny_model(model.method.name, tasks=tasks)
    other.backbone.load_state_dict(model.backbone.state_dict())
    other.pooler.load_state_dict(model.pooler.state_dict())
    if model.shared is not None:
        other.shared.load_state_dict(model.shared.state_dict())
    return other


@pytest.mark.parametrize("shape", ["bert", "roberta", "xlm-roberta", "bert-without-pooler"])
@pytest.mark.parametrize("name", METHODS)
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
    assert other.method == model.method
    assert other.tasks == model.tasks
    assert (other.seed, other.backbone_name, other.head_dropout) == (model.seed, model.backbone_name, 0.3)
    assert not any(module.training for module in other.modules())
    grads = [{k for k, p in m.named_parameters() if p.requires_grad} for m in (model, other)]
    assert grads[0] == grads[1]


def test_options_come_back(tmp_path):
    """A method with options of its own is not the row of its name when it is loaded."""
    options = {"sharing": "tasks", "layers": "top", "activation": "gelu", "init": "normal", "pooler": "per-task"}
    model = trained("pals-204", **options, freeze="backbone but norms", heads=6)
    model.save_pretrained(tmp_path)
    other = MultiTaskModel.from_pretrained(tmp_path)
    assert other.method == model.method
    assert torch.equal(logits_of(model), logits_of(other))


def test_tasks_come_back(tmp_path):
    """A task of one's own, and one added late: labels, metrics and scale are in the folder."""
    mine = Task(
        "mood", ("a", "b"), ("x", "y", "z"), ("matthews",), ("dev", "test"), scale=2.0, label="l", separator="\t"
    )
    model = trained("low-rank-100", tasks=(mine,))
    model.add_task("stsb")
    model.save_pretrained(tmp_path)
    other = MultiTaskModel.from_pretrained(str(tmp_path))
    assert other.tasks == {"mood": mine, "stsb": TASKS["stsb"]}
    assert torch.equal(logits_of(model, task="mood"), logits_of(other, task="mood"))


def test_files(tmp_path):
    """Safetensors and JSON, nothing that is unpickled; nothing temporary is left."""
    model = trained("pals-204")
    model.save_pretrained(tmp_path / "model")
    path = model.save_task("rte", tmp_path / "tasks")
    files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    whole = ["README.md", "config.json", "manifest.json", "model.safetensors", "palslib.json"]
    assert files == [*(f"model/{name}" for name in whole), "tasks/rte.safetensors"]
    assert path == tmp_path / "tasks" / "rte.safetensors"
    as_in_transformers = {key.replace("backbone.", "bert.", 1) for key in model.state_dict()}
    assert set(load_file(tmp_path / "model" / "model.safetensors")) == as_in_transformers
    expected = {f"adaptation.{key}" for key in model.adaptations["rte"].state_dict()}
    assert set(load_file(path)) == expected | {"head.weight", "head.bias"}
    about = json.loads((tmp_path / "model" / "palslib.json").read_text())
    assert about["method"]["size"] == 12
    assert about["backbone"]["model_type"] == "bert"


def test_saving_again_replaces_and_keeps_what_else_is_there(tmp_path):
    first, second = trained("pals-204"), tiny_model("pals-204", seed=3)
    first.save_task("rte", tmp_path)
    first.head_dropout = np.float32(0.5)  # is saved as a number
    first.save_pretrained(tmp_path / "within")
    with (tmp_path / "notes.txt").open("w") as log:  # still open when its folder is replaced
        first.save_pretrained(tmp_path)
        MultiTaskModel.from_backbone("tiny", "shared", ["rte"]).save_pretrained(tmp_path)  # with a tokenizer
        (tmp_path / "special_tokens_map.json").write_text("{}")  # of a tokenizer of the user
        second.save_pretrained(tmp_path)
        log.write("mine")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert equal_states(MultiTaskModel.from_pretrained(tmp_path), second)
    ours = ["README.md", "config.json", "manifest.json", "model.safetensors", "palslib.json"]
    assert sorted(os.listdir(tmp_path)) == sorted(
        [*ours, "notes.txt", "rte.safetensors", "special_tokens_map.json", "within"]
    )
    assert MultiTaskModel.from_pretrained(tmp_path / "within").head_dropout == 0.5
    assert list(tmp_path.parent.glob(tmp_path.name + ".*")) == []


@pytest.mark.parametrize("name", METHODS)
def test_one_task_onto_another_model(name, tmp_path):
    """On a model with the same trained backbone the task's logits are equal; the other tasks keep their bits."""
    model = trained(name)
    path = model.save_task("rte", tmp_path)
    for tasks in (("cola",), ("rte", "cola")):  # a task that is new there, and one that is replaced
        other = same_backbone(model, tasks)
        before = logits_of(other, task="cola")
        assert other.load_task(path) == "rte"
        assert torch.equal(logits_of(other), logits_of(model))
        assert torch.equal(logits_of(other, task="cola"), before)
        assert other.tasks["rte"] == model.tasks["rte"]
        assert all(p.requires_grad for p in other.adaptations.parameters())
        assert not any(module.training for module in other.modules())


def test_what_a_run_freezes_does_not_decide_which_tasks_fit(tmp_path):
    """A task trained on a frozen BERT fits that BERT."""
    model = trained("pals-204")
    frozen = same_backbone(model, ("cola",))
    frozen.method = replace(frozen.method, freeze="backbone")
    assert frozen.load_task(model.save_task("rte", tmp_path)) == "rte"


def test_a_folder_stands_for_its_one_task_file(tmp_path):
    """`load_task(folder)` reads the task file in it, beside a whole model too; of two it does not choose."""
    model = trained("lhuc")
    model.save_task("rte", tmp_path)
    model.save_pretrained(tmp_path)
    other = MultiTaskModel.from_pretrained(tmp_path)
    other.remove_task("rte")
    assert other.load_task(tmp_path) == "rte"
    assert torch.equal(logits_of(other), logits_of(model))
    model.save_task("stsb", tmp_path)
    with pytest.raises(ValueError, match=r"rte\.safetensors, stsb\.safetensors"):
        other.load_task(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="none"):
        other.load_task(tmp_path / "empty")


@pytest.mark.parametrize("shape", ["bert", "bert-without-pooler"])
def test_fingerprint_is_of_all_that_is_shared(shape):
    """It changes with the backbone, the pooler (one that is built, too) and projections across tasks, and not with a
    task's parameters."""
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


def test_refused_files(tmp_path):
    """Another backbone, method or task of that name; a file of something else; no file: each says what it is."""
    model = trained("pals-204")
    path = model.save_task("rte", tmp_path)
    other = same_backbone(model, ("cola",))
    state = {key: value.clone() for key, value in other.state_dict().items()}

    def refuses(kind, words, path, target=other):
        with pytest.raises(kind, match=words):
            target.load_task(path)

    refuses(ValueError, "another backbone.*fit only the backbone", path, tiny_model("pals-204"))
    refuses(ValueError, r"is for pals \(s=12\), not low-rank", path, tiny_model("low-rank-100"))
    heads = tiny_model("pals-204", heads=6)
    refuses(ValueError, r"'heads': \(3, 6\)", path, heads)
    mine = same_backbone(model, [replace(TASKS["rte"], labels=("a", "b", "c"))])
    refuses(ValueError, "differs from the model's task of that name", path, mine)
    save_file({"x": torch.zeros(2)}, tmp_path / "x.safetensors")
    refuses(ValueError, "not written by save_task", tmp_path / "x.safetensors")
    refuses(FileNotFoundError, "no task file", tmp_path / "none.safetensors")
    assert list(other.tasks) == ["cola"]
    assert state.keys() == other.state_dict().keys()
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in state.items())


def test_what_a_folder_lacks(tmp_path):
    for folder in (tmp_path / "none", tmp_path):
        with pytest.raises(FileNotFoundError, match=r"holds no model saved by palslib \(palslib.json is missing\)"):
            MultiTaskModel.from_pretrained(folder)
    trained("lhuc").save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"holds no model saved by palslib \(model.safetensors is missing\)"):
        MultiTaskModel.from_pretrained(tmp_path)
    path.touch()
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(
        ValueError, match=r"not a complete model as this version of palslib saves it: manifest\.json is missing"
    ):
        MultiTaskModel.from_pretrained(tmp_path)


def test_a_kill_between_the_two_renames(tmp_path):
    """The old folder was moved aside, as in common/test_common.py: it is found, and the next save goes through."""
    first, second = trained("pals-204"), tiny_model("pals-204", seed=3)
    folder = tmp_path / "model"
    first.save_pretrained(folder)
    folder.rename(tmp_path / "model.0123456789abcdef.old")
    assert equal_states(MultiTaskModel.from_pretrained(folder), first)
    second.save_pretrained(folder)
    assert equal_states(MultiTaskModel.from_pretrained(folder), second)
    assert os.listdir(tmp_path) == ["model"]


# -------------------------------------------------------------------------------------------------- what is damaged


def rewritten(path, change):
    """A file of tensors after `change(tensors)`, sealed as if it had been written so."""
    with safe_open(path, "pt") as file:
        tensors, about = {k: file.get_tensor(k) for k in file.keys()}, file.metadata()  # noqa: SIM118
    change(tensors)
    save_file(tensors, path, metadata=about | {"seal": SEAL})
    seal_file(path)
    return path


def resealed(folder):
    """Gives the files of a saved model, as they are now, right checksums."""
    seal(folder, json.loads((folder / "manifest.json").read_text())["files"])


def set_first(value):
    return lambda tensors: tensors[sorted(tensors)[3]].view(-1).__setitem__(0, value)


def replaced(make):
    return lambda tensors: tensors.update({sorted(tensors)[3]: make(tensors[sorted(tensors)[3]])})


WRONG = {
    "NaN": (set_first(float("nan")), "has a value that is not finite"),
    "infinite": (set_first(float("inf")), "has a value that is not finite"),
    "shape": (replaced(lambda x: torch.cat([x, x])), r"has shape \(\d+.*, not \(\d+"),
    "float64": (replaced(torch.Tensor.double), r"has type torch.float64, not torch.float32"),
    "integers": (replaced(torch.Tensor.long), r"has type torch.int64, not torch.float32"),
    "missing": (lambda tensors: tensors.pop(sorted(tensors)[3]), "is missing"),
    "unexpected": (lambda tensors: tensors.update(zzz=torch.zeros(1)), "does not belong to this model"),
}


@pytest.mark.parametrize("name", ["pals-204", "fine-tuned"])
@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_tensor_that_does_not_fit_changes_nothing(wrong, new, name, tmp_path):
    """Nine of ten tensors were exchanged before the tenth was refused; a NaN was taken."""
    change, message = WRONG[wrong]
    model = trained(name)
    path = rewritten(model.save_task("rte", tmp_path), change)
    other = same_backbone(model, ("cola",) if new else ("rte", "cola"))
    before, tasks = {k: v.clone() for k, v in other.state_dict().items()}, dict(other.tasks)
    with pytest.raises(ValueError, match=rf"rte\.safetensors: tensor '\S+' {message}"):
        other.load_task(path)
    assert other.tasks == tasks and before.keys() == other.state_dict().keys()
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in before.items())


@pytest.mark.parametrize("wrong", WRONG)
def test_a_tensor_of_a_model_that_does_not_fit(wrong, tmp_path):
    change, message = WRONG[wrong]
    trained("lhuc").save_pretrained(tmp_path)
    rewritten(tmp_path / "model.safetensors", change)
    resealed(tmp_path)
    with pytest.raises(ValueError, match=rf"model\.safetensors: tensor '\S+' {message}"):
        MultiTaskModel.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: about.pop("method"), "KeyError: 'method'"),
        (lambda about: about.update(seed="0"), "seed must be of type int, not '0'"),
        (lambda about: about.update(head_dropout=1.0), "head_dropout must be null, or from 0"),
        (lambda about: about.update(tasks={"rte": {}}), "tasks must be of type list"),
        (lambda about: about["tasks"][0].update(name="/tmp/x"), "'/tmp/x' cannot be the name of a task"),
        (lambda about: about["tasks"][0].update(metrics=["acuracy"]), "unknown metric of task 'rte' 'acuracy'"),
        (lambda about: about["tasks"][0].update(stray=1), "'stray'"),
        (lambda about: about["method"].update(size="12"), "size of 'pals-204' must be a positive integer"),
        (lambda about: about["backbone"].update(model_type="bart-9"), "ValueError: "),
        (lambda about: about["backbone"].update(hidden_size=10**12), "hidden_size"),
        (lambda about: about["backbone"].update(num_hidden_layers=900), "has at least .* but the file of weights only"),
        (lambda about: about["backbone"].update(hidden_act=5), "Error: "),
        (
            lambda about: about.update(tasks=[]) or about["backbone"].update(vocab_size=9_000_000),
            "but the file of weights only",
        ),
        (lambda about: about["backbone"].update(num_labels=10**9), "num_labels"),
        (lambda about: about["backbone"].update(quantization_config={"quant_method": "x"}), "quantization_config"),
        (lambda about: about["backbone"].update(attn_implementation="a/b"), "attn_implementation"),
    ],
)
def test_a_description_of_no_model(change, message, tmp_path):
    """With checksums that are right: each field is checked for itself."""
    trained("pals-204").save_pretrained(tmp_path)
    about = json.loads((tmp_path / "palslib.json").read_text())
    change(about)
    (tmp_path / "palslib.json").write_text(json.dumps(about))
    resealed(tmp_path)
    with pytest.raises(ValueError, match=rf"palslib\.json does not describe a model.*{message}"):
        MultiTaskModel.from_pretrained(tmp_path)


def test_what_could_not_be_read_is_not_saved(tmp_path):
    model = trained("lhuc")
    path = model.save_task("rte", tmp_path)
    before = path.read_bytes()
    with torch.no_grad():
        model.heads["rte"].bias[0] = float("nan")
    for save in (lambda: model.save_task("rte", tmp_path), lambda: model.save_pretrained(tmp_path / "model")):
        with pytest.raises(ValueError, match=r"not saved, because '\S+bias' has a value that is not finite"):
            save()
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["rte.safetensors"]


def test_a_full_disk_is_named_and_leaves_what_was_there(tmp_path, monkeypatch):
    """Full when it is flushed; while it is written: data/test_bad_inputs.py."""
    model = trained("lhuc")
    path = model.save_task("rte", tmp_path)
    model.save_pretrained(tmp_path / "model")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    randomise(model.adaptations)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device.*rte|rte.*No space left on device"):
            model.save_task("rte", tmp_path)
        with pytest.raises(OSError, match=r"No space left on device.*model|model.*No space left on device"):
            model.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(os, "link", full)  # what else lies in the folder is kept, by a link or else by copying
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match=r"model: not saved, .* could not be kept: .*No space left on device"):
        model.save_pretrained(tmp_path / "model")
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} and path in before


def test_a_narrower_model_is_read_without_loss(tmp_path):
    """bfloat16 in the file, float32 in the model: the same numbers."""
    model = trained("lhuc").to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    assert equal_states(MultiTaskModel.from_pretrained(tmp_path), model.float())


def test_an_encoder_of_half_precision_made_float_is_saved(tmp_path):
    """Its configuration still says float16. A seed may be NumPy's."""
    config = tiny_encoder().half().config
    encoder = AutoModel.from_config(config).float()
    model = MultiTaskModel(encoder, tiny_method("lhuc"), ["rte"], seed=np.int64(7))
    model.save_pretrained(tmp_path / "model")
    other = MultiTaskModel.from_pretrained(tmp_path / "model")
    assert equal_states(model, other) and other.dtype == torch.float32 and other.seed == 7
    assert other.load_task(model.save_task("rte", tmp_path)) == "rte"
    assert model.half().fingerprint() == model.float().fingerprint()


def test_an_encoder_cut_by_hand_is_not_what_its_configuration_says():
    encoder = tiny_encoder()
    encoder.encoder.layer = encoder.encoder.layer[:2]
    with pytest.raises(ValueError, match=r"BertModel has .* parameters, but .* \(num_hidden_layers\)"):
        MultiTaskModel(encoder, tiny_method("pals-204"), ["rte"])
    encoder.config.num_hidden_layers = 2
    assert len(MultiTaskModel(encoder, tiny_method("pals-204"), ["rte"]).backbone.encoder.layer) == 2


# ------------------------------------------------------------------------------------- runs that go on from a model


@pytest.mark.parametrize("name", ["houlsby-64", "pals-204", "fine-tuned"])
def test_further_tasks_leave_the_earlier_ones_alone(name, tmp_path):
    """The earlier task's parameters come back bit for bit and are not trained; the new one's are."""
    saved = trained(name, tasks=("rte",))
    saved.save_pretrained(tmp_path / "model")
    model = MultiTaskModel.continued(tmp_path / "model", saved.method, saved.backbone_name, [TASKS["stsb"]])
    assert list(model.tasks) == ["rte", "stsb"]
    for part in (model.adaptations, model.heads):
        assert not any(p.requires_grad for p in part["rte"].parameters())
        assert all(p.requires_grad for p in part["stsb"].parameters())
    first, again, other = (
        MultiTaskModel.continued(tmp_path / "model", saved.method, saved.backbone_name, [TASKS["stsb"]], seed)
        for seed in (saved.seed, None, saved.seed + 1)
    )
    assert equal_states(first, model) and equal_states(again, model) and not equal_states(other, model)
    model.remove_task("stsb")
    other.remove_task("stsb")
    assert equal_states(model, saved) and equal_states(other, saved)


def test_a_task_goes_on_from_its_parameters_and_freezing_is_decided_anew(tmp_path):
    saved = trained("pals-204", tasks=("rte", "cola"))
    saved.save_pretrained(tmp_path / "model")
    frozen = replace(saved.method, freeze="backbone")
    model = MultiTaskModel.continued(tmp_path / "model", frozen, saved.backbone_name, [TASKS["rte"], TASKS["sst2"]])
    trains = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trains == {
        n for n, _ in model.named_parameters() if n.startswith(("adaptations.", "heads.")) and "cola" not in n
    }
    model.remove_task("sst2")
    assert equal_states(model, saved) and model.method == frozen
    whole = MultiTaskModel.continued(tmp_path / "model", saved.method, saved.backbone_name, [TASKS["rte"]])
    assert all(p.requires_grad for p in whole.backbone.parameters())


def test_a_run_goes_on_from_the_same_kind_of_model_and_the_same_task(tmp_path):
    saved = tiny_model("pals-204", tasks=("rte",))
    saved.save_pretrained(tmp_path / "model")
    other = replace(TASKS["rte"], labels=("no", "yes"))
    with pytest.raises(ValueError, match=r"a different task 'rte': labels .*'entailment', .*, not \('no', 'yes'\)"):
        MultiTaskModel.continued(tmp_path / "model", saved.method, saved.backbone_name, [other])
    with pytest.raises(ValueError, match=r"holds .* with backbone 'BertModel', not 'minilm'"):
        MultiTaskModel.continued(tmp_path / "model", saved.method, "minilm", [TASKS["stsb"]])
    for other, said in (
        (tiny_method("houlsby-64"), "kind 'pal', not 'houlsby'"),
        (replace(saved.method, heads=1), "heads "),
    ):
        with pytest.raises(ValueError, match=f"{said}.*: a run that starts from it needs the same"):
            MultiTaskModel.continued(tmp_path / "model", other, saved.backbone_name, [TASKS["stsb"]])


@pytest.mark.parametrize(
    ("name", "shape"), [("pals-shared-across-tasks-204", "bert"), ("low-rank-100", "bert-without-pooler")]
)
def test_under_a_frozen_backbone_no_task_but_the_trained_ones_changes(name, shape, tmp_path):
    """Neither by the projections that all tasks share nor by a pooler that the backbone did not have."""
    saved = tiny_model(name, shape, tasks=("rte",))
    saved.save_pretrained(tmp_path / "model")
    frozen = replace(saved.method, freeze="backbone")
    for task, trains in (("cola", False), ("rte", True)):
        model = MultiTaskModel.continued(tmp_path / "model", frozen, saved.backbone_name, [TASKS[task]])
        shared = [p for part in (model.shared, model.new_pooler) if part is not None for p in part.parameters()]
        assert shared and all(p.requires_grad == trains for p in shared)


def test_saving_removes_nothing_that_it_did_not_make(tmp_path, monkeypatch):
    """A file, a folder kept beside under `.old`, what a link leads to, the working folder."""
    model = tiny_model("shared")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"notes\.txt"):
        model.save_pretrained(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / "a.old").mkdir()
    (tmp_path / "a.old" / "mine").touch()
    model.save_pretrained(tmp_path / "a")
    (tmp_path / "a" / "notes.txt").symlink_to(tmp_path / "notes.txt")
    (tmp_path / "a" / "README.md").unlink()
    (tmp_path / "a" / "README.md").symlink_to(tmp_path / "notes.txt")
    model.save_pretrained(tmp_path / "a")
    assert os.listdir(tmp_path / "a.old") == ["mine"] and (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "a" / "notes.txt").is_symlink() and (tmp_path / "a" / "README.md").is_symlink()
    (tmp_path / "link").symlink_to(tmp_path / "a")  # which the user names
    (tmp_path / "a" / "model.safetensors").unlink()
    model.save_pretrained(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "a" / "model.safetensors").exists()
    monkeypatch.chdir(tmp_path / "a")
    for folder in (".", ".."):
        with pytest.raises(ValueError, match="choose a folder for the model alone"):
            model.save_pretrained(folder)


def test_nothing_is_saved_over_files_of_others(tmp_path):
    """A downloaded BERT's folder, and a file that has a task's name."""
    model, theirs = tiny_model("shared"), {"config.json": "theirs", "rte.safetensors": "theirs"}
    for name, text in theirs.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(FileExistsError, match=r"holds config\.json, which palslib did not write"):
        model.save_pretrained(tmp_path)
    with pytest.raises(FileExistsError, match=r"rte\.safetensors was not written by save_task"):
        model.save_task("rte", tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == theirs


def test_a_type_that_is_not_read_is_not_written(tmp_path):
    model = tiny_model("lhuc", tasks=("rte",))
    for kind in (torch.float64, torch.int8):
        with pytest.raises(ValueError, match=f"dtype must be .* torch.float16 or torch.bfloat16, not {kind}"):
            model.save_task("rte", tmp_path, kind)
    with pytest.raises(ValueError, match=r"not saved, because '\S+' is torch\.float64, which loading refuses"):
        model.double().save_pretrained(tmp_path / "a")
    assert not any(tmp_path.iterdir())


def test_a_model_without_tasks_is_saved(tmp_path):
    model = tiny_model("shared", tasks=())
    model.save_pretrained(tmp_path / "a")
    assert not MultiTaskModel.from_pretrained(tmp_path / "a").tasks


def test_saved_and_pushed(tmp_path, monkeypatch):
    """The repository is named after the folder, which is complete by then."""
    calls = []

    def push(model, repo_id, **options):
        calls.append((repo_id, options, sorted(os.listdir(tmp_path))))
        return "address"

    monkeypatch.setattr(MultiTaskModel, "push_to_hub", push)
    assert tiny_model("shared").save_pretrained(tmp_path / "a", push_to_hub=True, private=True) == "address"
    assert calls == [("a", {"model_card_kwargs": None, "private": True}, ["a"])]
    with pytest.raises(TypeError, match="no option 'private' without push_to_hub=True"):
        tiny_model("shared").save_pretrained(tmp_path / "b", private=True)


def test_an_option_that_from_pretrained_does_not_know_is_refused(tmp_path):
    """Not passed over, as a method would be that is asked for there."""
    tiny_model("shared").save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match=r"unknown option of from_pretrained 'method'.*revision, token"):
        MultiTaskModel.from_pretrained(tmp_path / "model", method="lhuc")


def test_no_file_says_where_rows_lie(tmp_path):
    """A task fits the model that saved it all the same."""
    task = Task("mood", ("text",), ("no", "yes"), data=str(tmp_path / "rows.csv"))
    model = MultiTaskModel.from_backbone("tiny", tiny_method("lhuc"), [task])
    model.save_pretrained(tmp_path / "model")
    path = model.save_task("mood", tmp_path)
    assert not [p.name for p in (path, *(tmp_path / "model").iterdir()) if str(tmp_path).encode() in p.read_bytes()]
    assert model.load_task(path) == "mood" and model.tasks["mood"] == task


def test_a_task_of_half_precision(tmp_path):
    """Half the file; the model that reads it keeps its own precision."""
    model = randomised("pals-204")
    path = model.save_task("rte", tmp_path, torch.float16)
    assert {tensor.dtype for tensor in load_file(path).values()} == {torch.float16}
    model.load_task(path)
    assert {p.dtype for p in model.adaptations["rte"].parameters()} == {torch.float32}
