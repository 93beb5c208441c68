"""Saving and loading a whole model, or a single task of it: safetensors, with digests that are checked on loading.

A task's file holds the parameters of `adaptations[task]` and `heads[task]`: 7 MB for PALs, against BERT's 438 MB. They
were trained with one backbone and fit no other, so the file contains that backbone's fingerprint, and what decides the
task's input: the length of its rows in word pieces, and a digest of the tokenizer.

The folder of a whole model is self-contained. It has the tokenizer, `config.json`, and the backbone's tensors under
Transformers' own names, so `AutoModel.from_pretrained(folder)` and `AutoTokenizer` load the backbone with its pooler,
from a folder or the Hub (adaptations and heads are left out). `palslib.json` has the rest, and the digest of each file
of the model. A later save replaces or removes these files and no others. No path of the machine is stored in them.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import torch
from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

from palslib.bert.backbones import INCLUDED, load_tokenizer, portable
from palslib.bert.minbert import MinBert
from palslib.common.files import LIST, atomic_write, check_files, clear, digest, read_list, saved_files, write_text
from palslib.common.names import shown
from palslib.common.places import as_path
from palslib.data.sources import SUFFIXES, ending
from palslib.data.tasks import Task
from palslib.methods.method import Method

WEIGHTS, CONFIG = "model.safetensors", "config.json"
CARD = """{% macro cell(text) %}{{ text | replace("|", "&#124;") | replace("\\n", " ") }}{% endmacro -%}
---
{{ card_data }}
---

# {{ tasks | length }} tasks on one {{ backbone }}

{{ method }}: each task has parameters of its own beside those that all share, as in *BERT and PALs* (Stickland &
Murray 2019, {{ paper_url }}). Made with the Python package `palslib`.

```python
from palslib import MultiTaskModel

model = MultiTaskModel.from_pretrained("user/model")  # this repository's name, or a folder that it was downloaded to
{% if tasks %}model.predict({{ text }}, tasks=["{{ tasks[0].name }}"]){% endif %}
```

| task | texts | labels |
|---|---|---|
{% for task in tasks -%}
| {{ cell(task.name) }} | {{ cell(task.texts | join(", ")) }} | {{ cell(task.labels | join(", ")) or "a score" }} |
{% endfor %}
{% if data -%}
Trained in a run of {{ steps }} steps on the data `{{ data }}`
{{- ", whose texts are generated: it says nothing about real ones" if data.endswith("synthetic") }}.
{%- if scores %} Scores on texts that were not trained on:
{% for task, metrics in scores.items() %}
* {{ task }}:
{%- for metric, score in metrics.items() %} {{ metric }} {{ "%.1f" | format(score) }}{{ "," if not loop.last }}
{%- endfor %}
{%- endfor %}
{%- endif %}

