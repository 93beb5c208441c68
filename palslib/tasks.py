"""The tasks: each a row of `TASKS`, read from one of four kinds of source into one shape of table.

The eight tasks of Stickland & Murray 2019, section 4: GLUE (https://gluebenchmark.com) without WNLI. Sources:
`synthetic` (embedded, offline), `glue` (a mirror under $PALSLIB_DATA, else the Hub's nyu-mll/glue), a folder laid out
like that repository, or a delimited file with named text and label columns.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from palslib.names import check_name
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
            set, so its splits `train`, `validation` and `test` are 80/10/10 of its distinct texts; a name with
            `{split}` in it is one file a split.

    Raises ValueError naming source, row and column for a missing column, an unknown label, a score that is not a
    number or bytes that are not UTF-8, and for an empty split; FileNotFoundError or ConnectionError for no source.
    """
    task, source = get_task(task), str(data)
    if source == "synthetic":
        frame, where = synthetic_split(task.name, split), f"synthetic {task.name}/{split}"
    elif "{split}" in source or Path(source).is_file():
        frame, where = _read_delimited(Path(source.replace("{split}", split)), task), source
        if "{split}" not in source:
            frame = _part(frame, task, split)
    else:
        frame, where = _read_repository(source, task, split), f"{source} {task.name}/{split}"
    if frame.empty:
        raise ValueError(f"{where}: the split {split!r} of task {task.name!r} is empty")
    return _checked(frame, task, where)


def source_folder(data: str) -> str:
    """Where a repository of tasks is read from: `glue` is the mirror under $PALSLIB_DATA where there is one."""
    mirror = data_folder()
    if data == "glue":
        return str(mirror / "glue") if mirror and (mirror / "glue").is_dir() else "nyu-mll/glue"
    return data


def _read_repository(data: str, task: Task, split: str) -> pd.DataFrame:
    import datasets

    source = source_folder(data)
    looks_local = Path(source).is_absolute() or source.startswith(".")
    if looks_local and not Path(source).is_dir():
        raise FileNotFoundError(f"no data folder or file {source!r} (data={data!r})")
    try:
        loaded = datasets.load_dataset(source, task.name, split=split)
    except (ConnectionError, OSError) as error:
        if Path(source).is_dir():
            raise
        raise ConnectionError(
            f"could not reach {source!r} on the Hub for task {task.name!r}. Three things to try: data='synthetic', "
            "which needs no network; PALSLIB_DATA=FOLDER, where FOLDER/glue is a mirror; or the network, with "
            "HF_HUB_OFFLINE and HF_DATASETS_OFFLINE unset"
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
    try:
        frame = pd.read_csv(path, sep=task.separator, dtype=str, keep_default_na=False, encoding="utf-8")
    except UnicodeDecodeError:
        for row, line in enumerate(path.read_bytes().split(b"\n"), start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"{path.name}, line {row}: not UTF-8 at byte {error.start}") from error
        raise
    except pd.errors.ParserError as error:
        raise ValueError(f"{path.name}: {error}") from error
    frame.index += 2  # as an editor counts lines: the header is line 1
    if task.label in frame and task.labels and set(frame[task.label]) <= {str(i) for i in range(len(task.labels))}:
        frame[task.label] = frame[task.label].astype(int)
    elif task.label in frame and task.labels:
        numbers = {name: i for i, name in enumerate(task.labels)}
        frame[task.label] = [numbers.get(name, name) for name in frame[task.label]]
    return frame


def _part(frame: pd.DataFrame, task: Task, split: str) -> pd.DataFrame:
    """80/10/10 by distinct text, so that no text stands in two parts; the order of rows does not matter."""
    check_name("split", split, ("train", "validation", "test"))
    _check_columns(frame, task, "the file")
    first = frame[task.texts[0]].str.strip()
    tenth = np.array([hashlib.sha256(text.encode()).digest()[0] * 10 // 256 for text in first], dtype=int)
    return frame[{"train": tenth < 8, "validation": tenth == 8, "test": tenth == 9}[split]]


def _check_columns(frame: pd.DataFrame, task: Task, where: str) -> None:
    for column in (*task.texts, task.label):
        if column not in frame:
            hint = f" (is its separator {task.separator!r}?)" if len(frame.columns) == 1 else ""
            raise ValueError(f"{where}: no column {column!r} for task {task.name!r}; it has: {list(frame)}{hint}")


def _checked(frame: pd.DataFrame, task: Task, where: str) -> pd.DataFrame:
    _check_columns(frame, task, where)

    def refuse(bad: pd.Series, column: str, why: str) -> None:
        if bad.any():
            row = bad.index[bad.to_numpy().argmax()]
            value = frame.loc[row, column]
            raise ValueError(f"{where}, row {row}, column {column!r}: {value!r} {why}")

    for column in task.texts:
        refuse(~frame[column].map(lambda x: isinstance(x, str)), column, "is not a text")
    labels = frame[task.label]
    numbers = pd.to_numeric(labels, errors="coerce")
    if task.is_regression:
        refuse(~np.isfinite(numbers), task.label, "is not a number")
    else:
        known = numbers.isin(range(task.num_outputs))
        refuse(~known, task.label, f"is not a label (valid: {', '.join(task.labels)}, or their numbers)")
    table = frame[list(task.texts)].copy()
    table["label"] = numbers.astype("float32" if task.is_regression else "int64")
    return table
