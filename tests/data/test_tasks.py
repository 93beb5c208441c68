"""Tasks from four kinds of source, and every kind of bad input: the message names file, row and column."""

import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from palslib.data.sources import locate
from palslib.data.tasks import SUITES, TASKS, Task, get_task, load_rows, name_of, task_from_file
from palslib.plan.config import RunConfig

SENTIMENT = Task("sentiment", ("text",), ("negative", "neutral", "positive"), label="mood")
PAIRS = Task("pairs", ("first", "second"), (), ("pearson",), label="similarity", separator="\t")


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """datasets converts a folder of Parquet files once and keeps the result: here, not in the home folder."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets-cache")


def written(folder, text, name="data.csv"):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(folder / name)


def as_split(folder, text):
    """A file that is the split `x` as a whole."""
    return written(folder, text, "x.csv").replace("x.csv", "{split}.csv")


# ----------------------------------------------------------------------------------------------------------- the table
def test_table_of_tasks():
    expected = {
        "cola": (2, "matthews", "accuracy"), "sst2": (2, "accuracy"), "mrpc": (2, "accuracy", "f1"),
        "stsb": (1, "pearson", "spearman"), "qqp": (2, "accuracy", "f1"), "mnli": (3, "accuracy"),
        "qnli": (2, "accuracy"), "rte": (2, "accuracy"),
    }  # fmt: skip
    assert list(TASKS) == list(expected)
    assert {name: (t.num_outputs, *t.metrics) for name, t in TASKS.items()} == expected
    assert [name for name, t in TASKS.items() if t.is_regression] == ["stsb"]
    assert TASKS["mnli"].evaluation == ("validation_matched", "validation_mismatched")
    assert TASKS["rte"].labels == TASKS["qnli"].labels == ("entailment", "not_entailment")
    names = [name for suite in SUITES.values() for name in suite]
    assert len(names) == len(set(names)), "SUITES: a name is looked up in all of them"


def test_get_task():
    assert get_task("rte") is TASKS["rte"]
    assert get_task(SENTIMENT) is SENTIMENT
    with pytest.raises(ValueError, match=r"unknown task 'rtee': did you mean 'rte'\? Valid: cola, sst2"):
        get_task("rtee")


@pytest.mark.parametrize(
    "name", ["日" * 34, "x" * 101, "/tmp/x", "a\\b", "..", " ", "a\nb", "\ud800", "model", None, 5]
)
def test_names_of_tasks_are_names_of_files(name, tmp_path):
    """A task called `/tmp/x` was saved as /tmp/x.safetensors, wherever it was to lie."""
    for make in (lambda: Task(name, ("text",)), lambda: get_task(name, tmp_path)):
        with pytest.raises(ValueError, match="cannot be the name of a task"):
            make()


@pytest.mark.parametrize("name", ["a.b", "airline tweets", "日本", "-", "a%2E", "[a]", "x" * 100])
def test_names_that_a_file_may_have(name, tmp_path):
    path = written(tmp_path, "text,label\na,no\nb,yes\n", f"{name}.csv")
    assert Task(name, ("text",)).name == get_task(name, tmp_path).name == get_task(name, path).name == name


NO_VALUES = {
    "texts": ["sentence", ("a", 2), ("a", "b", "c"), ("label",), ("label", "a")],
    "labels": [("a",), ("a", "a"), ("a", "b\0")],
    "metrics": [()],
    "evaluation": [(), ("test", "test")],
    "scale": [0.0, math.inf, True],
    "separator": ["||", "\n"],
    "files": ["/tmp/mine-*.csv"],
    "skip_unlabelled": [1],
    "label": [None],
    "head": ["cosine", "lineer"],  # a cosine is of two texts, and a score
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, of in NO_VALUES.items() for value in of])
def test_what_a_task_cannot_have(field, value):
    with pytest.raises(ValueError, match=f"^(unknown value of )?task 'mine': {field} "):
        Task(**{"name": "mine", "texts": ("text",), field: value})
    with pytest.raises(ValueError, match="takes no classes"):
        Task("mine", ("a", "b"), ("x", "y"), head="cosine")
    with pytest.raises(ValueError, match="head 'cosine' gives scores from 0 to 5: give scale=1, not"):
        Task("mine", ("a", "b"), head="cosine")


# --------------------------------------------------------------------------------------------------- folder of Parquet

README = """---
configs:
- config_name: rte
  data_files:
  - {split: train, path: rte/train-*.parquet}
  - {split: validation, path: rte/validation-*.parquet}
