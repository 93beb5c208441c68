"""Saving and loading a whole model, or a single task of it: safetensors only, written whole or not at all.

A task's file holds the parameters of `adaptations[task]` and `heads[task]`: 7 MB for PALs, against BERT's 438 MB. They
were trained with one backbone and fit no other, so the file contains that backbone's fingerprint.

A folder and a task's file have checksums (`common/sealed.py`), and are checked completely before they change a model.
What earlier versions wrote has no checksums, and is refused.

The folder of a whole model is self-contained. It has the tokenizer, `config.json`, and the backbone's tensors under
Transformers' own names, so `AutoModel.from_pretrained(folder)` and `AutoTokenizer` load the backbone with its pooler,
from a folder or the Hub (adaptations and heads are left out). No path of the machine is stored in it.
"""

import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path

import torch
from huggingface_hub import ModelCard, ModelHubMixin, constants, get_session, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, StrictDataclassError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModel

from palslib.bert.backbones import INCLUDED, TOKENIZER_FILES, checked_config, has_tokenizer, load_tokenizer, portable
from palslib.bert.minbert import MinBert
from palslib.common.files import atomic_write, whole
from palslib.common.names import check_name, shown
from palslib.common.places import place
from palslib.common.reading import read_object
from palslib.common.sealed import MANIFEST, SEAL, Damaged, has_seal, prove, prove_file, seal, seal_file, sealed_files
from palslib.data.tasks import Task
from palslib.methods.backbone import Backbone
from palslib.methods.counting import count_parameters
from palslib.methods.method import Method

_FILES = ("model.safetensors", "palslib.json", "config.json")


