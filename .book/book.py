"""Builds the course as a web page, in `runs/book`: `make book`.

The book's source is put together in `runs/book-source`: the pages of this folder, the notebooks, the ledger's rows, and
a page for every file that one of them links to. Sphinx builds HTML from it, with `conf.py`; a warning is an error.
"""

import os
import re
import shutil
import sys
import tomllib
from functools import cache
from pathlib import Path, PurePosixPath

import nbformat
from explorers import EXPLORERS
from sphinx.cmd.build import main as sphinx

from palslib.common.places import PROJECT, runs_folder
from palslib.study.ledger.verdicts import verdict_frame

HERE = Path(__file__).parent
MARK = "palslib.mark"  # the file that marks a folder as one that was built here
MARKDOWN = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
HTML = re.compile(r"""(href=["'])([^"'#]+)((?:#[^"']*)?["'])""")
KINDS = {
    "A": "Numbers that follow from the definitions",
    "B": "Statements from which something else follows",
    "C": "Claims that only training can decide",
    "D": "Where the released code differs",
}
PICTURES = tomllib.loads((HERE / "pictures.toml").read_text(encoding="utf-8"))
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".yml": "yaml"}


def place(path: str) -> str:
    """The path, within the book's source, of a file of the repository."""
    if path.startswith("notebooks/") or path.endswith(".png"):
        return path
    return PurePosixPath(path).name.lower() if path.endswith(".md") else f"source/{path}.md"


def relinked(text: str, home: str, linked: set[str], links: re.Pattern = MARKDOWN) -> str:
    """A page's text with its relative links changed to paths in the book; the linked files are added to `linked`.

    Raises ValueError for a link to a file that does not exist.
    """

    def link(found: re.Match) -> str:
        if "://" in found[2]:
            return found[0]
        path = os.path.normpath(PurePosixPath(home).parent / found[2])
        if not (PROJECT / path).is_file():
            raise ValueError(f"{home}: a link to {found[2]}, which is no file")
        linked.add(path)
        there = os.path.relpath(place(path), PurePosixPath(place(home)).parent)
        return found[1] + (str(PurePosixPath(there).with_suffix(".html")) if links is HTML else there) + found[3]

    text = re.sub(r"\]\(#[^)\s]+\)", lambda found: found[0].lower(), text)  # JupyterLab's headings keep their capitals
    return links.sub(link, text)


def emptied(folder: Path) -> Path:
    """A folder without what was built there before; one that has no mark of ours is refused."""
    if folder.exists() and not (folder / MARK).is_file():
        raise SystemExit(f"{folder} was not built here ({MARK} is missing): move or remove it first")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    return folder


def stage(folder: Path) -> None:
    """Writes the book's source into an empty folder."""
    done, linked = set(), {f"notebooks/{path.name}" for path in PROJECT.glob("notebooks/*.ipynb")}
    linked |= {"CONTRIBUTING.md", *(f".book/{path.name}" for path in HERE.glob("*.md"))}
    while todo := linked - done:
        for path in todo:
            target = folder / place(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            source = PROJECT / path
            if path.endswith(".png"):
                shutil.copy(source, target)
            elif path.endswith(".ipynb"):
                notebook = nbformat.read(source, as_version=4)
                for cell in notebook.cells:
                    if cell.cell_type == "markdown":
                        cell.source = relinked(cell.source, path, linked)
                    elif cell.metadata.get("jupyter", {}).get("source_hidden"):  # folded in the book too
                        cell.metadata.tags = [*cell.metadata.get("tags", []), "hide-input"]
                    cell.metadata.mystnb = {"image": {"alt": in_words(cell)}}
                    for output in cell.get("outputs", ()):
                        said = output.get("data", {}).get("text/plain", "").split()  # Explorer of parameters: run ...
                        if said[:2] == ["Explorer", "of"] and said[2].rstrip(":") in EXPLORERS:
                            output["data"] = {"text/html": EXPLORERS[said[2].rstrip(":")]()}
                        if html := output.get("data", {}).get("text/html"):
                            output["data"]["text/html"] = relinked(html, path, linked, HTML)
                nbformat.write(notebook, target)
            elif path.endswith(".md"):
                target.write_text(relinked(source.read_text(encoding="utf-8"), path, linked), encoding="utf-8")
            else:
                language, text = LANGUAGES.get(source.suffix, "text"), source.read_text(encoding="utf-8")
                page = f"---\norphan: true\nnosearch: true\n---\n# {path}\n\n`````{language}\n{text}`````\n"
                target.write_text(page, encoding="utf-8")
        done |= todo
    (folder / "ledger").mkdir()
    for kind, rows in verdict_frame().groupby("kind"):
        page = f"# {kind} · {KINDS[kind]}\n\n" + "\n".join(map(ledger_row, rows.to_dict("records")))
        (folder / "ledger" / f"{kind.lower()}.md").write_text(page, encoding="utf-8")


def in_words(cell) -> str:
    """What a cell's figures show, by `pictures.toml`."""
    return " ".join(PICTURES[name] for name in PICTURES if f'"{name}"' in cell.source)


def ledger_row(row: dict) -> str:
    """The section of one row: verdict, statement, published value, ours, derivation, note, source and notebooks."""
    lines = [f"({row['id'].lower()})=", f"## {row['id']} · {row['verdict']}", "", escaped(row["statement"]), ""]
    for name, what in (("published", "Published"), ("ours", "Here"), ("derivation", "How"), ("note", "Note")):
        if row[name] and row[name] != "–":
            lines.append(f"* *{what}:* {escaped(row[name])}")
    notebooks = [path for path in sorted(PROJECT.glob("notebooks/*.ipynb")) if row["id"] in rows_named(path)]
    named = ", ".join(f"[{path.stem[:2]}](../notebooks/{path.name})" for path in notebooks)
    source = f"* *Source:* {escaped(row['source'])}" + (f"; in notebooks {named}" if named else "")
    return "\n".join([*lines, source, ""])


def escaped(text: str) -> str:
    """The text with Markdown's special characters escaped."""
    return re.sub(r"([\\`*_$<>\[\]~])", r"\\\1", text)


@cache
def rows_named(path: Path) -> set[str]:
    """The rows of the ledger that a notebook's text names, one by one or as `A3 to A10`."""
    text = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown")
    found = set(re.findall(r"\b[A-D]\d+[a-z]?\b", text))
    for kind, first, last in re.findall(r"\b([A-D])(\d+)(?: to |–|-)\1(\d+)\b", text):
        found |= {f"{kind}{number}" for number in range(int(first), int(last) + 1)}
    return found


def main() -> int:
    source, book = (emptied(runs_folder() / name) for name in ("book-source", "book"))
    stage(source)
    flags = ["-q", "-W", "--keep-going", "-c", str(HERE), "-d", f"{source}-cache"]
    return sphinx([*flags, str(source), str(book)])


if __name__ == "__main__":
    sys.exit(main())
