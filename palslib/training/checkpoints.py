"""Checkpoints of a run: written whole or not at all, verified before use, and sufficient to resume bit for bit.

The order of training and the dropout masks are functions of the step, so a checkpoint is weights, optimiser and
history. The two newest checkpoints are kept: where the newest is damaged, the run resumes from the one before.
"""

import json
import math
import os
import pickle
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from palslib.common.files import atomic_write, remove, remove_temporaries, restore, set_aside
from palslib.common.lock import InUse, run_lock
from palslib.common.processes import FIRST
from palslib.common.sealed import MANIFEST, Damaged, prove, seal
from palslib.plan.content import exchanged

_UNREADABLE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, LookupError, TypeError)
_UNREADABLE += (AttributeError, RuntimeError, EOFError, SafetensorError, pickle.UnpicklingError)
"""The exceptions that readers raise for a damaged file. OSError itself is not one of them: a failing disk raises it."""


def read_part(path: Path, read: Callable[[Path], object]):
    """The result of `read` for a file. Raises Damaged, which names the file, where it cannot be read."""
    try:
        return read(path)
    except _UNREADABLE as error:
        raise Damaged(f"{path.name} cannot be read: {' '.join(str(error).split()) or type(error).__name__}") from error


def read_tensors(path: Path) -> dict:
    """The content of a file of `torch.save`: only tensors and plain values, no code that could run."""
    return torch.load(path, map_location="cpu", weights_only=True)


def check_tensors(name: str, tensors: dict, expected: dict) -> None:
    """Raises Damaged unless the tensors have the expected names and shapes and are finite."""
    if wrong := sorted(set(tensors) ^ set(expected)):
        raise Damaged(f"{name} does not fit the model: {wrong[0]} is {'missing' if wrong[0] in expected else 'new'}")
    for key, tensor in tensors.items():
        if tensor.shape != expected[key].shape:
            raise Damaged(f"{name}: {key} has shape {tuple(tensor.shape)}, not {tuple(expected[key].shape)}")
        if not tensor.isfinite().all():
            raise Damaged(f"{name}: {key} is not finite")


def check_moments(name: str, moments: dict, optimizer) -> None:
    """Raises Damaged unless an optimiser's state fits its parameters and is finite."""
    groups, given = optimizer.param_groups, moments.get("param_groups", ())
    if [len(group["params"]) for group in given] != [len(group["params"]) for group in groups]:
        raise Damaged(f"{name} does not fit the optimiser: it has other groups of parameters")
    parameters = [p for group in groups for p in group["params"]]
    for number, state in moments["state"].items():
        for key, value in state.items():
            if torch.is_tensor(value) and value.ndim and value.shape != parameters[number].shape:
                raise Damaged(f"{name}: {key} of parameter {number} has shape {tuple(value.shape)}")
            if torch.is_tensor(value) and not value.isfinite().all():
                raise Damaged(f"{name}: {key} of parameter {number} is not finite")


@dataclass(frozen=True)
class Found:
    """The checkpoints of a run, as `Checkpoints.find` found them."""

    state: dict | None
    """The state in the newest usable checkpoint; None if there is none."""
    place: Path | None
    """The folder of that checkpoint."""
    damaged: dict[Path, str]
    """The damaged checkpoints, each with the reason."""
    exchanged: list[str]
    """Names of inputs exchanged since that checkpoint was written, which then belongs to another run."""


