"""The tasks: each a row of `TASKS`, read from one of four kinds of source into one shape of table.

The eight tasks of Stickland & Murray 2019, section 4: GLUE (https://gluebenchmark.com) without WNLI. Sources:
`synthetic` (embedded, offline), `glue` (a mirror under $PALSLIB_DATA, else the Hub's nyu-mll/glue), a folder laid out
like that repository, or a delimited file with named text and label columns.
"""

import csv
import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from palslib.names import check_name, unknown
from palslib.paths import data_folder
from palslib.synthetic import synthetic_split


@dataclass(frozen=True)
class Task:
    """What is read, predicted and measured. A task is data: a new one is a new `Task(...)`, never a new class."""

    name: str
    texts: tuple[str, ...]
    """Columns of one text, or of two that are read as a pair."""
    labels: tuple[str, ...] = ()
    """Names of the classes, in order; empty for a score to be regressed."""
    metrics: tuple[str, ...] = ("accuracy",)
    """Names of `metrics.METRICS`; the first is the one that enters the dev average."""
    evaluation: tuple[str, ...] = ("validation",)
    """The splits it is evaluated on."""
    scale: float = 5.0
    """Scores are divided by this for training and predictions multiplied by it (ledger D16)."""
    label: str = "label"
    """Column of the label."""
    separator: str = ","
    """Between the columns, where the source is a delimited file."""
    skip_unlabelled: bool = False
    """Leave out rows of a delimited file whose label is an empty cell, with a warning; else they are an error."""

    @property
    def is_regression(self) -> bool:
        """Whether a score is predicted, not a class."""
        return not self.labels

    @property
    def num_outputs(self) -> int:
        """Width of the task's logits."""
        return len(self.labels) or 1


_ENTAILMENT = ("entailment", "not_entailment")
TASKS: dict[str, Task] = {
    t.name: t
    for t in (
        Task("cola", ("sentence",), ("unacceptable", "acceptable"), ("matthews", "accuracy")),
        Task("sst2", ("sentence",), ("negative", "positive")),
        Task("mrpc", ("sentence1", "sentence2"), ("not_equivalent", "equivalent"), ("accuracy", "f1")),
        Task("stsb", ("sentence1", "sentence2"), (), ("pearson", "spearman")),
        Task("qqp", ("question1", "question2"), ("not_duplicate", "duplicate"), ("accuracy", "f1")),
        Task(
            "mnli",
            ("premise", "hypothesis"),
            ("entailment", "neutral", "contradiction"),
            evaluation=("validation_matched", "validation_mismatched"),
        ),
        Task("qnli", ("question", "sentence"), _ENTAILMENT),
        Task("rte", ("sentence1", "sentence2"), _ENTAILMENT),
    )
}


def get_task(task: str | Task) -> Task:
    """The task of that name, or that task itself."""
    return task if isinstance(task, Task) else TASKS[check_name("task", task, TASKS)]


def load_task(task: str | Task, data: str | Path = "synthetic", split: str = "train") -> pd.DataFrame:
    """One split as a table with the task's text columns and `label` (class number, or the score itself).

    Args:
        data: `synthetic`, `glue`, a folder laid out like nyu-mll/glue, or a delimited file. A file is one whole data
            set, so its splits `train`, `validation` and `test` are 80/10/10 of its distinct (first) texts; a name with
            `{split}` in it is one file a split.

    The table's index is the row: in a delimited file the line on which it begins, as an editor counts, elsewhere from
    0. An empty text is a text. Raises ValueError naming source, row and column for a missing column or cell, an unknown
    label, a score that is not a number or bytes that are not UTF-8, and for an empty split; FileNotFoundError or
    ConnectionError for no source.
    """
    task, source = get_task(task), str(data)
    if source == "synthetic":
        table = _checked(synthetic_split(task.name, split), task, f"synthetic {task.name}/{split}")
    elif "{split}" in source or Path(source).is_file():
        path = Path(source.replace("{split}", split))
        table = _checked(_read_delimited(path, task), task, path.name, "line")
        if "{split}" not in source:
            table = _part(table, task, split)
    else:
        table = _checked(_read_repository(source, task, split), task, f"{source} {task.name}/{split}")
    if table.empty:
        raise ValueError(f"{source}: the split {split!r} of task {task.name!r} is empty")
    return table


def source_folder(data: str) -> str:
    """Where a repository of tasks is read from: `glue` is the mirror under $PALSLIB_DATA where there is one."""
    mirror = data_folder()
    if data == "glue":
        return str(mirror / "glue") if mirror and (mirror / "glue").is_dir() else "nyu-mll/glue"
    return data


