"""What a label, a text and a file may be, in every kind of source; each case was once wrong in silence."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palslib.bert.backbones import load_tokenizer
from palslib.data import sources
from palslib.data.tasks import Task, get_task, load_rows, task_from_file, task_from_frame, tasks_from_file
from palslib.data.tokens import tokenise_task
from palslib.plan.config import RunConfig
from palslib.training import evaluation


def in_parquet(folder, labels, texts=None):
    """A folder of one task `mine` whose Parquet file declares no classes."""
    (folder / "mine").mkdir(parents=True)
    texts = texts or [f"t{i}" for i in range(len(labels))]
    pq.write_table(pa.table({"text": texts, "label": labels}), folder / "mine" / "train-0.parquet")
    return str(folder)


@pytest.mark.parametrize("labels", [("0", "1", "10", "11", "2"), ("1", "0"), ("9007199254740993", "7")])
def test_whole_numbers_are_names_of_classes_in_every_source(tmp_path, labels):
    task = Task("mine", ("text",), labels)
    folder = in_parquet(tmp_path / "p", [int(name) for name in labels])
    pd.DataFrame({"text": list("abcde"[: len(labels)]), "label": labels}).to_csv(tmp_path / "x.csv", index=False)
    for rows in (load_rows(task, folder), load_rows(task, str(tmp_path / "{split}.csv"), "x")):
        assert rows["label"].tolist() == list(range(len(labels)))


def test_labels_that_differ(tmp_path):
    """1_0 is no number, and whole numbers beyond 2^53 are told apart."""
    for labels in (["1_0", "10"], ["9007199254740993", "9007199254740992"]):
        rows = "".join(f"t{i},{labels[i % 2]}\n" for i in range(20))
        (tmp_path / "mine.csv").write_text("text,label\n" + rows)
        assert set(task_from_file(tmp_path / "mine.csv").labels) == set(labels)
    (tmp_path / "m.jsonl").write_text('{"text": 1.10, "label": 9007199254740993}\n{"text": 2e0, "label": 7}\n')
    task = task_from_file(tmp_path / "m.jsonl")  # as written
    assert task.labels == ("7", "9007199254740993") and load_rows(task, split="all")["text"].tolist() == ["1.10", "2e0"]
    (tmp_path / "m.jsonl").write_text(
        '{"text": "a", "label": NaN}\n{"text": "b", "label": 7}\n{"text": "c", "label": 8}'
    )
    with pytest.warns(UserWarning, match="without a label"):
        assert task_from_file(tmp_path / "m.jsonl", skip_unlabelled=True).labels == ("7", "8")


def test_a_folder_is_no_pattern(tmp_path):
    for name, text in (("data", "wrong"), ("d[ab]ta", "right")):
        in_parquet(tmp_path / name, [1, 0], [text, "b"])
    task = Task("mine", ("text",), ("no", "yes"))
    with pytest.raises(ValueError, match=r"d\[ab\]ta .* patterns: rename it"):
        load_rows(task, str(tmp_path / "d[ab]ta"))
    with pytest.raises(FileNotFoundError, match=r"da\*"):
        load_rows(task, str(tmp_path / "da*"))


def test_the_home_folder_in_paths_of_data(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.csv").write_text("text,label\n" + "".join(f"t{i},{i % 2}\n" for i in range(30)))
    fields = {"labels": ["0", "1"], "data": "~/mine.csv"}
    tasks = [task_from_file("~/mine.csv"), RunConfig(tasks=("~/mine.csv",)).task("mine")]
    tasks += [RunConfig(tasks=("mine",), own={"mine": own}).task("mine") for own in ("~/mine.csv", fields)]
    assert len({len(load_rows(task)) for task in tasks} | {len(load_rows("mine", "~/mine.csv"))}) == 1


def test_what_delimited_files_may_be(tmp_path):
    """A long cell, an ending in capitals, dev.csv for the validation split, quotation marks as GLUE has them."""
    (tmp_path / "MOOD.CSV").write_text("text,label\n" + f"{'x' * 200_000},a\ny,b\n")
    assert task_from_file(tmp_path / "MOOD.CSV").labels == get_task("MOOD", tmp_path).labels == ("a", "b")
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text('text\tlabel\n"He" said\tno\nShe "said\tyes\n')
    assert len(load_rows(task_from_file(tmp_path / "{split}.tsv", quoted=False), split="validation")) == 2
    with pytest.raises(ValueError, match="quoted=False"):
        task_from_file(tmp_path / "{split}.tsv")


def test_an_empty_line_of_a_file_of_one_column_is_an_empty_text(tmp_path):
    """Predictions for its rows stand beside the file's own lines; empty lines at its end are none."""
    (tmp_path / "new.csv").write_text('text\nfirst\n\nthird\n""\n\n\n')
    frame = sources.read_table(tmp_path / "new.csv")
    assert frame["text"].tolist() == ["first", "", "third", ""] and frame.index.tolist() == [2, 3, 4, 5]


