"""Tasks one after another on a frozen backbone; adapters removed and put back; the ablation, its record and figures."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from shapes import batch, randomised
from test_head_removal import rows_of

from palslib.__main__ import main
from palslib.analysis.adapters import (
    ADDITIONAL,
    REPORT,
    ablation_frame,
    best_weights,
    train_in_turn,
    without_adapters,
)
from palslib.bert.backbones import load_tokenizer
from palslib.data.tokens import some_rows, tokenise_task
from palslib.figures.adapters import ablation_heatmap, mix_bars
from palslib.model.multi_task import MultiTaskModel
from palslib.records import from_lines, load_records
from palslib.training.evaluation import evaluate, predict

TINY = {"backbone": "tiny", "epochs": 2, "epoch_steps": 2, "batch_size": 4, "progress": False, "precision": "float32"}
OWN = ("epochs", "epoch_steps")  # flags; the rest are options


def state_of(model, task):
    return {k: v for k, v in model.state_dict().items() if f".{task}." in k}


def logits(model, task="rte"):
    with torch.inference_mode():
        return model(task=task, **batch(pad=2)).logits


# ---------------------------------------------------------------------------------------------- one task after another


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory):
    """CoLA, then RTE, then STS-B, of the form with own norms: their records, and the folder."""
    folder = tmp_path_factory.mktemp("in-turn")
    return train_in_turn(["cola", "rte", "stsb"], folder, "houlsby-64-not-shared", learning_rate=1e-2, **TINY), folder


def test_a_further_task_changes_no_bit_of_an_earlier_one(in_turn):
    """Outputs on CoLA's dev rows after each of the three runs; the second run did train something."""
    _, folder = in_turn
    after = [MultiTaskModel.from_pretrained(best_weights(folder / run)) for run in ("1-cola", "2-rte", "3-stsb")]
    assert [list(model.tasks) for model in after] == [["cola"], ["cola", "rte"], ["cola", "rte", "stsb"]]
    data = some_rows(tokenise_task("cola", load_tokenizer("tiny"), "synthetic", "validation"), 20)
    outputs = [predict(model, "cola", data) for model in after]
    assert all(np.array_equal(outputs[0], other) for other in outputs[1:])
    assert len({model.fingerprint() for model in after}) == 1  # all that tasks share
    fresh = MultiTaskModel.from_backbone("tiny", after[0].method, ["cola", "rte", "stsb"])
    for task in fresh.tasks:
        start, end = state_of(fresh, task), state_of(after[2], task)
        assert start.keys() == end.keys() and not any(torch.equal(start[name], end[name]) for name in start)


def test_the_settings_are_the_reports(in_turn):
    """2 epochs of 2 steps, evaluated after each; Adam with a rate that rises for 10 % of the steps, then falls to 0."""
    records, folder = in_turn
    for record, task in zip(records, ["cola", "rte", "stsb"], strict=True):
        config = record["config"]
        assert (config["tasks"], config["steps"], config["evaluate_every"]) == ([task], 4, 2)
        assert [point["step"] for point in record["history"]] == [2, 4]
        assert (config["size"], config["weight_decay"], config["warmup"]) == ("paper", 0.0, 0.1)
        assert record["method"]["size"] == 64 and record["recipe"]["decay"] == "linear"
    assert REPORT["learning_rate"] == 3e-4 and ADDITIONAL == {"learning_rate": 1e-4, "epochs": 50}
    assert len(load_records(folder)) == 3


def test_what_stays_is_the_best_epoch(in_turn):
    """The kept model scores on RTE what the record says of its best epoch."""
    records, folder = in_turn
    model = MultiTaskModel.from_pretrained(best_weights(folder / "2-rte"))
    data = tokenise_task("rte", load_tokenizer("tiny"), "synthetic", "validation")
    found = evaluate(model, {"rte": {"validation": data}})["rte"]["accuracy"]
    assert found == records[1]["results"]["best"]["dev_average"]


