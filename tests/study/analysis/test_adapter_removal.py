"""Adapters removed and put back; what they are worth, span by span; its record and figures."""

import copy
import json
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from shapes import batch, equal_states, logits_of, randomised
from test_head_removal import rows_of
from training.small_runs import TURN

from palslib.__main__ import main
from palslib.bert.rows import Rows
from palslib.records import from_lines, load_records
from palslib.study.analysis.adapter_removal import ablate, ablation_frame, without_adapters
from palslib.study.figures.adapters import ablation_heatmap
from palslib.training.evaluation import predict

# ------------------------------------------------------------------------------------------------------------- removal


@pytest.mark.parametrize(
    ("name", "first", "last"), [("houlsby-64", 1, 1), ("houlsby-64-not-shared", 1, 2), ("houlsby-64-not-shared", 0, 2)]
)
def test_removed_as_by_zeros_in_v_d(name, first, last):
    """x + V^D GELU(V^E x) with V^D = 0 and no bias is x, in one, two or all of three layers; own norms stay."""
    model, twin = randomised(name), randomised(name)
    each = model.method.adapters_per_layer
    with torch.no_grad():
        for adapter in twin.adaptations["rte"].adapters[each * first : each * (last + 1)]:
            adapter.decoder.weight.zero_()
            adapter.decoder.bias.zero_()
    before = logits_of(model)
    with without_adapters(model, "rte", first, last):
        removed = logits_of(model)
    torch.testing.assert_close(removed, logits_of(twin), atol=1e-6, rtol=1e-5)
    assert (removed - before).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["houlsby-64-3-shared", "pals-204", "lhuc", "serial-100"])
def test_off_on_off_bit_for_bit(name):
    """Without any the layers are the backbone's, also where one adapter serves all three; within a block a block takes
    more, and where all layers share an adapter, the others keep it. `rte` alone is without; nothing is left behind."""
    model = randomised(name)
    states = torch.inference_mode()(lambda task: model.encode(task, Rows.from_padded(**batch(pad=2)))[-1])
    before, other, state = logits_of(model), logits_of(model, task="stsb"), copy.deepcopy(model)
    with without_adapters(model, "rte", 0, 0):
        outer = logits_of(model)
        with without_adapters(model, "rte", 1, 2):
            assert torch.equal(states("rte"), states(None))
            assert torch.equal(logits_of(model, task="stsb"), other)
        assert torch.equal(logits_of(model), outer) and not torch.equal(states("rte"), states(None))
    assert torch.equal(logits_of(model), before) and not torch.equal(outer, before)
    assert equal_states(model, state)


@pytest.mark.parametrize(
    ("name", "span", "word"),
    [("houlsby-64", (-1, 0), "-1 to 0"), ("houlsby-64", (0, 3), "0 to 3"), ("fine-tuned", (0, 0), "nothing within")],
)
def test_what_cannot_be_removed_is_refused(name, span, word):
    with pytest.raises(ValueError, match=word), without_adapters(randomised(name), "rte", *span):
        pass


# ------------------------------------------------------------------------------------------------------------ ablation


def test_ablation_frame():
    """Labels are the model's own answers, so that the whole scores 100 and each change is score - 100."""
    model = randomised("houlsby-64")
    data = rows_of(model, rows=30)
    frame = ablation_frame(model, "rte", data)
    assert list(frame.columns) == ["task", "metric", "whole", "first", "last", "score", "change"]
    assert list(zip(frame["first"], frame["last"], strict=True)) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
    assert set(frame["metric"]) == {"accuracy"} and set(frame["whole"]) == {100.0}
    assert np.allclose(frame["change"], frame["score"] - 100) and frame["change"].min() < 0
    with without_adapters(model, "rte", 1, 2):
        by_hand = 100 * (predict(model, "rte", data).argmax(-1) == data.labels).mean()
    assert frame.query("first == 1 and last == 2")["score"].item() == pytest.approx(by_hand)
    opposite = ablation_frame(model, "rte", replace(data, labels=1 - data.labels), rows=7)
    assert set(opposite["whole"]) == {0.0} and opposite["change"].isna().all()  # nothing to compare with


def test_removed_on_the_data_that_a_preset_names(tmp_path, monkeypatch):
    """The whole of the spans is the score that the run had."""
    frame = pd.DataFrame({"id": range(40), "sentence": [f"dog {i}" for i in range(40)], "sentiment": [0, 1, 2, 3] * 10})
    (tmp_path / "minbert").mkdir()
    for split in ("train", "dev"):
        frame.to_csv(tmp_path / "minbert" / f"ids-sst-{split}.csv", sep="\t", index=False)
    monkeypatch.setenv("PALSLIB_DATA", str(tmp_path))
    record = ablate(["sst5"], tmp_path / "runs", preset="minbert", **TURN)
    [run] = record["runs"]
    assert run["data"]["dev"]["sst5"] == {"validation": 40}
    whole = from_lines(record["spans"])["whole"]
    assert whole.tolist() == pytest.approx([run["results"]["best"]["dev_average"]] * 3)


def test_the_command_line_writes_a_record(tmp_path, capsys):
    """Two tasks on a backbone of two layers: three spans each; the runs in it are rows of `load_records`."""
    out, flags = tmp_path / "records" / "ablation.json", ["--rows", "20", "--epochs", "2", "--epoch-steps", "2"]
    options = [f"{name}={json.dumps(value)}" for name, value in TURN.items() if "epoch" not in name]
    call = ["adapters", str(out), *flags, "--options", *options]
    assert main([*call, "--folder", str(tmp_path / "runs"), "--tasks", "cola", "rte"]) == 0
    record = json.loads(out.read_text())
    spans = from_lines(record["spans"])
    assert spans.groupby("task", sort=False).size().to_dict() == {"cola": 3, "rte": 3}
    assert spans["metric"].unique().tolist() == ["matthews", "accuracy"]
    assert [run["config"]["tasks"] for run in record["runs"]] == [["cola"], ["rte"]]
    assert record["environment"]["python"] and record["seconds"] > 0 and record["rows"] == 20
    assert str(tmp_path) not in out.read_text()
    assert load_records(tmp_path / "records")["key"].tolist() == [run["key"] for run in record["runs"]]
    capsys.readouterr()
    for more, word in (("cola cola", "only once"), ("cola --method fine-tuned", "fine-tuned")):
        assert main([*call, "--folder", str(tmp_path / "other"), "--tasks", *more.split()]) == 1
        said = capsys.readouterr().err
        assert said.startswith("palslib adapters: ") and word in said
    assert not (tmp_path / "other").exists()  # before anything is trained
    assert json.loads(out.read_text()) == record


@pytest.mark.parametrize(("values", "ends"), [([-1, -20, 2.04], 20), ([0, 0, 0], 1)])
def test_the_ablation_is_an_upper_triangle_with_numbers(values, ends):
    """The first layer below the last has nothing; white is 0."""
    frame = pd.DataFrame({"first": [0, 0, 1], "last": [0, 1, 1], "change": values})
    ax = plt.figure().gca()
    ablation_heatmap(frame, ax)
    (mesh,) = ax.collections
    assert mesh.get_array().filled(np.nan).ravel() == pytest.approx([*values[:2], np.nan, values[2]], nan_ok=True)
    assert (mesh.norm.vmin, mesh.norm.vmax) == (-ends, ends)
    if values[0]:
        numbers = {text.get_text(): text.get_position() for text in ax.texts}
        assert numbers == {"-1.0": (0.5, 0.5), "-20.0": (1.5, 0.5), "2.0": (1.5, 1.5)}
