"""The sources of a task's table: a repository laid out like nyu-mll/glue, on the Hub or in a folder, which `datasets`
reads; or a file of a kind in `SUFFIXES`, read strictly. And checks of the table, whose errors name file, row and
column.

Where a source declares names of classes (the ClassLabel of `datasets`), its table has these names, not their numbers.
"""

from __future__ import annotations

import csv
import difflib
import glob
import gzip
import io
import json
import os
import re
import shlex
import warnings
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from palslib.bert.backbones import ask_the_hub
from palslib.common.later import np, pa, pd
from palslib.common.names import listed, shown, unknown
from palslib.common.places import data_folder, runs_folder
from palslib.common.reading import without_repeats

SUFFIXES = {".csv": ",", ".tsv": "\t", ".jsonl": ",", ".csv.gz": ",", ".tsv.gz": "\t", ".jsonl.gz": ","}
SUFFIXES |= {".parquet": ","}
"""Endings of data files, also in capitals, with their default separators, which only delimited files have."""
VALIDATION = ("validation", "dev", "val", "valid")
"""Names of the validation split in files with `{split}` in their path."""
FROM_TABLE = "use palslib.data.tasks.task_from_frame(table, name)"


# ------------------------------------------------------------------------------------------------------ where data lie


def ending(path: str | Path) -> str:
    """The ending of a file's name in small letters: `.csv`, `.csv.gz`."""
    path = Path(str(path).lower())
    return Path(path.stem).suffix + path.suffix if path.suffix == ".gz" else path.suffix


def separator_of(path: Path) -> str:
    """The separator that the ending of a data file stands for. Raises ValueError for another ending."""
    if ending(path) not in SUFFIXES:
        valid = f"{', '.join(SUFFIXES)}; pandas reads others: pd.read_excel({path.name!r}), then {FROM_TABLE}"
        raise ValueError(f"unknown ending {path.suffix!r} of {path.name}. Valid: {valid}")
    return SUFFIXES[ending(path)]


def locate(data: str | Path) -> str:
    """The location of a data source. A name such as `glue` means the folder of that name under $PALSLIB_DATA, if any;
    else `glue` means the Hub's nyu-mll/glue. Any other value stays as it is: a folder, a file, `synthetic` or a Hub id.
    A data file in the working folder takes precedence over one of that name under $PALSLIB_DATA.

    Raises FileNotFoundError, listing what exists, for a missing path, an unknown name, and any name where $PALSLIB_DATA
    is no folder. A path with `{split}` is not checked.
    """
    if not isinstance(data, (str, Path)):
        valid = f"for a table in memory, {FROM_TABLE}"
        raise ValueError(f"data must be a name or a path, not a {type(data).__name__}; {valid}")
    mirror, data = data_folder(), os.path.expanduser(str(data))
    names = {data.replace("{split}", split) for split in ("train", "test", *VALIDATION)}
    here = any(Path(name).is_file() for name in names)
    if mirror and not here and "/" not in data and data not in ("", ".", "..", "synthetic"):
        if any((mirror / name).exists() for name in names):
            return str(mirror / data)
        if not mirror.is_dir() and not Path(data).exists():
            raise FileNotFoundError(f"{data!r} is looked for in PALSLIB_DATA={mirror}, and there is no such folder")
    if data == "glue":
        return "nyu-mll/glue"
    if data == "synthetic" or "{split}" in data or (data and Path(data).exists()):
        return data
    of_hub = re.fullmatch(r"[\w.-]+/[\w.-]+", data) and ending(data) not in SUFFIXES
    if not of_hub or Path(data).parent.is_dir():
        raise missing(data)
    return data


def contents(folder: Path) -> str:
    """The names in a folder, for messages."""
    return listed(sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))) or "nothing"


def missing(source: str | Path, why: str = "") -> FileNotFoundError:
    """The error for a source that does not exist; it lists what there is: in the nearest folder above it that exists
    and, for a name by itself, elsewhere."""
    path, mirror = Path(source).absolute(), data_folder()
    folder = next(above for above in path.parents if above.is_dir())
    has = f"{folder} has: {contents(folder)}"
    hint = ""
    if "/" not in str(source):
        names = sorted(entry.name for entry in mirror.iterdir()) if mirror and mirror.is_dir() else []
        has += f"; PALSLIB_DATA={mirror} has: {listed(names)}" if mirror else "; PALSLIB_DATA names no folder"
        has += "; other names are synthetic, glue, and owner/name on the Hub"
        near = difflib.get_close_matches(str(source), ["synthetic", "glue", *names], n=1)
        hint = f": did you mean {near[0]!r}?" if near else ""
    return FileNotFoundError(f"no data file, folder or name {str(source)!r}{why}{hint or ';'} {has}")


