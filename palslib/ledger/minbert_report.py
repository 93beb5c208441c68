"""The minBERT report's results beside ours, and the range of its similarity head (notebook 12; ledger C13, B16)."""

from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from palslib.data.tasks import get_task
from palslib.figures.style import PAGE_WIDTH
from palslib.ledger.claims import Comparison
from palslib.ledger.derivations import derive
from palslib.ledger.paper import MINBERT_TABLE_1, load_ledger
from palslib.ledger.selection import Selection
from palslib.records import summarise

COLUMNS = {"sst5": "sst", "quora": "qqp", "sts": "sts"}
"""Our name of each task -> its column in the report's table 1."""
LABELS = {"sst5": "SST-5", "quora": "Quora", "sts": "STS", "mean": "mean"}


def model_label(model: str) -> str:
    """The label of a row of the report's table: `pals-204 annealed` is `PALs, s = 204, annealed`."""
    method, schedule = model.split()
    labels = {"fine-tuned": "one BERT a task", "shared": "shared"}
    label = labels.get(method) or f"PALs, s = {method.removeprefix('pals-')}"
    return label if schedule == "single-task" else f"{label}, {schedule.replace('-', ' ')}"


def _runs_of_table_1(records: Sequence[dict]) -> Iterator[tuple[str, dict]]:
    """The runs that the ledger's C13 names for the rows of the report's table 1, each with its row's name."""
    for model, need in zip(MINBERT_TABLE_1, load_ledger()["C13"].needs, strict=True):
        for record in filter(Selection.parse(need).matches, records):
            yield " ".join(model), record


def results_frame(records: Sequence[dict]) -> pd.DataFrame:
    """A tidy frame: columns `model`, `task` (the three, and `mean`), `report`, `ours`, `standard_error`, `seeds`.

    For each row of the report's table 1, `ours` is the mean over seeds, in percent, of the runs that the ledger's C13
    names for it; NaN without runs, and the standard error is NaN with one seed. A seed's `mean` is that of its three
    tasks; a seed without all three has none. Raises ValueError if a seed occurs twice, as in runs of several settings.
    """
    rows = []
    for model, printed in MINBERT_TABLE_1.items():
        report = {task: 100 * printed[column] for task, column in COLUMNS.items()}
        report["mean"] = np.mean(list(report.values()))
        rows += [{"model": " ".join(model), "task": task, "report": value} for task, value in report.items()]
    scores = [
        (model, task, record["config"]["seed"], values[get_task(task).metrics[0]])
        for model, record in _runs_of_table_1(records)
        for task, values in record["results"]["last"]["scores"].items()
    ]
    runs = pd.DataFrame(scores, columns=["model", "task", "seed", "ours"]).astype({"ours": float})
    each = summarise(runs, ["model", "task"], "ours")  # first, since it raises ValueError for a repeated seed
    whole = runs.pivot(index=["model", "seed"], columns="task", values="ours").reindex(columns=list(COLUMNS))
    means = whole.mean(axis=1, skipna=False).rename("ours").reset_index().assign(task="mean")
    ours = pd.concat([each, summarise(means, ["model", "task"], "ours")]).rename(columns={"mean": "ours"})
    frame = pd.DataFrame(rows).merge(ours, "left", ["model", "task"]).fillna({"seeds": 0})
    return frame.astype({"ours": float, "standard_error": float, "seeds": int})


def curves_frame(records: Sequence[dict]) -> pd.DataFrame:
    """The runs of the report's table over training: `model`, `seed`, `task`, `step`, `score` and `loss`.

    The score is of dev, in percent; the loss is the mean over training since the evaluation before. There is a row for
    each task and evaluation.
    """
    columns = ["model", "seed", "task", "step", "score", "loss"]
    rows = [
        (model, record["config"]["seed"], task, at["step"], values[get_task(task).metrics[0]], at["loss"].get(task))
        for model, record in _runs_of_table_1(records)
        for at in record["history"]
        for task, values in at["scores"].items()
    ]
    return pd.DataFrame(rows, columns=columns).astype({"score": float, "loss": float})


def rank_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """The places by mean (1 is best) of the models that were run, in the report and here: `model`, `report`, `ours`."""
    part = frame[(frame["task"] == "mean") & frame["ours"].notna()]
    places = part[["report", "ours"]].rank(ascending=False, method="min").astype(int)
    return pd.concat([part["model"], places], axis=1).reset_index(drop=True)


def _cell(mean: float, error: float) -> str:
    text = "not run" if np.isnan(mean) else f"{mean:.1f}" if np.isnan(error) else f"{mean:.1f} ± {error:.1f}"
    return text.replace(" ", "\u00a0")  # no line break, also in a narrow column


