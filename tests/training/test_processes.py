"""One process or two train the same model; parts of a batch leave gradients equal."""

import json
import subprocess
import sys
from dataclasses import asdict, replace

import pytest
import torch
from small_runs import TORCHRUN, names_in, on_cpus, save_tiny, small, stop_at

from palslib.bert.backbones import load_tokenizer
from palslib.data.tasks import task_from_file
from palslib.data.tokens import tokenise_task
from palslib.model.multi_task import MultiTaskModel
from palslib.plan.config import RunConfig
from palslib.training.evaluation import predict
from palslib.training.loop import Run, train

TINY = {"size": 24, "tasks": ("rte", "cola", "stsb"), "schedule": "round-robin", "steps": 8, "batch_size": 8}
TINY |= {"keep": "last", "learning_rate": 1e-3}
MEMORY = {"schedule": "sequential", "memory": 7, "tasks": ("cola", "rte"), "steps": 6}
RELEASED = {"recipe": "released", "method": "houlsby-64", "method_options": {"freeze": "backbone"}}
RELEASED |= {"recipe_options": {"round_robin_advances": True}, "learning_rate": 1e-2}
TRAIN_ALL = """
import json, sys
from palslib.__main__ import main
from palslib.plan.config import RunConfig
from palslib.training.loop import train

for values, stop in json.loads(sys.argv[2]):
    train(RunConfig(**values), on_step=lambda run: run.step != stop)
sys.exit(main(["train", sys.argv[1]]))
"""
"""A script: trains one run after the other, each up to a step, and one as from the terminal."""


