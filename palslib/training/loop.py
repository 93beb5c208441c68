"""The training loop; `python -m palslib train` is the same from a terminal.

For each step (`Run.train_step`): task and examples from the plan -> loss -> backward (-> projection, see
`episodic_memory`) -> clip -> update -> schedule (paper 4.1 and set-up). The order of training and its dropout depend on
(config, step) alone, so a killed run that resumes from its last checkpoint ends with the same weights as one that was
not killed. Several processes (`train --help` says how they are started) share every batch: without dropout they train
the same model as one process, up to rounding; each draws its own dropout masks, so with dropout they agree only in the
mean.
"""

import hashlib
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import DistributedType
from tqdm import tqdm

from palslib.bert.backbones import has_tokenizer, load_config, load_tokenizer, portable
from palslib.bert.draws import own_draws
from palslib.bert.encoders import check_pieces, max_positions
from palslib.common.files import atomic_write, discard, read_list
from palslib.common.names import check_type
from palslib.common.places import as_path, runs_folder
from palslib.common.precision import autocast, check_surroundings, precision_of, products
from palslib.common.processes import bar_place, in_notebook, say
from palslib.common.reading import read_object
from palslib.common.seeds import seed_from
from palslib.data.metrics import Scores, dev_average, glue_average
from palslib.data.tasks import Task
from palslib.data.tokens import shortfalls, tokenise_task
from palslib.model.inspection import how_strongly, switched_off
from palslib.model.multi_task import MultiTaskModel
from palslib.model.saving import save_without_card, write_card
from palslib.plan.config import CHANGE_NO_RESULT, RunConfig, as_now, make_plan
from palslib.plan.content import exchanged, folder_content, run_content
from palslib.plan.recipes import rate_factor
from palslib.records import PREDICTIONS, check_fields, environment, make_record, recorded, write_record
from palslib.training import checkpoints
from palslib.training.accelerator import alone, decided_by_first, locked_by_first, log, make_accelerator, tracked
from palslib.training.episodic_memory import EpisodicMemory, constrained_parameters
from palslib.training.evaluation import Predictions, evaluate
from palslib.training.optimizer import RowGradients, clip_gradients, make_optimizer
from palslib.training.signals import StopSignals
from palslib.training.trained import Trained


def model_before(config: RunConfig, tasks: list[Task]) -> MultiTaskModel:
    """The model before a run's first step: on a plain backbone, or on the weights that the run starts from."""
    method = config.resolved_method()
    if config.start:
        return MultiTaskModel.continued(config.start, method, config.backbone, tasks, config.seed)
    return MultiTaskModel.from_backbone(config.backbone, method, tasks, config.seed, config.weights)


_ELSE = "choose another folder, or for train in Python give resume=False"


def check_same(
    config: RunConfig, folder: Path, what: str, saved: dict, kept: bool, now: dict[str, str] | None = None
) -> None:
    """Raises ValueError, saying what differs, where what is saved in a folder is another run's. `kept`: whether it has
    the weights that this run is to keep; `now`: the present hashes of inputs, if they were computed already."""
    content, ours = saved.get("content") or {}, recorded(config)
    theirs = saved.get("config") or saved.get("settings") or {}
    # Of equal settings with another key only the folders of data and weights differ, which may have been moved.
    named = [name for name in ours if name not in CHANGE_NO_RESULT]
    same = all(name in theirs and theirs[name] == ours[name] for name in named)
    if saved.get("key") != config.key and not (content and same):
        before = as_now(theirs)
        differ = [name for name in named if before.get(name, ours[name]) != ours[name]] or ["others"]
    else:
        differ = [] if kept else [f"keep ({theirs['keep']}: give the same to use this run)"]
    if differ in ([], ["others"]):  # the settings are those of this run: its inputs may be others
        differ = exchanged(content, config, now) or differ
    if differ:
        raise ValueError(f"{folder} holds {what} of another run, which differs in {', '.join(differ)}: {_ELSE}")


_AS_THEY_ARE = ("step", "losses", "tokens", "spent", "history", "notes", "kept")
"""The values of a run that its checkpoint holds unchanged."""


