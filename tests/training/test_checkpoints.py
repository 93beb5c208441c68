"""Checkpoints that know themselves: what is damaged is named and the one before taken; what was exchanged is a new run.

Each run here ends with the bits of one that nothing had befallen, or is refused before anything is changed.
"""

import json
import math
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
from small_runs import assert_same_bits, finish, flip, names_in, small, stop_at, two_classes, weights

from palslib.bert.backbones import load_encoder, load_tokenizer
from palslib.common.lock import MARK
from palslib.common.sealed import prove, seal
from palslib.grid.sweep import state as state_of
from palslib.plan.content import exchanged, folder_content
from palslib.records import environment
from palslib.training import loop
from palslib.training.in_turn import train_in_turn
from palslib.training.loop import Run, train
from palslib.training.pretraining import pretrain

TINY = {"steps": 8, "evaluate_every": 4, "checkpoint_every": 2, "keep": "best"}
PRETRAINING = {"steps": 6, "max_length": 24}

pytestmark = pytest.mark.usefixtures("one_thread")


def config(folder, **options):
    return small(folder, **TINY | options)


def check_same_end(folder, other):
    """Both runs have kept the same last and best weights."""
    for name in ("last", "best"):
        assert_same_bits(weights(folder, name), weights(other, name))


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


DAMAGES = {
    "a bit": flip,
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
    "another seed's": lambda path: shutil.copy(path.parents[3] / "other" / "checkpoint" / path.name, path),
}


