"""Train, keep, predict: a run gives back the model that it trained."""

import shutil
from dataclasses import replace

import pytest
import torch
from small_runs import save_tiny, small, weights

from palslib import train
from palslib.data.tokens import tokenise_task
from palslib.methods.lora import LoRA
from palslib.plan.config import RunConfig


def test_training_goes_on_and_a_new_task_learns_on_a_frozen_bert(tmp_path, capsys):
    """Method, size and backbone are those of the folder."""
    train(small(tmp_path / "first", steps=3, keep="last", method="low-rank-100"))
    start, before = str(tmp_path / "first" / "last"), weights(tmp_path / "first")
    card = (tmp_path / "first" / "last" / "README.md").read_text()
    assert "a run of 3 steps" in card and "texts are generated" in card and "* rte: accuracy " in card
    options = {"tasks": ("stsb",), "evaluate_every": 1, "learning_rate": 1e-3, "recipe_options": {"ties": "second"}}
    best = train(small(tmp_path / "best", steps=4, keep="best", **options))
    assert best.model("best").tasks["stsb"].ties == "second"
    card = (tmp_path / "best" / "best" / "README.md").read_text()
    assert f"* stsb: pearson {best['results']['best']['scores']['stsb']['pearson']:.1f}," in card
    about = {"steps": 2, "keep": "last", "batch_size": 4, "precision": "float32", "progress": False}
    train(RunConfig(start=start, tasks=("rte",), seed=1, max_length=16, folder=str(tmp_path / "on"), **about))
    assert "rte had max_length=32 before, now 16" in capsys.readouterr().err
    after = weights(tmp_path / "on")
    assert before.keys() == after.keys() and not torch.equal(before["heads.rte.weight"], after["heads.rte.weight"])
    frozen = {"method_options": {"freeze": "backbone"}, "folder": str(tmp_path / "new")}
    record = train(RunConfig(start=start, tasks=("cola",), **frozen, **about))
    after = weights(tmp_path / "new")
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert {name.split(".")[1] for name in after.keys() - before.keys()} == {"cola"}
    assert record["method"]["freeze"] == "backbone" and record["method"]["size"] == 12


def test_a_model_goes_on_without_the_folder_of_its_backbone(tmp_path):
    """It was trained on a backbone in a folder, and was moved, or that folder was removed."""
    save_tiny(tmp_path / "mine")
    lora = {"method": LoRA("mine", size=4, freeze="nothing"), "size": None}
    first = small(tmp_path / "first", steps=2, keep="last", backbone=str(tmp_path / "mine"), **lora)
    train(first)
    shutil.rmtree(tmp_path / "mine")
    about = {"steps": 1, "batch_size": 4, "max_length": 32, "precision": "float32", "progress": False}
    about["method_options"] = {"freeze": "backbone"}
    further = RunConfig(start=f"{first.folder}/last", tasks=("cola",), folder=str(tmp_path / "on"), **about)
    record = train(further)
    assert record["method"]["freeze"] == "backbone"
    assert list(record.model().tasks) == ["rte", "cola"] and train(further) == record


def test_the_model_of_a_run_that_keeps_nothing_is_there_as_long_as_its_process(tmp_path):
    config = small(tmp_path / "run", tasks=("rte", "stsb"), steps=3, learning_rate=1e-2)
    with pytest.raises(ZeroDivisionError):  # before that a run had ended here, when it had kept its best weights
        train(replace(config, keep="best", evaluate_every=1), on_step=lambda run: 1 / (2 - run.step))
    assert (tmp_path / "run" / "best" / "palslib.json").is_file()
    texts = [("A dog runs.", "An animal moves."), ("It rains.", "The sun shines.")]
    record = train(config)
    assert len(record.model().predict(texts, "rte")) == 2 and not record.model().training
    model = record.model()
    batch = tokenise_task("rte", model.tokenizer, max_length=32).batch(range(4))
    model("rte", **batch).loss.backward()
    torch.optim.AdamW(model.parameters()).step()  # which refuses sparse gradients, as a run's own has them
    with pytest.raises(ValueError, match="has no weights 'best': train with keep='best'"):
        record.model("best")
    with pytest.raises(ValueError, match="has no weights 'last': train with keep='last' into another folder"):
        train(config).model()
    with pytest.raises(ValueError, match="unknown weights 'bst': did you mean 'best'"):
        record.model("bst")
