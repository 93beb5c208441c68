"""Small things that every notebook shows: versions, the source of a class, a table."""

import importlib.metadata
import inspect
import io
import platform
import textwrap

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import HTML, Image, Markdown, display
from matplotlib.figure import Figure
from PIL import Image as Pillow

from palslib.figures.style import save_figure, use_style


def begin(*packages: str) -> None:
    """Sets the style of figures and prints the versions that this notebook ran with."""
    use_style()
    names = ("palslib", *packages)
    print(f"Python {platform.python_version()}", *(f"{n} {importlib.metadata.version(n)}" for n in names), sep=" · ")


def show_source(*objects) -> None:
    """The source of classes or functions, as it is run here."""
    for thing in objects:
        display(Markdown(f"```python\n{textwrap.dedent(inspect.getsource(thing)).strip()}\n```"))


def show_table(frame: pd.DataFrame, digits: int = 1) -> None:
    """A table without its index, numbers rounded, thousands separated; None and NaN are a dash."""
    with pd.option_context("display.max_colwidth", 200, "display.max_rows", 200):
        styled = frame.style.hide(axis="index").format(precision=digits, thousands=",", na_rep="–")
        display(HTML(styled.set_uuid("table").to_html()))  # a Styler's own text holds its address, new in every run


def show_figure(figure: Figure, name: str, colours: int = 64) -> None:
    """Saves a figure under a name (`save_figure`), shows it and closes it.

    Shown is a PNG of few colours: sharp, and a quarter of the size of matplotlib's, so that notebooks stay small.
    """
    save_figure(figure, name)
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=150)
    picture = Pillow.open(drawn).convert("RGB").quantize(colours, dither=Pillow.Dither.NONE)
    picture.save(small, "png", optimize=True)
    display(Image(data=small.getvalue(), width=round(figure.get_figwidth() * 115)))
    plt.close(figure)