class Run:
    """One training run: its data, plan, model and optimiser, its steps, and its state."""

    def __init__(self, config: RunConfig, folder: Path, on_phase: Callable[[str], None] = lambda phase: None):
        self.on_phase = on_phase
        self.folder, self.environment = folder, environment()
        self.config, self.recipe = config, config.resolved_recipe()
        self.accelerator = make_accelerator(config.log_with, folder)
        self.precision = precision_of(config.precision, self.accelerator.device)
        if self.precision == "fp16" and config.memory:
            raise ValueError("memory compares gradients, which precision='fp16' scales: give precision='float32'")
        # fp16 has no numbers below 6e-8: the loss is multiplied by a scale, and gradients are divided by it.
        self.scaler = torch.amp.GradScaler(self.accelerator.device.type, enabled=self.precision == "fp16")
        # A saved model has the configuration and tokenizer of its backbone, whose own folder may be gone.
        source = config.start if config.start and has_tokenizer(config.start) else config.backbone
        backbone = load_config(source)
        positions = max_positions(backbone)
        if config.max_length > positions:
            raise ValueError(f"max_length {config.max_length} exceeds the {positions} positions of {config.backbone!r}")
        self.tokenizer = load_tokenizer(source)
        hashes = {}  # of splits, as `run_content` takes them

        def tokenised(task: str, split: str):
            on_phase(f"reading {task}, {split}")
            one = config.task(task)
            cut = replace(one, ties=self.recipe.ties) if self.recipe.ties != "first" else one
            with self.accelerator.main_process_first():
                rows = tokenise_task(cut, self.tokenizer, config.data, split, config.max_length, config.progress)
            check_pieces(rows.input_ids, backbone.vocab_size, f"task {task!r}, split {split!r}")
            hashes[config.data, repr(one), split] = rows.content
            return rows

        parts = {name: config.splits(config.task(name)) for name in config.tasks}
        self.train_data = {task: tokenised(task, trained) for task, (trained, _) in parts.items()}
        self.dev_data = {task: {s: tokenised(task, s) for s in scored} for task, (_, scored) in parts.items()}
        for line in shortfalls(self.train_data.values(), self.tokenizer, config.max_length):
            if self.accelerator.is_main_process:
                print(f"palslib: {line}", file=bar_place()["file"])
        self.content = run_content(config, hashes)
        self.plan = make_plan(config, {task: len(data) for task, data in self.train_data.items()})
        self.loss_weights: dict[str, np.ndarray] = {}  # the weight of each class, for tasks that have such weights
        on_phase("loading the model")
        self.model = self.make_model().train()
        self.embeddings = RowGradients()
        self.optimizer = self.make_optimizer()
        # (An optimiser that accelerate wraps does nothing while any other loop of the process accumulates gradients.)
        self.wrapped = self.accelerator.prepare(self.model)
        self.step, self.tokens, self.spent = 0, 0, {"train": 0.0, "evaluate": 0.0}
        self.losses: list[float] = []
        self.latest: dict[str, float] = {}  # the last loss of each task
        self.pending: list[torch.Tensor] = []  # losses not yet read from the device
        self.history: list[dict] = []
        self.memory = EpisodicMemory(self.plan, config.memory) if config.memory else None
        if config.memory:  # ValueError before the first step, if there are no such parameters
            constrained_parameters(self.model, config.memory_over)
        self.check_folder: Callable[[], None] = lambda: None  # raises InUse where the folder was deleted
        self.kept: dict[str, str] = {}  # the digests of the weights that were kept: `best`, `last`
        self.saved = -1  # the step of the last checkpoint
        self.notes: list[str] = []  # for the record: damaged checkpoints, other conditions

    def make_model(self) -> torch.nn.Module:
        """The model before the first step, with this run's options."""
        config, self.method = self.config, self.config.resolved_method()
        self.label = self.method.label  # what is trained, in words, for the progress bar
        tasks = [data.task.balanced(data.labels) for data in self.train_data.values()]
        self.loss_weights = {task.name: np.array(task.loss_weights) for task in tasks if task.class_weights}
        model = model_before(config, tasks)
        model.head_dropout, model.max_length = config.head_dropout, config.max_length
        before = {task: model.max_lengths.pop(task, config.max_length) for task in config.tasks}
        other = {task: length for task, length in before.items() if length != config.max_length}
        say((f"{t} had max_length={n} before, now {config.max_length}" for t, n in other.items()), self.folder)
        model.recomputes = config.gradient_checkpointing
        # Sparse only where nothing but our clipping and `densify` comes between the backward pass and the update.
        # On a GPU a sparse gradient waits for the device, to count its rows, and a dense one costs little.
        alone = self.accelerator.distributed_type == DistributedType.NO and self.recipe.inactive == "untouched"
        model.sparse_embeddings = alone and self.accelerator.device.type == "cpu"
        return model

    def make_optimizer(self) -> torch.optim.Optimizer:
        """The optimiser of the model's parameters; each group has its `multiple` of the learning rate."""
        return make_optimizer(self.model, self.config, self.recipe)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The trained parameters, in the order in which the gradient's norm is summed."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def loss(self, task: str, batch: dict) -> torch.Tensor:
        """The mean loss of a batch of one task, times the task's factor."""
        return self.wrapped(task=task, **batch).loss * self.config.task_weights.get(task, 1)

    def weight(self, task: str, rows: np.ndarray) -> float:
        """How much rows count in a mean loss: their number, or the sum of their classes' weights."""
        weights = self.loss_weights.get(task)
        return len(rows) if weights is None else float(weights[self.train_data[task].labels[rows]].sum())

    def batches(self, step: int) -> tuple[np.ndarray, list[tuple[dict, float]]]:
        """The rows of a step, and this process's micro-batches of them, each with its weight in the step's loss."""
        config, task, rows = self.config, self.plan.tasks[step], self.plan.examples(step)
        width = config.max_length if self.recipe.padding == "max_length" else None
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        mine, parts = np.array_split(rows, world)[rank], []
        for some in np.array_split(mine, config.micro_batches):
            weight = self.weight(task, some) * world / self.weight(task, rows)  # the part's share in the mean
            some = some if len(some) else rows[:1]  # with weight 0, as every process has to run every backward pass
            parts.append((self.train_data[task].batch(some, width, self.accelerator.device), weight))
        return rows, parts

    def train_step(self) -> None:
        """One update of the model on one task's batch."""
        config, accelerator, step, task = self.config, self.accelerator, self.step, self.plan.tasks[self.step]
        rows, batches = self.batches(step)
        self.tokens += int(self.train_data[task].lengths[rows].sum())
        total = torch.zeros((), device=accelerator.device)
        # Dropout too is a function of the step, so resuming needs no random state.
        seed, foreign = seed_from(config.seed, step, accelerator.process_index), bool(config.own_method)
        with own_draws(seed, accelerator.device, foreign):
            for batch, weight in batches:
                with autocast(self.precision, accelerator.device):
                    loss = self.loss(task, batch) * weight
                self.scaler.scale(loss).backward()  # accelerate's would divide by steps set elsewhere in the process
                total += loss.detach()
            if self.memory:
                self.memory.constrain(self, task)
        self.scaler.unscale_(self.optimizer)
        if self.recipe.clip == "global":
            clip_gradients(self.parameters, config.clip)
        self.embeddings.densify(self.parameters)
        if self.recipe.step_counter == "global":
            factor = rate_factor(step, config.steps, config.warmup, self.recipe.decay)
            for group in self.optimizer.param_groups:
                group["lr"] = config.learning_rate * group["multiple"] * factor
        self.scaler.step(self.optimizer)  # fp16: does nothing if a gradient is not finite; the scale is then halved
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=self.recipe.inactive == "untouched")
        if self.memory:
            self.memory.store(task, rows)
        self.pending.append(total)
        self.step += 1

    def read_losses(self) -> None:
        """Reads the latest losses, averaged over processes. Raises FloatingPointError for one that is not finite."""
        if not self.pending:
            return
        new = self.accelerator.reduce(torch.stack(self.pending), "mean").tolist()
        first, self.pending = len(self.losses), []
        self.losses += new
        for step, loss in enumerate(new, first):
            if not math.isfinite(loss):
                self.stop(f"the loss is {loss}", step)
        by_task = dict(zip(self.plan.tasks[first : self.step], new, strict=True))
        self.latest |= by_task
        log(self.accelerator, {f"loss/{task}": loss for task, loss in by_task.items()}, self.step)

    def stop(self, what: str, step: int) -> None:
        """Raises FloatingPointError, naming step, task and the last good checkpoint."""
        kept = f"{self.folder} (step {self.saved})" if self.saved >= 0 else "none"
        raise FloatingPointError(f"{what} at step {step}, task {self.plan.tasks[step]!r}; last good checkpoint: {kept}")

    def check_weights(self) -> None:
        """Raises FloatingPointError where a weight is not finite: a finite loss can have infinite gradients."""
        if not torch.stack([p.isfinite().all() for p in self.model.parameters()]).all():  # waits for the device once
            self.stop("a weight is not finite after the update", max(self.step - 1, 0))

    def keep_model(self, name: str) -> None:
        """Saves the model in a subfolder of the run's folder; `finish` adds the card, with the scores."""
        self.check_weights()
        if self.accelerator.is_main_process:
            self.check_folder()
            save_without_card(self.model, self.folder / name)
            self.kept[name] = read_list(self.folder / name)["digest"]

    # --------------------------------------------------------------------------------------------- state, checkpoints

    def state(self) -> dict:
        """Everything that `resume` needs to go on bit for bit. The plan and dropout are functions of the step, which
        leaves the weights, the optimiser and the history."""
        state = {name: getattr(self, name) for name in _AS_THEY_ARE}
        state |= {"key": self.config.key, "config": recorded(self.config), "content": self.content}
        state |= {"under": self.conditions(), "memory": self.memory.counts() if self.memory else {}}
        # Not accelerate's save_state: its names depend on whether there is one process or several.
        parts = {"scaler": self.scaler, "model": self.model, "optimizer": self.optimizer}
        return state | {name: part.state_dict() for name, part in parts.items()}

    def resume(self, state: dict) -> None:
        """Goes on from a state of this run. Raises ValueError, saying what differs, for another run's, and where the
        weights of the best point are to be kept now and were not before, or the other way round."""
        config = self.config
        scored = any("dev_average" in point for point in state["history"])  # in pre-training none is
        kept = not scored or (state["config"]["keep"] == "best") == (config.keep == "best")
        check_same(config, self.folder, "a checkpoint", state, kept, self.content)
        now = self.conditions()
        if changed := [f"{name} {was} -> {now[name]}" for name, was in state["under"].items() if was != now[name]]:
            self.notes.append(f"resumed at step {state['step']} under other conditions: {', '.join(changed)}")
            say(self.notes[-1:], self.folder)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scaler.is_enabled() and state["scaler"]:  # none if the run went on elsewhere without fp16
            self.scaler.load_state_dict(state["scaler"])
        state["notes"] += self.notes
        for name in _AS_THEY_ARE:
            setattr(self, name, state[name])
        self.saved = self.step
        if self.memory:
            self.memory.replay(self.step, **state["memory"])
        if self.recipe.inactive == "drift":  # every tensor updated before has a gradient, zero if unused
            for p in self.optimizer.state:
                p.grad = torch.zeros_like(p)
        if self.recipe.dropout == "until evaluated" and self.history:
            self.model.eval()
        if config.keep == "best" and self.at_best:
            self.keep_model("best")  # in case the run was killed after the checkpoint, before these

    def save(self) -> None:
        """Saves a checkpoint, unless this step has one already."""
        if self.saved == self.step:
            return
        self.read_losses()
        self.check_weights()
        if self.accelerator.is_main_process:
            self.check_folder()
            checkpoints.save(self.folder, self.state())
        self.saved = self.step
        self.accelerator.wait_for_everyone()

    def load(self) -> None:
        """Resumes from the newest undamaged checkpoint in the run's folder, if there is one."""
        path, damaged = decided_by_first(lambda: checkpoints.newest(self.folder))
        state = torch.load(path, map_location="cpu", weights_only=True) if path else None
        then = f"resumed at step {state['step']}" if state else "restarted at step 0"
        self.notes += [f"{one}; {then}" for one in damaged]
        say(self.notes, self.folder)
        if state:
            self.resume(state)
        elif self.accelerator.is_main_process:
            for name in ("last", "best"):  # the weights of a run that ended here without checkpoints
                discard(self.folder / name)

    # ----------------------------------------------------------------------------------------------------- evaluation

    def evaluates(self) -> bool:
        """Whether the model is evaluated after this step; step 0 is before the first one."""
        every = self.config.evaluate_every
        if self.step == 0:
            return self.config.evaluate_first
        return self.step == self.config.steps or (every > 0 and self.step % every == 0)

    def evaluate(self) -> None:
        """Evaluates on all dev sets; keeps the predictions, and adds to the history the scores, both averages and each
        task's mean loss, times its factor, since the last evaluation."""
        self.read_losses()
        self.check_weights()
        self.on_phase(f"evaluating, after {self.step:,} of {self.config.steps:,} steps")
        predictions: Predictions = {}
        scores = self._scores(predictions)
        if self.accelerator.is_main_process:
            self.check_folder()
            with atomic_write(self.folder / PREDICTIONS) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, **predictions)
        self.accelerator.wait_for_everyone()
        if self.recipe.dropout == "until evaluated":
            self.model.eval()
        since = self.history[-1]["step"] if self.history else 0
        by_task: dict[str, list[float]] = {}
        for step, loss in enumerate(self.losses[since:], since):
            by_task.setdefault(self.plan.tasks[step], []).append(loss)
        point = {"step": self.step, "dev_average": dev_average(scores), "glue_average": glue_average(scores)}
        loss = {task: sum(losses) / len(losses) for task, losses in by_task.items()}
        if self.config.inspect and (acting := how_strongly(self.model, self.dev_data, self.precision)):
            point["acting"] = acting
        self.history.append(point | {"scores": scores, "loss": loss})
        seen = {f"dev/{task}/{metric}": value for task, by in scores.items() for metric, value in by.items()}
        log(self.accelerator, {"dev/average": point["dev_average"]} | seen, self.step)
        if self.accelerator.is_main_process and self.config.progress:
            tqdm.write(f"step {self.step}: dev average {point['dev_average']:.1f}", file=bar_place()["file"])
        if self.config.keep == "best" and self.at_best:
            if self.config.checkpoint_every:  # first, so that it has these weights too if the run is killed between
                self.save()
            self.keep_model("best")

    def conditions(self) -> dict:
        """Recorded facts outside the config that can change the last digits."""
        device = self.accelerator.device
        facts = {name: self.environment[name] for name in ("git_commit", "git_dirty", "cpu")}
        facts |= {"precision": self.precision, "torch": self.environment["packages"]["torch"]}
        facts["device"] = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        return facts | {"threads": torch.get_num_threads(), "processes": self.accelerator.num_processes}

    def finish(self) -> None:
        """Keeps the weights that the config asks for, and writes the record."""
        if self.config.keep != "none":
            self.keep_model("last")
        predictions = (self.folder / PREDICTIONS).read_bytes()  # of the last evaluation
        record = make_record(self) | {"predictions": hashlib.sha256(predictions).hexdigest()}
        record |= {"weights": self.kept} if self.kept else {}
        if self.config.inspect and self.method.adapted_layers(self.model.config.num_hidden_layers):
            with switched_off(self.model):
                scores = self._scores()
            record["results"]["switched off"] = {"dev_average": dev_average(scores), "scores": scores}
        if self.accelerator.is_main_process:
            own, others = {*self.config.tasks} & {*self.config.own}, {*self.config.tasks} - {*self.config.own}
            data = [*(["own files"] if own else []), *([portable(self.config.data)] if others else [])]
            card = {"data": " and ".join(data), "steps": f"{self.step:,}"}
            for name in self.kept:
                point = self.best if name == "best" else self.history[-1]
                write_card(self.model, self.folder / name, **card, scores=point["scores"])
        self.write(record)

    def write(self, record: dict) -> None:
        """Writes the record, with which the run has finished."""
        if self.accelerator.is_main_process:
            self.check_folder()
            write_record(self.folder / "record.json", record)
            checkpoints.remove(self.folder)
        self.accelerator.wait_for_everyone()

    def _scores(self, kept: Predictions | None = None) -> Scores:
        """The scores on all dev sets, whose predictions are added to `kept`; the time is counted as evaluation."""
        began, shown = time.perf_counter(), self.config.progress and not in_notebook()  # beside the bar of the run
        scores = evaluate(self.model, self.dev_data, self.recipe, self.accelerator, self.precision, shown, kept)
        self.spent["evaluate"] += time.perf_counter() - began
        return scores

    @property
    def best(self) -> dict:
        """The history's point with the highest dev average; a NaN is never the best (ledger D3)."""
        return max(self.history, key=lambda p: -math.inf if math.isnan(p["dev_average"]) else p["dev_average"])

    @property
    def at_best(self) -> bool:
        """Whether the best point is the current step's, and not a NaN."""
        return bool(self.history) and self.best["step"] == self.step and not math.isnan(self.best["dev_average"])

    @property
    def has_given_up(self) -> bool:
        """Whether the best point is not among those of the last `patience` evaluations."""
        patience = self.config.patience
        return len(self.history) > patience > 0 and self.best not in self.history[-patience:]


