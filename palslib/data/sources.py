"""The sources of a task's table: a repository laid out like nyu-mll/glue, on the Hub or in a folder, or a delimited
file; and checks of the table, whose errors name file, row and column."""

import csv
import hashlib
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from palslib.common.names import check_name, shown, unknown
from palslib.common.places import data_folder

SUFFIXES = {".csv": ",", ".tsv": "\t", ".parquet": ","}
"""Endings of data files, with their default separators."""


def locate(data: str | Path) -> str:
    """The location of a data source. A name such as `glue` is the folder of that name under $PALSLIB_DATA, if any; else
    `glue` is the Hub's nyu-mll/glue. Any other value stays as it is: a folder, a file, `synthetic` or a Hub id.

    Raises FileNotFoundError, listing what exists, for a missing path: one that is absolute, begins with a dot or ~,
    ends like a data file, has several slashes, or whose folder exists. A path with `{split}` is not checked.
    """
    mirror, data = data_folder(), str(data)
    if not data.strip() or "\0" in data:  # an empty path would be the working folder
        raise no_source(data)
    if mirror and "/" not in data and (mirror / data).exists():
        return str(mirror / data)
    if data == "glue":
        return "nyu-mll/glue"
    path = Path(data)
    inside = path.parent != Path() and path.parent.is_dir()
    only = path.is_absolute() or data.startswith((".", "~")) or path.suffix in SUFFIXES or data.count("/") > 1 or inside
    if only and "{split}" not in data and not path.exists():
        raise missing(path)
    return data


def contents(folder: Path) -> str:
    """The names in a folder, for messages."""
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(names[:20]) + more if names else "nothing"


def missing(path: Path, about: str = "") -> FileNotFoundError:
    """The error for a missing file or folder; it lists what the nearest existing folder above has."""
    folder = next(above for above in path.absolute().parents if above.is_dir())
    what = "file" if path.suffix in SUFFIXES else "folder or file"
    mirror = data_folder() if path.parent == Path() else None  # where names without a folder are looked up too
    beside = f"; {mirror} (PALSLIB_DATA) has: {contents(mirror)}" if mirror and mirror.is_dir() else ""
    return FileNotFoundError(f"no data {what} {str(path)!r}{about}; {folder} has: {contents(folder)}{beside}")


def no_source(name: str) -> ValueError:
    """The error for an unknown name of a data source."""
    mirror = data_folder()
    names = {path.name for path in mirror.iterdir() if path.is_dir()} if mirror and mirror.is_dir() else set()
    ours = sorted(names - {"glue"}) or ["a folder of $PALSLIB_DATA"]
    return unknown("data source", name, ["synthetic", "glue", *ours, "a folder", "a file", "owner/name on the Hub"])


def find_file(data: str | Path, pattern: str) -> Path | None:
    """The file of a folder that matches a pattern, or None; the one with the shortest name if several match."""
    folder = Path(locate(data))
    return min(sorted(folder.glob(pattern)), key=lambda path: len(path.name), default=None)


def read_repository(data: str, name: str, split: str) -> tuple[pd.DataFrame, dict]:
    """One split of one configuration as a table, and the features that the repository declares."""
    import datasets
    import yaml  # with which datasets reads README.md

    datasets.disable_progress_bars()  # only of conversions, which take a second; downloads keep theirs
    source = locate(data)
    folder = Path(source)  # may not exist: a name on the Hub
    described = (folder / "README.md").is_file()
    if folder.is_dir():
        if not described and not (folder / name).is_dir():
            about = f"neither a folder {name!r} nor a README.md that says where it lies"
            raise FileNotFoundError(f"{source} has no data of task {name!r}, {about}; it has: {contents(folder)}")
    elif "/" not in source:  # the Hub's names have an owner
        raise no_source(source)
    parts = sorted(map(str, (folder / name).glob(f"{split}-*.parquet")))
    cache = Path(datasets.config.HF_DATASETS_CACHE) / _version(folder) if folder.is_dir() else None
    try:
        if parts and not described:
            loaded = datasets.load_dataset("parquet", data_files={split: parts}, split=split, cache_dir=cache)
        else:
            loaded = datasets.load_dataset(source, name, split=split, cache_dir=cache)
        return loaded.to_pandas(), loaded.features
    except yaml.YAMLError as error:
        raise ValueError(f"{source} {name}/{split}: the head of README.md is no YAML: {error}") from error
    except (datasets.exceptions.DatasetsError, pa.ArrowException, OSError, ValueError, TypeError) as error:
        if not folder.is_dir() and isinstance(error, OSError):  # ConnectionError is an OSError
            raise ConnectionError(
                f"could not reach {source!r} on the Hub for task {name!r}, and no folder or file is called so. Three "
                "things to try: data='synthetic', which needs no network; PALSLIB_DATA=FOLDER, where FOLDER/glue is a "
                "mirror; or the network, with HF_HUB_OFFLINE and HF_DATASETS_OFFLINE unset"
            ) from error
        raise ValueError(f"{source} {name}/{split}: {_why(error, folder, name)}") from error