@pytest.mark.parametrize(
    ("name", "damage"),
    [*product(["tensors.bin", "manifest.json"], ["a bit", "gone", "another seed's"]), ("run.json", "a bit")],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(runs, stopped, tmp_path, capsys, name, damage):
    shutil.copytree(runs / "stopped-1", tmp_path.parent / "other", dirs_exist_ok=True)
    DAMAGES[damage](Path(stopped.folder, "checkpoint", name))
    steps, record = finish(stopped)
    assert steps[0] == 5  # from step 4 on
    check_same_end(stopped.folder, runs / "whole")
    first, second = record["notes"]
    assert first.startswith("checkpoint cannot be used: ") and second == "resumed from checkpoint.old"
    # What another seed's manifest has is a checksum of other files.
    assert ("run.json" if (name, damage) == ("manifest.json", "another seed's") else name) in first
    said = "".join(f"palslib: {stopped.folder}: {note}\n" for note in (first, second))
    assert capsys.readouterr().err.endswith(f"are cut: rte 98%; raise max_length\n{said}")
    assert names_in(stopped.folder) == ["best", "last", "predictions.npz", "record.json"]


def test_a_second_damage_is_survived_too(tmp_path):
    """The checkpoint put aside before gives way; the record still says what went before."""
    settings = config(tmp_path / "run", steps=12)
    for step in (5, 7):
        train(settings, on_step=stop_at(step))
        flip(tmp_path / "run" / "checkpoint" / "tensors.bin")
    steps, record = finish(settings)
    assert steps[0] == 7 and record["notes"].count("resumed from checkpoint.old") == 2


def test_without_a_whole_one_the_run_begins_anew(runs, stopped):
    for name in ("checkpoint", "checkpoint.old"):
        flip(Path(stopped.folder, name, "tensors.bin"))
    steps, record = finish(stopped)
    assert steps[0] == 1 and record["notes"][-1] == "no earlier checkpoint: restarted at step 0"
    check_same_end(stopped.folder, runs / "whole")


@pytest.mark.parametrize(("before", "then"), [("none", "best"), ("best", "last"), ("last", "best")])
def test_weights_of_the_best_step_cannot_be_kept_halfway(tmp_path, before, then):
    """Those of a better point that nobody kept would be missing in silence. Nothing is changed."""
    train(config(tmp_path / "run", keep=before), on_step=stop_at(5))
    there = sorted(path.stat().st_ino for path in (tmp_path / "run").rglob("*"))
    with pytest.raises(ValueError, match=f"was started with keep='{before}': use it again, or resume=False"):
        train(config(tmp_path / "run", keep=then))
    assert sorted(path.stat().st_ino for path in (tmp_path / "run").rglob("*")) == there


@pytest.mark.parametrize(("before", "then", "step"), [("none", "last", 5), ("none", "best", 3)])
def test_other_weights_can_be_kept(runs, tmp_path, before, then, step):
    """The last ones at any time, the best ones as long as no point has been scored."""
    train(config(tmp_path / "run", keep=before), on_step=stop_at(step))
    assert train(config(tmp_path / "run", keep=then), on_step=lambda run: run.step > step)["status"] == "finished"
    assert_same_bits(weights(tmp_path / "run", "last"), weights(runs / "whole", "last"))


def test_a_kill_between_the_checkpoint_and_the_best_weights(runs, tmp_path, monkeypatch):
    """The checkpoint of an evaluation has the best weights itself."""
    keep_model = Run.keep_model
    monkeypatch.setattr(Run, "keep_model", lambda run, name: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        train(config(tmp_path / "run"))
    assert names_in(tmp_path / "run") == ["checkpoint", "checkpoint.old"]
    monkeypatch.setattr(Run, "keep_model", keep_model)
    assert finish(config(tmp_path / "run"))[0][0] == 5
    check_same_end(tmp_path / "run", runs / "whole")


def test_a_change_of_machine_is_noted(tmp_path, monkeypatch, capsys):
    """The record's environment is that of the last part alone."""
    monkeypatch.setattr(loop, "environment", lambda: environment() | {"cpu": "another", "git_commit": "abc"})
    train(config(tmp_path / "run"), on_step=stop_at(3))
    monkeypatch.undo()
    record = train(config(tmp_path / "run"))
    about = record["environment"]
    said = f"resumed at step 3 under other conditions: git_commit abc -> {about['git_commit']}, "
    assert record["notes"] == [said + f"cpu another -> {about['cpu']}"]
    assert record["notes"][0] in capsys.readouterr().err


def test_a_full_disk_is_one_line(tmp_path):
    """In the middle of the weights, or of the optimiser's state."""
    about = ["--backbone", "tiny", "--tasks", "rte", "--steps", "3", "--batch-size", "2", "--checkpoint-every", "1"]
    for limit in (2_000, 8_000):  # kB
        call = [sys.executable, "-m", "palslib", "train", *about, "--no-progress", "--folder"]
        few = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit * 1000, limit * 1000))
        done = subprocess.run([*call, str(tmp_path / str(limit))], preexec_fn=few, capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and "is the disk full?" in done.stderr, done.stderr
        assert not (tmp_path / str(limit)).exists()


@pytest.mark.parametrize("damage", ["a bit", "empty", "gone", "another run's"])
def test_damaged_best_weights_are_made_again(runs, stopped, damage):
    """Those of step 4, which no later step would write again: the checkpoint of step 4 has them, too. After the run's
    end those of another run, which are whole, are refused."""
    best = Path(stopped.folder, "best")
    if damage == "another run's":
        shutil.copytree(runs / "stopped-1" / "best", best, dirs_exist_ok=True)
    else:
        DAMAGES[damage](best / "model.safetensors")
    steps, record = finish(stopped)
    said = "the folder best holds other ones" if damage == "another run's" else "its best weights are missing"
    assert said in record["notes"][0] and steps[0] == 5
    check_same_end(stopped.folder, runs / "whole")
    (trained := train(stopped)).model("best")
    shutil.copytree(runs / "stopped-1" / "best", best, dirs_exist_ok=True)
    with pytest.raises(ValueError, match="not those that this run has kept"):
        trained.model("best")


@pytest.mark.parametrize(
    "values", [{"step": "5"}, {"step": 9}, {"history": [{}]}, {"kept": 1}, {"losses": [0.5, None]}]
)
def test_a_sealed_checkpoint_of_wrong_types_is_damaged(runs, stopped, values):
    folder = Path(stopped.folder, "checkpoint")
    about = prove(folder)
    state = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(state | values))
    seal(folder, about["files"], key=about["key"], content=about["content"])
    steps, record = finish(stopped)
    assert steps[0] == 5 and record["notes"][0].startswith("checkpoint cannot be used: ")
    check_same_end(stopped.folder, runs / "whole")


