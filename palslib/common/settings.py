"""Classes of settings: fields declared with type and bounds, checked by pydantic; the text under a field is its help.

    @settings
    class Plan:
        steps: Annotated[int, Field(ge=1)] = 60

A wrong value raises ValueError with one line. Checks are strict: a bool is no integer; a string, NaN or infinity is no
number.
"""

import functools
import os
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, dataclass_transform

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from palslib.common.names import plain, shown, unknown

Number = int | float
"""An int or a float, kept as given: a config with 0 has a different file and a different key from one with 0.0."""
Text = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""A name or a path: a non-empty string without control characters."""
Place = Annotated[str, *Text.__metadata__, AfterValidator(os.path.expanduser)]
"""A name or a path; `~` at its beginning is the home folder."""
Names = Annotated[tuple[str, ...], BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)]
"""A tuple of strings; a list is converted, as JSON has no tuples."""

_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


@dataclass_transform(frozen_default=True)
def settings(cls: type | None = None, *, part: str = "") -> Callable:
    """Makes a class a frozen dataclass whose values are checked; its `__post_init__` may check more. `part` is what its
    fields belong to, for errors: `recipe: clip must ...`; `task {name!r}`, with a field in braces, gives
    `task 'rte': scale must ...`."""
    if cls is None:
        return functools.partial(settings, part=part)
    cls = dataclass(frozen=True, config=_CONFIG)(cls)
    check, names = cls.__init__, [field.name for field in fields(cls)]

    @functools.wraps(check)
    def __init__(self, *values, **named):
        try:
            check(self, *map(plain, values), **plain(named))
        except ValidationError as error:
            by_name = defaultdict(str, zip(names, values, strict=False)) | named
            raise _in_one_line(error.errors(include_url=False), names, part.format_map(by_name)) from None

    cls.__init__ = __init__
    return cls


def _in_one_line(errors: list[dict], names: list[str], part: str) -> Exception:
    """The first error that pydantic found in values of fields of these names, with all that it says of this field."""
    first, loc = errors[0], errors[0]["loc"][:1]
    if "error" in first.get("ctx", {}):  # raised by one of our own checks
        return first["ctx"]["error"]
    name = names[loc[0]] if isinstance(loc[0], int) else loc[0]  # a number: given by position
    if name not in names:
        return unknown(f"field of {part}" if part else "parameter", name, names)
    label = f"{part}: {name}" if part else name
    wanted = [one["msg"].partition(" should ")[2] for one in errors if one["loc"][:1] == loc]  # several for a union
    wanted = [words.replace("a valid tuple", "a list of texts") for words in wanted]
    if not all(wanted):
        return ValueError(f"{label}: {first['msg']}")
    choices = re.findall("'(.*?)'", " ".join(wanted))
    if choices and isinstance(first["input"], str):
        others = [words.removeprefix("be ") for words in wanted if "'" not in words]
        return unknown(f"value of {label}", first["input"], choices + others)
    return ValueError(f"{label} must {' or '.join(wanted)}, not {shown(first['input'])}")
