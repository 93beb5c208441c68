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
    ("values", "named"),
    [
        ({}, "'turns' is missing"),
        ({"turns": 1, "trns": 2}, "'trns'.* turns, colour, force, names"),
        ({"turns": 10}, "'turns' .* at least 1 .* at most 9, not 10"),
        ({"turns": True}, "'turns' .* integer .* not True"),
        ({"turns": 1, "colour": "gre"}, "'colour' 'gre'.* red, green"),
        ({"turns": 1, "colour": ["red"]}, r"'colour' .* \['red'\]"),
        ({"turns": 1, "force": 2}, "'force' .* 'full'.* above 0 .* below 2.* None, not 2"),
        ({"turns": 1, "names": {"a"}}, "'names' .* {'a'}"),
        ({"turns": 1, "names": ["a", 2]}, r"'names' .* \['a', 2\]"),
        ({"turns": 3}, "three is too many"),
    ],
)
def test_refused(values, named):
    """In one line that names the part, what is given, and what is valid."""
    with pytest.raises(ValueError, match=f"^(.*knob )?{named}$") as caught:
        Knobs(**values)
    assert not isinstance(caught.value, ValidationError)


def test_by_position_and_in_a_changed_copy():
    assert Knobs(2, "green") == Knobs(turns=2, colour="green")
    knobs = replace(Knobs(1), force=1, names=["a"])
    assert asdict(knobs) == {"turns": 1, "colour": "red", "force": 1, "names": ("a",)} and type(knobs.force) is int
    for wrong, act in {"turns": lambda: Knobs("x"), "force": lambda: replace(knobs, force="ful")}.items():
        with pytest.raises(ValueError, match=f"knob '{wrong}'"):
            act()
