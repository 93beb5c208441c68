"""Saving and loading a whole model, or a single task of it: safetensors, with a digest that is checked on loading.

A task's file holds the parameters of `adaptations[task]` and `heads[task]`: 7 MB for PALs, against BERT's 438 MB. They
were trained with one backbone and fit no other, so the file contains that backbone's fingerprint.

The folder of a whole model is self-contained. It has the tokenizer, `config.json`, and the backbone's tensors under
Transformers' own names, so `AutoModel.from_pretrained(folder)` and `AutoTokenizer` load the backbone with its pooler,
from a folder or the Hub (adaptations and heads are left out). `palslib.json` has the rest, and the digest of the tensors;
no path of the machine is stored in it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import torch
from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

from palslib.bert.backbones import INCLUDED, has_tokenizer, load_tokenizer, portable
from palslib.bert.minbert import MinBert
from palslib.common.files import atomic_write, digest, write_text
from palslib.common.names import shown
from palslib.common.places import place
from palslib.common.reading import read_object
from palslib.data.tasks import Task
from palslib.methods.method import Method

ABOUT = "palslib.json"
CARD = """---
{{ card_data }}
---

# {{ tasks | length }} tasks on one {{ backbone }}

{{ method }} (*BERT and PALs*, Stickland & Murray 2019, {{ paper_url }}): every task has a few parameters of its own,
and all share the rest. Made with the Python package `palslib`.

```python
from palslib import MultiTaskModel

model = MultiTaskModel.from_pretrained("user/model")  # this repository's name, or a folder that it was downloaded to
{% if tasks %}model.predict({{ text }}, tasks=["{{ tasks[0].name }}"]){% endif %}
```

| task | texts | labels |
|---|---|---|
{% for task in tasks -%}
| {{ task.name }} | {{ task.texts | join(", ") }} | {{ task.labels | join(", ") or "a score" }} |
{% endfor %}
`transformers.AutoModel.from_pretrained` loads only the backbone.
"""


def _write(tensors: Mapping[str, torch.Tensor], path: Path, **about: str) -> str:
    """Writes tensors, and texts about them with the digest of all; returns it. Raises ValueError for a NaN."""
    if wrong := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
        raise ValueError(f"{path.name} is not saved, because {wrong[0]!r} has a value that is not finite")
    about["digest"] = digest(tensors, *about.values())
    with atomic_write(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary, about | {"format": "pt"})
        temporary.chmod(0o644)  # safetensors makes it readable by its owner alone
    return about["digest"]


def _states(parts: Mapping[str, torch.nn.Module]) -> dict[str, torch.Tensor]:
    """The tensors of a task's `adaptation` and `head`, under their names in its file."""
    return torch.nn.ModuleDict(parts).state_dict()


def _renamed(model, tensors: Mapping[str, torch.Tensor], load: bool = False) -> dict[str, torch.Tensor]:
    """The tensors under the names of files, where the backbone has the prefix that Transformers gives it inside larger
    models (`bert.`); or, to `load` them, under the model's own."""
    theirs = getattr(model.backbone, "base_model_prefix", model.config.model_type) + "."
    pairs = [("new_pooler.", f"{theirs}pooler.")] * model.pooler_is_new + [("backbone.", theirs)]
    for ours, other in pairs:
        old, new = (other, ours) if load else (ours, other)
        tensors = {re.sub(f"^{re.escape(old)}", new, name): tensor for name, tensor in tensors.items()}
    return tensors


def fingerprint(model) -> str:
    """A hash of the current values of all that tasks share: the backbone, its pooler, projections across tasks."""
    return digest({k: v for k, v in model.state_dict().items() if not k.startswith(("adaptations.", "heads."))})


def save_pretrained(model, folder: str | Path, **options) -> str | None:
    """Writes a self-contained folder: `model.safetensors`, `palslib.json` (method, tasks, digest), `config.json`, the
    tokenizer if there is one, and a model card. `options` are those of huggingface_hub's `ModelHubMixin`: with
    `push_to_hub=True` the folder is also uploaded.

    Raises FileExistsError if `folder` is a file or holds a model that palslib did not write, as a downloaded BERT's does.
    """
    folder = place(folder)
    if folder.is_file() or ((folder / "config.json").exists() and not (folder / ABOUT).exists()):
        raise FileExistsError(f"{folder} holds what palslib did not write: choose another folder")
    return ModelHubMixin.save_pretrained(model, folder, **options)


