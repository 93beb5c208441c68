"""Files and folders that are known to be whole: SHA-256 checksums, written with them and verified before they are used.

A folder has its checksums in a file `manifest.json`. A single file carries its checksum in its metadata, computed with
64 zeros in that place (`SEAL`).
"""

import hashlib
import json
import mmap
from collections.abc import Iterable
from pathlib import Path

from palslib.common.reading import read_object

MANIFEST = "manifest.json"
_WORDS, _ZEROS = b"checksum of palslib: ", b"0" * 64
SEAL = (_WORDS + _ZEROS).decode()
"""A text that a file to be sealed contains, and in which `seal_file` replaces the zeros."""


class Damaged(ValueError):
    """A file or folder does not hold what was written into it; the message names the file."""


def checksum(path: str | Path) -> str:
    """The SHA-256 of a file, in 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum_inside(path: Path) -> tuple[int, bytes, bytes]:
    """Where the checksum in a file is (-1: nowhere), what it is, and what it should be."""
    if path.stat().st_size < len(SEAL):
        return -1, b"", b""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if (at := content.find(_WORDS)) < 0:
            return -1, b"", b""
        first = at + len(_WORDS)
        with memoryview(content) as view:
            digest = hashlib.sha256(view[:first])
            digest.update(_ZEROS)
            digest.update(view[first + len(_ZEROS) :])
        return first, content[first : first + len(_ZEROS)], digest.hexdigest().encode()


def seal_file(path: Path) -> None:
    """Writes the checksum into a file that contains `SEAL`."""
    place, _, right = _checksum_inside(path)
    with open(path, "r+b") as file:
        file.seek(place)
        file.write(right)


def has_seal(path: Path) -> bool:
    """Whether a file carries a checksum, right or wrong."""
    return _checksum_inside(path)[0] >= 0


def prove_file(path: Path) -> None:
    """Raises Damaged, naming the file, unless it is what `seal_file` left."""
    place, found, right = _checksum_inside(path)
    if place < 0 or found != right:
        why = "its content does not match its checksum" if place >= 0 else "its checksum is missing"
        raise Damaged(f"{path} is damaged: {why}")


def _own_checksum(about: dict) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def seal(folder: Path, names: Iterable[str] | None = None, **about) -> None:
    """Writes `manifest.json`: the checksums of files in a folder (None: of all), and facts `about` the folder."""
    names = [path.name for path in folder.iterdir()] if names is None else names
    about["files"] = {name: checksum(folder / name) for name in sorted(names)}
    text = json.dumps(about | {"checksum": _own_checksum(about)}, indent=1)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def sealed_files(folder: Path) -> dict[str, str]:
    """The checksums by name in a folder's manifest; none where it is missing or somebody else's."""
    about = read_object(folder / MANIFEST) if (folder / MANIFEST).is_file() else {}
    return about["files"] if "checksum" in about and isinstance(about.get("files"), dict) else {}


def prove(folder: Path) -> dict:
    """The manifest of a folder after every file is verified: `files`, the facts given to `seal`, and `checksum`, which
    no other content has. Raises Damaged, naming the first file that is missing or differs; OSError where one cannot be
    read."""
    try:
        about = read_object(folder / MANIFEST)
    except FileNotFoundError as error:
        raise Damaged(f"{MANIFEST} is missing") from error
    except ValueError as error:
        raise Damaged(f"{MANIFEST} is damaged") from error
    if about.pop("checksum", None) != (own := _own_checksum(about)) or not isinstance(about.get("files"), dict):
        raise Damaged(f"{MANIFEST} is damaged: its checksum is not {own}")
    for name, expected in about["files"].items():
        path = folder / name
        if not path.is_file():
            raise Damaged(f"{name} is missing")
        if (found := checksum(path)) != expected:
            raise Damaged(f"{name} is damaged: its checksum is {found}, not {expected}")
    return about | {"checksum": own}
