"""Training, as the algorithm reads; `python -m palslib.training CONFIG.json` is the same from a terminal.

For each step: task and examples from the plan -> loss -> backward -> clip -> update -> schedule (sections 3.3, 3.4).
The order of training and its dropout depend on (config, step) alone, so a killed run that starts again at its last
checkpoint ends with the weights it would have had, and one process or several train the same model.
"""

import hashlib
import itertools
import json
import math
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from tqdm import tqdm

from palslib.backbones import load_tokenizer
from palslib.config import RunConfig
from palslib.counting import count_parameters
from palslib.evaluation import evaluate
from palslib.metrics import dev_average, glue_average
from palslib.model import MultiTaskModel
from palslib.optimizer import make_optimizer
from palslib.paths import replace_folder, runs_folder, write_text
from palslib.recipes import RELEASED_SIZES, rate_factor
from palslib.records import environment, write_record
from palslib.sampling import TrainingPlan, official_sizes
from palslib.tasks import TASKS
from palslib.tokens import tokenise_task


class Run:
    """One training run: what is fixed before the first step, and the steps."""

    def __init__(self, config: RunConfig, folder: Path):
        self.folder, self.environment = folder, environment()
        self.config, self.recipe, self.method = config, config.resolved_recipe(), config.resolved_method()
        self.accelerator = Accelerator(mixed_precision="bf16" if precision_of(config) == "bf16" else "no")
        if config.batch_size % (self.accelerator.num_processes * config.micro_batches):
            raise ValueError(
                f"batch_size {config.batch_size} is not divisible by {self.accelerator.num_processes} processes "
                f"x {config.micro_batches} micro-batches"
            )
        tokenizer = load_tokenizer(config.backbone)

        def tokenised(task: str, split: str):
            with self.accelerator.main_process_first():
                return tokenise_task(task, tokenizer, config.data, split, config.max_length)

        self.train_data = {task: tokenised(task, "train") for task in config.tasks}
        self.dev_data = {t: {s: tokenised(t, s) for s in TASKS[t].evaluation} for t in config.tasks}
        self.plan = make_plan(config, {task: len(data) for task, data in self.train_data.items()})
        self.model = MultiTaskModel.from_backbone(config.backbone, self.method, config.tasks, config.seed)
        if config.gradient_checkpointing:
            self.model.backbone.gradient_checkpointing_enable({"use_reentrant": False})
        self.model.train()
        self.optimizer = make_optimizer(self.model, config, self.recipe)
        self.wrapped, self.optimizer = self.accelerator.prepare(self.model, self.optimizer)
        self.step, self.tokens, self.spent = 0, 0, {"train": 0.0, "evaluate": 0.0}
        self.losses: list[float] = []
        self.pending: list[torch.Tensor] = []  # losses not yet read from the device
        self.history: list[dict] = []

    def train_step(self) -> None:
        """One update of the model on one task's batch."""
        config, accelerator, step = self.config, self.accelerator, self.step
        task, rows = self.plan.tasks[step], self.plan.examples(step)
        width = config.max_length if self.recipe.padding == "max_length" else None
        multiple = 8 if accelerator.device.type == "cuda" else 1
        rank, world = accelerator.process_index, accelerator.num_processes
        mine = rows[rank * len(rows) // world : (rank + 1) * len(rows) // world]
        # Dropout too is a function of the step, so resuming needs no random state.
        set_seed(int.from_bytes(hashlib.sha256(f"{config.seed} {step} {rank}".encode()).digest()[:4], "little"))
        total = torch.zeros((), device=accelerator.device)
        for part in range(config.micro_batches):
            some = mine[part * len(mine) // config.micro_batches : (part + 1) * len(mine) // config.micro_batches]
            batch = {k: v.to(accelerator.device) for k, v in self.train_data[task].batch(some, width, multiple).items()}
            with accelerator.autocast():
                loss = self.wrapped(task=task, **batch).loss * (len(some) / len(mine))
            accelerator.backward(loss)
            total += loss.detach()
            self.tokens += int(self.train_data[task].lengths[some].sum()) * world
        if self.recipe.clip == "global":
            accelerator.clip_grad_norm_([p for g in self.optimizer.param_groups for p in g["params"]], config.clip)
        if self.recipe.step_counter == "global":
            for group in self.optimizer.param_groups:
                group["lr"] = config.learning_rate * rate_factor(step, config.steps, config.warmup, self.recipe.decay)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self.recipe.inactive == "untouched")
        self.pending.append(total)
        self.step += 1

    def read_losses(self) -> None:
        """Brings the latest losses, averaged over processes, from the device. Raises FloatingPointError for a NaN."""
        if not self.pending:
            return
        self.losses += self.accelerator.reduce(torch.stack(self.pending), "mean").tolist()
        self.pending = []
        bad = next((step for step, loss in enumerate(self.losses) if not math.isfinite(loss)), None)
        if bad is not None:
            good = self.folder / "checkpoint" / "run.json"
            kept = f"{good.parent} (step {json.loads(good.read_text())['step']})" if good.exists() else "none"
            raise FloatingPointError(
                f"the loss is {self.losses[bad]} at step {bad}, task {self.plan.tasks[bad]!r}; last good checkpoint: {kept}"
            )

    def evaluate(self) -> None:
        """Adds to the history: scores on all dev sets, both averages, mean training loss by task since the last time."""
        self.read_losses()
        began = time.perf_counter()
        scores = evaluate(self.model, self.dev_data, self.recipe, self.accelerator)
        if self.recipe.dropout == "until evaluated":
            self.model.eval()
        self.spent["evaluate"] += time.perf_counter() - began
        since = self.history[-1]["step"] if self.history else 0
        by_task: dict[str, list[float]] = {}
        for step, loss in enumerate(self.losses[since:], since):
            by_task.setdefault(self.plan.tasks[step], []).append(loss)
        point = {"step": self.step, "dev_average": dev_average(scores), "glue_average": glue_average(scores)}
        loss = {task: sum(losses) / len(losses) for task, losses in by_task.items()}
        self.history.append(point | {"scores": scores, "loss": loss})
        if self.config.keep == "best" and self.best is self.history[-1]:
            self.keep_model("best")

    @property
    def best(self) -> dict:
        """The history's point with the highest dev average; a NaN is never the best (ledger D3)."""
        return max(self.history, key=lambda p: -math.inf if math.isnan(p["dev_average"]) else p["dev_average"])

    def save_checkpoint(self) -> None:
        """Model, optimiser and history under a temporary name, then renamed."""
        self.read_losses()
        temporary = self.folder / "checkpoint.tmp"
        self.accelerator.save_state(str(temporary), safe_serialization=True)
        if self.accelerator.is_main_process:
            state = {"step": self.step, "losses": self.losses, "tokens": self.tokens, "spent": self.spent}
            write_text(temporary / "run.json", json.dumps(state | {"history": self.history, "key": self.config.key}))
            replace_folder(temporary, self.folder / "checkpoint")
        self.accelerator.wait_for_everyone()

    def load_checkpoint(self) -> bool:
        """Goes on from the folder's checkpoint, if it has one of this very config."""
        about = next(
            (p for n in ("checkpoint", "checkpoint.old") if (p := self.folder / n / "run.json").exists()), None
        )
        if about is None:
            return False
        state = json.loads(about.read_text())
        if state["key"] != self.config.key:
            raise ValueError(f"{self.folder} holds a checkpoint of another config; choose another folder")
        self.accelerator.load_state(str(about.parent))
        self.step, self.losses, self.tokens = state["step"], state["losses"], state["tokens"]
        self.spent, self.history = state["spent"], state["history"]
        if self.recipe.dropout == "until evaluated" and self.history:
            self.model.eval()
        return True

    def keep_model(self, name: str) -> None:
        """Saves the model under the run's folder."""
        if self.accelerator.is_main_process:
            self.model.save_pretrained(self.folder / name)


def precision_of(config: RunConfig) -> str:
    """`auto` resolved: bf16 where the device has matrix units or instructions for it."""
    if config.precision != "auto":
        return config.precision
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    fast = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return "bf16" if fast else "float32"


def make_plan(config: RunConfig, sizes: dict[str, int]) -> TrainingPlan:
    """The order of training that a config asks for, on data of these sizes."""
    recipe = config.resolved_recipe()
    sampling_sizes = {
        "loaded": lambda: None,
        "official": lambda: official_sizes(config.tasks),
        "released": lambda: {task: RELEASED_SIZES[task] for task in config.tasks},
    }[recipe.sizes]()
    return TrainingPlan(
        sizes,
        config.schedule,
        config.steps,
        config.batch_size,
        config.seed,
        config.epochs,
        sampling_sizes,
        config.alpha,
        recipe.round_robin_advances,
        recipe.order == "reshuffled",
    )


def make_record(run: Run) -> dict:
    """What a finished run leaves: config, results, counts, sampling, versions, device and time."""
    config, plan = run.config, run.plan
    count = count_parameters(run.method, run.model.config, len(config.tasks))
    exact = count_parameters(run.method, run.model.config, len(config.tasks), exact=True)
    device = run.accelerator.device
    about = {k: v for k, v in asdict(config).items() if k not in ("folder", "progress")}
    if config.data not in ("synthetic", "glue"):
        about["data"] = Path(config.data).name
    return {
        "key": config.key,
        "status": "finished",
        "config": about,
        "method": asdict(run.method),
        "recipe": asdict(run.recipe),
        "counts": {"per_task": count.per_task, "added": count.added, "ratio": count.ratio, "exact_added": exact.added},
        "results": {"last": run.history[-1], "best": run.best},
        "history": run.history,
        "data": {
            "train": plan.sizes,
            "dev": {t: {s: len(d) for s, d in splits.items()} for t, splits in run.dev_data.items()},
            "cut": {task: data.cut for task, data in run.train_data.items()},
        },
        "sampling": {"expected": plan.expected_steps(), "drawn": plan.drawn_steps(), "passes": plan.passes()},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "processes": run.accelerator.num_processes,
        "precision": precision_of(config),
        "seconds": run.spent | {"total": sum(run.spent.values())},
        "tokens_per_second": run.tokens / max(run.spent["train"], 1e-9),
        "environment": run.environment,
    }


def train(config: RunConfig, resume: bool = True) -> dict:
    """Trains and evaluates; returns the record, which also lies in the run's folder as `record.json`.

    Args:
        resume: go on from the folder's checkpoint, or give back the record of a run that had finished. False starts
            anew in a folder of its own; nothing that was saved is overwritten.

    Raises FloatingPointError for a loss that is not finite, naming step, task and the last good checkpoint.
    """
    folder = Path(config.folder) if config.folder else runs_folder() / "train" / config.name
    if not resume:
        folder = next(f for n in itertools.count(1) if not (f := folder.with_name(f"{folder.name}-{n}")).exists())
    if (folder / "record.json").exists():
        record = json.loads((folder / "record.json").read_text())
        if record["key"] != config.key:
            raise ValueError(f"{folder} holds the record of another config; choose another folder")
        if record["status"] == "finished":
            return record
    run = Run(config, folder)
    run.load_checkpoint()
    main = run.accelerator.is_main_process
    shown = main and config.progress
    bar = tqdm(total=config.steps, initial=run.step, desc=run.method.label, disable=not shown, mininterval=1)
    latest: dict[str, float] = {}
    began = time.perf_counter()
    while run.step < config.steps:
        run.train_step()
        bar.update()
        if run.step % 20 == 0 or run.step == config.steps:
            first = len(run.losses)
            run.read_losses()
            latest.update(zip(run.plan.tasks[first : run.step], run.losses[first:], strict=True))
            bar.set_postfix_str(" ".join(f"{t} {latest[t]:.2f}" for t in config.tasks if t in latest))
        every = config.evaluate_every
        if run.step == config.steps or (every and run.step % every == 0):
            run.spent["train"] += time.perf_counter() - began
            run.evaluate()
            if shown:
                bar.write(f"step {run.step}: dev average {run.history[-1]['dev_average']:.1f}")
            began = time.perf_counter()
        every = config.checkpoint_every
        if every and run.step % every == 0 and run.step < config.steps:
            run.spent["train"] += time.perf_counter() - began
            run.save_checkpoint()
            began = time.perf_counter()
    bar.close()
    if config.keep != "none":
        run.keep_model("last")
    record = make_record(run)
    if main:
        write_record(folder / "record.json", record)
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    run.accelerator.wait_for_everyone()
    return record


def main(arguments: list[str]) -> int:
    """`python -m palslib.training CONFIG.json`: notebook 04's run, without the notebook."""
    if len(arguments) != 1:
        print("usage: python -m palslib.training CONFIG.json", file=sys.stderr)
        return 2
    record = train(RunConfig.from_file(arguments[0]))
    print(json.dumps({"key": record["key"], "dev_average": record["results"]["last"]["dev_average"]}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
