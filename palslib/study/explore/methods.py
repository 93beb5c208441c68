"""Interactive explorers for JupyterLab: what a method adds, its parameters, and what a schedule draws.

Each is one call whose result the notebook shows, and each draws with the same function as the static figure beside it.
The explorers that train a model or inspect a trained one are in `runs.py` and `heads.py`.
"""

import re
from html import escape

import ipywidgets as widgets
import pandas as pd
from traitlets import dlink

from palslib.common.names import check_name
from palslib.data.tasks import TASKS
from palslib.methods.backbone import BACKBONES
from palslib.methods.counting import ParameterCount, count_parameters, fit_budget, paper_budget
from palslib.methods.method import Method
from palslib.methods.table import METHODS, get_method
from palslib.plan.sampling import MIXED, PAPER_EPOCHS, SCHEDULES, TrainingPlan, annealed_alpha
from palslib.study.explore.widgets import WIDE, Explorer, Picture, bound, dropdown, slider, table
from palslib.study.figures.diagrams import draw_layer
from palslib.study.figures.parameters import budget_bar
from palslib.study.figures.sampling import plan_panels
from palslib.study.figures.style import task_name, task_order
from palslib.study.ledger.paper import GLUE_TRAIN_SIZES

STEPS_PER_EPOCH = 2_400  # of the paper (set-up)
LARGEST_SIZE = 1_020  # the maximum of the sliders for s, unless the method's own is larger
SHARING = {
    "one pair for a task's layers": "layers",
    "a pair for each layer": "none",
    "a pair per layer, for all tasks": "tasks",
    "one pair for all": "layers and tasks",
    "everything, for all tasks": "everything",
}


def explore_architecture(method: str | Method = "pals-204", backbone: str = "bert-base-uncased") -> Explorer:
    """An explorer of methods: the layer with what a method adds, where, and with which sizes (`draw_layer`). It starts
    with `method`, a name or a method of your own."""
    first = get_method(method)
    methods = METHODS | {first.name: first}
    controls = {"method": dropdown("method", list(methods), first.name)}
    controls["backbone"] = dropdown("backbone", list(BACKBONES), backbone)
    image, text = Picture(5.4, 3.3), widgets.HTML(layout={"flex": "1 1 320px"})

    def update(method: str, backbone: str):
        count = count_parameters(methods[method], backbone)
        rows = [[t.part, t.formula, f"{t.value:,}"] for t in count.terms if t.owner != "replaced"]
        each = table(["added", "formula", "parameters"], rows or [["nothing", "", "0"]])
        image.draw(lambda figure: draw_layer(count.method, figure.add_subplot(), count.backbone))
        text.value = f"{each}<p>{_ratio(count)}</p>"

    shown = widgets.HBox([image, text], layout={"flex_flow": "row wrap", "align_items": "center"})
    return Explorer("architecture", controls, [shown]).follow(update)


def _ratio(count: ParameterCount) -> str:
    each = f"<b>{count.added:,}</b> added for {count.num_tasks} tasks"
    return f"{each}: <b>{count.ratio:.3f}</b> times {count.backbone.name}"


def parts_frame(count: ParameterCount) -> pd.DataFrame:
    """A row for each part of a count: part, formula, owner, `each` (its size for one owner) and `parameters` (for all
    tasks, less what it replaces in the backbone). The `parameters` sum to `count.added`."""
    rows, owners = [], {"task": ("each task", count.num_tasks), "tasks": ("all tasks", 1)}
    for t in count.terms:
        if t.owner != "replaced":
            owner, times = owners[t.owner]
            rows.append((t.part, t.formula, owner, t.value, t.value * times))
    frame = pd.DataFrame(rows, columns=["part", "formula", "owner", "each", "parameters"])
    if replaced := sum(t.value for t in count.terms if t.owner == "replaced"):
        frame.loc[frame.index[-1], "parameters"] -= replaced  # the term that replaces it comes last
    return frame


