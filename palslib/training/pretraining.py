"""Further pre-training: a backbone goes on as a masked language model on the texts of tasks, before they are trained.

`python -m palslib pretrain` takes a `RunConfig`'s fields, of which those of methods and heads play no part. The folder
that it writes is a backbone: `RunConfig(backbone=FOLDER)`, `minbert:FOLDER`.

The head has BERT's transform, and a decoder that is tied to the word embeddings. MiniLM's package has no such head: its
transform starts at random, so what is measured before the first step says little there.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from palslib.bert.backbones import load_tokenizer
from palslib.bert.encoders import max_positions
from palslib.common import atomic_write, runs_folder, seed_from
from palslib.data.tokens import some_rows, tokenise_task
from palslib.plan.config import RunConfig, make_plan
from palslib.plan.recipes import rate_factor
from palslib.records import environment
from palslib.training.accelerator import make_accelerator
from palslib.training.evaluation import autocast, precision_of
from palslib.training.masked_language_model import HEAD, masked_language_model, measure, predict_chosen

DEV_ROWS = 500  # of each task that are measured


def pretrain(config: RunConfig, on_step: Callable[[int], bool | None] | None = None) -> dict:
    """Trains, writes the backbone's folder, and returns its record.json: what was measured before and after.

    A finished folder is given back as it is, and a killed run goes on from its checkpoint, which lies beside the
    folder. `on_step` is called with the number of steps done; if it returns False the run is saved and stops.
    Raises ValueError for a folder with anything else in it, FloatingPointError for a loss that is not finite.
    """
    folder = Path(config.folder) if config.folder else runs_folder() / "pretraining" / config.key
    if folder.exists():
        record = json.loads(path.read_text()) if (path := folder / "record.json").is_file() else {}
        if record.get("key") != config.key:
            raise ValueError(f"{folder} holds something else; choose another folder")
        return record
    accelerator = make_accelerator()
    if accelerator.num_processes > 1:
        raise ValueError("further pre-training runs in one process")
    device, tokenizer = accelerator.device, load_tokenizer(config.backbone)
    model = masked_language_model(config.backbone, config.seed).to(device).train()
    if config.max_length > (positions := max_positions(model.config)):
        raise ValueError(f"max_length {config.max_length} is over the {positions} of backbone {config.backbone!r}")
    train, dev = {}, {}
    for task in config.tasks:
        train[task] = tokenise_task(task, tokenizer, config.data, "train", config.max_length)
        split = train[task].task.evaluation[0]
        dev[task] = some_rows(tokenise_task(task, tokenizer, config.data, split, config.max_length), DEV_ROWS)
    plan = make_plan(config, {task: len(rows) for task, rows in train.items()})
    trained = [p for name, p in model.named_parameters() if not name.startswith("bert.pooler")]
    groups = [{"params": [p for p in trained if p.ndim > 1]}]
    groups += [{"params": [p for p in trained if p.ndim == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, config.learning_rate, weight_decay=config.weight_decay, fused=True)
    checkpoint = folder.with_name(folder.name + ".checkpoint")
    state = {"key": config.key, "step": 0, "losses": []}
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        if state["key"] != config.key:
            raise ValueError(f"{checkpoint} is of another config; choose another folder")
        model.load_state_dict(state.pop("model"))
        optimizer.load_state_dict(state.pop("optimizer"))
    else:
        state["before"] = measure(model, dev, tokenizer, config, device)

    def save() -> None:
        with atomic_write(checkpoint) as temporary:
            torch.save(state | {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, temporary)

    for step in tqdm(range(state["step"], config.steps), desc="masked language model", disable=not config.progress):
        task, seed = plan.tasks[step], seed_from(config.seed, step)
        torch.manual_seed(seed)  # dropout, like the masks, is a function of the step
        with autocast(precision_of(config), device):
            rows = train[task].batch(plan.examples(step), device=device)["rows"]
            logits, labels = predict_chosen(model, rows, tokenizer, seed)
        loss = cross_entropy(logits, labels, reduction="sum") / max(len(labels), 1)  # none may have been chosen
        if not loss.isfinite():
            raise FloatingPointError(f"the loss is {loss.item()} at step {step}, task {task!r}")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, config.clip)
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * rate_factor(step, config.steps, config.warmup)
        optimizer.step()
        optimizer.zero_grad()
        state["step"], state["losses"] = step + 1, [*state["losses"], loss.item()]
        stop = on_step is not None and on_step(step + 1) is False and step + 1 < config.steps
        if stop or (config.checkpoint_every and (step + 1) % config.checkpoint_every == 0):
            save()
        if stop:
            return {"key": config.key, "status": "stopped", "step": step + 1}
    names = ("backbone", "tasks", "data", "schedule", "steps", "batch_size", "max_length", "learning_rate", "seed")
    settings = {k: asdict(config)[k] for k in names}
    settings |= {k: Path(settings[k]).name for k in ("backbone", "data")}  # no path of the machine
    record = {"key": config.key, "status": "finished", "settings": settings, "before": state["before"]}
    record |= {"after": measure(model, dev, tokenizer, config, device), "losses": state["losses"]}
    record |= {"precision": precision_of(config), "device": device.type, "environment": environment()}
    with atomic_write(folder) as temporary:
        model.bert.save_pretrained(temporary)
        save_file({k: v.clone() for k, v in model.cls.state_dict().items()}, temporary / HEAD)
        tokenizer.save_pretrained(temporary)
        (temporary / "record.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    checkpoint.unlink(missing_ok=True)
    return json.loads((folder / "record.json").read_text())
