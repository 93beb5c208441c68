"""Strict reading of JSON files, with errors that name the file, and a check before one is written."""

import json
import math
from pathlib import Path

from palslib.common.places import as_path


def read_json(path: str | Path, what: str = "JSON") -> object:
    """The value that a JSON file holds.

    Raises ValueError, naming the file, if it is not UTF-8 or not JSON (NaN and infinity are not), or if an object has
    a repeated key; OSError if it cannot be read.
    """
    path = as_path(path)
    try:
        text, numbers = path.read_text(encoding="utf-8-sig"), {"parse_constant": _number, "parse_float": _number}
        return json.loads(text, object_pairs_hook=without_repeats, **numbers)
    except ValueError as error:
        raise ValueError(f"{path}: not {what}: {error}") from error


def _number(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


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


def check_place(path: Path, field: str) -> None:
    """Raises ValueError where a record would replace something else: its file must end in `.json`, and if there is
    one already, it must be a record of the same kind, which has this field."""
    if path.suffix != ".json":
        raise ValueError(f"a record is a file that ends in .json, not {path}")
    if path.exists() and field not in read_object(path):
        raise ValueError(f"{path} already exists and is not a record of this kind: give another file")