def _read_repository(data: str, task: Task, split: str) -> pd.DataFrame:
    import datasets

    datasets.disable_progress_bars()  # of conversions, which take a second; downloads keep theirs
    source = source_folder(data)
    if not Path(source).is_dir():
        if Path(source).is_absolute() or source.startswith("."):
            raise FileNotFoundError(f"no data folder or file {source!r} (data={data!r})")
        if "/" not in source:  # the Hub's names have an owner
            raise unknown("data source", source, ("synthetic", "glue", "a folder", "a file", "owner/name on the Hub"))
    try:
        loaded = datasets.load_dataset(source, task.name, split=split)
    except (ConnectionError, OSError) as error:
        if Path(source).is_dir():
            raise
        raise ConnectionError(
            f"could not reach {source!r} on the Hub for task {task.name!r}, and no folder or file is called so. Three "
            "things to try: data='synthetic', which needs no network; PALSLIB_DATA=FOLDER, where FOLDER/glue is a "
            "mirror; or the network, with HF_HUB_OFFLINE and HF_DATASETS_OFFLINE unset"
        ) from error
    except ValueError as error:  # unknown configuration or split
        raise ValueError(f"{source}: {error}") from error
    names = getattr(loaded.features.get(task.label), "names", None)
    if names is not None and tuple(names) != task.labels:
        raise ValueError(f"{source} {task.name}/{split}: label names {names} are not the task's {list(task.labels)}")
    return loaded.to_pandas()


def _read_delimited(path: Path, task: Task) -> pd.DataFrame:
    if not path.is_file():
        raise FileNotFoundError(f"no data file {str(path)!r} for task {task.name!r}")
    for line, content in enumerate(path.read_bytes().split(b"\n"), start=1):
        try:
            content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path.name}, line {line}: not UTF-8 at byte {error.start + 1} of the line") from error
    rows, lines, last = [], [], 0
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=task.separator, strict=True)
        try:
            for (
                row
            ) in reader:  # a quoted cell may hold line breaks: a row begins after the line where the last one ends
                if row:
                    rows.append(row)
                    lines.append(last + 1)
                last = reader.line_num
        except csv.Error as error:
            raise ValueError(f"{path.name}, line {last + 1}: {error}") from error
    if not rows:
        raise ValueError(f"{path.name}: the file is empty")
    (header, *rows), lines = rows, lines[1:]
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            raise ValueError(f"{path.name}, line {line}: {len(row)} cells, but the header has {len(header)}: {header}")
    frame = pd.DataFrame(rows, index=lines, columns=header, dtype=object)
    if task.skip_unlabelled and task.label in frame and (missing := frame[task.label] == "").any():
        at = ", ".join(map(str, frame.index[missing]))
        warnings.warn(f"{path.name}: rows without a label left out (lines {at})", stacklevel=3)
        frame = frame[~missing]
    return frame


def _part(frame: pd.DataFrame, task: Task, split: str) -> pd.DataFrame:
    """80/10/10 by distinct first text, so that none stands in two parts; the order of rows does not matter."""
    check_name("split", split, ("train", "validation", "test"))
    first = frame[task.texts[0]].str.strip()
    tenth = np.array([hashlib.sha256(text.encode()).digest()[0] * 10 // 256 for text in first], dtype=int)
    return frame[{"train": tenth < 8, "validation": tenth == 8, "test": tenth == 9}[split]]


def _checked(frame: pd.DataFrame, task: Task, where: str, count: str = "row") -> pd.DataFrame:
    """The task's columns with every cell checked; `count` is what the frame's index counts."""
    for column in (*task.texts, task.label):
        if column not in frame:
            hint = f" (is its separator {task.separator!r}?)" if len(frame.columns) == 1 else ""
            raise ValueError(f"{where}: no column {column!r} for task {task.name!r}; it has: {list(frame)}{hint}")

    def refuse(bad: np.ndarray, column: str, why: str) -> None:
        if bad.any():
            place = f"{frame.index[bad.argmax()]}" + (" (the first is 0)" if count == "row" else "")
            value = frame[column].tolist()[bad.argmax()]
            raise ValueError(f"{where}, {count} {place}, column {column!r}: {value!r} {why}")

    for column in task.texts:
        refuse(np.array([not isinstance(x, str) for x in frame[column]], dtype=bool), column, "is not a text")
    numbers = pd.to_numeric(frame[task.label], errors="coerce").to_numpy("float64", copy=True)
    if task.is_regression:
        refuse(~(np.abs(numbers) <= np.finfo("float32").max), task.label, "is not a finite number")
    else:
        named = frame[task.label].map({name: i for i, name in enumerate(task.labels)}).to_numpy("float64")
        # A text that is a number stands for a class unless some class has another number for its name ("1" to "5").
        if any(name.isdigit() and int(name) != i for i, name in enumerate(task.labels)):
            numbers[[isinstance(x, str) for x in frame[task.label]]] = np.nan
        numbers = np.where(np.isnan(named), numbers, named)
        valid = f"is not a label (valid: {', '.join(task.labels)}, or their numbers from 0)"
        refuse(~np.isin(numbers, np.arange(task.num_outputs)), task.label, valid)
    table = frame[list(task.texts)].copy()
    table["label"] = numbers.astype("float32" if task.is_regression else "int64")
    return table