def test_a_run_that_was_killed_goes_on(in_turn, tmp_path):
    """Stopped in the second task's third step; called again, it ends with the weights of the run in one go."""
    about = TINY | {"learning_rate": 1e-2}
    tasks, method = ["cola", "rte"], "houlsby-64-not-shared"
    stop = train_in_turn(
        tasks, tmp_path, method, on_step=lambda run: (run.config.tasks, run.step) != (("rte",), 3), **about
    )
    assert [record["status"] for record in stop] == ["finished", "stopped"]
    assert (tmp_path / "2-rte" / "checkpoint").is_dir()
    first = (tmp_path / "1-cola" / "record.json").read_bytes()
    assert len(train_in_turn(tasks, tmp_path, method, **about)) == 2
    assert (tmp_path / "1-cola" / "record.json").read_bytes() == first  # not trained anew
    again, whole = (MultiTaskModel.from_pretrained(best_weights(f / "2-rte")) for f in (tmp_path, in_turn[1]))
    assert all(torch.equal(value, whole.state_dict()[name]) for name, value in again.state_dict().items())


def test_an_epoch_is_once_through_the_data(tmp_path):
    """40 lines, 80 % of them for training: of `n` rows in batches of 16, ceil(n / 16) steps."""
    text = "text,label\n" + "".join(f"a line {i},{'no' if i % 2 else 'yes'}\n" for i in range(40))
    (tmp_path / "mood.csv").write_text(text)
    about = TINY | {"epoch_steps": None, "epochs": 1, "batch_size": 16}
    (record,) = train_in_turn(["mood"], tmp_path / "runs", data=str(tmp_path), **about)
    rows = record["data"]["train"]["mood"]
    assert 16 < rows < 40 and record["config"]["steps"] == -(-rows // 16) == record["config"]["evaluate_every"]


def test_a_file_with_another_delimiter_is_refused_with_what_it_has(tmp_path):
    (tmp_path / "mood.csv").write_text("text;label\nfine;yes\n")
    with pytest.raises(
        ValueError, match=r"mood.csv: no column 'text'.*it has: \['text;label'\] \(is its separator ','"
    ):
        train_in_turn(["mood"], tmp_path / "runs", data=str(tmp_path), **TINY)
    assert not (tmp_path / "runs").exists()


def test_a_task_is_trained_once(in_turn, tmp_path):
    _, folder = in_turn
    with pytest.raises(ValueError, match=r"tasks must be at least one, each once, not \['rte', 'rte'\]"):
        train_in_turn(["rte", "rte"], tmp_path, **TINY)
    start = best_weights(folder / "2-rte")
    with pytest.raises(ValueError, match=r"task 'cola' is already in the model \(tasks: cola, rte, sst2\)"):
        train_in_turn(["sst2", "cola"], tmp_path, "houlsby-64-not-shared", start=start, **TINY)
    assert not list(tmp_path.iterdir())  # refused before the first of them was trained


def test_what_follows_from_the_epochs_is_not_given_beside_them(tmp_path):
    """Else it would be overridden without a word, or what the next task starts from would not be kept."""
    for options in ({"steps": 5}, {"evaluate_every": 1}, {"checkpoint_every": 1}, {"keep": "none"}):
        with pytest.raises(ValueError, match=f"{next(iter(options))}: follows from epochs and epoch_steps"):
            train_in_turn(["rte"], tmp_path, **TINY, **options)
    with pytest.raises(ValueError, match="epoch_steps must be at least 1, or None for once through the data, not 0"):
        train_in_turn(["rte"], tmp_path, **TINY | {"epoch_steps": 0})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("pals-204", {}),
        ("houlsby-64", {"method_options": {"freeze": "backbone but norms"}}),
        ("pals-shared-across-tasks-204", {"method_options": {"freeze": "backbone"}}),
    ],
)
def test_a_method_that_trains_what_tasks_share_is_refused(method, options, tmp_path):
    with pytest.raises(ValueError, match=rf"'{method}.*' trains parameters that all tasks read .*freeze='backbone'"):
        train_in_turn(["rte"], tmp_path, method, **{"size": 12} | TINY | options)


def test_an_unknown_option_is_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown parameter 'learning_rat': did you mean 'learning_rate'"):
        train_in_turn(["rte"], tmp_path, learning_rat=1, **TINY)


