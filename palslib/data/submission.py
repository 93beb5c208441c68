"""Files of predictions for submission: GLUE's eleven files and their zip, and the minBERT course's CSV files.

GLUE (https://gluebenchmark.com) takes files `<name>.tsv` with the columns `index`, the data set's `idx`, and
`prediction`: a class by number or by name, as the table below says, or STS-B's score from 0 to 5. For WNLI it is the
majority class (the paper trains nothing for it), and AX, the diagnostic set, is answered by the MNLI classifier.
"""

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from palslib.common.files import atomic_write, write_text
from palslib.common.names import check_name, shown
from palslib.common.places import place
from palslib.data.sources import check_column, check_texts, find_file, locate, read_repository, read_table
from palslib.data.synthetic import synthetic_split
from palslib.data.tasks import TASKS, Task


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
    config: str = ""
    """The configuration in the repository, where its name is not the task's."""


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
    "WNLI": GlueFile("", "test", 146, config="wnli"),
    "AX": GlueFile("mnli", "test", 1_104, names=True, config="ax"),
}
"""The eleven files of a submission, by name."""
WNLI_MAJORITY = 0  # "not entailment", the commoner class of its training set
COURSE_FILES = {
    "sst5": ("sst", "Predicted_Sentiment"),
    "quora": ("para", "Predicted_Is_Paraphrase"),
    "sts": ("sts", "Predicted_Similiary"),  # as the course spells it
}
"""Task of the minBERT report -> the first part of its file's name, and the column of its predictions."""


def _predictions(model, task: Task, frame: pd.DataFrame, identity: str, where: str) -> pd.Series:
    """The predicted class numbers or scores, by the ids of the rows, which are in the column `identity`."""
    check_column(frame, identity, task, where)
    check_texts(frame, task, where)
    answers = model.predict(frame[list(task.texts)], task.name)
    values = answers["score"] if task.is_regression else answers["label"].map(task.labels.index)
    return pd.Series(values.tolist(), index=frame[identity].tolist())


def glue_predictions(
    model, data: str = "glue", split: str = "test", files: Sequence[str] = tuple(GLUE_FILES)
) -> dict[str, pd.Series]:
    """Name of the file -> class numbers or scores by `idx`, for WNLI and the files whose task the model has.

    Args:
        split: `test`, or `validation` for a rehearsal on labelled rows (AX has only `test`). The data `synthetic` is
            for rehearsals; there MNLI's matched rows stand in for AX.
    """
    frames, found = {}, {}
    for name in files:  # all are read before any prediction, so that a missing one shows at once
        file = GLUE_FILES[check_name("file of a submission", name, GLUE_FILES)]
        if file.task in model.tasks:
            part = file.split if file.config else file.split.replace("test", split)
            config = file.config or file.task
            if data == "synthetic":
                frame = synthetic_split(file.task, "validation_matched" if file.config else part)
            else:
                frame = read_repository(data, config, part)
            frames[name] = frame, f"{data} {config}/{part}"
    for name, (frame, where) in frames.items():
        found[name] = _predictions(model, model.tasks[GLUE_FILES[name].task], frame, "idx", where)
    if "WNLI" in files:  # its texts are not needed
        found["WNLI"] = pd.Series(WNLI_MAJORITY, index=range(GLUE_FILES["WNLI"].rows))
    return found


def _cell(name: str, value) -> str:
    """A prediction as GLUE writes it. Raises ValueError for a value that is not a class or not a finite score."""
    file = GLUE_FILES[name]
    if file.task == "stsb":
        if not isinstance(value, (int, float, np.number)) or not np.isfinite(value):
            raise ValueError(f"{name}: {value!r} is not a finite score")
        return f"{min(max(value, 0.0), 5.0):.3f}"
    labels = TASKS[file.task].labels if file.task else ("0", "1")
    number = labels.index(value) if value in labels else value
    if number not in range(len(labels)):
        raise ValueError(f"{name}: {value!r} is not a class (valid: {', '.join(labels)}, or their numbers from 0)")
    return labels[int(number)] if file.names else str(int(number))


