"""Checkpoints: a damaged one is named and the one before taken, one of another run or of exchanged inputs is refused.

Each run here ends with the bits of one that nothing had befallen, or is refused before anything is changed.
"""

import json
import os
import shutil
from functools import partial
from pathlib import Path

import huggingface_hub
import pytest
from small_runs import check_same, finish, flip, full_disk, names_in, save_tiny, small, stop_at, two_classes, weights

from palslib.__main__ import main
from palslib.data.tasks import Task
from palslib.plan.content import exchanged, folder_content, run_content
from palslib.records import environment
from palslib.training import loop
from palslib.training.checkpoints import BEFORE, NEWEST
from palslib.training.loop import train

config = partial(small, steps=8, evaluate_every=4, checkpoint_every=2, keep="best")


def check_same_end(folder, other):
    """Both runs have kept the same last and best weights, and nothing else than these and a record."""
    for name in ("last", "best"):
        check_same(weights(folder, name), weights(other, name))
    assert names_in(folder) == names_in(other) == ["best", "last", "predictions.npz", "record.json"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of a whole run, and of two of different seeds with checkpoints of steps 5 and 4."""
    folder = tmp_path_factory.mktemp("runs")
    train(config(folder / "whole"))
    for seed in (0, 1):
        assert train(config(folder / f"stopped-{seed}", seed=seed), on_step=stop_at(5))["step"] == 5
    return folder


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(("damages", "first"), [([flip], 5), ([cut], 5), ([Path.unlink], 5), ([flip, cut], 1)])
def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(runs, tmp_path, capsys, damages, first):
    shutil.copytree(runs / "stopped-0", tmp_path / "run")
    for name, damage in zip((NEWEST, BEFORE), damages, strict=False):
        damage(tmp_path / "run" / name)
    steps, record = finish(config(tmp_path / "run"))
    assert steps[0] == first
    notes, printed = record.get("notes", []), capsys.readouterr().err
    assert len(notes) == (0 if damages == [Path.unlink] else len(damages))  # one that is gone is not seen
    for note, name in zip(notes, (NEWEST, BEFORE), strict=False):
        assert note.startswith(f"{name} is damaged") and note in printed
    check_same_end(tmp_path / "run", runs / "whole")


@pytest.mark.parametrize("call", [2, 3, 4, 5])
def test_killed_while_a_checkpoint_is_saved(runs, tmp_path, monkeypatch, call):
    """Before the predictions, at any of the steps of which a save consists, and between it and the best weights, which
    it then has itself: at most the steps since the last checkpoint are done again. One that was killed when it had its
    record has finished."""
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
    shutil.copy(runs / "stopped-0" / NEWEST, tmp_path / "run")
    assert finish(config(tmp_path / "run"))[0] == []
    check_same_end(tmp_path / "run", runs / "whole")


def test_weights_of_the_best_step_are_not_kept_halfway_nor_taken_from_another_run(runs, tmp_path):
    """Those of a better point that nobody kept would be missing in silence. Before any evaluation they can be."""
    for step, refused in ((5, True), (3, False)):
        train(config(tmp_path / str(step), keep="none"), on_step=stop_at(step))
        if refused:
            with pytest.raises(ValueError, match=r"another run, which differs in keep \(none: give the same"):
                train(config(tmp_path / str(step)))
    trained = train(config(tmp_path / "3"))
    trained.model("best")
    shutil.copytree(runs / "stopped-1" / "best", tmp_path / "3" / "best", dirs_exist_ok=True)
    with pytest.raises(ValueError, match="not those that this run has kept"):
        trained.model("best")


def test_a_change_of_machine_is_noted(tmp_path, monkeypatch, capsys):
    """The record's environment is that of the last part alone."""
    with monkeypatch.context() as patch:
        patch.setattr(loop, "environment", lambda: environment() | {"cpu": "another"})
        train(config(tmp_path / "run"), on_step=stop_at(3))
    record = train(config(tmp_path / "run"))
    (note,) = record["notes"]
    assert note.startswith("resumed at step 3 under other conditions: ") and note in capsys.readouterr().err
    assert note.endswith(f"cpu another -> {record['environment']['cpu']}")


def test_a_full_disk_is_one_line(tmp_path, capsys):
    """In the middle of the optimiser's state: torch has an error of its own for that."""
    call = ["train", "--backbone", "tiny", "--tasks", "rte", "--steps", "3", "--batch-size", "2"]
    call += ["--checkpoint-every", "1", "--no-progress", "--folder", str(tmp_path / "run")]
    with full_disk(8_000_000):
        assert main(call) == 1
    printed = capsys.readouterr().err
    assert printed.count("palslib train:") == 1 and "is the disk full?" in printed
    assert names_in(tmp_path / "run") == []


@pytest.mark.parametrize(
    ("folder", "field", "start", "error", "words"),
    [
        ("run", "start", "run/last", ValueError, "the run would overwrite what it starts from"),
        ("new", "start", "run", FileNotFoundError, "holds no weights: give .*run/last or .*run/best"),
        ("new", "start", "nowhere", FileNotFoundError, "does not exist"),
        ("new", "start", "run/best", ValueError, "model.safetensors is missing, damaged"),
        ("new", "backbone", "run/best", ValueError, "model.safetensors is missing, damaged"),
    ],
)
def test_what_a_run_cannot_start_from(runs, tmp_path, folder, field, start, error, words):
    """Nothing, damaged weights, or what it would write over, as in the folder of the run that they are of."""
    shutil.copytree(runs / "whole", tmp_path / "run")
    flip(tmp_path / "run" / "best" / "model.safetensors")
    with pytest.raises(error, match=words):
        train(config(tmp_path / folder, tasks=("cola",), **{field: str(tmp_path / start)}))


# -------------------------------------------------------------------------------------------------- what was exchanged
@pytest.mark.parametrize("stop", [5, None], ids=["stopped", "finished"])
def test_exchanged_inputs_are_another_run(tmp_path, stop):
    """Labels inverted, or other weights under the same name, before the run goes on or after its end: refused, and what
    there is stays. A note beside the weights, or a task's file, is no part of them."""
    two_classes(tmp_path / "mood.csv")
    save_tiny(tmp_path / "bert")
    settings = config(tmp_path / "run", tasks=("mood",), data=str(tmp_path), backbone=str(tmp_path / "bert"))
    train(settings, on_step=stop_at(stop))
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    save_tiny(tmp_path / "bert", seed=1)
    with pytest.raises(ValueError, match="another run, which differs in backbone: choose"):
        train(settings)
    save_tiny(tmp_path / "bert")
    two_classes(tmp_path / "mood.csv", "no", "yes")
    with pytest.raises(ValueError, match="another run, which differs in mood/train, mood/validation: choose"):
        train(settings)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == kept
    two_classes(tmp_path / "mood.csv")
    for name in ("vocabulary of mine.txt", "rte.safetensors", "tokenizer_notes.md"):
        (tmp_path / "bert" / name).write_text("mine")
    assert train(settings)["status"] == "finished"


def test_a_split_out_of_reach_hides_no_change_of_another(tmp_path, capsys):
    for split in ("train", "validation"):
        two_classes(tmp_path / f"{split}.csv")
    settings = config(None, tasks=(Task("mood", ("text",), ("no", "yes"), data=str(tmp_path / "{split}.csv")),))
    before = run_content(settings, {})
    two_classes(tmp_path / "train.csv", "no", "yes")
    (tmp_path / "validation.csv").unlink()
    assert exchanged(before, settings) == ["mood/train"]
    assert "mood/validation cannot be read" in capsys.readouterr().err


def test_every_file_that_decides_is_in_the_hash_of_a_folder(tmp_path):
    save_tiny(tmp_path / "bert")
    hashes = {folder_content(tmp_path / "bert")}
    for path in (tmp_path / "bert").iterdir():
        path.write_bytes(path.read_bytes() + b" ")
        hashes.add(folder_content(tmp_path / "bert"))
    assert len(hashes) == 1 + 4


def test_a_record_does_not_count_where_other_weights_lie_beside_the_list_of_what_it_started_from(tmp_path):
    for seed in (0, 1):
        train(small(tmp_path / str(seed), steps=1, keep="last", seed=seed))
    run = small(tmp_path / "run", steps=1, start=str(tmp_path / "0" / "last"))
    train(run)
    shutil.copy(tmp_path / "1" / "last" / "model.safetensors", tmp_path / "0" / "last")
    with pytest.raises(ValueError, match=r"last/model.safetensors is missing, damaged, or not of the save that"):
        train(run)


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
    for known in (before, {"rte/train": before["rte/train"]}):  # now it has no hash, and a record may have none
        assert exchanged(known, settings) == [] and "backbone has no hash" in capsys.readouterr().err


def test_a_record_counts_where_its_inputs_are_out_of_reach_or_have_no_hash(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    two_classes(tmp_path / "data" / "mood.csv")
    settings = config(tmp_path / "run", tasks=("mood",), steps=2, data=str(tmp_path / "data"))
    record = train(settings)
    shutil.rmtree(tmp_path / "data")
    assert train(settings) == record and "mood cannot be read" in capsys.readouterr().err
    earlier = {name: value for name, value in record.items() if name != "content"} | {"key": settings.key}
    (tmp_path / "run" / "record.json").write_text(json.dumps(earlier))
    assert train(settings)["key"] == earlier["key"]  # of a version without hashes
