"""The minBERT report's results and claims beside our runs (notebook 12; ledger C13)."""

from collections.abc import Iterator, Sequence
from statistics import multimode

import numpy as np
import pandas as pd

from palslib.data.tasks import get_task
from palslib.records import summarise
from palslib.study.ledger.arms import Term, named
from palslib.study.ledger.claims import Comparison
from palslib.study.ledger.paper import MINBERT_TABLE_1, load_ledger
from palslib.study.results.tables import usual_schedule

COLUMNS = {"sst5": "sst", "quora": "qqp", "sts": "sts"}
"""Our name of each task -> its column in the report's table 1."""
LABELS = {"sst5": "SST-5", "quora": "Quora", "sts": "STS", "mean": "mean"}
_KINDS = {"fine-tuned": "three BERTs", "shared": "shared", "pals-204": "PALs", "pals-324": "PALs, larger"}


def model_label(model: str) -> str:
    """The label of a row of the report's table: `pals-204 annealed` is `PALs, s = 204, annealed`."""
    method, schedule = model.split()
    label = f"PALs, s = {method.removeprefix('pals-')}" if method.startswith("pals-") else _KINDS[method]
    return label if schedule == "single-task" else f"{label}, {schedule.replace('-', ' ')}"


def _runs_of_table_1(records: Sequence[dict]) -> Iterator[tuple[str, dict]]:
    """The runs that the ledger's C13 names for the rows of the report's table 1, each with its row's name: those of one
    study, the one with the most runs."""
    runs = named(records)
    study = multimode(run["config"]["study"] for run in runs)[:1]
    runs = [run for run in runs if run["config"]["study"] in study]
    mixed = [run for run in runs if run["config"]["method"] == "fine-tuned" and len(run["config"]["tasks"]) > 1]
    for model, need in zip(MINBERT_TABLE_1, load_ledger()["C13"].needs, strict=True):
        for record in filter(Term.parse(need).matches, runs):
            if record not in mixed or record["config"]["schedule"] == usual_schedule(mixed):
                yield " ".join(model), record


def results_frame(records: Sequence[dict]) -> pd.DataFrame:
    """A tidy frame: columns `model`, `task` (the three, and `mean`), `report`, `ours`, `standard_error`, `seeds`.

    For each row of the report's table 1, `ours` is the mean over seeds, in percent, of the runs that the ledger's C13
    names for it; NaN without runs, and the standard error is NaN with one seed. A seed's `mean` is over its three
    tasks; a seed that lacks one has none. Raises ValueError if a seed occurs twice, as in runs of several settings.
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
    """The runs of the report's table over training: `model`, its `kind` and `schedule`, `seed`, `task`, `step`, `score`
    and `loss`.

    The score is on dev, in percent; the loss is the mean over training since the previous evaluation. There is a row
    for each task and evaluation.
    """
    columns = ["model", "kind", "schedule", "seed", "task", "step", "score", "loss"]
    rows = []
    for model, record in _runs_of_table_1(records):
        method, schedule = model.split()
        run = (model, _KINDS[method], schedule, record["config"]["seed"])
        for point in record["history"]:
            for task, scores in point["scores"].items():
                rows.append((*run, task, point["step"], scores[get_task(task).metrics[0]], point["loss"].get(task)))
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


def _term_label(term: Term) -> str:
    """The label of one side of a comparison of the report's claims."""
    method, *options = term.arm.split()
    method = "pals-324" if "size=348" in options else method  # MiniLM's 348 stands for the report's 324
    label = model_label(f"{method} {term.schedule}")
    return f"{label}, further pre-trained" if "pretraining=mlm" in options else label


def claim_in_words(comparison: Comparison) -> str:
    """What one of the report's claims states: `shared, annealed: no worse than PALs, s = 204, annealed on STS`."""
    (left,), (right,) = comparison.left, comparison.right
    relation = "better than" if comparison.relation == ">" else "no worse than"
    where = f" on {LABELS[comparison.task]}" if comparison.task else ""
    return f"{_term_label(left)}: {relation} {_term_label(right)}{where}"
