"""Folders sealed by a manifest: a checksum of every file, verified before the folder is used."""

import json
import zlib
from pathlib import Path

from palslib.common.reading import read_object

MANIFEST = "manifest.json"


class Damaged(ValueError):
    """A folder does not hold what was written into it; the message names the file."""


def _checksum(path: Path) -> str:
    """The CRC-32 of a file: it detects every burst of up to 32 wrong bits, and is as fast as reading."""
    value = 0
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            value = zlib.crc32(part, value)
    return f"{value:08x}"


def _own_checksum(about: dict) -> str:
    return f"{zlib.crc32(json.dumps(about, sort_keys=True).encode()):08x}"


def seal(folder: Path, **about) -> None:
    """Writes `manifest.json`: the checksum of every file of a folder, and further facts `about` the folder."""
    about["files"] = {path.name: _checksum(path) for path in sorted(folder.iterdir())}
    text = json.dumps(about | {"checksum": _own_checksum(about)}, indent=1)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def prove(folder: Path) -> dict:
    """The manifest of a folder (`files`, and the facts given to `seal`), after every file is verified. Raises Damaged,
    naming the first file that is missing or differs; OSError where one cannot be read."""
    try:
        about = read_object(folder / MANIFEST)
        own = about.pop("checksum", None)
    except FileNotFoundError as error:
        raise Damaged(f"{MANIFEST} is missing") from error
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
