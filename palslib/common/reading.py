"""Strict reading of JSON files, with errors that name the file."""

import json
import math
from pathlib import Path

from palslib.common.places import place


def read_json(path: str | Path, what: str = "JSON") -> object:
    """The value that a JSON file holds.

    Raises ValueError, naming the file, if it is not UTF-8 or not JSON (NaN and infinity are not JSON), is nested more
    than `_DEPTH` levels deep, or has an object with a repeated key, or if it is a pipe or a device, which is not waited
    for; OSError if it cannot be read.
    """
    path = place(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path}: not {what} but a pipe or a device")
    try:
        hooks = {"parse_constant": _number, "parse_float": _number, "parse_int": _whole}
        values = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=without_repeats, **hooks)
        too_deep = _depth(values) > _DEPTH
    except ValueError as error:
        raise ValueError(f"{path}: not {what}: {error}") from error
    except RecursionError:
        too_deep = True
    if too_deep:
        raise ValueError(f"{path}: not {what} that palslib reads: nested more than {_DEPTH} levels deep")
    return values


_DEPTH = 64
"""The most levels of nesting allowed; of our files, a record has 7."""


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _whole(text: str) -> int:
    _number(text)  # a 1 with 400 zeros counts as infinite, like 1e400
    return int(text)


def without_repeats(pairs: list[tuple[str, object]]) -> dict:
    """These pairs of key and value as a dict. Raises ValueError where a key comes twice."""
    values = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"the key {name!r} occurs twice")
        values[name] = value
    return values


def read_object(path: str | Path, parts: str = "parameters") -> dict:
    """The object of `parts` in a JSON file. Raises `read_json`'s errors, and ValueError if the value is no object."""
    if not isinstance(values := read_json(path), dict):
        raise ValueError(f"{path}: must be a JSON object with {parts}, not a {type(values).__name__}")
    return values
