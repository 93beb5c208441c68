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

from palslib.bert.backbones import load_encoder, load_tokenizer
from palslib.plan.config import RunConfig
from palslib.training.in_turn import train_in_turn
from palslib.training.loop import train
from palslib.training.pretraining import pretrain

TINY = {"backbone": "tiny", "size": 12, "tasks": ("rte",), "steps": 8, "batch_size": 4, "max_length": 32}
TINY |= {"precision": "float32", "progress": False, "evaluate_every": 4, "checkpoint_every": 2, "keep": "best"}

pytestmark = pytest.mark.usefixtures("one_thread")


def weights(folder):
    return {name: load_file(Path(folder) / name / "model.safetensors") for name in ("last", "best")}


def assert_same_bits(folder, expected):
    found = weights(folder)
    for name, tensors in expected.items():
        assert [key for key, tensor in tensors.items() if not torch.equal(tensor, found[name][key])] == []


@pytest.fixture(scope="module")
def runs(tmp_path_factory, one_thread):
    """Weights of a whole run, and folders of two runs of other seeds with checkpoints of steps 5 and 4."""
    folder = tmp_path_factory.mktemp("runs")
    train(RunConfig(**TINY, folder=str(folder / "whole")))
    for seed in (0, 1):
        config = RunConfig(**TINY, seed=seed, folder=str(folder / f"stopped-{seed}"))
        assert train(config, on_step=lambda run: run.step != 5)["step"] == 5
    return folder


@pytest.fixture
def stopped(runs, tmp_path):
    shutil.copytree(runs / "stopped-0", tmp_path / "run")
    return RunConfig(**TINY, folder=str(tmp_path / "run"))


def test_a_manifest_has_key_content_and_checksums(stopped):
    manifest = json.loads(Path(stopped.folder, "checkpoint", "manifest.json").read_text())
    assert manifest["key"] == stopped.key and manifest["step"] == 5
    assert sorted(manifest["files"]) == ["model.safetensors", "optimizer.bin", "run.json"]
    assert sorted(manifest["content"]) == ["rte/train", "rte/validation"]  # tiny's weights are drawn
    before = json.loads(Path(stopped.folder, "checkpoint.old", "manifest.json").read_text())
    assert before["step"] == 4 and before["content"] == manifest["content"]


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


DAMAGES = {
    "a bit": flip,
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"\xff\xfe not ours"),
    "gone": Path.unlink,
    "another seed's": lambda path: shutil.copy(path.parents[3] / "other" / "checkpoint" / path.name, path),
}


@pytest.mark.parametrize(
    ("name", "damage"),
    [*product(["model.safetensors", "manifest.json"], DAMAGES), ("optimizer.bin", "a bit"), ("run.json", "a bit")],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(runs, stopped, tmp_path, capsys, name, damage):
    shutil.copytree(runs / "stopped-1", tmp_path.parent / "other", dirs_exist_ok=True)
    DAMAGES[damage](Path(stopped.folder, "checkpoint", name))
    seen = []
    record = train(stopped, on_step=lambda run: seen.append(run.step))
    assert seen[0] == 5  # from step 4 on
    assert_same_bits(stopped.folder, weights(runs / "whole"))
    first, second = record["notes"]
    assert first.startswith("checkpoint cannot be used: ") and second == "went on from checkpoint.old"
    # What another seed's manifest has is a checksum of other files.
    assert ("model.safetensors" if (name, damage) == ("manifest.json", "another seed's") else name) in first
    assert capsys.readouterr().err == f"palslib: {stopped.folder}: {first}\npalslib: {stopped.folder}: {second}\n"
    assert sorted(path.name for path in Path(stopped.folder).iterdir()) == ["best", "last", "record.json"]


def test_without_a_whole_one_the_run_begins_anew(runs, stopped):
    for name in ("checkpoint", "checkpoint.old"):
        flip(Path(stopped.folder, name, "optimizer.bin"))
    seen = []
    record = train(stopped, on_step=lambda run: seen.append(run.step))
    assert seen[0] == 1 and record["notes"][-1] == "there is no earlier checkpoint: began anew"
    assert_same_bits(stopped.folder, weights(runs / "whole"))


def test_the_word_outlives_another_kill(runs, stopped):
    flip(Path(stopped.folder, "checkpoint", "optimizer.bin"))
    assert train(stopped, on_step=lambda run: run.step != 7)["step"] == 7
    assert train(stopped)["notes"][1] == "went on from checkpoint.old"
    assert_same_bits(stopped.folder, weights(runs / "whole"))


def as_before_manifests(folder):
    """A checkpoint as the first version wrote it."""
    (folder / "manifest.json").unlink()
    state = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({k: v for k, v in state.items() if k not in ("sealed", "notes")}))


