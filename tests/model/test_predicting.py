"""Many tasks in one pass: equal to one task at a time, with as many layer passes and products as the formulas say."""

import json
import math
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import EVERY, LAYERS, batch, randomise, randomised
from torch.utils.flop_counter import FlopCounterMode

from palslib.bert.backbones import load_tokenizer
from palslib.data.tasks import SUITES, TASKS, Task
from palslib.data.tokens import tokenise_task
from palslib.methods.operations import count_operations
from palslib.model.multi_task import MultiTaskModel

SINGLE, PAIRED, APART = ("cola", "sst2"), ("mrpc", "stsb", "mnli", "rte"), ("quora", "sts")


def count_passes(model) -> Counter:
    """Counts the `runs` of layers of the backbone, or of a task's copy of it, and the word `pieces` in them, by the
    layers' keys."""
    counted = Counter()
    for encoder in (model.backbone, *(a.backbone for a in model.adaptations.values() if hasattr(a, "backbone"))):
        for layer in encoder.encoder.layer:
            layer.attention.self.key.register_forward_hook(lambda _, x, __: counted.update(runs=1, pieces=len(x[0])))
    return counted


def one_at_a_time(model, task, inputs):
    with torch.inference_mode():
        return model(task, **inputs).logits


# ------------------------------------------------------------------------------------------------------------ formulas


def test_operations_of_bert_base_by_hand():
    """128 tokens: a layer 128 (4 · 768² + 2 · 768 · 3072) + 2 · 128² · 768 = 931,135,488, and a pooler of 768²."""
    assert count_operations("shared").shared == 12 * 931_135_488
    assert count_operations("shared").per_task == 768**2
    added = count_operations("pals-204").per_task - 12 * 931_135_488 - 768**2
    assert added == 12 * (128 * (2 * 768 * 204 + 3 * 204**2) + 2 * 128**2 * 204)


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in EVERY), ("houlsby-64", {"second": "pal", "pal_size": 12, "pal_heads": 3})],
)
def test_operations_are_those_that_are_run(name, options):
    """torch counts two operations for a product and its addition; the heads' 24 · (2 + 2 + 3) are in no formula."""
    model = randomised(name, tasks=("rte", "sst2", "mnli"), **options)
    model.whole_last_layer = True
    inputs = batch(rows=2, width=7) | {"attention_mask": torch.ones(2, 7, dtype=torch.long)}
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model.forward_many(dict.fromkeys(model.tasks), **inputs)
    total = count_operations(model.method, model.config, tokens=7).total(3) + 24 * (2 + 2 + 3)
    assert counter.get_total_flops() == 2 * 2 * total


# ------------------------------------------------------------------------------------------------- one batch of tensors


@pytest.fixture(scope="module")
def models():
    """Every method with six tasks, made once; a hook counts layer passes."""
    made = {name: randomised(name, tasks=(*SINGLE, *PAIRED)) for name in EVERY}
    return {name: (model, count_passes(model)) for name, model in made.items()}


@pytest.mark.parametrize("name", EVERY)
@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_any_tasks_on_any_rows_equal_one_at_a_time(models, name, data):
    """Each task on all rows (None) or on some of them, which may come in any order."""
    model, counted = models[name]
    chosen = data.draw(st.lists(st.sampled_from((*SINGLE, *PAIRED)), min_size=1, unique=True))
    some = st.none() | st.lists(st.integers(0, 2), min_size=1, unique=True)
    rows = {task: data.draw(some) for task in chosen}
    inputs = batch(rows=3, width=7, pad=data.draw(st.integers(0, 2)))
    counted.clear()
    with torch.inference_mode():
        logits = model.forward_many(rows, **inputs)
    lengths = 7 - np.arange(3)
    own = sum(lengths[which].sum() for which in rows.values() if which) + lengths.sum() * [*rows.values()].count(None)
    k = model.method.shared_layers(LAYERS) if len(chosen) > 1 else 0  # of one task, its own rows alone are run
    runs = LAYERS * (len(chosen) if model.method.copies_backbone else 1)
    assert counted == {"runs": runs, "pieces": k * lengths.sum() + (LAYERS - k) * own}
    assert list(logits) == chosen
    for task, which in rows.items():
        kept = {k: v if which is None else v[which] for k, v in inputs.items()}
        torch.testing.assert_close(logits[task], one_at_a_time(model, task, kept), atol=1e-5, rtol=1e-5)