# --------------------------------------------------------------------------------------------- repositories: `datasets`


def read_repository(data: str, name: str, split: str) -> pd.DataFrame:
    """One split of one configuration as a table, with classes by name. Raises FileNotFoundError where the folder lacks
    it, ConnectionError if the Hub is out of reach, ValueError for another number of rows than README.md says, and what
    `datasets` raises."""
    source = locate(data)
    folder, where = Path(source).absolute(), f"{source} {name}/{split}"
    try:
        loaded = _of_folder(folder, name, split) if folder.is_dir() else _of_hub(source, name, split)
        frame = _of_arrow(pa.concat_tables(loaded.with_format("arrow").iter(1 << 20)))
    except Exception as error:
        error.add_note(f"while reading {where}")
        raise
    described = (loaded.info.splits or {}).get(split)
    if described and described.num_examples not in (None, len(frame)):
        rows = f"{described.num_examples:,} rows, and the files have {len(frame):,}"
        raise ValueError(f"{where}: dataset_info in README.md says {rows}")
    return _by_name(frame, loaded.features)


def _of_folder(folder: Path, name: str, split: str):
    """A stream of a folder's rows as they are now: the cache that `datasets` otherwise makes of a folder keeps its old
    rows when the files change. Delimited files are refused, because `datasets` reads damaged ones in silence."""
    import datasets

    if any(sign in str(folder) for sign in ("*", "?", "[", "::")):
        raise ValueError("datasets takes *, ?, [ and :: in a folder's name for patterns: rename it")
    streamed = {"split": split, "streaming": True, "cache_dir": str(runs_folder() / "cache" / "datasets")}  # for locks
    described = (folder / "README.md").is_file()  # else all of the folder would be searched for files
    names = datasets.get_dataset_config_names(str(folder)) if described else []
    if name in names:
        loaded = datasets.load_dataset(str(folder), name, **streamed)
    elif names not in ([], ["default"]):
        raise unknown("task", name, names)
    elif files := sorted(path.name for path in (folder / name).glob(f"{glob.escape(split)}-*.parquet")):
        if {int(n) for n in re.findall(r"-of-(\d+)\.parquet", " ".join(files))} - {len(files)}:
            raise ValueError(f"{listed(files)}: by their names there should be more or fewer of them")
        loaded = datasets.load_dataset(str(folder / name), data_files={split: files}, **streamed)
    else:
        lacks = f"no README.md that names its files, and no files {name}/{split}-*.parquet"
        raise FileNotFoundError(f"{lacks}; {folder} has: {contents(folder)}")
    if (kind := loaded.info.builder_name) not in ("parquet", None):
        raise ValueError(f"its files are {kind}, not Parquet: give them by data='FOLDER/{{split}}.{kind}'")
    return loaded


def _of_hub(source: str, name: str, split: str):
    """A data set on the Hub, which `datasets` caches by its commit."""
    import datasets

    try:
        ask_the_hub(source, "dataset", "README.md")
        return datasets.load_dataset(source, name, split=split)
    except OSError as error:  # ConnectionError is one
        raise ConnectionError(
            f"could not reach {source!r} on the Hub for task {name!r} ({error}), and no folder or file has this name. "
            "Three things to try: data='synthetic', which needs no network; PALSLIB_DATA=FOLDER, where FOLDER/glue is "
            "a mirror; or the network, with HF_HUB_OFFLINE and HF_DATASETS_OFFLINE unset"
        ) from error


def _of_arrow(table: pa.Table) -> pd.DataFrame:
    """A table of Python values: pandas would turn whole numbers into fractions where one is missing."""
    columns = {i: pd.Series(column.to_pylist(), dtype=object) for i, column in enumerate(table.columns)}
    return pd.DataFrame(columns).set_axis(table.column_names, axis=1).rename_axis("row")


def _features(schema: pa.Schema) -> Mapping:
    """The features that `datasets` declares in a Parquet file that it writes, by column; none in another file."""
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    from datasets import Features

    return Features.from_arrow_schema(schema)