def test_more_tasks_after_earlier_ones(in_turn, tmp_path):
    """A run that starts from another one's weights, also of feature extraction, which trains a mix and a head."""
    _, folder = in_turn
    start = best_weights(folder / "1-cola")
    (record,) = train_in_turn(["sst2"], tmp_path / "a", "houlsby-64-not-shared", start=start, **TINY)
    assert record["config"]["tasks"] == ["sst2"]
    assert list(MultiTaskModel.from_pretrained(best_weights(tmp_path / "a" / "1-sst2")).tasks) == ["cola", "sst2"]
    assert len(train_in_turn(["sst2", "rte"], tmp_path / "b", "feature-extraction", **TINY)) == 2


# ------------------------------------------------------------------------------------------------------------- removal


@pytest.mark.parametrize("name", ["houlsby-64", "houlsby-64-not-shared"])
def test_removed_as_by_zeros_in_v_d(name):
    """x + V^D GELU(V^E x) with V^D = 0 and no bias is x: layer 1's adapters are its own (the model has 3 layers)."""
    model, twin = randomised(name), randomised(name)
    each = model.method.adapters_per_layer
    with torch.no_grad():
        for adapter in twin.adaptations["rte"].adapters[each : 2 * each]:
            adapter.decoder.weight.zero_()
            adapter.decoder.bias.zero_()
    before = logits(model)
    with without_adapters(model, "rte", 1, 1):
        removed = logits(model)
    torch.testing.assert_close(removed, logits(twin), atol=1e-6, rtol=1e-5)
    assert (removed - before).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["houlsby-64-3-shared", "houlsby-64", "pals-204", "lhuc", "serial-100"])
def test_without_any_adapter_the_layers_are_the_backbones(name):
    """Also where one adapter serves all three layers; `rte` alone is without."""
    model = randomised(name)
    states = torch.inference_mode()(lambda task: model.encode(task, **batch(pad=2)).last_hidden_state)
    other = logits(model, "stsb")
    with without_adapters(model, "rte", 0, 2):
        assert torch.equal(states("rte"), states(None))
        assert torch.equal(logits(model, "stsb"), other)
    assert not torch.allclose(states("rte"), states(None))


def test_one_layer_of_those_that_share_an_adapter():
    """3-shared: without layer 1, layers 0 and 2 still have the adapter that all three share."""
    model = randomised("houlsby-64-3-shared")
    with without_adapters(model, "rte", 1, 1):
        middle = logits(model)
    with without_adapters(model, "rte", 0, 2):
        none = logits(model)
    assert not torch.equal(middle, none) and not torch.equal(middle, logits(model))


@pytest.mark.parametrize("name", ["houlsby-64", "houlsby-64-not-shared", "houlsby-64-3-shared"])
def test_put_back_bit_for_bit(name):
    """After a block, a block within a block, and an error; no parameter is touched."""
    model = randomised(name)
    before, state = logits(model), {k: v.clone() for k, v in model.state_dict().items()}
    with without_adapters(model, "rte", 0, 0):
        outer = logits(model)
        with without_adapters(model, "rte", 1, 2):
            inner = logits(model)
        assert torch.equal(logits(model), outer)
    with without_adapters(model, "rte", 0, 2):
        assert torch.equal(logits(model), inner)  # 0 and 1 to 2
    with pytest.raises(RuntimeError, match="within"), without_adapters(model, "rte", 0, 2):
        raise RuntimeError("within")
    assert torch.equal(logits(model), before)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(("first", "last"), [(-1, 0), (2, 1), (0, 3)])
def test_a_span_outside_the_layers_is_refused(first, last):
    model = randomised("houlsby-64")
    message = rf"no span of layers {first} to {last}: it takes 0 <= first <= last <= 2"
    with pytest.raises(ValueError, match=message), without_adapters(model, "rte", first, last):
        pass


@pytest.mark.parametrize("name", ["shared", "feature-extraction", "fine-tuned", "bert-layer-on-top"])
def test_nothing_within_to_remove(name):
    model = randomised(name)
    with pytest.raises(ValueError, match="adds nothing within the layers"), without_adapters(model, "rte", 0, 0):
        pass
    with pytest.raises(ValueError, match="unknown task 'cola'"), without_adapters(randomised("lhuc"), "cola", 0, 0):
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
    opposite = ablation_frame(model, "rte", rows_of(model, rows=30, labels=1 - data.labels), rows=7)
    assert set(opposite["whole"]) == {0.0} and opposite["change"].isna().all()  # nothing to compare with