# --------------------------------------------------------------------------------------------------------------- texts

TEXTS = ["The cook bought two old cars.", "It rains.", "Who slept?"]
PAIRS = [("It rains.", "It is wet outside today."), ("A dog ran.", "An animal ran."), ("Why?", "Because.")]


@pytest.fixture(scope="module")
def served():
    tasks = [*SINGLE, *PAIRED[:3], *(SUITES["minbert"][task] for task in APART)]
    model = MultiTaskModel.from_backbone("tiny", "pals-276-top", tasks, size=12)
    for part in (model.adaptations, model.heads):
        randomise(part)
    return model


def test_texts_apart_by_hand(served):
    """A logit x is the second label's probability σ(x); a row has its own second text, also beside other forms."""
    frame = served.predict([*PAIRS, TEXTS[0]], [["sts"], ["sts", "mrpc", "quora"], ["quora"], ["cola"]])
    for row, task, label, score, probabilities in frame[frame["task"].isin(APART)].itertuples(index=False):
        inputs = served.tokenizer(list(PAIRS[row]), return_tensors="pt", padding=True)
        x = one_at_a_time(served, task, inputs).item()
        if task == "sts":
            assert score == pytest.approx(x * served.tasks[task].scale, abs=1e-5)
        else:
            yes = 1 / (1 + math.exp(-x))
            assert probabilities == pytest.approx((1 - yes, yes), abs=1e-5)
            assert label == served.tasks[task].labels[yes > 0.5]


def check_equal(frame: pd.DataFrame, other: pd.DataFrame) -> None:
    """The same rows, tasks and labels, and probabilities within 1e-5."""
    frame, other = (one.reset_index(drop=True).fillna({"label": "none"}) for one in (frame, other))
    pd.testing.assert_frame_equal(frame, other, check_dtype=False, atol=1e-5, rtol=0)


def test_labels_and_scores_of_one_row(served):
    """A label is the most probable one; STS-B's logits are scores divided by five."""
    frame = served.predict(TEXTS[0], ["cola", "sst2"])
    assert frame["task"].tolist() == ["cola", "sst2"] and frame["row"].tolist() == [0, 0]
    for task, label, score, probabilities in frame.drop(columns="row").itertuples(index=False):
        assert label == TASKS[task].labels[max(range(2), key=probabilities.__getitem__)]
        assert score == max(probabilities) and sum(probabilities) == pytest.approx(1)
    check_equal(frame[1:], served.predict(TEXTS[0], "sst2"))
    (row,) = served.predict(PAIRS[0], ["stsb"]).itertuples(index=False)
    tokens = served.tokenizer(*PAIRS[0], return_tensors="pt")
    assert row.label is None and row.probabilities == ()
    mixed = served.predict([TEXTS[0], PAIRS[0]], ["sst2", "stsb"])  # as a web service answers
    assert json.loads(json.dumps(mixed.to_dict("records"), allow_nan=False))[1]["label"] is None
    assert row.score == pytest.approx(5 * one_at_a_time(served, "stsb", tokens).item(), abs=1e-5)


@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_every_row_with_its_own_tasks(served, data):
    """Texts, pairs in one sequence and pairs encoded apart, a task or several for each, in batches of two or all at
    once: as one row at a time; and each batch is one pass through `tiny`'s two layers."""
    texts = data.draw(st.lists(st.sampled_from([*TEXTS, *PAIRS]), min_size=1, max_size=4))
    known = [SINGLE if isinstance(text, str) else (*PAIRED[:3], *APART) for text in texts]
    tasks = [data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=2)) for names in known]
    size, counted = data.draw(st.sampled_from([2, 64])), count_passes(served)
    frame = served.predict(texts, tasks, batch_size=size)
    assert counted["runs"] == 2 * math.ceil(len(texts) / size)
    parts = [
        served.predict(text, [t]).assign(row=i)
        for i, (text, wanted) in enumerate(zip(texts, tasks, strict=True))
        for t in wanted
    ]
    check_equal(frame, pd.concat(parts))


