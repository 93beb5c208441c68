"""What all figures share: one look, and always the same name, order and colour for every task and method."""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from seaborn.utils import relative_luminance

from palslib.common.places import runs_folder
from palslib.data.tasks import TASK_LABELS, TASKS
from palslib.methods.method import Method
from palslib.methods.table import LABELS, get_method

TASK_COLOURS = dict(zip(TASKS, sns.color_palette("colorblind", len(TASKS)), strict=True))
"""Task -> colour, safe for colour-blind readers."""
PAGE_WIDTH = 7.0  # inches


def method_name(method: str | Method) -> str:
    """A method as a figure names it: `PALs, s = 120`; a method that is not in the table by its own label.

    >>> method_name("pals-no-sharing-84"), method_name("houlsby-64"), method_name("lhuc")
    ('PALs, no sharing, s = 84', 'Houlsby, m = 64', 'LHUC')
    """
    method = get_method(method)
    if method.name not in LABELS:
        return method.label
    letter = "m" if method.name.startswith("houlsby") else "s"
    size = f", {letter} = {method.size}" if method.has_size else ""
    return LABELS[method.name] + size


def task_name(task: str) -> str:
    """A task as a figure names it: a task of the paper as the paper prints it, your own by its own name."""
    return TASK_LABELS.get(task, task)


def task_order(tasks) -> list[str]:
    """Tasks, each once: the paper's in its order, then your own as they come."""
    named = list(dict.fromkeys(tasks))
    return [task for task in TASKS if task in named] + [task for task in named if task not in TASKS]


def task_colours(tasks) -> dict[str, tuple]:
    """The colour of each task, in `task_order`: the paper's tasks have theirs everywhere, your own get others."""
    order = task_order(tasks)
    own = sorted(task for task in order if task not in TASK_COLOURS)
    mine = dict(zip(own, sns.color_palette("husl", len(own)), strict=True))
    return {task: (TASK_COLOURS | mine)[task] for task in order}


def different_colours(number: int) -> list:
    """This many colours that can be told apart, also by the colour-blind if there are at most ten."""
    return sns.color_palette("colorblind" if number <= 10 else "husl", number)


def symbols(words: str) -> str:
    """V^E and V^D set as formulas, for matplotlib."""
    return words.replace("V^E", "$V^E$").replace("V^D", "$V^D$")


def readable_numbers(ax: Axes) -> None:
    """Numbers in the cells of a heat map of seaborn's: black on light cells, white on dark ones, whichever has the
    higher contrast (WCAG 2)."""
    mesh = ax.collections[0]
    colours = mesh.get_facecolors().reshape(*mesh.get_array().shape, 4)
    for text in ax.texts:
        column, row = map(int, text.get_position())
        text.set_color("black" if relative_luminance(colours[row, column]) > 0.18 else "white")


def use_style() -> None:
    """The package's look, readable at the width of a page, and figures that are the same bytes every time."""
    sns.set_theme(context="paper", style="whitegrid", palette="colorblind", font_scale=1.05)
    plt.rcParams |= {
        "figure.figsize": (PAGE_WIDTH, 3.2),
        "figure.constrained_layout.use": True,
        "figure.dpi": 100,
        "savefig.dpi": 150,
        "axes.titlelocation": "left",
        "axes.titlesize": "medium",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "svg.hashsalt": "palslib",
        "svg.fonttype": "none",
    }


def save_figure(figure: Figure, name: str) -> Path:
    """Writes `name.svg` and `name.png` into `$PALSLIB_FIGURES`, or `runs/figures/`; returns the PNG's path. Raises
    ValueError where one of the two is a link, or a file that it did not write."""
    folder = Path(os.environ.get("PALSLIB_FIGURES") or runs_folder() / "figures")
    folder.mkdir(parents=True, exist_ok=True)
    svg, png = folder / f"{name}.svg", folder / f"{name}.png"
    for path in (svg, png):
        if path.is_symlink() or (path.exists() and b"palslib" not in path.read_bytes()[:2_000]):
            raise ValueError(f"{path} is not a figure that palslib wrote: move it, or set PALSLIB_FIGURES")
    figure.savefig(svg, metadata={"Date": None, "Creator": "palslib"})
    figure.savefig(png, dpi=150, metadata={"Software": "palslib"})
    return png