def train(
    config: RunConfig,
    resume: bool = True,
    on_step: Callable[[Run], bool | None] | None = None,
    on_phase: Callable[[str], None] = lambda phase: None,
) -> Trained:
    """Trains and evaluates a model; returns the record, which is also saved as `record.json` in the run's folder. The
    trained model is `train(config).model()`.

    Args:
        resume: resume from the folder's checkpoint, or return the record of a finished run. False starts a new run in a
            new folder; nothing that was saved is overwritten.
        on_step: called with the `Run` after every step. If it returns False, a checkpoint is saved and the run stops;
            only `{"key", "status": "stopped", "step"}` is then returned. Another call resumes the run. With
            several processes, all must stop after the same step.
        on_phase: called with a description of what begins before and between the steps: reading, loading, evaluating.

    A run has one writer: raises InUse if another process works on it. On SIGTERM, Ctrl-C and Slurm's warning the run
    ends after the current step, with a checkpoint if it keeps any, and raises `signals.Stopped`, a KeyboardInterrupt.
    Raises FloatingPointError for a loss or weight that is not finite, naming step, task and last good checkpoint.
    """
    config = check_type("config", config, RunConfig, "a RunConfig, as RunConfig(steps=100)").with_steps()
    folder = as_path(config.folder) if config.folder else runs_folder() / "train" / config.name
    if not resume:
        numbered = (folder.with_name(f"{folder.name}-{n}") for n in itertools.count(1))
        folder = decided_by_first(lambda: next(path for path in numbered if not path.exists()))
    return run_in_folder(Run, config, folder, on_step, on_phase)