def _budget(method: Method, backbone: str, tasks: int) -> tuple[int, str]:
    """The paper's budget on a backbone, and a text on the largest size that it allows."""
    budget = paper_budget(BACKBONES[backbone])
    if not method.has_size:
        return budget, ""
    try:
        largest = fit_budget(method, backbone, tasks)
    except ValueError as error:  # none fits
        return budget, f" ({escape(str(error))})"
    own = getattr(largest, "heads", None)
    heads = f" with {own} heads" if own != getattr(method, "heads", None) else ""
    return budget, f" (largest s: <b>{largest.size}</b>{heads})"


def explore_parameters(method: str | Method = "pals-204", backbone: str = "bert-base-uncased") -> Explorer:
    """An explorer of s, layers, tasks, sharing and backbone: the count by part, the ratio, and the paper's budget."""
    first = get_method(method)
    methods = METHODS | {first.name: first}
    c = {
        "method": dropdown("method", list(methods), first.name),
        "backbone": dropdown("backbone", list(BACKBONES), backbone),
        "size": slider("s", 204, 1, LARGEST_SIZE),
        "tasks": slider("tasks", 8, 1, 32),
        "layers": dropdown("layers", ["all", "top", "bottom"], "all"),
        "sharing": dropdown("Vᴱ, Vᴰ", SHARING, "layers"),
    }
    numbers, image = widgets.HTML(), Picture(1.5, left=0.03, right=0.67, bottom=0.36, top=0.96)

    def offered(method: Method) -> dict:
        """The method's own values of the options that the controls offer."""
        choices = {"size": range(1, 10**6), "layers": c["layers"].options, "sharing": SHARING.values()}
        return {n: getattr(method, n) for n in choices if n in method.options() and getattr(method, n) in choices[n]}

    def reset(change=None):
        """Sets the method's own options and greys out those that it does not take; s moves in steps of its heads."""
        method = methods[c["method"].value]
        own, step = offered(method), getattr(method, "heads", 1)
        size = own.get("size", step)
        bound(c["size"], step, max(LARGEST_SIZE // step * step, size), step, size)
        c["layers"].value, c["sharing"].value = own.get("layers", "all"), own.get("sharing", "layers")
        for name in ("size", "layers", "sharing"):
            c[name].disabled = name not in own

    def update(method: str, backbone: str, tasks: int, **options):
        own = methods[method]
        method = own.with_options(**{name: options[name] for name in offered(own)})
        count = count_parameters(method, backbone, tasks)
        budget, allows = _budget(method, backbone, tasks)
        parts = parts_frame(count)
        rows = [[p.part, p.formula, f"{p.each:,}", p.owner, f"{p.parameters:,}"] for p in parts.itertuples()]
        rows.append(["total", "", f"{count.per_task:,}", "each task", f"{count.added:,}"])
        image.draw(lambda figure: budget_bar(parts, budget, figure.add_subplot()))
        inside = "within" if count.added <= budget else "over"
        shown = table(["part", "formula", "each", "owned by", "for all tasks"], rows)
        numbers.value = f"{shown}<p>{_ratio(count)}, <b>{inside}</b> the budget of {budget:,}{allows}</p>"

    c["method"].observe(reset, "value")
    reset()
    return Explorer("parameters", c, [numbers, image]).follow(update)


# ------------------------------------------------------------------------------------------------------------ schedules


def parse_sizes(text: str, own=()) -> dict[str, int]:
    """The sizes in a text, in the order of the package's tasks, then the user's `own`. Raises ValueError for a wrong
    form, an unknown task and one that occurs twice.

    >>> parse_sizes("rte=2,490 cola=8551")
    {'cola': 8551, 'rte': 2490}
    """
    sizes = {}
    for word in re.split(r"[\s;]+", text.strip().strip(",;")):
        task, _, number = word.strip(",").partition("=")
        digits = number.replace(",", "").replace("_", "")
        if not re.fullmatch(r"[0-9]{1,12}", digits):
            raise ValueError(f"{word!r} is not of the form task=size: write, for example, rte=2490 cola=8551")
        check_name("task", task, task_order((*TASKS, *own)))
        if task in sizes:
            raise ValueError(f"task {task!r} is given twice")
        sizes[task] = int(digits)
    return {task: sizes[task] for task in task_order(sizes)}


def plan_frame(plan: TrainingPlan, step: int = 0) -> pd.DataFrame:
    """A row for each task: examples, probability at a step, steps expected and drawn in all, passes over its data."""
    columns = {"examples": plan.sizes, "probability": plan.probabilities(step), "expected": plan.expected_steps()}
    columns |= {"drawn": plan.drawn_steps(), "passes": plan.passes()}
    return pd.DataFrame(columns).rename_axis("task").reset_index()


def explore_schedules(schedule: str = "annealed", sizes: dict[str, int] = GLUE_TRAIN_SIZES) -> Explorer:
    """An explorer of schedule, α, E, epoch and data sizes: probabilities, steps by task, passes over each task's data.

    An epoch is the paper's 2,400 steps of 32 examples, so E epochs are 2,400 E steps.

    Args:
        sizes: examples by task, by default GLUE's.
    """
    text = " ".join(f"{task}={sizes[task]}" for task in task_order(sizes))
    c = {
        "schedule": dropdown("schedule", list(MIXED), schedule),
        "seed": slider("seed", 0, 0, 20),
        "epochs": slider("E", PAPER_EPOCHS, 1, 50),
        "epoch": slider("epoch e", 1, 1, PAPER_EPOCHS),
        "alpha": widgets.FloatSlider(1.0, min=0, max=1, step=0.05, description="α", layout={"width": "330px"}),
        "sizes": widgets.Text(text, description="examples", continuous_update=False, layout=WIDE),
    }
    numbers, image = widgets.HTML(), Picture(2.6, left=0.09, right=0.99, bottom=0.26, top=0.96, wspace=0.25)
    own_tasks = tuple(sizes)
    dlink((c["epochs"], "value"), (c["epoch"], "max"))

    def update(schedule: str, alpha: float, epochs: int, epoch: int, seed: int, sizes: str):
        c["alpha"].disabled, c["epoch"].disabled = schedule != "proportional", schedule != "annealed"
        c["alpha"].layout.display = "none" if c["alpha"].disabled else None  # α is not used then
        alpha, steps = alpha if schedule == "proportional" else None, epochs * STEPS_PER_EPOCH
        plan = TrainingPlan(parse_sizes(sizes, own_tasks), schedule, steps, 32, seed, epochs, alpha=alpha)
        frame = plan_frame(plan, (epoch - 1) * STEPS_PER_EPOCH)
        lines = []
        for row in frame.itertuples():
            data = [task_name(row.task), f"{row.examples:,}", f"{row.probability:.4f}"]
            lines.append([*data, f"{row.expected:,.0f}", f"{row.drawn:,}", f"{row.passes:,.2f}"])
        lines.append(["total", f"{frame['examples'].sum():,}", "1", f"{steps:,}", f"{frame['drawn'].sum():,}", ""])
        headers = ["task", "examples", f"p in epoch {epoch}", "steps expected", "steps drawn", "passes"]
        now = f"; here α = {annealed_alpha(epoch, epochs):.3f}" if schedule == "annealed" else ""
        image.draw(lambda figure: plan_panels(frame, figure.subplots(1, 2)))
        words = SCHEDULES[schedule] if alpha in (None, 1) else f"p ∝ N^{alpha:g}"
        numbers.value = f"<p>{escape(words)}{now}</p>{table(headers, lines)}"

    return Explorer("schedules", c, [numbers, image]).follow(update)
