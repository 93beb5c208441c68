"""Predictions for the rows of files, and scores on files and splits: `palslib predict` and `palslib evaluate`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from palslib.common.names import check_name
from palslib.data.metrics import score
from palslib.data.sources import SUFFIXES, check_texts, ending, locate, read_table
from palslib.data.tasks import BY_CLASS, OF_CLASSES, Task, load_rows

_READING = ("separator", "quoted", "encoding", "label", "skip_unlabelled")


def _task(model: torch.nn.Module, name: str | None, file: str | Path, text: str | Sequence[str], reading: dict) -> Task:
    """A task of the model, set to read its rows from this file."""
    if name is None and len(model.tasks) != 1:
        raise ValueError(f"the model has {len(model.tasks)} tasks: name one (task). Valid: {', '.join(model.tasks)}")
    task = model._known(next(iter(model.tasks)) if name is None else name)
    changes = {"texts": (text,) if isinstance(text, str) else tuple(text)} if text else {}
    trained_on = ending(task.files or task.data)  # files with this ending are read like those of training
    if ending(file) in SUFFIXES and ending(file) != trained_on:
        changes |= {"separator": SUFFIXES[ending(file)], "quoted": True, "encoding": "utf-8"}
    changes |= {check_name("option", key, _READING): value for key, value in reading.items() if value is not None}
    if changes.get("skip_unlabelled") is True and task.skip_unlabelled:
        del changes["skip_unlabelled"]  # the task knows by which words a label is missing
    return replace(task, **changes, data=str(file))


def predict_file(
    model: torch.nn.Module,
    file: str | Path,
    task: str | None = None,
    text: str | Sequence[str] = (),
    progress: bool = False,
    **reading,
) -> pd.DataFrame:
    """The rows of a file, all columns as texts, and the predictions for them: `predicted`, the label by name (or the
    score), and `p(label)`, the probability of each label. The file needs no labels.

    Args:
        task: a task of the model; may be left out if the model has only one.
        text: the column with the text, or the two columns of a pair; by default the task's own.
        reading: `separator`, `quoted` and `encoding`, as in `Task`; by default as in the task's own files if these
            have the same ending.

    Raises ValueError naming file, row and column for a cell that is not a text, FileNotFoundError if there is no file.
    """
    for name in reading:
        check_name("option", name, _READING[:3])
    task = _task(model, task, file, text, reading)
    path = Path(locate(task.data))
    frame = read_table(path, task.separator, task.quoted, task.encoding)
    check_texts(frame, task, path.name)
    if frame.empty:
        raise ValueError(f"{path.name}: there are no rows")
    new = ["predicted", *(f"p({label})" for label in task.labels)]
    if taken := [name for name in new if name in frame]:
        raise ValueError(f"{path.name} already has a column {taken[0]!r}, which predictions are to fill: rename it")
    answers = model.predict(frame[list(task.texts)].to_numpy(), task.name, progress=progress)
    predicted = pd.DataFrame(answers["probabilities"].tolist(), frame.index, new[1:])
    predicted.insert(0, "predicted", answers["label" if task.labels else "score"].to_numpy())
    return pd.concat([frame, predicted], axis=1)


def evaluate_file(
    model: torch.nn.Module,
    *files: str | Path,
    task: str | None = None,
    splits: Sequence[str] = (),
    text: str | Sequence[str] = (),
    progress: bool = False,
    **reading,
) -> pd.DataFrame:
    """A table with a column for each file, or each split of it: the number of rows and, in percent, the task's metrics;
    for classes, also accuracy, Matthews, macro F1, and precision and recall of each class.

    Args:
        files: files, each scored as a whole; or names with `{split}` in them, or other sources, as in `load_rows`.
        splits: splits of each, scored separately; by default all rows of a file, elsewhere the task's `evaluation`.
        reading: also `label` and `skip_unlabelled`, as in `Task`; the others as in `predict_file`.

    Raises ValueError, naming file, row and column, for a cell that should be a text or label and is not.
    """
    table = {}
    for file in files:
        one = _task(model, task, file, text, reading)
        if one.labels:
            every = [metric for metric in OF_CLASSES if metric != "f1" or len(one.labels) == 2]
            one = replace(one, metrics=tuple(dict.fromkeys([*one.metrics, *every, *BY_CLASS])))
        for split in splits or (("all",) if Path(locate(one.data)).is_file() else one.evaluation):
            rows = load_rows(one, one.data, split)
            answers = model.predict(rows[list(one.texts)].to_numpy(), one.name, progress=progress)
            outputs = answers["probabilities"].tolist() if one.labels else answers[["score"]]
            column = {"rows": len(rows)} | score(one, rows["label"].to_numpy(), np.array(outputs))
            table[f"{file}" if split == "all" else f"{file} ({split})"] = pd.Series(column, dtype=object)
    return pd.DataFrame(table)
