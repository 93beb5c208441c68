"""The book is built without a warning, holds every notebook, row and public name, and none of its links is dead."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from bs4 import BeautifulSoup

import palslib
from palslib import METHODS
from palslib.common.places import PROJECT
from palslib.study.ledger.paper import load_ledger

pytest.importorskip("sphinx", reason="Sphinx is not installed (pip install -e '.[book]')")
import book
import explorers


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The book, built anew, without a word: warnings are errors."""
    runs = tmp_path_factory.mktemp("runs")
    known = os.environ | {"PALSLIB_RUNS": str(runs), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, book.__file__], env=known, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    return runs / "book"


@pytest.fixture(scope="module")
def pages(folder) -> dict[Path, BeautifulSoup]:
    return {path: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser") for path in folder.rglob("*.html")}


def places(page: BeautifulSoup) -> set[str]:
    """What can be linked to in a page."""
    return {tag[name] for name in ("id", "name") for tag in page.find_all(attrs={name: True})}


def test_every_figure_is_told_in_words():
    for path in PROJECT.glob("notebooks/*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            if any("image/png" in output.get("data", {}) for output in cell.get("outputs", [])):
                assert book.in_words(cell), (path.name, cell.source)


@pytest.mark.slow
def test_the_book_is_whole(folder, pages):
    for path in PROJECT.glob("notebooks/*.ipynb"):
        assert folder / "notebooks" / f"{path.stem}.html" in pages
    for row in load_ledger().values():
        assert row.id.lower() in places(pages[folder / "ledger" / f"{row.kind.lower()}.html"])
    assert {f"palslib.{name}" for name in palslib.__all__} <= places(pages[folder / "api.html"])
    assert folder / "search.html" in pages and (folder / "searchindex.js").stat().st_size > 10_000


@pytest.mark.slow
def test_no_link_is_dead_and_nothing_comes_from_another_host(pages):
    known = {path: places(page) for path, page in pages.items()}
    for path, page in pages.items():
        assert not [image for image in page.find_all("img") if image["alt"].endswith(".png")], path  # words
        for tag in page.find_all(lambda tag: tag.get("href") or tag.get("src")):
            parts = urlsplit(tag.get("href") or tag["src"])
            if parts.scheme in ("http", "https"):
                assert tag.name == "a", f"{path.name} loads {tag}"
            elif parts.scheme != "data":
                there = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
                assert there.is_file(), f"{path.name}: {tag}"
                assert parts.fragment in {"", *known.get(there, {parts.fragment})}, f"{path.name}: {tag}"


def test_an_explorer_has_every_state_of_its_controls():
    """PALs of s = 204 add 14,492,160 parameters for eight tasks (1.132 times BERT-base); 276 is over the budget. Every
    method has a picture of its own."""
    pages = (explorers.parameters(), explorers.architecture())
    parameters, architecture = (json.loads(re.search(r"<script.*?>(.*)</script>", page)[1]) for page in pages)
    sharing, sizes, tasks = (control["values"] for control in parameters["controls"])
    assert len(parameters["states"]) == len(sharing) * len(sizes) * len(tasks)
    usual, larger = (parameters["states"][f"0,{sizes.index(s)},{tasks.index(8)}"] for s in (204, 276))
    assert usual["note"].startswith("14,492,160 parameters added for 8 tasks: 1.132 times BERT-base, within")
    assert sum(width for _, _, width, _ in usual["bars"]) == pytest.approx(14_492_160 / 150_000, abs=0.02)
    assert "over the paper's budget" in larger["note"] and larger["line"] < 100
    pictures = {state["picture"] for state in architecture["states"].values()}
    assert len(pictures) == len(architecture["controls"][0]["values"]) == len(METHODS)


@pytest.fixture
def page():
    """A page of Chromium, as wide as a phone."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    browser = pytest.importorskip("study.explore.test_browser")
    if browser.CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=browser.CHROMIUM, args=browser.FLAGS)
        yield chromium.new_page(viewport={"width": 390, "height": 900})
        chromium.close()


@pytest.mark.slow
@pytest.mark.browser
def test_no_page_is_wider_than_its_screen(folder, page):
    """Be it a phone's; and at 1,280 code is not either."""
    code = "[...document.querySelectorAll('.cell_input pre')].every(box => box.scrollWidth <= box.clientWidth + 1)"
    for path in [*folder.glob("notebooks/*.html"), *folder.glob("ledger/*.html"), *folder.glob("*.html")]:
        page.goto(path.as_uri())
        for width in (390, 800, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path.name, width)
        assert page.evaluate(code), path.name


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize(
    ("name", "choice", "before", "after"),
    [
        ("01_architecture", "low rank, s = 100", "14,492,160 parameters", "14,745,600 parameters"),
        ("02_parameter_counting", "a pair for each layer", "1.132 times BERT-base", "over the paper's budget"),
        ("03_sampling_schedules", "round-robin", "here α = 1.00", "in every epoch"),
    ],
)
def test_an_explorer_moves_in_the_browser_alone(folder, page, name, choice, before, after):
    """Slider (01 has none) and choice change bars and words; nothing is loaded from elsewhere."""
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or wrong.append(asked.url))
    page.goto((folder / "notebooks" / f"{name}.html").as_uri())
    box = page.locator(".palslib-explorer")
    words, all_bars = box.locator("p"), box.locator(".bar")
    bars = lambda: all_bars.evaluate_all("all => all.map(bar => bar.style.width)")  # noqa: E731
    assert before in words.inner_text()
    first = second = bars()
    if box.locator("input").count():
        box.locator("input").first.press("ArrowRight")
        second = bars()
        assert second != first
    box.locator("select").select_option(choice)
    assert after in words.inner_text() and bars() != second
    assert not wrong