dataset_info:
- config_name: rte
  features:
  - {name: sentence1, dtype: string}
  - {name: sentence2, dtype: string}
  - name: label
    dtype: {class_label: {names: {'0': %s, '1': %s}}}
  - {name: idx, dtype: int32}
---
"""
ROWS = [("It rains.", "It is wet.", 0, 0), ("It rains.", "It is dry.", 1, 1), ("A cat.", "", 1, 2)]


def mirror(folder, rows=ROWS, names=("entailment", "not_entailment")):
    """A folder laid out like nyu-mll/glue."""
    (folder / "rte").mkdir(parents=True)
    (folder / "README.md").write_text(README % names)
    frame = pd.DataFrame(rows, columns=["sentence1", "sentence2", "label", "idx"])
    for split, part in (("train", frame), ("validation", frame[:1])):
        part.astype({"idx": "int32"}).to_parquet(folder / "rte" / f"{split}-00000-of-00001.parquet")
    return str(folder)


@pytest.mark.parametrize(
    ("described", "message"),
    [(True, "own mnli.*unknown task 'mnli'.*Valid: rte"), (False, "own mnli.*no files mnli/validation_")],
)
def test_a_folder_like_the_hub_is_read_with_and_without_its_readme(tmp_path, own_cache, described, message):
    folder = mirror(tmp_path / "own")
    if not described:
        (tmp_path / "own" / "README.md").unlink()
    assert load_rows("rte", folder).to_numpy().tolist() == [list(row[:3]) for row in ROWS]  # an empty text is a text
    assert len(load_rows("rte", folder, "validation")) == 1
    with pytest.raises((ValueError, FileNotFoundError), match=r"own rte/test: .*"):
        load_rows("rte", folder, "test")
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_rows("mnli", folder, "validation_matched")


@pytest.mark.parametrize("described", [True, False])
def test_rows_are_those_of_the_folder_as_it_stands(tmp_path, own_cache, described):
    """datasets' own cache takes every folder of one name and README for the same, and misses a change."""
    folders = [mirror(tmp_path / which / "own", rows) for which, rows in (("a", ROWS), ("b", ROWS[::-1]))]
    if not described:
        for folder in folders:
            (Path(folder) / "README.md").unlink()
    assert [load_rows("rte", folder).sentence2.tolist() for folder in folders] == [
        ["It is wet.", "It is dry.", ""],
        ["", "It is dry.", "It is wet."],
    ]
    shutil.copytree(Path(folders[0]) / "rte", Path(folders[1]) / "rte", dirs_exist_ok=True)  # the same size
    assert load_rows("rte", folders[1]).sentence2.tolist() == ["It is wet.", "It is dry.", ""]


SIZES = "  splits:\n  - {name: train, num_bytes: 1, num_examples: 1234}\n---"


@pytest.mark.parametrize(
    ("readme", "message"),
    [
        (README % ("up", "down"), r"row 0 .*, column 'label': 'up' is not a label \(valid: entailment, not_entailment"),
        (README.rstrip()[:-3] % ("entailment", "not_entailment") + SIZES, "says 1,234 rows, and the files have 3$"),
        ("---\nconfigs: [{\n---\n", "while parsing a flow node"),
        (README.replace("{'0': %s, '1': %s}", "{a: %s, b: %s}") % ("x", "y"), "invalid literal for int"),
        (README.replace("{'0': %s, '1': %s}", "5, of: %s%s") % ("x", "y"), "names as a list"),
        (README.replace("rte/train-*", "rte/**") % ("x", "y"), "Invalid pattern: "),
    ],
)
def test_a_readme_that_says_something_else(tmp_path, own_cache, readme, message):
    folder = mirror(tmp_path / "own")
    written(tmp_path / "own", readme, "README.md")
    with pytest.raises(ValueError, match=f"own rte/train(: |, ).*{message}"):
        load_rows("rte", folder)


