"""The sources of a task's table: a repository laid out like nyu-mll/glue, on the Hub or in a folder, which `datasets`
reads; or a file of a kind in `SUFFIXES`, read strictly. And checks of the table, whose errors name file, row and
column.

Where a source declares names of classes (the ClassLabel of `datasets`), its table has these names, not their numbers.
"""

import csv
import difflib
import gzip
import hashlib
import io
import json
import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from palslib.common.names import check_name, listed, shown, unknown
from palslib.common.places import data_folder, runs_folder
from palslib.common.reading import without_repeats

SUFFIXES = {".csv": ",", ".tsv": "\t", ".jsonl": ",", ".csv.gz": ",", ".tsv.gz": "\t", ".jsonl.gz": ","}
SUFFIXES |= {".parquet": ","}
"""Endings of data files, also in capitals, with their default separators, which only delimited files have."""
_LONGEST = 1 << 30
"""The most characters of a cell; by default Python's csv stops at 131,072."""


def ending(path: str | Path) -> str:
    """The ending of a file's name in small letters: `.csv`, `.csv.gz`."""
    path = Path(str(path).lower())
    return Path(path.stem).suffix + path.suffix if path.suffix == ".gz" else path.suffix


def stem(path: Path) -> str:
    """A file's name without its ending."""
    return path.name[: len(path.name) - len(ending(path))]


def separator_of(path: Path) -> str:
    """The separator that the ending of a data file stands for. Raises ValueError for another ending."""
    if ending(path) not in SUFFIXES:
        about = "other formats that pandas reads become tasks by task_from_frame(pd.read_...(...), name)"
        raise ValueError(f"unknown ending {path.suffix!r} of {path.name}. Valid: {', '.join(SUFFIXES)}; {about}")
    return SUFFIXES[ending(path)]


def data_files(folder: Path) -> list[Path]:
    """The data files in a folder, sorted; none where there is no such folder."""
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in paths if ending(path) in SUFFIXES and path.is_file()]


def locate(data: str | Path) -> str:
    """The location of a data source. A name such as `glue` means the folder of that name under $PALSLIB_DATA, if any;
    else `glue` means the Hub's nyu-mll/glue. Any other value stays as it is: a folder, a file, `synthetic` or a Hub id.
    A data file in the working folder takes precedence over one of that name under $PALSLIB_DATA.

    Raises FileNotFoundError, listing what exists, for a missing path: a value that is absolute, begins with a dot or ~,
    ends like a data file, has several slashes or lies in an existing folder. A path with `{split}` is not checked.
    """
    if not isinstance(data, (str, Path)):
        about = "a table in memory becomes a task with task_from_frame(table, name)"
        raise ValueError(f"data must be a name or a path, not a {type(data).__name__}; {about}")
    mirror, data = data_folder(), os.path.expanduser(str(data))
    if not data.strip() or "\0" in data:  # an empty path would be the working folder
        raise no_source(data)
    names = {data.replace("{split}", split) for split in ("train", "validation", "dev", "test")}
    own = ending(Path(data)) in SUFFIXES and any(Path(name).is_file() for name in names)
    if mirror and not own and "/" not in data and data not in (".", "..") and any((mirror / n).exists() for n in names):
        return str(mirror / data)
    if data == "glue":
        return "nyu-mll/glue"
    path = Path(data)
    only = path.is_absolute() or data.startswith((".", "~")) or ending(path) in SUFFIXES or data.count("/") > 1
    only = only or (path.parent != Path() and path.parent.is_dir())
    if path.exists() and not (path.is_file() or path.is_dir()):  # reading a pipe or a device might never end
        raise ValueError(f"{data} is neither a file nor a folder")
    if only and "{split}" not in data and not path.exists():
        raise missing(path)
    return data


def contents(folder: Path) -> str:
    """The names in a folder, for messages."""
    return listed(sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))) or "nothing"


