"""Prediction of labels and scores for texts, for several tasks in one pass (`MultiTaskModel.forward_many`)."""

import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain

import pandas as pd
import torch

from palslib.bert.dropout import without_dropout
from palslib.bert.encoders import check_pieces, max_positions
from palslib.bert.rows import Rows
from palslib.common.names import check_least, listed, shown
from palslib.common.processes import progress_bar
from palslib.data.sources import as_frame, is_text
from palslib.data.tasks import Task
from palslib.data.tokens import word_pieces

Text = str | Sequence[str] | Mapping[str, str]
"""One text, a pair of texts, or a dict with a task's texts by their names (`{"premise": ..., "hypothesis": ...}`)."""

_ONE_AT_A_TIME = threading.Lock()
"""Held while a model predicts: it is in eval mode then, and its tokenizer truncates, which threads would undo."""


def _rows(texts) -> tuple[list, bool]:
    """The rows that a caller gives, each a text, a pair or a dict, and whether this is one row by itself."""
    of_columns = isinstance(texts, Mapping) and not any(isinstance(value, str) for value in texts.values())
    if isinstance(texts, (str, tuple, Mapping)) and not of_columns:
        return [texts], True
    if of_columns or hasattr(texts, "columns"):  # a table of pandas, polars, pyarrow
        return as_frame(texts).to_dict("records"), False
    return texts.tolist() if hasattr(texts, "tolist") else list(texts), False  # arrays and Series


def _texts_of(row, task: Task, where: str) -> tuple[str, ...]:
    """The texts of a row for a task. Raises ValueError, naming the row, where they are not what the task takes."""
    forms = {1: "one text", 2: "a pair"}
    takes = f"{where}: task {task.name!r} takes {forms[len(task.texts)]} ({', '.join(task.texts)})"
    if isinstance(row, Mapping):
        if lacking := [name for name in task.texts if name not in row]:
            raise ValueError(f"{takes}; there is no {lacking[0]!r} in {shown(list(row))}")
        row = [row[name] for name in task.texts]
    texts = tuple(row) if isinstance(row, (list, tuple)) else (row,)
    if len(texts) != len(task.texts):
        form = forms.get(len(texts), shown(row)) if all(map(is_text, texts)) else shown(row)
        raise ValueError(f"{takes}, not {form}")
    if not all(map(is_text, texts)):
        raise ValueError(f"{where}: {shown(row)} is not text without NUL and half characters")
    return texts


def _requests(model: torch.nn.Module, texts, tasks: str | Sequence) -> tuple[list[tuple], list[list[str]]]:
    """The texts of each row as a tuple, and the names of its tasks. Raises ValueError where they do not fit."""
    if isinstance(texts, Set) or isinstance(tasks, Set):
        raise ValueError("texts and tasks must be in an order: give lists, not sets")
    rows, alone = _rows(texts)
    if not rows:
        raise ValueError("no texts to predict: the list is empty")
    tasks = [tasks] if alone else [tasks] * len(rows) if isinstance(tasks, str) else list(tasks)
    if len(rows) != len(tasks):
        raise ValueError(
            f"{len(rows)} texts, but tasks for {len(tasks)}: a list of texts needs one entry of tasks for each text "
            "(a name, or a list of names), or one name for all; a single text, not in a list, can have several names"
        )
    names = [[wanted] if isinstance(wanted, str) else list(wanted) for wanted in tasks]
    pairs = []
    for i, (row, wanted) in enumerate(zip(rows, names, strict=True)):
        where = f"row {i} (the first is 0)"
        by_task = {task.name: _texts_of(row, task, where) for task in map(model._known, wanted)}
        if len(set(by_task.values())) != 1:
            raise ValueError(f"{where}: its tasks, {wanted}, must be one or more that read the same texts of it")
        pairs.append(by_task[wanted[0]])
    if empty := [i for i, texts_of_row in enumerate(pairs) if not all(text.strip() for text in texts_of_row)]:
        advice = "rows with an empty text get a prediction, but it means little (the first row is 0)"
        warnings.warn(f"{advice}: {listed(empty)}", stacklevel=3)
    return pairs, names


