"""The tasks: each is a `Task`, such as those in `TASKS` and `SUITES`, read from one of five kinds of source.

The eight tasks of Stickland & Murray 2019 (set-up): GLUE (https://gluebenchmark.com) without WNLI. Sources:
`synthetic` (embedded, offline), `glue` (a mirror under $PALSLIB_DATA, else the Hub's nyu-mll/glue), a folder laid out
like that repository, a folder of delimited files (`Task.files`), or a file (CSV, TSV, JSON Lines, Parquet) with named
text and label columns.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from palslib.common.files import atomic_write
from palslib.common.later import np, pd
from palslib.common.names import check_name, plain, shown, unknown
from palslib.common.places import runs_folder
from palslib.common.settings import Names, Number, settings
from palslib.data import parts, sources
from palslib.data.synthetic import synthetic_split

OF_CLASSES, OF_SCORES = ("accuracy", "f1", "matthews", "macro_f1"), ("pearson", "spearman")
"""Names in `metrics.METRICS` for classes and for scores; `f1` is for two classes only."""
BY_CLASS = ("precision", "recall")
"""Metrics with a value for each class: `precision (bad)`. They may follow another metric, and are never the first."""


def check_task_name(name: str) -> str:
    """Returns `name` if a task can be saved under it: files and folders are named after it, and `model` is the file of
    a whole model. Raises ValueError for any other."""
    if not sources.is_text(name) or set(name) & set("/\\") or not name.strip(" .") or name == "model":
        valid = "a file name without / or \\, not only dots and blanks, and not 'model'"
        raise ValueError(f"{shown(name, 50)} cannot be the name of a task: give {valid}")
    return name


@settings(part="task {name!r}")
class Task:
    """A task: what is read, predicted and measured. It is data: a new task is a new `Task(...)`, never a new class.

    Raises ValueError naming task and field for an invalid value.
    """

    name: Annotated[str, BeforeValidator(check_task_name)]
    texts: Names
    """The column of one text, or the two columns of a pair of texts."""
    labels: Names = ()
    """Names of the classes, in order; empty for a score to be regressed."""
    metrics: Annotated[Names, Field(min_length=1)] = ("accuracy",)
    """Names in `OF_CLASSES`, then perhaps in `BY_CLASS`; the first one enters the dev average. The default for scores
    is Pearson's and Spearman's correlation."""
    evaluation: Annotated[Names, Field(min_length=1)] = ("validation",)
    """The splits on which the task is evaluated. The first enters the dev average and decides which weights are best;
    scores on another one bear its name: `accuracy (test)` (for MNLI's mismatched rows, `accuracy_mm`)."""
    scale: Annotated[Number, Field(gt=0)] = 5.0
    """Scores are divided by this for training and predictions multiplied by it (ledger D16); 1 for a cosine."""
    label: str = "label"
    """The column of the label."""
    separator: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """The separator of columns in a delimited file, a single character; for a .tsv, give a tab."""
    skip_unlabelled: bool | Names = False
    """Whether rows with an empty label are left out, with a warning; otherwise they are an error. Labels that mean that
    there is none (`("-",)`, as in SNLI) are left out, too."""

    head: Literal["linear", "concatenation", "cosine"] = "linear"
    """`linear`: linear on the pooled [CLS], where a pair is one sequence. Other heads encode each text of a pair by
    itself, to h1 and h2: `concatenation`, linear on [h1, h2], and `cosine`, 5·σ(cos(h1, h2)) (minBERT report)."""
    source: str = ""
    """Name of its data set, if that is not the task's own name."""
    files: str = ""
    """Pattern of its files in a folder of delimited files; `{split}` stands for the split (`validation` or `dev`)."""
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
    positive: str = ""
    """The class, of two, whose F1 is `f1`; by default the second. The score's name says which: `f1 (duplicate)`, but
    for built-in tasks, whose papers print `f1`."""
    ties: Literal["first", "second"] = "first"
    """As `Recipe.ties`: which text of a pair is one word piece shorter where both are cut (ledger D18)."""

    def __post_init__(self):
        different = len(set(self.texts)) == len(self.texts) and not {self.label, "label"} & set(self.texts)
        valid = f"list of one or two different columns, not the label's {self.label!r} and not 'label'"
        self._check("texts", different and 1 <= len(self.texts) <= 2, valid)
        several = len(set(self.labels)) == len(self.labels) != 1 and all(map(sources.is_text, self.labels))
        self._check("labels", several, "list of two or more different classes (texts), or empty for a score")
        if self.positive:
            self._check("positive", len(self.labels) == 2, "class of a task that has two")
            check_name(f"positive class of task {self.name!r}", self.positive, self.labels)
        if self.is_regression and self.metrics is Task.metrics:  # nobody has asked for them
            object.__setattr__(self, "metrics", OF_SCORES[:2])
        for metric in self.metrics:
            valid = OF_SCORES if self.is_regression else [m for m in OF_CLASSES if m != "f1" or len(self.labels) == 2]
            more = () if self.is_regression or metric == self.metrics[0] else BY_CLASS
            check_name(f"metric of task {self.name!r}", metric, [*valid, *more])
        weights = self.class_weights
        valid = weights is None or (self.labels and (weights == "balanced" or set(weights) == set(self.labels)))
        each = f"dict with a weight for each class {self.labels}, or 'balanced'"
        self._check("class_weights", bool(valid), each if self.labels else "null value (None) for a score")
        self._check("evaluation", len(set(self.evaluation)) == len(self.evaluation), "list of splits, each once")
        if self.apart and len(self.texts) != 2:
            raise ValueError(f"task {self.name!r}: head {self.head!r} compares two texts, not {list(self.texts)}")
        if self.head == "cosine" and (self.labels or self.scale != 1):
            raise ValueError(f"task {self.name!r}: head 'cosine' gives scores from 0 to 5: no labels, and scale=1")

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

    def changes(self) -> dict:
        """The fields, except the name, that differ from their defaults, in the form of JSON."""
        values = {f.name: value for f in fields(self)[1:] if (value := getattr(self, f.name)) != f.default}
        if self.separator != sources.SUFFIXES.get(sources.ending(self.data or ""), ","):
            values["separator"] = self.separator  # a config takes that of the file's ending where none is said
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def _check(self, field: str, holds: bool, valid: str) -> None:
        if not holds:
            raise ValueError(f"task {self.name!r}: {field} must be a {valid}, not {shown(getattr(self, field))}")

    @property
    def built_in(self) -> bool:
        """Whether the task is one of `SUITES`, perhaps with other columns or files; its classes have an order."""
        return self.name in BUILT_IN and BUILT_IN[self.name].labels == self.labels

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


def get_task(task: str | Task, data: str | Path = "synthetic", own: Iterable[str] = ()) -> Task:
    """A `Task` itself, the built-in task of that name, or that of a file `<name>.csv` (or with another ending in
    `SUFFIXES`), which is in the folder `data` or is `data` (perhaps with `{split}` in its name: a file for each split),
    with columns `text` and `label` and the classes that occur.

    Raises ValueError for an unknown name, listing the names in `data` and `own` as well as the built-in ones, and
    FileNotFoundError if `data` is a path that does not exist.
    """
    if isinstance(task, Task):
        return task
    if check_task_name(task) in BUILT_IN:
        return BUILT_IN[task]
    source = Path(sources.locate(data))
    alone = source.is_file() or "{split}" in str(source)
    files = [source] if alone else sorted(path for path in source.glob("*") if path.is_file())
    files = [path for path in files if sources.ending(path) in sources.SUFFIXES]
    named = [path for path in files if name_of(path) == task]
    if len(named) > 1:
        raise ValueError(f"{source} has several files of task {task!r}: give {' or '.join(map(str, named))}")
    if not named:
        raise unknown("task", task, [*own, *BUILT_IN, *map(name_of, files)])
    return task_from_file(named[0])


def task_from_frame(frame, name: str, text: str | Sequence[str] = "text", label: str = "label", **options) -> Task:
    """A task from a table in memory (`sources.as_frame` says of which kinds), or from a dict of tables by split (a
    `datasets.DatasetDict`), written under `runs/data/`; takes the arguments of `task_from_file`. The classes of a
    ClassLabel keep their order."""
    tables = dict(frame) if isinstance(frame, Mapping) else {}
    by_split = bool(tables) and all(hasattr(t, "columns") or hasattr(t, "column_names") for t in tables.values())
    tables = tables if by_split else {"": frame}
    texts = tuple(text) if isinstance(text, (list, tuple)) else (text,)
    content, used, task = hashlib.sha256(), list(dict.fromkeys([*texts, label])), Task(name, texts, label=label)
    for split, table in tables.items():
        where = f"task {name!r}, split {split!r}" if by_split else f"task {name!r}"
        table = sources.as_frame(table, where)
        if (classes := table.attrs.get(f"classes of {label}")) and not options.get("score"):
            options = {"labels": classes} | options
        for column in used:
            sources.check_column(table, column, task, f"the table of {where}")
        tables[split] = table = table[used].reset_index(drop=True).map(sources.cell_text)
        content.update(pd.util.hash_pandas_object(table).to_numpy().tobytes() + repr([*table, split]).encode())
    file = f"{name}-{content.hexdigest()[:12]}{'-{split}' if by_split else ''}.parquet"
    for split, table in tables.items():  # written even where there is such a file, whose content may be another
        path = runs_folder() / "data" / file.replace("{split}", check_task_name(split) if by_split else "")
        with atomic_write(path) as temporary:
            table.to_parquet(temporary, index=False, write_page_checksum=True)
    return task_from_file(path.with_name(file), text, label, name=name, **options)


def name_of(path: Path) -> str:
    """The name of a file's task: the file's name without `{split}`, or its folder's name if nothing is left."""
    stem = path.name[: len(path.name) - len(sources.ending(path))]
    rest = filter(None, re.split(r"[-_.]*\{split\}[-_.]*", stem))
    return "-".join(rest) or path.absolute().parent.name


def tasks_from_file(
    path: str | Path,
    text: str | Sequence[str] = "text",
    labels: Sequence[str] = ("label",),
    score: Sequence[str] = (),
    name: str = "",
    **options,
) -> list[Task]:
    """A task for each of these label columns of one file, called `<file>-<column>`. All are split alike.

    Args:
        score: those of the columns that are scores.
        options: those of `task_from_file`, for all tasks; `skip_unlabelled` leaves each task the rows with its label.
    """
    name, labels = name or name_of(Path(path)), (labels,) if isinstance(labels, str) else labels
    score = (score,) if isinstance(score, str) else score
    for one in score:
        check_name("score", one, labels)
    return [
        task_from_file(path, text, label, name=f"{name}-{label}", score=label in score, **options) for label in labels
    ]


def task_from_file(
    path: str | Path,
    text: str | Sequence[str] = "text",
    label: str = "label",
    separator: str | None = None,
    name: str | None = None,
    score: bool = False,
    labels: Sequence[str] = (),
    quoted: bool = True,
    encoding: str = "utf-8",
    skip_unlabelled: bool | Sequence[str] = False,
    **options,
) -> Task:
    """A task from any CSV, TSV, JSON Lines (each also .gz) or Parquet file: a classification or, with `score`, a
    regression.

    Args:
        path: a file, which is split 80/10/10; or, with `{split}` in its name, one file for each split (`train`,
            `validation`, `test`), where the classes are those of `train`.
        text: the column of a text, or the two columns of a pair.
        separator: between the cells of a delimited file; by default that of its ending (`.csv` comma, `.tsv` tab).
        name: the task's name; by default that of the file (`name_of`).
        labels: the classes, in order; by default those that a Parquet file declares (a ClassLabel of `datasets`), or
            else the labels that occur, sorted.
        score: the label is a number; `scale` is then by default the largest |score| (1 for a cosine).
        quoted, encoding, skip_unlabelled, options: fields of `Task` (such as `metrics`, `class_weights`, `head`).

    Raises ValueError if a column is missing, a label is empty, there are fewer than two classes, or the labels that
    occur do not look like classes: numbers with fractions or more than 20 numbers (scores), fewer than five rows a
    class for more than five classes, or two that differ only in blanks, case or the form of a number.
    """
    labels = plain(labels)
    if score and labels:
        raise ValueError(f"score=True contradicts labels={shown(labels)}: give only one of them")
    source, texts = Path(sources.locate(path)), tuple(text) if isinstance(text, (list, tuple)) else (text,)
    path, name = Path(str(source).replace("{split}", "train")), name or name_of(source)
    reading = {"separator": separator or sources.separator_of(path), "quoted": quoted, "encoding": encoding}
    reading |= {"label": label, "skip_unlabelled": skip_unlabelled, "files": source.name, "data": str(source)}
    task = Task(name, texts, **reading)
    frame = sources.labelled(sources.read_table(path, task.separator, quoted, encoding), task, path.name)
    if score:
        sources.checked(frame, task, path.name)
        largest = max((abs(float(cell)) for cell in frame[label]), default=0.0)
        options = {"scale": largest if largest and options.get("head") != "cosine" else 1.0} | options
    else:
        labels = labels or frame.attrs.get(f"classes of {label}") or _classes(frame, task, path.name)
    task = Task(name, texts, labels, **reading, **options)
    sources.checked(frame, task, path.name)
    return task


def _classes(frame: pd.DataFrame, task: Task, where: str) -> tuple[str, ...]:
    """The labels that occur in a table, sorted. Raises ValueError where they do not look like classes."""
    cells, empty = frame[task.label], "is empty (skip_unlabelled=True leaves out rows without a label)"
    sources.refuse_cells([not sources.is_text(cell) for cell in cells], frame, task.label, "is not a label", where)
    sources.refuse_cells([not cell.strip() for cell in cells], frame, task.label, empty, where)
    labels, where = sorted(set(cells)), f"{where}, column {task.label!r}"
    if len(labels) < 2:
        raise ValueError(f"{where}: a classification has two classes or more, not {labels}")
    numbers = [sources.number_of(name) for name in labels]
    whole = None not in numbers and all(number == number.to_integral_value() for number in numbers)
    scores = None not in numbers and (len(labels) > 20 or not whole)
    if scores or (len(labels) > 5 and len(frame) < 5 * len(labels)):
        ends = f"such as {shown(labels[0], 50)} and {shown(labels[-1], 50)}"
        kind = "numbers, like scores" if scores else "too many for classes"
        advice = "If they are scores, give score=True; if they are classes, give them in order: labels=(...)"
        raise ValueError(f"{where}: {len(labels)} different values in {len(frame)} rows, {ends}, are {kind}. {advice}")
    written: dict[str | Decimal, str] = {}
    for name, number in zip(labels, numbers, strict=True):
        plain = " ".join(name.split()).casefold() if number is None else number
        if (other := written.setdefault(plain, name)) != name:
            row = f"{frame.index.name} {frame.index[cells == name][0]}"
            raise ValueError(f"{where}: the classes {other!r} and {name!r} ({row}) differ only in how they are written")
    return tuple(labels)


def load_rows(task: str | Task, data: str | Path = "synthetic", split: str = "train") -> pd.DataFrame:
    """One split as a table with the task's text columns and `label` (class number, or the score itself).

    Args:
        data: `synthetic`, `glue`, another folder of $PALSLIB_DATA (`minbert`, `crowdflower`), a folder laid out like
            nyu-mll/glue or with the task's files, or one file (`SUFFIXES`). A file is one whole data set, so its
            splits `train`, `validation` and `test` are 80/10/10 of its rows; no text is in two of them, but for one
            in very many pairs (`data.parts`); a name with `{split}` in it stands for one file per split. A task that
            has `data` of its own is read from there.
        split: `train`, `validation`, `test`, or as the source names it; `all`, every row of a file; or one of the
            `parts.OF_TRAIN`.

    The table's index says where a row is: in text files the line on which it begins, counted from 1 as an editor does;
    in Parquet files and all other sources the row's number, from 0. A text may be empty.
    Raises ValueError naming source, row and column for a missing column or cell, an unknown label, a score that is not
    a number or bytes that are not UTF-8, and for an empty split; FileNotFoundError or ConnectionError for a source that
    is missing or out of reach.
    """
    task, few = get_task(task, data), ""
    source, name = sources.locate(task.data or data), task.source or task.name
    if split in parts.OF_TRAIN:
        table = parts.part_of_train(load_rows(task, data, "train"), task.texts, split)
    elif source == "synthetic":
        frame = synthetic_split(name, split).rename(columns={"label": task.label})
        table = sources.checked(frame, task, f"synthetic {name}/{split}", places=True)
    elif path := _file(task, source, split):
        frame = sources.read_table(path, task.separator, task.quoted, task.encoding)
        table = sources.checked(frame, task, path.name, task.built_in)
        if split != "all" and len(table) and (Path(source).is_file() or "{split}" not in source + task.files):
            groups = parts.groups_of([frame[column] for column in task.texts])  # of all rows: alike for each label
            few = f": none of its {len(table):,} rows is in it. It is split 80/10/10 by groups that share a text, and "
            few += f"has {len(set(groups)):,}: give more texts, or one file for each split ({{split}})"
            table = table[table.index.isin(frame.index[parts.part(groups, split)])]
    else:
        frame = sources.read_repository(source, name, split)
        table = sources.checked(frame, task, f"{source} {name}/{split}", task.built_in)
    if table.empty:
        raise ValueError(f"{source}: the split {split!r} of task {task.name!r} is empty{few}")
    return table


def _file(task: Task, source: str, split: str) -> Path | None:
    """The file of a task's split, or None where the source is a repository."""
    names = sources.VALIDATION if split == "validation" else (split,)
    if "{split}" in source or Path(source).is_file():
        paths = [Path(source.replace("{split}", name)) for name in names]
    elif task.files:
        patterns = [task.files.replace("{split}", name) for name in names]
        found = [sorted(Path(source).glob(pattern), key=lambda path: (len(path.name), path)) for pattern in patterns]
        paths = [path for some in found for path in some] or [Path(source, patterns[0])]
    else:
        return None
    if there := [path for path in paths if path.exists()]:
        return there[0]
    tested = split == "validation" and Path(source.replace("{split}", "test")).is_file()
    remedy = " (evaluation=('test',) scores its test file instead)" if tested else ""
    raise sources.missing(paths[0], f" for task {task.name!r}{remedy}")
