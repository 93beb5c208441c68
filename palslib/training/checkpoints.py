"""Checkpoints of a run: written whole or not at all, verified before use, and sufficient to resume bit for bit.

The order of training and the dropout masks are functions of the step, so a checkpoint is weights, optimiser and
history. The two newest checkpoints are kept: where the newest is damaged, the run resumes from the one before.
"""

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from palslib.common.files import atomic_write, remove, remove_temporaries, restore, set_aside
from palslib.common.lock import InUse, run_lock
from palslib.common.processes import FIRST
from palslib.common.sealed import Damaged, prove, seal
from palslib.model.multi_task import MultiTaskModel
from palslib.plan.content import exchanged
from palslib.records import PREDICTIONS

if TYPE_CHECKING:
    from palslib.training.loop import Run


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

    @contextmanager
    def saving(self, step: int) -> Iterator[Path]:
        """A block that writes the files of the next checkpoint into the folder that it is given."""
        remove_temporaries(self.place)
        with atomic_write(self.place, keep=True) as temporary:
            temporary.mkdir()
            try:
                yield temporary
            except (SafetensorError, RuntimeError) as error:  # a full disk, as Rust and C++ say it
                raise OSError(f"{self.place}: not saved: {error}") from error
            seal(temporary, key=self.key, step=step, content=self.content)

    def find(self, read: Callable[[Path], dict]) -> Found:
        """Finds the newest undamaged checkpoint; changes no file. `read` returns the state in a folder, which has a
        `key`, or raises Damaged.

        Raises ValueError for a checkpoint of another config.
        """
        damaged = {}
        for place in filter(Path.exists, self.places):
            try:
                about, state = prove(place), read(place)
            except Damaged as error:
                damaged[place] = str(error)
                continue
            if state["key"] != self.key:
                raise ValueError(
                    f"{place.parent} holds a checkpoint of another config, {place.name}; choose another folder"
                )
            return Found(state, place, damaged, exchanged(about["content"], self.content))
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
    for name in ("checkpoint", "last", "best", "record.json", PREDICTIONS):
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


def changed_conditions(state: dict, now: dict, folder: Path) -> list[str]:
    """Says, and returns in a list, under which other conditions than those of a checkpoint the run goes on."""
    if not (changed := [f"{k} {was} -> {now[k]}" for k, was in state.get("under", {}).items() if was != now[k]]):
        return []
    said = [f"went on at step {state['step']} under other conditions: {', '.join(changed)}"]
    say(said, folder)
    return said


def save_checkpoint(run: "Run") -> None:
    """Saves model, optimiser and history, whole or not at all, unless this step has a checkpoint already."""
    if run.saved and run.saved[1] == run.step:
        return
    run.read_losses()
    run.check_weights()
    if run.accelerator.is_main_process:
        run.check_lock()
        state = {"step": run.step, "losses": run.losses, "tokens": run.tokens, "spent": run.spent}
        state |= {"history": run.history, "key": run.config.key, "notes": run.notes}
        state |= {"keep": run.config.keep, "under": run.conditions()}
        state |= {"memory": run.memory.counts()} if run.memory else {}
        # Not accelerate's save_state: its keys depend on whether there is one process or several.
        with run.checkpoints.saving(run.step) as folder:
            save_file({k: v.contiguous() for k, v in run.model.state_dict().items()}, folder / "model.safetensors")
            torch.save(run.optimizer.state_dict(), folder / "optimizer.bin")
            (folder / "run.json").write_text(json.dumps(state), encoding="utf-8")
    run.saved = run.checkpoints.place, run.step
    run.accelerator.wait_for_everyone()


def _read(run: "Run", folder: Path) -> dict:
    """The state in a checkpoint whose files are verified. Raises Damaged where the best weights are not there, and
    ValueError where weights of the best point are kept now and were not before, or the other way round."""
    state = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    if state["key"] != run.config.key:
        return state
    scored = [point for point in state["history"] if math.isfinite(point["dev_average"])]
    asked, kept = run.config.keep, state.get("keep", run.config.keep)
    if scored and (asked == "best") != (kept == "best"):
        raise ValueError(f"the run in {run.folder} was begun with keep={kept!r}: go on so, or resume=False")
    # The best weights that this checkpoint does not have itself.
    if scored and asked == "best" and max(scored, key=lambda point: point["dev_average"])["step"] != state["step"]:
        try:
            MultiTaskModel.from_pretrained(run.folder / "best")
        except (ValueError, OSError) as error:
            raise Damaged(f"the best weights up to then are not there: {error}") from error
    state["model"] = load_file(folder / "model.safetensors")
    state["optimizer"] = torch.load(folder / "optimizer.bin", map_location="cpu", weights_only=True)
    return state


def load_checkpoint(run: "Run") -> None:
    """Resumes from the newest undamaged checkpoint in the run's folder, if there is one."""
    if run.accelerator.is_main_process:
        remove_half_written(run.folder)
        restore(run.folder / "best")
        remove(run.folder / "best.old")  # of a kill behind the renames: `best` is whole
    run.accelerator.wait_for_everyone()
    found = run.checkpoints.find(lambda folder: _read(run, folder))
    run.accelerator.wait_for_everyone()
    if run.accelerator.is_main_process:
        said = run.checkpoints.settle(found)
        say(said, run.folder)
        run.notes += said
    run.accelerator.wait_for_everyone()
    state = found.state
    if state is None or found.exchanged:
        return
    run.saved = found.place, state["step"]
    run.notes = [*state.get("notes", []), *run.notes, *changed_conditions(state, run.conditions(), run.folder)]
    run.model.load_state_dict(state["model"])
    run.optimizer.load_state_dict(state["optimizer"])
    run.step, run.losses, run.tokens = state["step"], state["losses"], state["tokens"]
    run.spent, run.history = state["spent"], state["history"]
    if run.memory:
        run.memory.replay(run.step, **state["memory"])
    if run.recipe.inactive == "drift":  # every tensor updated before has a gradient, zero if unused
        for p in run.optimizer.state:
            p.grad = torch.zeros_like(p)
    if run.recipe.dropout == "until evaluated" and run.history:
        run.model.eval()
    if run.config.keep == "best" and run.history and run.best["step"] == run.step:
        run.keep_model("best")  # in case the run was killed between the checkpoint and these