def _write(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
    """Writes tensors and metadata. Raises ValueError, naming the tensor, if one could not be read again because it is
    not finite or is float64, and OSError, naming the file, if the file cannot be written (a full disk)."""
    owners = Counter(tensor.untyped_storage().data_ptr() for tensor in tensors.values())
    tensors = {  # safetensors refuses memory that two names share: a module used in two places
        name: tensor.clone() if owners[tensor.untyped_storage().data_ptr()] > 1 else tensor.contiguous()
        for name, tensor in tensors.items()
    }
    for name, tensor in tensors.items():
        if tensor.dtype == torch.float64:
            raise ValueError(
                f"{path.name}: not saved, because {name!r} is {tensor.dtype}, which loading refuses: use float32"
            )
        if not tensor.isfinite().all():
            raise ValueError(f"{path.name}: not saved, because {name!r} has a value that is not finite")
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        raise OSError(f"{path}: {error}") from error


def _read(path: Path, writer: str) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """A file's metadata and tensors. Raises ValueError naming a file that is not valid safetensors."""
    try:
        with safe_open(path, "pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path} was not written by {writer}, or is damaged: {error}") from error


def _check(path: Path, tensors: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Raises ValueError naming file and tensor unless the tensors are finite and can replace the expected ones without
    loss. A narrower type of the same kind loses nothing."""
    if wrong := sorted(set(tensors) ^ set(expected)):
        what = "is missing" if wrong[0] in expected else "does not belong to this model"
        more = f" (and {len(wrong) - 1} more do not fit)" if len(wrong) > 1 else ""
        raise ValueError(f"{path}: tensor {wrong[0]!r} {what}{more}")
    for name, tensor in tensors.items():
        own = expected[name]
        if tensor.shape != own.shape:
            raise ValueError(f"{path}: tensor {name!r} has shape {tuple(tensor.shape)}, not {tuple(own.shape)}")
        wider = torch.promote_types(tensor.dtype, own.dtype)
        if wider != own.dtype or tensor.is_floating_point() != own.is_floating_point():
            raise ValueError(f"{path}: tensor {name!r} has type {tensor.dtype}, not {own.dtype}")
        if not tensor.isfinite().all():
            raise ValueError(f"{path}: tensor {name!r} has a value that is not finite")


@contextmanager
def _described(path: Path) -> Iterator[None]:
    """A block in which errors caused by an invalid description become a ValueError that names the file."""
    invalid = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, StrictDataclassError)
    try:
        yield
    except invalid as e:
        raise ValueError(f"{path} does not describe a model or task of palslib: {type(e).__name__}: {e}") from e


def _states(parts: dict[str, torch.nn.Module]) -> dict[str, torch.Tensor]:
    """The tensors of a task's `adaptation` and `head`, under their names in its file."""
    return {f"{part}.{key}": tensor for part, module in parts.items() for key, tensor in module.state_dict().items()}


def _task_file(path: Path) -> Path:
    if path.is_dir():
        files = sorted(p for p in path.glob("*.safetensors") if p.name != "model.safetensors" and p.is_file())
        if len(files) != 1:
            names = ", ".join(p.name for p in files) or "none"
            raise ValueError(f"{path} must hold exactly one task file, but holds: {names}; give the file itself")
        return files[0]
    if not path.is_file():
        raise FileNotFoundError(f"no task file {path}")
    return path


def _prefixes(model: torch.nn.Module) -> dict[str, str]:
    """Prefix of names in the model -> prefix in the file: the one that Transformers uses inside larger models
    (`bert.`, `roberta.`)."""
    theirs = getattr(model.backbone, "base_model_prefix", model.config.model_type) + "."
    return {"new_pooler.": f"{theirs}pooler.", "backbone.": theirs}


def _renamed(tensors: dict[str, torch.Tensor], prefixes: dict[str, str]) -> dict[str, torch.Tensor]:
    """The tensors under new names: in each name, the first of these prefixes that fits is replaced by its value."""
    first = re.compile("|".join(f"^{re.escape(prefix)}" for prefix in prefixes))
    return {first.sub(lambda found: prefixes[found[0]], name): tensor for name, tensor in tensors.items()}


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


def fingerprint(model: torch.nn.Module) -> str:
    """A hash of the current values of all that tasks share: the backbone, its pooler, projections across tasks."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if not name.startswith(("adaptations.", "heads.")):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()[:32]


def _keep(file: str, other: str) -> None:
    """Gives a file a second name by a link, so that a log that is being written goes on there; or copies it, where the
    file system has no such links."""
    try:
        os.link(file, other)
    except OSError:
        shutil.copy2(file, other)


def save_pretrained(
    model: torch.nn.Module,
    folder: str | Path,
    push_to_hub: bool = False,
    repo_id: str | None = None,
    model_card_kwargs: dict | None = None,
    **options,
) -> str | None:
    """Writes a self-contained folder: `model.safetensors`, `palslib.json` (backbone's configuration, method, tasks),
    `config.json`, the tokenizer if there is one, their checksums, and a model card unless the folder has one already.

    Args:
        push_to_hub: whether it then pushes the model to the Hub and returns the commit's address.
        repo_id: the repository there; by default the folder's name.
        model_card_kwargs: values for the model card.
        options: those of `push_to_hub`; without it, only its `config=None`.

    Raises FileExistsError if `folder` is a file or holds files of these names that palslib did not write, as a
    downloaded BERT's folder does; ValueError if it contains the working folder.
    """
    folder = place(folder).resolve()
    if unused := [] if push_to_hub else [name for name, value in options.items() if (name, value) != ("config", None)]:
        raise TypeError(f"save_pretrained has no option {unused[0]!r} without push_to_hub=True")
    if Path.cwd().is_relative_to(folder):
        raise ValueError(f"{folder} is or contains the current folder: choose a folder for the model alone")
    of_tokenizer = TOKENIZER_FILES
    if model.own_tokenizer is None:
        with suppress(ValueError):  # of a damaged manifest
            of_tokenizer = sealed_files(folder)  # an earlier model's, not a user's
    ours = (*_FILES, MANIFEST, *of_tokenizer)
    theirs = sorted({path.name for name in ours for path in folder.glob(name)})
    if theirs and "palslib.json" not in theirs:
        raise FileExistsError(f"{folder} holds {', '.join(theirs)}, which palslib did not write: choose another folder")
    with atomic_write(folder) as temporary:
        if folder.is_dir():  # its other files (a task's) are kept
            try:
                top, old = str(folder), shutil.ignore_patterns(*ours)
                shutil.copytree(folder, temporary, True, lambda at, of: old(at, of) if at == top else (), _keep)
            except shutil.Error as error:  # a list of all failures; the first has the cause: a full disk
                why = error.args[0][0][2]
                raise OSError(f"{folder}: not saved, because its other files could not be kept: {why}") from None
        ModelHubMixin.save_pretrained(model, temporary, model_card_kwargs=model_card_kwargs)
    if not push_to_hub:
        return None
    return model.push_to_hub(repo_id or folder.name, model_card_kwargs=model_card_kwargs, **options)


def write_model(model: torch.nn.Module, folder: Path) -> None:
    """Writes the files of a whole model, except the model card, into a folder that exists."""
    about = {
        "backbone": {k: v for k, v in model.config.to_dict().items() if k != "_name_or_path"},
        "backbone_name": portable(model.backbone_name),
        "minbert": isinstance(model.backbone, MinBert),
        "pooler_is_new": model.pooler_is_new,
        "method": model.method.to_dict(),
        "tasks": [asdict(task) | {"data": ""} for task in model.tasks.values()],  # no path of the machine
        "seed": model.seed,
        "max_length": int(model.max_length),
        "head_dropout": None if model.head_dropout is None else float(model.head_dropout),
    }
    tensors = _renamed(model.state_dict(), _prefixes(model))
    _write(tensors, folder / "model.safetensors", {"format": "pt"})  # "pt" is for AutoModel
    (folder / "palslib.json").write_text(json.dumps(about, indent=1, default=str), encoding="utf-8")
    model.config.save_pretrained(folder)
    names = {*_FILES}
    if model.own_tokenizer is not None:
        names |= {Path(path).name for path in model.own_tokenizer.save_pretrained(folder)}
    seal(folder, [name for name in names if (folder / name).exists()])


def model_card(model: torch.nn.Module, **about) -> ModelCard:
    """The card of a model: its method, its backbone and a row for each task."""
    tasks = list(model.tasks.values())
    text = ("A text.", "Another.") if tasks and len(tasks[0].texts) == 2 else "A text."
    about |= {"tasks": tasks, "text": repr(text), "method": model.method.label}
    return ModelHubMixin.generate_model_card(model, backbone=portable(model.backbone_name), **about)


def check_hub() -> None:
    """Raises ConnectionError if the Hub gives no answer in ten seconds. The Hub's own functions try half a minute."""
    try:
        get_session().head(constants.ENDPOINT, timeout=10)
    except Exception as error:  # of its network library, whichever that is, or its own if HF_HUB_OFFLINE is set
        about = "save_pretrained(FOLDER) needs no network, and the folder can be pushed later (hf upload)"
        raise ConnectionError(f"the Hub at {constants.ENDPOINT} cannot be reached: {error}. {about}") from error


def push_to_hub(model: torch.nn.Module, repo_id: str, **options) -> str:
    """Uploads the model to `user/model` on the Hub, with huggingface_hub's options (`private`, `token`, ...), and
    returns the commit's address. Raises ConnectionError where the Hub is out of reach."""
    check_hub()
    return ModelHubMixin.push_to_hub(model, repo_id, **options)


HUB_OPTIONS = ("revision", "token", "cache_dir", "force_download", "local_files_only")


def from_pretrained(cls, folder: str | Path, **options):
    """The model that `save_pretrained` or `push_to_hub` wrote, in eval mode.

    Args:
        folder: a folder, or `user/model` on the Hub if no folder has that name; `options` (`revision`, `token`,
            `cache_dir`, `force_download`, `local_files_only`) are those of huggingface_hub's `snapshot_download`.

    Raises FileNotFoundError if there is neither; ValueError, naming file and tensor or field, if a file is damaged or
    describes no model, and for an option that does not exist.
    """
    for option in options:
        check_name("option of from_pretrained", option, HUB_OPTIONS)
    here = whole(place(folder))
    if here.exists() or not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", str(folder)):
        return _loaded(cls, here)
    try:
        return _loaded(cls, Path(snapshot_download(str(folder), **options)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        raise FileNotFoundError(
            f"there is no folder {folder}, and no model of that name can be loaded from the Hub: {error}"
        ) from error


def _loaded(cls, folder: Path):
    """The model saved in a folder."""
    description, path = folder / "palslib.json", folder / "model.safetensors"
    for file in (description, path):
        if not file.is_file():
            raise FileNotFoundError(f"{folder} holds no model saved by palslib ({file.name} is missing)")
    try:
        prove(folder)
    except Damaged as error:
        raise ValueError(f"{folder} is not a complete model as this version of palslib saves it: {error}") from error
    about, (_, tensors) = read_object(description), _read(path, "save_pretrained")
    with _described(description):
        model = _built(cls, about, sum(tensor.numel() for tensor in tensors.values()))
    prefixes = {
        theirs: ours for ours, theirs in _prefixes(model).items() if model.pooler_is_new or ours != "new_pooler."
    }
    tensors = _renamed(tensors, prefixes)
    _check(path, tensors, model.state_dict())
    model.load_state_dict(tensors)
    if has_tokenizer(str(folder)):  # an encoder may have been given without one
        model.own_tokenizer = load_tokenizer(str(folder))
    return model.eval()


def _built(cls, about: dict, saved: int):
    """The model of a description, before its weights are loaded; `saved` is how many numbers its file has."""
    kinds = {"seed": int, "max_length": int, "backbone_name": str, "pooler_is_new": bool, "tasks": list}
    for name, kind in kinds.items():
        if type(about[name]) is not kind:
            raise ValueError(f"{name} must be of type {kind.__name__}, not {shown(about[name])}")
    if not (about["head_dropout"] is None or 0 <= about["head_dropout"] < 1):
        raise ValueError(f"head_dropout must be null, or from 0 to below 1, not {shown(about['head_dropout'])}")
    config = checked_config(about["backbone"], lambda: AutoConfig.for_model(**about["backbone"]))
    method, tasks = Method.from_dict(about["method"]), [Task(**row) for row in about["tasks"]]
    needed = Backbone.of(config).parameters + (count_parameters(method, config, len(tasks)).added if tasks else 0)
    if needed > saved:  # before so much memory is allocated
        raise ValueError(f"the model has at least {needed:,} parameters, but the file of weights only {saved:,}")
    with torch.random.fork_rng(devices=[]):  # Transformers draws weights, which are then replaced
        if about.get("minbert"):
            encoder = MinBert(config, pooler=not about["pooler_is_new"])
        else:
            encoder = AutoModel.from_config(config, trust_remote_code=False, dtype=torch.float32)
            if about["pooler_is_new"]:
                encoder.pooler = None
    model = cls(encoder, method, tasks, about["seed"], about["backbone_name"])
    model.max_length, model.head_dropout = about["max_length"], about["head_dropout"]
    return model


def continued(cls, folder: str | Path, method: Method, backbone_name: str, tasks: list[Task], seed: int | None = None):
    """The model in a folder, prepared for training these tasks: those that it has go on from their parameters, new ones
    are drawn from `seed` (None: the saved model's own seed). The model's other tasks will not be trained.

    What is frozen follows `method.freeze`, not the saved model; where BERT is frozen, so is what all tasks share, if
    the model has other tasks. Raises ValueError if the saved model has another method or backbone, or if one of its
    tasks has the name of one in `tasks` but is another task.
    """
    model = cls.from_pretrained(folder)
    theirs, ours = (of.to_dict() | {"freeze": None} for of in (model.method, method))
    theirs["backbone"], ours["backbone"] = portable(model.backbone_name), portable(backbone_name)
    if differ := [name for name in theirs | ours if theirs.get(name) != ours.get(name)]:
        said = ", ".join(f"{name} {shown(theirs.get(name))}, not {shown(ours.get(name))}" for name in differ)
        raise ValueError(f"{folder} holds {model.method.label} with {said}: a run that starts from it needs the same")
    model.method, model.seed = method, model.seed if seed is None else seed
    built = {p: p.requires_grad for of in (model.adaptations, model.heads) for p in of.parameters()}
    model.requires_grad_where_trained()  # this run may freeze what the previous one trained, and the reverse
    for parts in (model.adaptations, model.heads):
        parts.requires_grad_(False)
    if method.freeze != "nothing" and model.tasks.keys() - {task.name for task in tasks}:  # the others must not change
        for part in filter(None, (model.shared, model.new_pooler)):
            part.requires_grad_(False)
    for task in tasks:
        if (before := model.tasks.get(task.name)) is None:
            model.add_task(task)
            continue
        for name in ("labels", "scale", "head"):  # they decide what its trained head means
            if (was := getattr(before, name)) != (now := getattr(task, name)):
                raise ValueError(f"{folder} has a different task {task.name!r}: {name} {shown(was)}, not {shown(now)}")
        for parameter in (p for part in model.parts(task.name).values() for p in part.parameters()):
            parameter.requires_grad_(built[parameter])
        model.tasks[task.name] = task  # perhaps with another source of rows
    return model


def from_task(cls, path: str | Path, backbone: str):
    """A model with the one task of a file that `save_task` wrote, on a backbone by name or a saved model's backbone."""
    if backbone not in INCLUDED and (place(backbone) / "palslib.json").is_file():
        model = cls.from_pretrained(backbone)
    else:
        about, _ = _read(place(path), "save_task")
        with _described(place(path)):
            method = Method.from_dict(json.loads(about["method"]))
        model = cls.from_backbone(backbone, method, ())
    loaded = load_task(model, path)
    for other in set(model.tasks) - {loaded}:
        model.remove_task(other)
    return model.eval()


def save_task(model: torch.nn.Module, task: str, folder: str | Path, dtype: torch.dtype | None = None) -> Path:
    """Writes one task's parameters to `folder/<task>.safetensors` and returns that path.

    Args:
        dtype: the type to convert the parameters to (`torch.float16` halves the file's size); None: no conversion.

    Raises FileExistsError where another file has that path.
    """
    kinds = (torch.float32, torch.float16, torch.bfloat16)
    if dtype not in (None, *kinds):
        raise ValueError(f"task {task!r}: dtype must be {', '.join(map(str, kinds[:2]))} or {kinds[2]}, not {dtype}")
    about = {
        "task": json.dumps(asdict(model._known(task)) | {"data": ""}),
        "method": json.dumps(model.method.to_dict()),
        "fingerprint": model.fingerprint(),
        "seal": SEAL,
    }
    path = place(folder) / f"{task}.safetensors"
    if path.is_file() and not has_seal(path):
        raise FileExistsError(f"{path} was not written by save_task: choose another folder")
    with atomic_write(path) as temporary:
        tensors = _states(model.parts(task))
        _write({k: v.to(dtype) if v.is_floating_point() else v for k, v in tensors.items()}, temporary, about)
        seal_file(temporary)
    return path


def load_task(model: torch.nn.Module, path: str | Path) -> str:
    """Adds the task in a file that `save_task` wrote, or replaces its parameters; returns the task's name.

    `path` may be a folder with a single task file. Raises ValueError where the file is damaged, its method or backbone
    is not this model's, a tensor does not fit, or the model has another task of that name; FileNotFoundError where
    there is no such file. After an error the model is unchanged.
    """
    path = _task_file(place(path))
    about, tensors = _read(path, "save_task")
    if not {"task", "method", "fingerprint", "seal"} <= set(about):
        raise ValueError(f"{path.name} was not written by save_task of this version of palslib")
    prove_file(path)
    with _described(path):
        method, task = Method.from_dict(json.loads(about["method"])), Task(**json.loads(about["task"]))
    theirs, ours = (of.to_dict() | {"freeze": None} for of in (method, model.method))  # freeze is about training
    if theirs != ours:  # not the classes, which differ if a cell was run twice
        differ = {k: (v, ours[k]) for k, v in theirs.items() if k in ours and v != ours[k]}
        raise ValueError(f"{path.name} is for {method.label}, not {model.method.label}; file and model: {differ}")
    if about["fingerprint"] != model.fingerprint():
        raise ValueError(
            f"{path.name} was trained with another backbone (fingerprint {about['fingerprint'][:8]}, here "
            f"{model.fingerprint()[:8]}): a task's parameters fit only the backbone that they were trained with"
        )
    here = model.tasks.get(task.name, task)
    task = replace(task, data=here.data, class_weights=here.class_weights)  # only training needs these
    if here != task:
        raise ValueError(
            f"{path.name} holds a task {task.name!r} that differs from the model's task of that name: "
            f"{task} in the file, {here} in the model"
        )
    parts = model.parts(task.name) if task.name in model.tasks else model.new_parts(task)
    _check(path, tensors, _states(parts))
    for part, module in parts.items():
        module.load_state_dict({k.split(".", 1)[1]: v for k, v in tensors.items() if k.startswith(f"{part}.")})
    model.put(task, parts)
    return task.name
