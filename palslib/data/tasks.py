"""The tasks: each is a `Task`, such as those in `TASKS` and `SUITES`, read from one of four kinds of source.

The eight tasks of Stickland & Murray 2019 (set-up): GLUE (https://gluebenchmark.com) without WNLI. Sources:
`synthetic` (embedded, offline), `glue` (a mirror under $PALSLIB_DATA, else the Hub's nyu-mll/glue), a folder laid out
like that repository, or a file (CSV, TSV, JSON Lines, Parquet, Excel) with named text and label columns.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from palslib.common.files import atomic_write
from palslib.common.later import np, pd
from palslib.common.names import check_name, shown, unknown
from palslib.common.places import runs_folder
from palslib.common.settings import Names, Number, settings
from palslib.data import sources
from palslib.data.synthetic import synthetic_split

MOST_LETTERS = 100
"""Largest length of a task's name, in UTF-8 bytes: it is part of file names, which may have 255."""
OF_CLASSES, OF_SCORES = ("accuracy", "f1", "matthews", "macro_f1"), ("pearson", "spearman")
"""Names in `metrics.METRICS` for classes and for scores; `f1` is for two classes only."""
BY_CLASS = ("precision", "recall")
"""Metrics with a value for each class: `precision (bad)`. They may follow another metric, and are never the first."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_task_name(name: str) -> str:
    """Returns `name` if a task can be saved under it: files and folders are named after it.

    Raises ValueError for a value that is not a text, is empty, has only blanks and dots, or is longer than
    `MOST_LETTERS`, for a name with a folder separator or an invisible character other than the blank, and for `model`,
    whose file would be that of a whole model.
    """
    valid = f"give letters, digits or signs ({MOST_LETTERS} bytes at most; é takes 2), no / or \\, not only dots and "
    valid += "blanks, and not 'model'"
    seen = isinstance(name, str) and name.strip(" .") and name.isprintable() and not set(name) & set("/\\")
    if not seen or len(name.encode()) > MOST_LETTERS or name == "model":
        raise ValueError(f"{shown(name, 50)} cannot be the name of a task: {valid}")
    return name


def _alike(label: str) -> str:
    """The label without invisible differences: hidden characters, and the two ways of writing an accent."""
    seen = (c for c in label if unicodedata.category(c) != "Cf" and not "\ufe00" <= c <= "\ufe0f")
    return unicodedata.normalize("NFC", "".join(seen))


@settings(part="task {name!r}:")
class Task:
    """A task: what is read, predicted and measured. It is data: a new task is a new `Task(...)`, never a new class.

    Raises ValueError naming task and field for an invalid value.
    """

    name: Annotated[str, BeforeValidator(check_task_name)]
    texts: Names
    """The column of one text, or the two columns of a pair of texts."""
    labels: Names = ()
    """Names of the classes, in order; empty for a score to be regressed."""
    metrics: Names = ("accuracy",)
    """Names in `OF_CLASSES`, then perhaps in `BY_CLASS`; the first one enters the dev average. The default for scores
    is `OF_SCORES`."""
    evaluation: Names = ("validation",)
    """The splits on which the task is evaluated. The first enters the dev average and decides which weights are best;
    scores on another one bear its name: `accuracy (test)` (for MNLI's mismatched rows, `accuracy_mm`)."""
    scale: Annotated[Number, Field(gt=0)] = 5.0
    """Scores are divided by this for training and predictions multiplied by it (ledger D16); 1 for a cosine."""
    label: str = "label"
    """The column of the label."""
    separator: str = ","
    """The separator of columns in a delimited file, a single character; for a .tsv, give a tab."""
    skip_unlabelled: bool = False
    """Whether rows of a file with an empty label are left out, with a warning; otherwise they are an error."""

    head: Literal["linear", "concatenation", "cosine"] = "linear"
    """`linear`: linear on the pooled [CLS], where a pair is one sequence. Other heads encode each text of a pair by
    itself, to h1 and h2: `concatenation`, linear on [h1, h2], and `cosine`, 5·σ(cos(h1, h2)) (minBERT report)."""
    source: str = ""
    """Name of its data set, if that is not the task's own name."""
    files: str = ""
    """Pattern of its files in a folder of delimited files; `{split}` stands for the split (`dev` for `validation`)."""
    data: str = ""
    """Source of its rows, as `load_rows` takes it; if empty, the run's source. So a run may mix several sources."""
    quoted: bool = True
    """Whether quotation marks enclose cells of a delimited file. False: they are characters like all others, as in the
    TSV files that GLUE itself distributes."""
    encoding: str = "utf-8"
    """The encoding of a delimited file or of JSON Lines, by Python's name: `cp1252` (Windows), `utf-16`."""
    class_weights: dict[str, Annotated[Number, Field(gt=0)]] | Literal["balanced"] | None = None
    """The weight of every class, by name, in the training loss, as in `torch.nn.CrossEntropyLoss`; or `balanced`: with
    N rows, n of them in the class, and C classes, it is N / (C n), as in scikit-learn."""

    def __post_init__(self):
        self._check("texts", 1 <= len(self.texts) <= 2, "list of one or two names of columns")
        apart = len({*self.texts, self.label}) == len(self.texts) + 1
        self._check("texts", apart, f"list of different columns, none of them the label's {self.label!r}")
        self._check("texts", "label" not in self.texts, "list without 'label', the column in which answers are kept")
        self._check("labels", len(self.labels) != 1, "list of two classes or more, or empty for a score")
        self._check("labels", len(set(self.labels)) == len(self.labels), "list in which each class occurs once")
        self._check("labels", not any(map(_CONTROL.search, self.labels)), "list of names without control characters")
        known: dict[str, str] = {}
        for name in self.labels:
            if (other := known.setdefault(_alike(name), name)) != name:
                raise ValueError(f"task {self.name!r}: the labels {other!a} and {name!a} look the same")
        self._check("files", not PurePath(self.files).is_absolute(), "pattern of names within a folder")
        single = len(self.separator) == 1 and self.separator not in '\r\n\0"'
        self._check("separator", single, "single character, no line break or quotation mark")
        if self.is_regression and self.metrics == Task.metrics:
            object.__setattr__(self, "metrics", OF_SCORES)
        self._check("metrics", bool(self.metrics), "list of names, at least one")
        for metric in self.metrics:
            valid = OF_SCORES if self.is_regression else [m for m in OF_CLASSES if m != "f1" or len(self.labels) == 2]
            more = () if self.is_regression or metric == self.metrics[0] else BY_CLASS
            check_name(f"metric of task {self.name!r}", metric, [*valid, *more])
        weights = self.class_weights
        valid = weights is None or (self.labels and (weights == "balanced" or set(weights) == set(self.labels)))
        each = f"dict with a weight for each class {self.labels}, or 'balanced'"
        self._check("class_weights", bool(valid), each if self.labels else "null value (None) for a score")
        try:
            "a".encode(self.encoding)
        except (LookupError, ValueError):
            self._check("encoding", False, "name of an encoding that Python knows")
        self._check("evaluation", 0 < len(set(self.evaluation)) == len(self.evaluation), "list of splits, each once")
        if self.apart and len(self.texts) != 2:
            raise ValueError(f"task {self.name!r}: head {self.head!r} compares two texts, not {list(self.texts)}")
        if self.head == "cosine" and self.labels:
            raise ValueError(f"task {self.name!r}: head 'cosine' gives a score from 0 to 5 and takes no classes")
        if self.head == "cosine" and self.scale != 1:
            raise ValueError(
                f"task {self.name!r}: head 'cosine' gives scores from 0 to 5: give scale=1, not {self.scale}"
            )

    def balanced(self, labels: np.ndarray) -> Task:
        """The task with weights in place of `balanced`, for class numbers (N,) of its training rows."""
        if self.class_weights != "balanced":
            return self
        counts = np.bincount(labels, minlength=len(self.labels)).clip(1)  # a class without rows is never weighted
        weights = len(labels) / (len(self.labels) * counts)
        return replace(self, class_weights=dict(zip(self.labels, weights.tolist(), strict=True)))

    @property
    def loss_weights(self) -> list[float] | None:
        """The weights of the classes in order; None: all are equal. Raises ValueError for `balanced` without rows."""
        if self.class_weights == "balanced":
            raise ValueError(f"task {self.name!r}: class_weights='balanced' needs Task.balanced(labels) first")
        return self.class_weights and [self.class_weights[name] for name in self.labels]

    def said(self) -> dict:
        """The fields, except the name, that differ from their defaults, in the form of JSON."""
        values = {f.name: value for f in fields(self)[1:] if (value := getattr(self, f.name)) != f.default}
        if self.separator != sources.SUFFIXES.get(sources.ending(self.data or ""), ","):
            values["separator"] = self.separator  # a config takes that of the file's ending where none is said
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def _check(self, field: str, holds: bool, valid: str) -> None:
        if not holds:
            raise ValueError(f"task {self.name!r}: {field} must be a {valid}, not {shown(getattr(self, field))}")

    @property
    def apart(self) -> bool:
        """Whether each text of a pair is encoded by itself."""
        return self.head != "linear"

    @property
    def is_regression(self) -> bool:
        """Whether the task predicts a score, not a class."""
        return not self.labels

    @property
    def num_outputs(self) -> int:
        """Width of the task's logits; the head `concatenation` has one logit for two classes."""
        return 1 if self.head == "concatenation" and len(self.labels) == 2 else len(self.labels) or 1


def _by_name(*tasks: Task) -> dict[str, Task]:
    return {task.name: task for task in tasks}


_ENTAILMENT = ("entailment", "not_entailment")
TASKS: dict[str, Task] = _by_name(
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
"""The eight tasks of the paper, by name. Ledger and figures rely on exactly these: add a further task to `SUITES`, or
make a `Task` of your own."""
TASK_LABELS = dict(zip(TASKS, ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE"), strict=True))
"""Task -> its name as printed in the papers."""

_QUORA = Task(
    "quora",
    ("sentence1", "sentence2"),
    ("not_duplicate", "duplicate"),
    ("accuracy", "f1"),
    label="is_duplicate",
    separator="\t",
    skip_unlabelled=True,  # two rows of the course's dev file have no label
    head="concatenation",
    files="quora-{split}*.csv",
)
_STS = Task(
    "sts",
    ("sentence1", "sentence2"),
    (),
    ("pearson", "spearman"),
    scale=1.0,  # the head itself gives 0 to 5
    label="similarity",
    separator="\t",
    head="cosine",
    files="sts-{split}*.csv",
)
SUITES: dict[str, dict[str, Task]] = {
    "glue": TASKS,
    "minbert": _by_name(
        Task(
            "sst5",
            ("sentence",),
            ("negative", "somewhat negative", "neutral", "somewhat positive", "positive"),
            label="sentiment",
            separator="\t",
            files="ids-sst-{split}*.csv",
        ),
        _QUORA,
        _STS,
        replace(_QUORA, name="quora-pair", head="linear", source="quora"),
        replace(_STS, name="sts-pair", head="linear", source="sts", scale=5.0),
    ),
}
"""All built-in tasks by data set: the paper's, and those of the minBERT report, from the course's files. A `-pair` task
has the same data, with a pair read as one sequence."""
BUILT_IN = {name: task for suite in SUITES.values() for name, task in suite.items()}
"""The tasks of all `SUITES` by name."""


def get_task(task: str | Task, data: str | Path = "", own: Iterable[str] = ()) -> Task:
    """A `Task` itself, the built-in task of that name, or that of a file `<name>.csv` (or with another ending in
    `SUFFIXES`), which is in the folder `data` or is `data`, with columns `text` and `label` and the classes that occur.

    Raises ValueError for an unknown name, listing the names in `data` and `own` as well as the built-in ones, and
    FileNotFoundError if `data` is a path that does not exist.
    """
    if isinstance(task, Task):
        return task
    if check_task_name(task) in BUILT_IN:
        return BUILT_IN[task]
    if isinstance(data, str) and not data:
        raise unknown("task", task, [*own, *BUILT_IN])
    source = Path(sources.locate(data))
    files = [source] if source.is_file() else sources.data_files(source)
    if named := [path for path in files if sources.stem(path) == task]:
        if len(named) > 1:
            raise ValueError(f"{source} has several files of task {task!r}: give {' or '.join(map(str, named))}")
        return task_from_file(named[0])
    if "/" not in str(source) and not source.exists() and str(source) != "synthetic":
        raise sources.no_source(str(source))
    if "," in task:
        raise ValueError(f"{shown(task)} is not a task but several names: separate them by blanks (--tasks rte sst2)")
    error = unknown("task", task, [*own, *BUILT_IN, *map(sources.stem, files)])
    if source.is_dir():
        raise ValueError(f"{error}; {source} has no file {task}.csv or {task}.tsv, it has: {sources.contents(source)}")
    raise error


def task_from_frame(frame, name: str, text: str | Sequence[str] = "text", label: str = "label", **options) -> Task:
    """A task from a table in memory (a DataFrame, a `datasets.Dataset`, a dict of columns, a list of dicts), or from a
    dict of tables by split (a `datasets.DatasetDict`), written once under `runs/data/`; takes the arguments of
    `task_from_file`."""
    several = frame.values() if isinstance(frame, Mapping) else ()
    by_split = bool(several) and all(isinstance(t, pd.DataFrame) or hasattr(t, "column_names") for t in several)
    tables = dict(frame) if by_split else {"": frame}
    content = hashlib.sha256()
    for split, table in tables.items():
        what = f"task {name!r}" + f", split {split!r}" * by_split
        table, texts = sources.as_frame(table, what), [text] if isinstance(text, str) else text
        used = list(dict.fromkeys([*texts, label]))
        for column in used:
            sources.check_column(table, column, Task(name, ("text",), label="a label"), f"the table of {what}")
        tables[split] = table = table[used].reset_index(drop=True).map(sources.cell_text)
        for column in used:
            sources.refuse_cells([not isinstance(x, str) for x in table[column]], table, column, "is not a text", what)
        content.update(pd.util.hash_pandas_object(table).to_numpy().tobytes() + repr([*table, split]).encode())
    place = f"{check_task_name(name)}-{content.hexdigest()[:12]}{'-{split}' * by_split}.parquet"
    for split, table in tables.items():
        path = runs_folder() / "data" / (place.replace("{split}", check_task_name(split)) if by_split else place)
        if not path.exists():
            with atomic_write(path) as temporary:
                table.to_parquet(temporary, index=False)
    return task_from_file(path.with_name(place), text, label, name=name, **options)


def name_of(path: Path) -> str:
    """The name of a file's task: the file's name without `{split}`, or its folder's name if nothing is left."""
    rest = filter(None, re.split(r"[-_.]*\{split\}[-_.]*", sources.stem(path)))
    return "-".join(rest) or path.absolute().parent.name


def tasks_from_file(
    path: str | Path, text: str | Sequence[str] = "text", labels: Sequence[str] = ("label",), **options
) -> list[Task]:
    """A task for each of these label columns of one file, called `<file>-<column>`. All are split alike, by text.

    Args:
        options: those of `task_from_file`, for all tasks; `score` may also be a list of the columns that are scores,
            and `skip_unlabelled` leaves each task the rows that have its label.
    """
    labels = (labels,) if isinstance(labels, str) else labels
    name, score = options.pop("name", None) or name_of(Path(path)), options.pop("score", False)
    scores = labels if score is True else (score,) if isinstance(score, str) else score or ()
    for one in scores:
        check_name("score", one, labels)
    return [
        task_from_file(path, text, label, name=f"{name}-{label}", score=label in scores, **options) for label in labels
    ]


_OPTIONS = ("metrics", "evaluation", "scale", "head", "class_weights", "source")


def task_from_file(
    path: str | Path,
    text: str | Sequence[str] = "text",
    label: str = "label",
    separator: str | None = None,
    name: str | None = None,
    score: bool = False,
    quoted: bool = True,
    encoding: str = "utf-8",
    skip_unlabelled: bool = False,
    **options,
) -> Task:
    """A task from any CSV, TSV, JSON Lines (each also .gz), Parquet or Excel file: classification, whose classes are
    the labels that occur, sorted; or, with `score`, regression.

    Args:
        path: a file, which is split 80/10/10; or, with `{split}` in its name, one file for each split (`train`,
            `validation`, `test`), where the classes are those of `train`.
        text: the column of a text, or the two columns of a pair.
        separator: between the cells of a delimited file; by default that of its ending (`.csv` comma, `.tsv` tab).
        name: the task's name; by default that of the file (`name_of`).
        quoted, encoding, skip_unlabelled: see `Task`, also for other `options` (`metrics`, `class_weights`, `head`).

    Raises ValueError if a column is missing, a label is empty or has a control character, there are fewer than two
    classes, or the labels do not look like classes: numbers with fractions or more than 20 numbers (scores), fewer
    than five rows a class for more than five classes, or two that differ only in blanks, case or the form of a number.
    """
    for option in options:
        check_name("option of task_from_file", option, _OPTIONS)
    source, texts = Path(sources.locate(path)), tuple(text) if isinstance(text, (list, tuple)) else (text,)
    path, name = Path(str(source).replace("{split}", "train")), name or name_of(source)
    separator = separator or sources.separator_of(path)
    reading = {"separator": separator, "quoted": quoted, "encoding": encoding, "skip_unlabelled": skip_unlabelled}
    task = Task(name, texts, label=label, files=source.name, data=str(source), **reading)
    frame = sources.labelled(sources.read_table(path, separator, quoted, encoding), task, path.name)
    for column in (*texts, label):
        sources.check_column(frame, column, task, path.name)
    if score:
        sources.checked(frame, task, path.name)
        numbers = [sources.number_of(cell) for cell in frame[label]]
        largest = max((abs(float(n)) for n in numbers if n is not None), default=0.0)
        scale = largest if 0 < largest < math.inf and options.get("head") != "cosine" else 1.0
        return replace(task, **{"scale": scale} | options)
    where = f"{path.name}, column {label!r}"
    empty = "is empty (skip_unlabelled=True leaves out rows without a label)"
    wrong = {"is not a label": lambda x: not isinstance(x, str), empty: lambda x: not x.strip()}
    wrong |= {"has a control character": _CONTROL.search}
    for why, is_wrong in wrong.items():
        sources.refuse_cells([is_wrong(cell) for cell in frame[label]], frame, label, why, path.name)
    if len(labels := sorted(set(frame[label]))) < 2:
        raise ValueError(f"{where}: a classification has two classes or more, not {labels}")
    numbers = [number for name in labels if (number := sources.number_of(name)) is not None]
    scores = len(numbers) == len(labels) and (len(labels) > 20 or any(n != n.to_integral_value() for n in numbers))
    if scores or (len(labels) > 5 and len(frame) < 5 * len(labels)):
        what = "numbers, like scores" if scores else "too many for classes"
        data = f"data={path.name!r}" + (f", separator={separator!r}" if separator != "," else "")
        raise ValueError(
            f"{where}: {len(labels)} different values in {len(frame)} rows, such as {labels[0]!r} and {labels[-1]!r}, "
            f"are {what}. If they are scores, call task_from_file({path.name!r}, score=True); if they are classes, "
            f"name them in Task({sources.stem(path)!r}, {texts}, labels=(...), label={label!r}, {data})"
        )
    known: dict[str | Decimal, str] = {}
    for name in labels:
        number, plain = sources.number_of(name), " ".join(_alike(name).split()).casefold()
        if (other := known.setdefault(plain if number is None else number, name)) != name:
            which = f"{other!a} and {name!a} ({frame.index.name} {frame.index[frame[label] == name][0]})"
            raise ValueError(f"{where}: the classes {which} differ only in how they are written")
    return replace(task, labels=tuple(labels), **{"metrics": Task.metrics} | options)


def load_rows(task: str | Task, data: str | Path = "synthetic", split: str = "train") -> pd.DataFrame:
    """One split as a table with the task's text columns and `label` (class number, or the score itself).

    Args:
        data: `synthetic`, `glue`, another folder of $PALSLIB_DATA (`minbert`, `crowdflower`), a folder laid out like
            nyu-mll/glue or with the task's files, or one file (`SUFFIXES`). A file is one whole data set, so its
            splits `train`, `validation` and `test` are 80/10/10 of its distinct (first) texts; a name with
            `{split}` in it stands for one file per split.
        split: `train`, `validation`, `test`, or as the source names it; `all`, every row of a file; `HELD_OUT`, a tenth
            of the training rows, and `KEPT`, the others.

    The table's index says where a row is: in text and Excel files the line on which it begins, counted from 1 as an
    editor does; in Parquet files and all other sources the row's number, from 0. A text may be empty.
    Raises ValueError naming source, row and column for a missing column or cell, an unknown label, a score that is not
    a number or bytes that are not UTF-8, and for an empty split; FileNotFoundError or ConnectionError for a source that
    is missing or out of reach.
    """
    task = get_task(task, data)
    source = sources.locate(task.data or data)
    name = task.source or task.name
    if split in (sources.KEPT, sources.HELD_OUT):
        table = load_rows(task, data, "train")
        table = table[sources.held_out(table[task.texts[0]]) == (split == sources.HELD_OUT)]
    elif source == "synthetic":
        frame = synthetic_split(name, split).rename(columns={"label": task.label})
        table = sources.checked(frame, task, f"synthetic {name}/{split}", by_place=True)
    elif path := _file(task, source, split):
        frame = sources.labelled(sources.read_table(path, task.separator, task.quoted, task.encoding), task, path.name)
        table = sources.checked(frame, task, path.name)
        if Path(source).is_file() or "{split}" not in source + task.files:
            whole, table = table, sources.part(table, task, split)
            if table.empty and len(whole):
                texts = whole[task.texts[0]].nunique()
                raise ValueError(
                    f"{path.name}: the split {split!r} is empty: none of the {len(whole):,} rows is in it. A file is "
                    f"split 80/10/10 by the distinct texts in {task.texts[0]!r}, of which it has {texts:,}: too few. "
                    "Give more texts, or one file for each split, with {split} in the path"
                )
    else:
        frame, names = sources.read_repository(source, name, split, task.label)
        if names is not None and tuple(names) != task.labels:
            where = f"{source} {name}/{split}"
            raise ValueError(f"{where}: label names {names} are not the task's {list(task.labels)}")
        table = sources.checked(frame, task, f"{source} {name}/{split}", by_place=names is not None)
    if table.empty:
        raise ValueError(f"{source}: the split {split!r} of task {task.name!r} is empty")
    return table


def _file(task: Task, source: str, split: str) -> Path | None:
    """The delimited file of a task's split, or None where the source is a repository."""
    if "{split}" in source or Path(source).is_file():
        names = ("validation", "dev") if split == "validation" else (split,)
        paths = [Path(source.replace("{split}", name)) for name in names]
        if not (there := [path for path in paths if path.is_file()]):
            raise sources.missing(paths[0], f" for task {task.name!r}")
        return there[0]
    if not task.files:
        return None
    pattern = task.files.replace("{split}", {"validation": "dev"}.get(split, split))
    if path := sources.find_file(source, pattern):
        return path
    if Path(source).is_dir():
        names = sources.contents(Path(source))
        raise FileNotFoundError(f"{source} has no file {pattern!r} for task {task.name!r}; it has: {names}")
    raise FileNotFoundError(
        f"task {task.name!r} is read from a folder of delimited files, and there is no folder {source!r}: give "
        f"data='synthetic', which needs no files, or set PALSLIB_DATA=FOLDER, where FOLDER/{source} has {pattern}"
    )
