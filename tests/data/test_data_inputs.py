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
from palslib.data.tasks import Task, get_task, load_rows, task_from_file, task_from_frame
from palslib.data.tokens import tokenise_task
from palslib.plan.config import RunConfig
from palslib.training import evaluation


def in_parquet(folder, labels, texts=None):
    """A folder of one task `mine` whose Parquet file declares no classes."""
    (folder / "mine").mkdir(parents=True)
    texts = texts or [f"t{i}" for i in range(len(labels))]
    pq.write_table(pa.table({"text": texts, "label": labels}), folder / "mine" / "train-0.parquet")
    return str(folder)


@pytest.mark.parametrize(
    "labels", [("0", "1", "10", "11", "2"), ("1", "2", "3"), ("1", "0"), ("9007199254740993", "7")]
)
def test_whole_numbers_are_names_of_classes_in_every_source(tmp_path, labels):
    task = Task("mine", ("text",), labels)
    folder = in_parquet(tmp_path / "p", [int(name) for name in labels])
    pd.DataFrame({"text": list("abcde"[: len(labels)]), "label": labels}).to_csv(tmp_path / "x.csv", index=False)
    for rows in (load_rows(task, folder), load_rows(task, str(tmp_path / "{split}.csv"), "x")):
        assert rows["label"].tolist() == list(range(len(labels)))


def test_whole_numbers_are_places_where_no_class_is_a_number(tmp_path):
    assert load_rows(Task("mine", ("text",), ("no", "yes")), in_parquet(tmp_path, [1, 0]))["label"].tolist() == [1, 0]


def test_labels_that_differ(tmp_path):
    """1_0 is no number, and whole numbers beyond 2^53 are told apart."""
    for labels in (["1_0", "10"], ["9007199254740993", "9007199254740992"]):
        rows = "".join(f"t{i},{labels[i % 2]}\n" for i in range(20))
        (tmp_path / "mine.csv").write_text("text,label\n" + rows)
        assert set(task_from_file(tmp_path / "mine.csv").labels) == set(labels)


@pytest.mark.parametrize("other", ["cafe\u0301", "caf\u00e9\u200b", "caf\u00e9\ufe0f"])
def test_labels_that_look_alike_are_shown_to_differ(tmp_path, other):
    (tmp_path / "mine.csv").write_text(f"text,label\na,caf\u00e9\nb,{other}\n", encoding="utf-8")
    for make in (lambda: Task("mine", ("text",), ("caf\u00e9", other)), lambda: task_from_file(tmp_path / "mine.csv")):
        with pytest.raises(ValueError) as caught:
            make()
        assert ascii("caf\u00e9") in str(caught.value) and ascii(other) in str(caught.value)


@pytest.mark.parametrize("cell", [b"day 1", ["day 1"], {"day": 1}])
def test_a_text_in_parquet_that_is_none(tmp_path, cell):
    pq.write_table(pa.table({"text": [cell] * 10, "label": ["a", "b"] * 5}), tmp_path / "mine.parquet")
    with pytest.raises(ValueError, match=r"mine.parquet, row 0 .*'text'"):
        load_rows(task_from_file(tmp_path / "mine.parquet"))


def test_a_folder_is_no_pattern(tmp_path):
    for name, text in (("data", "wrong"), ("d[ab]ta", "right")):
        in_parquet(tmp_path / name, [1, 0], [text, "b"])
    task = Task("mine", ("text",), ("no", "yes"))
    assert load_rows(task, str(tmp_path / "d[ab]ta"))["text"][0] == "right"
    with pytest.raises(FileNotFoundError, match=r"da\*"):
        load_rows(task, str(tmp_path / "da*"))


@pytest.mark.parametrize("path", ["../other/train.parquet", "https://host/train.parquet", "/etc/passwd"])
def test_a_readme_names_no_file_outside_its_folder(tmp_path, path):
    head = f"---\nconfigs:\n- config_name: mine\n  data_files: [{{split: train, path: '{path}'}}]\n---\n"
    (tmp_path / "README.md").write_text(head)
    with pytest.raises(ValueError, match="outside the folder"):
        load_rows(Task("mine", ("text",), ("no", "yes")), str(tmp_path))


def test_scores_are_checked_when_the_task_is_made(tmp_path):
    (tmp_path / "mine.csv").write_text("text,label\na,1\nb,two\n")
    with pytest.raises(ValueError, match=r"mine.csv, line 3, column 'label': 'two' is not a finite number"):
        task_from_file(tmp_path / "mine.csv", score=True)