def test_an_undefined_dev_average_is_no_damage(runs, stopped):
    """The released recipe's average is NaN while predictions are constant (ledger D3)."""
    folder = Path(stopped.folder, "checkpoint")
    about, state = prove(folder), json.loads((folder / "run.json").read_text())
    state["history"][-1]["dev_average"] = math.nan
    (folder / "run.json").write_text(json.dumps(state))
    seal(folder, about["files"], key=about["key"], content=about["content"])
    assert state_of(stopped)["step"] == 5  # what `palslib sweep` shows
    steps, record = finish(stopped)
    assert steps[0] == 6 and "notes" not in record and record["history"][0]["dev_average"] is None
    assert_same_bits(weights(stopped.folder, "last"), weights(runs / "whole", "last"))


def test_sealed_moments_of_other_shapes_are_refused(stopped):
    """They would be read beyond their end."""
    for folder in (Path(stopped.folder, name) for name in ("checkpoint", "checkpoint.old")):
        about, tensors = prove(folder), torch.load(folder / "tensors.bin")
        for moments in tensors["optimizer"]["state"].values():
            moments["exp_avg"] = moments["exp_avg"].flatten()[:1]
        torch.save(tensors, folder / "tensors.bin")
        seal(folder, about["files"], key=about["key"], content=about["content"])
    with pytest.raises(ValueError, match=r"checkpoint holds no state of this run: .*moments"):
        train(stopped)


@pytest.mark.parametrize("field", ["config", "content", "results"])
def test_a_record_of_wrong_types_is_refused(tmp_path, field):
    record = train(config(tmp_path / "run", steps=1))
    (tmp_path / "run" / "record.json").write_text(json.dumps(record | {field: [1]}))
    with pytest.raises(ValueError, match=field):
        train(config(tmp_path / "run", steps=1))


def test_a_run_does_not_write_over_what_it_starts_from_nor_start_from_damaged_weights(runs, tmp_path):
    shutil.copytree(runs / "whole", tmp_path / "run")
    for about in ({"start": "last"}, {"start": "best"}, {"backbone": "last"}):
        about = {name: str(tmp_path / "run" / value) for name, value in about.items()}
        with pytest.raises(ValueError, match="which it starts from"):
            train(config(tmp_path / "run", tasks=("cola",), **about))
    for wrong, advice in (("run", "holds no weights: give .*run/last or .*run/best"), ("rum", "rum holds no weights$")):
        with pytest.raises(FileNotFoundError, match=advice):
            train(config(tmp_path / "new", tasks=("cola",), start=str(tmp_path / wrong)))
    flip(tmp_path / "run" / "last" / "model.safetensors")
    with pytest.raises(ValueError, match=r"model.safetensors is damaged"):
        train(config(tmp_path / "new", tasks=("cola",), start=str(tmp_path / "run" / "last")))
    assert not (tmp_path / "new").exists()


def test_the_home_folder_is_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    model = train(config("~/run", steps=1)).model()
    model.save_pretrained("~/model")
    model.load_task(model.save_task("rte", "~/tasks"))
    train(config("~/further", steps=1, tasks=("cola",), start="~/model"))
    assert names_in(tmp_path) == ["further", "model", "run", "tasks"]


