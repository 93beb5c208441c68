"""The answer to the paper's question in five sentences, as far as the records give it (README, notebook 11)."""

from collections.abc import Sequence

import pandas as pd

from palslib.data.tasks import TASK_LABELS, TASKS
from palslib.ledger.claims import SEEDS, holm, mean_and_half, on_the_edge
from palslib.ledger.pilot import acting
from palslib.ledger.results import against, task_differences
from palslib.methods.table import LABELS


def answer(records: Sequence[dict], pilot: Sequence[dict] = (), other_rates: Sequence[dict] = ()) -> list[str]:
    """Five sentences on the question of the paper, as far as the records answer it.

    Args:
        records: runs of one setting.
        pilot: used for the last sentence where `records` were not inspected.
        other_rates: runs with other learning rates of the adaptations, for the last sentence.
    """
    differences = against(records).set_index("method")
    eight = against(records, "fine-tuned").set_index("method").loc["pals-204"]
    switched_off = acting([*other_rates, *records])[1]
    return [
        f"PALs minus the fully shared model: {_said(differences.loc['pals-204'])}.",
        f"PALs minus eight separate models (eight times the parameters, the same steps in all): {_said(eight)}.",
        _of_all_methods(differences[differences["seeds"] >= SEEDS]),
        _by_task(task_differences(records, "pals-204", "shared").set_index("task").loc[list(TASKS)]),
        _without_them(acting(pilot)[1] if switched_off.empty else switched_off),
    ]


def _of_all_methods(compared: pd.DataFrame) -> str:
    if len(compared) < 2:
        return "No other method has been compared with the shared model on three seeds yet."
    alone, together = compared["p"] < 0.05, pd.Series(holm(list(compared["p"])), compared.index) < 0.05
    above, best = compared["difference"] > 0, compared["difference"].idxmax()
    return (
        f"Of {len(compared)} methods with at least {SEEDS} seeds, {(alone & above).sum()} scored above the shared "
        f"model and {(alone & ~above).sum()} below it, each by its own 95 % interval ({(together & above).sum()} and "
        f"{(together & ~above).sum()} after Holm's correction for {len(compared)}); "
        f"{LABELS[best]} has the largest difference: {_said(compared.loc[best])}."
    )


def _by_task(tasks: pd.DataFrame) -> str:
    """Tasks with a significant difference, with and without Holm's correction for their number."""
    known = tasks[tasks["seeds"] >= SEEDS].rename(index=TASK_LABELS)
    if known.empty:
        return "By task, PALs against the shared model: not answered yet."
    alone = known[known["p"] < 0.05]["difference"]
    together = known.index[pd.Series(holm(list(known["p"])), known.index) < 0.05]
    named = ", ".join(f"{task} {difference:+.1f}" for task, difference in alone.items()) or "none"
    corrected = f" (after Holm's correction: {', '.join(together) or 'none'})" if len(alone) else ""
    differ = "PALs differ from the shared model, each by its own 95 % interval,"
    return f"Of {len(known)} tasks, {differ} on {named}{corrected}."


def _without_them(differences: pd.DataFrame) -> str:
    """The sentence on removing PALs: the highest and the lowest mean change of the dev average among settings."""
    seeds = {name: list(of) for name, of in differences.groupby("setting", sort=False)["difference"]}
    known = {name: mean_and_half(of) for name, of in seeds.items() if len(of) >= SEEDS}
    if not known:
        return "What removing the PALs from the trained models changes has not been measured on three seeds yet."
    ends = (
        f"{known[name][0]:+.1f} ± {known[name][1]:.1f} points ({len(seeds[name])} seeds; {name.replace('$', '')})"
        for name in dict.fromkeys((max(known, key=known.get), min(known, key=known.get)))
    )
    return f"Removing the PALs from trained models changes the dev average by {' to '.join(ends)}."


def _said(row: pd.Series) -> str:
    """The text for a difference: its value, interval, number of seeds and verdict."""
    if row["seeds"] < SEEDS:
        return f"not answered, with {row['seeds']:.0f} of {SEEDS} seeds"
    low, high = row["difference"] - row["half"], row["difference"] + row["half"]
    kind = "better" if low > 0 else "worse" if high < 0 else "no difference that so many runs can show"
    if on_the_edge(row["difference"], row["half"]):
        kind += ", but only just"
    interval = f"95 % interval {low:+.2f} to {high:+.2f}, {row['seeds']:.0f} seeds"
    return f"{row['difference']:+.2f} points ({interval}): {kind}"