def test_the_home_folder_in_paths_of_data(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.csv").write_text("text,label\n" + "".join(f"t{i},{i % 2}\n" for i in range(30)))
    fields = {"labels": ["0", "1"], "data": "~/mine.csv"}
    tasks = [task_from_file("~/mine.csv"), RunConfig(tasks=("~/mine.csv",)).task("mine")]
    tasks += [RunConfig(tasks=("mine",), own={"mine": own}).task("mine") for own in ("~/mine.csv", fields)]
    assert len({len(load_rows(task)) for task in tasks} | {len(load_rows("mine", "~/mine.csv"))}) == 1


def test_a_file_that_expands_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MOST_BYTES", 10**6)
    pq.write_table(pa.table({"text": ["x" * 1000] * 5000, "label": ["a", "b"] * 2500}), tmp_path / "mine.parquet")
    with pytest.raises(ValueError, match=r"mine.parquet: .* 1,000,000 bytes"):
        task_from_file(tmp_path / "mine.parquet")


def test_what_delimited_files_may_be(tmp_path):
    """A long cell, an ending in capitals, dev.csv for the validation split, quotation marks as GLUE has them."""
    (tmp_path / "MOOD.CSV").write_text("text,label\n" + f"{'x' * 200_000},a\ny,b\n")
    assert task_from_file(tmp_path / "MOOD.CSV").labels == get_task("MOOD", tmp_path).labels == ("a", "b")
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text('text\tlabel\n"He" said\tno\nShe "said\tyes\n')
    assert len(load_rows(task_from_file(tmp_path / "{split}.tsv", quoted=False), split="validation")) == 2
    with pytest.raises(ValueError, match="quoted=False"):
        task_from_file(tmp_path / "{split}.tsv")


def test_messages_say_what_to_do(tmp_path):
    (tmp_path / "mine.csv").write_text("text,label\nsame,a\nsame,b\n")
    task = task_from_file(tmp_path / "mine.csv")
    with pytest.raises(ValueError, match="the distinct texts in 'text', of which it has 1"):
        [load_rows(task, split=split) for split in ("train", "validation", "test")]
    with pytest.raises(ValueError, match="parquet; pandas reads this one"):
        task_from_file(tmp_path / "mine.jsonl")
    with pytest.raises(ValueError, match="--tasks rte sst2"):
        RunConfig(tasks=("rte,sst2",))
    with pytest.raises(ValueError, match="task_from_frame"):
        load_rows(task.name, pd.DataFrame())
    for options in ({"text": "label"}, {"text": ("text", "text")}, {"separator": "ab"}):
        with pytest.raises(ValueError, match=r"task 'mine': (texts|separator)"):
            task_from_file(tmp_path / "mine.csv", **options)


def test_a_warning_of_bounded_length(tmp_path):
    (tmp_path / "x.csv").write_text("text,label\na,no\n" + "b,\n" * 50_000)
    task = Task("mine", ("text",), ("no", "yes"), skip_unlabelled=True)
    with pytest.warns(UserWarning) as warned:
        load_rows(task, str(tmp_path / "{split}.csv"), "x")
    assert len(str(warned[0].message)) < 500


def test_tables_in_memory(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    columns = {"text": [f"t{i}" for i in range(20)], "label": ["a", "b"] * 10}
    tables = (
        pd.DataFrame(columns),
        columns,
        pd.DataFrame(columns).to_dict("records"),
        datasets.Dataset.from_dict(columns),
    )
    assert len({task_from_frame(table, "mine").data for table in tables}) == 1
    with pytest.raises(ValueError, match=r"mine.*not a set"):
        task_from_frame({"a", "b"}, "mine")


def test_each_split_keeps_its_own_scores(monkeypatch):
    """The first one's have the metric's name, those of others the split's too."""
    task = Task("mine", ("text",), ("no", "yes"), evaluation=("validation", "test"))
    right, wrong = np.array([[0.0, 1.0]] * 4), np.array([[1.0, 0.0]] * 4)
    data = {"validation": right, "test": wrong}
    monkeypatch.setattr(evaluation, "predict", lambda model, name, data, *_: data.logits)
    rows = [SimpleNamespace(task=task, labels=np.ones(4), logits=logits) for logits in data.values()]
    fake = type("Rows", (SimpleNamespace,), {"__len__": lambda self: 4})
    splits = {"mine": {name: fake(**vars(one)) for name, one in zip(data, rows, strict=True)}}
    assert evaluation.evaluate(None, splits) == {"mine": {"accuracy": 100.0, "accuracy (test)": 0.0}}
    mnli = {
        "mnli": {
            f"validation_{kind}": one
            for kind, one in zip(("matched", "mismatched"), splits["mine"].values(), strict=True)
        }
    }
    assert evaluation.evaluate(None, mnli) == {"mnli": {"accuracy": 100.0, "accuracy_mm": 0.0}}


@pytest.mark.parametrize(
    ("first", "second", "room"), [(9, 9, 8), (9, 9, 9), (6, 9, 9), (9, 6, 9), (2, 9, 7), (9, 2, 7)]
)
def test_d18_at_equal_lengths_the_second_text_is_cut(tmp_path, monkeypatch, first, second, room):
    """As the released code's loop: the last piece of the longer text goes, at equal lengths of the second."""
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    a, b = first, second
    while a + b > room:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    (tmp_path / "x.csv").write_text(f"one,two,label\n{'rain ' * first},{'rain ' * second},0\n")
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
