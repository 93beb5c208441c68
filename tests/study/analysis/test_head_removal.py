"""Removal of heads: equal to zeros by hand, gone without a trace, and its scores; the table and record of all heads."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from shapes import batch, logits_of, randomised, tokens
from test_attention import by_hand
from training.small_runs import small, two_classes

from palslib.__main__ import main
from palslib.data.tokens import some_rows
from palslib.model.multi_task import MultiTaskModel
from palslib.records import from_lines, load_records
from palslib.study.analysis.head_removal import head_importance, heads_of, without_heads
from palslib.study.analysis.head_table import head_table, removals
from palslib.study.figures.heads import head_panels
from palslib.training.evaluation import predict
from palslib.training.loop import train


def rows_of(model, task="rte", rows=10, labels=None):
    """Rows of 4 to 7 word pieces, by default with the model's own predictions as labels: the whole scores 100."""
    data = tokens(model.tasks[task], np.arange(rows) % 4 + 4, np.zeros(rows, dtype=np.int64))
    outputs = predict(model, task, data)
    own = outputs[:, 0] if model.tasks[task].is_regression else outputs.argmax(-1)
    return replace(data, labels=own if labels is None else labels)


def zeroed(model, kind, heads):
    """The model, after the columns that read these heads were set to zero: in V^D, or in BERT's output matrices."""
    encoder = getattr(model.adaptations["rte"], "backbone", model.backbone)  # a fine-tuned model has copies
    for layer, head in heads:
        if kind == "pal":
            matrix, width = model.adaptations["rte"].projection(layer).decoder.weight, 4  # 12 / 3
        else:
            matrix, width = encoder.encoder.layer[layer].attention.output.dense.weight, 6  # 24 / 4
        with torch.no_grad():
            matrix[:, width * head : width * (head + 1)] = 0
    return model


# --- removal


@pytest.mark.parametrize(
    ("method", "kind", "heads"),
    [
        ("pals-no-sharing-84", "pal", [(1, 2)]),
        ("pals-204", "pal", [(0, 1), (1, 1), (2, 1)]),  # one V^D serves all three layers
        ("pals-204", "bert", [(2, 1)]),
        ("fine-tuned", "bert", [(0, 3), (2, 1)]),
    ],
)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_head_is_removed_as_by_zeros_in_what_reads_it(method, kind, heads, attention):
    model, twin = (randomised(method, attention=attention) for _ in range(2))
    before = logits_of(model)
    with without_heads(model, "rte", heads, kind):
        removed = logits_of(model)
    torch.testing.assert_close(removed, logits_of(zeroed(twin, kind, heads)), atol=1e-6, rtol=1e-5)
    assert (removed - before).abs().max() > 1e-3


@pytest.mark.parametrize("method", ["pals-204", "pals-no-sharing-84", "pals-276-top", "attention-on-top-204"])
@pytest.mark.parametrize("kind", ["pal", "bert"])
def test_off_on_off_bit_for_bit(method, kind):
    """Also in `forward_many`, which computes for all tasks at once what they share, and for some rows alone."""
    model, inputs = randomised(method), batch(pad=2)
    before, other = logits_of(model), logits_of(model, task="stsb")
    with without_heads(model, "rte", heads_of(model, "rte", kind)[:1], kind), torch.inference_mode():
        assert not torch.equal(logits_of(model), before)
        assert torch.equal(logits_of(model, task="stsb"), other)  # also where both read BERT's heads
        together = model.forward_many({"rte": None, "stsb": [2, 0]}, **inputs)
        torch.testing.assert_close(together["rte"], logits_of(model), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(together["stsb"], other[[2, 0]], atol=1e-5, rtol=1e-5)
    assert torch.equal(logits_of(model), before) and torch.equal(logits_of(model, task="stsb"), other)


@pytest.mark.parametrize(
    ("method", "heads", "kind", "named"),
    [
        ("pals-276-top", [(0, 1)], "pal", "layer 0 has no pal head 1; .* {2: 3}"),
        ("pals-276-top", [(2, 3)], "pal", "layer 2 has no pal head 3; .* {2: 3}"),
        ("pals-276-top", [], "brt", "'brt'"),
        ("low-rank-100", [], "pal", "'pal'. Valid: bert"),
    ],
)
def test_errors_say_what_there_is(method, heads, kind, named):
    with pytest.raises(ValueError, match=named), without_heads(randomised(method), "rte", heads, kind):
        pass


def test_importance_is_the_change_of_the_score():
    """A row for each head, on so many rows; the same from zeros in V^D and the predictions counted by hand."""
    model = randomised("pals-no-sharing-84")
    data = rows_of(model, rows=80)
    frame, data = head_importance(model, "rte", data, rows=40), some_rows(data, 40)
    assert list(frame) == ["task", "kind", "layer", "head", "metric", "score", "change"] and len(frame) == 9
    np.testing.assert_allclose(frame["change"], frame["score"] - 100)
    assert frame["change"].max() <= 0 and frame["change"].min() < 0
    layer, head = frame.loc[frame["change"].idxmin(), ["layer", "head"]]
    twin = zeroed(randomised("pals-no-sharing-84"), "pal", [(layer, head)])
    right = (predict(twin, "rte", data).argmax(-1) == data.labels).mean()
    assert frame["change"].min() == pytest.approx(100 * right - 100)


# --- the table and the record of all heads


def test_head_table_by_hand():
    """Heads: look at yourself (I) or at [CLS] (C). I and C agree on the first row alone: log 2 on two rows of three.

    Task a has I and C, task b has C and C. Matched: C with C, 0, and I with C, 2/3 log 2. BERT has I alone, so that I
    overlaps by 1 and C by 1 − 2/3.
    """
    own, cls = np.eye(3), np.eye(3)[[0, 0, 0]]
    maps = {"a": [by_hand("a", pal=[own, cls], bert=[own])], "b": [by_hand("b", pal=[cls, cls], bert=[own])]}
    frame = head_table({None: [], **maps})
    assert frame[["task", "layer", "head"]].to_numpy().tolist() == [["a", 0, 0], ["a", 0, 1], ["b", 0, 0], ["b", 0, 1]]
    assert frame["to_tasks"].tolist()[:2] == pytest.approx([2 / 3 * np.log(2), 0])
    assert sorted(frame["to_tasks"][2:]) == pytest.approx([0, 2 / 3 * np.log(2)])
    assert frame["overlap"].tolist() == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])
    assert frame["to_self"].tolist() == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])
    alone = head_table({"a": maps["a"]})
    assert alone["to_tasks"].isna().all() and alone["overlap"].tolist() == pytest.approx([1, 1 / 3])


