"""Tokenised splits: made once, kept whole or not at all, and batched as the tokenizer itself would."""

import numpy as np
import pytest
import torch

from palslib.bert.backbones import load_tokenizer
from palslib.data.tasks import Task, get_task, load_rows
from palslib.data.tokens import some_rows, tokenise_task


@pytest.fixture(autouse=True)
def cached(tmp_path, monkeypatch):
    """The files of a cache of its own."""
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    return lambda: list((tmp_path / "cache").iterdir())


@pytest.mark.parametrize("name", ["rte", "quora"])  # a pair in one sequence, and encoded apart
def test_some_rows_are_spread_over_the_split(tokenizer, name):
    """Four of ten rows: 0, 3, 6, 9; their batch is that of the whole."""
    data = some_rows(tokenise_task(name, tokenizer, split="validation"), 10)
    ours, theirs = some_rows(data, 4).batch(range(4)), data.batch([0, 3, 6, 9])
    assert torch.equal(ours["labels"], theirs["labels"]) and torch.equal(ours["rows"].order, theirs["rows"].order)
    assert torch.equal(ours["rows"].input_ids, theirs["rows"].input_ids)


ARRAYS = ("input_ids", "token_type_ids", "offsets", "labels")


@pytest.fixture
def tokenised(tokenizer, tmp_path):
    """Tokenises a file of one text, or of the texts `one` and `two`, and a label."""

    def tokenise(content, **options):
        (tmp_path / "x.csv").write_text(content)
        texts = tuple(content.splitlines()[0].split(",")[:-1])
        given = {"tokenizer": tokenizer, "data": str(tmp_path / "{split}.csv"), "split": "x"} | options
        return tokenise_task(given.pop("task", Task("own", texts, ("0", "1"))), **given)

    return tokenise


def test_tokenised_once(cached):
    """A tokenizer remembers how its latest call cut and padded; that is no part of what the tokens depend on."""
    tokenizer = load_tokenizer("tiny")  # as it comes from its file, it cuts at 128 and pads to 128
    first = tokenise_task("rte", tokenizer)
    written = [path.stat().st_mtime_ns for path in cached()]
    tokenizer(["some", "other words"], padding=True, truncation=True, max_length=4)
    second = tokenise_task("rte", tokenizer)
    assert [path.stat().st_mtime_ns for path in cached()] == written and len(written) == 1
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_the_cache_depends_on_texts_labels_limit_task_and_tokenizer(tokenised, cached):
    first = "one,two,label\na,b,0\nc,d,1\n"
    tokenised(first)
    tokenised(first.replace("label\n", "label\n\n"))  # other lines of the file, the same rows
    assert len(cached()) == 1
    for cells in ("a,b,0\nx,d,1", "c,d,1\na,b,0", "b,a,0\nd,c,1", "a,b,1\nc,d,1"):
        tokenised(f"one,two,label\n{cells}\n")
    other = load_tokenizer("tiny")
    other.add_tokens(["photosynthetically"])
    task = Task("own", ("one", "two"), ("0", "1"), positive="0")
    for options in ({"task": task}, {"max_length": 127}, {"tokenizer": other}):
        tokenised(first, **options)
    assert len(cached()) == 8


@pytest.mark.parametrize("name", ["cola", "rte", "stsb", "sts"])
def test_equals_the_tokenizers_own_batches(tokenizer, name):
    """Pairs are [CLS] first [SEP] second [SEP] with types 0 and 1, or, of sts, twice as many rows, first texts then
    second texts, each [CLS] text [SEP] of type 0. Every cell of the padded batch is compared; one label a pair."""
    task, frame = get_task(name), load_rows(name, split="validation")
    data = tokenise_task(name, tokenizer, split="validation", max_length=16)
    chosen = np.array([5, 0, 5, 17, 3])
    texts = [frame[column].iloc[chosen].tolist() for column in task.texts]
    texts = [texts[0] + texts[1]] if name == "sts" else texts
    own = tokenizer(*texts, padding=True, truncation=True, max_length=16, return_tensors="pt")
    batch = data.batch(chosen)
    rows = batch["rows"]
    assert tokenizer.pad_token_id == 0  # as `padded` has it
    for key in ("input_ids", "token_type_ids"):
        assert torch.equal(rows.padded(getattr(rows, key)), own[key]), key
    assert torch.equal(rows.padded(torch.ones_like(rows.input_ids)), own["attention_mask"])
    assert sum(rows.lengths) == data.lengths[chosen].sum()  # a pair's length is both its texts'
    divisor = 5 if name == "stsb" else 1
    assert batch["labels"].tolist() == pytest.approx((frame["label"].iloc[chosen] / divisor).tolist())
    assert batch["labels"].dtype == (torch.float32 if task.is_regression else torch.int64)


def test_cut_rows_are_counted(tokenizer, tokenised, monkeypatch):
    """[CLS], 5 words, [SEP] are 7 pieces: whole at 7, cut at 6; of a pair the longer text is cut first."""
    assert tokenizer.decode(tokenised('text,label\n"",0\n').input_ids) == "[CLS] [SEP]"
    texts = "text,label\none two three four five,0\none two three four,1\n"
    whole, cut = (tokenised(texts, max_length=length) for length in (7, 6))
    assert (whole.cut, cut.cut) == (0, 1)
    assert whole.lengths.tolist() == [7, 6] and cut.lengths.tolist() == [6, 6]
    pair = tokenised("one,two,label\none two three four five,six,0\n", max_length=6)
    assert tokenizer.decode(pair.input_ids) == "[CLS] one two [SEP] six [SEP]"
    assert pair.token_type_ids.tolist() == [0, 0, 0, 0, 1, 1]
    monkeypatch.setattr("palslib.data.tokens._AT_ONCE", 2)  # in every portion
    data = tokenised("text,label\n" + "one two three four five,0\nsix seven,1\n" * 3, max_length=6)
    assert data.cut == 3 and data.lengths.tolist() == [6, 4] * 3


def test_what_is_damaged_is_made_anew(tokenizer, cached):
    """Wherever a bit flips. Also another task's whole file, copied over."""
    whole = tokenise_task("rte", tokenizer, split="validation")
    expected = [getattr(whole, name).copy() for name in ARRAYS]
    (path,) = cached()
    content = path.read_bytes()
    tokenise_task("mrpc", tokenizer, split="validation")
    (other,) = set(cached()) - {path}
    places = range(0, len(content), len(content) // 20)
    flipped = [content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :] for i in places]
    for damaged in [*flipped, other.read_bytes(), content[:-1], b""]:
        path.unlink()
        path.write_bytes(damaged)
        again = tokenise_task("rte", tokenizer, split="validation")
        for name, array in zip(ARRAYS, expected, strict=True):
            np.testing.assert_array_equal(getattr(again, name), array)
