"""The sources of a task's table: a repository laid out like nyu-mll/glue, on the Hub or in a folder, or a file of any
kind in `SUFFIXES`; and checks of the table, whose errors name file, row and column."""

from __future__ import annotations

import csv
import glob
import gzip
import hashlib
import io
import json
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path

from palslib.common.later import np, pa, pd
from palslib.common.names import check_name, listed, shown, unknown
from palslib.common.places import data_folder
from palslib.common.reading import without_repeats

SUFFIXES = {".csv": ",", ".tsv": "\t", ".jsonl": ",", ".csv.gz": ",", ".tsv.gz": "\t", ".jsonl.gz": ","}
SUFFIXES |= {".parquet": ",", ".xlsx": ","}
"""Endings of data files, also in capitals, with their default separators, which only delimited files have."""
MOST_BYTES = 2 << 30
"""The largest size of a compressed file when expanded: one megabyte can expand to more than any memory holds."""
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


def read_repository(data: str, name: str, split: str, label: str = "label") -> tuple[pd.DataFrame, list[str] | None]:
    """One split of one configuration as a table, and the names of the label's classes if the repository has them."""
    source = locate(data)
    folder = Path(source)  # may not exist: a name on the Hub
    if not folder.is_dir():
        return _from_hub(source, name, split, label)
    where = f"{source} {name}/{split}"
    about = _described(folder, name, where)
    if not about and not (folder / name).is_dir():
        about = f"neither a folder {name!r} nor a README.md that names its files"
        raise FileNotFoundError(f"{source} has no data of task {name!r}, {about}; it has: {contents(folder)}")
    patterns = about.get("files", {}).get(split, []) if about else [f"{name}/{glob.escape(split)}-*.parquet"]
    for pattern in patterns:
        if not isinstance(pattern, str) or Path(pattern).is_absolute() or ".." in Path(pattern).parts or ":" in pattern:
            raise ValueError(f"{where}: README.md names a file outside the folder, which is not read: {shown(pattern)}")
    try:
        paths = [path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file()]
    except ValueError as error:
        raise ValueError(f"{where}: README.md names files by {patterns}: {error}") from error
    if not paths:
        splits = listed(about.get("files", {})) if about else contents(folder / name)
        raise ValueError(f"{where}: there is no file of this split; there are: {splits}")
    frames, names = [], about.get("names", {}).get(label)
    for path in paths:
        at = path.relative_to(folder)
        try:
            if ending(path) == ".parquet":
                frames.append(_read_parquet(path))
                names = names or _names_in(path, label)
            else:
                frames.append(read_table(path, separator_of(path)))
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{where}: {at} cannot be read: {error}") from error
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    frame = pd.concat(frames, ignore_index=True).rename_axis("row")
    if (said := about.get("rows", {}).get(split, len(frame))) != len(frame):
        raise ValueError(f"{where}: dataset_info in README.md says {said:,} rows, and the files have {len(frame):,}")
    return frame, names


def _from_hub(source: str, name: str, split: str, label: str) -> tuple[pd.DataFrame, list[str] | None]:
    """The same as `read_repository`, from the Hub."""
    import datasets

    if "/" not in source or re.search(r"[^\w./-]", source):  # the Hub's names have an owner, and no patterns
        raise no_source(source)
    try:
        loaded = datasets.load_dataset(source, name, split=split)
    except OSError as error:  # ConnectionError is one
        raise ConnectionError(
            f"could not reach {source!r} on the Hub for task {name!r} ({error}), and no folder or file has this name. "
            "Three things to try: data='synthetic', which needs no network; PALSLIB_DATA=FOLDER, where FOLDER/glue is "
            "a mirror; or the network, with HF_HUB_OFFLINE and HF_DATASETS_OFFLINE unset"
        ) from error
    except (datasets.exceptions.DatasetsError, pa.ArrowException, ValueError, TypeError) as error:
        raise ValueError(f"{source} {name}/{split}: {error}") from error
    return loaded.to_pandas().rename_axis("row"), getattr(loaded.features.get(label), "names", None)