def test_the_pattern_of_uniform_heads_is_worth_nothing():
    """Without queries the heads are uniform already, so that making them so changes no score."""
    model = randomised("pals-204")
    data = rows_of(model, "stsb", rows=12)
    sharp = removals(model, "stsb", data, rows=6)
    with torch.no_grad():
        for function in model.adaptations["stsb"].functions.values():
            function.qkv.weight[:12] = 0
            function.qkv.bias[:12] = 0
    flat = removals(model, "stsb", rows_of(model, "stsb", rows=12), rows=6)
    changes = [frame.set_index("removed").loc["pattern", "change"] for frame in (sharp, flat)]
    assert changes[0] < -1e-3 and changes[1] == 0
    assert flat["removed"].value_counts().to_dict() == {"head": 21, "layer": 6, "all": 2, "nothing": 1, "pattern": 1}
    assert flat["metric"].unique().tolist() == ["pearson"] and flat["score"].iloc[0] == pytest.approx(100)


def test_the_record_of_a_saved_model(tmp_path, capsys):
    """Of a run on synthetic rows of RTE and on a file of one's own: every table, no folder's name, and no run to
    `load_records`."""
    two_classes(tmp_path / "mood.csv")
    run = train(small(tmp_path / "run", tasks=("rte", str(tmp_path / "mood.csv")), steps=2, keep="last"))
    last, out = tmp_path / "run" / "last", tmp_path / "records" / "heads.json"

    def record(folder, *tasks, own="mood") -> dict:
        flags = ["--rows", "4", "--texts", "1", "--own", f"{own}={tmp_path / 'mood.csv'}", "--tasks", *tasks]
        status = main(["heads", str(folder), str(out), *flags])
        return json.loads(out.read_text()) if status == 0 else capsys.readouterr().err

    assert "'sst2'" in record(last, "sst2") and "'moods'" in record(last, "rte", own="moods")
    found = record(last, "rte", "mood")
    of_run = found["model"]["run"]
    assert (of_run["key"], of_run["step"], of_run["schedule"]) == (run["key"], 2, run["config"]["schedule"])
    assert (found["data"], found["texts"], found["rows"]) == ("synthetic", 2, {"rte": 4, "mood": 4})
    entropy, removal = from_lines(found["entropy"]), from_lines(found["removal"])
    # Layers 0 and 1: of BERT plain and under two tasks, and of two PALs.
    assert len(entropy) == 2 * (3 + 2) and {"rte", "mood"} < set(entropy["task"])
    # Of a PAL 12 heads in each of 2 layers, 2 layers, all, the pattern; and nothing.
    assert removal.query("kind == 'pal'")["task"].value_counts().to_dict() == {"rte": 29, "mood": 29}
    assert len(from_lines(found["distances"])) == 4
    assert str(tmp_path) not in out.read_text() and load_records(out.parent).empty

    tasks = tuple(MultiTaskModel.from_pretrained(last).tasks.values())
    on_top = MultiTaskModel.from_backbone("tiny", "attention-on-top-204", tasks, size=12)
    on_top.save_pretrained(tmp_path / "top")  # its heads have none of BERT's beside them
    assert from_lines(record(tmp_path / "top", "rte")["distances"])["overlap"].isna().all()
    last.rename(last.with_name("copy"))
    assert "'copy'" in record(last.with_name("copy"), "rte")


def test_panels_of_every_head():
    """Two tasks in the package's order, layers 1 and 2 with two heads each; row 0 of the picture is the lower layer."""
    places = [(task, layer, head) for task in ("rte", "cola") for layer in (1, 2) for head in (0, 1)]
    frame = pd.DataFrame(places, columns=["task", "layer", "head"])
    frame["change"], frame["nothing"], frame["unknown"] = np.arange(8) - 6.0, 0.0, np.nan
    figure = head_panels(frame, {"change": "points", "nothing": "none", "unknown": "no other task"})
    assert [ax.get_title("left") or ax.get_title() for ax in figure.axes[:2]] == ["CoLA", "RTE"]
    images = [ax.images[0] for ax in figure.axes[:6]]
    assert images[0].get_array().tolist() == [[-2, -1], [0, 1]] and images[1].get_array().min() == -6
    assert list(images[0].get_extent()) == [-0.5, 1.5, 0.5, 2.5] and images[0].origin == "lower"
    assert [image.get_clim() for image in images] == [(-6, 6)] * 2 + [(0, 1)] * 4
    red, white = (images[0].cmap(images[0].norm(value)) for value in (-6, 0))
    assert red[0] > 2 * red[2] and min(white[:3]) > 0.9