def write_model(model, folder: Path) -> None:
    """Writes the files of a whole model, except the model card; `palslib.json`, which says what the others are, last."""
    tensors = _renamed(model, model.state_dict())
    about = {
        "digest": _write(tensors, folder / "model.safetensors"),
        "backbone_name": portable(model.backbone_name),
        "minbert": isinstance(model.backbone, MinBert),
        "pooler_is_new": model.pooler_is_new,
        "method": model.method.to_dict(),
        "tasks": [asdict(task) | {"data": ""} for task in model.tasks.values()],  # no path of the machine
        "seed": model.seed,
        "max_length": int(model.max_length),
        "head_dropout": model.head_dropout,
    }
    model.config.save_pretrained(folder)
    if model.own_tokenizer is not None:
        model.own_tokenizer.save_pretrained(folder)
    write_text(folder / ABOUT, json.dumps(about, indent=1))


def model_card(model, **about) -> ModelCard:
    """The card of a model: its method, its backbone and a row for each task."""
    tasks = list(model.tasks.values())
    text = ("A text.", "Another.") if tasks and len(tasks[0].texts) == 2 else "A text."
    about |= {"tasks": tasks, "text": repr(text), "method": model.method.label}
    return ModelHubMixin.generate_model_card(model, backbone=portable(model.backbone_name), **about)


def read_model(cls, *, model_id: str, **options):
    """The model of a folder, or of `user/model` on the Hub, in eval mode; called by `from_pretrained`, whose options
    (`revision`, `token`, ...) are huggingface_hub's. Raises ValueError for a damaged file."""
    folder = place(model_id)
    if not folder.is_dir():
        options = {name: value for name, value in options.items() if value is not None}
        folder = Path(snapshot_download(model_id, **options))
    about, tensors = read_object(folder / ABOUT), load_file(folder / "model.safetensors")
    if digest(tensors) != about["digest"]:
        raise ValueError(f"{folder / 'model.safetensors'} is damaged, or belongs to another {ABOUT}")
    config = AutoConfig.from_pretrained(folder)
    with torch.random.fork_rng(devices=[]):  # Transformers draws weights, which are then replaced
        if about["minbert"]:
            encoder = MinBert(config, pooler=not about["pooler_is_new"])
        else:
            encoder = AutoModel.from_config(config, trust_remote_code=False, dtype=torch.float32)
            encoder.pooler = None if about["pooler_is_new"] else encoder.pooler
    tasks = [Task(**row) for row in about["tasks"]]
    model = cls(encoder, Method.from_dict(about["method"]), tasks, about["seed"], about["backbone_name"])
    model.load_state_dict(_renamed(model, tensors, load=True))
    model.max_length, model.head_dropout = about["max_length"], about["head_dropout"]
    model.own_tokenizer = load_tokenizer(str(folder)) if has_tokenizer(str(folder)) else None
    return model.eval()


def continued(cls, folder: str | Path, method: Method, backbone_name: str, tasks: list[Task], seed: int | None = None):
    """The model in a folder, prepared for training these tasks: those that it has go on from their parameters, new ones
    are drawn from `seed` (None: the saved model's own seed). The model's other tasks will not be trained.

    What is frozen follows `method.freeze`, not the saved model; where BERT is frozen, so is what all tasks share, if
    the model has other tasks. Raises ValueError if the saved model has another method or backbone, or if one of its
    tasks has the name of one in `tasks` but is another task.
    """
    model = cls.from_pretrained(folder)
    _check_same(folder, model, method)
    if portable(model.backbone_name) != portable(backbone_name):
        raise ValueError(f"{folder} is on the backbone {model.backbone_name}, not on {backbone_name}")
    model.method, model.seed = method, model.seed if seed is None else seed
    built = {p: p.requires_grad for of in (model.adaptations, model.heads) for p in of.parameters()}
    model.requires_grad_where_trained()  # this run may freeze what the previous one trained, and the reverse
    others = model.tasks.keys() - {task.name for task in tasks}
    frozen = (model.shared, model.new_pooler) if method.freeze != "nothing" and others else ()  # others must not change
    for part in filter(None, (model.adaptations, model.heads, *frozen)):
        part.requires_grad_(False)
    for task in tasks:
        if task.name not in model.tasks:
            model.add_task(task)
            continue
        _check_alike(folder, model.tasks[task.name], task)
        for parameter in (p for part in model.parts(task.name).values() for p in part.parameters()):
            parameter.requires_grad_(built[parameter])
        model.tasks[task.name] = task  # perhaps with another source of rows
    return model


