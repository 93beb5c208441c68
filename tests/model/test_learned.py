"""The tasks that are shipped have learned what their record says, and fit the backbone that everybody has."""

import pytest
import torch
from safetensors import safe_open

from palslib.common.places import RECORDS
from palslib.data.tasks import TASKS
from palslib.data.tokens import tokenise_task
from palslib.model.learned import _FOLDER, load_trained
from palslib.records import read_records
from palslib.training.loop import evaluate

FILES = sorted(_FOLDER.glob("*.safetensors"))
NAMES = [path.stem for path in FILES]


def test_a_small_file_for_each_task_in_half_precision():
    assert NAMES == ["mnli", "qnli", "qqp", "sst2"]
    assert sum(path.stat().st_size for path in FILES) < 3e6
    for path in FILES:
        with safe_open(path, "pt") as file:
            assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118


def test_predictions_differ_by_text_and_by_task():
    model = load_trained("sst2", "mnli")
    assert list(model.tasks) == ["sst2", "mnli"] and not model.training and list(load_trained().tasks) == NAMES
    good, bad = model.predict(["A joy from start to finish.", "A dull and clumsy film."], "sst2")["label"]
    assert (good, bad) == ("positive", "negative")
    pairs = [
        ("A dog is chasing a ball.", "No animal is outdoors."),
        ("Two women are talking.", "Some people are talking."),
    ]
    assert list(model.predict(pairs, "mnli")["label"]) == ["contradiction", "entailment"]
    with pytest.raises(ValueError, match="'sst5': did you mean 'sst2'"):
        load_trained("sst5")


@pytest.mark.real_data
@pytest.mark.parametrize("name", ["sst2", pytest.param("qnli", marks=pytest.mark.slow)])
def test_scores_are_those_of_the_record(name):
    """Half precision costs less than half a point."""
    (record,) = read_records(RECORDS / "trained")
    model = load_trained(name)
    task = TASKS[name]
    rows = {split: tokenise_task(task, model.tokenizer, "glue", split) for split in task.evaluation}
    scores = evaluate(model, {name: rows})[name]
    written = record["results"]["last"]["scores"][name]
    assert scores[task.metrics[0]] == pytest.approx(written[task.metrics[0]], abs=0.5)
