"""The miniature GLUE has the shape of GLUE. (Its rows are compared in `test_oracle.py`.)"""

import pytest

from palslib.data.glue import RELEASED_SIZES, TRAIN_SIZES
from palslib.data.synthetic import SYNTHETIC_DEV_SIZE, SYNTHETIC_TRAIN_SIZES, synthetic_split
from palslib.data.tasks import TASKS

SPLITS = [
    (task, split) for task in TASKS for split in ("train", "validation") if (task, split) != ("mnli", "validation")
]
SPLITS += [("mnli", "validation_matched"), ("mnli", "validation_mismatched")]


@pytest.fixture(scope="module")
def frames():
    return {(task, split): synthetic_split(task, split) for task, split in SPLITS}


def texts(frame):
    return frame.drop(columns=["label", "idx"])


def test_sizes_keep_the_ratios_of_glue(frames):
    """GLUE's own: 8,551 + 67,349 + 3,668 + 5,749 + 363,846 + 392,702 + 104,743 + 2,490 = 949,098."""
    assert list(TRAIN_SIZES) == list(RELEASED_SIZES) == list(TASKS)
    assert sum(TRAIN_SIZES.values()) == 949_098
    assert SYNTHETIC_TRAIN_SIZES == {
        "cola": 220, "sst2": 1731, "mrpc": 94, "stsb": 148, "qqp": 9352, "mnli": 10094, "qnli": 2692, "rte": 64,
        "sst5": 220, "quora": 3637, "sts": 155,
    }  # fmt: skip
    assert round(SYNTHETIC_TRAIN_SIZES["mnli"] / SYNTHETIC_TRAIN_SIZES["rte"], 1) == 157.7 == round(392702 / 2490, 1)
    for (task, split), frame in frames.items():
        assert len(frame) == (SYNTHETIC_TRAIN_SIZES[task] if split == "train" else SYNTHETIC_DEV_SIZE)


@pytest.mark.parametrize("task", TASKS)
def test_no_row_twice_and_no_text_in_both_train_and_dev(frames, task):
    mine = {split: texts(frame) for (name, split), frame in frames.items() if name == task}
    assert not any(frame.duplicated().any() for frame in mine.values())
    train = set(mine.pop("train").to_numpy().ravel())
    for dev in (*mine.values(), texts(synthetic_split(task, next(iter(mine)), seed=7))):
        assert train.isdisjoint(dev.to_numpy().ravel())