def test_what_a_kill_left_half_written_is_not_read_and_goes_with_the_next_start(runs, stopped):
    token = "0123456789abcdef"
    names = (f"checkpoint.{token}.tmp", f"best.{token}.tmp", f"last.{token}.tmp", f"best.{token}.old")
    left = [Path(stopped.folder, name) for name in names]
    for folder in left:
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
        (folder / "run.json").write_text('{"step": 7')
    assert train(stopped, on_step=lambda run: any(folder.exists() for folder in left))["step"] == 6
    train(stopped)
    check_same_end(stopped.folder, runs / "whole")


def test_a_run_that_was_killed_when_it_had_its_record_is_tidied(runs, stopped):
    for name in ("record.json", "predictions.npz"):
        shutil.copy(runs / "whole" / name, stopped.folder)
    Path(stopped.folder, "lock").touch()
    train(stopped)
    assert names_in(stopped.folder) == ["best", "predictions.npz", "record.json"]


# -------------------------------------------------------------------------------------------------- what was exchanged
def own(folder, run="run", **options):
    """A run on the files of a folder."""
    return config(folder / run, tasks=("mood",), data=str(folder), **options)


@pytest.mark.parametrize("stop", [5, None], ids=["stopped", "finished"])
def test_exchanged_labels_are_a_new_run(tmp_path, capsys, stop):
    """Inverted before the run goes on, or after its end; what there was is kept under another name."""
    two_classes(tmp_path / "mood.csv")
    train(own(tmp_path), on_step=stop_at(stop))
    kept = {p.name: p.stat().st_ino for p in (tmp_path / "run").iterdir() if p.name != MARK}
    two_classes(tmp_path / "mood.csv", yes="no", no="yes")
    expected = train(own(tmp_path, "fresh"))
    capsys.readouterr()
    record = train(own(tmp_path))
    what = "the checkpoint" if stop else "the record"
    said = f"{what} was made from inputs that changed (mood/train, mood/validation): kept as *.aside-1"
    said += "; run restarted"
    assert record["notes"] == [said] and capsys.readouterr().err == f"palslib: {tmp_path / 'run'}: {said}\n"
    assert record["history"] == expected["history"] and record["content"] == expected["content"]
    check_same_end(tmp_path / "run", tmp_path / "fresh")
    now = {p.name.removesuffix(".aside-1"): p.stat().st_ino for p in (tmp_path / "run").glob("*.aside-1")}
    assert now == kept
    assert train(own(tmp_path)) == record  # and that one has finished


def test_other_weights_in_a_folder_of_the_same_name_are_a_new_run(tmp_path):
    def backbone(seed):
        load_encoder("tiny", seed).save_pretrained(tmp_path / "bert")
        load_tokenizer("tiny").save_pretrained(tmp_path / "bert")

    backbone(0)
    settings = config(tmp_path / "run", backbone=str(tmp_path / "bert"))
    train(settings, on_step=stop_at(5))
    backbone(1)
    record = train(settings)
    assert "inputs that changed (backbone)" in record["notes"][0]
    assert record["history"] == train(replace(settings, folder=str(tmp_path / "fresh")))["history"]


def test_a_record_that_does_not_say_stays_as_it_is(tmp_path, capsys):
    two_classes(tmp_path / "mood.csv")
    record = train(own(tmp_path))
    del record["content"]
    (tmp_path / "run" / "record.json").write_text(json.dumps(record))
    two_classes(tmp_path / "mood.csv", yes="no", no="yes")
    assert train(own(tmp_path)) == record
    assert "could not be compared" in capsys.readouterr().err


def test_a_folder_like_a_name_on_the_hub_is_missed_elsewhere(tmp_path, monkeypatch, capsys):
    """There the name is another backbone's, out of reach; the data are compared all the same."""
    for module in (load_encoder("tiny"), load_tokenizer("tiny")):
        module.save_pretrained(tmp_path / "here" / "acme" / "bert")
    two_classes(tmp_path / "mood.csv")
    monkeypatch.chdir(tmp_path / "here")
    settings = replace(own(tmp_path), backbone="acme/bert")
    record = train(settings)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert train(settings) == record
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and settings.name in said and "backbone: could not load" in said
    two_classes(tmp_path / "mood.csv", yes="no", no="yes")
    with pytest.raises(OSError, match="acme/bert"):
        train(settings)


