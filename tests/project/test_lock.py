"""The lock has the versions of `constraints.txt`, each with checksums, and says nothing of where they come from."""

import re

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from palslib.common.places import PROJECT


def pins(lines) -> set[tuple[str, str]]:
    found = [Requirement(line) for line in lines if line and line[0] != "#"]
    return {(canonicalize_name(one.name), str(one.specifier)) for one in found}


def test_the_lock_pins_what_the_constraints_pin_and_every_pin_has_checksums():
    lock = (PROJECT / "requirements.lock").read_text()
    blocks = [block for block in re.split(r"\n(?=\S)", lock) if block[0] != "#"]
    for block in blocks:
        assert re.fullmatch(r"[a-z0-9-]+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n?", block), block.split(" ")[0]
    named = [block.split(" ")[0] for block in blocks]
    assert pins(named) == pins((PROJECT / "constraints.txt").read_text().splitlines()) and len(named) > 100
    assert "://" not in lock and "--index-url" not in lock
