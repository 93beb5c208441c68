"""What a label, a text, a file and a table may be, in every kind of source; each case was once wrong in silence."""

from dataclasses import replace

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from palslib.bert.backbones import load_tokenizer
from palslib.data import sources
from palslib.data.parts import HELD_OUT, PARTS
from palslib.data.tasks import Task, get_task, load_rows, task_from_file, task_from_frame, tasks_from_file
from palslib.data.tokens import TokenisedTask, tokenise_task
from palslib.plan.config import RunConfig
from palslib.training import evaluation


def test_labels_that_differ(tmp_path):
    """1_0 is no number, and whole numbers beyond 2^53 are told apart; in JSON Lines they stay as written."""
    labels = ("10", "1_0", "9007199254740992", "9007199254740993")
    (tmp_path / "mine.csv").write_text("text,label\n" + "".join(f"t,{label}\n" for label in labels))
    assert task_from_file(tmp_path / "mine.csv").labels == labels
    (tmp_path / "m.jsonl").write_text('{"text": 1.10, "label": 9007199254740993}\n{"text": 2e0, "label": 7}\n')
    task = task_from_file(tmp_path / "m.jsonl")
    assert task.labels == ("7", "9007199254740993") and load_rows(task, split="all")["text"].tolist() == ["1.10", "2e0"]


