"""The parts of every explorer: a box of controls with results that follow them, pictures and tables.

All are plain ipywidgets, with pictures drawn in the kernel, so that no network is needed.
"""

import io
import os
import re
from collections.abc import Callable
from contextlib import contextmanager
from html import escape

import ipywidgets as widgets
from matplotlib.figure import Figure

from palslib.common.names import check_name
from palslib.study.figures.style import PAGE_WIDTH

WIDE = {"width": "664px", "max_width": "99%"}
"""The layout of a control as wide as two, or as the page if that is narrower."""


class Explorer(widgets.VBox):
    """Controls, a line for messages, and results that follow them. All state is the instance's own."""

    def __init__(self, name: str, controls: dict[str, widgets.Widget], rows: list[list[str]], results: list):
        """Args: `controls` by name; `rows` of their names, as they are laid out; `results`, the widgets below them."""
        self.name, self.controls, self._held = name, controls, False
        self.message, self.results = widgets.HTML(), widgets.VBox(results)
        lines = [widgets.HBox([controls[n] for n in row], layout={"flex_flow": "row wrap"}) for row in rows]
        super().__init__([*lines, self.message, self.results])
        self.add_class("palslib-explore")
        self.add_class(f"palslib-explore-{name}")
        self.message.add_class("palslib-message")

    def follow(self, update: Callable[[], None]) -> "Explorer":
        """Calls `update` now and after every change of a control; a ValueError is shown as a message, not raised.

        An update must set pictures before numbers, so that new numbers are never shown beside an old picture.
        """
        self.update = update
        for control in self.controls.values():
            control.observe(self.refresh, "value")
        self.refresh()
        return self

    def refresh(self, change=None) -> None:
        """Updates the results; after a ValueError they are hidden, since outdated numbers would be wrong."""
        if self._held:
            return
        try:
            self.update()
        except ValueError as error:
            self.say(str(error), wrong=True)
        else:
            self.say("")

    def say(self, text: str, wrong: bool = False) -> None:
        """Shows a message above the results; `wrong` hides them."""
        colour = "var(--jp-error-color1, #b00020)" if wrong else "inherit"
        self.message.value = f'<span style="color: {colour}">{escape(text)}</span>' if text else ""
        self.results.layout.visibility = "hidden" if wrong else "visible"

    @contextmanager
    def held(self):
        """Within the block, changes of controls do not update the results."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

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


def table(headers: list[str], rows: list[list[str]], name: str) -> str:
    """An HTML table; the first column is text, the others are numbers, aligned to the right."""
    style = "padding: 1px min(12px, 0.75vw) 1px 0; line-height: 1.4; text-align"
    under = "; border-bottom: 1px solid var(--jp-border-color2, #ddd)"

    def line(cells, tag):
        sides, row = ["left"] + ["right"] * (len(cells) - 1), ""
        for c, side in zip(cells, sides, strict=True):
            whole = "; white-space: nowrap" * (len(c) <= 6)  # no line break in STS-B
            text = re.sub(r"\bV\^([ED])", r"V<sup>\1</sup>", escape(c))
            row += f'<{tag} style="{style}: {side}{under}{whole}">{text}</{tag}>'
        return f"<tr>{row}</tr>"

    body = line(headers, "th") + "".join(line(row, "td") for row in rows)
    whole = f'<table class="palslib-{name}" style="border-collapse: collapse; margin: 4px 0">{body}</table>'
    return f'<div style="overflow-x: auto; width: 0; min-width: 100%">{whole}</div>'  # scrolls on a narrow page


def dropdown(label: str, options, value) -> widgets.Dropdown:
    """A choice from a list; `options` are values, or a dictionary of labels and values. Raises ValueError for a value
    that is none of them."""
    check_name(label, value, options.values() if isinstance(options, dict) else options)
    return widgets.Dropdown(options=options, value=value, description=label, layout={"width": "330px"})


def slider(label: str, value: int, low: int, high: int, **options) -> widgets.IntSlider:
    """A slider for a whole number."""
    return widgets.IntSlider(value, low, high, description=label, layout={"width": "330px"}, **options)
