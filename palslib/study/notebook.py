"""Small helpers for all notebooks: they show versions, source code, text, tables and figures."""

import ast
import contextlib
import importlib.metadata
import inspect
import io
import json
import platform
import re
import textwrap
import typing
from collections.abc import Collection

import matplotlib.pyplot as plt
import pandas as pd
from IPython import get_ipython
from IPython.display import HTML, Image, Markdown, display
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler
from PIL import Image as Pillow
from pydantic import ConfigDict, TypeAdapter

from palslib.common.names import check_name, shown
from palslib.study.figures.style import save_figure, use_style

# For the code of `show_source`: on a page exported by nbconvert it has the font of code, and long lines scroll.
STYLE = """<style>.jp-RenderedMarkdown .highlight pre { font-family: monospace }
.jp-RenderedMarkdown.jp-RenderedHTMLCommon pre { overflow-x: auto; white-space: pre }
.jp-RenderedMarkdown.jp-RenderedHTMLCommon pre code { white-space: pre }</style>"""


def begin(*packages: str, **valid: Collection) -> None:
    """Checks the notebook's parameters, sets the style of figures and prints the versions of Python and packages.

    Args:
        valid: parameter -> its valid values: names, or a `range` of numbers. In a list, each element is checked.

    Raises ValueError for a parameter that the first cell does not declare, and for a value that is of the wrong type or
    not valid.
    """
    if shell := get_ipython():
        take_parameters(shell.user_ns)
        for name, values in valid.items():
            check_value(name, shell.user_ns[name], values)
        display(HTML(STYLE))
    use_style()
    names = ("palslib", *packages)
    print(f"Python {platform.python_version()}", *(f"{n} {importlib.metadata.version(n)}" for n in names), sep=" · ")


def take_parameters(names: dict) -> None:
    """Converts every parameter among a notebook's `names` to the type that its first cell declares.

    From a command line, `-p look_up 1.13` gives a number where a text is meant, and `-p tasks "rte cola"` a text where
    a list is meant. Papermill accepts any name, so a mistyped one would have no effect; here it raises ValueError.
    """
    types = {}
    for cell in names.get("In", ()):
        with contextlib.suppress(SyntaxError):  # a magic such as %pip is no Python
            lines = ast.parse(cell).body
            declared = [line for line in lines if isinstance(line, ast.AnnAssign) and line.simple]
            types = types or {line.target.id: ast.unparse(line.annotation).strip("'") for line in declared}
            if cell.startswith("# Parameters\n"):  # the cell that papermill adds after the first
                for line in lines:
                    check_name("parameter", line.targets[0].id, types)
    for name, kind in types.items():
        names[name] = _typed(name, names[name], kind)


def check_value(name: str, value: object, valid: Collection) -> None:
    """Raises ValueError for a parameter's value that is not valid. None (the default) always is."""
    values = value if isinstance(value, list) else [value]
    for one in (one for one in values if one is not None):
        if not isinstance(valid, range):
            check_name(f"{name} (a parameter)", one, valid)
        elif one not in valid:
            steps = f" in steps of {valid.step}" if valid.step > 1 else ""
            raise ValueError(f"parameter {name!r} must be from {valid[0]:,} to {valid[-1]:,}{steps}, not {one:,}")


def _typed(name: str, value: object, kind: str) -> object:
    """A parameter's value converted to its declared type, `int` or `Optional[int]`; a command line's text is parsed."""
    declared = eval(kind, vars(typing))
    outer = typing.get_origin(declared) or declared
    try:
        if isinstance(value, str) and outer in (list, dict):
            value = value.replace(",", " ").split() if outer is list and value[:1] != "[" else json.loads(value)
        return TypeAdapter(declared, config=ConfigDict(coerce_numbers_to_str=True)).validate_python(value)
    except ValueError:  # pydantic's ValidationError is one
        raise ValueError(f"parameter {name!r} must be {kind}, not {shown(value)}") from None


def show_source(*objects) -> None:
    """Displays the source code of classes or functions."""
    for thing in objects:
        display(Markdown(f"```python\n{textwrap.dedent(inspect.getsource(thing)).strip()}\n```"))


def show_text(*lines: str) -> None:
    """Displays lines of Markdown: what a page says of the values that it computed."""
    display(Markdown("\n".join(lines)))


def show_table(frame: pd.DataFrame, digits: int = 1, fold: str = "") -> None:
    """Displays a table without its index: text aligned left; numbers aligned right, rounded, with thousands separated;
    a grey dash in an empty cell. A long table is folded under a line of text, `fold`, that opens it.

    Each cell has its own style: JupyterLab drops rules for whole tables from a notebook that was not run here.
    """
    styled = Styler(frame, uuid="", cell_ids=False).hide(axis="index")
    styled = styled.format(precision=digits, thousands=",", na_rep="–", escape="html")
    page = styled.format_index(axis="columns", escape="html").to_html()
    page = f"<table>{page[page.index('<thead') :]}"
    texts = frame.map(lambda cell: isinstance(cell, str)).any()
    left = {str(column): ' style="text-align: left"' for column, text in enumerate(texts) if text}
    page = re.sub(r' class="[^"]*\bcol(\d+)"', lambda cell: left.get(cell[1], ""), page)
    page = re.sub(r"\n\s*(?=<t[dh]|</tr)", "", page)  # one line for each row
    page = f"<details><summary>{fold}</summary>\n{page}\n</details>" if fold else page
    display(HTML(page.replace(">–<", '><span style="color: #999">–</span><')))


def show_figure(figure: Figure, name: str, colours: int = 128) -> None:
    """Saves a figure under a name (`save_figure`), shows it and closes it.

    It is shown as a PNG of few colours: sharp, and a quarter of the size of matplotlib's, so that notebooks stay small.
    With 128 colours the difference from the original cannot be seen, not even in a heat map.
    """
    drawn, small = Pillow.open(save_figure(figure, name)).convert("RGB"), io.BytesIO()
    picture = drawn.quantize(colours, Pillow.Quantize.MAXCOVERAGE, kmeans=2)
    picture.save(small, "png", optimize=True)
    display(Image(data=small.getvalue(), width=round(figure.get_figwidth() * 115)))
    plt.close(figure)
