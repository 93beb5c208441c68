"""Folders that know themselves: a checksum of every file, proven before one is used."""

import json
import zlib
from pathlib import Path

from palslib.common.reading import read_object

MANIFEST = "manifest.json"


class Damaged(ValueError):
    """A folder does not hold what was written into it; the message names the file."""


def _checksum(path: Path) -> str:
    """CRC-32: changes with every burst of up to 32 bits, at the speed of reading."""
    value = 0
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            value = zlib.crc32(part, value)
    return f"{value:08x}"


def _own_checksum(about: dict) -> str:
    return f"{zlib.crc32(json.dumps(about, sort_keys=True).encode()):08x}"


def seal(folder: Path, **about) -> None:
    """Writes `manifest.json`: the checksum of every file of a folder, and what else is to be known of it."""
    about["files"] = {path.name: _checksum(path) for path in sorted(folder.iterdir())}
    text = json.dumps(about | {"checksum": _own_checksum(about)}, indent=1)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def prove(folder: Path) -> dict:
    """What `seal` was told of a folder, each file of which is as it was then. Raises Damaged naming the first that is
    not, OSError where one cannot be read."""
    try:
        about = read_object(folder / MANIFEST)
        own = about.pop("checksum", None)
    except ValueError as error:
        raise Damaged(f"{MANIFEST} is damaged") from error
    if own != _own_checksum(about):
        raise Damaged(f"{MANIFEST} is damaged: its checksum is {_own_checksum(about)}, not {own}")
    for name, expected in about["files"].items():
        path = folder / name
        if not path.is_file():
            raise Damaged(f"{name} is missing")
        if (found := _checksum(path)) != expected:
            raise Damaged(f"{name} is damaged: its checksum is {found}, not {expected}")
    return about