def test_what_files_may_be(tmp_path, monkeypatch):
    """A long cell, an ending in capitals, the home folder in a path, quotation marks as GLUE has them, empty lines of a
    file of one column, which are empty texts, except at its end."""
    (tmp_path / "MOOD.CSV").write_text("text,label\n" + f"{'x' * 200_000},a\ny,b\n")
    assert get_task("MOOD", tmp_path).labels == ("a", "b")
    monkeypatch.setenv("HOME", str(tmp_path))
    for own in ("~/MOOD.CSV", {"labels": ["a", "b"], "data": "~/MOOD.CSV"}):
        assert len(load_rows(RunConfig(tasks=("m",), own={"m": own}).task("m"), split="all")) == 2
    (tmp_path / "m.tsv").write_text('text\tlabel\n"He" said\tno\nShe "said\tyes\n')
    assert len(load_rows(task_from_file(tmp_path / "m.tsv", quoted=False), split="all")) == 2
    with pytest.raises(ValueError, match="quoted=False"):
        task_from_file(tmp_path / "m.tsv")
    (tmp_path / "new.csv").write_text('text\nfirst\n\nthird\n""\n\n\n')
    frame = sources.read_table(tmp_path / "new.csv")
    assert frame["text"].tolist() == ["first", "", "third", ""] and frame.index.tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: [load_rows("mine", "mine.csv", s) for s in PARTS], "by groups that share a text, and has 1"),
        (lambda: load_rows("few", "few.csv", split=HELD_OUT), "held-out part of train' of task 'few' is empty"),
        (lambda: task_from_file("mine.csv", positiv="a"), "unknown field .* .positiv.: did you mean .positive"),
        (lambda: tasks_from_file("few.csv", score=["lable"]), "unknown score 'lable': did you mean 'label'"),
        (lambda: task_from_frame({"a", "b"}, "mine"), "task 'mine': a table must be .*, not a set"),
        (lambda: task_from_frame(pd.Series(["a", "b"]), "mine"), "task 'mine': a table must be .*, not a Series"),
        (lambda: task_from_file("few.csv", score=True, labels=("a", "b")), "score=True contradicts labels"),
    ],
)
def test_messages_say_what_to_do(tmp_path, monkeypatch, call, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text("text,label\nsame,a\nsame,b\n")
    (tmp_path / "few.csv").write_text("\n".join(["text,label", *(f"q{i},{'ab'[i % 2]}" for i in range(8))]))
    with pytest.raises(ValueError, match=words):
        call()


FRAME = pd.DataFrame({"text": [*(f"t{i}, é" for i in range(39)), "NA"], "label": ["b", "a"] * 20, "stars": range(40)})
WAYS = {  # of pandas, to write a file, and to read it here
    "m.csv.gz": ("to_csv", {"index": False}, {}),
    "m.TSV": ("to_csv", {"sep": "\t", "index": False}, {}),
    "m.csv": ("to_csv", {"encoding": "utf-16", "index": False}, {"encoding": "utf-16"}),
    "n.csv": ("to_csv", {"encoding": "cp1252", "index": False}, {"encoding": "cp1252"}),
    "m.jsonl.gz": ("to_json", {"orient": "records", "lines": True}, {}),
    "m.parquet": ("to_parquet", {}, {}),
}


@pytest.mark.parametrize("name", WAYS)
def test_files_of_every_kind_hold_the_same_rows(tmp_path, name):
    way, writing, reading = WAYS[name]
    getattr(FRAME, way)(tmp_path / name, **writing)
    task = task_from_file(tmp_path / name, **reading)
    rows = load_rows(task, split="all")
    assert (task.name, task.labels) == (name[0], ("a", "b"))
    assert rows["text"].tolist() == FRAME["text"].tolist() and rows["label"].tolist() == [1, 0] * 20
    first = {"row": 0, "line": 1 if "json" in name else 2}
    assert rows.index.tolist() == list(range(first[rows.index.name], first[rows.index.name] + 40))
    if reading:
        words = rf"{name}, line [12]: not UTF-8 at byte .*encoding='{reading['encoding']}'"
        with pytest.raises(ValueError, match=words):
            task_from_file(tmp_path / name)


def test_a_task_for_each_label_column(tmp_path):
    """Split alike; each leaves out the rows without its own label, where that is asked for."""
    FRAME.assign(mood=["", "sad", "gay"] * 13 + ["sad"]).to_csv(tmp_path / "m.csv", index=False)
    with pytest.raises(ValueError, match=r"m.csv, line 2, column 'mood': '' is empty \(skip_unlabelled=True"):
        tasks_from_file(tmp_path / "m.csv", labels=("label", "mood"))
    with pytest.warns(UserWarning, match="rows without a label left out"):
        options = {"score": ["stars"], "skip_unlabelled": True}
        tasks = tasks_from_file(tmp_path / "m.csv", labels=("label", "mood", "stars"), **options)
        sizes = [len(load_rows(task, split="all")) for task in tasks]
        label, mood = (set(load_rows(task, split="test")["text"]) for task in tasks[:2])
    assert [task.name for task in tasks] == ["m-label", "m-mood", "m-stars"] and sizes == [40, 27, 40] and mood < label
    assert [task.labels for task in tasks] == [("a", "b"), ("gay", "sad"), ()] and tasks[2].scale == 39


class Foreign:
    """A table of another library, such as polars, that gives its columns as Arrow's."""

    columns = ("text", "label")

    def __init__(self, table: pa.Table):
        self.__arrow_c_stream__ = table.__arrow_c_stream__


def test_tables_of_every_kind_hold_the_same_rows(tmp_path, monkeypatch):
    """Whatever a file of that name in the folder of runs holds already."""
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    plain = FRAME[["text", "label"]]
    arrow = pa.Table.from_pandas(plain)
    tables = [plain, dict(plain), plain.to_dict("records"), datasets.Dataset.from_dict(dict(plain)), arrow]
    for table in (*tables, Foreign(arrow)):
        task = task_from_frame(table, "mine")
        assert load_rows(task, split="all")["text"].tolist() == FRAME["text"].tolist()
        plain[::-1].to_parquet(task.data)  # by another program
    by_split = {split: Foreign(arrow) for split in ("train", "test")}
    assert len(load_rows(task_from_frame(by_split, "mine"), split="test")) == 40


def test_each_split_keeps_its_own_scores(monkeypatch):
    """The first one's have the metric's name, those of others the split's too."""
    task = Task("mine", ("text",), ("no", "yes"), evaluation=("validation", "test"))
    monkeypatch.setattr(evaluation, "predict", lambda model, name, data, *_: data.input_ids)
    right, wrong = (
        TokenisedTask(task, np.array([logits] * 4), np.array([]), np.arange(5), np.ones(4), cut=0, pad_token_id=0)
        for logits in ([0.0, 1.0], [1.0, 0.0])
    )
    scores = evaluation.evaluate(None, {"mine": {"validation": right, "test": wrong}})
    assert scores == {"mine": {"accuracy": 100.0, "accuracy (test)": 0.0}}


@pytest.mark.parametrize(("first", "second", "room"), [(9, 9, 8), (9, 9, 9), (6, 9, 9), (2, 9, 7), (9, 2, 7)])
def test_d18_at_equal_lengths_the_second_text_is_cut(tmp_path, monkeypatch, first, second, room):
    """As the released code's loop: the last piece of the longer text goes, at equal lengths of the second."""
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    a, b = first, second
    while a + b > room:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    (tmp_path / "x.csv").write_text(f"one,two,label\n{'rain ' * first},{'rain ' * second},no\n")
    task = Task("mine", ("one", "two"), ("no", "yes"))
    arguments = (task, load_tokenizer("tiny"), str(tmp_path / "{split}.csv"), "x", room + 3)
    types = tokenise_task(replace(task, ties="second"), *arguments[1:]).token_type_ids.tolist()
    assert types == [0] * (a + 2) + [1] * (b + 1)
    assert len(tokenise_task(*arguments).token_type_ids) == len(types)


def test_training_for_passes():
    """Twice the rows of all tasks, 8 a step. The parts with constant α have a name of their own."""
    config = RunConfig(tasks=("rte", "stsb"), passes=2, batch_size=8)
    rows = sum(len(load_rows(task)) for task in config.tasks)
    assert config.with_steps() == replace(config, passes=None, steps=-(-2 * rows // 8))
    with pytest.raises(ValueError, match=r"passes.*alpha_parts"):
        RunConfig(epochs=3)