def run_in_folder(
    kind: type[Run],
    config: RunConfig,
    folder: Path,
    on_step: Callable[[Run], bool | None] | None,
    on_phase: Callable[[str], None] = lambda phase: None,
) -> Trained:
    """Does what `train` promises for either kind of run, `Run` or `Pretraining`. While it runs, no other process may
    write into the folder."""
    if config.start and as_path(config.start).resolve() in [(folder / name).resolve() for name in ("", "last", "best")]:
        raise ValueError(f"folder {folder}: the run would overwrite what it starts from; choose another folder")
    if record := _record(kind, config, folder):
        checkpoints.remove(folder)  # of a run that was killed when it had its record
        return Trained(record, folder)
    if config.start:
        folder_content(Path(config.start))  # raises FileNotFoundError for a folder without weights
    check_surroundings()
    with locked_by_first(folder) as check_folder:
        if record := decided_by_first(lambda: _record(kind, config, folder)):
            return Trained(record, folder)
        run = kind(config, folder, on_phase)
        run.check_folder = check_folder
        run.load()
        with StopSignals() as signals, alone(config, run.precision), tracked(run), products(run.precision):
            return _train(run, on_step, signals)


def _record(kind: type[Run], config: RunConfig, folder: Path) -> dict | None:
    """The record of a run, None if it has not finished. Raises ValueError for another run's, and for one that was made
    from other inputs."""
    if not (path := folder / "record.json").exists():
        return None
    record = read_object(path, "fields of a record")
    if ("kind" in record) == (kind is Run):  # only a record of pre-training says its kind
        raise ValueError(f"{folder} holds the record of the other command, train or pretrain: {_ELSE}")
    check_same(config, folder, "the record", record, config.has_kept(record.get("config", {}).get("keep")))
    if kind is Run:
        check_fields(path, record)
    return record