def missing(path: Path, about: str = "") -> FileNotFoundError:
    """The error for a missing file or folder; it lists what the nearest existing folder above it has."""
    if path.exists():
        return FileNotFoundError(f"{path} is a {'folder' if path.is_dir() else 'pipe or a device'}, not a file{about}")
    folder = next(above for above in path.absolute().parents if above.is_dir())
    what = "file" if ending(path) in SUFFIXES else "folder or file"
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
    """The file in a folder that matches a pattern, or None; the one with the shortest name if several match."""
    folder = Path(locate(data))
    files = (path for path in sorted(folder.glob(pattern)) if path.is_file())
    return min(files, key=lambda path: len(path.name), default=None)


def read_repository(data: str, name: str, split: str) -> pd.DataFrame:
    """One split of one configuration as a table, with classes by name. Raises ValueError, FileNotFoundError where the
    folder lacks it, ConnectionError if the Hub is out of reach."""
    source = locate(data)
    folder, where = Path(source).absolute(), f"{source} {name}/{split}"
    try:
        loaded = _of_folder(folder, name, split) if folder.is_dir() else _of_hub(source, name, split)
        cells = pa.concat_tables(loaded.with_format("arrow").iter(1 << 20)).to_pydict()
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{where}: {error}; {source} has: {contents(folder)}") from error
    except ConnectionError:
        raise
    except Exception as error:  # datasets, yaml and pyarrow have many
        raise ValueError(f"{where}: {error}") from error
    frame, said = pd.DataFrame(cells, dtype=object).rename_axis("row"), (loaded.info.splits or {}).get(split)
    if said and said.num_examples not in (None, len(frame)):
        rows = f"{said.num_examples:,} rows, and the files have {len(frame):,}"
        raise ValueError(f"{where}: dataset_info in README.md says {rows}")
    return _by_name(frame, loaded.features)


def _of_folder(folder: Path, name: str, split: str):
    """A stream of a folder's rows as they are now: the cache that `datasets` otherwise makes of a folder keeps its old
    rows when the files change. Delimited files are refused, because `datasets` reads damaged ones in silence."""
    import datasets

    if any(sign in str(folder) for sign in ("*", "?", "[", "::")):
        raise ValueError("datasets takes *, ?, [ and :: in a folder's name for patterns: rename it")
    streamed = {"split": split, "streaming": True, "cache_dir": str(runs_folder() / "cache" / "datasets")}  # for locks
    names = datasets.get_dataset_config_names(str(folder))
    if name in names:
        loaded = datasets.load_dataset(str(folder), name, **streamed)
    elif names != ["default"]:
        raise unknown("task", name, names)
    elif files := sorted(path.name for path in (folder / name).glob(f"{split}-*.parquet")):
        loaded = datasets.load_dataset(str(folder / name), data_files={split: files}, **streamed)
    else:
        raise FileNotFoundError(f"no README.md that names its files, and no files {name}/{split}-*.parquet")
    if (kind := loaded.info.builder_name) not in ("parquet", None):
        raise ValueError(f"its files are {kind}, not Parquet: give them by data='FOLDER/{{split}}.{kind}'")
    return loaded


def _of_hub(source: str, name: str, split: str):
    """A data set on the Hub, which `datasets` caches by its commit."""
    import datasets

    if "/" not in source or re.search(r"[^\w./-]", source):  # the Hub's names have an owner, and no patterns
        raise no_source(source)
    try:
        return datasets.load_dataset(source, name, split=split)
    except OSError as error:  # ConnectionError is one
        raise ConnectionError(
            f"could not reach {source!r} on the Hub for task {name!r} ({error}), and no folder or file has this name. "
            "Three things to try: data='synthetic', which needs no network; PALSLIB_DATA=FOLDER, where FOLDER/glue is "
            "a mirror; or the network, with HF_HUB_OFFLINE and HF_DATASETS_OFFLINE unset"
        ) from error


