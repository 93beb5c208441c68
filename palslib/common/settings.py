"""Classes of settings: fields declared with type and bounds, checked by pydantic, with our own error messages.

    @settings
    class Plan:
        steps: Annotated[int, Field(ge=1)] = 60

`Plan(steps=0)` raises ValueError("steps must be an integer of at least 1, not 0"), `Plan(step=3)` "unknown parameter
'step': did you mean 'steps'? ...". Checks are strict: a bool is no integer; a string, NaN or infinity is no number.
"""

import functools
import os
import types
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal, Union, dataclass_transform, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from palslib.common.names import shown, unknown

Number = int | float
"""An int or a float, kept as given: a config with 0 has a different file and a different key from one with 0.0."""
Text = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""A name or a path: a non-empty string without control characters."""
Place = Annotated[str, *Text.__metadata__, AfterValidator(os.path.expanduser)]
"""A name or a path; `~` at its beginning is the home folder."""
Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]
"""A tuple of strings; a list is converted, as JSON has no tuples."""

_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "a string", dict: "a dict", list: "a list"}
_WORDS |= {tuple: "a list of strings", Path: "a path", types.NoneType: "None"}
_BOUNDS = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}


@dataclass_transform(frozen_default=True)
def settings(cls: type | None = None, *, part: str = "") -> Callable:
    """Makes a class a frozen dataclass whose values are checked; its `__post_init__` may check more.

    Its constructor raises ValueError with one line: the field, the value given, the valid values, the nearest match.
    `part` is the word for a field in that line: `recipe field 'clip' must be ...`; or, with braces and a final
    colon, what the field belongs to: `task {name!r}:` gives `task 'rte': scale must be ...`.
    """
    if cls is None:
        return functools.partial(settings, part=part)
    cls = dataclass(frozen=True, config=_CONFIG)(cls)
    check = cls.__init__

    @functools.wraps(check)
    def __init__(self, *values, **named):
        try:
            check(self, *values, **named)
        except ValidationError as error:
            given = dict(zip((field.name for field in fields(cls)), values, strict=False)) | named
            raise _in_our_words(error.errors(include_url=False)[0], cls, part, given) from None

    cls.__init__ = __init__
    return cls


def _in_our_words(error: Mapping, cls: type, part: str, given: Mapping) -> Exception:
    """The exception, with our own message, for an error that pydantic found."""
    if "error" in error.get("ctx", {}):  # raised by one of our own checks
        return error["ctx"]["error"]
    names, part = [field.name for field in fields(cls)], part.format_map(defaultdict(str, given))
    place = error["loc"][0]  # a name, or a number where values were given by position
    name = names[place] if place in range(len(names)) else place
    if name not in names:
        return unknown(f"field of {part[:-1]}" if part.endswith(":") else part or "parameter", name, names)
    label = f"{part} {name}" if part.endswith(":") else f"{part} {name!r}" if part else name
    if name not in given:
        return ValueError(f"{label} is missing")
    value, (choices, others) = given[name], _valid(get_type_hints(cls, include_extras=True)[name])
    if choices and isinstance(value, str):
        return unknown(f"value of {label}", value, [*choices, *others])
    *first, last = [*map(repr, choices), *others]
    return ValueError(f"{label} must be {', '.join(first)}{' or ' * bool(first)}{last}, not {shown(value)}")


def _valid(kind, bounds: str = "") -> tuple[list[str], list[str]]:
    """The values that a type allows: its Literals, and descriptions of all others."""
    origin = get_origin(kind)
    if origin is Annotated:
        kind, *about = get_args(kind)
        found = [one for info in about for one in getattr(info, "metadata", ())]
        limits = [f"{word} {getattr(one, b):,}" for one in found for b, word in _BOUNDS.items() if hasattr(one, b)]
        limits += ["that is not empty and has no control character"] * any(hasattr(one, "pattern") for one in found)
        return _valid(kind, " " + " and ".join(limits) if limits else "")
    if origin is Literal:
        return list(get_args(kind)), []
    if origin in (Union, types.UnionType) and kind != Number:
        each = [_valid(one) for one in get_args(kind)]
        return [one for choices, _ in each for one in choices], [one for _, others in each for one in others]
    return [], [_WORDS[float if kind == Number else origin or kind] + bounds]
