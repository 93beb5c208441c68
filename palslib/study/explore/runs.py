"""An explorer that starts, shows and stops a small run in its own thread, so that the notebook stays responsive.

Stopping keeps a checkpoint, from which the same run resumes when started again; it ends with the same weights as an
uninterrupted run (`training.loop.train`).
"""

import threading
import time
from dataclasses import replace

import ipywidgets as widgets
import pandas as pd

from palslib.data.metrics import main_scores, name_of
from palslib.methods.table import METHODS
from palslib.plan.config import RunConfig
from palslib.plan.sampling import SCHEDULES
from palslib.study.explore.widgets import WIDE, Explorer, Picture, dropdown, table
from palslib.study.figures.learning_curves import learning_curves, step_losses
from palslib.study.figures.style import task_colours, task_name

_SECONDS_BETWEEN_PICTURES = 1.0  # drawing takes 0.1 s, which would slow down a small run


def main_curves(history: list[dict]) -> pd.DataFrame:
    """Learning curves of a run's or a record's history: `step`, `task` (or `average`), `score` by its first metric."""
    rows = []
    for point in history:
        scores = main_scores(point["scores"]) | {"average": point["dev_average"]}
        rows += [(point["step"], task, score) for task, score in scores.items()]
    return pd.DataFrame(rows, columns=["step", "task", "score"])


def draw_progress(losses: pd.DataFrame, scores: pd.DataFrame, axes) -> None:
    """Draws the loss by task on the left, dev scores on the right; either may still be empty."""
    tasks = [task for task in (*scores["task"].unique(), *losses["task"].unique()) if task != "average"]
    step_losses(losses, axes[0], task_colours(tasks))
    if len(scores):
        learning_curves(scores, axes[1])
    else:
        axes[1].set(xlabel="training step", ylabel="dev score (%)", xticks=[], yticks=[])
        axes[1].text(0.5, 0.5, "not evaluated yet", ha="center", va="center", transform=axes[1].transAxes)
        axes[1].legend(*axes[0].get_legend_handles_labels(), loc="center left", bbox_to_anchor=(1, 0.5))


def shown_score(score: float | None) -> str:
    """A score in percent; an undefined one is NaN, or None if it comes from a file."""
    return "undefined" if pd.isna(score) else f"{score:.1f}"