def test_the_command_line_writes_a_record(tmp_path, capsys):
    """Two tasks on a backbone of two layers: three spans each; the runs in it are rows of `load_records`."""
    out, places = tmp_path / "records" / "ablation.json", ["--folder", str(tmp_path / "runs")]
    call = ["adapters", str(out), "--rows", "20", *(f"--{k.replace('_', '-')}={TINY[k]}" for k in OWN)]
    call += ["--options", *(f"{k}={json.dumps(v)}" for k, v in TINY.items() if k not in OWN)]
    assert main([*call, *places, "--tasks", "cola", "rte"]) == 0
    record = json.loads(out.read_text())
    spans = from_lines(record["spans"])
    assert spans.groupby("task", sort=False).size().to_dict() == {"cola": 3, "rte": 3}
    assert spans["metric"].unique().tolist() == ["matthews", "accuracy"]
    assert [run["config"]["tasks"] for run in record["runs"]] == [["cola"], ["rte"]]
    assert record["environment"]["python"] and record["seconds"] > 0 and record["rows"] == 20
    assert str(tmp_path) not in out.read_text()
    assert load_records(tmp_path / "records")["key"].tolist() == [run["key"] for run in record["runs"]]
    capsys.readouterr()
    for more, found in (
        (["--tasks", "cola", "cola"], "each once"),
        (["--tasks", "cola", "--method", "feature-extraction"], "adds nothing within"),
        (["--tasks", "cola", "--start", "/nowhere"], "/nowhere"),
    ):
        assert main([*call, "--folder", str(tmp_path / "other"), *more]) == 1
        said = capsys.readouterr().err
        assert said.startswith("palslib adapters: ") and found in said
    assert not (tmp_path / "other").exists()  # before anything is trained
    assert json.loads(out.read_text()) == record


# ------------------------------------------------------------------------------------------------------------- figures


def spans(values):
    places = [(0, 0), (0, 1), (1, 1)]
    return pd.DataFrame([(*p, v) for p, v in zip(places, values, strict=True)], columns=["first", "last", "change"])


def test_the_ablation_is_an_upper_triangle_with_numbers():
    """-1 on the diagonal, -20 in the corner, nothing below; white is 0."""
    ax = ablation_heatmap(spans([-1, -20, 2.04]), plt.figure().gca())
    (mesh,) = ax.collections
    assert mesh.get_array().filled(np.nan).tolist() == [[-1, -20], [pytest.approx(np.nan, nan_ok=True), 2.04]]
    assert {text.get_text(): text.get_position() for text in ax.texts} == {
        "-1.0": (0.5, 0.5),
        "-20.0": (1.5, 0.5),
        "2.0": (1.5, 1.5),
    }
    assert (mesh.norm.vmin, mesh.norm.vmax) == (-20, 20)
    assert ablation_heatmap(spans([-1, -20, 2]), plt.figure().gca(), most=50).collections[0].norm.vmax == 50
    assert ablation_heatmap(spans([0, 0, 0]), plt.figure().gca()).collections[0].norm.vmax == 1
    plt.close("all")


def test_an_ablation_without_a_whole_is_drawn_without_numbers():
    ax = ablation_heatmap(spans([np.nan] * 3), plt.figure().gca())
    assert not [text for text in ax.texts if text.get_text() != "nan"]
    plt.close("all")


def test_mix_bars():
    """Two tasks, three layers: six bars as high as the weights, and the line of an even mix."""
    rows = [("cola", 0, 0.2), ("cola", 1, 0.3), ("cola", 2, 0.5), ("mood", 0, 0.6), ("mood", 1, 0.3), ("mood", 2, 0.1)]
    ax = mix_bars(pd.DataFrame(rows, columns=["task", "layer", "weight"]), plt.figure().gca())
    heights = [patch.get_height() for patch in ax.patches if patch.get_height() > 0]
    assert heights[:6] == pytest.approx([0.2, 0.3, 0.5, 0.6, 0.3, 0.1])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["CoLA", "mood"]
    assert ax.lines[0].get_ydata()[0] == pytest.approx(1 / 3)
    plt.close("all")
