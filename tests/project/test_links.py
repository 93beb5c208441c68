"""No link is dead in notebooks and what they show, in README and the other pages; no path is named that is gone."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
import pytest

from palslib.common.places import PROJECT

PAGES = [
    *(PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(PROJECT.glob("figures/records/*.md")),
    *sorted(PROJECT.glob(".book/*.md")),
    *sorted(PROJECT.glob("notebooks/*.ipynb")),
]


@cache
def texts(path: Path) -> list[str]:
    """What a reader sees of a page, code apart: Markdown, and what cells put out as Markdown or HTML."""
    if path.suffix == ".md":
        return [path.read_text(encoding="utf-8")]
    cells = nbformat.read(path, as_version=4).cells
    shown = [c.source for c in cells if c.cell_type == "markdown"]
    for output in (output for cell in cells for output in cell.get("outputs", ())):
        shown += [output.data[kind] for kind in ("text/markdown", "text/html") if kind in output.get("data", {})]
    return shown


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_no_link_is_dead(page):
    """Places within a page are looked up in the built book (`test_book.py`)."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", "\n".join(texts(page)), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"""(?:href|src)=["']([^"']+)["']""", text)
    parts = [urlsplit(link) for link in links]
    assert [part.path for part in parts if not part.scheme and not (page.parent / part.path).exists()] == []


@pytest.mark.parametrize("page", [path for path in PAGES if path.name != "CHANGELOG.md"], ids=lambda path: path.name)
def test_every_path_that_is_named_exists(page):
    """As `palslib/bert/layer.py`."""
    named = re.findall(r"`((?:notebooks|palslib|tests|figures|\.book)/[\w./-]*)`", "\n".join(texts(page)))
    assert [path for path in named if not (PROJECT / path).exists()] == []