def test_a_checkpoint_without_a_manifest_is_read_as_it_is(runs, stopped):
    shutil.rmtree(Path(stopped.folder, "checkpoint.old"))
    as_before_manifests(Path(stopped.folder, "checkpoint"))
    seen = []
    record = train(stopped, on_step=lambda run: seen.append(run.step))
    assert seen[0] == 6 and "notes" not in record
    assert_same_bits(stopped.folder, weights(runs / "whole"))


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
    assert_same_bits(stopped.folder, weights(runs / "whole"))


@pytest.mark.parametrize("damage", ["a bit", "empty", "gone"])
def test_damaged_best_weights_are_made_again(runs, stopped, damage):
    """Those of step 4, which no later step would write again: both checkpoints count on them."""
    DAMAGES[damage](Path(stopped.folder, "best", "model.safetensors"))
    assert "the best weights up to then are not there" in train(stopped)["notes"][0]
    assert_same_bits(stopped.folder, weights(runs / "whole"))


def test_weights_to_start_from_are_refused(runs, tmp_path):
    shutil.copytree(runs / "whole", tmp_path / "whole")
    flip(tmp_path / "whole" / "last" / "model.safetensors")
    config = RunConfig(
        **TINY | {"tasks": ("cola",), "start": str(tmp_path / "whole" / "last")}, folder=str(tmp_path / "run")
    )
    with pytest.raises(ValueError, match=r"model.safetensors is damaged"):
        train(config)
    assert not (tmp_path / "run").exists()


def test_what_a_kill_left_half_written_is_not_read_and_goes_with_the_next_start(runs, stopped):
    left = [Path(stopped.folder, name) for name in ("checkpoint.0123456789abcdef.tmp", "best.77.tmp", "last.1.tmp")]
    for folder in left:
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
        (folder / "run.json").write_text('{"step": 7')
    assert train(stopped, on_step=lambda run: any(folder.exists() for folder in left))["step"] == 6
    train(stopped)
    assert_same_bits(stopped.folder, weights(runs / "whole"))


def test_a_run_that_was_killed_when_it_had_its_record_is_tidied(runs, stopped):
    shutil.copy(runs / "whole" / "record.json", stopped.folder)
    Path(stopped.folder, "lock").touch()
    train(stopped)
    assert sorted(path.name for path in Path(stopped.folder).iterdir()) == ["best", "record.json"]


# -------------------------------------------------------------------------------------------------- what was exchanged


def mood(folder, yes="yes", no="no", rows=60):
    """A delimited file of two classes."""
    lines = [f"{'good' if i % 2 else 'bad'} day number {i},{yes if i % 2 else no}" for i in range(rows)]
    (folder / "mood.csv").write_text("\n".join(["text,label", *lines]))


def own(tmp_path, **options):
    return RunConfig(**TINY | {"tasks": ("mood",), "data": str(tmp_path), "folder": str(tmp_path / "run")} | options)


@pytest.mark.parametrize("stop", [5, None], ids=["stopped", "finished"])
def test_exchanged_labels_are_a_new_run(tmp_path, capsys, stop):
    """Inverted before the run goes on, or after its end; what there was is kept under another name."""
    mood(tmp_path)
    train(own(tmp_path), on_step=lambda run: run.step != stop)
    kept = {p.name: p.stat().st_ino for p in (tmp_path / "run").iterdir()}
    mood(tmp_path, yes="no", no="yes")
    expected = train(own(tmp_path, folder=str(tmp_path / "fresh")))
    capsys.readouterr()
    record = train(own(tmp_path))
    what = "the checkpoint" if stop else "the record"
    said = (
        f"{what} was made from other inputs of that name (mood/train, mood/validation): kept as *.aside-1; began anew"
    )
    assert record["notes"] == [said] and capsys.readouterr().err == f"palslib: {tmp_path / 'run'}: {said}\n"
    assert record["history"] == expected["history"] and record["content"] == expected["content"]
    assert_same_bits(tmp_path / "run", weights(tmp_path / "fresh"))
    now = {p.name.removesuffix(".aside-1"): p.stat().st_ino for p in (tmp_path / "run").glob("*.aside-1")}
    assert now == kept
    assert train(own(tmp_path)) == record  # and that one has finished


def test_other_weights_in_a_folder_of_the_same_name_are_a_new_run(tmp_path):
    def backbone(seed):
        load_encoder("tiny", seed).save_pretrained(tmp_path / "bert")
        load_tokenizer("tiny").save_pretrained(tmp_path / "bert")

    backbone(0)
    settings = RunConfig(**TINY | {"backbone": str(tmp_path / "bert")}, folder=str(tmp_path / "run"))
    train(settings, on_step=lambda run: run.step != 5)
    backbone(1)
    record = train(settings)
    assert "of that name (backbone)" in record["notes"][0]
    assert record["history"] == train(replace(settings, folder=str(tmp_path / "fresh")))["history"]


