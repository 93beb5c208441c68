"""Checks of names, and values as error messages show them, or in Python's own types."""

import difflib
import os
from collections.abc import Iterable

MEANT = {"lr": "learning_rate", "epochs": "passes", "num_epochs": "passes", "max_steps": "steps", "labels": "own"}
MEANT |= {"text": "own", "label": "own"}
MEANT |= {"model": "backbone", "dropout": "head_dropout", "output": "folder", "output_dir": "folder"}
"""Other programs' names of settings -> ours."""


def unknown(kind: str, name: object, valid: Iterable[str]) -> ValueError:
    """The error for an unknown name; it suggests what is meant, or the nearest match, and lists the valid names.

    >>> print(unknown("task", "rtee", ["cola", "rte"]))
    unknown task 'rtee': did you mean 'rte'? Valid: cola, rte
    """
    valid = list(valid)
    meant = MEANT.get(str(name)[:100].lstrip("-").replace("-", "_"))
    near = [one for one in valid if one.lstrip("-").replace("-", "_") == meant]
    near += difflib.get_close_matches(str(name)[:100], valid, n=1)
    hint = f": did you mean {near[0]!r}?" if near else "."
    return ValueError(f"unknown {kind} {shown(name)}{hint} Valid: {listed(valid, 200)}")


def check_name(kind: str, name: str, valid: Iterable[str]) -> str:
    """Returns `name` if it is one of `valid`; raises `unknown` otherwise."""
    valid = list(valid)
    if name not in valid:
        raise unknown(kind, name, valid)
    return name


def check_type(name: str, value: object, kind: type | tuple[type, ...], words: str):
    """Returns `value` if it is of type `kind`; otherwise raises ValueError, which says in `words` what it must be."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {words}, not {shown(value)}")
    return value


def check_least(least: int, **numbers: float | None) -> None:
    """Raises ValueError, naming it, for a number below `least`; None is no number."""
    for name, number in numbers.items():
        if number is not None and number < least:
            raise ValueError(f"{name} must be at least {least}, not {number}")


def in_words(error: Exception) -> str:
    """An error's text with its notes, and with its type where users do not expect it."""
    usual = isinstance(error, (ValueError, ImportError, FloatingPointError, OSError))
    text = str(error) if usual else f"{type(error).__name__}: {error}"
    return "; ".join([text, *getattr(error, "__notes__", ())])


def listed(names: Iterable, most: int = 20) -> str:
    """The first `most` names for a message, and how many more there are; a long name is cut."""
    names = [str(name) for name in names]
    cut = [name if len(name) <= 100 else f"{name[:100]}..." for name in names[:most]]
    return ", ".join(cut) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def shown(value: object, most: int = 200) -> str:
    """The `repr` of a value for a message, cut after `most` characters."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."


def plain(value: object) -> object:
    """The value in Python's own types, which JSON has too: a path as a string, what is numpy's as numbers and lists."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if type(value).__module__ == "numpy":
        return value.tolist()
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value
