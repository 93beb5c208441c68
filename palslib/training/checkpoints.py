"""Checkpoints of a run: written whole or not at all, and enough of them to go on bit for bit.

The order of training and its dropout are functions of the step, so that a checkpoint is weights, optimiser and history.
"""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from palslib.common import atomic_write


class Resumable:
    """The part of `training.Run` that saves checkpoints, finds them and goes on from them."""

    def stop(self, what: str, step: int) -> None:
        """Raises FloatingPointError, naming step, task and the last good checkpoint."""
        about = self.checkpoint()
        kept = f"{about.parent} (step {json.loads(about.read_text())['step']})" if about else "none"
        raise FloatingPointError(f"{what} at step {step}, task {self.plan.tasks[step]!r}; last good checkpoint: {kept}")

    def save_checkpoint(self) -> None:
        """Model, optimiser and history, whole or not at all."""
        self.read_losses()
        if not all(p.isfinite().all() for p in self.model.parameters()):  # a finite loss can have infinite gradients
            self.stop("a weight is not finite after the update", self.step - 1)
        if self.accelerator.is_main_process:
            self.remove_checkpoints("checkpoint.*.tmp")  # of a run that was killed while saving
            # Not accelerate's save_state: its keys depend on whether there is one process or several.
            tensors = {k: v.contiguous() for k, v in self.model.state_dict().items()}
            state = {"step": self.step, "losses": self.losses, "tokens": self.tokens, "spent": self.spent}
            state |= {"history": self.history, "key": self.config.key}
            if self.memory:
                state["memory"] = self.memory.counts()
            with atomic_write(self.folder / "checkpoint") as temporary:
                temporary.mkdir()
                save_file(tensors, temporary / "model.safetensors")
                torch.save(self.optimizer.state_dict(), temporary / "optimizer.bin")
                (temporary / "run.json").write_text(json.dumps(state))
        self.accelerator.wait_for_everyone()

    def remove_checkpoints(self, pattern: str = "checkpoint*") -> None:
        """Removes what is left of them, once the run has its record."""
        for folder in self.folder.glob(pattern):
            shutil.rmtree(folder, ignore_errors=True)

    def checkpoint(self) -> Path | None:
        """`run.json` of the folder's checkpoint; the one before, where the run was killed in between two renames."""
        places = (self.folder / name / "run.json" for name in ("checkpoint", "checkpoint.old"))
        return next((place for place in places if place.exists()), None)

    def load_checkpoint(self) -> bool:
        """Goes on from the folder's checkpoint, if it has one of this very config."""
        about = self.checkpoint()
        if about is None:
            return False
        state = json.loads(about.read_text())
        if state["key"] != self.config.key:
            raise ValueError(f"{self.folder} holds a checkpoint of another config; choose another folder")
        self.model.load_state_dict(load_file(about.parent / "model.safetensors"))
        kept = torch.load(about.parent / "optimizer.bin", map_location="cpu", weights_only=True)
        self.optimizer.load_state_dict(kept)
        self.step, self.losses, self.tokens = state["step"], state["losses"], state["tokens"]
        self.spent, self.history = state["spent"], state["history"]
        if self.memory:
            self.memory.replay(self.step, **state["memory"])
        if self.recipe.inactive == "drift":  # a tensor that was ever updated has a gradient, of zero while it rests
            for p in self.optimizer.state:
                p.grad = torch.zeros_like(p)
        if self.recipe.dropout == "until evaluated" and self.history:
            self.model.eval()
        return True
