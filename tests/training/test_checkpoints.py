"""Checkpoints that know themselves: what is damaged is named and the one before taken; what was exchanged is a new run.

Each run here ends with the bits of one that nothing had befallen, or is refused before anything is changed.
"""

import json
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_runs import assert_same_bits, finish, flip, names_in, small, stop_at, two_classes, weights

from palslib.bert.backbones import load_encoder, load_tokenizer
from palslib.training.in_turn import train_in_turn
from palslib.training.loop import train
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
    [
        *product(["model.safetensors", "manifest.json"], ["a bit", "gone", "another seed's"]),
        *product(["optimizer.bin", "run.json"], ["a bit"]),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(runs, stopped, tmp_path, capsys, name, damage):
    shutil.copytree(runs / "stopped-1", tmp_path.parent / "other", dirs_exist_ok=True)
    DAMAGES[damage](Path(stopped.folder, "checkpoint", name))
    steps, record = finish(stopped)
    assert steps[0] == 5  # from step 4 on
    check_same_end(stopped.folder, runs / "whole")
    first, second = record["notes"]
    assert first.startswith("checkpoint cannot be used: ") and second == "went on from checkpoint.old"
    # What another seed's manifest has is a checksum of other files.
    assert ("model.safetensors" if (name, damage) == ("manifest.json", "another seed's") else name) in first
    assert capsys.readouterr().err == f"palslib: {stopped.folder}: {first}\npalslib: {stopped.folder}: {second}\n"
    assert names_in(stopped.folder) == ["best", "last", "record.json"]


def test_without_a_whole_one_the_run_begins_anew(runs, stopped):
    for name in ("checkpoint", "checkpoint.old"):
        flip(Path(stopped.folder, name, "optimizer.bin"))
    steps, record = finish(stopped)
    assert steps[0] == 1 and record["notes"][-1] == "there is no earlier checkpoint: began anew"
    check_same_end(stopped.folder, runs / "whole")


def test_the_word_outlives_another_kill(runs, stopped):
    flip(Path(stopped.folder, "checkpoint", "optimizer.bin"))
    assert train(stopped, on_step=stop_at(7))["step"] == 7
    assert train(stopped)["notes"][1] == "went on from checkpoint.old"
    check_same_end(stopped.folder, runs / "whole")


def as_before_manifests(folder):
    """A checkpoint as the first version wrote it."""
    (folder / "manifest.json").unlink()
    state = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({k: v for k, v in state.items() if k not in ("sealed", "notes")}))


