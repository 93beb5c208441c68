"""The parts of every explorer: a box of controls with results that follow them, pictures and tables.

All are plain ipywidgets, with pictures drawn in the kernel, so that no network is needed.
"""

import io
import os
import re
from collections.abc import Callable
from html import escape

import ipywidgets as widgets
import pandas as pd
from matplotlib.figure import Figure

from palslib.common.names import check_name
from palslib.study.figures.style import PAGE_WIDTH

WIDE = {"width": "664px", "max_width": "99%"}
"""The layout of a control as wide as two, or as the page if that is narrower."""


class Explorer(widgets.VBox):
    """Controls, a line for messages, and results that follow them. All state is the instance's own."""

    def __init__(self, name: str, controls: dict[str, widgets.Widget], results: list):
        """Args: `controls` by name, laid out two in a row; `results`, the widgets below them."""
        self.name, self.controls = name, controls
        self.message, self.results = widgets.HTML(), widgets.VBox(results)
        box = widgets.HBox(list(controls.values()), layout={"flex_flow": "row wrap", "max_width": "740px"})
        super().__init__([box, self.message, self.results])
        self.add_class(f"palslib-explore-{name}")

    def follow(self, update: Callable[..., None]) -> "Explorer":
        """Calls `update` with the controls' values by name, now and after every change of one.

        A ValueError is shown as a message in place of the results, which would be wrong; any other error with its
        traceback below them. An update sets pictures before numbers, so that no new number is beside an old picture.
        """

        def show(**values):
            try:
                update(**values)
            except ValueError as error:
                self.say(str(error), wrong=True)
            else:
                self.say("")

        self.children = [*self.children, widgets.interactive_output(show, self.controls)]
        return self

    def say(self, text: str, wrong: bool = False) -> None:
        """Shows a message above the results; `wrong` hides them."""
        colour = "var(--jp-error-color1, #b00020)" if wrong else "inherit"
        self.message.value = f'<span style="color: {colour}">{escape(text)}</span>' if text else ""
        self.results.layout.visibility = "hidden" if wrong else "visible"

    def __repr__(self) -> str:
        """The text that replaces the widget where none can be shown, as on GitHub or in print."""
        return f"Explorer of {self.name}: run this cell in JupyterLab to use it."

    def _repr_mimebundle_(self, **kwargs) -> dict:
        """The output; only the text if PALSLIB_STATIC is set, as in `make notebooks`: a stored widget is blank."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if os.environ.get("PALSLIB_STATIC"):
            del bundle["application/vnd.jupyter.widget-view+json"]
        return bundle


class Picture(widgets.Image):
    """A picture of a fixed size in inches, drawn on a figure that pyplot does not manage.

    Args:
        margins: `left`, `right`, `bottom` and `top` as fractions of the figure, and the gaps `wspace` and `hspace`.
            Without them the figure finds its own layout, which takes twice as long.
    """

    def __init__(self, height: float, width: float = PAGE_WIDTH, **margins: float):
        size = {"width": f"{width:g}in", "height": "auto", "max_width": "100%"}
        super().__init__(format="png", layout={**size, "display": "none"})  # an empty one looks like a broken image
        self.inches, self.margins = (width, height), margins

    def draw(self, draw: Callable[[Figure], object]) -> None:
        """Shows what `draw` puts on an empty figure."""
        figure, file = Figure(figsize=self.inches, layout="none" if self.margins else "constrained"), io.BytesIO()
        if self.margins:
            figure.subplots_adjust(**self.margins)
        draw(figure)
        figure.savefig(file, format="png", dpi=144)
        self.value, self.layout.display = file.getvalue(), None


def table(headers: list[str], rows: list[list[str]]) -> str:
    """An HTML table with the looks of JupyterLab's own, which scrolls on a narrow page."""
    with pd.option_context("display.max_colwidth", None):  # else long cells are cut
        page = pd.DataFrame(rows, columns=headers).to_html(index=False, border=0)
    page = re.sub(r"\bV\^([ED])", r"V<sup>\1</sup>", page)
    style = "overflow-x: auto; padding: 0; width: 0; min-width: 100%"  # else JupyterLab's padding widens the page
    return f'<div class="jp-RenderedHTMLCommon" style="{style}">{page}</div>'


def dropdown(label: str, options, value) -> widgets.Dropdown:
    """A choice from a list; `options` are values, or a dictionary of labels and values. Raises ValueError for a value
    that is none of them."""
    check_name(label, value, options.values() if isinstance(options, dict) else options)
    return widgets.Dropdown(options=options, value=value, description=label, layout={"width": "330px"})


def slider(label: str, value: int, low: int, high: int, **options) -> widgets.IntSlider:
    """A slider for a whole number."""
    return widgets.IntSlider(value, low, high, description=label, layout={"width": "330px"}, **options)


def bound(slider: widgets.IntSlider, low: int, high: int, step: int = 1, value: int | None = None) -> None:
    """Gives a slider other ends and steps; its value (or the one given) moves to the nearer end if it is beyond it.

    All in one message: a browser that heard of the steps first would move the old value onto them, and send it back.
    """
    with slider.hold_sync(), slider.hold_trait_notifications():
        slider.min, slider.max, slider.step = low, high, step
        slider.value = min(max(slider.value if value is None else value, low), high)