{% endif -%}
`transformers.AutoModel.from_pretrained` loads only the backbone.
"""


def _write(tensors: Mapping[str, torch.Tensor], path: Path, **texts: str) -> None:
    """Writes tensors, with texts about them. Raises ValueError, naming the tensor, for a value that is not finite."""
    if wrong := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
        raise ValueError(f"{path.name} is not saved, because {wrong[0]!r} has a value that is not finite")
    # safetensors refuses memory that two names share, as those of a module do that is used in two places.
    tensors = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    with atomic_write(path) as temporary:
        save_file(tensors, temporary, texts | {"format": "pt"})


def _names_in_file(model) -> dict[str, str]:
    """The name of each of a model's tensors -> its name in a file, where the backbone has the prefix that Transformers
    gives it inside larger models (`bert.`), and a pooler that it lacked is its own."""
    theirs = getattr(model.backbone, "base_model_prefix", model.config.model_type)
    parts = {"backbone": theirs, "new_pooler": f"{theirs}.pooler"}
    split = {name: name.partition(".") for name in model.state_dict()}
    return {name: f"{parts.get(part, part)}.{rest}" for name, (part, _, rest) in split.items()}


def fingerprint(model) -> str:
    """A hash of the current values of all that tasks share: the backbone, its pooler, projections across tasks."""
    own = model.method.pooler == "per-task" or model.method.copies_backbone  # then no task reads a new shared pooler
    others = ("adaptations.", "heads.", *(["new_pooler."] if own else []))
    return digest({name: tensor for name, tensor in model.state_dict().items() if not name.startswith(others)})


def _tokenizer_digest(tokenizer) -> str:
    """A hash of what a tokenizer makes of texts (its own files differ between versions); "" where there is none."""
    if tokenizer is None:
        return ""
    pieces = tokenizer("Zoë's 1st café: naïve—or NOT?", "日本 (2,000 km)")["input_ids"]
    vocabulary = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    return digest(repr(vocabulary), repr(pieces), tokenizer.truncation_side)


def save_pretrained(model, folder: str | Path, model_card_kwargs: dict | None = None, config: None = None) -> None:
    """Writes a self-contained folder: `model.safetensors`, `palslib.json` (method, tasks, digests), `config.json`, the
    tokenizer if there is one, and a model card unless the folder has one already.

    Args:
        model_card_kwargs: values for the model card.
        config: not used; huggingface_hub's `push_to_hub`, which uploads such a folder, gives it.

    Raises FileExistsError if `folder` is a file or has files of these names that palslib did not write, as a downloaded
    BERT's folder does; ValueError for a weight that is not finite. After an error the folder is as before.
    """
    save_without_card(model, as_path(folder))
    write_card(model, as_path(folder), **model_card_kwargs or {})


def _as_saved(task: Task) -> dict:
    """A task without the paths of this machine, but with the name of its file, which says how it is read."""
    name = Path(task.data).name if ending(task.data) in SUFFIXES and not task.built_in else ""
    return asdict(task) | {"data": "", "files": task.files or name}


def save_without_card(model, folder: Path) -> None:
    """The same without a model card, for weights whose scores are not known yet."""
    description = {
        "backbone_name": portable(model.backbone_name),
        "minbert": isinstance(model.backbone, MinBert),
        "pooler_is_new": model.new_pooler is not None,
        "method": model.method.to_dict(),
        "tasks": [*map(_as_saved, model.tasks.values())],
        "seed": model.seed,
        "max_length": int(model.max_length),
        "max_lengths": model.max_lengths,
        "head_dropout": None if model.head_dropout is None else float(model.head_dropout),
    }
    with saved_files(folder, description) as new:
        names = _names_in_file(model)
        _write({names[name]: tensor for name, tensor in model.state_dict().items()}, new / WEIGHTS)
        model.config.save_pretrained(new)
        if model.own_tokenizer is not None:
            model.own_tokenizer.save_pretrained(new)


def write_card(model, folder: Path, **values) -> None:
    """Writes a model card with these values, unless the folder has one already."""
    if not os.path.lexists(folder / "README.md"):
        clear(folder, "README.md")
        write_text(folder / "README.md", str(model.generate_model_card(**values)))


def model_card(model, **values) -> ModelCard:
    """The card of a model: its method, its backbone and a row for each task."""
    tasks = list(model.tasks.values())
    text = ("A text.", "Another.") if tasks and len(tasks[0].texts) == 2 else "A text."
    values |= {"tasks": tasks, "text": repr(text), "method": model.method.label}
    return ModelHubMixin.generate_model_card(model, backbone=portable(model.backbone_name), **values)


def from_pretrained(cls, folder: str | Path, **options):
    """The model that `save_pretrained` or `push_to_hub` wrote, in eval mode.

    Args:
        folder: a folder, or `user/model` on the Hub if there is no such folder; `options` (`revision`, `token`,
            `cache_dir`, ...) are then those of huggingface_hub's `snapshot_download`.

    Raises FileNotFoundError if there is neither, ValueError naming a file that is damaged or of another save.
    """
    here = as_path(folder)
    if not here.exists() and str(folder).count("/") == 1:
        try:
            here = Path(snapshot_download(str(folder), **options))
        except (OSError, HFValidationError) as error:
            raise FileNotFoundError(f"there is no folder {folder}, nor is that model on the Hub: {error}") from error
    elif options:
        raise ValueError(f"{min(options)} is an option for a model on the Hub, and {folder} is not there")
    if not (here / LIST).exists():
        without = f"holds no model saved by palslib ({LIST} is missing)"
        raise FileNotFoundError(f"{here} {without}" if here.exists() else f"there is no folder {here}")
    saved = check_files(here)
    if "method" not in saved:
        raise ValueError(f"{here} holds a backbone without tasks: give it as backbone")
    config = AutoConfig.from_pretrained(here, trust_remote_code=False)
    with torch.random.fork_rng(devices=[]):  # Transformers draws weights, which are then replaced
        if saved["minbert"]:
            encoder = MinBert(config, pooler=not saved["pooler_is_new"])
        else:
            encoder = AutoModel.from_config(config, trust_remote_code=False, dtype=torch.float32)
            encoder.pooler = None if saved["pooler_is_new"] else encoder.pooler
    tasks = [Task(**row) for row in saved["tasks"]]
    model = cls(encoder, Method.from_dict(saved["method"]), tasks, saved["seed"], saved["backbone_name"])
    tensors = load_file(here / WEIGHTS)
    if any(tensor.dtype == torch.float64 for tensor in tensors.values()):
        model.double()  # narrower types are read as float32, without loss
    model.load_state_dict({name: tensors[in_file] for name, in_file in _names_in_file(model).items()})
    model.max_length, model.max_lengths = saved["max_length"], saved["max_lengths"]
    model.head_dropout = saved["head_dropout"]
    if saved["files"].keys() - {WEIGHTS, CONFIG}:  # an encoder may have been given without a tokenizer
        model.own_tokenizer = load_tokenizer(str(here))
    return model.eval()


def continued(cls, folder: str | Path, method: Method, backbone_name: str, tasks: list[Task], seed: int | None = None):
    """The model in a folder, prepared for training these tasks: those that it has go on from their parameters, new ones
    are drawn from `seed` (None: the saved model's own seed). The model's other tasks will not be trained.

    What is frozen follows `method.freeze`, not the saved model; where BERT is frozen, so is what all tasks share, if
    the model has other tasks. Raises ValueError if the saved model has another method or backbone, or if one of its
    tasks has the name of one in `tasks` but is another task.
    """
    model = cls.from_pretrained(folder)
    _check_same(folder, model.method, method)
    if portable(model.backbone_name) != portable(backbone_name):
        raise ValueError(f"{folder} is on the backbone {model.backbone_name}, not on {backbone_name}")
    model.method, model.seed = method, model.seed if seed is None else seed
    model.max_lengths = {task: model.length(task) for task in model.tasks}  # whatever the new ones have
    model.requires_grad_where_trained()  # this run may freeze what the previous one trained, and the reverse
    others = model.tasks.keys() - {task.name for task in tasks}
    frozen = [part for task in others for part in model.parts(task).values()]
    if others and method.freeze != "nothing":  # the others' outputs must not change
        frozen += filter(None, (model.shared, model.new_pooler))
    for part in frozen:
        part.requires_grad_(False)
    for task in tasks:
        if task.name in model.tasks:
            _check_alike(folder, model.tasks[task.name], task)
            model.tasks[task.name] = task  # perhaps with another source of rows
        else:
            model.add_task(task)
    return model


def _check_same(path: object, saved: Method, method: Method) -> None:
    """Raises ValueError unless a saved method is the one asked for, whatever is frozen (which is about training)."""
    theirs, ours = (one.to_dict() | {"freeze": None} for one in (saved, method))
    if differ := [name for name in theirs | ours if theirs.get(name) != ours.get(name)]:
        words = ", ".join(f"{name} {shown(theirs.get(name))}, not {shown(ours.get(name))}" for name in differ)
        raise ValueError(f"{path} is for {saved.label}, not {method.label}: {words}")


def _check_alike(path: object, one: Task, other: Task) -> None:
    """Raises ValueError for two tasks of one name whose heads mean different things."""
    for name in ("labels", "scale", "head"):
        if getattr(one, name) != getattr(other, name):
            words = f"{name} {shown(getattr(one, name))}, not {shown(getattr(other, name))}"
            raise ValueError(f"{path} has a different task {one.name!r}: {words}")


_TEXTS = ("task", "method", "fingerprint", "tokenizer", "max_length")
"""What a task's file says besides its tensors."""


def save_task(model, task: str, folder: str | Path, dtype: torch.dtype | None = None) -> Path:
    """Writes one task's parameters, perhaps in another type (`torch.float16`), to `folder/<task>.safetensors`, and what
    decides its input. Raises ValueError where that file exists and is not a task's file."""
    path = as_path(folder) / f"{model._known(task).name}.safetensors"
    if os.path.lexists(path):
        read_task(path)
    texts = {
        "task": json.dumps(_as_saved(model.tasks[task])),
        "method": json.dumps(model.method.to_dict()),
        "fingerprint": model.fingerprint(),
        "tokenizer": _tokenizer_digest(model.own_tokenizer),
        "max_length": str(model.length(task)),
    }
    tensors = torch.nn.ModuleDict(model.parts(task)).state_dict()
    tensors = {k: v.to(dtype) if v.is_floating_point() else v for k, v in tensors.items()}
    _write(tensors, path, **texts, digest=digest(tensors, *(texts[name] for name in _TEXTS)))
    return path


def read_task(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """The texts about a task and its tensors, from its file. Raises ValueError for another file and for a damaged one,
    FileNotFoundError where there is none."""
    if not path.is_file():
        raise FileNotFoundError(f"no task file {path}")
    try:
        with safe_open(path, "pt") as file:
            texts, tensors = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} was not written by save_task, or is damaged: {error}") from error
    if not {*_TEXTS, "digest"} <= texts.keys():
        raise ValueError(f"{path} was not written by save_task of this version of palslib")
    if digest(tensors, *(texts[name] for name in _TEXTS)) != texts["digest"]:
        raise ValueError(f"{path} is damaged: its content does not match its digest")
    return texts, tensors


def load_task(model, path: str | Path) -> str:
    """Adds the task in a file that `save_task` wrote, or replaces its parameters; returns the task's name. Its rows are
    then cut to the length of its training.

    Raises ValueError where the file is damaged, its method, backbone or tokenizer is not this model's, or the model has
    another task of that name; FileNotFoundError where there is no such file. After an error the model is unchanged.
    """
    path = as_path(path)
    texts, tensors = read_task(path)
    task = Task(**json.loads(texts["task"]))
    _check_same(path, Method.from_dict(json.loads(texts["method"])), model.method)
    if texts["fingerprint"] != model.fingerprint():
        raise ValueError(f"{path.name} was trained with another backbone (its fingerprint differs), and fits only that")
    if texts["tokenizer"] and model.own_tokenizer and texts["tokenizer"] != _tokenizer_digest(model.own_tokenizer):
        raise ValueError(f"{path.name} was trained with another tokenizer: this model's word pieces are others")
    if here := model.tasks.get(task.name):
        _check_alike(path, task, here)
        task = replace(task, data=here.data, files=here.files, class_weights=here.class_weights)  # as in this model
    parts = model.new_parts(task)
    torch.nn.ModuleDict(parts).load_state_dict(tensors)
    model.put(task, parts)
    model.max_lengths[task.name] = int(texts["max_length"])
    return task.name


def from_task(cls, path: str | Path, backbone: str):
    """A model with the one task of a file that `save_task` wrote, on a backbone by name or a saved model's backbone."""
    folder = as_path(backbone)
    if backbone not in INCLUDED and (folder / LIST).is_file() and "method" in read_list(folder):
        model = cls.from_pretrained(backbone)
    else:
        method = json.loads(read_task(as_path(path))[0]["method"])
        model = cls.from_backbone(backbone, Method.from_dict(method), ())
    loaded = load_task(model, path)
    for other in set(model.tasks) - {loaded}:
        model.remove_task(other)
    return model.eval()
