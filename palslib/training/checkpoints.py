"""Checkpoints in a folder: written whole or not at all, and verified before use.

A checkpoint is a state of named values: those that JSON can hold, and two that it cannot, `model` and `optimizer`. The
two newest checkpoints are kept: if the newest is damaged, a run resumes from the one before.
"""

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError

import torch

from palslib.common.files import atomic_write, recover, remove, set_aside
from palslib.common.lock import RUN_FILES, InUse, run_lock
from palslib.common.processes import FIRST, say
from palslib.common.sealed import Damaged, prove, seal
from palslib.plan.content import exchanged

_TENSORS = ("model", "optimizer")
_WRONG = (Damaged, LookupError, TypeError, AttributeError, RuntimeError, EOFError, UnpicklingError)
"""Exceptions for a checkpoint that is not one of ours, even if its checksums are right."""


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
    """Names of inputs exchanged since that checkpoint was written; if there are any, it belongs to another run."""


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
        """The folders of both checkpoints, the newest first."""
        return self.place, self.place.with_name(self.place.name + ".old")

    def save(self, state: dict) -> None:
        """Writes the next checkpoint. Raises OSError where there is no room for it."""
        values = {name: value for name, value in state.items() if name not in _TENSORS}
        with atomic_write(self.place, keep=True) as temporary:
            temporary.mkdir()
            (temporary / "run.json").write_text(json.dumps(values), encoding="utf-8")
            try:
                torch.save({name: state[name] for name in _TENSORS}, temporary / "tensors.bin")
            except RuntimeError as error:  # torch's error for a full disk
                raise OSError(f"{self.place}: not saved, is the disk full? ({error})") from error
            seal(temporary, key=self.key, content=self.content)

    def find(self, check: Callable[[dict], None]) -> Found:
        """Finds the newest undamaged checkpoint; changes no file.

        Args:
            check: is called with the values of a state, and raises Damaged if the run cannot be resumed from them.

        Raises ValueError for a checkpoint of another config.
        """
        damaged = {}
        for place in filter(Path.exists, self.places):
            try:
                about = prove(place)
                if about.get("key") != self.key:
                    raise ValueError(
                        f"{place.parent} holds a checkpoint of another config, {place.name}; choose another folder"
                    )
                state = json.loads((place / "run.json").read_text(encoding="utf-8"))  # a dev average may be NaN
                check(state)
                state |= torch.load(place / "tensors.bin", map_location="cpu", weights_only=True)
            except _WRONG as error:
                damaged[place] = str(error) if isinstance(error, Damaged) else f"{type(error).__name__}: {error}"
                continue
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
            then = f"resumed from {found.place.name}" if found.place else "no earlier checkpoint: restarted at step 0"
            said.append(then)
        say(said, self.place.parent)
        return said

    def remove(self) -> None:
        """Removes all checkpoints, once the run has its record."""
        for place in self.places:
            remove(place)
            remove(place.with_name(place.name + ".damaged"))


def recover_files(folder: Path) -> None:
    """Undoes what a run was writing when it was killed. Only the holder of the folder's lock may call this."""
    for name in RUN_FILES:
        recover(folder / name)


def tidy(folder: Path) -> None:
    """Removes temporary files and checkpoints left by a run that was killed after its record was written, unless a
    process is using the run."""
    left = (".tmp", ".old", ".damaged")
    if FIRST and any(path.name in ("checkpoint", "lock") or path.suffix in left for path in folder.iterdir()):
        with suppress(InUse, OSError, ValueError), run_lock(folder):  # ValueError: not by palslib, so it stays
            recover_files(folder)
            Checkpoints(folder / "checkpoint", "", {}).remove()


def put_aside(what: str, changed: list[str], paths: Iterable[Path]) -> str:
    """Renames files made from inputs that have been exchanged since; returns the sentence that says so."""
    ending = set_aside(paths)
    return f"{what} was made from inputs that changed ({', '.join(changed)}): kept as *{ending}; run restarted"