def _train(run: Run, on_step: Callable[[Run], bool | None] | None, signals: StopSignals) -> Trained:
    """Trains from the run's current step to its end."""
    config, main = run.config, run.accelerator.is_main_process
    every = config.checkpoint_every
    options = {"disable": not (main and config.progress)} | bar_place()
    bar = tqdm(total=config.steps, initial=run.step, desc=run.label, mininterval=1, **options)
    if run.step == 0 and run.evaluates() and not run.history:
        run.evaluate()
    while run.step < config.steps and not run.has_given_up:
        began = time.perf_counter()
        run.train_step()
        bar.update()
        evaluates = run.evaluates()
        saves = every and run.step % every == 0 and run.step < config.steps
        if run.step % 20 == 0 or evaluates or saves:  # this waits for the device, so it counts as training
            run.read_losses()
            bar.set_postfix_str(" ".join(f"{t} {run.latest[t]:.2f}" for t in config.tasks if t in run.latest))
        run.spent["train"] += time.perf_counter() - began
        if evaluates:
            run.evaluate()
        if saves:
            run.save()
        stop = on_step and on_step(run) is False
        if run.step < config.steps and (stop or signals.asked(run.accelerator, run.step)):
            if stop or every:
                run.save()
            bar.close()
            if not stop:
                signals.stop(f"at step {run.step} of {config.steps}", run.folder if every else None)
            return Trained({"key": config.key, "status": "stopped", "step": run.step}, run.folder, run.model)
    bar.close()
    run.finish()
    return Trained(read_object(run.folder / "record.json"), run.folder, run.model)