def _by_name(frame: pd.DataFrame, features: Mapping | None) -> pd.DataFrame:
    """The table with names in place of the numbers of classes, where a feature of `datasets` declares them; `attrs` has
    them in order. -1, which means no label there, becomes None, and a number without a name stays."""
    for column, feature in (features or {}).items():
        if names := getattr(feature, "names", None):
            places = dict(enumerate(names)) | {-1: None}
            cells = [places.get(cell, cell) if type(cell) is int else cell for cell in frame[column]]
            frame[column] = pd.Series(cells, frame.index, dtype=object)
            frame.attrs[f"classes of {column}"] = tuple(names)
    return frame


def as_frame(table, what: str = "the table") -> pd.DataFrame:
    """A DataFrame of pandas or polars, a pyarrow table, a `datasets.Dataset` (classes by name), a dict of columns or a
    list of dicts as a DataFrame. Raises ValueError for anything else, and where two columns have the same name."""
    if hasattr(table, "with_format"):  # of datasets
        table = _by_name(_of_arrow(table.with_format("arrow")[:]), table.features)
    elif hasattr(table, "__arrow_c_stream__") and not isinstance(table, (pd.DataFrame, pd.Series)):
        table = pa.table(table)
        table = _by_name(_of_arrow(table), _features(table.schema))
    elif isinstance(table, Mapping) or (isinstance(table, list) and all(isinstance(row, Mapping) for row in table)):
        table = pd.DataFrame(table)
    if not isinstance(table, pd.DataFrame):
        valid = "a DataFrame, a pyarrow.Table, a datasets.Dataset, a dict of columns or a list of dicts"
        raise ValueError(f"{what}: a table must be {valid}, not a {type(table).__name__}")
    if twice := table.columns[table.columns.duplicated()].tolist():
        raise ValueError(f"{what}: column {twice[0]!r} occurs twice; it has: {shown(list(table), 1000)}")
    return table


# ------------------------------------------------------------------------------------------------- files, read strictly


