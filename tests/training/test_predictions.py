"""What a run keeps beside its record, and the rows on which settings are tuned."""

import numpy as np
import pytest
from training.small_runs import small

from palslib import load_rows, train
from palslib.data.metrics import METRICS
from palslib.data.parts import HELD_OUT, HELD_OUT_GROUPS, KEPT, KEPT_GROUPS
from palslib.data.tasks import get_task
from palslib.records import read_predictions
from palslib.training.loop import Run


def test_metrics_computed_from_kept_predictions_are_those_of_the_record(tmp_path):
    record = train(small(tmp_path / "run", tasks=("mrpc", "stsb", "mnli"), steps=6))
    kept = read_predictions(tmp_path / "run" / "record.json")
    scores = record["results"]["last"]["scores"]
    assert set(kept) == {f"{name}/{split}" for name in scores for split in get_task(name).evaluation}
    for name, split, metric, printed in (
        ("mrpc", "validation", "f1", "f1"),
        ("mnli", "validation_mismatched", "accuracy", "accuracy_mm"),
        ("stsb", "validation", "pearson", "pearson"),
    ):
        labels = load_rows(name, split=split)["label"].to_numpy()
        assert 100 * METRICS[metric](labels, kept[f"{name}/{split}"]) == pytest.approx(scores[name][printed], abs=1e-4)
    assert kept["mrpc/validation"].dtype == np.uint8  # a byte a row, before compression
    np.savez_compressed(tmp_path / "run" / "predictions.npz", **kept | {"mrpc/validation": labels})
    with pytest.raises(ValueError, match=r"predictions.npz is not the file"):
        read_predictions(tmp_path / "run" / "record.json")


@pytest.mark.parametrize(("name", "by"), [("qqp", "groups"), ("rte", "texts"), ("sst2", "groups")])
def test_a_tenth_of_the_training_rows_is_held_out_and_never_trained_on(tmp_path, name, by):
    kept_name, held_name = (KEPT_GROUPS, HELD_OUT_GROUPS) if by == "groups" else (KEPT, HELD_OUT)
    whole, kept, held = (load_rows(name, split=split) for split in ("train", kept_name, held_name))
    assert len(kept) + len(held) == len(whole) and 0 < len(held) < 0.3 * len(whole)
    columns = list(get_task(name).texts if by == "groups" else get_task(name).texts[:1])
    assert not {*kept[columns].to_numpy().ravel()} & {*held[columns].to_numpy().ravel()}
    run = Run(small(tmp_path, tasks=(name,), held_out=True, held_out_by=by), tmp_path)
    assert len(run.train_data[name]) == len(kept)
    assert {split: len(data) for split, data in run.dev_data[name].items()} == {held_name: len(held)}
    assert run.content.keys() == {f"{name}/{kept_name}", f"{name}/{held_name}"}
