"""Settings: what is wrong is one line in our words, whatever pydantic finds first."""

from dataclasses import asdict, replace
from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError

from palslib.common.settings import Names, Number, settings


@settings(part="knob")
class Knobs:
    """For these tests."""

    turns: Annotated[int, Field(ge=1, le=9)]
    """One that must be given."""
    colour: Literal["red", "green"] = "red"
    """One of two."""
    force: Annotated[Number, Field(gt=0, lt=2)] | Literal["full"] | None = None
    """A number, a name or nothing."""
    names: Names = ()
    """Any."""

    def __post_init__(self):
        if self.turns == 3:
            raise ValueError("three is too many")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "knob 'turns' is missing"),
        ({"turns": 1, "trns": 2}, "unknown knob 'trns': did you mean 'turns'? Valid: turns, colour, force, names"),
        ({"turns": 10}, "knob 'turns' must be an integer of at least 1 and of at most 9, not 10"),
        ({"turns": True}, "knob 'turns' must be an integer of at least 1 and of at most 9, not True"),
        (
            {"turns": 1, "colour": "gre"},
            "unknown value of knob 'colour' 'gre': did you mean 'green'? Valid: red, green",
        ),
        ({"turns": 1, "colour": ["red"]}, "knob 'colour' must be 'red' or 'green', not ['red']"),
        ({"turns": 1, "force": 2}, "knob 'force' must be 'full', a number above 0 and below 2 or None, not 2"),
        ({"turns": 1, "names": {"a"}}, "knob 'names' must be a list of strings, not {'a'}"),
        ({"turns": 1, "names": ["a", 2]}, "knob 'names' must be a list of strings, not ['a', 2]"),
        ({"turns": 3}, "three is too many"),
    ],
)
def test_refused(values, message):
    with pytest.raises(ValueError) as caught:
        Knobs(**values)
    assert str(caught.value) == message and not isinstance(caught.value, ValidationError)


def test_by_position():
    assert Knobs(2, "green") == Knobs(turns=2, colour="green")
    with pytest.raises(ValueError, match="knob 'turns' must be an integer of at least 1 and of at most 9, not 'x'"):
        Knobs("x")


def test_a_changed_copy_is_checked_too():
    knobs = replace(Knobs(1), force=1, names=["a"])
    assert asdict(knobs) == {"turns": 1, "colour": "red", "force": 1, "names": ("a",)} and type(knobs.force) is int
    with pytest.raises(ValueError, match="unknown value of knob 'force' 'ful': did you mean 'full'"):
        replace(knobs, force="ful")