@pytest.fixture(scope="module")
def without_dropout(tmp_path_factory):
    """A tiny backbone in a folder, with its tokenizer; its configuration has no dropout."""
    folder = tmp_path_factory.mktemp("backbone")
    save_tiny(folder)
    path = folder / "config.json"
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    path.write_text(json.dumps(json.loads(path.read_text()) | none))
    return str(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, without_dropout):
    """Configs by name, which two processes have trained, `command` as from the terminal; and what that printed."""
    folder = tmp_path_factory.mktemp("runs")

    def config(name, **options):
        return small(folder / name, **TINY | {"backbone": without_dropout} | options)

    configs = {"command": config("command", evaluate_every=4, checkpoint_every=3, progress=True)}
    configs |= {"two, one": config("two-one"), "one, two": config("one-two", batch_size=7)}
    configs |= {"memory": config("memory", **MEMORY), "released": config("released", **RELEASED)}
    assert train(configs["one, two"], on_step=stop_at(5))["status"] == "stopped"
    (folder / "config.json").write_text(json.dumps(asdict(configs["command"])))
    (folder / "train_all.py").write_text(TRAIN_ALL)
    stops = {"two, one": 5, "one, two": None, "memory": None, "released": None}
    jobs = json.dumps([(asdict(configs[name]), stop) for name, stop in stops.items()])
    call = [sys.executable, "-m", *TORCHRUN, str(folder / "train_all.py"), str(folder / "config.json"), jobs]
    done = subprocess.run(call, env=on_cpus(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert not (folder / "two-one" / "record.json").exists()
    return configs, done


def logits(config, model):
    """A model's outputs on the first dev split of every task."""
    tokenizer = load_tokenizer(config.backbone)
    splits = {name: task.evaluation[0] for name, task in model.tasks.items()}
    data = {name: tokenise_task(name, tokenizer, "synthetic", split, 32) for name, split in splits.items()}
    return {name: torch.from_numpy(predict(model, name, rows)) for name, rows in data.items()}


def check_same_outcome(tmp_path, config):
    """A run in this process, from the first step to the last, ends with the same outputs and losses."""
    alone = RunConfig(**(asdict(config) | {"folder": str(tmp_path), "progress": False}))
    expected, found = train(alone), train(config)
    assert (expected["processes"], expected["key"]) == (1, found["key"])
    start = MultiTaskModel.from_backbone(config.backbone, config.resolved_method(), config.tasks, config.seed)
    ends = [MultiTaskModel.from_pretrained(f"{c.folder}/last") for c in (alone, config)]
    before, one, two = (logits(config, model) for model in (start.eval(), *ends))
    for name, values in one.items():
        torch.testing.assert_close(two[name], values, rtol=0, atol=1e-4)
        assert (values - before[name]).abs().max() > 1e-2  # else the comparison says nothing
    for one, other in zip(expected["history"], found["history"], strict=True):
        assert one["step"] == other["step"]
        assert other["loss"] == pytest.approx(one["loss"], abs=1e-4)
    return expected, found


def test_two_processes_from_the_terminal(tmp_path, runs):
    """Same batches and outputs; one record, one line of output, one progress bar, and nothing left beside them."""
    configs, done = runs
    expected, found = check_same_outcome(tmp_path, configs["command"])
    assert found["processes"] == 2
    assert found["sampling"] == expected["sampling"] and found["data"] == expected["data"]
    assert list(found) == list(expected)
    line = {"key": found["key"], "dev_average": found["results"]["last"]["dev_average"]}
    assert [json.loads(line) for line in done.stdout.splitlines()] == [line]
    assert done.stderr.count(" 0/8 ") == 1  # every bar begins with that
    assert [done.stderr.count(f"step {step}: dev average") for step in (4, 8)] == [1, 1]
    assert names_in(configs["command"].folder) == ["last", "predictions.npz", "record.json"]


@pytest.mark.parametrize(("name", "processes"), [("one, two", 2), ("two, one", 1), ("memory", 2), ("released", 2)])
def test_a_run_in_another_number_of_processes(tmp_path, runs, name, processes):
    """Stopped and gone on in another number, with batches that two cannot halve; with Gradient Episodic Memory, which
    compares and projects what one process would, of 4 and 3 of its rows; and by the released recipe, where tasks that
    rest drift: their gradients are zeros, which processes do not exchange."""
    expected, found = check_same_outcome(tmp_path, runs[0][name])
    assert found["processes"] == processes
    if name == "memory":
        assert found["memory"] == expected["memory"] and found["memory"]["checked"] == 3


# ------------------------------------------------------------------------- parts of a batch
def first_gradients(folder, monkeypatch, **options):
    """The gradients of a run's first step, by name of the parameter, as the optimiser would get them."""
    run = Run(small(folder, **TINY | {"alpha": 0.0, "schedule": "proportional"} | options), folder)
    monkeypatch.setattr(run.optimizer, "step", lambda: None)
    monkeypatch.setattr(run.optimizer, "zero_grad", lambda set_to_none: None)
    run.train_step()
    return {name: p.grad for name, p in run.model.named_parameters() if p.grad is not None}


def check_close(found, expected):
    assert found.keys() == expected.keys() and max(g.abs().max() for g in expected.values()) > 1e-2
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def test_gradients_of_parts_with_class_weights(tmp_path, monkeypatch, without_dropout):
    """A part's share in the weighted mean is that of its rows' weights; the weights are in the run's key."""
    moods = "".join(f"text {i} of {'x' * (i % 7)},{'bad' if i % 4 else 'good'}\n" for i in range(80))
    (tmp_path / "mood.csv").write_text(f"text,label\n{moods}")
    plain = task_from_file(tmp_path / "mood.csv")
    task = replace(plain, class_weights="balanced")
    options = {"method": "shared", "backbone": without_dropout, "size": None}
    expected = first_gradients(tmp_path, monkeypatch, **options, tasks=(task,))
    check_close(first_gradients(tmp_path, monkeypatch, **options, tasks=(task,), micro_batches=4), expected)
    unweighted = first_gradients(tmp_path, monkeypatch, **options, tasks=(plain,))
    assert (expected["heads.mood.bias"] - unweighted["heads.mood.bias"]).abs().max() > 1e-2
    assert len({RunConfig(tasks=(one,)).key for one in (task, plain)}) == 2


def test_gradients_of_a_task_with_a_factor(tmp_path, monkeypatch, without_dropout):
    options = {"backbone": without_dropout, "tasks": ("rte", "cola"), "schedule": "round-robin", "clip": 1e9}
    options |= {"alpha": None}
    once = first_gradients(tmp_path, monkeypatch, **options)
    twice = first_gradients(tmp_path, monkeypatch, **options, task_weights={"rte": 2, "cola": 9})
    check_close(twice, {name: 2 * gradient for name, gradient in once.items()})