def test_a_checkpoint_without_a_manifest_is_read_as_it_is(runs, stopped):
    shutil.rmtree(Path(stopped.folder, "checkpoint.old"))
    as_before_manifests(Path(stopped.folder, "checkpoint"))
    steps, record = finish(stopped)
    assert steps[0] == 6 and "notes" not in record
    check_same_end(stopped.folder, runs / "whole")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda tensor: tensor * float("nan"), "heads.rte.bias is not finite"),
        (lambda tensor: tensor.repeat(2), "heads.rte.bias has shape (4,), not (2,)"),
        (lambda tensor: None, "does not fit the model: heads.rte.bias is missing"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_changed(runs, stopped, change, why):
    """In a checkpoint without checksums; the run begins anew, so that what it ends with shows that nothing stuck."""
    shutil.rmtree(Path(stopped.folder, "checkpoint.old"))
    as_before_manifests(Path(stopped.folder, "checkpoint"))
    path = Path(stopped.folder, "checkpoint", "model.safetensors")
    tensors = load_file(path)
    changed = change(tensors.pop("heads.rte.bias"))
    save_file(tensors | ({} if changed is None else {"heads.rte.bias": changed}), path)
    assert why in train(stopped)["notes"][0]
    check_same_end(stopped.folder, runs / "whole")


@pytest.mark.parametrize("damage", ["a bit", "empty", "gone"])
def test_damaged_best_weights_are_made_again(runs, stopped, damage):
    """Those of step 4, which no later step would write again: both checkpoints count on them."""
    DAMAGES[damage](Path(stopped.folder, "best", "model.safetensors"))
    assert "the best weights up to then are not there" in train(stopped)["notes"][0]
    check_same_end(stopped.folder, runs / "whole")


def test_weights_to_start_from_are_refused(runs, tmp_path):
    shutil.copytree(runs / "whole", tmp_path / "whole")
    flip(tmp_path / "whole" / "last" / "model.safetensors")
    with pytest.raises(ValueError, match=r"model.safetensors is damaged"):
        train(config(tmp_path / "run", tasks=("cola",), start=str(tmp_path / "whole" / "last")))
    assert not (tmp_path / "run").exists()


def test_what_a_kill_left_half_written_is_not_read_and_goes_with_the_next_start(runs, stopped):
    names = ("checkpoint.0123456789abcdef.tmp", "best.77.tmp", "last.1.tmp", "best.old")  # beside a whole `best`
    left = [Path(stopped.folder, name) for name in names]
    for folder in left:
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
        (folder / "run.json").write_text('{"step": 7')
    assert train(stopped, on_step=lambda run: any(folder.exists() for folder in left))["step"] == 6
    train(stopped)
    check_same_end(stopped.folder, runs / "whole")


def test_a_run_that_was_killed_when_it_had_its_record_is_tidied(runs, stopped):
    shutil.copy(runs / "whole" / "record.json", stopped.folder)
    Path(stopped.folder, "lock").touch()
    train(stopped)
    assert names_in(stopped.folder) == ["best", "record.json"]


# -------------------------------------------------------------------------------------------------- what was exchanged


def own(folder, run="run", **options):
    """A run on the files of a folder."""
    return config(folder / run, tasks=("mood",), data=str(folder), **options)


@pytest.mark.parametrize("stop", [5, None], ids=["stopped", "finished"])
def test_exchanged_labels_are_a_new_run(tmp_path, capsys, stop):
    """Inverted before the run goes on, or after its end; what there was is kept under another name."""
    two_classes(tmp_path / "mood.csv")
    train(own(tmp_path), on_step=stop_at(stop))
    kept = {p.name: p.stat().st_ino for p in (tmp_path / "run").iterdir()}
    two_classes(tmp_path / "mood.csv", yes="no", no="yes")
    expected = train(own(tmp_path, "fresh"))
    capsys.readouterr()
    record = train(own(tmp_path))
    what = "the checkpoint" if stop else "the record"
    said = f"{what} was made from other inputs of that name (mood/train, mood/validation): kept as *.aside-1"
    said += "; began anew"
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
    assert "of that name (backbone)" in record["notes"][0]
    assert record["history"] == train(replace(settings, folder=str(tmp_path / "fresh")))["history"]


def test_records_and_checkpoints_that_do_not_say_stay_as_they_are(tmp_path):
    two_classes(tmp_path / "mood.csv")
    train(own(tmp_path), on_step=stop_at(5))
    as_before_manifests(tmp_path / "run" / "checkpoint")
    two_classes(tmp_path / "mood.csv", yes="no", no="yes")
    record = train(own(tmp_path))
    assert "notes" not in record
    del record["content"]
    (tmp_path / "run" / "record.json").write_text(json.dumps(record))
    two_classes(tmp_path / "mood.csv")
    assert train(own(tmp_path)) == record


def test_a_record_counts_where_its_data_are_gone(tmp_path):
    (tmp_path / "data").mkdir()
    two_classes(tmp_path / "data" / "mood.csv")
    settings = config(tmp_path / "run", tasks=("mood",), steps=2, data=str(tmp_path / "data"))
    record = train(settings)
    further = config(tmp_path / "further", start=str(tmp_path / "run" / "best"))
    from_it = train(further)
    shutil.rmtree(tmp_path / "data")
    shutil.rmtree(tmp_path / "run" / "best")
    assert train(settings) == record and train(further) == from_it


def test_a_further_task_is_new_where_an_earlier_one_is(tmp_path):
    """The second run's weights to start from are other ones, so it is another run, too."""
    two_classes(tmp_path / "mood.csv")
    about = {"data": str(tmp_path), "epochs": 1, "epoch_steps": 2, "backbone": "tiny", "batch_size": 4}
    about |= {"progress": False, "precision": "float32", "learning_rate": 1e-2}
    two_classes(tmp_path / "late.csv")
    train_in_turn(["mood", "late"], tmp_path / "runs", **about)
    two_classes(tmp_path / "mood.csv", yes="no", no="yes")
    first, second = train_in_turn(["mood", "late"], tmp_path / "runs", **about)
    assert "(mood/train, mood/validation)" in first["notes"][0] and "of that name (start)" in second["notes"][0]


# ------------------------------------------------------------------------------------------------ further pre-training


def test_further_pre_training_takes_the_one_before_and_begins_anew(tmp_path):
    two_classes(tmp_path / "mood.csv")
    about = PRETRAINING | {"tasks": ("mood",), "data": str(tmp_path), "checkpoint_every": 2}
    whole = pretrain(small(tmp_path / "whole", **about))
    settings = small(tmp_path / "mine", **about)
    pretrain(settings, on_step=lambda step: step != 5)
    flip(tmp_path / "mine.checkpoint" / "state.bin")
    seen = []
    record = pretrain(settings, on_step=seen.append)
    assert seen[0] == 5 and record["losses"] == whole["losses"]
    assert record["notes"][1] == "went on from mine.checkpoint.old"
    two_classes(tmp_path / "mood.csv", yes="no", no="yes", rows=50)
    (tmp_path / "best").touch()  # somebody else's
    pretrain(settings, on_step=lambda step: step != 5)
    two_classes(tmp_path / "mood.csv", yes="no", no="yes", rows=40)
    again = pretrain(settings)
    assert "the checkpoint was made from other inputs" in again["notes"][0] and again["losses"] != record["losses"]
    aside = ["mine.aside-1", "mine.checkpoint.aside-1", "mine.checkpoint.old.aside-1"]
    assert names_in(tmp_path) == ["best", "mine", *aside, "mood.csv", "whole"]


def test_a_checkpoint_of_pre_training_of_the_first_version_is_read(tmp_path):
    whole = pretrain(small(tmp_path / "whole", **PRETRAINING))
    settings = small(tmp_path / "mine", **PRETRAINING)
    pretrain(settings, on_step=lambda step: step != 2)
    place = tmp_path / "mine.checkpoint"
    state = torch.load(place / "state.bin", weights_only=True)
    shutil.rmtree(place)
    torch.save({k: v for k, v in state.items() if k not in ("sealed", "notes")}, place)
    seen = []
    assert pretrain(settings, on_step=seen.append)["losses"] == whole["losses"] and seen == [3, 4, 5, 6]
    assert not place.exists()