def read_table(path: Path, separator: str = ",", quoted: bool = True, encoding: str = "utf-8") -> pd.DataFrame:
    """Every cell of a file as text (`cell_text`), with classes by name where a Parquet file declares names. The index
    is the row's number from 0 in a Parquet file, else the line on which a row begins, as an editor counts; its name is
    `row` or `line`."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is a folder, a pipe or a device") if path.exists() else missing(path)
    if (kind := ending(path)).startswith(".xls"):
        separator_of(path)  # raises
    try:
        if kind == ".parquet":
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(path, page_checksum_verification=True)
            return _by_name(_of_arrow(table), _features(table.schema)).map(cell_text)
        with gzip.open(path) if kind.endswith(".gz") else path.open("rb") as file:
            content = file.read()
    except Exception as error:  # pyarrow, zlib and gzip have many for a damaged file
        raise ValueError(f"{path.name} cannot be read as a {kind} file: {error}") from error
    text = _decoded(path, content, encoding)
    frame = _read_lines(path, text) if ".jsonl" in kind else _read_delimited(path, text, separator, quoted)
    return frame.rename_axis("line")


def _decoded(path: Path, content: bytes, encoding: str) -> str:
    """The text of a file, without a byte order mark."""
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line, at = content.count(b"\n", 0, error.start) + 1, error.start - content.rfind(b"\n", 0, error.start)
        other = "cp1252" if encoding.lower() != "cp1252" else "latin-1"  # Windows has cp1252; latin-1 reads any byte
        marked = content[:2] in (b"\xff\xfe", b"\xfe\xff") and not encoding.lower().startswith("utf-16")
        other = "utf-16" if marked else other
        where = f"{path.name}, line {line}: not {encoding.upper()} at byte {at} of the line"
        raise ValueError(f"{where} (save it as UTF-8, or in Python give encoding={other!r})") from error


def _read_lines(path: Path, text: str) -> pd.DataFrame:
    """JSON Lines: each line is an object of columns. Numbers stay as they are written; a column that a line lacks is
    None there, and so not a text."""
    rows = {}
    for line, content in enumerate(text.split("\n"), start=1):
        if content.strip():
            try:
                hooks = {"parse_int": str, "parse_float": str, "parse_constant": lambda x: None if x == "NaN" else x}
                rows[line] = {**json.loads(content, object_pairs_hook=without_repeats, **hooks)}
            except (ValueError, TypeError, RecursionError) as error:
                raise ValueError(f"{path.name}, line {line}: not a JSON object of columns: {error}") from error
    columns = dict.fromkeys(name for row in rows.values() for name in row)
    if not columns:
        raise ValueError(f"{path.name}: the file is empty")
    if len(columns) * len(rows) > 1000 * sum(map(len, rows.values())):
        raise ValueError(f"{path.name}: nearly every line has columns of its own, {len(columns):,} in all")
    cells = {name: [cell_text(row[name]) if name in row else None for row in rows.values()] for name in columns}
    return pd.DataFrame(cells, index=list(rows), dtype=object)


def _read_delimited(path: Path, text: str, separator: str, quoted: bool) -> pd.DataFrame:
    rows, lines, last = [], [], 0
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    whole = io.StringIO(text.rstrip("\r\n"), newline="")  # empty lines at the end are no rows
    reader = csv.reader(whole, delimiter=separator, strict=True, quoting=quoting)
    csv.field_size_limit(1 << 30)  # characters of a cell, by default 131,072, for all threads of the process
    try:
        for row in reader:  # a quoted cell may hold line breaks: a row begins after the end of the one before
            if row or (rows and len(rows[0]) == 1):  # in a file of one column an empty line is an empty cell
                rows.append(row or [""])
                lines.append(last + 1)
            last = reader.line_num
    except csv.Error as error:
        doubt = _doubt(text.partition("\n")[0].rstrip("\r").split(separator), separator)
        raise ValueError(f"{path.name}, line {last + 1}: {error}{doubt or _UNQUOTED}") from error
    if not rows:
        raise ValueError(f"{path.name}: the file is empty")
    header, *rows = rows
    for row, line in zip(rows, lines[1:], strict=True):
        if separator == "\t" and any("\t" in cell and "\n" in cell for cell in row):
            why = "a quotation mark opens a cell here and closes it lines later"
            raise ValueError(f"{path.name}, line {line}: {why}{_UNQUOTED}")
        if len(row) != len(header):
            why = f"{len(row)} cells, but the header has {len(header)}: {shown(header)}{_doubt(header, separator)}"
            raise ValueError(f"{path.name}, line {line}: {why}")
    return pd.DataFrame(rows, index=lines[1:], columns=header, dtype=object)


_UNQUOTED = ". If quotation marks are part of the texts, as in GLUE's own files, give quoted=False in Python"


def _doubt(columns: Sequence[str], separator: str) -> str:
    """A hint for messages if the header seems to be separated by another character than the given one."""
    line = separator.join(map(str, columns))
    likely = max((other for other in ",;\t|" if other != separator), key=line.count)
    if line.count(likely) <= line.count(separator):
        return ""
    return f" (is its separator {separator!r}? the first line looks separated by {likely!r}: separator={likely!r})"


# ------------------------------------------------------------------------------------------------------ cells, checked


def cell_text(cell: object) -> object:
    """A cell as text: a missing one becomes an empty text; bytes, lists and other things that are not a single value
    stay as they are, and are refused where they are used."""
    if isinstance(cell, (str, bytes)) or not pd.api.types.is_scalar(cell):
        return cell
    return "" if pd.isna(cell) else str(cell)


_NO_TEXT = re.compile("[\0\ud800-\udfff]")


def is_text(cell: object) -> bool:
    """Whether a cell is a text that a tokenizer can read: no NUL, no half of a character (a lone surrogate)."""
    return isinstance(cell, str) and not _NO_TEXT.search(cell)


_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?\s*", re.ASCII)


def number_of(text: object) -> Decimal | None:
    """The exact number that a text writes in decimal notation; None for any other value (`1_0`, `nan`, `²`)."""
    return Decimal(text.strip()) if isinstance(text, str) and _NUMBER.fullmatch(text) else None


def class_numbers(cells: Sequence, labels: Sequence[str], places: bool) -> list[int | None]:
    """Each cell's class by number, None for a cell that is not a label. A cell is the name of a class, where numbers
    may be written in several ways (`1`, `1.0` and `01` are the class "1"). Only with `places` is a number also a
    class's place: the order of a list that nobody declared means nothing."""
    exact = {name: i for i, name in enumerate(labels)}
    numbers = [number_of(name) for name in labels]
    written = {number: i for i, number in enumerate(numbers) if numbers.count(number) == 1}
    written |= {Decimal(i): i for i in exact.values()} if places else {}
    written[None] = None  # a cell that is not a number, and not the name of a class
    return [exact.get(cell, written.get(number_of(cell))) if isinstance(cell, str) else None for cell in cells]