def _check_same(place: object, model, method: Method) -> None:
    """Raises ValueError unless a file's method is the model's, whatever is frozen (which is about training)."""
    theirs, ours = (of.to_dict() | {"freeze": None} for of in (model.method, method))
    if differ := {name: value for name, value in theirs.items() if ours.get(name) != value}:
        raise ValueError(f"{place} is of {model.method.label}, not of {method.label}: {differ} differ")


def _check_alike(place: object, one: Task, other: Task) -> None:
    """Raises ValueError for two tasks of one name whose heads mean different things."""
    for name in ("labels", "scale", "head"):
        if getattr(one, name) != getattr(other, name):
            said = f"{name} {shown(getattr(one, name))}, not {shown(getattr(other, name))}"
            raise ValueError(f"{place} has a different task {one.name!r}: {said}")


def save_task(model, task: str, folder: str | Path, dtype: torch.dtype | None = None) -> Path:
    """Writes one task's parameters, perhaps in another type (`torch.float16`), to `folder/<task>.safetensors`."""
    about = {"task": json.dumps(asdict(model._known(task)) | {"data": ""}), "method": json.dumps(model.method.to_dict())}
    path = place(folder) / f"{task}.safetensors"
    tensors = {k: v.to(dtype) if v.is_floating_point() else v for k, v in _states(model.parts(task)).items()}
    _write(tensors, path, **about, fingerprint=model.fingerprint())
    return path


def read_task(path: Path) -> tuple[Task, Method, str, dict[str, torch.Tensor]]:
    """What `save_task` wrote. Raises ValueError for another file and for a damaged one."""
    with safe_open(path, "pt") as file:
        about, tensors = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if not {"task", "method", "fingerprint", "digest"} <= about.keys():
        raise ValueError(f"{path} was not written by save_task")
    if digest(tensors, about["task"], about["method"], about["fingerprint"]) != about["digest"]:
        raise ValueError(f"{path} is damaged")
    task, method = Task(**json.loads(about["task"])), Method.from_dict(json.loads(about["method"]))
    return task, method, about["fingerprint"], tensors


def load_task(model, path: str | Path) -> str:
    """Adds the task in a file that `save_task` wrote, or replaces its parameters; returns the task's name.

    Raises ValueError where the file is damaged, its method or backbone is not this model's, or the model has another
    task of that name; FileNotFoundError where there is no such file. After an error the model is unchanged.
    """
    path = place(path)
    task, method, backbone, tensors = read_task(path)
    _check_same(path, model, method)
    if backbone != model.fingerprint():
        raise ValueError(f"{path} was trained with another backbone, and fits only that one (its fingerprint differs)")
    if here := model.tasks.get(task.name):
        _check_alike(path, task, here)
        task = replace(task, data=here.data, class_weights=here.class_weights)  # only training needs these
    parts = model.new_parts(task)
    torch.nn.ModuleDict(parts).load_state_dict(tensors)
    model.put(task, parts)
    return task.name


def from_task(cls, path: str | Path, backbone: str):
    """A model with the one task of a file that `save_task` wrote, on a backbone by name or a saved model's backbone."""
    if backbone not in INCLUDED and (place(backbone) / ABOUT).is_file():
        model = cls.from_pretrained(backbone)
    else:
        model = cls.from_backbone(backbone, read_task(place(path))[1], ())
    loaded = load_task(model, path)
    for other in set(model.tasks) - {loaded}:
        model.remove_task(other)
    return model.eval()