def _by_name(frame: pd.DataFrame, features: Mapping | None) -> pd.DataFrame:
    """The table with names in place of the numbers of classes, in columns whose feature declares names; -1, which means
    no label there, becomes None, and a number without a name stays."""
    for column, feature in (features or {}).items():
        if names := getattr(feature, "names", None):
            places = dict(enumerate(names)) | {-1: None}
            cells = [places.get(cell, cell) if type(cell) is int else cell for cell in frame[column]]
            frame[column] = pd.Series(cells, frame.index, dtype=object)
    return frame


def declared(path: Path) -> Mapping:
    """The features that a Parquet file written by `datasets` declares, by column; none for another file."""
    import pyarrow.parquet

    schema = pyarrow.parquet.read_schema(path) if ending(path) == ".parquet" else pa.schema([])
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    from datasets import Features

    return Features.from_arrow_schema(schema)


def _doubt(columns: Sequence[str], separator: str) -> str:
    """A hint for messages if the header seems to be separated by another character than the given one."""
    line = separator.join(map(str, columns))
    likely = max((other for other in ",;\t|" if other != separator), key=line.count)
    if line.count(likely) <= line.count(separator):
        return ""
    return f" (is its separator {separator!r}? the first line looks separated by {likely!r}: separator={likely!r})"


_UNREADABLE = (pa.ArrowException, OSError, EOFError, zlib.error)
"""What libraries raise for a damaged file."""


def read_table(path: Path, separator: str = ",", quoted: bool = True, encoding: str = "utf-8") -> pd.DataFrame:
    """Every cell of a file as text (`cell_text`), with classes by name where a Parquet file declares names. The index
    is the row's number from 0 in a Parquet file, else the line on which a row begins, as an editor counts; its name is
    `row` or `line`."""
    if not path.is_file():
        raise missing(path)
    kind = ending(path)
    try:
        if kind == ".parquet":
            return _read_parquet(path)
        with gzip.open(path) if kind.endswith(".gz") else path.open("rb") as file:
            content = file.read()
    except _UNREADABLE as error:
        raise ValueError(f"{path.name} cannot be read as a {kind} file: {error}") from error
    text = _decoded(path, content, encoding)
    frame = _read_lines(path, text) if ".jsonl" in kind else _read_delimited(path, text, separator, quoted)
    return frame.rename_axis("line")