def test_messages_say_what_to_do(tmp_path):
    (tmp_path / "mine.csv").write_text("text,label\nsame,a\nsame,b\n")
    task = task_from_file(tmp_path / "mine.csv")
    long = [f"{i},{i}{'9' * 30}" for i in range(1, 60)]
    (tmp_path / "few.csv").write_text("\n".join(["text,label", *(f"q{i},{'ab'[i % 2]}" for i in range(8))]))
    few = task_from_file(tmp_path / "few.csv")
    (tmp_path / "long.csv").write_text("\n".join(["text,label", *long]))
    (tmp_path / "mine.feather").touch()
    for message, call in {
        "groups of rows that share a text, of which it has 1": lambda: [load_rows(task, split=s) for s in SPLITS],
        "parquet; other formats that pandas reads": lambda: task_from_file(tmp_path / "mine.feather"),
        "--tasks rte sst2": lambda: RunConfig(tasks=("rte,sst2",)),
        "task_from_frame": lambda: load_rows(task.name, pd.DataFrame()),
        "held-out part of train' of task 'few' is empty": lambda: load_rows(few, split=sources.HELD_OUT),
        "numbers, like scores": lambda: task_from_file(tmp_path / "long.csv"),
        "unknown option of task_from_file 'labels'": lambda: task_from_file(tmp_path / "mine.csv", labels=("a", "b")),
        "unknown option of task_from_file 'data'": lambda: tasks_from_file(tmp_path / "mine.csv", data="glue"),
        "no column 'lab'": lambda: tasks_from_file(tmp_path / "mine.csv", labels="lab"),
        "unknown score 'lable': did you mean 'label'": lambda: tasks_from_file(few.data, score="lable"),
        r"no column 'label' .* has: \['text'\]: give label=": lambda: task_from_frame(
            pd.DataFrame({"text": ["a"]}), "mood"
        ),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


SPLITS = ("train", "validation", "test")
FRAME = pd.DataFrame({"text": [f"t{i}, é" for i in range(40)], "label": ["b", "a"] * 20, "stars": range(40)})
WAYS = {
    "m.csv.gz": ("to_csv", {}),
    "m.TSV": ("to_csv", {"sep": "\t"}),
    "m.jsonl": ("to_json", {"orient": "records", "lines": True}),
    "m.jsonl.gz": ("to_json", {"orient": "records", "lines": True}),
    "m.parquet": ("to_parquet", {}),
}


@pytest.mark.parametrize("name", WAYS)
def test_files_of_every_kind_hold_the_same_rows(tmp_path, name):
    (way, options), index = WAYS[name], {} if "json" in name else {"index": False}
    getattr(FRAME, way)(tmp_path / name, **options, **index)
    task = task_from_file(tmp_path / name)
    rows = load_rows(task, split="all")
    assert (task.name, task.labels) == ("m", ("a", "b")) and get_task("m", tmp_path).labels == task.labels
    assert rows["text"].tolist() == FRAME["text"].tolist() and rows["label"].tolist() == [1, 0] * 20
    first = {"row": 0, "line": 1 if "json" in name else 2}
    assert rows.index.tolist() == list(range(first[rows.index.name], first[rows.index.name] + 40))


@pytest.mark.parametrize("kind", ["utf-16", "cp1252"])
def test_other_encodings(tmp_path, kind):
    FRAME.to_csv(tmp_path / "m.csv", index=False, encoding=kind)
    task = task_from_file(tmp_path / "m.csv", encoding=kind)
    assert load_rows(task, split="all")["text"].tolist() == FRAME["text"].tolist() and task.said()["encoding"] == kind
    with pytest.raises(ValueError, match=rf"m.csv, line [12]: not UTF-8 at byte .*encoding='{kind}'"):
        task_from_file(tmp_path / "m.csv")
    with pytest.raises(ValueError, match=r"task 'm': encoding must be .* not 'klingon'"):
        task_from_file(tmp_path / "m.csv", encoding="klingon")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"text": "a", "label": "x"}\n[["text", "a"]]', "line 2: not a JSON object of columns"),
        ('{"text": "a", "label": "x"}\n\n{"txt": "b", "label": "y"}', "line 3, column 'text': None is not a text"),
        ('{"text": "a", "label": "x"}\n{"text": "b", "label": null}', "line 2, column 'label': '' is empty"),
        ('{"text": "a", "label": "x"}\n{"text": ["b"], "label": "y"}', r"line 2, column 'text': \['b'\] is not a text"),
        ('{"text": 1, "label": 2, "label": 3}', "line 1: not a JSON object of columns: the key 'label' occurs twice"),
        ("\n", "the file is empty"),
    ],
)
def test_bad_json_lines(tmp_path, lines, message):
    (tmp_path / "m.jsonl").write_text(lines)
    with pytest.raises(ValueError, match=f"m.jsonl.*{message}"):
        load_rows(task_from_file(tmp_path / "m.jsonl"), split="all")


