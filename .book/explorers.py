"""The explorers of notebooks 01 to 03 in the book: all their states, computed here and drawn by static/explore.js."""

import base64
import io
import itertools
import json
from collections.abc import Callable

from PIL import Image

from palslib.methods.counting import PAPER_BUDGET, ParameterCount, count_parameters
from palslib.methods.table import METHODS
from palslib.plan.sampling import MIXED, PAPER_EPOCHS, SCHEDULES, TrainingPlan, annealed_alpha
from palslib.study.explore.methods import SHARING, STEPS_PER_EPOCH, parts_frame, plan_frame
from palslib.study.explore.widgets import Picture
from palslib.study.figures.diagrams import draw_layer
from palslib.study.figures.style import method_name, task_name
from palslib.study.ledger.paper import GLUE_TRAIN_SIZES

SIZES = range(12, 301, 12)
"""Values of the slider for s: multiples of the 12 heads."""
State = dict
"""`bars`: label, start and width in percent, and a text; `line`: the place of a vertical line in percent, or None;
`note`: a sentence below; perhaps `picture`: the address of one above."""


def page(controls: list[tuple[str, list, object]], state: Callable[..., State]) -> str:
    """The explorer as HTML.

    Args:
        controls: label, values and first value of each; numbers make a slider, texts a list to choose from.
        state: of a value of each control -> what is shown.
    """
    shown = [
        {"label": label, "values": values, "first": values.index(first), "slider": isinstance(first, int)}
        for label, values, first in controls
    ]
    states = {
        ",".join(str(place) for place, _ in chosen): state(*(value for _, value in chosen))
        for chosen in itertools.product(*(enumerate(values) for _, values, _ in controls))
    }
    content = json.dumps({"controls": shown, "states": states}, ensure_ascii=False).replace("</", "<\\/")
    return f'<div class="palslib-explorer"><script type="application/json">{content}</script></div>'


def counted(count: ParameterCount) -> State:
    """Where the parameters go: bars end to end, beside a line for the paper's budget."""
    parts = parts_frame(count)
    whole, start, bars = max(count.added, PAPER_BUDGET) / 100, 0.0, []
    for part in parts.itertuples():
        text = f"{part.formula} = {part.each:,} for {part.owner}"
        name = part.part.replace("V^E", "Vᴱ").replace("V^D", "Vᴰ")
        bars.append([name, round(start / whole, 2), round(part.parameters / whole, 2), text])
        start += part.parameters
    inside = "within" if count.added <= PAPER_BUDGET else "over"
    tasks = "1 task" if count.num_tasks == 1 else f"{count.num_tasks} tasks"
    note = f"{count.added:,} parameters added for {tasks}: "
    note += f"{count.ratio:.3f} times BERT-base, {inside} the paper's budget of {PAPER_BUDGET:,} (the dashed line)"
    return {"bars": bars, "line": round(PAPER_BUDGET / whole, 2), "note": note}


def drawing(count: ParameterCount) -> str:
    """The layer with what the method adds, as the address of a picture that holds the picture itself."""
    picture, small = Picture(5.4, 3.3), io.BytesIO()
    picture.draw(lambda figure: draw_layer(count.method, figure.add_subplot(), count.backbone))
    Image.open(io.BytesIO(picture.value)).convert("RGB").quantize(24).save(small, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(small.getvalue()).decode()}"


def architecture() -> str:
    """Notebook 01: any method at its published size, drawn and counted."""
    methods = {method_name(name): name for name in METHODS}

    def state(name: str) -> State:
        count = count_parameters(methods[name])
        return counted(count) | {"picture": drawing(count)}

    return page([("method", list(methods), method_name("pals-204"))], state)


def parameters() -> str:
    """Notebook 02: PALs, with what they share, s and the number of tasks."""

    def state(sharing: str, size: int, tasks: int) -> State:
        method = METHODS["pals-204"].with_options(size=size, sharing=SHARING[sharing])
        return counted(count_parameters(method, num_tasks=tasks))

    controls = [("Vᴱ and Vᴰ", list(SHARING), next(iter(SHARING))), ("s", list(SIZES), 204)]
    return page([*controls, ("tasks", [1, 2, 4, 8, 16], 8)], state)


def schedules() -> str:
    """Notebook 03: any schedule, any epoch of the paper's 25."""
    steps = PAPER_EPOCHS * STEPS_PER_EPOCH
    plans = {name: TrainingPlan(GLUE_TRAIN_SIZES, name, steps, 32, 0, PAPER_EPOCHS) for name in MIXED}
    most = max(max(plan.probabilities(0).values()) for plan in plans.values()) / 100

    def state(name: str, epoch: int) -> State:
        bars = [
            [task_name(row.task), 0, round(row.probability / most, 2), f"p = {row.probability:.3f}"]
            for row in plan_frame(plans[name], (epoch - 1) * STEPS_PER_EPOCH).itertuples()
        ]
        alpha = f": here α = {annealed_alpha(epoch, PAPER_EPOCHS):.2f}" if name == "annealed" else ", in every epoch"
        return {"bars": bars, "line": None, "note": f"{SCHEDULES[name]}{alpha}"}

    return page([("schedule", list(MIXED), "annealed"), ("epoch", list(range(1, PAPER_EPOCHS + 1)), 1)], state)


EXPLORERS = {"architecture": architecture, "parameters": parameters, "schedules": schedules}
"""The name that the notebook's output says -> the explorer as HTML."""
