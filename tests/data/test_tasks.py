"""Tasks from four kinds of source, and every kind of bad input: the message names file, row and column."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from palslib.data.sources import locate
from palslib.data.tasks import BUILT_IN, SUITES, TASKS, Task, get_task, load_rows, name_of, task_from_file
from palslib.plan.config import RunConfig

SENTIMENT = Task("sentiment", ("text",), ("negative", "neutral", "positive"), label="mood")


def written(folder, text, name="data.csv"):
    folder.mkdir(parents=True, exist_ok=True)
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
    assert {name: (t.num_outputs, *t.metrics) for name, t in TASKS.items()} == expected
    assert TASKS["mnli"].evaluation == ("validation_matched", "validation_mismatched")
    assert sum(map(len, SUITES.values())) == len(BUILT_IN), "SUITES: a name is looked up in all of them"


@pytest.mark.parametrize("name", ["/tmp/x", "a\\b", "..", " ", "model", None])
def test_names_of_tasks_are_names_of_files(name, tmp_path):
    for make in (lambda: Task(name, ("text",)), lambda: get_task(name, tmp_path)):
        with pytest.raises(ValueError, match="cannot be the name of a task"):
            make()


@pytest.mark.parametrize("name", ["a.b", "airline tweets", "日本", "a%2E", "[a]"])
def test_names_that_a_file_may_have(name, tmp_path):
    path = written(tmp_path, "text,label\na,no\nb,yes\n", f"{name}.csv")
    assert get_task(name, tmp_path).name == get_task(name, path).name == name


NO_VALUES = {
    "texts": [("a", "a"), ("a", "b", "c"), ("label",), "sentence"],
    "labels": [("a",), ("a", "a"), ("a", "\ud83d")],
    "metrics": [()],
    "class_weights": ["balanced"],  # of a score
    "evaluation": [("test", "test")],
    "scale": [0.0],
    "head": ["cosine"],  # of two texts
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, of in NO_VALUES.items() for value in of])
def test_what_a_task_cannot_have(field, value):
    given = {"texts": ("text",), field: value}
    with pytest.raises(ValueError, match=f"^task 'mine': {field} .*$"):  # one line, also of values given by position
        Task("mine", given.pop("texts"), **given)
    with pytest.raises(ValueError, match="head 'cosine' gives scores from 0 to 5"):
        Task("mine", ("a", "b"), ("x", "y"), scale=1.0, head="cosine")


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


def mirror(folder, readme=README % ("entailment", "not_entailment"), rows=ROWS):
    """A folder laid out like nyu-mll/glue."""
    (folder / "rte").mkdir(parents=True, exist_ok=True)
    written(folder, readme, "README.md") if readme else None
    frame = pd.DataFrame(rows, columns=["sentence1", "sentence2", "label", "idx"])
    for split, part in (("train", frame), ("validation", frame[:1])):
        part.astype({"idx": "int32"}).to_parquet(folder / "rte" / f"{split}-00000-of-00001.parquet")
    return str(folder)


@pytest.mark.parametrize("readme", [README % ("not_entailment", "entailment"), ""])
def test_a_folder_is_read_as_it_is_now(tmp_path, readme):
    """As README declares classes, else in GLUE's order. The cache that `datasets` would keep of a folder, by its path
    and README, would give the first rows again."""
    folder = mirror(tmp_path / "own", readme)
    path = tmp_path / "own" / "rte" / "train-00000-of-00001.parquet"
    before = os.stat(path)
    for rows in (ROWS, ROWS[::-1], [(f"{a}?", b, label, i) for a, b, label, i in ROWS]):
        mirror(tmp_path / "own", readme, rows)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        expected = [[a, b, 1 - label if readme else label] for a, b, label, _ in rows]
        assert load_rows("rte", folder).to_numpy().tolist() == expected  # an empty text is a text
    assert len(load_rows("rte", folder, "validation")) == 1
    lacking = "unknown task 'mnli'.*Valid: rte" if readme else "no files mnli/validation_"
    for task, split, words in (("rte", "test", "while reading .*rte/test"), ("mnli", "validation_matched", lacking)):
        with pytest.raises((ValueError, FileNotFoundError), match=words):
            load_rows(task, folder, split)
    with pytest.raises(ValueError, match=r"patterns: rename it\nwhile reading .*o\[wv\]n"):  # else `own` is read
        load_rows("rte", mirror(tmp_path / "o[wv]n", readme))


SIZES = "  splits:\n  - {name: train, num_bytes: 1, num_examples: 1234}\n---"


@pytest.mark.parametrize(
    ("readme", "words"),
    [
        (README % ("up", "down"), r"row 0 .*, column 'label': 'up' is not a label \(valid: entailment, not_entailment"),
        (README.rstrip()[:-3] % ("entailment", "not_entailment") + SIZES, "says 1,234 rows, and the files have 3$"),
    ],
)
def test_a_readme_that_says_something_else(tmp_path, readme, words):
    with pytest.raises(ValueError, match=f"own rte/train(: |, ).*{words}"):
        load_rows("rte", mirror(tmp_path / "own", readme))


# ------------------------------------------------------------------------------------------------------ no such source
def test_hub_out_of_reach(monkeypatch):
    """`conftest.py` sets HF_HUB_OFFLINE, which datasets reads when it is imported."""
    monkeypatch.delenv("PALSLIB_DATA", raising=False)
    with pytest.raises(ConnectionError, match=r"nyu-mll/glue.*'rte'.*data='synthetic'.*PALSLIB_DATA=.*HF_HUB_OFFLINE"):
        load_rows("rte", "glue")


@pytest.mark.parametrize(
    ("task", "data", "words"),
    [
        ("rte", "sythetic", "no data file, folder or name 'sythetic': did you mean 'synthetic'"),
        ("rte", "", "no data file, folder or name ''"),  # was the working folder
        ("mood", "airlines.csv", "'airlines.csv': did you mean 'airline.csv'.*PALSLIB_DATA=.* has: airline.csv, own"),
        ("mood", "./own/x.csv", r"'./own/x.csv'; .*own has: mood.csv$"),
        ("moode", "{own}", r"unknown task 'moode': did you mean 'mood'\?"),
        ("rte", "{own}", r"no files rte/train-\*.parquet; .* has: mood.csv"),
    ],
)
def test_what_is_not_there_is_said_to_be_missing(tmp_path, monkeypatch, task, data, words):
    written(tmp_path / "own", "text,label\na,b\nc,d\n", "mood.csv")
    written(tmp_path, "", "airline.csv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALSLIB_DATA", str(tmp_path))
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        load_rows(task, data.format(own=tmp_path / "own"))
    monkeypatch.setenv("PALSLIB_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"'glue' is looked for in PALSLIB_DATA=.*nowhere, and there is no"):
        load_rows("rte", "glue")


def test_a_file_of_the_working_folder_goes_before_one_in_the_folder_of_data(tmp_path, monkeypatch):
    """Its classes were read from the one and its rows from the other."""
    for folder in ("here", "mirror"):
        written(tmp_path / folder, f"text,label\n{folder} a,no\n{folder} b,yes\n", "mood.csv")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PALSLIB_DATA", str(tmp_path / "mirror"))
    assert set(load_rows(task_from_file("mood.csv"), split="all")["text"]) == {"here a", "here b"}
    (tmp_path / "here" / "mood.csv").unlink()
    assert set(load_rows(task_from_file("mood.csv"), split="all")["text"]) == {"mirror a", "mirror b"}
    written(tmp_path / "mirror", "text,label\na,b\n", "m-test.csv")
    written(tmp_path / "here", "text,label\na,b\n", "m-notes.csv")
    assert locate("m-{split}.csv") == str(tmp_path / "mirror" / "m-{split}.csv")


def test_a_named_folder_of_the_data(tmp_path, monkeypatch):
    """`data="crowdflower"` is the folder of that name under PALSLIB_DATA, and `data="glue"` where there is one."""
    mirror(tmp_path / "glue")
    rows = "text,label\n" + "".join(f"t{i},{i % 2}\n" for i in range(60))
    written(tmp_path / "crowdflower", rows, "airline.csv")
    monkeypatch.setenv("PALSLIB_DATA", str(tmp_path))
    assert get_task("airline", "crowdflower").labels == ("0", "1")
    assert len(load_rows("airline", "crowdflower", "train")) == 48 and len(load_rows("rte", "glue")) == 3
    written(tmp_path / "crowdflower", rows, "airline.tsv")
    with pytest.raises(ValueError, match=r"several files of task 'airline': give .*airline\.csv or .*airline\.tsv"):
        load_rows("airline", "crowdflower")


# ----------------------------------------------------------------------------------------------------- delimited files
@pytest.mark.parametrize("labels", [("1", "10", "2"), ("-1", "1"), ("1.0", "2"), ("9007199254740993", "7"), ("²", "2")])
def test_names_that_are_numbers(tmp_path, labels):
    """Of classes called "1", "10" and "2" the label 1 is the first, and 0 is none of them."""
    task = Task("stars", ("text",), labels)
    rows = load_rows(task, as_split(tmp_path, f"text,label\na,{labels[0]}\nb,{labels[1]}\n"), "x")
    assert rows["label"].tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"x.csv, line 3, column 'label': '0' is not a label"):
        load_rows(task, as_split(tmp_path, f"text,label\na,{labels[0]}\nb,0\n"), "x")


DOUBT = r".* \(is its separator ','\? the first line looks separated by"
STRAY = "\n".join(["text\tmood", "a\tneutral", '"b\tneutral', "c\tneutral", 'd"\tneutral', "e\tneutral"])
WRONG = [  # the name of a file, its content, and the words of the error
    ("s.csv", "text,label\na,neutral\n", r"no column 'mood' .* it has: \['text', 'label'\]: give label='...'"),
    ("s.csv", "text,mood\na,neutral\nb,happy\n", r", line 3, column 'mood': 'happy' is not a label \(valid: negative"),
    ("s.csv", "", ": the file is empty"),
    ("s.csv", "text,mood\na,b,neutral\n", ", line 2: 3 cells, but the header has 2"),
    ("s.csv", 'text,mood\na,neutral\n"a,neutral\n', ", line 3: unexpected end of data"),
    ("s.csv", b"text,mood\n\xe4,neutral\n", ", line 2: not UTF-8 at byte 1 .*encoding='cp1252'"),
    ("s.csv", "text,mood\n", ": the split 'train' of task 'sentiment' is empty"),
    ("s.csv", "text,text,mood\na,b,neutral\n", r"2 columns 'text' for task .*it has: \['text', 'text', 'mood'\]"),
    ("s.csv", 'text,mood\n"one\ntwo\nthree",neutral\n\n"four\nfive",happy\n', ", line 6, column 'mood': 'happy'"),
    ("s.tsv", STRAY, "line 3: a quotation mark opens a cell here .*quoted=False"),
    # files as tasks, whose classes are those that occur
    ("mood.csv", "text,label\na,up\nb, \nc,down\n", ", line 3, column 'label': ' ' is empty"),
    ("mood.csv", "text,label\na,1\nb,1.0\nc,2\n", r"'1' and '1\.0' \(line 3\) differ only in how they are written"),
    ("mood.csv", 'text;label\n"Yes, it is";up\n', rf", line 2: ',' expected {DOUBT} ';': separator=';'\)$"),
    ("mood.csv", "text,label\n" + "a,0\nb,0.5\nc,1\n" * 9, "3 different values in 27 rows, .*like scores.*score=True"),
    ("mood.csv", "text,label\n" + "".join(f"t,name {i % 9}\n" for i in range(20)), r"too many for classes.*labels=\("),
    ("m.jsonl", '{"text": "a", "mood": "neutral"}\n[["text", "a"]]', "line 2: not a JSON object of columns"),
    ("m.jsonl", '{"text": "a", "mood": "neutral"}\n\n{"txt": "b", "mood": "y"}', "line 3, column 'text': None is not"),
    ("m.jsonl", '{"text": "a", "mood": null}', "line 1, column 'mood': '' is not a label"),
    ("m.jsonl", '{"text": ["b"], "mood": "neutral"}', r"line 1, column 'text': \['b'\] is not a text"),
    ("m.jsonl", "\n".join(f'{{"text {i}": "a"}}' for i in range(1500)), "nearly every line has columns of its own"),
    ("m.jsonl", '{"text": "a", "mood": "neutral", "mood": 3}', "line 1: .* the key 'mood' occurs twice"),
    ("mood.jsonl", '{"text": "a", "label": "\\ud83d"}\n{"text": "b", "label": "y"}', "line 1, column 'label'"),
    ("mood.csv.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\0", "cannot be read as a .csv.gz file"),
    ("mood.xls", "", r"unknown ending '.xls' of mood.xls\. Valid: .csv, .tsv.* pd.read_excel.*task_from_frame"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "words"), WRONG)
def test_wrong_files_are_named(tmp_path, name, content, words):
    path = written(tmp_path, content, name)
    with pytest.raises(ValueError, match=words) as error:
        task_from_file(path) if name.startswith("mood") else load_rows(
            replace(SENTIMENT, separator="\t" if name.endswith("tsv") else ","), path
        )
    assert name in str(error.value)


@pytest.mark.parametrize("score", ["inf", "1e39", "", "4,5"])
def test_bad_scores(tmp_path, score):
    """1e39 is finite, but not as float32, which is what is trained on. The scale is the largest size of a score."""
    path = written(tmp_path, f"first\tsecond\tsimilarity\na\tb\t4.5\nc\td\t{score}\n")
    with pytest.raises(ValueError, match=rf"data.csv, line 3, column 'similarity': '{score}' is not a finite"):
        task_from_file(path, ("first", "second"), "similarity", "\t", score=True)
    assert task_from_file(written(tmp_path, "text,label\na,-7.3\nb,5\n"), score=True).scale == 7.3
    text = "id\tsentence1\tsentence2\tsimilarity\n1\ta\tb\t0\n2\tc\td\t5\n"  # of the course's STS, from 0 to 5
    assert load_rows("sts", as_split(tmp_path, text), "x")["label"].tolist() == [0, 5]
    with pytest.raises(ValueError, match=r"x.csv, line 4, column 'similarity': '5.01' is not a score from 0 to 5"):
        load_rows("sts", as_split(tmp_path, f"{text}3\te\tf\t5.01\n"), "x")


def test_rows_without_a_label(tmp_path):
    """Those that are empty and, where they are named, labels that mean that there is none."""
    path = as_split(tmp_path, "text,mood\na,neutral\nb,\nc,positive\nd, \ne,-\n")
    for skip, rows in ((True, r"3, 5\)"), (("-",), r"3, 5, 6\)")):
        task = replace(SENTIMENT, labels=(*SENTIMENT.labels, "-") if skip is True else SENTIMENT.labels)
        with pytest.warns(UserWarning, match=rf"x.csv: rows without a label left out \(lines {rows}"):
            frame = load_rows(replace(task, skip_unlabelled=skip), path, "x")
        assert frame["text"].tolist() == ["a", "c", "e"][: 3 if skip is True else 2]
    whole = written(tmp_path, "text,label\n" + "a,-\nb,x\nc,y\n" * 9)
    with pytest.warns(UserWarning, match="left out"):
        assert task_from_file(whole, skip_unlabelled=["-"]).labels == ("x", "y")
    whole = written(tmp_path, "text,label\n" + "a,-1.0\nb,0.0\nc,1.0\nd,\n" * 9)  # as pandas writes -1, 0, 1 and none
    with pytest.warns(UserWarning, match="left out"):
        assert task_from_file(whole, skip_unlabelled=["-1"]).labels == ("0.0", "1.0")


def test_a_file_of_several_is_missing_or_too_many(tmp_path):
    folder, path = mirror(tmp_path / "own", ""), tmp_path / "own" / "rte" / "train-00000-of-00001.parquet"
    for other in ("train-old.parquet", "train-00000-of-00002.parquet"):
        shutil.copy(path, path.with_name(other))
        path = path.rename(path.with_suffix(".kept")) if "of" in other else path
        with pytest.raises(ValueError, match="by their names there should be more or fewer"):
            load_rows("rte", folder)
        path.with_name(other).unlink()


def test_a_number_that_two_classes_write_is_neither(tmp_path):
    task = replace(SENTIMENT, labels=("1", "01", "2"))
    assert load_rows(task, as_split(tmp_path, "text,mood\na,1\nb,01\nc,2.0\n"), "x")["label"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"line 2, column 'mood': '1.0' is not a label"):
        load_rows(task, as_split(tmp_path, "text,mood\na,1.0\n"), "x")


# ----------------------------------------------------------------------------------------------- files as tasks, suites
def test_a_file_is_a_task(tmp_path):
    """Called as the file is; its classes are those that occur, sorted, or those given; a folder offers each file."""
    rows = "text,label\nGood.,up\nBad.,down\n" + "".join(f"t{i},flat\n" for i in range(40))
    path = written(tmp_path, rows, "mood.csv")
    for data in (path, str(tmp_path)):
        task = get_task("mood", data)
        assert (task.name, task.labels, task.texts, task.head) == ("mood", ("down", "flat", "up"), ("text",), "linear")
        assert load_rows(task, data).equals(load_rows("mood", data))
    assert task_from_file(path, labels=np.array(["up", "flat", "down"])).labels == ("up", "flat", "down")
    with pytest.raises(ValueError, match=r"mood.csv, line 4, column 'label': 'flat' is not a label"):
        task_from_file(path, labels=("up", "down"))
    path = written(tmp_path, "tweet;mood\nYes;b\nNo;a\n", "tweets.csv")
    task = task_from_file(path, "tweet", "mood", ";")
    assert (task.texts, task.label, task.labels, task.separator) == (("tweet",), "mood", ("a", "b"), ";")
    content = "text,label\n" + "".join(f"t{i},{i % 20}\n" for i in range(100))  # are classes
    assert task_from_file(written(tmp_path, content)).labels == tuple(sorted(str(i) for i in range(20)))


def test_a_task_from_a_file_for_each_split(tmp_path):
    """Nothing is split again; classes are those of train, and a label of dev that is none of them is refused."""
    for split, rows in (("train", "a,good\nb,bad\nc,good\n"), ("val", "d,bad\n"), ("test", "e,fine\n")):
        written(tmp_path, "text,label\n" + rows, f"mood-{split}.csv")
    task = task_from_file(tmp_path / "mood-{split}.csv")
    assert (task.name, task.labels) == ("mood", ("bad", "good"))
    assert load_rows(task)["text"].tolist() == ["a", "b", "c"]
    assert load_rows(task, split="validation")["label"].tolist() == [0]
    with pytest.raises(ValueError, match=r"mood-test.csv, line 2, column 'label': .*fine"):
        load_rows(task, split="test")
    (tmp_path / "mood-val.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"mood-validation.csv' .*\(evaluation=\('test',\) scores"):
        load_rows(task, split="validation")
    names = {"b/{split}.csv": "b", "{split}-mood.csv": "mood", "mood.{split}.csv": "mood", "my-mood.csv": "my-mood"}
    assert {path: name_of(Path(path)) for path in names} == names
    config = RunConfig(tasks=("rte", "mood"), own={"mood": str(tmp_path / "mood-{split}.csv")})
    assert config.task("mood") == task == get_task("mood", str(tmp_path / "mood-{split}.csv"))


@pytest.mark.parametrize("name", SUITES["minbert"])
def test_the_minbert_tasks_from_a_folder(tmp_path, name):
    """The course's files are tab-separated, whatever their ending, and their dev split is called so."""
    task = get_task(name)
    text = "\tid\t" + "\t".join([*task.texts, task.label]) + "\n0\tx1\t" + "A film\t" * len(task.texts) + "1\n"
    written(tmp_path, "of several files, the one of the shortest name", task.files.replace("{split}*", "dev-old"))
    for split in ("train-substitute", "dev"):
        written(tmp_path, text, task.files.replace("{split}*", split))
    for split in ("train", "validation"):
        frame = load_rows(name, str(tmp_path), split)
        assert list(frame) == [*task.texts, "label"] and frame["label"].tolist() == [1]
    with pytest.raises(FileNotFoundError, match=r"no data file.*-test\*\.csv' for task .* has: .*dev\.csv"):
        load_rows(name, str(tmp_path), "test")