def labelled(frame: pd.DataFrame, task, where: str) -> pd.DataFrame:
    """A table without the rows that the `skip_unlabelled` of a `tasks.Task` leaves out, which a warning lists. Raises
    ValueError if it lacks a column of the task."""
    for column in (*task.texts, task.label):
        check_column(frame, column, task, where)
    if not task.skip_unlabelled:
        return frame
    none = {""} | (set() if task.skip_unlabelled is True else set(task.skip_unlabelled))
    numbers = {number_of(word) for word in none} - {None}  # pandas writes a column of -1, 0 and a missing cell as -1.0
    cells = [str(cell_text(cell)).strip() for cell in frame[task.label]]
    without = np.array([cell in none or number_of(cell) in numbers for cell in cells], dtype=bool)
    if without.any():
        rows = f"{frame.index.name}s {listed(frame.index[without])}"
        warnings.warn(f"{where}: rows without a label left out ({rows})", stacklevel=3)
    return frame[~without]


def check_column(frame: pd.DataFrame, column: str, task, where: str) -> None:
    """Raises ValueError, listing the columns, if a column of a `tasks.Task` is missing or comes twice; where it is
    missing, it says how another column is named, with the nearest match."""
    if (count := list(frame).count(column)) == 1:
        return
    message = f"{where}: {count or 'no'} column{'s' if count else ''} {column!r} for task {task.name!r}"
    message += f"; it has: {shown(list(frame), 1000)}"
    texts, (label,) = _nearest(task.texts, frame), _nearest([task.label], frame)
    if doubt := _doubt(list(frame), task.separator):
        message += doubt
    elif not count and column == task.label:
        shell = f'--label {shlex.quote(label)}; in --own "label": "{label}"'
        message += f": give label={label!r} (with palslib evaluate {shell})"
    elif not count and column in task.texts:
        text, own = texts if len(texts) > 1 else texts[0], json.dumps(texts, ensure_ascii=False)
        message += f': give text={text!r} (with palslib predict --text {shlex.join(texts)}; in --own "texts": {own})'
    raise ValueError(message)


def _nearest(names: Sequence[str], frame: pd.DataFrame) -> list[str]:
    """For each name the column of that name, else the one of the nearest name that no other takes, or `...`."""
    free, columns = {str(column).lower(): str(column) for column in frame if column not in names}, []
    for name in names:
        near = difflib.get_close_matches(name.lower(), free, n=1, cutoff=0.5)
        columns.append(name if name in frame else free.pop(near[0]) if near else "...")
    return columns


def refuse_cells(bad: Sequence[bool], frame: pd.DataFrame, column: str, why: str, where: str) -> None:
    """Raises ValueError for the first bad cell of a column, with its place and value."""
    if (bad := np.array(bad, dtype=bool)).any():
        first, unit = bad.argmax(), frame.index.name or "row"
        number = f"{frame.index[first]}" + (" (the first is 0)" if unit == "row" else "")
        value = shown(frame[column].tolist()[first])
        raise ValueError(f"{where}, {unit} {number}, column {column!r}: {value} {why}")


def check_texts(frame: pd.DataFrame, task, where: str) -> None:
    """Raises ValueError if a text column of a `tasks.Task` is missing or has a cell that is not a text."""
    for column in task.texts:
        check_column(frame, column, task, where)
        refuse_cells([not is_text(x) for x in frame[column]], frame, column, "is not a text", where)


def checked(frame: pd.DataFrame, task, where: str, places: bool = False) -> pd.DataFrame:
    """The task's texts and numeric `label` of the rows that have one, with every cell checked; `frame.index.name` says
    what its index counts.

    Args:
        places: whether numbers are places of classes (see `class_numbers`).
    """
    frame = labelled(frame, task, where)
    check_texts(frame, task, where)
    cells = [cell_text(cell) for cell in frame[task.label]]
    if task.is_regression:
        exact = [number_of(cell) for cell in cells]
        numbers = np.array([float("nan" if number is None else number) for number in exact])
        refuse_cells(~(np.abs(numbers) <= np.finfo("float32").max), frame, task.label, "is not a finite number", where)
        if task.head == "cosine":
            refuse_cells(np.abs(numbers - 2.5) > 2.5, frame, task.label, "is not a score from 0 to 5", where)
    else:
        numbers = class_numbers(cells, task.labels, places)
        why = f"is not a label (valid: {listed(task.labels)}{', or their numbers from 0' if places else ''})"
        if not places and not any(number_of(name) is not None for name in task.labels):
            why += "; for labels that are numbers in the file give them as it writes them, such as labels=('0', '1')"
        refuse_cells([number is None for number in numbers], frame, task.label, why, where)
    table = pd.DataFrame({column: frame[column] for column in task.texts})  # without `attrs`
    table["label"] = np.array(numbers, dtype="float32" if task.is_regression else "int64")
    return table
