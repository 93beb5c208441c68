"""Settings: what is wrong is one line that names the field and what is given."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pytest
from pydantic import Field

from palslib.common.settings import Names, Number, settings
from palslib.plan.config import RunConfig


@settings(part="knob")
class Knobs:
    turns: Annotated[int, Field(ge=1, le=9)]
    colour: Literal["red", "green"] = "red"
    force: Annotated[Number, Field(gt=0, lt=2)] | Literal["full"] | None = None
    names: Names = ()


WRONG = {"turns": ({}, {"turns": 10}, {"turns": True}), "trns": ({"turns": 1, "trns": 2},)}
WRONG |= {"did you mean 'green'": ({"turns": 1, "colour": "gren"},), "colour": ({"turns": 1, "colour": ["red"]},)}
WRONG |= {"force": ({"turns": 1, "force": 2}, {"turns": 1, "force": "ful"}, {"turns": 1, "force": float("nan")})}
WRONG |= {"names": ({"turns": 1, "names": {"a"}}, {"turns": 1, "names": ["a", 2]})}


@pytest.mark.parametrize(("word", "values"), [(word, values) for word, each in WRONG.items() for values in each])
def test_refused(word, values):
    with pytest.raises(ValueError, match=rf"^[^\n]*knob[^\n]*{word}[^\n]*$|^[^\n]*{word}[^\n]*knob[^\n]*$"):
        Knobs(**values)


def test_by_position_in_a_changed_copy_and_in_pythons_types():
    knobs = replace(Knobs(2, "green"), force=1, names=["a"])
    assert asdict(knobs) == {"turns": 2, "colour": "green", "force": 1, "names": ("a",)} and type(knobs.force) is int
    with pytest.raises(ValueError, match=r"knob 'turns'.* 'x'"):
        Knobs("x")
    config = RunConfig(seed=np.int64(3), data=Path("synthetic"), learning_rate=np.float64(1e-3), tasks=["rte"])
    assert config.key == RunConfig(seed=3, data="synthetic", learning_rate=1e-3, tasks=("rte",)).key
    assert type(config.seed) is int and config.data == "synthetic"