def test_long_texts_are_cut(served, tmp_path, monkeypatch):
    """To `tiny`'s 128 positions or a limit of the caller's; and the order of rows does not depend on their length. A
    pair is cut as the rows of the task's training are."""
    long = "rain " * 300
    assert served.predict(["It rains.", long], "cola")["row"].tolist() == [0, 1]
    check_equal(served.predict(long, "cola", max_length=512), served.predict(long, "cola", max_length=128))
    check_equal(served.predict("rain " * 6, "cola"), served.predict(long, "cola", max_length=8))
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    (tmp_path / "x.csv").write_text(f"one,two,label\n{'rain ' * 9},{'sun ' * 9},no\n")
    scores = []
    for ties in ("first", "second"):
        task = Task("mine", ("one", "two"), ("no", "yes"), ties=ties)
        randomise(model := MultiTaskModel.from_backbone("tiny", "shared", [task]))
        rows = tokenise_task(task, model.tokenizer, str(tmp_path / "{split}.csv"), "x", 12).batch([0])["rows"]
        scores.append(model.predict(("rain " * 9, "sun " * 9), "mine", max_length=12)["probabilities"][0])
        assert scores[-1] == pytest.approx(model("mine", rows=rows).logits.softmax(1)[0].tolist(), abs=1e-5)
    assert scores[0] != pytest.approx(scores[1], abs=1e-4)


@pytest.mark.parametrize(
    ("texts", "tasks", "message"),
    [
        (["a", "b"], ["cola", []], r"row 1 .* its tasks, \[\], must be one or more"),
        (("a", "b"), ["cola"], r"row 0 .*'cola' takes one text \(sentence\), not a pair"),
        (["a", float("nan")], "cola", r"row 1 .*nan is not text"),
        (["a", ("b", 3)], "cola", r"row 1 .*takes one text"),
        ({"text": ["a"], "text_pair": ["b"]}, "mnli", "row 0 .*premise"),
        ({"a", "b"}, "mnli", "must be in an order"),
    ],
)
def test_bad_input(served, texts, tasks, message):
    with pytest.raises(ValueError, match=message):
        served.predict(texts, tasks)
    with pytest.raises(ValueError, match="max_length must be at least 8, not 7"):
        served.predict("a", ["cola"], max_length=7)


def test_rows_are_what_they_are(served):
    """Dicts by the names of a task's texts, a table, a dict of columns, a Dataset, a generator: as pairs in a list."""
    import datasets

    frame = pd.DataFrame(PAIRS, columns=["premise", "hypothesis"]).assign(idx=range(3))
    columns, expected = frame.to_dict("list"), served.predict(PAIRS, "mnli")
    given = [frame, frame.to_dict("records"), columns, datasets.Dataset.from_dict(columns), iter(PAIRS)]
    given += [pa.Table.from_pandas(frame)]
    for texts in [*given, frame[["premise", "hypothesis"]].to_numpy()]:
        check_equal(served.predict(texts, "mnli"), expected)
    check_equal(served.predict(frame.to_dict("records")[0], ["mnli"]), expected[:1])
    check_equal(served.predict(pd.Series(TEXTS), "cola"), served.predict(TEXTS, "cola"))


@pytest.mark.parametrize(("texts", "said"), [("", "0"), (["a", " \n", ""], "1, 2")])
def test_an_empty_text_is_said(served, texts, said):
    """Data sets have some, and a file of many rows should not be lost for one; nobody should trust its 0.9 either."""
    with pytest.warns(UserWarning, match=rf"empty text.*: {said}$"):
        assert len(served.predict(texts, "cola")) == (1 if texts == "" else 3)


def test_word_pieces_and_token_types_without_embeddings(served):
    """By a tokenizer that has learned words, and by the numbers themselves."""
    model = MultiTaskModel.from_backbone(served.backbone, "shared", ["cola"], tokenizer=load_tokenizer("tiny"))
    model.tokenizer.add_tokens(["zyzzyva"])
    with pytest.raises(ValueError, match=r"word piece 30522, .* 0 to 30,521"):
        model.predict("a zyzzyva", "cola")
    for wrong in ([[101, -1]], [[101, 30522]]):
        with pytest.raises(ValueError, match=rf"word piece {wrong[0][1]}, "):
            served("cola", input_ids=torch.tensor(wrong))
    with pytest.raises(ValueError, match="token type 2, "):
        served("cola", input_ids=torch.tensor([[5, 6]]), token_type_ids=torch.tensor([[0, 2]]))
