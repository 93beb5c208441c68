"""Small things that every notebook shows: versions, the source of a class, a table."""

import importlib.metadata
import inspect
import platform

import pandas as pd
from IPython.display import Markdown, display

from palslib.plotting import use_style


def begin(*packages: str) -> None:
    """Sets the style of figures and prints the versions that this notebook ran with."""
    use_style()
    names = ("palslib", *packages)
    print(f"Python {platform.python_version()}", *(f"{n} {importlib.metadata.version(n)}" for n in names), sep=" · ")


def show_source(*objects) -> None:
    """The source of classes or functions, as it is run here."""
    for thing in objects:
        display(Markdown(f"```python\n{inspect.cleandoc(inspect.getsource(thing))}\n```"))


def show_table(frame: pd.DataFrame, digits: int = 1) -> None:
    """A table without its index, numbers rounded, thousands separated; None and NaN are a dash."""
    with pd.option_context("display.max_colwidth", 200, "display.max_rows", 200):
        styled = frame.style.hide(axis="index").format(precision=digits, thousands=",", na_rep="–")
        display(styled.set_uuid("table"))
