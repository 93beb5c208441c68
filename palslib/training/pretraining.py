"""Further pre-training of a backbone as a masked language model on the texts of tasks, before the tasks are trained.

The folder that it writes is a backbone: `RunConfig(backbone=FOLDER)`, `minbert:FOLDER`.

The head has BERT's transform and a decoder that is tied to the word embeddings. MiniLM comes without such a head: its
transform starts at random, so its scores before the first step mean little.
"""

from collections.abc import Callable

import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy

from palslib.bert.draws import own_draws
from palslib.bert.encoders import check_pieces
from palslib.common.files import saved_files
from palslib.common.names import check_type
from palslib.common.places import as_path, runs_folder
from palslib.common.seeds import seed_from
from palslib.data.tokens import some_rows
from palslib.plan.config import RunConfig
from palslib.plan.recipes import RECIPES
from palslib.records import recorded
from palslib.training.accelerator import log, make_accelerator
from palslib.training.loop import Run, run_in_folder
from palslib.training.masked_language_model import HEAD, dev_scores, masked_language_model, predict_chosen

DEV_ROWS = 500  # of each task, on which the model is measured
_WITHOUT = ("micro_batches", "gradient_checkpointing", "memory", "start", "patience", "task_weights")
_WITHOUT += ("dropout", "bias_correction", "epsilon", "clip", "step_counter", "inactive", "padding")
"""Settings of a run and of its recipe that have no effect here."""


def pretrain(config: RunConfig, on_step: Callable[[Run], bool | None] | None = None) -> dict:
    """Trains, writes the backbone into the run's folder, and returns the run's record.json, with the measurements
    before and after. Settings of methods, heads and evaluations have no effect, or
    are refused.

    Finished and killed runs, `on_step`, locks, signals and exchanged inputs are handled as in `training.loop.train`.
    Raises ValueError for a folder with another backbone in it, FloatingPointError for a loss that is not finite.
    """
    config = check_type("config", config, RunConfig, "a RunConfig, as RunConfig(steps=100)").with_steps()
    _check(config)
    folder = as_path(config.folder) if config.folder else runs_folder() / "pretraining" / config.key
    if make_accelerator(config.log_with, folder).num_processes > 1:
        raise ValueError("further pre-training runs in one process only: do not start several")
    return dict(run_in_folder(Pretraining, config, folder, on_step))


def _check(config: RunConfig) -> None:
    """Raises ValueError for a setting of training that has no effect here and does not have its default value."""
    asked = vars(config) | vars(config.resolved_recipe())
    usual = vars(RunConfig()) | vars(RECIPES["paper"])
    for name in _WITHOUT:
        if asked[name] != usual[name]:
            setting = f"{name}={asked[name]!r}"
            raise ValueError(f"further pre-training does not support {setting}: leave it at {usual[name]!r}")


class Pretraining(Run):
    """A run that trains the backbone to predict masked word pieces, and is measured before the first step and after the
    last one."""

    label = "masked language model"
    at_best = False  # best weights are not kept

    def make_model(self) -> torch.nn.Module:
        model = masked_language_model(self.config.backbone, self.config.seed, self.config.weights)
        masks = torch.tensor([len(self.tokenizer) - 1])  # masking may draw any piece up to this one
        check_pieces(masks, model.config.vocab_size, "the tokenizer")
        return model

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        return [p for name, p in self.model.named_parameters() if not name.startswith("bert.pooler")]

    def make_optimizer(self) -> torch.optim.Optimizer:
        kinds = [(decays, [p for p in self.parameters if (p.ndim > 1) == decays]) for decays in (True, False)]
        decay = {True: self.config.weight_decay, False: 0.0}
        groups = [{"params": some, "weight_decay": decay[decays], "multiple": 1.0} for decays, some in kinds]
        return torch.optim.AdamW(groups, self.config.learning_rate, fused=True)

    def loss(self, task: str, batch: dict) -> torch.Tensor:
        seed = seed_from(self.config.seed, self.step)
        with own_draws(seed, self.accelerator.device):  # dropout, like the masks, is a function of the step
            logits, labels = predict_chosen(self.model, batch["rows"], self.tokenizer, seed)
        return cross_entropy(logits, labels, reduction="sum") / max(len(labels), 1)  # perhaps no piece was chosen

    def evaluates(self) -> bool:
        return self.step in (0, self.config.steps)

    def evaluate(self) -> None:
        self.read_losses()
        self.check_weights()
        dev = {task: some_rows(next(iter(by_split.values())), DEV_ROWS) for task, by_split in self.dev_data.items()}
        seen = dev_scores(self.model, dev, self.tokenizer, self.config, self.accelerator.device)
        self.history.append({"step": self.step} | seen)
        log(self.accelerator, {f"dev/{name}": seen[name] for name in ("accuracy", "loss", "perplexity")}, self.step)

    def finish(self) -> None:
        self.check_weights()
        names = ("backbone", "weights", "tasks", "data", "schedule", "steps", "batch_size", "max_length")
        values = recorded(self.config)
        settings = {name: values[name] for name in (*names, "learning_rate", "seed")}
        before, after = ({k: v for k, v in point.items() if k != "step"} for point in self.history)
        record = {"kind": "pretraining", "key": self.config.key, "status": "finished", "settings": settings}
        record |= {"before": before, "after": after, "losses": self.losses, "precision": self.precision}
        record |= {"device": self.accelerator.device.type, "environment": self.environment, "content": self.content}
        record |= {"notes": self.notes} if self.notes else {}
        self.check_folder()
        with saved_files(self.folder, {}) as new:
            self.tokenizer.save_pretrained(new)
            save_file({k: v.clone() for k, v in self.model.cls.state_dict().items()}, new / HEAD)
            self.model.bert.save_pretrained(new)
        self.write(record)