def test_compressed_files_that_are_damaged(tmp_path):
    FRAME.to_csv(tmp_path / "m.csv.gz")
    (tmp_path / "n.csv.gz").write_bytes((tmp_path / "m.csv.gz").read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"n.csv.gz cannot be read as"):
        task_from_file(tmp_path / "n.csv.gz")


def test_a_task_for_each_label_column(tmp_path):
    """Split alike; each leaves out the rows without its own label, where that is asked for."""
    FRAME.assign(mood=["", "sad", "gay"] * 13 + ["sad"]).to_csv(tmp_path / "m.csv", index=False)
    with pytest.raises(ValueError, match=r"m.csv, line 2, column 'mood': '' is empty \(skip_unlabelled=True"):
        tasks_from_file(tmp_path / "m.csv", labels=("label", "mood"))
    with pytest.warns(UserWarning, match="rows without a label left out"):
        about = {"score": ["stars"], "skip_unlabelled": True}
        made = tasks_from_file(tmp_path / "m.csv", labels=("label", "mood", "stars"), **about)
        sizes = [len(load_rows(task, split="all")) for task in made]
    assert [task.name for task in made] == ["m-label", "m-mood", "m-stars"] and sizes == [40, 27, 40]
    assert [task.labels for task in made] == [("a", "b"), ("gay", "sad"), ()] and made[2].scale == 39


def test_a_data_set_of_several_splits(tmp_path, monkeypatch):
    """Its classes by name, not by number; -1 is a row without a label. Columns, rows or a data set are one table."""
    import datasets

    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    columns = {"train": [0, 1, 1], "validation": [1, 0], "test": [-1, -1]}
    parts = {
        split: datasets.Dataset.from_dict({"text": [f"{split} {i}" for i in range(len(x))], "label": x}, features)
        for split, x in columns.items()
    }
    task = task_from_frame(datasets.DatasetDict(parts), "mine")
    assert task.labels == ("no", "yes")
    assert [load_rows(task, split=split)["label"].tolist() for split in SPLITS[:2]] == [[0, 1, 1], [1, 0]]
    with pytest.raises(ValueError, match=r"row 0 .*column 'label': '' is not a label"):
        load_rows(task, split="test")
    plain = FRAME[["text", "label"]]
    tables = (plain, dict(plain), plain.to_dict("records"), datasets.Dataset.from_dict(dict(plain)))
    assert len({task_from_frame(table, "mine").data for table in tables}) == 1
    with pytest.raises(ValueError, match=r"mine.*not a set"):
        task_from_frame({"a", "b"}, "mine")


def test_each_split_keeps_its_own_scores(monkeypatch):
    """The first one's have the metric's name, those of others the split's too."""
    task = Task("mine", ("text",), ("no", "yes"), evaluation=("validation", "test"))
    monkeypatch.setattr(evaluation, "predict", lambda model, name, data, *_: data.logits)
    rows = type("Rows", (SimpleNamespace,), {"__len__": lambda self: 4})
    right, wrong = (rows(task=task, labels=np.ones(4), logits=np.array([x] * 4)) for x in ([0.0, 1.0], [1.0, 0.0]))
    found = evaluation.evaluate(None, {"mine": {"validation": right, "test": wrong}})
    assert found == {"mine": {"accuracy": 100.0, "accuracy (test)": 0.0}}
    found = evaluation.evaluate(None, {"mnli": {"validation_matched": right, "validation_mismatched": wrong}})
    assert found == {"mnli": {"accuracy": 100.0, "accuracy_mm": 0.0}}


@pytest.mark.parametrize(("first", "second", "room"), [(9, 9, 8), (9, 9, 9), (6, 9, 9), (2, 9, 7), (9, 2, 7)])
def test_d18_at_equal_lengths_the_second_text_is_cut(tmp_path, monkeypatch, first, second, room):
    """As the released code's loop: the last piece of the longer text goes, at equal lengths of the second."""
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    a, b = first, second
    while a + b > room:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    (tmp_path / "x.csv").write_text(f"one,two,label\n{'rain ' * first},{'rain ' * second},no\n")
    task = Task("mine", ("one", "two"), ("no", "yes"))
    given = (task, load_tokenizer("tiny"), str(tmp_path / "{split}.csv"), "x", room + 3)
    types = tokenise_task(*given, ties="second").token_type_ids.tolist()
    assert types == [0] * (a + 2) + [1] * (b + 1)
    assert len(tokenise_task(*given).token_type_ids) == len(types)


def test_training_for_passes():
    """Twice the rows of all tasks, 8 a step. The parts with constant α have a name of their own."""
    config = RunConfig(tasks=("rte", "stsb"), passes=2, batch_size=8)
    rows = sum(len(load_rows(task)) for task in config.tasks)
    assert config.with_steps() == replace(config, passes=None, steps=-(-2 * rows // 8))
    with pytest.raises(ValueError, match=r"passes.*alpha_parts"):
        RunConfig(epochs=3)
