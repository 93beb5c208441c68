"""GLUE's eleven files of predictions, and their zip.

GLUE (https://gluebenchmark.com) takes files `<name>.tsv` with the columns `index`, the data set's `idx`, and
`prediction`: a class by number or by name, as the table below says, or STS-B's score from 0 to 5. For WNLI it is the
majority class (the paper trains nothing for it), and AX, the diagnostic set, is answered by the MNLI classifier.
"""

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from palslib.common.files import atomic_write, write_text
from palslib.common.names import shown
from palslib.common.places import as_path
from palslib.data.sources import check_column, check_texts, read_repository
from palslib.data.synthetic import synthetic_split
from palslib.data.tasks import TASKS


@dataclass(frozen=True)
class GlueFile:
    """One file of a submission."""

    task: str
    """The task in `TASKS` whose classifier answers; empty for WNLI."""
    split: str
    """The split in the repository nyu-mll/glue."""
    rows: int
    """Number of rows of the official test set (https://gluebenchmark.com)."""
    names: bool = False
    """Whether classes are written by name, not by number."""


GLUE_FILES: dict[str, GlueFile] = {
    "CoLA": GlueFile("cola", "test", 1_063),
    "SST-2": GlueFile("sst2", "test", 1_821),
    "MRPC": GlueFile("mrpc", "test", 1_725),
    "STS-B": GlueFile("stsb", "test", 1_379),
    "QQP": GlueFile("qqp", "test", 390_965),
    "MNLI-m": GlueFile("mnli", "test_matched", 9_796, names=True),
    "MNLI-mm": GlueFile("mnli", "test_mismatched", 9_847, names=True),
    "QNLI": GlueFile("qnli", "test", 5_463, names=True),
    "RTE": GlueFile("rte", "test", 3_000, names=True),
    "WNLI": GlueFile("", "test", 146),
    "AX": GlueFile("mnli", "test", 1_104, names=True),
}
"""The eleven files of a submission, by name."""


def glue_predictions(model, data: str = "glue", split: str = "test") -> dict[str, pd.Series]:
    """Name of the file -> classes by name (WNLI: by number) or scores, by `idx`, for WNLI and the files whose task the
    model has.

    Args:
        split: `test`, or `validation` for a rehearsal on labelled rows (AX has only `test`). The data `synthetic` is
            for rehearsals; there MNLI's matched rows stand in for AX.
    """
    frames, predictions = {}, {}
    for name, file in GLUE_FILES.items():  # all are read before any prediction, so that a missing one shows at once
        if file.task in model.tasks:
            part, config = ("test", "ax") if name == "AX" else (file.split.replace("test", split), file.task)
            if data == "synthetic":
                frame = synthetic_split(file.task, "validation_matched" if name == "AX" else part)
            else:
                frame = read_repository(data, config, part)
            frames[name] = frame, f"{data} {config}/{part}"
    for name, (frame, where) in frames.items():
        task = model.tasks[GLUE_FILES[name].task]
        check_column(frame, "idx", task, where)
        check_texts(frame, task, where)
        answers = model.predict(frame[list(task.texts)], task.name)
        values = answers["score" if task.is_regression else "label"]
        predictions[name] = pd.Series(values.tolist(), index=frame["idx"].tolist())
    not_entailment = 0  # the commoner class of WNLI's training set: its texts are not needed
    predictions["WNLI"] = pd.Series(not_entailment, index=range(GLUE_FILES["WNLI"].rows))
    return predictions


def _cell(name: str, value) -> str:
    """A prediction as GLUE writes it. Raises ValueError for a value that is not a class or not a finite score."""
    file = GLUE_FILES[name]
    if file.task == "stsb":
        if not np.isfinite(value):
            raise ValueError(f"{name}: {value!r} is not a finite score")
        return f"{min(max(value, 0.0), 5.0):.3f}"
    labels = TASKS[file.task].labels if file.task else ("0", "1")
    number = labels.index(value) if value in labels else value
    if number not in range(len(labels)):
        raise ValueError(f"{name}: {value!r} is not a class (valid: {', '.join(labels)}, or their numbers from 0)")
    return labels[int(number)] if file.names else f"{int(number)}"


def write_submission(source, folder: str | Path, data: str = "glue", split: str = "test") -> pd.DataFrame:
    """Writes the eleven files and `submission.zip`, each whole or not at all, once every prediction is available.

    Args:
        source: a model with all eight tasks of the paper; or a mapping from a file's name to predictions (class
            numbers, names, or scores) by `idx`, as `glue_predictions` returns them, perhaps from several models.
        data, split: the rows that `glue_predictions` reads, if a model is given.

    Returns a row for each file: `file`, `rows`, and `official`, the number of rows that GLUE's server expects. Raises
    ValueError listing the files without predictions, for an unknown class, a repeated index and a file in the way.
    """
    folder, by_name = as_path(folder), isinstance(source, Mapping)
    has = source if by_name else [name for name, file in GLUE_FILES.items() if file.task in ("", *source.tasks)]
    if missing := [f"{name} (task {file.task or 'none'})" for name, file in GLUE_FILES.items() if name not in has]:
        raise ValueError(f"no predictions for {', '.join(missing)}; given only for: {', '.join(has) or 'none'}")
    for name in ("submission.zip", *(f"{name}.tsv" for name in GLUE_FILES)):
        if os.path.lexists(folder / name):
            raise ValueError(f"{folder / name} exists: give another folder")
    predictions, texts = source if by_name else glue_predictions(source, data, split), {}
    for name in GLUE_FILES:
        values = pd.Series(predictions[name])
        rows = values.index
        if len(rows) and (rows.dtype.kind not in "iu" or rows.min() < 0 or not rows.is_unique):
            raise ValueError(f"{name}: indices must be row numbers from 0, each once, not {shown(list(rows))}")
        lines = (f"{index}\t{_cell(name, value)}\n" for index, value in values.sort_index().items())
        texts[f"{name}.tsv"] = "index\tprediction\n" + "".join(lines)
    for name, text in texts.items():
        write_text(folder / name, text)
    with atomic_write(folder / "submission.zip") as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, text in texts.items():  # without dates, so that the bytes never differ
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    table = [(f"{name}.tsv", len(predictions[name]), file.rows) for name, file in GLUE_FILES.items()]
    return pd.DataFrame(table, columns=["file", "rows", "official"])
