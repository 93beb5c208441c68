"""Training: a killed run ends with the same bits, a bad number stops it, a step does what the algorithm says."""

import io
import json
import math
import os
import re
import signal
import subprocess
import sys
from contextlib import redirect_stderr
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import check_same, finish, names_in, on_cpus, save_tiny, small, stop_at, two_classes, weights

import palslib.training.loop as training
from palslib.common.precision import precision_of
from palslib.common.seeds import seed_from
from palslib.data.metrics import score
from palslib.data.tasks import TASKS
from palslib.data.tokens import some_rows
from palslib.grid.sweep import finished
from palslib.training.checkpoints import NEWEST
from palslib.training.evaluation import evaluate, predict
from palslib.training.loop import Run, train
from palslib.training.pretraining import pretrain

TINY = {"method": "pals-204", "size": 24, "tasks": ("rte", "cola", "stsb"), "steps": 12, "batch_size": 8}
TINY |= {"schedule": "proportional", "alpha": 0.0}
config = partial(small, **TINY)


def outcome(record):
    """What two equal runs agree on: all but times."""
    return {k: v for k, v in record.items() if k not in ("seconds", "tokens_per_second", "environment", "threads")}


def saved_step(folder):
    """The step of a run's checkpoint."""
    return torch.load(folder / NEWEST, weights_only=True)["step"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run on a backbone in a folder, from its first step to its last: its config, its record, the run itself, and
    what it printed."""
    folder, runs = tmp_path_factory.mktemp("somewhere"), []
    save_tiny(folder / "own-backbone")
    settings = config(folder / "own-run", backbone=str(folder / "own-backbone"), evaluate_every=5, keep="last")
    with redirect_stderr(printed := io.StringIO()):
        record = train(settings, on_step=runs.append)
    return settings, record, runs[-1], printed.getvalue()


# ----------------------------------------------------------------------------------------------------- killed, resumed
KILLED = """
import json, os, signal, sys
from palslib import RunConfig, train

settings = RunConfig(**json.loads(sys.argv[1]))
train(settings, on_step=lambda run: os.kill(os.getpid(), signal.SIGKILL) if run.step == 10 else None)
"""


def test_a_killed_process_goes_on(tmp_path, whole):
    """SIGKILL after step 10, of which the checkpoint is at 8: it ends as the run that was never killed."""
    settings = replace(whole[0], folder=str(tmp_path / "run"), checkpoint_every=4)
    killed = subprocess.run([sys.executable, "-c", KILLED, json.dumps(asdict(settings))], env=on_cpus())
    assert killed.returncode == -signal.SIGKILL and saved_step(tmp_path / "run") == 8
    steps, record = finish(settings)
    assert steps == [9, 10, 11, 12]
    check_same(weights(tmp_path / "run"), weights(whole[0].folder))
    expected = outcome(whole[1])
    assert outcome(record) == expected | {"config": expected["config"] | {"checkpoint_every": 4}}
    assert names_in(tmp_path / "run") == ["last", "predictions.npz", "record.json"]


def test_stopped_and_called_again(tmp_path):
    """In the middle of everything that a checkpoint must carry: moments, each tensor's own counter, dropout that an
    evaluation has turned off, and gradients of zero by which resting tasks drift."""
    options, runs = {"keep": "last", "evaluate_every": 3, "recipe": "released"}, []
    record = train(config(tmp_path / "whole", **options), on_step=runs.append)
    parts = config(tmp_path / "parts", **options)
    first = train(parts, on_step=stop_at(5))
    assert first == {"key": parts.key, "status": "stopped", "step": 5}
    assert train(parts, on_step=stop_at(6))["step"] == 6
    assert outcome(train(parts, on_step=runs.append)) == outcome(record)
    check_same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))
    assert runs[-1].tokens == runs[0].tokens and runs[-1].spent["train"] > 0


# ------------------------------------------------------------------------------------------------------------- folders


def test_a_finished_run_is_returned_at_once_or_says_what_it_has_not_kept(whole, monkeypatch):
    settings, record, *_ = whole
    with pytest.raises(ValueError, match=r"another run, which differs in keep \(last: give the same"):
        train(replace(settings, keep="best"))
    assert finished(replace(settings, keep="best")) is None  # nor is it finished for a sweep
    monkeypatch.setattr(training, "Run", None)  # nothing is loaded, nothing trained
    assert finished(settings) == train(settings) == record


def test_another_configs_folder_is_refused(tmp_path, whole):
    before = Path(whole[0].folder, "record.json").read_bytes()
    train(stopped := config(tmp_path), on_step=stop_at(2))
    for settings, what in ((whole[0], "the record"), (stopped, "a checkpoint")):
        with pytest.raises(ValueError, match=f"holds {what} of another run, which differs in seed: choose"):
            train(replace(settings, seed=1))
    assert Path(whole[0].folder, "record.json").read_bytes() == before and saved_step(tmp_path) == 2


def test_anew(tmp_path, monkeypatch):
    """resume=False: a folder of its own, and the same outcome. Without a name the folder is called after the run."""
    monkeypatch.setenv("HOME", str(tmp_path))
    short = {"tasks": ("rte",), "steps": 1}
    first = train(config("~/run", **short))
    again = train(config("~/run", **short), resume=False)
    assert again.folder.name == "run-1" and outcome(again) == outcome(first)
    train(config("~/run", **short), resume=False)
    assert names_in(tmp_path) == ["run", "run-1", "run-2"]
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    assert train(settings := config(None, **short)).folder == tmp_path / "train" / settings.name


# ---------------------------------------------------------------------------------------------------------- not finite
def test_a_nan_loss_stops_the_run(tmp_path):
    """The weights are spoiled after step 5; the next loss of the task is the first NaN. The checkpoint stays as it was
    and the run goes on from it."""
    settings = config(tmp_path, checkpoint_every=4)

    def spoil(run):
        if run.step == 5:
            assert "cola" in run.plan.tasks[5:8]  # before the next checkpoint
            run.model.heads["cola"].weight.data.fill_(math.nan)

    with pytest.raises(FloatingPointError, match=r"the loss is nan at step [567], task 'cola'; last good .*\(step 4\)"):
        train(settings, on_step=spoil)
    assert not (tmp_path / "record.json").exists() and saved_step(tmp_path) == 4
    assert train(settings)["status"] == "finished"


@pytest.mark.parametrize(("spoiled", "evaluate_every"), [(7, 0), (5, 6)])
def test_spoiled_weights_are_not_saved(tmp_path, spoiled, evaluate_every):
    """A loss can be finite and its gradients not; a checkpoint of NaN would be no good one. An evaluation that meets
    them names them, too, not a fault of the dev data, which has no step and no checkpoint."""
    about = {"tasks": ("rte", "cola"), "schedule": "round-robin", "alpha": None, "evaluate_every": evaluate_every}

    def on_step(run):
        if run.step == spoiled:  # this step itself is CoLA's, and its loss is finite
            run.model.heads["rte"].weight.data[0, 0] = math.inf

    message = rf"a weight is not finite after the update at step {spoiled}, task 'cola'.*\(step 4\)"
    with pytest.raises(FloatingPointError, match=message):
        train(config(tmp_path, checkpoint_every=4, **about), on_step=on_step)
    assert saved_step(tmp_path) == 4


# ------------------------------------------------------------------------------------------------------------ one step
def test_learning_rate_by_hand(tmp_path):
    """12 steps, warm-up 0.25: a third, two thirds, 1 of 3e-3, then (12 - step) / 9 of it. What the method adds
    (the last two groups) learns at ten times that."""
    rates = []

    def on_step(run):
        rates.append([group["lr"] for group in run.optimizer.param_groups])
        assert (run.model.head_dropout, run.model.max_length, run.model.recomputes) == (0.3, 32, True)

    options = {"warmup": 0.25, "adaptation_rate": 10.0, "head_dropout": 0.3, "gradient_checkpointing": True}
    train(config(tmp_path, learning_rate=3e-3, **options), on_step=on_step)
    expected = [1e-3, 2e-3, 3e-3, *(3e-3 * (12 - step) / 9 for step in range(3, 12))]
    for rate, found in zip(expected, rates, strict=True):
        assert found == pytest.approx([rate, rate, 10 * rate, 10 * rate])


def test_losses_fall(tmp_path):
    """Forty steps on one task at a high rate: the mean loss of the last ten is below that of the first ten. Under
    autocast the weights stay float32."""
    about = {"tasks": ("cola",), "steps": 40, "learning_rate": 1e-3, "batch_size": 16, "precision": "bf16"}
    run = Run(config(tmp_path, **about), tmp_path)
    for _ in range(40):
        run.train_step()
    run.read_losses()
    assert np.mean(run.losses[-10:]) < np.mean(run.losses[:10]) - 0.01
    assert run.precision == "bf16" and {p.dtype for p in run.model.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("amx", "avx", "maker", "found"),
    [(1, 0, "Intel", "bf16"), (0, 1, "AMD", "bf16"), (0, 1, "Intel", "float32"), (0, 0, "AMD", "float32")],
)
def test_auto_is_bf16_where_it_is_fast(monkeypatch, capsys, amx, avx, maker, found):
    """Of GPUs: H100; T4, whose matrix units take fp16 alone; P40, which has none. Elsewhere bf16 is taken if asked for,
    and a line says that it is slower."""
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    for bf16, capability, on_gpu in ((True, (9, 0), "bf16"), (False, (7, 5), "fp16"), (False, (6, 1), "float32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, bf16=bf16: bf16)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda capability=capability: capability)
        assert [precision_of(asked, gpu) for asked in ("auto", "fp16", "tf32")] == [on_gpu, "fp16", "tf32"]
    monkeypatch.setattr("palslib.common.precision.processor", lambda: f"{maker} 9")
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: bool(amx))
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bool(avx))
    assert precision_of("auto", cpu) == found and not capsys.readouterr().err
    slower = "palslib: precision='bf16': precision='auto' would choose float32 on this processor\n"
    assert precision_of("bf16", cpu) == "bf16" and capsys.readouterr().err == slower * (found == "float32")


def test_fp16_scales_the_loss_skips_what_overflows_and_resumes(tmp_path, monkeypatch):
    """On a CPU, where only a test may: autocast and the scaler are the same there."""
    monkeypatch.setattr(training, "precision_of", lambda asked, device: asked)
    about = {"precision": "fp16", "checkpoint_every": 2, "keep": "last", "steps": 6}
    run = Run(config(tmp_path / "one", **about), tmp_path / "one")
    run.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
    before = {name: tensor.clone() for name, tensor in run.model.state_dict().items()}
    run.train_step()  # its gradients overflow
    check_same(run.model.state_dict(), before)
    assert run.scaler.get_scale() == 2.0**119
    train(config(tmp_path / "whole", **about))
    train(config(tmp_path / "killed", **about), on_step=stop_at(3))
    assert torch.load(tmp_path / "killed" / NEWEST, weights_only=True)["scaler"]["_growth_tracker"] > 0
    train(config(tmp_path / "killed", **about))
    check_same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    with pytest.raises(ValueError, match="memory compares gradients, which precision='fp16' scales"):
        train(config(tmp_path / "memory", memory=4, **about))


def test_texts_that_are_cut_or_unknown_are_said_on_screen(tmp_path, capsys):
    """Over a quarter of the rows cut, over a tenth of the pieces [UNK]; nothing of short texts in English."""
    lines = [f"\U00012000\U00012001 \U00012002 {i}{' day' * (i % 2 * 20)},{i % 2}" for i in range(60)]
    (tmp_path / "clay.csv").write_text("\n".join(["text,label", *lines]))
    Run(config(tmp_path / "run", tasks=("cola", str(tmp_path / "clay.csv")), max_length=16), tmp_path)
    cut, unknown = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"palslib: training rows over max_length=16 .*: clay [45]\d%; raise max_length", cut)
    assert re.search(r": clay \d\d%; choose a backbone .*", unknown)


def test_dropout_is_a_function_of_seed_step_and_process(tmp_path, monkeypatch):
    run, seen = Run(config(tmp_path, seed=3), tmp_path), []
    monkeypatch.setattr(type(run.accelerator), "process_index", 1)
    monkeypatch.setattr(type(run.accelerator), "num_processes", 2)
    monkeypatch.setattr(training, "seed_from", lambda *names: seen.append(names) or seed_from(*names))
    for _ in range(2):
        run.train_step()
    assert seen == [(3, 0, 1), (3, 1, 1)]


# ------------------------------------------------------------------------------------------------- evaluation, records
def test_evaluation_equals_a_plain_loop(tmp_path):
    """One row at a time, in the data's order, without padding: the same logits to rounding, the same scores."""
    run = Run(config(tmp_path, tasks=("mnli", "stsb", "cola")), tmp_path)
    for _ in range(3):
        run.train_step()
    model = run.model
    dev = {t: {split: some_rows(data, 50) for split, data in of_task.items()} for t, of_task in run.dev_data.items()}
    scores = evaluate(model, dev)
    assert model.training and set(scores["mnli"]) == {"accuracy", "accuracy_mm"}
    model.eval()
    for name, splits in dev.items():
        for split, data in splits.items():
            with torch.no_grad():
                rows = [model(task=name, **data.batch([i])).logits[0].numpy() for i in range(len(data))]
            np.testing.assert_allclose(predict(model, name, data), np.array(rows), atol=1e-5)
            scale = 5 if name == "stsb" else 1
            for metric, value in score(TASKS[name], data.labels * scale, np.array(rows) * scale).items():
                key = metric + ("_mm" if split.endswith("mismatched") else "")
                assert scores[name][key] == pytest.approx(value, abs=0.1)  # almost constant scores: rounding counts


def test_best_and_last(tmp_path, monkeypatch):
    """The best of these averages is the first 70, kept beside the last, and reported with its step; one that is
    undefined (ledger D3) is never kept, even where the run is stopped just then."""
    averages = iter([math.nan, 50.0, 70.0, 70.0, math.nan, 65.0])
    monkeypatch.setattr(training, "dev_average", lambda scores: next(averages))
    seen = {}

    def on_step(run):
        if run.step == 3:
            assert not (tmp_path / "best").exists()
        if run.step == 6:
            seen.update({n: t.clone() for n, t in run.model.state_dict().items()})

    train(config(tmp_path, keep="best", evaluate_every=2), on_step=lambda run: run.step < 2)
    record = train(config(tmp_path, keep="best", evaluate_every=2), on_step=on_step)
    assert [point["step"] for point in record["history"]] == [2, 4, 6, 8, 10, 12]
    assert (record["results"]["best"]["step"], record["results"]["last"]["step"]) == (6, 12)
    assert record["results"]["best"]["dev_average"] == 70
    check_same(record.model("best").state_dict(), seen)
    last = record.model("last").state_dict()
    assert any(not torch.equal(last[name], seen[name]) for name in seen)


def test_a_run_ends_early_where_it_no_longer_gets_better(tmp_path, monkeypatch):
    """The best of these averages is the second; the next two are no better. Also where it is stopped in between."""
    averages = iter([50.0, 70.0, 70.0, 65.0, 80.0])
    monkeypatch.setattr(training, "dev_average", lambda scores: next(averages))
    settings = config(tmp_path, evaluate_every=2, patience=2)
    train(settings, on_step=stop_at(5))
    record = train(settings)
    assert [point["step"] for point in record["history"]] == [2, 4, 6, 8]
    assert record["results"]["best"]["step"] == 4
    assert sum(record["sampling"]["drawn"].values()) == sum(record["sampling"]["expected"].values()) == 8


def test_record(whole):
    settings, record, run, printed = whole
    assert printed.splitlines() == [  # nothing shown but this
        "palslib: training rows over max_length=32 word pieces are cut: rte 98%; raise max_length"
    ]
    assert (record["key"], record["status"], record["precision"]) == (settings.key, "finished", "float32")
    assert record["counts"]["per_task"] == 2 * 48 * 24 + 2 * 3 * 24**2  # 2ds + L 3s²
    assert record["counts"]["added"] == 3 * record["counts"]["per_task"]
    assert record["data"]["train"] == {"rte": 64, "cola": 220, "stsb": 148}
    assert sum(record["sampling"]["drawn"].values()) == 12
    assert record["sampling"]["expected"] == pytest.approx(dict.fromkeys(TINY["tasks"], 4.0))
    assert record["seconds"]["total"] > 0 and record["tokens_per_second"] > 0
    batches = [run.train_data[task].lengths[run.plan.examples(k)] for k, task in enumerate(run.plan.tasks)]
    assert run.tokens == sum(map(sum, batches))
    text = Path(settings.folder, "record.json").read_text()
    assert record == json.loads(text) and record["config"]["backbone"] == "own-backbone"
    here = ("somewhere", "own-run", os.getcwd(), sys.prefix, os.uname().nodename, os.path.expanduser("~/"))
    assert [trace for trace in here if trace in text] == []  # no path, and no name of the machine


def test_history(whole):
    """Each point's loss is the mean by task over the steps since the last point."""
    _, record, run, _ = whole
    assert [point["step"] for point in record["history"]] == [5, 10, 12]
    for point, (first, last) in zip(record["history"], ((0, 5), (5, 10), (10, 12)), strict=True):
        tasks, losses = run.plan.tasks[first:last], run.losses[first:last]
        own = {t: [x for x, name in zip(losses, tasks, strict=True) if name == t] for t in set(tasks)}
        assert point["loss"] == pytest.approx({t: sum(values) / len(values) for t, values in own.items()})
        firsts = [point["scores"][t][TASKS[t].metrics[0]] for t in TINY["tasks"]]
        assert point["dev_average"] == pytest.approx(sum(firsts) / 3) and point["glue_average"] is None


def test_files_named_like_attributes_of_a_module_train(tmp_path):
    """`train.csv` and `a.b.csv` are tasks like any other: trained, evaluated, kept and read back."""
    for name in ("train", "a.b"):
        two_classes(tmp_path / f"{name}.csv")
    record = train(small(tmp_path / "run", data=str(tmp_path), tasks=("train", "a.b"), steps=2, keep="last"))
    assert list(record["results"]["last"]["scores"]) == list(record.model().adaptations) == ["train", "a.b"]


@pytest.mark.parametrize("call", [train, pretrain])
def test_what_is_no_config_is_refused_by_name(call):
    for value in ({"method": "shared"}, None):
        with pytest.raises(ValueError, match=r"^config must be a RunConfig, as RunConfig\(steps=100\), not "):
            call(value)