def _read_parquet(path: Path) -> pd.DataFrame:
    """Cells become Python values before they become texts, so that whole numbers stay exact."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path, page_checksum_verification=True)
    columns = {i: pd.Series(column.to_pylist(), dtype=object) for i, column in enumerate(table.columns)}
    frame = pd.DataFrame(columns).set_axis(table.column_names, axis=1).rename_axis("row")
    return _by_name(frame, declared(path)).map(cell_text)


def _decoded(path: Path, content: bytes, encoding: str) -> str:
    """The text of a file, without a byte order mark."""
    try:
        text = content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line, at = content.count(b"\n", 0, error.start) + 1, error.start - content.rfind(b"\n", 0, error.start)
        other = "cp1252" if encoding.lower() != "cp1252" else "latin-1"  # Windows has cp1252; latin-1 reads any byte
        marked = content[:2] in (b"\xff\xfe", b"\xfe\xff") and not encoding.lower().startswith("utf-16")
        other = "utf-16" if marked else other
        about = f"not {encoding.upper()} at byte {at} of the line (give its real encoding, as in encoding={other!r})"
        raise ValueError(f"{path.name}, line {line}: {about}") from error
    if "\0" in text:  # UTF-16 without a mark, or no text at all; other control characters occur in real texts
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(f"{path.name}, line {line}: a NUL byte, as in UTF-16 (then give encoding='utf-16')")
    return text


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


def cell_text(cell: object) -> object:
    """A cell as text: a missing one becomes an empty text; bytes, lists and other things that are not a single value
    stay as they are, and are refused where they are used."""
    if isinstance(cell, (str, bytes)) or not pd.api.types.is_scalar(cell):
        return cell
    return "" if pd.isna(cell) else str(cell)


def as_frame(table, what: str = "the table") -> pd.DataFrame:
    """A DataFrame, a `datasets.Dataset`, a dict of columns or a list of dicts as a DataFrame. Raises ValueError for
    anything else, and where two columns have the same name or a name is not a text."""
    if not isinstance(table, pd.DataFrame):
        of_dicts = isinstance(table, Sequence) and all(isinstance(row, Mapping) for row in table)
        if not (isinstance(table, Mapping) or hasattr(table, "column_names") or of_dicts):
            valid = "a DataFrame, a datasets.Dataset, a dict of columns or a list of dicts"
            raise ValueError(f"{what}: a table must be {valid}, not a {type(table).__name__}")
        try:
            features = getattr(table, "features", None)
            table = _by_name(pd.DataFrame(table.to_dict() if hasattr(table, "column_names") else table), features)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{what}: this {type(table).__name__} cannot be read as a table: {error}") from error
    if wrong := [column for column in table if not isinstance(column, str) or list(table).count(column) > 1]:
        why = f"column {wrong[0]!r} occurs twice, or its name is not a string"
        raise ValueError(f"{what}: {why}; it has: {shown(list(table), 1000)}")
    return table


def _read_delimited(path: Path, text: str, separator: str, quoted: bool) -> pd.DataFrame:
    rows, lines, last, filled = [], [], 0, 0
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, quoting=quoting)
    before = csv.field_size_limit(_LONGEST)
    try:
        for row in reader:  # a quoted cell may hold line breaks: a row begins after the end of the one before
            if row or (rows and len(rows[0]) == 1):  # in a file of one column an empty line is an empty cell
                rows.append(row or [""])
                lines.append(last + 1)
                filled = len(rows) if row else filled  # except those at the end of the file
            last = reader.line_num
    except csv.Error as error:
        doubt = _doubt(text.partition("\n")[0].rstrip("\r").split(separator), separator)
        raise ValueError(f"{path.name}, line {last + 1}: {error}{doubt or _UNQUOTED}") from error
    finally:
        csv.field_size_limit(before)
    if not rows:
        raise ValueError(f"{path.name}: the file is empty")
    (header, *rows), lines = rows[:filled], lines[1:filled]
    for row, line in zip(rows, lines, strict=True):
        if separator == "\t" and any("\t" in cell and "\n" in cell for cell in row):
            about = "a quotation mark opens a cell here and closes it lines later"
            raise ValueError(f"{path.name}, line {line}: {about}{_UNQUOTED}")
        if len(row) != len(header):
            about = f"{len(row)} cells, but the header has {len(header)}: {shown(header)}{_doubt(header, separator)}"
            raise ValueError(f"{path.name}, line {line}: {about}")
    return pd.DataFrame(rows, index=lines, columns=header, dtype=object)


_UNQUOTED = ". If quotation marks are part of the texts, as in GLUE's own files, give quoted=False"


def labelled(frame: pd.DataFrame, task, name: str) -> pd.DataFrame:
    """A table without the rows whose label is empty or missing, if the `tasks.Task` has `skip_unlabelled`."""
    if not task.skip_unlabelled or list(frame).count(task.label) != 1:  # another number of columns is refused later
        return frame
    cells = frame[task.label]
    without = cells.isna() | (cells.astype(str).str.strip() == "")
    if without.any():
        at = f"{frame.index.name}s {listed(frame.index[without])}"
        warnings.warn(f"{name}: rows without a label left out ({at})", stacklevel=3)
    return frame[~without]


def groups_of(columns: Sequence[Iterable]) -> np.ndarray:
    """(N,) The group of each row, as a hash of its texts: rows that share a text, in any column, are in one group, and
    so are those connected through others. So a group's rows say nothing about those of another one. Texts are equal if
    an uncased BERT reads the same words. No pairs are connected by an empty text, or by one of a twentieth of all rows,
    such as a topic."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    plain, words_of = BertNormalizer().normalize_str, BertPreTokenizer().pre_tokenize_str
    cells = [cell if is_text(cell) else "" for column in columns for cell in column]
    read = {cell: " ".join(word for word, _ in words_of(plain(cell))) for cell in set(cells)}
    number, texts = pd.factorize(np.array([read[cell] for cell in cells], dtype=object))
    first, last = number.reshape(len(columns), -1)[[0, -1]]  # (N,) each: the same where there is one column
    many = np.bincount(number, minlength=len(texts)) > max(5, len(first) / 20)
    weak = (texts == "") | (many & (len(columns) > 1))
    first, last = np.where(weak[first], last, first), np.where(weak[last], first, last)
    links = coo_array((np.ones(len(first)), (first, last)), shape=(len(texts), len(texts)))
    count, group = connected_components(links, directed=False)
    least = np.full(count, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(least, group, pd.util.hash_array(texts, categorize=False))
    return pd.util.hash_array(least)[group[first]]  # hashed again: the least of many hashes is small


def share(groups: np.ndarray, rows: int) -> np.ndarray:
    """(N,) Which rows are in a part of `rows` rows, if the groups allow: whole groups that fit, by their hashes."""
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    taken = np.zeros(len(sizes), dtype=bool)
    for i, size in enumerate(sizes.tolist()):
        if size <= rows:
            taken[i], rows = True, rows - size
    return taken[group]


def part(groups: np.ndarray, split: str) -> np.ndarray:
    """(N,) Which rows of a file are in a split, 80/10/10, by the rows' groups."""
    tenth = round(len(groups) / 10)
    parts = np.where(share(groups, tenth), "validation", "train")
    rest = np.flatnonzero(parts == "train")
    parts[rest[share(~groups[rest], tenth)]] = "test"  # from the other end: a few rows more exchange no test rows
    return parts == check_name("split", split, ("train", "validation", "test"))


HELD_OUT, KEPT = "held-out part of train", "train without held-out part"
"""The two parts of a task's training rows when settings are chosen by scores on rows that no reported score uses, as in
the recorded runs: split by first texts alone, so that some pairs are in both, turned round."""
HELD_OUT_GROUPS, KEPT_GROUPS = "held-out groups of train", "train without held-out groups"
"""The same, split by connected groups of texts (`groups_of`)."""


def held_out(frame: pd.DataFrame, texts: Sequence[str], by_groups: bool) -> np.ndarray:
    """(N,) Which training rows are held out, about a tenth."""
    if by_groups:
        return share(groups_of([frame[column] for column in texts]), round(len(frame) / 10))
    hashes = (hashlib.sha256(text.strip().encode()).digest() for text in frame[texts[0]])
    return np.array([each[1] * 10 < 256 for each in hashes], dtype=bool)


def check_column(frame: pd.DataFrame, column: str, task, where: str) -> None:
    """Raises ValueError, listing the columns, if a column of a `tasks.Task` is missing or comes twice; where it is
    missing, it says how another column is named, with the nearest match."""
    if (count := list(frame).count(column)) == 1:
        return
    what = f"{count or 'no'} column{'s' * (count > 1)} {column!r} for task {task.name!r}"
    has = f"it has: {shown(list(frame), 1000)}"
    if doubt := _doubt(list(frame), task.separator):
        has += doubt
    elif not count and column in (*task.texts, task.label):
        near = difflib.get_close_matches(column, [*map(str, frame)], n=1, cutoff=0.5) or ["..."]
        mine = [near[0] if name == column else name for name in task.texts]
        has += f": give label={near[0]!r}" if column == task.label else f": give text={mine if mine[1:] else mine[0]!r}"
    raise ValueError(f"{where}: {what}; {has}")


def refuse_cells(bad: Sequence[bool], frame: pd.DataFrame, column: str, why: str, where: str) -> None:
    """Raises ValueError for the first bad cell of a column, with its place and value."""
    if (bad := np.array(bad, dtype=bool)).any():
        count = frame.index.name or "row"
        place = f"{frame.index[bad.argmax()]}" + (" (the first is 0)" if count == "row" else "")
        value = frame[column].tolist()[bad.argmax()]
        raise ValueError(f"{where}, {count} {place}, column {column!r}: {shown(value)} {why}")


def is_text(cell: object) -> bool:
    """Whether a cell is a text that a tokenizer can read: no NUL, no half of a character (a lone surrogate)."""
    return isinstance(cell, str) and "\0" not in cell and not any("\ud800" <= c <= "\udfff" for c in cell)


def check_texts(frame: pd.DataFrame, task, where: str) -> None:
    """Raises ValueError if a text column of a `tasks.Task` is missing or has a cell that is not a text."""
    for column in task.texts:
        check_column(frame, column, task, where)
    for column in task.texts:
        refuse_cells([not is_text(x) for x in frame[column]], frame, column, "is not a text", where)


_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?\s*", re.ASCII)


def number_of(text: object) -> Decimal | None:
    """The exact number that a text writes in decimal notation; None for any other value (`1_0`, `nan`, `²`)."""
    return Decimal(text.strip()) if isinstance(text, str) and _NUMBER.fullmatch(text) else None


def class_numbers(labels: Sequence[str], places: bool) -> Callable[[object], int | None]:
    """A function from a cell to its class's number, None for a cell that is not a label. A cell is the name of a class,
    where numbers may be written in several ways (`1`, `1.0` and `01` are the class "1"). Only with `places` is a number
    also a class's place: the order of a list that nobody declared means nothing."""
    exact, numbers = {name: i for i, name in enumerate(labels)}, [number_of(name) for name in labels]
    named = {number: i for i, number in enumerate(numbers) if number is not None and numbers.count(number) == 1}
    if places:
        named |= {Decimal(i): i for i in range(len(labels))}
    return lambda cell: exact.get(cell, named.get(number_of(cell))) if isinstance(cell, str) else None


def checked(frame: pd.DataFrame, task, where: str, places: bool = False) -> pd.DataFrame:
    """The task's texts and numeric `label`, with every cell checked; `frame.index.name` says what its index counts.

    Args:
        places: whether numbers are places of classes (see `class_numbers`).
    """
    check_texts(frame, task, where)
    check_column(frame, task.label, task, where)
    cells = [cell_text(cell) for cell in frame[task.label]]
    if task.is_regression:
        numbers = pd.Series([x if isinstance(x, str) else None for x in cells], dtype=object)
        numbers = pd.to_numeric(numbers, errors="coerce").to_numpy("float64", copy=True)
        finite = np.abs(numbers) <= np.finfo("float32").max
        refuse_cells(~finite, frame, task.label, "is not a finite number", where)
        if task.head == "cosine":
            refuse_cells(np.abs(numbers - 2.5) > 2.5, frame, task.label, "is not a score from 0 to 5", where)
    else:
        number_in = class_numbers(task.labels, places)
        numbers = [number_in(cell) for cell in cells]
        valid = f"is not a label (valid: {listed(task.labels)}{', or their numbers from 0' if places else ''})"
        if any(number is None and number_of(cell) is not None for number, cell in zip(numbers, cells, strict=True)):
            valid += "" if places else ". A number is a place among them only where the source declares their names"
        refuse_cells([number is None for number in numbers], frame, task.label, valid, where)
    table = frame[list(task.texts)].copy()
    table["label"] = np.array(numbers, dtype="float32" if task.is_regression else "int64")
    return table
