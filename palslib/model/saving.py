"""Saving a model whole, and one task of it by itself: safetensors only, written whole or not at all.

A task's file holds what `adaptations[task]` and `heads[task]` hold: 7 MB for PALs beside BERT's 438 MB. Its parameters
were trained with one backbone and fit no other, so the file carries that backbone's fingerprint.

Every file has a checksum of its tensors and of what is said about them in its metadata (those of earlier versions have
none and are read all the same). Everything is checked before anything in a running model is changed.

A whole model's folder needs nothing beside itself: it has the tokenizer, and `config.json` with the backbone's tensors
under Transformers' own names, so that `AutoModel.from_pretrained(folder)` and `AutoTokenizer` read the backbone part of
it, here and on the Hub (with the pooler; adaptations and heads are left out). What a machine calls its folders is not
in it.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, StrictDataclassError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModel

from palslib.bert.backbones import TOKENIZER_FILES, has_tokenizer, load_tokenizer, portable
from palslib.bert.minbert import MinBert
from palslib.common.files import atomic_write
from palslib.common.names import shown
from palslib.common.reading import read_object
from palslib.data.tasks import Task
from palslib.methods.backbone import Backbone
from palslib.methods.counting import count_parameters
from palslib.methods.method import Method
from palslib.model.predicting import MAX_LENGTH

_CHECKSUM = "sha256"
"""The key of `_checksums` in a file's metadata."""


def _checksums(tensors: dict[str, torch.Tensor], *about: str) -> list[str]:
    """First of names, shapes, types and what else is said, then of each tensor in the order of names; 16 letters each,
    of SHA-256."""
    ordered = sorted(tensors.items())
    said = repr([*about, *((name, str(tensor.dtype), tuple(tensor.shape)) for name, tensor in ordered)])
    numbers = (tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy() for _, tensor in ordered)
    return [hashlib.sha256(content).hexdigest()[:16] for content in (said.encode(), *numbers)]


def _write(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str], *about: str) -> None:
    """Raises ValueError naming a tensor that is not finite, which could not be read again, and OSError naming the file
    where the disk is full."""
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{path.name}: not saved, since {name!r} has a value that is not finite")
    try:
        save_file(tensors, path, metadata=metadata | {_CHECKSUM: " ".join(_checksums(tensors, *about))})
    except SafetensorError as error:
        raise OSError(f"{path}: {error}") from error


def _read(path: Path, writer: str) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """A file's metadata and tensors. Raises ValueError naming it where it is none."""
    try:
        with safe_open(path, "pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path} was not written by {writer}, or is damaged: {error}") from error


def _prove(path: Path, metadata: dict[str, str], tensors: dict[str, torch.Tensor], *about: str) -> None:
    """Raises ValueError naming file and tensor unless the checksums of the metadata, if there are any, hold."""
    if _CHECKSUM not in metadata:  # of an earlier version
        return
    written, found = metadata[_CHECKSUM].split(), _checksums(tensors, *about)
    if written[0] != found[0] or len(written) != len(found):
        raise ValueError(f"{path} is damaged: what is said about its tensors is not what was saved (checksum)")
    for name, then, now in zip(sorted(tensors), written[1:], found[1:], strict=True):
        if then != now:
            raise ValueError(f"{path} is damaged: tensor {name!r} is not what was saved (checksum)")


