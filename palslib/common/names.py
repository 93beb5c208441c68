"""Checks of names, and values as error messages show them."""

import difflib
from collections.abc import Iterable


def unknown(kind: str, name: object, valid: Iterable[str]) -> ValueError:
    """The error for an unknown name; it suggests the nearest match and lists the valid names.

    >>> print(unknown("task", "rtee", ["cola", "rte"]))
    unknown task 'rtee': did you mean 'rte'? Valid: cola, rte
    """
    valid = list(valid)
    near = difflib.get_close_matches(str(name), valid, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return ValueError(f"unknown {kind} {name!r}: {hint}Valid: {', '.join(valid)}")


def check_name(kind: str, name: str, valid: Iterable[str]) -> str:
    """Returns `name` if it is one of `valid`; raises `unknown` otherwise."""
    valid = list(valid)
    if name not in valid:
        raise unknown(kind, name, valid)
    return name


def shown(value: object, most: int = 200) -> str:
    """The `repr` of a value for a message; a long one is cut after `most` characters."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"