@dataclass(frozen=True)
class Checkpoints:
    """The two newest checkpoints of a run: the newest in the folder `place`, the one before in `place.old`."""

    place: Path
    key: str
    """The key of the run's config."""
    content: dict[str, str]
    """The hashes of the run's inputs, from `run_content`."""
    kept: tuple[Path, ...] = ()
    """Folders of weights that the run keeps while it trains and that its checkpoints rely on."""

    @property
    def places(self) -> tuple[Path, Path]:
        """The folders of both, the newest first."""
        return self.place, self.place.with_name(self.place.name + ".old")

    def save(self, write: Callable[[Path], None], step: int) -> None:
        """Writes the next checkpoint; `write` puts its files into a folder."""
        remove_temporaries(self.place)
        with atomic_write(self.place, keep=True) as temporary:
            temporary.mkdir()
            write(temporary)
            seal(temporary, key=self.key, step=step, content=self.content)

    def find(self, read: Callable[[Path], dict]) -> Found:
        """Finds the newest undamaged checkpoint; changes no file. `read` returns the state in a folder, which has a
        `key`, or raises Damaged.

        Raises ValueError for a checkpoint of another config. Checkpoints of earlier versions have no manifest and are
        read without one.
        """
        damaged = {}
        for place in filter(Path.exists, self.places):
            try:
                about = prove(place) if (place / MANIFEST).exists() else {}
                state = read(place)
                if state.get("sealed") and not about:
                    raise Damaged(f"{MANIFEST} is missing")
            except Damaged as error:
                damaged[place] = str(error)
                continue
            if state["key"] != self.key:
                raise ValueError(
                    f"{place.parent} holds a checkpoint of another config, {place.name}; choose another folder"
                )
            return Found(state, place, damaged, exchanged(about.get("content", {}), self.content))
        return Found(None, None, damaged, [])

    def settle(self, found: Found) -> list[str]:
        """Renames the checkpoints that cannot be used; returns sentences that say so."""
        said = [f"{place.name} cannot be used: {why}" for place, why in found.damaged.items()]
        for place in found.damaged:
            away = place.with_name(place.name + ".damaged")
            remove(away)
            os.replace(place, away)
        if found.exchanged:
            said.append(put_aside("the checkpoint", found.exchanged, [*self.places, *self.kept]))
        elif found.damaged:
            then = f"went on from {found.place.name}" if found.place else "there is no earlier checkpoint: began anew"
            said.append(then)
        return said

    def remove(self) -> None:
        """Removes all checkpoints, once the run has its record."""
        for place in self.places:
            remove(place)
            remove(place.with_name(place.name + ".damaged"))


def remove_half_written(folder: Path) -> None:
    """Removes the temporary files of a run that was killed while writing. Only the holder of its lock may call this."""
    for name in ("checkpoint", "last", "best", "record.json"):
        remove_temporaries(folder / name)


def tidy(folder: Path) -> None:
    """Removes temporary files and checkpoints left by a run that was killed after its record was written, unless the
    run is in use by a process."""
    left = (".tmp", ".old", ".damaged")
    if FIRST and any(path.name in ("checkpoint", "lock") or path.suffix in left for path in folder.iterdir()):
        with suppress(InUse, OSError), run_lock(folder):
            remove_half_written(folder)
            Checkpoints(folder / "checkpoint", "", {}).remove()


def put_aside(what: str, changed: list[str], paths: Iterable[Path]) -> str:
    """Renames files made from inputs that have been exchanged since; returns the sentence that says so."""
    ending = set_aside(paths)
    return f"{what} was made from other inputs of that name ({', '.join(changed)}): kept as *{ending}; began anew"


def record_or_room(record: dict | None, changed: list[str], paths: Iterable[Path], folder: Path) -> tuple:
    """The record, if any, and notes. Where inputs have `changed` since, the record is of another run: the files and
    folders `paths` are then put aside, None is returned in its place, and a note says so."""
    if not changed:
        return record, []
    notes = [put_aside("the record", changed, paths)]
    say(notes, folder)
    return None, notes


def say(sentences: list[str], folder: Path) -> None:
    """Prints sentences to standard error, whether or not progress is shown."""
    for sentence in sentences:
        print(f"palslib: {folder}: {sentence}", file=sys.stderr)