@pytest.mark.parametrize("cut", [True, False])
def test_a_damaged_parquet_file_is_named(tmp_path, own_cache, cut):
    folder = mirror(tmp_path / "own")
    path = tmp_path / "own" / "rte" / "train-00000-of-00001.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-30] if cut else whole[:4] + bytes(60) + whole[64:])
    with pytest.raises(ValueError, match=r"own rte/train: .+"):
        load_rows("rte", folder)


@pytest.mark.parametrize(
    ("label", "message"),
    [(-1, "2 .* is not a score from 0 to 5"), ([0], "0 .* finite number"), (True, "0 .* finite number")],
)
def test_a_bad_score_in_a_folder_is_named_by_its_row(tmp_path, label, message):
    """Other cells: test_bad_inputs.py. A list is no number, however it is written, nor is a boolean."""
    labels = [0, 1, -1] if label == -1 else [label] * 3
    frame = pd.DataFrame({"sentence1": ["a"] * 3, "sentence2": ["b"] * 3, "label": labels})
    (tmp_path / "own" / "stsb").mkdir(parents=True)
    frame.to_parquet(tmp_path / "own" / "stsb" / "train-0.parquet")
    with pytest.raises(ValueError, match=rf"own stsb/train, row {message}"):
        load_rows(replace(TASKS["stsb"], head="cosine", scale=1.0), str(tmp_path / "own"))


# ------------------------------------------------------------------------------------------------------ no such source
def test_hub_out_of_reach():
    """In a process of its own: datasets reads HF_HUB_OFFLINE when it is imported."""
    code = "from palslib import load_rows\ntry: load_rows('rte', 'glue')\nexcept ConnectionError as e: print(e)"
    known = {k: v for k, v in os.environ.items() if k != "PALSLIB_DATA"} | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=known, capture_output=True, text=True, timeout=120)
    for words in ("nyu-mll/glue", "'rte'", "data='synthetic'", "PALSLIB_DATA=FOLDER", "HF_HUB_OFFLINE"):
        assert words in done.stdout, done.stderr


