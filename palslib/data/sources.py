"""Where a task's table comes from: a repository laid out like nyu-mll/glue, on the Hub or in a folder, or a delimited
file; and the checks that name file, row and column of whatever is wrong in it."""

import csv
import hashlib
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from palslib.common import check_name, data_folder, unknown

SUFFIXES = {".csv": ",", ".tsv": "\t"}
"""Endings of delimited files, with the separator that goes without saying."""


def locate(data: str | Path) -> str:
    """`glue`, `minbert`, ... is the folder of that name under $PALSLIB_DATA where there is one; `glue` else the Hub's
    nyu-mll/glue. Anything else is itself: a folder, a file, `synthetic`, or a repository on the Hub."""
    mirror, data = data_folder(), str(data)
    if mirror and "/" not in data and (mirror / data).exists():
        return str(mirror / data)
    return "nyu-mll/glue" if data == "glue" else data


def find_file(data: str | Path, pattern: str) -> Path | None:
    """The file of a folder that matches a pattern; the one with the shortest name where several do."""
    folder = Path(locate(data))
    return min(sorted(folder.glob(pattern)), key=lambda path: len(path.name), default=None)


def read_repository(data: str, name: str, split: str) -> tuple[pd.DataFrame, dict]:
    """One split of one configuration as a table, and the features that the repository declares."""
    import datasets

    datasets.disable_progress_bars()  # of conversions, which take a second; downloads keep theirs
    source = locate(data)
    if not Path(source).is_dir():
        if Path(source).is_absolute() or source.startswith("."):
            raise FileNotFoundError(f"no data folder or file {source!r} (data={data!r})")
        if "/" not in source:  # the Hub's names have an owner
            valid = ("synthetic", "glue", "a folder of $PALSLIB_DATA", "a folder", "a file", "owner/name on the Hub")
            raise unknown("data source", source, valid)
    try:
        loaded = datasets.load_dataset(source, name, split=split)
    except (ConnectionError, OSError) as error:
        if Path(source).is_dir():
            raise
        raise ConnectionError(
            f"could not reach {source!r} on the Hub for task {name!r}, and no folder or file is called so. Three "
            "things to try: data='synthetic', which needs no network; PALSLIB_DATA=FOLDER, where FOLDER/glue is a "
            "mirror; or the network, with HF_HUB_OFFLINE and HF_DATASETS_OFFLINE unset"
        ) from error
    except ValueError as error:  # unknown configuration or split
        raise ValueError(f"{source}: {error}") from error
    return loaded.to_pandas(), loaded.features


def _doubt(columns, separator: str) -> str:
    """Where a file has a single column, another separator than its own may have been looked for."""
    return f" (is its separator {separator!r}?)" if len(columns) == 1 else ""


def read_delimited(path: Path, separator: str) -> pd.DataFrame:
    """Every cell as text; the index is the line on which a row begins, as an editor counts."""
    if not path.is_file():
        raise FileNotFoundError(f"no data file {str(path)!r}")
    for line, content in enumerate(path.read_bytes().split(b"\n"), start=1):
        try:
            content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path.name}, line {line}: not UTF-8 at byte {error.start + 1} of the line") from error
    rows, lines, last = [], [], 0
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator, strict=True)
        try:
            for row in reader:  # a quoted cell may hold line breaks: a row begins after the one before has ended
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
            about = f"{len(row)} cells, but the header has {len(header)}: {header}{_doubt(header, separator)}"
            raise ValueError(f"{path.name}, line {line}: {about}")
    return pd.DataFrame(rows, index=lines, columns=header, dtype=object)


def labelled(frame: pd.DataFrame, task, name: str) -> pd.DataFrame:
    """Without the rows whose label is an empty cell, where a `tasks.Task` says so."""
    if task.skip_unlabelled and task.label in frame and (missing := frame[task.label] == "").any():
        at = ", ".join(map(str, frame.index[missing]))
        warnings.warn(f"{name}: rows without a label left out (lines {at})", stacklevel=3)
        frame = frame[~missing]
    return frame


def part(frame: pd.DataFrame, task, split: str) -> pd.DataFrame:
    """80/10/10 by distinct first text, so that none stands in two parts; the order of rows does not matter."""
    check_name("split", split, ("train", "validation", "test"))
    first = frame[task.texts[0]].str.strip()
    tenth = np.array([hashlib.sha256(text.encode()).digest()[0] * 10 // 256 for text in first], dtype=int)
    return frame[{"train": tenth < 8, "validation": tenth == 8, "test": tenth == 9}[split]]


def check_column(frame: pd.DataFrame, column: str, task, where: str) -> None:
    """Raises ValueError, with what columns there are, where a `tasks.Task`'s column is missing or comes twice."""
    if (count := list(frame).count(column)) != 1:
        what = f"{count or 'no'} column{'s' * (count > 1)} {column!r} for task {task.name!r}"
        raise ValueError(f"{where}: {what}; it has: {list(frame)}{_doubt(frame.columns, task.separator)}")


def checked(frame: pd.DataFrame, task, where: str, count: str = "row") -> pd.DataFrame:
    """The task's columns with every cell checked; `count` is what the frame's index counts."""
    for column in (*task.texts, task.label):
        check_column(frame, column, task, where)

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
        if task.head == "cosine":
            refuse(np.abs(numbers - 2.5) > 2.5, task.label, "is not a score from 0 to 5")
    else:
        named = frame[task.label].map({name: i for i, name in enumerate(task.labels)}).to_numpy("float64")
        # A text that is a number stands for a class unless some class has another number for its name ("1" to "5").
        if any(name.isdigit() and int(name) != i for i, name in enumerate(task.labels)):
            numbers[[isinstance(x, str) for x in frame[task.label]]] = np.nan
        numbers = np.where(np.isnan(named), numbers, named)
        valid = f"is not a label (valid: {', '.join(task.labels)}, or their numbers from 0)"
        refuse(~np.isin(numbers, np.arange(len(task.labels))), task.label, valid)
    table = frame[list(task.texts)].copy()
    table["label"] = numbers.astype("float32" if task.is_regression else "int64")
    return table
