"""The minBERT report's results beside ours, and the range of its similarity head (notebook 08; ledger C13, B16)."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from palslib.data.tasks import get_task
from palslib.figures.style import PAGE_WIDTH
from palslib.ledger.derivations import derive
from palslib.ledger.paper import MINBERT_TABLE_1, load_ledger
from palslib.ledger.selection import Selection
from palslib.records import summarise

COLUMNS = {"sst5": "sst", "quora": "qqp", "sts": "sts"}
"""Our name of each task -> its column in the report's table 1."""
LABELS = {"sst5": "SST-5", "quora": "Quora", "sts": "STS", "mean": "mean"}


def results_frame(records: Sequence[dict]) -> pd.DataFrame:
    """Tidy: columns `model`, `task` (and `mean`, of the three), `report` and `ours` in percent, `seeds`.

    A row of the report's table 1 is the runs that the ledger's C13 names for it, `ours` their mean over seeds; NaN
    where there is none. Raises ValueError where a seed comes twice: then runs of several settings were handed in.
    """
    rows, scores = [], []
    for (model, printed), need in zip(MINBERT_TABLE_1.items(), load_ledger()["C13"].needs, strict=False):
        name = " ".join(model)
        report = {task: 100 * printed[column] for task, column in COLUMNS.items()}
        report["mean"] = np.mean(list(report.values()))
        rows += [{"model": name, "task": task, "report": value} for task, value in report.items()]
        for record in filter(Selection.parse(need).matches, records):
            for task, values in record["results"]["last"]["scores"].items():
                scores.append((name, task, record["config"]["seed"], values[get_task(task).metrics[0]]))
    runs = pd.DataFrame(scores, columns=["model", "task", "seed", "ours"])
    ours = summarise(runs, ["model", "task"], "ours").set_index(["model", "task"])
    frame = pd.DataFrame(rows).set_index(["model", "task"])
    frame["ours"], frame["seeds"] = ours["mean"].astype(float), ours["seeds"]
    tasks = frame.drop(index="mean", level="task").groupby("model")
    for name in frame.index.unique("model"):  # a mean of fewer than three tasks would be no mean of the three
        frame.loc[(name, "mean"), "ours"] = tasks["ours"].get_group(name).mean(skipna=False)
        frame.loc[(name, "mean"), "seeds"] = tasks["seeds"].get_group(name).min(skipna=False)
    return frame.fillna({"seeds": 0}).astype({"seeds": int}).reset_index()


def results_table(frame: pd.DataFrame) -> pd.DataFrame:
    """What `results_frame` gives, as a page shows it: a row a model, and each task's score beside the report's."""
    models, rows = frame.groupby("model", sort=False), []
    for name, part in models:
        seeds = part["seeds"].min()
        row = {"model": name, "seeds": str(seeds) if seeds else "no record"}
        for line in part.itertuples():
            row |= {LABELS[line.task]: line.ours, f"{LABELS[line.task]} (report)": line.report}
        rows.append(row)
    return pd.DataFrame(rows)


def results_dots(frame: pd.DataFrame) -> Figure:
    """A panel a task: filled what was measured here, hollow what the report prints; lines join the two."""
    models = list(frame["model"].unique())[::-1]
    figure, axes = plt.subplots(1, len(LABELS), figsize=(PAGE_WIDTH, 2.9), sharey=True)
    for ax, (task, label) in zip(axes, LABELS.items(), strict=True):
        part = frame[frame["task"] == task].set_index("model").loc[models]
        y = np.arange(len(models))
        ax.hlines(y, part["report"], part["ours"], color="0.8", zorder=1)
        ax.scatter(part["report"], y, marker="D", s=22, facecolor="white", edgecolor="black", label="report", zorder=2)
        ax.scatter(part["ours"], y, s=26, color=sns.color_palette("colorblind")[0], label="ours", zorder=3)
        ax.set(title=label, xlabel="percent", yticks=y, yticklabels=models)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def similarity_range(labels: Sequence[float], ax: Axes | None = None) -> Axes:
    """How often each score from 0 to 5 occurs, and between which two 5·σ(cos) can answer (ledger B16)."""
    ax = ax or plt.gca()
    labels, (low, high) = np.asarray(labels), derive("B16")
    inside = (low <= labels) & (labels <= high)
    bins, blue = np.arange(-0.1, 5.2, 0.2), sns.color_palette("colorblind")[0]
    ax.hist([labels[inside], labels[~inside]], bins, stacked=True, color=[blue, "0.75"], edgecolor="white")
    ax.axvspan(low, high, color=blue, alpha=0.12, zorder=0)
    ax.set(xlabel="score", ylabel="pairs", xlim=(-0.2, 5.2))
    ax.set_title(f"{inside.mean():.0%} of the pairs lie between {low:.2f} and {high:.2f}")
    return ax