def test_a_record_counts_where_its_data_are_gone(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    two_classes(tmp_path / "data" / "mood.csv")
    settings = config(tmp_path / "run", tasks=("mood",), steps=2, data=str(tmp_path / "data"))
    record = train(settings)
    further = config(tmp_path / "further", start=str(tmp_path / "run" / "best"))
    from_it = train(further)
    shutil.rmtree(tmp_path / "data")
    shutil.rmtree(tmp_path / "run" / "best")
    assert train(settings) == record and train(further) == from_it
    said = capsys.readouterr().err.splitlines()[-2:]
    assert "its tasks: no data" in said[0] and "start: " in said[1]


def test_a_further_task_is_new_where_an_earlier_one_is(tmp_path):
    """The second run's weights to start from are other ones, so it is another run, too."""
    two_classes(tmp_path / "mood.csv")
    about = {"data": str(tmp_path), "epochs": 1, "epoch_steps": 2, "backbone": "tiny", "batch_size": 4}
    about |= {"progress": False, "precision": "float32", "learning_rate": 1e-2}
    two_classes(tmp_path / "late.csv")
    train_in_turn(["mood", "late"], tmp_path / "runs", **about)
    two_classes(tmp_path / "mood.csv", yes="no", no="yes")
    first, second = train_in_turn(["mood", "late"], tmp_path / "runs", **about)
    assert "(mood/train, mood/validation)" in first["notes"][0] and "inputs that changed (start)" in second["notes"][0]


# ------------------------------------------------------------------------------------------------ further pre-training
def test_further_pre_training_takes_the_one_before_and_begins_anew(tmp_path):
    two_classes(tmp_path / "mood.csv")
    about = PRETRAINING | {"tasks": ("mood",), "data": str(tmp_path), "checkpoint_every": 2}
    whole = pretrain(small(tmp_path / "whole", **about))
    settings = small(tmp_path / "mine", **about)
    pretrain(settings, on_step=lambda step: step != 5)
    flip(tmp_path / "mine" / "checkpoint" / "tensors.bin")
    seen = []
    record = pretrain(settings, on_step=seen.append)
    assert seen[0] == 5 and record["losses"] == whole["losses"]
    assert record["notes"][1] == "resumed from checkpoint.old"
    two_classes(tmp_path / "mood.csv", yes="no", no="yes", rows=50)
    (tmp_path / "best").touch()  # somebody else's
    pretrain(settings, on_step=lambda step: step != 5)
    two_classes(tmp_path / "mood.csv", yes="no", no="yes", rows=40)
    again = pretrain(settings)
    assert "checkpoint was made from inputs that changed" in again["notes"][0] and again["losses"] != record["losses"]
    assert names_in(tmp_path) == ["best", "mine", "mood.csv", "whole"]
    aside = {name for name in names_in(tmp_path / "mine") if ".aside-" in name}
    assert {"record.json.aside-1", "model.safetensors.aside-1", "checkpoint.aside-1"} <= aside


def test_every_file_that_decides_is_in_the_hash_of_a_folder(tmp_path):
    load_encoder("tiny").save_pretrained(tmp_path)
    load_tokenizer("tiny").save_pretrained(tmp_path)
    names, found = sorted(tmp_path.iterdir()), {folder_content(tmp_path)}
    for path in names:
        path.write_bytes(path.read_bytes() + b" ")
        found.add(folder_content(tmp_path))
    (tmp_path / "notes.txt").write_text("mine")
    assert len(found) == 1 + len(names) and folder_content(tmp_path) in found
    assert exchanged({"rte/train": "a", "start": "b"}, {"rte/train": "c", "backbone": "d"}) == ["rte/train"]