def _described(folder: Path, name: str, where: str) -> dict:
    """What the head of a folder's README.md says about a configuration: `files` by split, `names` of the classes by
    column, numbers of `rows` by split. Empty if it describes no configurations."""
    import yaml

    if not (folder / "README.md").is_file():
        return {}
    head = re.match(r"---\n(.*?)\n---", (folder / "README.md").read_text("utf-8-sig", errors="replace"), re.DOTALL)
    try:
        about = yaml.safe_load(head[1]) if head else {}
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{where}: the head of README.md is not valid YAML: {error}") from error
    try:
        configs = {one["config_name"]: one["data_files"] for one in about.get("configs", [])}
        if not configs:
            return {}
        files: dict[str, list] = {}
        given = configs.get(name, {})
        given = given.items() if isinstance(given, dict) else [(one["split"], one["path"]) for one in given]
        for split, paths in given:
            files.setdefault(split, []).extend(paths if isinstance(paths, list) else [paths])
        infos = about.get("dataset_info", [])
        infos = [one for one in (infos if isinstance(infos, list) else [infos]) if one.get("config_name", name) == name]
        kinds = {f["name"]: f.get("dtype") for one in infos for f in one.get("features", [])}
        classes = {column: kind["class_label"]["names"] for column, kind in kinds.items() if isinstance(kind, dict)}
        names = {c: [n[k] for k in sorted(n, key=int)] if isinstance(n, dict) else [*n] for c, n in classes.items()}
        rows = {one["name"]: int(one["num_examples"]) for info in infos for one in info.get("splits", [])}
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{where}: the head of README.md does not describe data files: {error!r}") from error
    if name not in configs:
        raise ValueError(f"{folder}: task {name!r} is not found in README.md, which has: {listed(configs)}")
    return {"files": files, "names": names, "rows": rows}


def _names_in(path: Path, label: str) -> list[str] | None:
    """The names of the label's classes that a Parquet file itself declares, as `datasets` writes them."""
    import pyarrow.parquet

    about = (pyarrow.parquet.read_schema(path).metadata or {}).get(b"huggingface", b"{}")
    try:
        return json.loads(about)["info"]["features"][label].get("names")
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _doubt(columns: Sequence[str], separator: str) -> str:
    """A hint for messages if the header seems to be separated by another character than the given one."""
    line = separator.join(map(str, columns))
    likely = max((other for other in ",;\t|" if other != separator), key=line.count)
    if line.count(likely) <= line.count(separator):
        return ""
    return f" (is its separator {separator!r}? the first line looks separated by {likely!r}: separator={likely!r})"


