"""Checkpoints: a damaged one is named and the one before taken, one of another run or of exchanged inputs is refused.

Each run here ends with the bits of one that nothing had befallen, or is refused before anything is changed.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import huggingface_hub
import pytest
from small_runs import assert_same_bits, finish, flip, names_in, small, stop_at, two_classes, weights

from palslib.bert.backbones import load_encoder, load_tokenizer
from palslib.plan.content import exchanged, folder_content, run_content
from palslib.records import environment
from palslib.training import loop
from palslib.training.checkpoints import BEFORE, NEWEST
from palslib.training.loop import Run, train
from palslib.training.pretraining import pretrain

TINY = {"steps": 8, "evaluate_every": 4, "checkpoint_every": 2, "keep": "best"}

pytestmark = pytest.mark.usefixtures("one_thread")


def config(folder, **options):
    return small(folder, **TINY | options)


def check_same_end(folder, other):
    """Both runs have kept the same last and best weights, and nothing else than these and a record."""
    for name in ("last", "best"):
        assert_same_bits(weights(folder, name), weights(other, name))
    assert names_in(folder) == names_in(other) == ["best", "last", "predictions.npz", "record.json"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory, one_thread):
    """The folders of a whole run, and of two of different seeds with checkpoints of steps 5 and 4."""
    folder = tmp_path_factory.mktemp("runs")
    train(config(folder / "whole"))
    for seed in (0, 1):
        assert train(config(folder / f"stopped-{seed}", seed=seed), on_step=stop_at(5))["step"] == 5
    return folder


@pytest.fixture
def stopped(runs, tmp_path):
    shutil.copytree(runs / "stopped-0", tmp_path / "run")
    return config(tmp_path / "run")


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damages", "first"),
    [([flip], 5), ([cut], 5), ([lambda path: path.write_bytes(b"")], 5), ([Path.unlink], 5), ([flip, cut], 1)],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(runs, stopped, capsys, damages, first):
    for name, damage in zip((NEWEST, BEFORE), damages, strict=False):
        damage(Path(stopped.folder, name))
    steps, record = finish(stopped)
    assert steps[0] == first
    notes, printed = record.get("notes", []), capsys.readouterr().err
    assert len(notes) == (0 if damages == [Path.unlink] else len(damages))  # one that is gone is not seen
    for note, name in zip(notes, (NEWEST, BEFORE), strict=False):
        assert note.startswith(f"{name} is damaged") and note in printed
        assert note.endswith("resumed at step 4" if first == 5 else "restarted at step 0")
    check_same_end(stopped.folder, runs / "whole")


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_killed_while_a_checkpoint_is_saved(runs, tmp_path, monkeypatch, call):
    """At any of the steps of which a save consists: at most the steps since the last checkpoint are done again."""
    plain, calls = os.replace, []

    def killed(*names):
        calls.append(names)
        if len(calls) == call:
            raise KeyboardInterrupt
        return plain(*names)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", killed)
        train(config(tmp_path / "run"))
    finish(config(tmp_path / "run"))
    check_same_end(tmp_path / "run", runs / "whole")


def test_a_kill_between_the_checkpoint_and_the_best_weights(runs, tmp_path, monkeypatch):
    """The checkpoint of an evaluation has the best weights itself. A run that was killed when it had its record has
    finished: its checkpoints go."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Run, "keep_model", lambda run, name: (_ for _ in ()).throw(KeyboardInterrupt))
        train(config(tmp_path / "run"))
    assert names_in(tmp_path / "run") == [BEFORE, NEWEST]
    assert finish(config(tmp_path / "run"))[0][0] == 5
    for name in (NEWEST, BEFORE):
        shutil.copy(runs / "stopped-0" / name, tmp_path / "run")
    train(config(tmp_path / "run"), on_step=lambda run: pytest.fail("trained again"))
    check_same_end(tmp_path / "run", runs / "whole")


