"""Settings: what is wrong is one line that names the field and what is given, also by position."""

from pathlib import Path

import numpy as np
import pytest

from palslib.data.tasks import Task
from palslib.plan.config import RunConfig


def test_wrong_values_are_named():
    for values, words in (
        ((), "name is missing"),
        (("mine", "sentence"), "task 'mine': texts must be a valid tuple, not 'sentence'"),
        (("mine", ("a",), ("x", "y"), ("acuracy",)), "metric of task 'mine' 'acuracy': did you mean 'accuracy'"),
    ):
        with pytest.raises(ValueError, match=f"^.*{words}.*$"):
            Task(*values)


def test_pythons_types():
    config = RunConfig(seed=np.int64(3), data=Path("synthetic"), learning_rate=np.float64(1e-3), tasks=["rte"])
    assert config.key == RunConfig(seed=3, data="synthetic", learning_rate=1e-3, tasks=("rte",)).key
    assert type(config.seed) is int and config.data == "synthetic"