def test_no_such_source(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no data file .*test\.csv.* for task 'sentiment'"):
        load_rows(SENTIMENT, str(tmp_path / "{split}.csv"), "test")
    for data in ("sythetic", "", "a\0b"):  # an empty one was the working folder
        with pytest.raises(ValueError, match="unknown data source"):
            load_rows("rte", data)
    with pytest.raises(FileNotFoundError, match="from a folder of delimited files, and there is no folder 'minbert-x'"):
        load_rows("sst5", "minbert-x")


@pytest.mark.parametrize("data", ["nowhere.csv", "no/such/folder", "{tmp}/none", "./x", "inner/x"])
@pytest.mark.parametrize("task", ["rte", "sst5", "mood"])
def test_what_is_not_there_is_said_to_be_missing(tmp_path, monkeypatch, task, data):
    (tmp_path / "inner").mkdir()
    written(tmp_path / "inner", "text,label\na,b\nc,d\n", "mood.csv")
    monkeypatch.chdir(tmp_path)
    data = data.format(tmp=tmp_path)
    said = data.removeprefix("./")
    what = "mood.csv" if data == "inner/x" else "inner"
    with pytest.raises(FileNotFoundError, match=rf"^no data (folder or )?file '{said}'; .* has: {what}"):
        load_rows(task, data)


def test_a_missing_name_is_looked_for_in_the_folder_of_data_too(tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()
    written(tmp_path, "", "airline.csv")
    monkeypatch.setenv("PALSLIB_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no data file 'airlines.csv'.*\(PALSLIB_DATA\) has: airline.csv, own"):
        load_rows("rte", "airlines.csv")
    for task in ("rte", "mood"):
        with pytest.raises(ValueError, match=r"unknown data source 'owm': did you mean 'own'\? Valid: .*glue, own,"):
            load_rows(task, "owm")
    assert [locate(folder) for folder in (".", "..")] == [".", ".."]  # those of the working folder


def test_a_file_of_the_working_folder_goes_before_one_in_the_folder_of_data(tmp_path, monkeypatch):
    """Its classes were read from the one and its rows from the other."""
    for place in ("here", "mirror"):
        (tmp_path / place).mkdir()
        written(tmp_path / place, f"text,label\n{place} a,no\n{place} b,yes\n", "mood.csv")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PALSLIB_DATA", str(tmp_path / "mirror"))
    assert set(load_rows(task_from_file("mood.csv"), split="all")["text"]) == {"here a", "here b"}
    (tmp_path / "here" / "mood.csv").unlink()
    assert locate("mood.csv") == str(tmp_path / "mirror" / "mood.csv")
    assert set(load_rows(task_from_file("mood.csv"), split="all")["text"]) == {"mirror a", "mirror b"}
    written(tmp_path / "mirror", "text,label\na,b\n", "m-test.csv")
    written(tmp_path / "here", "text,label\na,b\n", "m-notes.csv")
    assert locate("m-{split}.csv") == str(tmp_path / "mirror" / "m-{split}.csv")


def test_a_folder_without_the_task(tmp_path):
    written(tmp_path, "text,label\na,b\nc,d\n", "mood.csv")
    with pytest.raises(ValueError, match=r"did you mean 'mood'\?.*has no file moode.csv or moode.tsv, it has: mood"):
        load_rows("moode", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no files rte/train-\*.parquet; .* has: mood.csv"):
        load_rows("rte", str(tmp_path))
    written(tmp_path, "text\tlabel\na\tb\n", "mood.tsv")
    with pytest.raises(ValueError, match=r"several files of task 'mood': give .*mood\.csv or .*mood\.tsv"):
        load_rows("mood", str(tmp_path))


# ----------------------------------------------------------------------------------------------------- delimited files
@pytest.mark.parametrize(
    "text",
    [
        'id,text,mood\n7,"Yes, good.",positive\n8,Bad.,negative\n',
        '\ufefftext,mood\n"Yes, good.",positive\nBad.,negative\n',  # with a byte order mark
    ],
)
def test_comma_separated_names_and_numbers(tmp_path, text):
    frame = load_rows(SENTIMENT, as_split(tmp_path, text), "x")
    assert frame["text"].tolist() == ["Yes, good.", "Bad."] and frame["label"].tolist() == [2, 0]
    assert frame.index.tolist() == [2, 3]  # lines, the header being the first


def test_tab_separated_scores(tmp_path):
    """As minBERT's files: a first column without a name, scores as text."""
    text = "\tid\tfirst\tsecond\tsimilarity\n0\ta\tA, one\tAn one\t4.75\n1\tb\tNA\tnull\t0\n"
    frame = load_rows(PAIRS, as_split(tmp_path, text), "x")
    assert frame.to_numpy().tolist() == [["A, one", "An one", 4.75], ["NA", "null", 0.0]]  # "NA" is a text too
    assert frame["label"].dtype == "float32"


@pytest.mark.parametrize("labels", [("1", "2", "3"), ("-1", "1"), ("1.0", "2.0"), ("0.5", "1"), ("²", "2")])
def test_names_that_are_numbers(tmp_path, labels):
    """Of classes called "1" to "3" the label 1 is the first, and 0 is none of them."""
    task = Task("stars", ("text",), labels)
    rows = load_rows(task, as_split(tmp_path, f"text,label\na,{labels[0]}\nb,{labels[1]}\n"), "x")
    assert rows["label"].tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"x.csv, line 3, column 'label': '0' is not a label"):
        load_rows(task, as_split(tmp_path, f"text,label\na,{labels[0]}\nb,0\n"), "x")


def test_quotation_marks_that_swallow_rows_are_named(tmp_path):
    """Between two stray ones of a tab-separated file all line breaks and tabs would be part of a text."""
    lines = ["text\tmood", *(f"text {i}\tpositive" for i in range(8))]
    lines[3], lines[6] = '"text 2\tpositive', 'text 5"\tpositive'
    with pytest.raises(ValueError, match="line 4: a quotation mark opens a cell here"):
        load_rows(replace(SENTIMENT, separator="\t"), as_split(tmp_path, "\n".join(lines)), "x")


def test_split_by_distinct_text(tmp_path):
    """800, 100, 100 of 1,000 texts on average: four standard deviations are 51 and 38."""
    rows = [f"text {i},{('negative', 'positive')[i % 2]}" for i in range(1000)]
    path = written(tmp_path, "\n".join(["text,mood", *rows, *(f" {row}" for row in rows[:300])]))  # but for a blank
    parts = {split: load_rows(SENTIMENT, path, split) for split in ("train", "validation", "test")}
    texts = {split: set(part["text"].str.strip()) for split, part in parts.items()}
    for split, part in parts.items():  # also for a task of several files: else it is scored on what it was trained on
        assert part.equals(load_rows(replace(SENTIMENT, files="mood-{split}.csv"), path, split))
    assert sum(map(len, parts.values())) == 1300
    assert sum(map(len, texts.values())) == len(set.union(*texts.values())) == 1000  # no text stands in two parts
    assert abs(len(texts["train"]) - 800) < 51
    assert abs(len(texts["validation"]) - 100) < 38
    rows += [f" {row}" for row in rows[:300]]
    other = written(tmp_path, "\n".join(["text,mood", *sorted(rows, reverse=True)]), "other.csv")
    assert set(load_rows(SENTIMENT, other, "test")["text"].str.strip()) == texts["test"]  # whatever the order of rows
    with pytest.raises(ValueError, match=r"unknown split 'dev'.*Valid: train, validation, test"):
        load_rows(SENTIMENT, path, "dev")


def test_bad_row_of_another_part_is_seen(tmp_path):
    path = written(tmp_path, "text,mood\n" + "".join(f"t{i},neutral\n" for i in range(50)) + "t50,happy\n")
    for split in ("train", "validation", "test"):
        with pytest.raises(ValueError, match=r"data\.csv, line 52, column 'mood': 'happy'"):
            load_rows(SENTIMENT, path, split)


BAD = [  # bad_inputs.py has rows of other lengths, quotation marks and bytes
    ("text,label\na,neutral\n", r"no column 'mood' .* it has: \['text', 'label'\]: give label='...'$"),
    ("text,mood\na,neutral\nb,happy\n", r", line 3, column 'mood': 'happy' is not a label \(valid: negative, neut"),
    ("", ": the file is empty"),
    ("text,mood\n", ": the split 'train' of task 'sentiment' is empty"),
    ("text,text,mood\na,b,neutral\n", r"2 columns 'text' for task .*it has: \['text', 'text', 'mood'\]"),
    # line breaks in cells; line 5 is blank
    ('text,mood\n"one\ntwo\nthree",neutral\n\n"four\nfive",happy\n', ", line 6, column 'mood': 'happy'"),
    ('text,mood\r\n"one\r\ntwo",neutral\r\nfour,happy\r\n', ", line 4, column 'mood'"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_bad_files(tmp_path, text, message):
    with pytest.raises(ValueError, match=rf"data\.csv.*{message}"):
        load_rows(SENTIMENT, written(tmp_path, text))


@pytest.mark.parametrize("score", ["high", "inf", "1e39", "", "4,5"])
def test_bad_scores(tmp_path, score):
    """1e39 is finite, but not as float32, which is what is trained on. The scale is the largest size of a score."""
    path = written(tmp_path, f"first\tsecond\tsimilarity\na\tb\t4.5\nc\td\t{score}\n")
    texts = ("first", "second")
    for read in (load_rows, lambda _, path: task_from_file(path, texts, "similarity", "\t", score=True)):
        with pytest.raises(ValueError, match=rf"data.csv, line 3, column 'similarity': '{score}' is not a finite"):
            read(PAIRS, path)
    assert task_from_file(written(tmp_path, "text,label\na,-10\nb,5\n"), score=True).scale == 10
    assert task_from_file(written(tmp_path, "a,b,label\nc,d,4\n"), ("a", "b"), score=True, head="cosine").scale == 1


@pytest.mark.parametrize("score", ["5.01", "-1"])
def test_scores_of_similarity_are_from_0_to_5(tmp_path, score):
    """The course's STS, which is trained on the score itself; 0 and 5 are scores."""
    text = "id\tsentence1\tsentence2\tsimilarity\n1\ta\tb\t0\n2\tc\td\t5\n"
    assert load_rows("sts", as_split(tmp_path, text), "x")["label"].tolist() == [0, 5]
    with pytest.raises(ValueError, match=rf"x.csv, line 4, column 'similarity': '{score}' is not a score from 0 to 5"):
        load_rows("sts", as_split(tmp_path, f"{text}3\te\tf\t{score}\n"), "x")


def test_rows_without_a_label(tmp_path):
    path = as_split(tmp_path, "text,mood\na,neutral\nb,\nc,positive\nd, \n")
    with pytest.raises(ValueError, match="line 3, column 'mood': ''"):
        load_rows(SENTIMENT, path, "x")
    with pytest.warns(UserWarning, match=r"x.csv: rows without a label left out \(lines 3, 5\)"):
        frame = load_rows(replace(SENTIMENT, skip_unlabelled=True), path, "x")
    assert frame["text"].tolist() == ["a", "c"]
    two = as_split(tmp_path, "text,mood,mood\na,neutral,\n")
    with pytest.raises(ValueError, match="2 columns 'mood'"):
        load_rows(replace(SENTIMENT, skip_unlabelled=True), two, "x")
    path = as_split(tmp_path, "text,mood\na,neutral\n" + "b,\n" * 50_000)
    with pytest.warns(UserWarning) as warned:
        load_rows(replace(SENTIMENT, skip_unlabelled=True), path, "x")
    assert len(str(warned[0].message)) < 500


# ----------------------------------------------------------------------------------------------- files as tasks, suites
def test_a_file_is_a_task(tmp_path):
    """Called as the file is; its classes are those that occur, sorted; a folder of files offers each."""
    rows = "text,label\nGood.,up\nBad.,down\n" + "".join(f"t{i},flat\n" for i in range(40))
    path = written(tmp_path, rows, "mood.csv")
    for data in (path, str(tmp_path)):
        task = get_task("mood", data)
        assert (task.name, task.labels, task.texts, task.head) == ("mood", ("down", "flat", "up"), ("text",), "linear")
        assert set(load_rows("mood", data)["label"]) <= {0, 1, 2}
        assert load_rows(task, data).equals(load_rows("mood", data))
    with pytest.raises(ValueError, match=r"unknown task 'moode': did you mean 'mood'\?.*Valid: .*mood"):
        get_task("moode", str(tmp_path))


def test_a_file_with_other_columns_and_separator(tmp_path):
    path = written(tmp_path, "tweet;mood\nYes;b\nNo;a\n", "tweets.csv")
    task = task_from_file(path, "tweet", "mood", ";")
    assert (task.texts, task.label, task.labels, task.separator) == (("tweet",), "mood", ("a", "b"), ";")
    written(tmp_path, "", "tweets.txt")
    with pytest.raises(ValueError, match=r"unknown ending '.txt' of tweets.txt\. Valid: .csv, .tsv"):
        task_from_file(tmp_path / "tweets.txt")


def test_a_task_from_a_file_for_each_split(tmp_path):
    """Nothing is split again; classes are those of train, and a label of dev that is none of them is refused."""
    for split, rows in (("train", "a,good\nb,bad\nc,good\n"), ("validation", "d,bad\n"), ("test", "e,fine\n")):
        (tmp_path / f"mood-{split}.csv").write_text("text,label\n" + rows)
    task = task_from_file(tmp_path / "mood-{split}.csv")
    assert (task.name, task.labels) == ("mood", ("bad", "good"))
    assert load_rows(task)["text"].tolist() == ["a", "b", "c"]
    assert load_rows(task, split="validation")["label"].tolist() == [0]
    with pytest.raises(ValueError, match=r"mood-test.csv, line 2, column 'label': .*fine"):
        load_rows(task, split="test")
    names = {"b/{split}.csv": "b", "{split}-mood.csv": "mood", "mood.{split}.csv": "mood", "my-mood.csv": "my-mood"}
    assert {path: name_of(Path(path)) for path in names} == names
    assert RunConfig(tasks=(str(tmp_path / "mood-{split}.csv"),)).tasks == ("mood",)
    config = RunConfig(tasks=("rte", "mood"), own={"mood": str(tmp_path / "mood-{split}.csv")})
    assert config.task("mood") == task


def labels_in(folder, labels):
    return written(folder, "text,label\n" + "".join(f"t{i},{x}\n" for i, x in enumerate(labels)), "mood.csv")


DOUBT = r".* \(is its separator ','\? the first line looks separated by"
NO_CLASSES = [
    ("text,label\na,up\nb, \nc,down\n", ", line 3, column 'label': ' ' is empty"),
    ("text,label\na,up\nb,up\n", r", column 'label': .* two classes or more, not \['up'\]"),
    # by their names, with the line of the one that is sorted last
    ("text,label\na,up\nb,down\nc,up \n", r"classes 'up' and 'up ' \(line 4\) differ only in how they are written"),
    ("text,label\na,up\nb,down\nc,UP\n", r"classes 'UP' and 'up' \(line 2\) differ only in how they are written"),
    ("text,label\na,1\nb,1.0\nc,2\n", r"classes '1' and '1\.0' \(line 3\) differ only in how they are written"),
    # the separator is doubted in every error, where the first line looks separated by another
    ("text;label\na;up\n", rf": no column 'text'{DOUBT} ';': separator=';'\)$"),
    ("text\tlabel\na\tup\n", rf": no column 'text'{DOUBT} '\\t': separator='\\t'\)$"),
    ('text;label\n"Yes, it is";up\n', rf", line 2: ',' expected {DOUBT} ';': separator=';'\)$"),
    ("id;a, b;text;label\n1;2;3;4\n", rf", line 2: 1 cells, {DOUBT} ';': separator=';'\)$"),
]


@pytest.mark.parametrize(("text", "message"), NO_CLASSES)
def test_a_file_that_is_no_classification(tmp_path, text, message):
    with pytest.raises(ValueError, match=rf"mood\.csv.*{message}"):
        get_task("mood", written(tmp_path, text, "mood.csv"))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["0", "0.5", "1"] * 100, "3 different values in 300 rows, such as '0' and '1', are numbers"),
        ([str(i) for i in range(21)] * 20, "21 different values in 420 rows, .* numbers, like scores"),
        ([f"name {i % 50}" for i in range(200)], "50 different values in 200 rows, .* too many for classes"),
    ],
)
def test_a_column_of_scores_or_of_names_is_no_classes(tmp_path, labels, message):
    """Neither numbers with fractions, nor more than twenty numbers, nor what hardly occurs twice."""
    path = labels_in(tmp_path, labels)
    with pytest.raises(ValueError, match=rf"mood.csv, column 'label': {message}.*score=True.*if they are classes"):
        get_task("mood", path)
    # Eighteen classes of 140 rows, as Crowdflower's emotions; twenty numbers; two classes in two rows.
    for few in ([f"emotion {i}" for i in range(18)] * 140, [str(i) for i in range(20)] * 5, ["a", "b"]):
        assert get_task("mood", labels_in(tmp_path, few)).labels == tuple(sorted(set(few)))


def test_a_score_asked_for_as_the_message_says(tmp_path):
    path = labels_in(tmp_path, [f"{i / 40:.3f}" for i in range(200)])
    with pytest.raises(ValueError, match="like scores") as error:
        get_task("mood", path)
    assert "give score=True" in str(error.value)
    frame = load_rows(task_from_file(path, score=True))
    assert frame["label"].between(0, 5).all() and frame["label"].dtype == "float32" and len(frame) > 100


def test_a_named_folder_of_the_data(tmp_path, own_cache, monkeypatch):
    """`data="crowdflower"` is the folder of that name under PALSLIB_DATA, and `data="glue"` where there is one."""
    mirror(tmp_path / "glue")
    (tmp_path / "crowdflower").mkdir()
    written(tmp_path / "crowdflower", "text,label\n" + "".join(f"t{i},{i % 2}\n" for i in range(60)), "airline.csv")
    monkeypatch.setenv("PALSLIB_DATA", str(tmp_path))
    assert get_task("airline", "crowdflower").labels == ("0", "1")
    assert len(load_rows("airline", "crowdflower", "train")) > 30
    assert len(load_rows("rte", "glue")) == 3


@pytest.mark.parametrize("name", SUITES["minbert"])
def test_the_minbert_tasks_from_a_folder(tmp_path, name):
    """The course's files are tab-separated, whatever their ending, and their dev split is called so."""
    task = get_task(name)
    columns = [*task.texts, task.label]
    text = "\tid\t" + "\t".join(columns) + "\n0\tx1\t" + "\t".join(["A film"] * len(task.texts)) + "\t1\n"
    written(tmp_path, "of several files, the one of the shortest name", task.files.replace("{split}*", "dev-old"))
    for split in ("train-substitute", "dev"):
        written(tmp_path, text, task.files.replace("{split}*", split))
    for split in ("train", "validation"):
        frame = load_rows(name, str(tmp_path), split)
        assert list(frame) == [*task.texts, "label"] and frame["label"].tolist() == [1]
    with pytest.raises(FileNotFoundError, match=r"has no file '.*test.*' for task .*it has: .*dev\.csv"):
        load_rows(name, str(tmp_path), "test")


# ---------------------------------------------------------------------------------------------------------- real files

REAL_ROWS = {  # as PROVENANCE.md beside the files has them
    "glue": {
        ("cola", "train"): 8551, ("cola", "validation"): 1043, ("sst2", "train"): 67349, ("sst2", "validation"): 872,
        ("mrpc", "train"): 3668, ("mrpc", "validation"): 408, ("stsb", "train"): 5749, ("stsb", "validation"): 1500,
        ("rte", "train"): 2490, ("rte", "validation"): 277, ("qnli", "train"): 10292, ("qnli", "validation"): 5463,
        ("mnli", "train"): 13393, ("mnli", "validation_matched"): 9815, ("mnli", "validation_mismatched"): 915,
        ("qqp", "train"): 27125, ("qqp", "validation"): 7599,
    },
    "minbert": {
        ("sst5", "train"): 8544, ("sst5", "validation"): 1101, ("sts", "train"): 6040, ("sts", "validation"): 863,
        ("quora", "train"): 33485,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", REAL_ROWS)
def test_rows_and_classes_of_the_real_files(real_data, own_cache, name):
    labels = {key: load_rows(key[0], str(real_data / name), key[1])["label"] for key in REAL_ROWS[name]}
    assert {key: len(column) for key, column in labels.items()} == REAL_ROWS[name]
    for (task, _), column in labels.items():
        assert get_task(task).is_regression or column.nunique() == len(get_task(task).labels)


def test_real_minbert_unlabelled_rows(real_data):
    """Two of the 20,214 rows of quora-dev have an empty label: refused, or left out on request."""
    folder, task = str(real_data / "minbert"), get_task("quora")
    with pytest.raises(ValueError, match=r"quora-dev\.csv, line 2577, column 'is_duplicate': '' is not a label"):
        load_rows(replace(task, skip_unlabelled=False), folder, "validation")
    with pytest.warns(UserWarning, match=r"lines 2577, 14222"):
        assert len(load_rows(task, folder, "validation")) == 20212


@pytest.mark.parametrize(
    ("name", "rows", "classes"),
    [("airline", 14640, 3), ("corporate_messaging", 3118, 4), ("disasters", 10860, 2), ("political_bias", 5000, 2)],
)
def test_real_crowdflower(real_data, name, rows, classes):
    path = real_data / "crowdflower" / f"{name}.csv"
    task = get_task(name, path)
    parts = [load_rows(task, str(path), split) for split in ("train", "validation", "test")]
    assert sum(map(len, parts)) == rows
    assert task.num_outputs == classes
    assert 0.77 < len(parts[0]) / rows < 0.83