def _version(folder: Path) -> str:
    """A hash that differs for every folder and after every change of its files. The cache of datasets depends only on a
    folder's last name and its README, and would serve outdated rows, or another folder's."""
    stats = {path: path.stat() for path in sorted(folder.resolve().rglob("*")) if path.is_file()}
    stamps = [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()]
    return hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]


def _why(error: BaseException, folder: Path, name: str) -> str:
    """The reason of an error of datasets: an unreadable Parquet file, first among those of this name, or a cause."""
    import pyarrow.parquet

    for path in sorted(folder.rglob("*.parquet"), key=lambda path: (name not in path.parts, path)):
        try:
            pyarrow.parquet.read_table(path)
        except (pa.ArrowException, OSError) as damage:
            return f"{path.relative_to(folder)} cannot be read: {damage}"
    while error.__cause__ is not None:
        error = error.__cause__
    if sizes := re.findall(r"SplitInfo\(name='(\w+)'.*?num_examples=(\d+).*?num_examples=(\d+)", str(error)):
        differ = "; ".join(f"{split} {int(said):,}, {int(there):,}" for split, said, there in sizes)
        return f"dataset_info in README.md speaks of other numbers of rows than there are: {differ}"
    return f"{type(error).__name__}: {error}"


def _doubt(columns: Sequence[str], separator: str) -> str:
    """A hint for messages if the header suggests another separator than the given one or has a single column."""
    line = separator.join(map(str, columns))
    likely = max((other for other in ",;\t|" if other != separator), key=line.count)
    looks = line.count(likely) > line.count(separator)
    if not looks and len(columns) > 1:
        return ""
    return f" (is its separator {separator!r}?" + (f" the first line looks separated by {likely!r})" * looks or ")")


def read_table(path: Path, separator: str) -> pd.DataFrame:
    """Every cell of a delimited or Parquet file as text; a missing cell is an empty text. The index is the row's number
    from 0 in a Parquet file, else the line on which a row begins, as an editor counts."""
    if not path.is_file():
        raise missing(path)
    if path.suffix != ".parquet":
        return _read_delimited(path, separator)
    try:
        frame = pd.read_parquet(path)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise ValueError(f"{path.name} is no Parquet file, or a damaged one: {error}") from error
    return frame.map(cell_text)


def cell_text(cell: object) -> str:
    """A cell as text; a missing one is an empty text."""
    missing = not isinstance(cell, str) and pd.api.types.is_scalar(cell) and pd.isna(cell)
    return "" if missing else str(cell)


def _read_delimited(path: Path, separator: str) -> pd.DataFrame:
    for line, content in enumerate(path.read_bytes().split(b"\n"), start=1):
        try:
            content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path.name}, line {line}: not UTF-8 at byte {error.start + 1} of the line") from error
        if b"\0" in content:  # UTF-16 without a mark, or no text at all; other control characters occur in real texts
            raise ValueError(f"{path.name}, line {line}: a NUL byte, which no text in UTF-8 has")
    rows, lines, last = [], [], 0
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator, strict=True)
        try:
            for row in reader:  # a quoted cell may hold line breaks: a row begins after the end of the one before
                if row:
                    rows.append(row)
                    lines.append(last + 1)
                last = reader.line_num
        except csv.Error as error:
            with path.open(encoding="utf-8-sig") as file:
                doubt = _doubt(file.readline().rstrip("\r\n").split(separator), separator)
            raise ValueError(f"{path.name}, line {last + 1}: {error}{doubt}") from error
    if not rows:
        raise ValueError(f"{path.name}: the file is empty")
    (header, *rows), lines = rows, lines[1:]
    for row, line in zip(rows, lines, strict=True):
        if separator == "\t" and any("\t" in cell and "\n" in cell for cell in row):
            raise ValueError(f"{path.name}, line {line}: a quotation mark opens a cell here and closes it lines later")
        if len(row) != len(header):
            about = f"{len(row)} cells, but the header has {len(header)}: {header}{_doubt(header, separator)}"
            raise ValueError(f"{path.name}, line {line}: {about}")
    return pd.DataFrame(rows, index=lines, columns=header, dtype=object)