def _check(path: Path, tensors: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Raises ValueError naming file and tensor unless those can take the place of these, without loss, and are finite.
    A narrower type of the same kind loses nothing."""
    if wrong := sorted(set(tensors) ^ set(expected)):
        what = "is missing" if wrong[0] in expected else "is none of this model's"
        more = f" (and {len(wrong) - 1} more do not fit)" if len(wrong) > 1 else ""
        raise ValueError(f"{path}: tensor {wrong[0]!r} {what}{more}")
    for name, tensor in tensors.items():
        own = expected[name]
        if tensor.shape != own.shape:
            raise ValueError(f"{path}: tensor {name!r} has shape {tuple(tensor.shape)}, not {tuple(own.shape)}")
        wider = torch.promote_types(tensor.dtype, own.dtype)
        if wider != own.dtype or tensor.is_floating_point() != own.is_floating_point():
            raise ValueError(f"{path}: tensor {name!r} is of {tensor.dtype}, not {own.dtype}")
        if not tensor.isfinite().all():
            raise ValueError(f"{path}: tensor {name!r} has a value that is not finite")


_NONSENSE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, StrictDataclassError)


@contextmanager
def _described(path: Path) -> Iterator[None]:
    """Whatever nonsense in a description makes of what is built from it becomes a ValueError that names the file."""
    try:
        yield
    except _NONSENSE as e:
        raise ValueError(f"{path} describes no model or task of palslib: {type(e).__name__}: {e}") from e


_ABOUT = ("task", "method", "fingerprint")
"""What a task's file says about itself."""


def _states(parts: dict[str, torch.nn.Module]) -> dict[str, torch.Tensor]:
    """The tensors of a task's `adaptation` and `head`, as they are called in its file."""
    return {f"{part}.{key}": tensor for part, module in parts.items() for key, tensor in module.state_dict().items()}


def _task_file(path: Path) -> Path:
    if path.is_dir():
        files = sorted(p for p in path.glob("*.safetensors") if p.name != "model.safetensors")
        if len(files) != 1:
            names = ", ".join(p.name for p in files) or "none"
            raise ValueError(f"{path} should hold one task file, or give the file itself; it holds: {names}")
        return files[0]
    if not path.is_file():
        raise FileNotFoundError(f"no task file {path}")
    return path


def _own(key: str, model) -> str:
    """A parameter of a task's own backbone, as it is called now: its pooler lay beside it, and it was `encoder`."""
    if key.startswith("encoder."):
        return "backbone." + key.removeprefix("encoder.")
    return f"backbone.{key}" if key.startswith("pooler.") and not model.pooler_is_new else key


def _prefix(model) -> str:
    """What Transformers calls a backbone in a model that has more than it: `bert.`, `roberta.`, ..."""
    return getattr(model.backbone, "base_model_prefix", model.config.model_type) + "."


def _travelling(model) -> dict[str, torch.Tensor]:
    """A model's tensors as its file calls them: the backbone and its pooler, new or not, as in Transformers."""
    names = {"backbone.": _prefix(model), "new_pooler.": _prefix(model) + "pooler."}
    return {re.sub(r"^(backbone\.|new_pooler\.)", lambda m: names[m[0]], k): v for k, v in model.state_dict().items()}


def _renamed(state: dict, model) -> dict:
    """A file's tensors under the names of this model. In the first version the pooler lay beside the backbone, which
    was called `backbone` in the second."""
    renamed = {}
    for key, tensor in state.items():
        if key.startswith(_prefix(model)):
            inner = key.removeprefix(_prefix(model))
            key = inner if inner.startswith("pooler.") else f"backbone.{inner}"
        if key.startswith("pooler."):
            key = f"new_{key}" if model.pooler_is_new else f"backbone.{key}"
        elif model.method.copies_backbone and key.startswith("adaptations."):
            first, task, rest = key.split(".", 2)
            key = f"{first}.{task}.{_own(rest, model)}"
        renamed[key] = tensor
    return renamed


_CARD = """---
{{ card_data }}
---

# {{ tasks | length }} tasks on one {{ backbone }}

{{ method }} (*BERT and PALs*, Stickland & Murray 2019, {{ paper_url }}): every task has a few parameters of its own,
and all share the rest. Made with the Python package `palslib`.

```python
from palslib import MultiTaskModel

model = MultiTaskModel.from_pretrained("user/model")  # this repository's name, or a folder that it was downloaded to
model.predict({{ text }}, tasks=["{{ tasks[0].name }}"])
```

| task | texts | labels |
|---|---|---|
{% for task in tasks -%}
| {{ task.name }} | {{ task.texts | join(", ") }} | {{ task.labels | join(", ") or "a score" }} |
{% endfor %}
`transformers.AutoModel.from_pretrained` reads the backbone alone.
"""


class Saved(
    ModelHubMixin,
    library_name="palslib",
    tags=["multi-task", "adapters"],
    pipeline_tag="text-classification",
    paper_url="https://arxiv.org/abs/1902.02671",
    model_card_template=_CARD,
):
    """The part of `MultiTaskModel` that saves and loads, from the Hub, too: `push_to_hub("user/model")`."""

    def fingerprint(self) -> str:
        """Of everything that tasks share, as it is now: the backbone, its pooler, projections across tasks."""
        digest = hashlib.sha256()
        state = {  # as the first version called them
            k.replace("backbone.pooler.", "pooler.").replace("new_pooler.", "pooler."): tensor
            for k, tensor in self.state_dict().items()
        }
        for name, tensor in sorted(state.items()):
            if not name.startswith(("adaptations.", "heads.")):
                digest.update(name.encode())
                digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:32]

    def save_pretrained(self, folder: str | Path, **options) -> None:
        """Writes a folder that needs nothing beside itself: `model.safetensors`, `palslib.json` (backbone's
        configuration, method, tasks), `config.json`, the tokenizer if one is known, and, where there is none yet, a
        model card. `options` (of the model card) are those of huggingface_hub's `ModelHubMixin`."""
        folder = Path(folder)
        with atomic_write(folder) as temporary:
            if folder.is_dir():  # what else lies there (a task's file) stays
                tokenizer = () if self._tokenizer is None else TOKENIZER_FILES
                ours = shutil.ignore_patterns("model.safetensors", "palslib.json", "manifest.json", *tokenizer)
                try:
                    shutil.copytree(folder, temporary, ignore=ours)
                except shutil.Error as error:  # a list of all that failed; the first says why: a full disk
                    why = error.args[0][0][2]
                    raise OSError(f"{folder}: not saved, its other files could not be kept: {why}") from None
            super().save_pretrained(temporary, **options)

    def _save_pretrained(self, save_directory: Path) -> None:
        about = {
            "backbone": {k: v for k, v in self.config.to_dict().items() if k != "_name_or_path"},
            "backbone_name": portable(self.backbone_name),
            "minbert": isinstance(self.backbone, MinBert),
            "pooler_is_new": self.pooler_is_new,
            "method": self.method.to_dict(),
            "tasks": [asdict(task) | {"data": ""} for task in self.tasks.values()],  # where rows are is the machine's
            "seed": self.seed,
            "max_length": self.max_length,
        }
        text = json.dumps(about, indent=1, default=str)
        _write(_travelling(self), save_directory / "model.safetensors", {"format": "pt"}, text)  # "pt" is for AutoModel
        (save_directory / "palslib.json").write_text(text, encoding="utf-8")
        self.config.save_pretrained(save_directory)
        if self._tokenizer is not None:
            self._tokenizer.save_pretrained(save_directory)

    def generate_model_card(self, **about) -> ModelCard:
        """The card of this model: its method, its backbone, a row for each task."""
        tasks = list(self.tasks.values())
        text = ("A text.", "Another.") if tasks and len(tasks[0].texts) == 2 else "A text."
        about |= {"tasks": tasks, "text": repr(text)}
        return super().generate_model_card(method=self.method.label, backbone=portable(self.backbone_name), **about)

    @classmethod
    def from_pretrained(cls, folder: str | Path, **options):
        """The model that `save_pretrained` or `push_to_hub` wrote, in eval mode.

        Args:
            folder: or `user/model` on the Hub, where there is no folder of that name; `options` (`revision`, `token`,
                `cache_dir`, `force_download`, `local_files_only`) are those of huggingface_hub's `ModelHubMixin`.

        Raises FileNotFoundError where there is none, ValueError naming file and tensor or field where it is not what
        was written, or describes no model.
        """
        place = Path(folder)
        old = place.with_name(place.name + ".old")  # whole where saving was cut off between its two renames
        if not place.exists() and old.exists():
            place = old
        if place.exists() or not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", str(folder)):
            return cls._loaded(place)
        try:
            return super().from_pretrained(str(folder), **options)
        except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
            raise FileNotFoundError(
                f"there is no folder {folder}, nor can a model of that name be had from the Hub: {error}"
            ) from error

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options):
        return cls._loaded(Path(snapshot_download(model_id, **options)))

    @classmethod
    def _loaded(cls, folder: Path):
        """The model of a folder."""
        description, path = folder / "palslib.json", folder / "model.safetensors"
        for file in (description, path):
            if not file.is_file():
                raise FileNotFoundError(f"{folder} holds no model saved by palslib ({file.name} is missing)")
        about, (metadata, tensors) = read_object(description), _read(path, "save_pretrained")
        _prove(path, metadata, tensors, description.read_text(encoding="utf-8"))
        with _described(description):
            model = cls._built(about, sum(tensor.numel() for tensor in tensors.values()))
        tensors = _renamed(tensors, model)
        _check(path, tensors, model.state_dict())
        model.load_state_dict(tensors)
        if has_tokenizer(str(folder)):  # earlier versions wrote none
            model._tokenizer = load_tokenizer(str(folder))
        return model.eval()

    @classmethod
    def _built(cls, about: dict, saved: int):
        """The model of a description, before it has its weights, of which so many numbers are saved."""
        about = {"max_length": MAX_LENGTH} | about  # which earlier versions did not say
        kinds = {"seed": int, "max_length": int, "backbone_name": str, "pooler_is_new": bool, "tasks": list}
        for name, kind in kinds.items():
            if type(about[name]) is not kind:
                raise ValueError(f"{name} must be of type {kind.__name__}, not {shown(about[name])}")
        config, method = AutoConfig.for_model(**about["backbone"]), Method.from_dict(about["method"])
        tasks = [Task(**row) for row in about["tasks"]]
        needed = Backbone.of(config).parameters + count_parameters(method, config, max(1, len(tasks))).added
        if tasks and needed > saved:  # before that much is allocated, and drawn
            raise ValueError(f"a model of {needed:,} parameters and more, but the weights have {saved:,}")
        with torch.random.fork_rng(devices=[]):  # Hugging Face draws weights, which are then replaced
            if about.get("minbert"):
                encoder = MinBert(config, pooler=not about["pooler_is_new"])
            else:
                encoder = AutoModel.from_config(config)
                if about["pooler_is_new"]:
                    encoder.pooler = None
        model = cls(encoder, method, tasks, about["seed"], about["backbone_name"])
        model.max_length = about["max_length"]
        return model

    @classmethod
    def continued(cls, folder: str | Path, method: Method, backbone_name: str, tasks: list[Task]):
        """The model of `from_pretrained` with further tasks; those that it has already will not be trained.

        Raises ValueError where it is of another method or backbone, or has one of the tasks already.
        """
        model = cls.from_pretrained(folder)
        if (model.method, portable(model.backbone_name)) != (method, portable(backbone_name)):
            raise ValueError(
                f"{folder} holds {model.method.label} on backbone {model.backbone_name!r}, not {method.label} on "
                f"{backbone_name!r}: a run that starts from it has to be of the same"
            )
        for parts in (model.adaptations, model.heads):
            parts.requires_grad_(False)
        for task in tasks:
            model.add_task(task)
        return model

    def save_task(self, task: str, folder: str | Path, dtype: torch.dtype | None = None) -> Path:
        """Writes one task's parameters to `folder/<task>.safetensors` and returns that path.

        Args:
            dtype: what they are rounded to in the file (`torch.float16` for half its size); None: as they are.
        """
        about = {
            "task": json.dumps(asdict(self._known(task)) | {"data": ""}),
            "method": json.dumps(self.method.to_dict()),
            "fingerprint": self.fingerprint(),
        }
        path = Path(folder) / f"{task}.safetensors"
        with atomic_write(path) as temporary:
            tensors = _states(self._parts(task))
            _write({k: v.to(dtype) for k, v in tensors.items()}, temporary, about, *about.values())
        return path

    def load_task(self, path: str | Path) -> str:
        """Adds the task of a file that `save_task` wrote, or replaces its parameters; returns the task's name.

        A folder may stand for the one task file in it. Raises ValueError where the file is damaged, its method is not
        this model's, its backbone is not this one as trained, or a tensor does not fit; FileNotFoundError where there
        is no such file. Then nothing in the model has changed.
        """
        path = _task_file(Path(path))
        about, tensors = _read(path, "save_task")
        if not set(_ABOUT) <= set(about):
            raise ValueError(f"{path.name} was not written by save_task")
        _prove(path, about, tensors, *(about[name] for name in _ABOUT))
        with _described(path):
            method, task = Method.from_dict(json.loads(about["method"])), Task(**json.loads(about["task"]))
        if method != self.method:
            ours = self.method.to_dict()
            differ = {k: (v, ours[k]) for k, v in method.to_dict().items() if k in ours and v != ours[k]}
            raise ValueError(
                f"{path.name} holds {method.label}, the model {self.method.label}; (file, model): {differ}"
            )
        if about["fingerprint"] != self.fingerprint():
            raise ValueError(
                f"{path.name} was trained with another backbone (fingerprint {about['fingerprint'][:8]}, here "
                f"{self.fingerprint()[:8]}): a task's parameters fit only the backbone that they were trained with"
            )
        if self.tasks.get(task.name, task) != task:
            raise ValueError(
                f"{path.name} holds a task {task.name!r} that is not the model's of that name: "
                f"{task} in the file, {self.tasks[task.name]} in the model"
            )
        parts = self._parts(task.name) if task.name in self.tasks else self._new_parts(task)
        if self.method.copies_backbone:
            own = "adaptation."
            tensors = {own + _own(k.removeprefix(own), self) if k.startswith(own) else k: v for k, v in tensors.items()}
        _check(path, tensors, _states(parts))
        for part, module in parts.items():
            module.load_state_dict({k.split(".", 1)[1]: v for k, v in tensors.items() if k.startswith(f"{part}.")})
        self._put(task, parts)
        return task.name
