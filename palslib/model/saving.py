"""Saving a model whole, and one task of it by itself: safetensors only, written whole or not at all.

A task's file holds what `adaptations[task]` and `heads[task]` hold: 7 MB for PALs beside BERT's 438 MB. Its parameters
were trained with one backbone and fit no other, so the file carries that backbone's fingerprint.
"""

import hashlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

from palslib.bert.minbert import MinBert
from palslib.common import atomic_write
from palslib.data.tasks import Task
from palslib.methods.method import Method


def _task_from(row: dict) -> Task:
    return Task(**{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()})


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


def _renamed(state: dict, model) -> dict:
    """A state dict of the first version under the names of this one: its pooler lay beside the backbone."""
    renamed = {}
    for key, tensor in state.items():
        if key.startswith("pooler."):
            key = f"new_{key}" if model.pooler_is_new else f"backbone.{key}"
        elif model.method.copies_backbone and key.startswith("adaptations."):
            first, task, rest = key.split(".", 2)
            key = f"{first}.{task}.{_own(rest, model)}"
        renamed[key] = tensor
    return renamed


class Saved:
    """The part of `MultiTaskModel` that saves and loads."""

    def fingerprint(self) -> str:
        """Of everything that tasks share, as it is now: the backbone, its pooler, projections across tasks."""
        digest = hashlib.sha256()
        own = ("adaptations.", "heads.")
        names = {
            k.replace("backbone.pooler.", "pooler.").replace("new_pooler.", "pooler."): k for k in self.state_dict()
        }
        state = {name: self.state_dict()[k] for name, k in names.items()}  # as the first version called them
        for name, tensor in sorted(state.items()):
            if not name.startswith(own):
                digest.update(name.encode())
                digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:32]

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes `model.safetensors` and `palslib.json` (backbone's configuration, method, tasks) into a folder."""
        folder = Path(folder)
        about = {
            "backbone": self.config.to_dict(),
            "backbone_name": self.backbone_name,
            "minbert": isinstance(self.backbone, MinBert),
            "pooler_is_new": self.pooler_is_new,
            "method": self.method.to_dict(),
            "tasks": [asdict(task) for task in self.tasks.values()],
            "seed": self.seed,
        }
        with atomic_write(folder) as temporary:
            if folder.is_dir():  # what else lies there (a task's file) stays
                ours = shutil.ignore_patterns("model.safetensors", "palslib.json")
                shutil.copytree(folder, temporary, ignore=ours)
            temporary.mkdir(exist_ok=True)
            save_file({k: v.contiguous() for k, v in self.state_dict().items()}, temporary / "model.safetensors")
            text = json.dumps(about, indent=1, default=str)
            (temporary / "palslib.json").write_text(text, encoding="utf-8")

    @classmethod
    def from_pretrained(cls, folder: str | Path):
        """The model that `save_pretrained` wrote, in eval mode."""
        folder = Path(folder)
        old = folder.with_name(folder.name + ".old")  # whole where saving was cut off between its two renames
        if not folder.exists() and old.exists():
            folder = old
        if not (folder / "palslib.json").is_file():
            raise FileNotFoundError(f"{folder} holds no model saved by palslib (palslib.json is missing)")
        about = json.loads((folder / "palslib.json").read_text())
        config = AutoConfig.for_model(**about["backbone"])
        tasks = [_task_from(row) for row in about["tasks"]]
        with torch.random.fork_rng(devices=[]):  # Hugging Face draws weights, which are then replaced
            if about.get("minbert"):
                encoder = MinBert(config, pooler=not about["pooler_is_new"])
            else:
                encoder = AutoModel.from_config(config)
                if about["pooler_is_new"]:
                    encoder.pooler = None
        model = cls(encoder, Method.from_dict(about["method"]), tasks, about["seed"], about["backbone_name"])
        model.load_state_dict(_renamed(load_file(folder / "model.safetensors"), model))
        return model.eval()

    @classmethod
    def continued(cls, folder: str | Path, method: Method, backbone_name: str, tasks: list[Task]):
        """The model of `from_pretrained` with further tasks; those that it has already will not be trained.

        Raises ValueError where it is of another method or backbone, or has one of the tasks already.
        """
        model = cls.from_pretrained(folder)
        if (model.method, model.backbone_name) != (method, backbone_name):
            raise ValueError(
                f"{folder} holds {model.method.label} on backbone {model.backbone_name!r}, not {method.label} on "
                f"{backbone_name!r}: a run that starts from it has to be of the same"
            )
        for parts in (model.adaptations, model.heads):
            parts.requires_grad_(False)
        for task in tasks:
            model.add_task(task)
        return model

    def save_task(self, task: str, folder: str | Path) -> Path:
        """Writes one task's parameters to `folder/<task>.safetensors` and returns that path."""
        about = {
            "task": json.dumps(asdict(self._known(task))),
            "method": json.dumps(self.method.to_dict()),
            "fingerprint": self.fingerprint(),
        }
        parts = {"adaptation": self.adaptations[task], "head": self.heads[task]}
        tensors = {f"{part}.{k}": v.contiguous() for part, m in parts.items() for k, v in m.state_dict().items()}
        path = Path(folder) / f"{task}.safetensors"
        with atomic_write(path) as temporary:
            save_file(tensors, temporary, metadata=about)
        return path

    def load_task(self, path: str | Path) -> str:
        """Adds the task of a file that `save_task` wrote, or replaces its parameters; returns the task's name.

        A folder may stand for the one task file in it. Raises ValueError where the file's method is not this model's,
        or its backbone is not this one as trained; FileNotFoundError where there is no such file.
        """
        path = _task_file(Path(path))
        try:
            with safe_open(path, "pt") as file:
                about, tensors = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise ValueError(f"{path.name} was not written by save_task: {error}") from error
        if not {"task", "method", "fingerprint"} <= set(about):
            raise ValueError(f"{path.name} was not written by save_task")
        method, task = Method.from_dict(json.loads(about["method"])), _task_from(json.loads(about["task"]))
        if method != self.method:
            ours = self.method.to_dict()
            differ = {k: (v, ours.get(k)) for k, v in method.to_dict().items() if v != ours.get(k)}
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
        if task.name not in self.tasks:
            self.add_task(task)
        for part, module in (("adaptation", self.adaptations[task.name]), ("head", self.heads[task.name])):
            state = {k.split(".", 1)[1]: v for k, v in tensors.items() if k.startswith(f"{part}.")}
            if self.method.copies_backbone and part == "adaptation":
                state = {_own(k, self): v for k, v in state.items()}
            module.load_state_dict(state)
        return task.name