@pytest.mark.parametrize(("before", "then"), [("none", "best"), ("best", "last")])
def test_weights_of_the_best_step_cannot_be_kept_halfway(tmp_path, before, then):
    """Those of a better point that nobody kept would be missing in silence. Before any evaluation they can."""
    train(config(tmp_path / "run", keep=before), on_step=stop_at(5))
    with pytest.raises(ValueError, match=f"another run, which differs in keep \\({before}\\): choose another folder"):
        train(config(tmp_path / "run", keep=then))
    train(config(tmp_path / "early", keep=before), on_step=stop_at(3))
    assert finish(config(tmp_path / "early", keep=then))[0][0] == 4


def test_weights_of_another_run_are_not_taken_for_the_best(runs, stopped):
    trained = train(stopped)
    trained.model("best")
    shutil.copytree(runs / "stopped-1" / "best", Path(stopped.folder, "best"), dirs_exist_ok=True)
    with pytest.raises(ValueError, match="not those that this run has kept"):
        trained.model("best")


def test_a_change_of_machine_is_noted(tmp_path, monkeypatch, capsys):
    """The record's environment is that of the last part alone."""
    with monkeypatch.context() as patch:
        patch.setattr(loop, "environment", lambda: environment() | {"cpu": "another", "git_commit": "abc"})
        train(config(tmp_path / "run"), on_step=stop_at(3))
    record = train(config(tmp_path / "run"))
    now, (note,) = record["environment"], record["notes"]
    assert note.startswith("resumed at step 3 under other conditions: ") and note in capsys.readouterr().err
    assert note.endswith(f"git_commit abc -> {now['git_commit']}, cpu another -> {now['cpu']}")


