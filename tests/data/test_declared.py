"""What a source says counts: the order of classes, rows as they are now; and parts of one file that share no text.

Each kind of fault in two shapes or more."""

import random
from dataclasses import replace

import datasets
import numpy as np
import pandas as pd
import pytest

from palslib.data import parts
from palslib.data.metrics import name_of, score
from palslib.data.tasks import TASKS, Task, load_rows, task_from_file, task_from_frame
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


def parts_of(columns):
    groups = parts.groups_of(columns)
    return {split: np.flatnonzero(parts.part(groups, split)) for split in parts.PARTS}


@pytest.mark.parametrize("seed", range(5))
def test_no_text_is_in_two_parts(seed):
    draw = random.Random(seed)
    pool = [f"Text {draw.randrange(900)} of it" for _ in range(1200)]
    left, right = pool[:600], pool[600:]
    left, right = left + right[:40], right + [text.upper().replace(" ", "  ") for text in left[:40]]  # turned round
    rows = parts_of([left, right])
    train, validation, test = (
        {column[i].lower().replace("  ", " ") for column in (left, right) for i in rows[split]} for split in parts.PARTS
    )
    assert not train & validation and not train & test and not validation & test
    assert sorted(np.concatenate([*rows.values()])) == list(range(640))
    order = draw.sample(range(640), 640)  # the order of rows, and of the two texts, means nothing
    moved = parts_of([[right[i] for i in order], [left[i] for i in order]])
    for split in parts.PARTS:
        assert sorted(order[i] for i in moved[split]) == sorted(rows[split])


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
        for split in parts.PARTS:
            assert set(load_rows(other, split=split)["text"]) <= set(load_rows(one, split=split)["text"])


def test_recorded_held_out_parts_stay():
    """As in the committed records of the tuning; the split by groups has names of its own."""
    rows = {split: load_rows("rte", split=split) for split in (parts.HELD_OUT, parts.KEPT)}
    groups = {split: load_rows("rte", split=split) for split in (parts.HELD_OUT_GROUPS, parts.KEPT_GROUPS)}
    train = load_rows("rte")
    assert content_of(pd.concat([*rows.values()]).sort_index()) == content_of(train)
    assert content_of(pd.concat([*groups.values()]).sort_index()) == content_of(train)
    texts = [set(part["sentence1"].str.lower()) for part in groups.values()]
    assert not texts[0] & texts[1] and abs(len(groups[parts.HELD_OUT_GROUPS]) - len(train) / 10) <= 1


def test_f1_names_its_class():
    task = Task("same", ("a", "b"), ("duplicate", "not_duplicate"), ("f1", "accuracy"))
    true, always = np.array([0, 1, 1, 1, 1]), np.array([[0.0, 1.0]] * 5)
    assert score(task, true, always) == pytest.approx({"f1 (not_duplicate)": 88.9, "accuracy": 80.0}, abs=0.05)
    mine = Task("same", ("a", "b"), ("duplicate", "not_duplicate"), ("f1",), positive="duplicate")
    assert score(mine, true, always) == {"f1 (duplicate)": 0.0}
    assert (name_of(mine, "f1"), name_of(mine, "accuracy")) == ("f1 (duplicate)", "accuracy")
    glue = TASKS["mrpc"]
    assert name_of(glue, "f1") == "f1" and set(score(glue, true, always)) == {"accuracy", "f1"}
    named = replace(glue, positive="not_equivalent")
    assert score(named, true, always) == {"accuracy": 80.0, "f1 (not_equivalent)": 0.0}
    with pytest.raises(ValueError, match=r"positive class of task 'same' 'duplicat': did you mean 'duplicate'\?"):
        Task("same", ("a", "b"), ("duplicate", "other"), ("f1",), positive="duplicat")