def _read_parquet(path: Path) -> pd.DataFrame:
    """Every cell of a Parquet file as a Python value: whole numbers stay exact. Raises ValueError over `MOST_BYTES`."""
    import pyarrow.parquet

    file, size = pyarrow.parquet.ParquetFile(path), 0
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    chunks = [group.column(i).total_uncompressed_size for group in groups for i in range(group.num_columns)]
    columns: list[list] = [[] for _ in file.schema_arrow.names]
    # Repeated values are stored once, so a few rows may expand to far more bytes than the file has: the larger a part
    # of a column is, the fewer rows are read at once.
    rows = max(1, min(1000, MOST_BYTES // max(1, *chunks, 1)))
    for batch in file.iter_batches(rows) if sum(chunks) <= MOST_BYTES else ():
        size += batch.nbytes
        if size > MOST_BYTES:
            break
        for column, cells in zip(columns, batch.columns, strict=True):
            column.extend(cells.to_pylist())
    _check_size(path, max(size, sum(chunks)))
    frame = pd.DataFrame({i: pd.Series(column, dtype=object) for i, column in enumerate(columns)})
    return frame.set_axis(file.schema_arrow.names, axis=1).rename_axis("row")


def _check_size(path: Path, size: int) -> None:
    if size > MOST_BYTES:
        raise ValueError(f"{path.name}: its cells take more than {MOST_BYTES:,} bytes, the most that is read")


_UNREADABLE = (OSError, EOFError, zlib.error, zipfile.BadZipFile, LookupError, RuntimeError)
"""What libraries raise for a damaged file; zipfile raises the last for one that is encrypted or packed unusually."""


def read_table(path: Path, separator: str = ",", quoted: bool = True, encoding: str = "utf-8") -> pd.DataFrame:
    """Every cell of a file as text (`cell_text`). The index is the row's number from 0 in a Parquet file, else the line
    on which a row begins, as an editor counts; its name is `row` or `line`. ImportError: Excel without openpyxl."""
    if not path.is_file():
        raise missing(path)
    kind = ending(path)
    try:
        if kind == ".parquet":
            return _read_parquet(path).map(cell_text)
        if kind == ".xlsx":
            return _read_excel(path)
        with gzip.open(path) if kind.endswith(".gz") else path.open("rb") as file:
            content = b"".join(islice(iter(partial(file.read, 1 << 20), b""), (MOST_BYTES >> 20) + 1))
    except (pa.ArrowException, *_UNREADABLE) as error:
        raise ValueError(f"{path.name} cannot be read as a {kind} file: {error}") from error
    _check_size(path, len(content))
    text = _decoded(path, content, encoding)
    frame = _read_lines(path, text) if ".jsonl" in kind else _read_delimited(path, text, separator, quoted)
    return frame.rename_axis("line")


def _read_excel(path: Path) -> pd.DataFrame:
    """The first sheet of an Excel file, without empty rows; the first of the others is the header."""
    with zipfile.ZipFile(path) as file:
        _check_size(path, sum(part.file_size for part in file.infolist()))
    try:
        sheet = pd.read_excel(path, header=None, dtype=object, na_filter=False, engine="openpyxl").map(cell_text)
    except ImportError as error:
        raise ImportError(f"{path.name}: Excel files need openpyxl: pip install openpyxl") from error
    if (sheet := sheet[sheet.ne("").any(axis=1)]).empty:
        raise ValueError(f"{path.name}: the first sheet is empty")
    rows = sheet[1:].set_axis(sheet.iloc[0].tolist(), axis=1)
    return rows.set_axis(rows.index + 1).rename_axis("line")


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
            table = _of_dataset(table) if hasattr(table, "column_names") else pd.DataFrame(table)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{what}: this {type(table).__name__} cannot be read as a table: {error}") from error
    if wrong := [column for column in table if not isinstance(column, str) or list(table).count(column) > 1]:
        why = f"column {wrong[0]!r} occurs twice, or its name is not a string"
        raise ValueError(f"{what}: {why}; it has: {shown(list(table), 1000)}")
    return table


def _of_dataset(table) -> pd.DataFrame:
    """A `datasets.Dataset` as a DataFrame, with classes by name; -1, which means no label there, becomes None."""
    frame = pd.DataFrame(table.to_dict())
    for column, kind in (getattr(table, "features", None) or {}).items():
        if names := getattr(kind, "names", None):
            frame[column] = [names[i] if i is not None and i >= 0 else None for i in table[column]]
    return frame


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


def part(frame: pd.DataFrame, task, split: str) -> pd.DataFrame:
    """A split of a table, 80/10/10 by distinct first text: no first text is in two splits. Row order is irrelevant.
    `all` is every row."""
    if split == "all":
        return frame
    first = frame[task.texts[0]].str.strip()
    tenth = np.array([hashlib.sha256(text.encode()).digest()[0] * 10 // 256 for text in first], dtype=int)
    parts = {"train": tenth < 8, "validation": tenth == 8, "test": tenth == 9}
    return frame[parts[check_name("split", split, parts)]]


HELD_OUT, KEPT = "held-out part of train", "train without held-out part"
"""The two parts of a task's training rows when settings are chosen by scores on rows that no reported score uses."""


def held_out(first: pd.Series) -> np.ndarray:
    """Which training rows are held out, by their first texts: about a tenth, with equal first texts kept together.
    It reads another byte of the hash than `part`, so a tenth of the rows that `part` calls `train` is held out, too."""
    return np.array([hashlib.sha256(text.strip().encode()).digest()[1] * 10 < 256 for text in first], dtype=bool)


def check_column(frame: pd.DataFrame, column: str, task, where: str) -> None:
    """Raises ValueError, listing the columns, if a column of a `tasks.Task` is missing or comes twice."""
    if (count := list(frame).count(column)) != 1:
        what = f"{count or 'no'} column{'s' * (count > 1)} {column!r} for task {task.name!r}"
        raise ValueError(f"{where}: {what}; it has: {shown(list(frame), 1000)}{_doubt(list(frame), task.separator)}")


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


_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*", re.ASCII)


def number_of(text: object) -> Decimal | None:
    """The exact number that a text writes in decimal notation; None for any other value (`1_0`, `nan`, `²`)."""
    return Decimal(text.strip()) if isinstance(text, str) and _NUMBER.fullmatch(text) else None


def class_numbers(labels: Sequence[str], by_place: bool) -> Callable[[object], int | None]:
    """A function from a cell to its class's number, None for a cell that is not a label. The rule is the same for all
    sources: a cell is the name of a class, whether text or number (`1`, `1.0` and `01` are the class "1"). Where no
    name is a number, or each is its own place from 0, a cell may also be a class's place. With `by_place`, for sources
    that say so, whole numbers are always places."""
    numbers = [number_of(name) for name in labels]
    places = {Decimal(i): i for i in range(len(labels))}
    named = {number: i for i, number in enumerate(numbers) if number is not None and numbers.count(number) == 1}
    if all(number in (None, i) for i, number in enumerate(numbers)):
        named |= places
    exact = {name: i for i, name in enumerate(labels)}

    def number_in(cell: object) -> int | None:
        if isinstance(cell, (bool, int, float, np.number, np.bool_)):
            if by_place or (isinstance(cell, (bool, np.bool_)) and str(cell) not in exact):
                return places.get(Decimal(float(cell)) if cell == cell else None)
            cell = str(cell)
        return exact.get(cell, named.get(number_of(cell))) if isinstance(cell, str) else None

    return number_in


def checked(frame: pd.DataFrame, task, where: str, by_place: bool = False) -> pd.DataFrame:
    """The task's texts and numeric `label`, with every cell checked; `frame.index.name` says what its index counts.

    Args:
        by_place: whether whole numbers are places of classes (see `class_numbers`).
    """
    check_texts(frame, task, where)
    check_column(frame, task.label, task, where)
    cells = frame[task.label].tolist()
    # Parquet has more types: dates and booleans would become numbers, and lists cannot be keys
    if task.is_regression:
        numbers = pd.Series([x if type(x) in (str, int, float) else None for x in cells], dtype=object)
        numbers = pd.to_numeric(numbers, errors="coerce").to_numpy("float64", copy=True)
        finite = np.abs(numbers) <= np.finfo("float32").max
        refuse_cells(~finite, frame, task.label, "is not a finite number", where)
        if task.head == "cosine":
            refuse_cells(np.abs(numbers - 2.5) > 2.5, frame, task.label, "is not a score from 0 to 5", where)
    else:
        number_in = class_numbers(task.labels, by_place)
        numbers = [number_in(cell) for cell in cells]
        valid = f"is not a label (valid: {listed(task.labels)}, or their numbers from 0)"
        refuse_cells([number is None for number in numbers], frame, task.label, valid, where)
    table = frame[list(task.texts)].copy()
    table["label"] = np.array(numbers, dtype="float32" if task.is_regression else "int64")
    return table