def results_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame of `results_frame` as text: a row for each model, mean ± standard error beside the report's score.

    The last two columns are the places by the mean of the three tasks, among the models that were run.
    """
    rows = []
    places = rank_frame(frame).set_index("model")
    for name, part in frame.groupby("model", sort=False):
        row = {"model": model_label(name), "seeds": part["seeds"].min()}
        for line in part.itertuples():
            label = LABELS[line.task]
            row |= {label: _cell(line.ours, line.standard_error), f"{label} (report)": f"{line.report:.1f}"}
        for column in ("ours", "report"):
            row[f"place ({column})"] = str(places.loc[name, column]) if name in places.index else "–"
        rows.append(row)
    return pd.DataFrame(rows)


def _term_label(term: Selection) -> str:
    """The label of one side of a comparison in rows C13 to C13e."""
    size = {348: "324"}.get(term.options.get("size"))  # MiniLM's 348 stands for the report's 324
    label = model_label(f"{f'pals-{size}' if size else term.method} {term.schedule}")
    return f"{label}, further pre-trained" if term.options.get("pretraining") else label


def claims_frame(records: Sequence[dict]) -> pd.DataFrame:
    """The report's claims, a row for each comparison of C13 to C13e: its `row`, what is `compared`, and the `verdict`.

    `difference` is the mean over pairs of runs of one seed, in points, `half` half its 95 % interval, `seeds` how many.
    """
    rows = []
    for row in (row for row in load_ledger().values() if row.id.startswith("C13")):
        for text in row.compare:
            comparison = Comparison.parse(text)
            (left,), (right,) = comparison.left, comparison.right
            relation = "better than" if comparison.relation == ">" else "no worse than"
            line = {"row": row.id, "compared": f"{_term_label(left)}: {relation} {_term_label(right)}"}
            outcome = comparison.decide(records)
            rows.append(line | outcome.cells | {"verdict": outcome.verdict_for(row)})
    return pd.DataFrame(rows)


def results_dots(frame: pd.DataFrame) -> Figure:
    """Scores, a panel for each task and the mean, and places by mean: filled dots are ours, hollow ones the report's.

    Bars are standard errors over seeds.
    """
    models, blue = list(frame["model"].unique())[::-1], sns.color_palette("colorblind")[0]
    y = np.arange(len(models))
    figure, axes = plt.subplots(1, len(LABELS) + 1, figsize=(PAGE_WIDTH * 1.15, 3.1), sharey=True)
    panels = {label: frame[frame["task"] == task] for task, label in LABELS.items()}
    panels["place by mean"] = rank_frame(frame).assign(standard_error=np.nan)
    for ax, (label, part) in zip(axes, panels.items(), strict=True):
        part = part.set_index("model").reindex(models)
        ax.hlines(y, part["report"], part["ours"], color="0.8", zorder=1)
        ax.scatter(part["report"], y, marker="D", s=22, facecolor="white", edgecolor="black", label="report", zorder=2)
        error = part["standard_error"].fillna(0)
        ax.errorbar(part["ours"], y, xerr=error, fmt="o", markersize=5, color=blue, label="ours", zorder=3)
        ax.set(title=label, xlabel="percent", yticks=y, yticklabels=list(map(model_label, models)))
        ax.margins(x=0.1)  # no dot on the edge
    places = range(1, max(4, len(panels["place by mean"])) + 1)
    axes[-1].set(xlabel="1 is best", xticks=places, xlim=(0.5, len(places) + 0.5))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def training_curves(frame: pd.DataFrame) -> Figure:
    """Dev scores (above) and training losses (below) over steps, means over seeds; `frame` as from `curves_frame`."""
    kinds = {"fine-tuned": "one BERT a task", "shared": "shared", "pals-204": "PALs", "pals-324": "PALs, larger"}
    colours = dict(zip(("annealed", "round-robin", "proportional"), sns.color_palette("colorblind"), strict=False))
    parts = frame["model"].str.split(" ").str
    frame = frame.assign(kind=parts[0].map(kinds), schedule=parts[1])
    look = {"hue": "schedule", "palette": colours | {"single-task": "black"}}
    look |= {"style": "kind", "style_order": list(kinds.values()), "marker": "o", "errorbar": None}
    figure, axes = plt.subplots(2, len(COLUMNS), figsize=(PAGE_WIDTH, 4.6), sharex=True)
    shown = {}
    for column, task in zip(axes.T, COLUMNS, strict=True):
        for ax, value in zip(column, ("score", "loss"), strict=True):
            sns.lineplot(frame[frame["task"] == task], x="step", y=value, ax=ax, **look)
            shown |= dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
            ax.legend([], frameon=False)
            ax.set(xlabel="training step", ylabel="")
        column[0].set_title(LABELS[task])
    axes[0, 0].set_ylabel("dev score (%)")
    axes[1, 0].set_ylabel("training loss")
    there = {*frame["kind"], *frame["schedule"]}
    shown = {label: shown[label] for label in (*kinds.values(), *colours) if label in there}
    figure.legend(shown.values(), shown, loc="outside lower center", ncols=4)
    return figure


def similarity_range(labels: Sequence[float], ax: Axes) -> Axes:
    """A histogram of the scores from 0 to 5, with the range of 5·σ(cos) marked (ledger B16)."""
    labels, (low, high) = np.asarray(labels), derive("B16")
    inside = (low <= labels) & (labels <= high)
    bins, blue = np.arange(-0.1, 5.2, 0.2), sns.color_palette("colorblind")[0]
    ax.hist([labels[inside], labels[~inside]], bins, stacked=True, color=[blue, "0.75"], edgecolor="white")
    ax.axvspan(low, high, color=blue, alpha=0.12, zorder=0)
    ax.set(xlabel="score", ylabel="pairs", xlim=(-0.2, 5.2))
    ax.set_title(f"{inside.mean():.0%} of the pairs lie between {low:.2f} and {high:.2f}")
    return ax
