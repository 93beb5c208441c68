"""Prediction of labels and scores for texts, for several tasks in one pass (`MultiTaskModel.forward_many`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
import torch

from palslib.bert.dropout import without_dropout
from palslib.bert.encoders import max_positions
from palslib.bert.rows import Rows
from palslib.common.names import check_name
from palslib.data.tasks import Task

if TYPE_CHECKING:
    from palslib.model.multi_task import MultiTaskModel

Text = str | Sequence[str]
"""One text, or a pair of texts."""
_FORMS = {1: "one text", 2: "a pair"}

LEAST_LENGTH = 8
"""The least maximum length of a row, in a run's config too: special tokens take up to four of its word pieces."""
MAX_LENGTH = 128
"""Maximum length of a row in word pieces, unless a run or a caller sets another."""


def _columns(task: Task) -> str:
    return f"{_FORMS[len(task.texts)]} ({', '.join(task.texts)})"


def _requests(
    model: "MultiTaskModel", texts: Text | Sequence[Text], tasks: str | Sequence
) -> tuple[list[tuple], list[list[str]]]:
    """The texts of each row as a tuple, and the names of its tasks. Raises ValueError where they do not fit."""
    if isinstance(texts, (str, tuple)):  # one text or pair: all tasks on it
        texts, tasks = [texts], [tasks]
    elif isinstance(tasks, str):
        tasks = [tasks] * len(texts)
    texts, tasks = list(texts), list(tasks)
    if not texts:
        raise ValueError("no texts to predict: the list is empty")
    if len(texts) != len(tasks):
        raise ValueError(
            f"{len(texts)} texts and tasks for {len(tasks)}: a list of texts takes one entry of tasks for each text "
            "(a name, or a list of names), or one name for all; a text by itself takes a list of names"
        )
    rows = [(text,) if isinstance(text, str) or not hasattr(text, "__iter__") else tuple(text) for text in texts]
    names = [[entry] if isinstance(entry, str) else list(entry) for entry in tasks]
    for i, (row, wanted) in enumerate(zip(rows, names, strict=True)):
        if len(row) not in (1, 2) or not all(isinstance(text, str) for text in row):
            raise ValueError(f"row {i} (the first is 0): {texts[i]!r} is neither a text nor a pair of texts")
        if not wanted:
            raise ValueError(f"row {i} (the first is 0) is for no task. Valid: {', '.join(model.tasks)}")
        for task in (model.tasks[check_name("task of this model", name, model.tasks)] for name in wanted):
            if len(task.texts) != len(row):
                fit = ", ".join(t.name for t in model.tasks.values() if len(t.texts) == len(row))
                raise ValueError(
                    f"row {i} (the first is 0): task {task.name!r} takes {_columns(task)}, not {_FORMS[len(row)]}; "
                    f"this model's tasks for {_FORMS[len(row)]}: {fit or 'none'}"
                )
    return rows, names


def predict(
    model: "MultiTaskModel",
    texts: Text | Sequence[Text],
    tasks: str | Sequence[str | Sequence[str]],
    tokenizer=None,
    max_length: int | None = None,
    batch_size: int = 64,
) -> pd.DataFrame:
    """A table of labels and probabilities, or scores, of several tasks.

    Args:
        texts: one text (a string, or a tuple of two) for all the `tasks`; or a list of texts, each with its own
            entry in `tasks`, a name or a list of names (a single name is for all texts).
        tokenizer: the backbone's own if none is given.
        max_length: the length in word pieces to which rows are truncated; None: the length used in training.

    Returns a row for each text and task, texts in order: `row`, `task`, `label` (missing for a score), `score` (the
    label's probability, or the score on the task's scale), `probabilities` (in the order of the task's labels).
    Dropout is off, and the model's training mode is restored afterwards. Raises ValueError for an unknown task, no
    texts, a pair for a task of one text and the reverse, and lists of different lengths.
    """
    pairs, names = _requests(model, texts, tasks)
    tokenizer, max_length = tokenizer or model.tokenizer, model.max_length if max_length is None else max_length
    if max_length < LEAST_LENGTH or batch_size < 1:
        raise ValueError(
            f"max_length must be at least {LEAST_LENGTH} and batch_size at least 1, not {max_length} and {batch_size}"
        )
    forms, outputs = {}, {}  # (texts a row, encoded apart) -> row -> its tasks; (row, task) -> logits
    for i, wanted in enumerate(names):
        for name in wanted:
            form = (len(pairs[i]), model.tasks[name].apart)
            forms.setdefault(form, {}).setdefault(i, []).append(name)
    with without_dropout(model), torch.inference_mode():
        for (_, apart), of_row in forms.items():
            order = sorted(of_row, key=lambda i: -sum(map(len, pairs[i])))  # rows of like length together
            for start in range(0, len(order), batch_size):
                chunk = order[start : start + batch_size]
                outputs |= _predict_batch(model, chunk, pairs, of_row, apart, tokenizer, max_length)
    answers = [
        (i, name, *_answer(model.tasks[name], outputs[i, name])) for i, wanted in enumerate(names) for name in wanted
    ]
    return pd.DataFrame(answers, columns=["row", "task", "label", "score", "probabilities"])


def _predict_batch(model: "MultiTaskModel", chunk, pairs, of_row, apart, tokenizer, max_length) -> dict:
    """The logits, by (row, task), of one batch of rows, all of one form."""
    columns = [list(column) for column in zip(*(pairs[i] for i in chunk), strict=True)]
    if apart:
        columns = [columns[0] + columns[1]]
    most = min(max_length, max_positions(model.config))
    batch = tokenizer(*columns, truncation=True, max_length=most, return_token_type_ids=True)
    ids, types = (
        torch.tensor([piece for row in batch[name] for piece in row]) for name in ("input_ids", "token_type_ids")
    )
    packed = Rows.pack(ids, types, [len(row) for row in batch["input_ids"]], model.device)
    where = {}  # task -> places in the chunk
    for place, i in enumerate(chunk):
        for name in of_row[i]:
            where.setdefault(name, []).append(place)
    rows = {
        name: None if p == list(range(len(chunk))) else p + [len(chunk) + place for place in p] * apart
        for name, p in where.items()
    }
    logits = model.forward_many(rows, rows=packed)
    return {(chunk[p], t): row for t, of_task in logits.items() for p, row in zip(where[t], of_task.cpu(), strict=True)}


def _answer(task: Task, logits: torch.Tensor) -> tuple[str | None, float, tuple[float, ...]]:
    """Label, score and probabilities from the logits (outputs,) of one row."""
    if task.is_regression:
        return None, logits.item() * task.scale, ()
    if task.num_outputs == 1:
        logits = torch.stack([torch.zeros(()), logits[0]])  # the softmax of (0, x) is (σ(-x), σ(x))
    p = logits.softmax(0)
    return task.labels[p.argmax()], p.max().item(), tuple(p.tolist())