def write_submission(given, folder: str | Path, data: str = "glue", split: str = "test") -> pd.DataFrame:
    """Writes the eleven files and `submission.zip`, each whole or not at all, once every prediction is available.

    Args:
        given: a model with all eight tasks of the paper; or a mapping from a file's name to predictions (class numbers,
            names, or scores) by `idx`, as `glue_predictions` returns them, perhaps from several models.
        data, split: the rows that `glue_predictions` reads, if a model is given.

    Returns a row for each file: `file`, `rows`, and `official`, the number of rows that GLUE's server expects. Raises
    ValueError listing the files without predictions, for an unknown class and for a repeated index.
    """
    has = given if isinstance(given, Mapping) else [n for n, f in GLUE_FILES.items() if f.task in ("", *given.tasks)]
    if missing := [f"{name} (task {file.task or 'none'})" for name, file in GLUE_FILES.items() if name not in has]:
        raise ValueError(f"no predictions for {', '.join(missing)}; given only for: {', '.join(has) or 'none'}")
    for name in has:
        check_name("file of a submission", name, GLUE_FILES)
    predictions = given if isinstance(given, Mapping) else glue_predictions(given, data, split)
    texts = {}
    for name in GLUE_FILES:
        values = pd.Series(predictions[name])
        if len(values) and (values.index.dtype.kind not in "iu" or values.index.min() < 0):
            raise ValueError(f"{name}: indices must be row numbers from 0, not {shown(list(values.index[:3]))}")
        values = values.sort_index()
        if not values.index.is_unique:
            raise ValueError(f"{name}: index {values.index[values.index.duplicated()][0]} occurs twice")
        lines = (f"{index}\t{_cell(name, value)}\n" for index, value in values.items())
        texts[f"{name}.tsv"] = "index\tprediction\n" + "".join(lines)
    folder = place(folder)
    for name, text in texts.items():
        write_text(folder / name, text)
    with atomic_write(folder / "submission.zip") as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, text in texts.items():  # without dates, so that the bytes never differ
            archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    rows = [(f"{name}.tsv", len(predictions[name]), file.rows) for name, file in GLUE_FILES.items()]
    return pd.DataFrame(rows, columns=["file", "rows", "official"])


def write_course_csvs(
    model, folder: str | Path, data: str = "minbert", splits: Sequence[str] = ("dev", "test")
) -> list[Path]:
    """Writes `sst-dev-output.csv`, `para-dev-output.csv`, ... as the minBERT course's own code writes them.

    Lines are `id , prediction` under a header `id \\t Predicted_...`, blanks included. A prediction is a class
    from 0 to 4 (sst), 0.0 or 1.0 (para), or a score from 0 to 5 (sts). Rows without a label are predicted too. Raises
    ValueError listing the tasks that the model lacks (a `-pair` task will do), FileNotFoundError naming a split without
    a file.
    """
    by_source = {task.source or name: task for name, task in model.tasks.items()} | model.tasks
    if missing := [name for name in COURSE_FILES if name not in by_source]:
        raise ValueError(f"the model has no task for {', '.join(missing)} (it has: {', '.join(model.tasks)})")
    texts = {}
    for name, (short, column) in COURSE_FILES.items():
        task = by_source[name]
        for split in splits:
            check_name("split", split, ("dev", "test"))
            if data == "synthetic":
                where, frame = "synthetic", synthetic_split(name, split.replace("dev", "validation"))
                frame = frame.rename(columns={"idx": "id"})
            else:
                pattern = task.files.replace("{split}", split)
                if (path := find_file(data, pattern)) is None:
                    raise FileNotFoundError(f"{locate(data)} has no file {pattern!r} for {short}-{split}-output.csv")
                where, frame = path.name, read_table(path, task.separator, task.quoted, task.encoding)
            values = _predictions(model, task, frame, "id", where)
            values = {"quora": values.astype(float), "sts": values.clip(0, 5)}.get(name, values)
            lines = (f"{identity} , {value} \n" for identity, value in values.items())
            texts[place(folder) / f"{short}-{split}-output.csv"] = f"id \t {column} \n" + "".join(lines)
    for path, text in texts.items():
        write_text(path, text)
    return list(texts)