def test_a_full_disk_is_one_line(tmp_path):
    """In the middle of the weights, or of the optimiser's state."""
    call = [sys.executable, "-m", "palslib", "train", "--backbone", "tiny", "--tasks", "rte", "--steps", "3"]
    call += ["--batch-size", "2", "--checkpoint-every", "1", "--no-progress", "--folder"]
    for limit in (2_000, 8_000):  # kB
        few = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit * 1000, limit * 1000))
        done = subprocess.run([*call, str(tmp_path / str(limit))], preexec_fn=few, capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.count("palslib train:") == 1
        assert "is the disk full?" in done.stderr and names_in(tmp_path / str(limit)) == []


@pytest.mark.parametrize(
    ("folder", "field", "start", "damaged", "error", "words"),
    [
        ("run", "start", "run/last", False, ValueError, "the run would overwrite what it starts from"),
        ("run", "backbone", "run/best", False, ValueError, "holds the record of another run, which differs in"),
        ("new", "start", "run", False, FileNotFoundError, "holds no weights: give .*run/last or .*run/best"),
        ("new", "start", "rum", False, FileNotFoundError, "rum holds no weights$"),
        ("new", "start", "run/last", True, ValueError, "model.safetensors is missing, damaged"),
        ("new", "backbone", "run/last", True, ValueError, "model.safetensors is missing, damaged"),
    ],
)
def test_what_a_run_cannot_start_from(runs, tmp_path, folder, field, start, damaged, error, words):
    """Nothing, damaged weights, or what it would write over, as in the folder of the run that they are of."""
    shutil.copytree(runs / "whole", tmp_path / "run")
    if damaged:
        flip(tmp_path / start / "model.safetensors")
    with pytest.raises(error, match=words):
        train(config(tmp_path / folder, tasks=("cola",), **{field: str(tmp_path / start)}))


def test_the_home_folder_is_understood(tmp_path, monkeypatch):
    """That of a user who does not exist is refused before anything is read."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    model = train(config("~/run", steps=1)).model()
    model.save_pretrained("~/model")
    model.load_task(model.save_task("rte", "~/tasks"))
    train(config("~/further", steps=1, tasks=("cola",), start="~/model"))
    for call in (train, pretrain):
        with pytest.raises(ValueError, match="~nobody-here/x"):
            call(config("~nobody-here/x", checkpoint_every=0))
    assert names_in(tmp_path) == ["further", "model", "run", "tasks"]


# -------------------------------------------------------------------------------------------------- what was exchanged
def backbone(folder, seed):
    for one in (load_encoder("tiny", seed), load_tokenizer("tiny")):
        one.save_pretrained(folder)


@pytest.mark.parametrize("stop", [5, None], ids=["stopped", "finished"])
def test_exchanged_inputs_are_another_run(tmp_path, stop):
    """Labels inverted, or other weights under the same name, before the run goes on or after its end: refused, and what
    there is stays. A note beside the weights, or a task's file, is no part of them."""
    two_classes(tmp_path / "mood.csv")
    backbone(tmp_path / "bert", 0)
    settings = config(tmp_path / "run", tasks=("mood",), data=str(tmp_path), backbone=str(tmp_path / "bert"))
    before = train(settings, on_step=stop_at(stop))
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    for exchange, undo, words in (
        (lambda: backbone(tmp_path / "bert", 1), lambda: backbone(tmp_path / "bert", 0), "backbone"),
        (partial(two_classes, tmp_path / "mood.csv", "no", "yes"), lambda: None, "mood/train, mood/validation"),
    ):
        exchange()
        with pytest.raises(ValueError, match=f"another run, which differs in {words}: choose"):
            train(settings)
        undo()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == kept
    assert train(settings, resume=False)["key"] == before["key"]
    two_classes(tmp_path / "mood.csv")
    for name in ("tokens.md", "vocabulary of mine.txt", "rte.safetensors", "tokenizer_notes.md"):
        (tmp_path / "bert" / name).write_text("mine")
    assert train(settings)["status"] == "finished"


def test_every_file_that_decides_is_in_the_hash_of_a_folder(tmp_path):
    """Of a plain backbone its own files, of a saved model what it lists."""
    model = train(config(None, steps=1)).model()
    model.backbone.save_pretrained(tmp_path / "bert")
    model.tokenizer.save_pretrained(tmp_path / "bert")
    hashes = {folder_content(tmp_path / "bert")}
    for path in sorted((tmp_path / "bert").iterdir()):
        path.write_bytes(path.read_bytes() + b" ")
        hashes.add(folder_content(tmp_path / "bert"))
    os.mkfifo(tmp_path / "bert" / "model-0.safetensors")  # which is not waited for
    assert len(hashes) == 1 + 4 and folder_content(tmp_path / "bert") in hashes
    for seed in (0, 0, 1):
        model.seed = seed
        model.save_pretrained(tmp_path / f"model-{seed}")
        hashes.add(folder_content(tmp_path / f"model-{seed}"))
    assert len(hashes) == 7


def test_a_backbone_of_the_hub_that_changes_is_another_run(monkeypatch, capsys):
    """Its hash is the commit of the files in Hugging Face's cache; an input without a hash is told."""
    commits = iter("ab")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: f"/snapshots/{next(commits)}/config.json")
    settings = config(None, backbone="acme/bert")
    before = run_content(settings, {})
    assert before["backbone"] == "a" and exchanged(before, settings) == ["backbone"]
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_: None)
    assert "backbone" not in run_content(settings, {}) and "backbone has no hash" in capsys.readouterr().err
    assert run_content(config(None, backbone="minilm"), {})["backbone"] == "53aa51172d142c89d9012cce"  # as in records


def test_a_record_counts_where_its_inputs_are_out_of_reach_or_have_no_hash(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    two_classes(tmp_path / "data" / "mood.csv")
    settings = config(tmp_path / "run", tasks=("mood",), steps=2, data=str(tmp_path / "data"))
    record = train(settings)
    further = config(tmp_path / "further", start=str(tmp_path / "run" / "best"))
    from_it = train(further)
    shutil.rmtree(tmp_path / "data")
    shutil.rmtree(tmp_path / "run" / "best")
    assert train(settings) == record and train(further) == from_it
    about_data, about_start = capsys.readouterr().err.splitlines()[-2:]
    assert "its tasks cannot be compared" in about_data and "start cannot be compared" in about_start
    (tmp_path / "run" / "record.json").write_text(json.dumps({k: v for k, v in record.items() if k != "content"}))
    assert train(settings)["key"] == record["key"]  # of a record without hashes