def predict(
    model: torch.nn.Module,
    texts: Text | Iterable[Text] | pd.DataFrame,
    tasks: str | Sequence[str | Sequence[str]],
    max_length: int | None = None,
    batch_size: int = 64,
    progress: bool = False,
) -> pd.DataFrame:
    """A table of labels and probabilities, or scores, for several tasks; the tasks' rows share one pass through BERT.

    Args:
        texts: one text (a string, a tuple of two, or a dict by the names in `Task.texts`) for all the `tasks`; or a
            list or generator of these, a DataFrame, a `datasets.Dataset` or a dict of columns. Each row then has
            its own entry in `tasks`: a name or a list of names (a single name is for all rows).
        batch_size: texts in one pass.
        max_length: the length in word pieces to which rows are truncated; None: the one that each task was trained
            with.
        progress: shows a progress bar.

    Returns a row for each text and task, in the texts' order: `row`, `task`, `label` (None for a score), `score`
    (the label's probability, or the score on the task's scale), `probabilities` (in the order of the task's labels).
    Dropout is off, and the model's training mode is restored afterwards. Raises ValueError for an unknown task,
    a pair for a task of one text and the reverse, lists of different lengths, and anything that is not a text. An empty
    text, as found in data sets too, is predicted with a warning.
    """
    pairs, names = _requests(model, texts, tasks)
    check_least(1, batch_size=batch_size)
    check_least(8, max_length=max_length)  # as in `RunConfig`: special tokens alone take up to four word pieces
    tokenizer, longest = model.tokenizer, max_positions(model.config)
    asked = [(i, name) for i, wanted in enumerate(names) for name in wanted]
    # (row, task) -> what its head reads: a text, a pair, or each text of a pair by itself; and how it is cut
    sequences, outputs = {}, {}
    for i, name in asked:
        task = model.tasks[name]
        cut = min(max_length or model.length(name), longest), task.ties
        sequences[i, name] = [((text,), cut) for text in pairs[i]] if task.apart else [(pairs[i], cut)]
    order = sorted(range(len(pairs)), key=lambda i: -sum(map(len, pairs[i])))  # rows of similar length together
    with _ONE_AT_A_TIME, without_dropout(model), torch.inference_mode():
        for start in progress_bar(range(0, len(order), batch_size), "predictions", progress, unit=" batches"):
            some = order[start : start + batch_size]
            outputs |= _predict_batch(model, {(i, t): sequences[i, t] for i in some for t in names[i]}, tokenizer)
    answers = [(i, name, *_answer(model.tasks[name], outputs[i, name])) for i, name in asked]
    table = pd.DataFrame(answers, columns=["row", "task", "label", "score", "probabilities"], dtype=object)
    return table.astype({"row": int, "task": str, "score": float})  # a score's label stays None, also among others


def _predict_batch(model: torch.nn.Module, batch: dict[tuple, list], tokenizer) -> dict[tuple, torch.Tensor]:
    """The logits of each (row, task) of a batch, from its sequences."""
    sequences, alike, pieces = list(dict.fromkeys(chain.from_iterable(batch.values()))), {}, {}
    for texts, cut in sequences:
        alike.setdefault((len(texts), cut), []).append((texts, cut))
    for (_, cut), some in alike.items():  # which are tokenised together
        columns = [list(column) for column in zip(*(texts for texts, _ in some), strict=True)]
        ids, types, _ = word_pieces(columns, tokenizer, *cut)
        pieces |= zip(some, zip(ids, types, strict=True), strict=True)
    ids, types = zip(*(pieces[one] for one in sequences), strict=True)
    flat = [torch.tensor([*chain.from_iterable(rows)]) for rows in (ids, types)]
    check_pieces(flat[0], model.config.vocab_size, "the tokenizer")
    packed = Rows.pack(*flat, list(map(len, ids)), model.device)
    indices, by_task = {one: i for i, one in enumerate(sequences)}, {}
    for (_, task), own in batch.items():
        by_task.setdefault(task, []).append([indices[one] for one in own])
    rows = {task: [*chain(*zip(*own, strict=True))] for task, own in by_task.items()}  # first texts, then second texts
    every = [*range(len(sequences))]
    logits = model.forward_many({task: None if own == every else own for task, own in rows.items()}, rows=packed)
    of_rows = {task: iter(values.cpu()) for task, values in logits.items()}
    return {(i, task): next(of_rows[task]) for i, task in batch}


def _answer(task: Task, logits: torch.Tensor) -> tuple[str | None, float, tuple[float, ...]]:
    """Label, score and probabilities from the logits (outputs,) of one row."""
    if task.is_regression:
        return None, logits.item() * task.scale, ()
    if task.num_outputs == 1:
        logits = torch.stack([logits.new_zeros(()), logits[0]])  # the softmax of (0, x) is (σ(-x), σ(x))
    p = logits.softmax(0)
    return task.labels[p.argmax()], p.max().item(), tuple(p.tolist())
