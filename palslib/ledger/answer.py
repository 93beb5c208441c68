"""The answer to the paper's question in five sentences, as far as the records give it (README, notebook 11)."""

from collections.abc import Sequence

import pandas as pd

from palslib.data.tasks import TASKS
from palslib.ledger.claims import SEEDS
from palslib.ledger.pilot import acting
from palslib.ledger.results import against, task_differences
from palslib.methods.table import LABELS

EDGE = 0.05
"""Points. An interval that ends as near to 0 as this decides by chance: one more seed may move it across."""


def answer(records: Sequence[dict], pilot: Sequence[dict] = ()) -> list[str]:
    """Five sentences on the question of the paper, as far as the records answer it."""
    differences = against(records).set_index("method")
    eight = against(records, "fine-tuned").set_index("method").loc["pals-204"]
    switched_off = acting(records)[1]
    return [
        f"PALs against sharing everything: {_said(differences.loc['pals-204'])}.",
        f"PALs against separate models, eight times the parameters and the same steps in all: {_said(eight)}.",
        _of_all_methods(differences[differences["seeds"] >= SEEDS]),
        _by_task(task_differences(records, "pals-204", "shared").set_index("task").loc[list(TASKS)]),
        _without_them(acting(pilot)[1] if switched_off.empty else switched_off),
    ]


def _of_all_methods(compared: pd.DataFrame) -> str:
    if len(compared) < 2:
        return "No other method has been compared with sharing on three seeds yet."
    low, high = compared["difference"] - compared["half"], compared["difference"] + compared["half"]
    best = compared["difference"].idxmax()
    counts = f"{(low > 0).sum()} did better than sharing and {(high < 0).sum()} worse"
    return (
        f"Of {len(compared)} methods with three seeds {counts}, each at 95 %; "
        f"{LABELS[best]} has the largest difference: {_said(compared.loc[best])}."
    )


def _by_task(tasks: pd.DataFrame) -> str:
    known = tasks[tasks["seeds"] >= SEEDS]
    if known.empty:
        return "By task, PALs against sharing: not answered yet."
    decided = known[known["verdict"] != "inconclusive"]["difference"]
    named = ", ".join(f"{task} {difference:+.1f}" for task, difference in decided.items())
    return f"By task PALs differ from sharing, each at 95 %, on {named or 'none'}."


def _without_them(differences: pd.DataFrame) -> str:
    """Of what switching PALs off changes, the largest gain and the largest loss among settings."""
    of = differences.groupby("setting", sort=False)["difference"].agg(["mean", "count"])
    means = of.loc[of["count"] >= SEEDS, "mean"]
    if means.empty:
        return "Switching PALs off changes the average by an amount not yet measured on three seeds."
    ends = (f"{means[i]:+.1f} points ({i.replace('$', '')})" for i in dict.fromkeys((means.idxmax(), means.idxmin())))
    return f"Switching PALs off changes the average by {' to '.join(ends)}."


def _said(row: pd.Series) -> str:
    """A difference, its interval, seeds and what follows."""
    if row["seeds"] < SEEDS:
        return f"not answered, with {row['seeds']:.0f} of {SEEDS} seeds"
    low, high = row["difference"] - row["half"], row["difference"] + row["half"]
    kind = "better" if low > 0 else "worse" if high < 0 else "no difference that so many runs can show"
    if min(abs(low), abs(high)) < EDGE:
        kind += ", but only just"
    return f"{row['difference']:+.2f} points ({low:+.2f} to {high:+.2f} at 95 %, {row['seeds']:.0f} seeds), {kind}"
