"""Evaluation over whole splits, longest batches first."""

from collections.abc import Mapping

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from palslib.bert.dropout import without_dropout
from palslib.bert.encoders import check_pieces
from palslib.common.precision import autocast
from palslib.common.processes import progress_bar
from palslib.data.metrics import Scores, class_of, score
from palslib.data.tokens import TokenisedTask
from palslib.plan.recipes import Recipe
from palslib.training.accelerator import make_accelerator

Predictions = dict[str, np.ndarray]
"""`rte/validation` -> what was predicted for each row of a split: class numbers (uint8, uint16), or scores on the
task's own scale (float32)."""

EVALUATION_BATCH = 32
"""Rows per batch. Larger batches are slower on a CPU, since the lengths of their rows differ more: MiniLM in bf16 took
15 % longer with 64 and 50 % longer with 128."""
GPU_BATCH = 512
"""Rows per batch on a GPU, which small batches leave idle."""


def predict(
    model, task: str, data: TokenisedTask, accelerator: Accelerator | None = None, precision: str = "float32", bar=None
) -> np.ndarray:
    """Logits of every row, (N, outputs), in the rows' order.

    Batches have rows of similar length, the longest first, so that a lack of memory shows at once. Several processes
    share the batches, and each returns all logits. Dropout is off, and the model's training mode is restored
    afterwards. `bar`: a progress bar that counts rows.
    """
    check_pieces(data.input_ids, model.config.vocab_size, f"task {task!r}")
    accelerator = accelerator or make_accelerator()
    rank, world = accelerator.process_index, accelerator.num_processes
    order, device = np.argsort(-data.lengths, kind="stable"), next(model.parameters()).device
    size = EVALUATION_BATCH if device.type == "cpu" else GPU_BATCH
    batches = [order[i : i + size] for i in range(0, len(order), size)]
    outputs: list[torch.Tensor] = []  # kept on the device, and fetched once
    with without_dropout(model), torch.inference_mode(), autocast(precision, device):
        for rows in batches[rank::world]:
            outputs.append(model(task=task, rows=data.batch(rows, device=device)["rows"]).logits)
            if bar is not None:
                bar.update(min(len(rows) * world, bar.total - bar.n))
    mine = [(np.concatenate(batches[rank::world]), torch.cat(outputs).cpu().numpy())] if outputs else []
    parts = gather_object(mine)
    logits = np.empty((len(data), parts[0][1].shape[1]), dtype=np.float32)
    for rows, values in parts:
        logits[rows] = values
    return logits


def evaluate(
    model,
    splits: Mapping[str, Mapping[str, TokenisedTask]],
    recipe: Recipe | None = None,
    accelerator: Accelerator | None = None,
    precision: str = "float32",
    progress: bool = False,
    predictions: Predictions | None = None,
) -> Scores:
    """Every task's metrics in percent over its whole dev split.

    Args:
        splits: task -> split -> its rows, from `data.tokens.tokenise_task`. The first split's scores, by which models
            are compared, have the metric's name; the others' also name the split: `accuracy (test)`, and `accuracy_mm`
            for MNLI's mismatched rows.
        recipe: decides whether metrics are computed as in the released code (ledger D3, D13).
        precision: `float32` (in TF32 where the process is set to it), `bf16` or `fp16`.
        predictions: if given, the predictions are added to it.
    """
    recipe = recipe or Recipe()
    released = recipe.metrics == "released"
    scores: Scores = {}
    rows = sum(len(data) for by_split in splits.values() for data in by_split.values())
    with progress_bar(None, "evaluation", progress, total=rows, unit=" rows") as bar:
        for name, by_split in splits.items():
            scores[name] = {}
            for split, data in by_split.items():
                task, suffix = data.task, f" ({split})" if scores[name] else ""
                if name == "mnli" and split.endswith("mismatched"):
                    suffix = "_mm"
                    if released:
                        continue
                logits, labels = predict(model, name, data, accelerator, precision, bar), data.labels
                if task.is_regression:
                    clipped = released and task.head != "cosine"  # this head gives 0 to 5 itself
                    logits = (logits.clip(0, 1) if clipped else logits) * task.scale
                    labels = labels * task.scale
                if predictions is not None:
                    least = np.min_scalar_type(max(len(task.labels) - 1, 1))
                    predicted = logits[:, 0] if task.is_regression else class_of(logits).astype(least)
                    predictions[f"{name}/{split}"] = predicted
                values = score(task, labels, logits, by_batches=recipe.correlations == "batches of 8")
                kept = list(values)[:1] if released else values
                scores[name] |= {metric + suffix: values[metric] for metric in kept}
    return scores
