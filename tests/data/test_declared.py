"""What a source says counts: the order of classes, rows as they are now; and parts of one file that share no text.

Each kind of fault in two shapes or more."""

import os
import random
import time

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palslib.data import sources
from palslib.data.metrics import score
from palslib.data.tasks import Task, load_rows, task_from_file, task_from_frame
from palslib.data.tokens import content_of

ORDER = ["sadness", "joy", "anger"]  # not that of the alphabet
TEXTS, PLACES = [f"day {i}" for i in range(60)], [i % 3 for i in range(60)]
DECLARED = datasets.Dataset.from_dict(
    {"text": TEXTS, "label": PLACES},
    features=datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=ORDER)}),
)


def names(task, data="", split="all"):
    rows = load_rows(task, data or task.data, split)
    return dict(zip(rows["text"], (task.labels[i] for i in rows["label"]), strict=True))


TRUE = {text: ORDER[place] for text, place in zip(TEXTS, PLACES, strict=True)}


def test_classes_keep_the_order_that_their_source_declares(tmp_path):
    DECLARED.to_parquet(tmp_path / "mood.parquet")
    split = DECLARED.train_test_split(0.3, seed=0)
    whole = task_from_frame(datasets.DatasetDict(train=split["train"], test=split["test"]), "mood")
    for task in (task_from_file(tmp_path / "mood.parquet"), task_from_frame(DECLARED, "mood")):
        assert task.labels == tuple(ORDER) and names(task) == TRUE
    assert whole.labels == tuple(ORDER) and names(whole, split="train") | names(whole, split="test") == TRUE
    by_name = Task("mood", ("text",), tuple(sorted(ORDER)))  # of another order: the file's names count, not its numbers
    assert names(by_name, tmp_path / "mood.parquet") == TRUE


@pytest.mark.parametrize("name", ["mood.csv", "mood.jsonl", "mood.parquet"])
def test_a_number_is_a_place_only_where_names_are_declared(tmp_path, name):
    """Files that pandas writes of the numbers of classes say nothing of the order."""
    frame = pd.DataFrame({"text": TEXTS, "label": PLACES})
    write = {".csv": frame.to_csv, ".jsonl": frame.to_json, ".parquet": frame.to_parquet}[name[4:]]
    options = {"orient": "records", "lines": True} if name.endswith("jsonl") else {"index": False}
    write(tmp_path / name, **options)
    own = Task("mood", ("text",), tuple(ORDER))
    with pytest.raises(ValueError, match=rf"{name}.*column 'label': '0' is not a label \(valid: sadness, joy, anger\)"):
        load_rows(own, tmp_path / name, "all")
    assert task_from_file(tmp_path / name).labels == ("0", "1", "2")
    built_in = pd.DataFrame({"sentence": TEXTS, "label": [i % 2 for i in PLACES]})
    built_in.to_csv(tmp_path / "sst2.csv", index=False)
    assert load_rows("sst2", tmp_path / "sst2.csv", "all")["label"].tolist() == [i % 2 for i in PLACES]


def mirror(folder, texts, readme=True):
    (folder / "rte").mkdir(parents=True, exist_ok=True)
    table = pa.table({"sentence1": texts, "sentence2": texts[::-1], "label": [i % 2 for i in range(len(texts))]})
    pq.write_table(table, folder / "rte" / "train-00000-of-00001.parquet")
    kinds = "{class_label: {names: {'0': not_entailment, '1': entailment}}}"
    head = f"""---
configs: [{{config_name: rte, data_files: [{{split: train, path: rte/train-*.parquet}}]}}]
dataset_info:
- config_name: rte
  features: [{{name: sentence1, dtype: string}}, {{name: sentence2, dtype: string}}, {{name: label, dtype: {kinds}}}]
---
"""
    (folder / "README.md").write_text(head) if readme else None
    return folder / "rte" / "train-00000-of-00001.parquet"


