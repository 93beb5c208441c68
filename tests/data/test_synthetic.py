"""The miniature GLUE leaks nothing from train to dev. (Its rows and sizes are compared in `test_oracle.py`.)"""

import pytest

from palslib.data.synthetic import synthetic_split
from palslib.data.tasks import TASKS


@pytest.mark.parametrize("task", TASKS)
def test_no_row_twice_and_no_text_in_both_train_and_dev(task):
    """Nor in a dev split of another seed."""
    dev = TASKS[task].evaluation
    splits = [synthetic_split(task, "train"), *(synthetic_split(task, name) for name in dev)]
    train, *devs = (split.drop(columns=["label", "idx"]) for split in [*splits, synthetic_split(task, dev[0], seed=7)])
    assert not any(frame.duplicated().any() for frame in (train, *devs))
    for frame in devs:
        assert set(train.to_numpy().ravel()).isdisjoint(frame.to_numpy().ravel())