class TrainingExplorer(Explorer):
    """The explorer of a run, with the run's thread and the signal to stop it."""

    def __init__(self, config: RunConfig):
        self.config, self.thread, self.stop, self.shown_at = config, None, threading.Event(), 0.0
        self.tasks = {task: config.task(task) for task in config.tasks}
        number = {"layout": {"width": "200px"}}
        controls = {
            "method": dropdown("method", list(dict.fromkeys([*METHODS, config.method])), config.method),
            "schedule": dropdown("schedule", list(SCHEDULES), config.schedule),
            "steps": widgets.BoundedIntText(config.steps, 1, max(100_000, config.steps), description="steps", **number),
            "seed": widgets.BoundedIntText(config.seed, 0, max(10_000, config.seed), description="seed", **number),
            "start": widgets.Button(description="Start", button_style="primary"),
            "stop": widgets.Button(description="Stop", disabled=True),
        }
        self.bar = widgets.IntProgress(description="step", layout=WIDE)
        self.numbers, self.picture = widgets.HTML(), Picture(2.6)
        super().__init__("training", controls, [self.bar, self.numbers, self.picture])
        controls["start"].on_click(lambda _: self.start())
        controls["stop"].on_click(lambda _: self.ask_to_stop())
        self.say("Start trains a small run here; Stop keeps a checkpoint, from which Start resumes.")

    def start(self) -> None:
        """Starts or resumes the run; wrong settings are shown as a message, not raised."""
        chosen = {name: self.controls[name].value for name in ("method", "schedule", "steps", "seed")}
        if chosen["method"] != self.config.method:  # what was for the config's own method is left out
            size = self.config.size if isinstance(self.config.size, str) and not self.config.own_method else None
            chosen |= {"own_method": {}, "method_options": {}, "size": size}
        try:
            config = replace(self.config, progress=False, **chosen)
            config.resolved_method()
        except (ValueError, OSError) as error:
            return self.say(str(error), wrong=True)
        self.stop.clear()
        self.numbers.value, self.picture.layout.display = "", "none"
        self.bar.max, self.bar.value = config.steps, 0
        self.show_running(True)
        self.thread = threading.Thread(target=self.train, args=(config,), daemon=True)
        self.thread.start()

    def ask_to_stop(self) -> None:
        """Asks the run to stop after the current step."""
        self.stop.set()
        self.say("stopping after this step")

    def show_running(self, running: bool) -> None:
        """Allows Stop while a run is running, and everything else while none is."""
        for control in self.controls.values():
            control.disabled = running
        self.controls["stop"].disabled = not running

    def train(self, config: RunConfig) -> None:
        """Trains in this thread and says how it ended, also by an error, which would not be seen otherwise."""
        from palslib.training.loop import train

        try:
            record = train(config, on_step=self.on_step, on_phase=self.say)
            if record["status"] == "stopped":
                end = f"stopped at step {record['step']:,} of {config.steps:,}: a checkpoint is kept; Start resumes"
            else:
                last = record["results"]["last"]
                average, done = shown_score(last["dev_average"]), last["step"]
                end = f"finished: dev average {average} after {done:,} steps; change the seed for another run"
                if self.bar.value < done:  # the run had finished before
                    self.show_record(record)
            self.say(end)
        except Exception as error:
            self.say(f"{type(error).__name__}: {error}")
        finally:
            self.show_running(False)

    def on_step(self, run) -> bool:
        """Shows a run after some of its steps; returns whether it goes on."""
        stop = self.stop.is_set()
        ends = run.step == run.config.steps or run.has_given_up
        if stop or ends or time.monotonic() - self.shown_at > _SECONDS_BETWEEN_PICTURES:
            run.read_losses()
            done = len(run.losses)
            losses = pd.DataFrame({"step": range(1, done + 1), "task": run.plan.tasks[:done], "loss": run.losses})
            self.show(losses, run.history, run.plan.drawn_steps(run.step), run.config.batch_size)
            self.bar.value, self.shown_at = run.step, time.monotonic()
            if not stop:
                self.say(f"training: step {run.step:,} of {run.config.steps:,}")
        return not stop

    def show_record(self, record: dict) -> None:
        """Shows a run by its record, which has only mean losses, between evaluations."""
        history, config = record["history"], record["config"]
        points = [(point["step"], task, loss) for point in history for task, loss in point["loss"].items()]
        losses = pd.DataFrame(points, columns=["step", "task", "loss"])
        self.show(losses, history, record["sampling"]["drawn"], config["batch_size"], "mean loss at the end")
        self.bar.value = history[-1]["step"]

    def show(
        self, losses: pd.DataFrame, history: list[dict], drawn: dict, batch_size: int, loss: str = "latest loss"
    ) -> None:
        """Updates table and picture. Scores are in percent. `loss` names the last loss of each task."""
        latest, rows = losses.groupby("task")["loss"].last(), []
        for task, steps in drawn.items():
            metric = name_of(self.tasks[task], self.tasks[task].metrics[0])
            score = f"{shown_score(history[-1]['scores'][task][metric])} ({metric})" if history else "–"
            last = f"{latest[task]:.3f}" if task in latest else "–"
            rows.append([task_name(task), f"{steps:,}", f"{steps * batch_size:,}", last, score])
        headers = ["task", "steps", "steps × batch", loss, "dev score (%)"]
        self.numbers.value = table(headers, rows)
        self.picture.draw(lambda figure: draw_progress(losses, main_curves(history), figure.subplots(1, 2)))


def explore_training(config: RunConfig | None = None) -> Explorer:
    """An explorer of a run with this config (default: the preset `smoke`), in which method, schedule, steps and seed
    can be chosen. The run's folder is the one that `train(config)` would use."""
    return TrainingExplorer((config or RunConfig.from_dict({"preset": "smoke"})).with_steps())