@pytest.mark.parametrize("readme", [True, False])
def test_a_folder_is_read_as_it_is_now(tmp_path, monkeypatch, readme):
    """`datasets` keeps a cache of a folder by its path and README: with it the second reading gives the first rows."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    path = mirror(tmp_path / "data", ["a", "b"], readme)
    before, at = load_rows("rte", tmp_path / "data"), os.stat(path)
    assert before["label"].tolist() == ([1, 0] if readme else [0, 1])  # as README declares; else GLUE's own order
    for texts in (["c", "d", "e", "f"], ["g", "h", "i", "j"]):  # the second with the times of the first
        mirror(tmp_path / "data", texts, readme)
        os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns + 10**9))
        assert load_rows("rte", tmp_path / "data")["sentence1"].tolist() == texts
    assert not (tmp_path / "cache").exists()
    assert {p.name for p in (tmp_path / "data").rglob("*")} <= {"rte", "README.md", path.name}


def parts_of(columns):
    groups = sources.groups_of(columns)
    return {split: np.flatnonzero(sources.part(groups, split)) for split in ("train", "validation", "test")}


@pytest.mark.parametrize("seed", range(5))
def test_no_text_is_in_two_parts(seed):
    draw = random.Random(seed)
    pool = [f"Text {draw.randrange(900)} of it" for _ in range(1200)]
    left, right = pool[:600], pool[600:]
    left, right = left + right[:40], right + [text.upper().replace(" ", "  ") for text in left[:40]]  # turned round
    parts = parts_of([left, right])
    seen = {
        split: {x[i].lower().replace("  ", " ") for x in (left, right) for i in rows} for split, rows in parts.items()
    }
    assert not seen["train"] & seen["validation"] and not seen["train"] & seen["test"]
    assert not seen["validation"] & seen["test"]
    assert sorted(np.concatenate([*parts.values()])) == list(range(640))
    order = draw.sample(range(640), 640)  # the order of rows, and of the two texts, means nothing
    moved = parts_of([[right[i] for i in order], [left[i] for i in order]])
    assert {split: sorted(order[i] for i in rows) for split, rows in moved.items()} == {
        split: sorted(rows) for split, rows in parts.items()
    }


def test_parts_are_as_near_to_tenths_as_groups_allow():
    single = parts_of([[f"text {i}" for i in range(1000)]])
    assert [len(rows) for rows in single.values()] == [800, 100, 100]
    topic = parts_of([[f"text {i}" for i in range(100)], ["trains"] * 50 + ["planes"] * 50])  # a topic connects nothing
    assert [len(rows) for rows in topic.values()] == [80, 10, 10]
    half = parts_of([["the same"] * 500 + [f"text {i}" for i in range(500)]])
    assert [len(rows) for rows in half.values()] == [800, 100, 100] and set(range(500)) <= set(half["train"].tolist())


def test_labels_of_one_file_are_split_alike(tmp_path):
    frame = pd.DataFrame({"text": TEXTS, "a": ["x", "y"] * 30, "b": ["u", "v", ""] * 20})
    frame.to_csv(tmp_path / "two.csv", index=False)
    one = task_from_file(tmp_path / "two.csv", label="a")
    with pytest.warns(UserWarning):
        other = task_from_file(tmp_path / "two.csv", label="b", skip_unlabelled=True)
        for split in ("train", "validation", "test"):
            assert set(load_rows(other, split=split)["text"]) <= set(load_rows(one, split=split)["text"])


def test_recorded_held_out_parts_stay():
    """As in the committed records of the tuning; the split by groups has names of its own."""
    rows = {split: load_rows("rte", split=split) for split in (sources.HELD_OUT, sources.KEPT)}
    groups = {split: load_rows("rte", split=split) for split in (sources.HELD_OUT_GROUPS, sources.KEPT_GROUPS)}
    train = load_rows("rte")
    assert content_of(pd.concat([*rows.values()]).sort_index()) == content_of(train)
    assert content_of(pd.concat([*groups.values()]).sort_index()) == content_of(train)
    texts = [set(part["sentence1"].str.lower()) for part in groups.values()]
    assert not texts[0] & texts[1] and abs(len(groups[sources.HELD_OUT_GROUPS]) - len(train) / 10) <= 1


def test_f1_names_its_class():
    task = Task("same", ("a", "b"), ("duplicate", "not_duplicate"), ("f1", "accuracy"))
    true, always = np.array([0, 1, 1, 1, 1]), np.array([[0.0, 1.0]] * 5)
    assert score(task, true, always) == pytest.approx({"f1 (not_duplicate)": 88.9, "accuracy": 80.0}, abs=0.05)
    mine = Task("same", ("a", "b"), ("duplicate", "not_duplicate"), ("f1",), positive="duplicate")
    assert score(mine, true, always) == {"f1 (duplicate)": 0.0}
    with pytest.raises(ValueError, match=r"positive class of task 'same' 'dup': did you mean 'duplicate'\?"):
        Task("same", ("a", "b"), ("duplicate", "other"), ("f1",), positive="dup")


def test_a_missing_column_says_what_to_write(tmp_path):
    (tmp_path / "mood.csv").write_text("tweet,labels\n" + "".join(f"t{i},{'ab'[i % 2]}\n" for i in range(20)))
    with pytest.raises(ValueError, match=r"mood.csv: no column 'text' .* \['tweet', 'labels'\]: give text='tweet'$"):
        task_from_file(tmp_path / "mood.csv")
    with pytest.raises(ValueError, match=r"no column 'label' .*: give label='labels'$"):
        task_from_file(tmp_path / "mood.csv", "tweet")
    with pytest.raises(ValueError, match=r"no column 'twet' .*: give text=\['tweet', 'other'\]$"):
        task_from_file(tmp_path / "mood.csv", ["twet", "other"])


def test_time_is_linear():
    """Ten times the size takes far less than a hundred times as long."""

    def seconds(n):
        texts, start = [f"text {i} of it" for i in range(n)], time.process_time()
        sources.part(sources.groups_of([texts, texts[1:] + texts[:1]]), "train")
        for text in ("1" * (20 * n) + "x", "1" * (20 * n), " " * (20 * n)):
            sources.number_of(text)
        return time.process_time() - start

    seconds(100)
    assert seconds(20_000) < 40 * max(seconds(2_000), 0.01)