def labelled(frame: pd.DataFrame, task, name: str) -> pd.DataFrame:
    """A table without the rows whose label is an empty cell, if the `tasks.Task` has `skip_unlabelled`."""
    if task.skip_unlabelled and task.label in frame and (missing := frame[task.label] == "").any():
        at = ", ".join(map(str, frame.index[missing]))
        warnings.warn(f"{name}: rows without a label left out (lines {at})", stacklevel=3)
        frame = frame[~missing]
    return frame


def part(frame: pd.DataFrame, task, split: str) -> pd.DataFrame:
    """A split of a table, 80/10/10 by distinct first text: no first text is in two splits. Row order is irrelevant."""
    first = frame[task.texts[0]].str.strip()
    tenth = np.array([hashlib.sha256(text.encode()).digest()[0] * 10 // 256 for text in first], dtype=int)
    parts = {"train": tenth < 8, "validation": tenth == 8, "test": tenth == 9}
    return frame[parts[check_name("split", split, parts)]]


HELD_OUT, KEPT = "held-out part of train", "train without held-out part"
"""The two parts of a task's training rows where settings are chosen by scores of rows that no reported score uses."""


def held_out(first: pd.Series) -> np.ndarray:
    """Which training rows are held out, by their first texts: about a tenth, rows of one first text all or none. What
    `part` gives to `train` is divided anew, since another byte of the hash decides."""
    return np.array([hashlib.sha256(text.strip().encode()).digest()[1] * 10 < 256 for text in first], dtype=bool)


def check_column(frame: pd.DataFrame, column: str, task, where: str) -> None:
    """Raises ValueError, listing the columns, if a column of a `tasks.Task` is missing or comes twice."""
    if (count := list(frame).count(column)) != 1:
        what = f"{count or 'no'} column{'s' * (count > 1)} {column!r} for task {task.name!r}"
        raise ValueError(f"{where}: {what}; it has: {list(frame)}{_doubt(list(frame), task.separator)}")


def _refuse(bad: Sequence[bool], frame: pd.DataFrame, column: str, why: str, where: str, count: str) -> None:
    """Raises ValueError for the first bad cell of a column, with its place and value."""
    if (bad := np.array(bad, dtype=bool)).any():
        place = f"{frame.index[bad.argmax()]}" + (" (the first is 0)" if count == "row" else "")
        value = frame[column].tolist()[bad.argmax()]
        raise ValueError(f"{where}, {count} {place}, column {column!r}: {shown(value)} {why}")


def check_texts(frame: pd.DataFrame, task, where: str, count: str = "row") -> None:
    """Raises ValueError if a text column of a `tasks.Task` is missing or has a cell that is not a text."""
    for column in task.texts:
        check_column(frame, column, task, where)
    for column in task.texts:
        bad = [not isinstance(x, str) or "\0" in x for x in frame[column]]
        _refuse(bad, frame, column, "is not a text", where, count)


def checked(frame: pd.DataFrame, task, where: str, count: str = "row") -> pd.DataFrame:
    """The task's texts and numeric `label`, with every cell checked; `count` says what the frame's index counts."""
    check_texts(frame, task, where, count)
    check_column(frame, task.label, task, where)

    def refuse(bad: Sequence[bool], why: str) -> None:
        _refuse(bad, frame, task.label, why, where, count)

    cells = frame[task.label].tolist()
    valid = "is not a finite number"
    if not task.is_regression:
        valid = f"is not a label (valid: {', '.join(task.labels)}, or their numbers from 0)"
    # Parquet has more types: dates would become numbers, and lists cannot be keys
    refuse([not isinstance(x, (str, int, float)) for x in cells], valid)
    labels = pd.Series(cells, dtype=object)
    numbers = pd.to_numeric(labels, errors="coerce").to_numpy("float64", copy=True)
    if task.is_regression:
        refuse(~(np.abs(numbers) <= np.finfo("float32").max), valid)
        if task.head == "cosine":
            refuse(np.abs(numbers - 2.5) > 2.5, "is not a score from 0 to 5")
    else:
        named = labels.map({name: i for i, name in enumerate(task.labels)}).to_numpy("float64")
        # A text that is a number stands for a class unless some class has another number for its name ("1" to "5").
        meant = pd.to_numeric(pd.Series(task.labels, dtype=object), errors="coerce")
        if any(meant.notna() & (meant != meant.index)):
            numbers[[isinstance(x, str) for x in cells]] = np.nan
        numbers = np.where(np.isnan(named), numbers, named)
        refuse(~np.isin(numbers, np.arange(len(task.labels))), valid)
    table = frame[list(task.texts)].copy()
    table["label"] = numbers.astype("float32" if task.is_regression else "int64")
    return table