class Resumable:
    """The part of `training.loop.Run` that saves checkpoints, finds them and resumes from them."""

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints in the run's folder."""
        kept = self.folder / "best", self.folder / "last"
        return Checkpoints(self.folder / "checkpoint", self.config.key, self.content, kept)

    def stop(self, what: str, step: int) -> None:
        """Raises FloatingPointError, naming step, task and the last good checkpoint."""
        kept = f"{self.saved[0]} (step {self.saved[1]})" if self.saved else "none"
        raise FloatingPointError(f"{what} at step {step}, task {self.plan.tasks[step]!r}; last good checkpoint: {kept}")

    def check_lock(self) -> None:
        """Raises InUse where the run's folder was deleted or taken over by another process."""
        if self.lock:
            self.lock.check()

    def check_weights(self) -> None:
        """Raises FloatingPointError where a weight is not finite: a finite loss can have infinite gradients."""
        if not all(p.isfinite().all() for p in self.model.parameters()):
            self.stop("a weight is not finite after the update", self.step - 1)

    def save_checkpoint(self) -> None:
        """Saves model, optimiser and history, whole or not at all, unless this step has a checkpoint already."""
        if self.saved and self.saved[1] == self.step:
            return
        self.read_losses()
        self.check_weights()
        if self.accelerator.is_main_process:
            self.check_lock()
            self.checkpoints.save(self._write, self.step)
        self.saved = self.checkpoints.place, self.step
        self.accelerator.wait_for_everyone()

    def keep_model(self, name: str) -> None:
        """Saves the model in a subfolder of the run's folder."""
        self.check_weights()
        if self.accelerator.is_main_process:
            self.check_lock()
            self.model.save_pretrained(self.folder / name)

    def _write(self, folder: Path) -> None:
        # Not accelerate's save_state: its keys depend on whether there is one process or several.
        save_file({k: v.contiguous() for k, v in self.model.state_dict().items()}, folder / "model.safetensors")
        torch.save(self.optimizer.state_dict(), folder / "optimizer.bin")
        state = {"step": self.step, "losses": self.losses, "tokens": self.tokens, "spent": self.spent}
        state |= {"history": self.history, "key": self.config.key, "notes": self.notes, "sealed": True}
        if self.memory:
            state["memory"] = self.memory.counts()
        (folder / "run.json").write_text(json.dumps(state), encoding="utf-8")

    def _read(self, folder: Path) -> dict:
        """The state in a checkpoint, checked against this run, which is not changed. Raises Damaged."""
        state = read_part(folder / "run.json", lambda path: json.loads(path.read_text(encoding="utf-8")))
        names = {"step", "losses", "tokens", "spent", "history", "key"} | ({"memory"} if self.memory else set())
        if not isinstance(state, dict) or not names <= state.keys():
            raise Damaged(f"run.json does not hold {', '.join(sorted(names))}")
        if state["key"] == self.config.key:
            state["model"] = read_part(folder / "model.safetensors", load_file)
            check_tensors("model.safetensors", state["model"], self.model.state_dict())
            state["optimizer"] = read_part(folder / "optimizer.bin", read_tensors)
            check_moments("optimizer.bin", state["optimizer"], self.optimizer)
            if self.config.keep == "best" and any(math.isfinite(point["dev_average"]) for point in state["history"]):
                self._check_best()
        return state

    def _check_best(self) -> None:
        """Raises Damaged unless the best weights that were kept can be loaded."""
        try:
            with torch.random.fork_rng(devices=[]):
                type(self.model).from_pretrained(self.folder / "best")
        except (ValueError, OSError) as error:
            raise Damaged(f"the best weights up to then are not there: {error}") from error

    def load_checkpoint(self) -> bool:
        """Resumes from the folder's newest undamaged checkpoint of this run; returns False if there is none."""
        if self.accelerator.is_main_process:
            remove_half_written(self.folder)
            restore(self.folder / "best")
        self.accelerator.wait_for_everyone()
        found = self.checkpoints.find(self._read)
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            said = self.checkpoints.settle(found)
            say(said, self.folder)
            self.notes += said
        self.accelerator.wait_for_everyone()
        if found.state is None or found.exchanged:
            return False
        state = found.state
        self.saved = found.place, state["step"]
        self.notes = [*state.get("notes", []), *self.notes]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.losses, self.tokens = state["step"], state["losses"], state["tokens"]
        self.spent, self.history = state["spent"], state["history"]
        if self.memory:
            self.memory.replay(self.step, **state["memory"])
        if self.recipe.inactive == "drift":  # every tensor updated before has a gradient, zero if unused
            for p in self.optimizer.state:
                p.grad = torch.zeros_like(p)
        if self.recipe.dropout == "until evaluated" and self.history:
            self.model.eval()
        return True