def test_records_and_checkpoints_that_do_not_say_stay_as_they_are(tmp_path):
    mood(tmp_path)
    train(own(tmp_path), on_step=lambda run: run.step != 5)
    as_before_manifests(tmp_path / "run" / "checkpoint")
    mood(tmp_path, yes="no", no="yes")
    record = train(own(tmp_path))
    assert "notes" not in record
    del record["content"]
    (tmp_path / "run" / "record.json").write_text(json.dumps(record))
    mood(tmp_path)
    assert train(own(tmp_path)) == record


def test_a_record_counts_where_its_data_are_gone(tmp_path):
    (tmp_path / "data").mkdir()
    mood(tmp_path / "data")
    settings = own(tmp_path, steps=2, data=str(tmp_path / "data"))
    record = train(settings)
    further = RunConfig(
        **TINY | {"tasks": ("rte",), "start": str(tmp_path / "run" / "best")}, folder=str(tmp_path / "further")
    )
    from_it = train(further)
    shutil.rmtree(tmp_path / "data")
    shutil.rmtree(tmp_path / "run" / "best")
    assert train(settings) == record and train(further) == from_it


def test_a_further_task_is_new_where_an_earlier_one_is(tmp_path):
    """The second run's weights to start from are other ones, so it is another run, too."""
    mood(tmp_path)
    about = {"data": str(tmp_path), "epochs": 1, "epoch_steps": 2, "backbone": "tiny", "batch_size": 4}
    about |= {"progress": False, "precision": "float32", "learning_rate": 1e-2}
    (tmp_path / "late.csv").write_text((tmp_path / "mood.csv").read_text())
    train_in_turn(["mood", "late"], tmp_path / "runs", **about)
    mood(tmp_path, yes="no", no="yes")
    first, second = train_in_turn(["mood", "late"], tmp_path / "runs", **about)
    assert "(mood/train, mood/validation)" in first["notes"][0] and "of that name (start)" in second["notes"][0]


# ------------------------------------------------------------------------------------------------ further pre-training


def test_further_pre_training_takes_the_one_before_and_begins_anew(tmp_path):
    mood(tmp_path)
    about = {"backbone": "tiny", "tasks": ("mood",), "data": str(tmp_path), "steps": 6, "batch_size": 4}
    about |= {"max_length": 24, "precision": "float32", "progress": False, "checkpoint_every": 2}
    whole = pretrain(RunConfig(**about, folder=str(tmp_path / "whole")))
    settings = RunConfig(**about, folder=str(tmp_path / "mine"))
    pretrain(settings, on_step=lambda step: step != 5)
    flip(tmp_path / "mine.checkpoint" / "state.bin")
    seen = []
    record = pretrain(settings, on_step=seen.append)
    assert seen[0] == 5 and record["losses"] == whole["losses"]
    assert record["notes"][1] == "went on from mine.checkpoint.old"
    mood(tmp_path, yes="no", no="yes", rows=50)
    (tmp_path / "best").touch()  # somebody else's
    again = pretrain(settings, on_step=lambda step: step != 5)
    mood(tmp_path, yes="no", no="yes", rows=40)
    again = pretrain(settings)
    assert "the checkpoint was made from other inputs" in again["notes"][0] and again["losses"] != record["losses"]
    names = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(("mine", "best")))
    aside = ["mine.checkpoint.aside-1", "mine.checkpoint.old.aside-1"]
    assert names == ["best", "mine", "mine.aside-1", *aside]


def test_a_checkpoint_of_pre_training_of_the_first_version_is_read(tmp_path):
    about = {"backbone": "tiny", "tasks": ("cola",), "steps": 4, "batch_size": 4, "max_length": 24}
    about |= {"precision": "float32", "progress": False}
    whole = pretrain(RunConfig(**about, folder=str(tmp_path / "whole")))
    settings = RunConfig(**about, folder=str(tmp_path / "mine"))
    pretrain(settings, on_step=lambda step: step != 2)
    place = tmp_path / "mine.checkpoint"
    state = torch.load(place / "state.bin", weights_only=True)
    shutil.rmtree(place)
    torch.save({k: v for k, v in state.items() if k not in ("sealed", "notes")}, place)
    seen = []
    assert pretrain(settings, on_step=seen.append)["losses"] == whole["losses"] and seen == [3, 4]
    assert not place.exists()
