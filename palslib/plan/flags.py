"""Flags of a command line, one for each field of a class of settings (`common/settings.py`).

The parser looks only at the form of words; the class checks whether a value is allowed, with its own messages.
"""

import ast
import itertools
import json
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, BooleanOptionalAction, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from inspect import getsource
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from palslib.common.names import unknown
from palslib.common.places import place
from palslib.common.reading import without_repeats
from palslib.common.settings import Names

Positional = Annotated[Path, "positional"]
"""The type of a path that is given without a flag."""
Positionals = Annotated[Names, "positional"]
"""The type of one path or several that are given without a flag."""
_METAVARS = {float: "NUMBER", int: "INTEGER", str: "TEXT", Path: "PATH", NoneType: "None"}


class FlagParser(ArgumentParser):
    """A parser with a flag for each field of `kind`. `values` reads words, `format_help` shows every field with the
    text under it and its default.

    Args:
        groups: first field of a group of flags -> the group's title in the help.
        defaults: values that the help shows in place of the fields' defaults.
    """

    def __init__(self, kind: type, groups: Mapping[str, str] = {}, defaults: Mapping = {}, **options):
        options |= {"add_help": False, "allow_abbrev": False, "argument_default": SUPPRESS}
        super().__init__(formatter_class=RawDescriptionHelpFormatter, **options)
        self.types, docs = get_type_hints(kind, include_extras=True), _docs(kind)
        group = self.add_argument_group("settings")
        for one in fields(kind):
            group = self.add_argument_group(groups[one.name]) if one.name in groups else group
            default = one.default if one.default_factory is MISSING else one.default_factory()
            default = defaults.get(one.name, default)
            said = "" if default is MISSING else f" (default: {_shown(default)})"
            about = _form(self.types[one.name]) | {"help": f"{docs[one.name]}{said}".replace("%", "%%")}
            if "positional" in getattr(self.types[one.name], "__metadata__", ()):
                several = {"nargs": "+"} if "nargs" in about else {}
                group.add_argument(one.name, **about | {"metavar": one.name.upper()} | several)
            else:
                group.add_argument(_flag(one.name), **about)

    def values(self, words: Sequence[str]) -> dict:
        """Field -> value, for the fields that the words give. Raises ValueError for a flag that does not exist."""
        given, left = self.parse_known_args(words)
        if wrong := next((word for word in left if word.startswith("-")), None):
            raise unknown("flag", wrong.partition("=")[0], map(_flag, self.types))
        if left:
            raise ValueError(f"unexpected argument {left[0]!r}")
        dicts = {name for name in vars(given) if dict in _members(self.types[name])}
        return {name: without_repeats(value) if name in dicts else value for name, value in vars(given).items()}

    def error(self, message: str) -> NoReturn:
        """Raises ValueError where argparse would end the process."""
        raise ValueError(message.removeprefix("argument "))


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _docs(kind: type) -> dict[str, str]:
    """The text under each field of a class and of those that it extends."""
    bodies = (ast.parse(getsource(one)).body[0].body for one in kind.__mro__[:-1])
    pairs = itertools.chain.from_iterable(map(itertools.pairwise, bodies))
    return {a.target.id: b.value.value for a, b in pairs if isinstance(a, ast.AnnAssign) and isinstance(b, ast.Expr)}


def _form(kind: object) -> dict:
    """The options of `add_argument` for words of this type."""
    kinds = _members(kind)
    if bool in kinds:
        return {"action": BooleanOptionalAction}
    if dict in kinds:
        return {"nargs": "*", "action": "extend", "type": _pair, "metavar": "NAME=VALUE"}
    if tuple in kinds:
        return {"nargs": "*", "action": "extend", "metavar": "NAME"}
    names = [name for one in kinds if get_origin(one) is Literal for name in get_args(one)]
    wanted = [f"{{{','.join(names)}}}"] if names else []
    wanted += [word for one, word in _METAVARS.items() if one in kinds and not (one is int and float in kinds)]
    read = _value if {int, float} & set(kinds) else place if Path in kinds else str
    none = NoneType in kinds
    return {"type": lambda word: None if none and word == "None" else read(word), "metavar": "|".join(wanted)}


def _members(kind: object) -> list:
    """The types that form a union, without their bounds; for `tuple[str, ...]` it is `tuple`."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [member for one in get_args(kind) for member in _members(one)]
    return [tuple] if get_origin(kind) is tuple else [kind]


def _value(word: str) -> object:
    """The value of a word: JSON such as `100`, `1e-4`, `true` or `["a"]`, or `None`; everything else is a string."""
    try:
        return None if word == "None" else json.loads(word)
    except (ValueError, RecursionError):  # not JSON, or a number too long, or brackets too deep
        return word


def _pair(word: str) -> tuple[str, object]:
    name, equals, value = word.partition("=")
    if not (name and equals):
        raise ArgumentTypeError(f"{word!r} is not of the form NAME=VALUE")
    return name, _value(value)


def _shown(value: object) -> str:
    """A default as words that could be typed."""
    if isinstance(value, dict):
        return " ".join(f"{name}={_shown(one)}" for name, one in value.items()) or "none"
    if isinstance(value, tuple):
        return " ".join(value)
    return json.dumps(value) if isinstance(value, bool) else str(value)
