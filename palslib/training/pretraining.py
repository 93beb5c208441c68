"""Further pre-training of a backbone as a masked language model on the texts of tasks, before the tasks are trained.

`python -m palslib pretrain` takes the fields of `RunConfig`; those of methods, heads and evaluations have no effect.
The folder that it writes is a backbone: `RunConfig(backbone=FOLDER)`, `minbert:FOLDER`.

The head has BERT's transform and a decoder that is tied to the word embeddings. MiniLM comes without such a head: its
transform starts at random, so its scores before the first step mean little.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from palslib.bert.backbones import load_tokenizer, portable
from palslib.bert.encoders import max_positions
from palslib.common.files import atomic_write, remove_temporaries
from palslib.common.lock import Lock
from palslib.common.places import runs_folder
from palslib.common.precision import autocast, precision_of
from palslib.common.reading import read_object
from palslib.common.seeds import seed_from
from palslib.data.tokens import some_rows, tokenise_task
from palslib.plan.config import RunConfig, make_plan
from palslib.plan.content import exchanged_since, run_content
from palslib.plan.recipes import RECIPES, rate_factor
from palslib.records import conditions, environment
from palslib.training.accelerator import make_accelerator, one_writer, tracked
from palslib.training.checkpoints import Checkpoints, changed_conditions, record_or_room, say
from palslib.training.masked_language_model import HEAD, dev_scores, masked_language_model, predict_chosen
from palslib.training.signals import StopSignals

DEV_ROWS = 500  # of each task, on which the model is measured
_WITHOUT = ("micro_batches", "gradient_checkpointing", "memory", "start")
_WITHOUT_OF_RECIPE = ("dropout", "bias_correction", "epsilon", "clip", "step_counter", "inactive", "padding")


def pretrain(config: RunConfig, on_step: Callable[[int], bool | None] | None = None) -> dict:
    """Trains, writes the backbone's folder, and returns its record.json with the measurements before and after.

    For a finished folder only the record is returned; a killed run resumes from its checkpoint, which is beside the
    folder. `on_step` is called with the number of steps done; if it returns False the run is saved and stops.
    Locks, signals and exchanged inputs are handled as in `training.loop.train`.
    Raises ValueError for a folder with anything else in it, FloatingPointError for a loss that is not finite.
    """
    _check(config)
    config = config.with_steps()
    folder = Path(config.folder) if config.folder else runs_folder() / "pretraining" / config.key
    record, changed = _record(config, folder)
    if record and not changed:
        return record
    beside = folder.with_name(folder.name + ".tracked")  # the folder itself is written at the end, whole
    if (accelerator := make_accelerator(config.log_with, beside)).num_processes > 1:
        raise ValueError("further pre-training runs in one process")
    with one_writer(folder, beside=True) as lock:
        record, notes = record_or_room(*_record(config, folder), [folder], folder)
        if record:
            return record
        with StopSignals() as signals, tracked(accelerator, config, folder):
            return _pretrain(accelerator, config, folder, lock, signals, on_step, notes)


def _check(config: RunConfig) -> None:
    """Raises ValueError for a setting of training that has no effect here and does not have its default value."""
    asked = {name: getattr(config, name) for name in _WITHOUT} | asdict(config.resolved_recipe())
    usual = {name: getattr(RunConfig, name) for name in _WITHOUT} | asdict(RECIPES["paper"])
    for name in (*_WITHOUT, *_WITHOUT_OF_RECIPE):
        if asked[name] != usual[name]:
            raise ValueError(f"further pre-training has no {name}={asked[name]!r}: it takes {usual[name]!r} alone")


def _record(config: RunConfig, folder: Path) -> tuple[dict | None, list[str]]:
    """The record in a folder, None if there is no folder, and the names of inputs that have been exchanged since."""
    if not folder.exists():
        return None, []
    record = read_object(path) if (path := folder / "record.json").is_file() else {}
    if record.get("key") != config.key:
        raise ValueError(f"{folder} holds something else; choose another folder")
    return record, exchanged_since(record, config)


def _pretrain(
    accelerator: Accelerator,
    config: RunConfig,
    folder: Path,
    lock: Lock,
    signals: StopSignals,
    on_step: Callable | None,
    notes: list[str],
) -> dict:
    """The work of `pretrain`, once its folder is locked."""
    device, tokenizer, recipe = accelerator.device, load_tokenizer(config.backbone), config.resolved_recipe()
    model = masked_language_model(config.backbone, config.seed, config.weights).to(device).train()
    if config.max_length > (positions := max_positions(model.config)):
        raise ValueError(f"max_length {config.max_length} is over the {positions} of backbone {config.backbone!r}")
    train, dev = {}, {}
    for task in map(config.task, config.tasks):
        train[task.name] = tokenise_task(task, tokenizer, config.data, "train", config.max_length, config.progress)
        rows = tokenise_task(task, tokenizer, config.data, task.evaluation[0], config.max_length, config.progress)
        dev[task.name] = some_rows(rows, DEV_ROWS)
    plan = make_plan(config, {task: len(rows) for task, rows in train.items()})
    trained = [p for name, p in model.named_parameters() if not name.startswith("bert.pooler")]
    groups = [{"params": [p for p in trained if p.ndim > 1]}]
    groups += [{"params": [p for p in trained if p.ndim == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, config.learning_rate, weight_decay=config.weight_decay, fused=True)
    splits = {(rows.task.data or config.data, f"{task}/train"): rows.content for task, rows in train.items()}
    content = run_content(config, splits)
    checkpoints = Checkpoints(folder.with_name(folder.name + ".checkpoint"), config.key, content)

    def read(place: Path) -> dict:
        return torch.load(place / "state.bin", map_location="cpu", weights_only=True)

    remove_temporaries(folder)  # left if this run was killed while writing
    remove_temporaries(checkpoints.place)
    found = checkpoints.find(read)
    said = checkpoints.settle(found)
    say(said, folder)
    about, precision = environment(), precision_of(config.precision)
    now = conditions(about, precision, accelerator)
    if found.state and not found.exchanged:
        state = found.state
        said += changed_conditions(state, now, folder)
        model.load_state_dict(state.pop("model"))
        optimizer.load_state_dict(state.pop("optimizer"))
    else:
        state = {
            "key": config.key,
            "step": 0,
            "losses": [],
            "before": dev_scores(model, dev, tokenizer, config, device),
        }
    state |= {"notes": [*notes, *state.get("notes", []), *said], "under": now}

    def save() -> None:
        kept = state | {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        lock.check()
        with checkpoints.saving(state["step"]) as place:
            torch.save(kept, place / "state.bin")

    for step in tqdm(range(state["step"], config.steps), desc="masked language model", disable=not config.progress):
        task, seed = plan.tasks[step], seed_from(config.seed, step)
        torch.manual_seed(seed)  # dropout, like the masks, is a function of the step
        with autocast(precision, device):
            rows = train[task].batch(plan.examples(step), device=device)["rows"]
            logits, labels = predict_chosen(model, rows, tokenizer, seed)
        loss = cross_entropy(logits, labels, reduction="sum") / max(len(labels), 1)  # perhaps no piece was chosen
        if not loss.isfinite():
            raise FloatingPointError(f"the loss is {loss.item()} at step {step}, task {task!r}")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, config.clip)
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * rate_factor(step, config.steps, config.warmup, recipe.decay)
        optimizer.step()
        optimizer.zero_grad()
        state["step"] = step + 1
        state["losses"].append(loss.item())
        accelerator.log({f"loss/{task}": loss.item()}, step=step + 1)
        more, every = step + 1 < config.steps, config.checkpoint_every
        stop = on_step is not None and on_step(step + 1) is False and more
        asked = signals.asked(accelerator, step + 1) and more
        if stop or (every and (asked or (step + 1) % every == 0)):
            save()
        if asked:
            signals.stop(step + 1, config.steps, kept=stop or every > 0)
        if stop:
            return {"key": config.key, "status": "stopped", "step": step + 1}
    names = ("backbone", "weights", "tasks", "data", "schedule", "steps", "batch_size", "max_length")
    settings = {k: asdict(config)[k] for k in (*names, "learning_rate", "seed")}
    settings |= {k: portable(settings[k]) for k in ("backbone", "data")}
    record = {"kind": "pretraining", "key": config.key, "status": "finished", "settings": settings}
    record |= {"before": state["before"]}
    record |= {"after": dev_scores(model, dev, tokenizer, config, device), "losses": state["losses"]}
    for step, seen in ((0, record["before"]), (config.steps, record["after"])):
        accelerator.log({f"dev/{name}": seen[name] for name in ("accuracy", "loss", "perplexity")}, step=step)
    record |= {"precision": precision, "device": device.type, "environment": about}
    record |= {"content": content} | ({"notes": state["notes"]} if state["notes"] else {})
    if not all(p.isfinite().all() for p in model.parameters()):
        raise FloatingPointError("a weight is not finite after the last step")
    lock.check()
    with atomic_write(folder) as temporary:
        model.bert.save_pretrained(temporary)
        save_file({k: v.clone() for k, v in model.cls.state_dict().items()}, temporary / HEAD)
        tokenizer.save_pretrained(temporary)
        (temporary / "record.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    checkpoints.remove()
    return read_object(folder / "record.json")
