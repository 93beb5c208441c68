"""The answer to the paper's question in five sentences, as far as the records give it (README, notebook 11)."""

import math
from collections.abc import Sequence
from statistics import fmean

import pandas as pd

from palslib.data.tasks import TASK_LABELS, TASKS
from palslib.methods.table import LABELS
from palslib.study.ledger.claims import SEEDS, Comparison, holm, maker, mean_and_half, on_the_edge
from palslib.study.results.pilot import acting
from palslib.study.results.tables import SCHEDULES, against, task_differences


def answer(records: Sequence[dict], pilot: Sequence[dict] = (), own_rate: Sequence[dict] = ()) -> list[str]:
    """Five sentences on the question of the paper, as far as the records answer it.

    Args:
        records: runs of one setting.
        pilot: used for the last sentence where `records` were not inspected.
        own_rate: runs whose adaptations learn at BERT's own rate, for the first and the last sentence.
    """
    differences = against(records).set_index("method")
    eight = against(records, "fine-tuned").set_index("method")
    switched_off = acting([*own_rate, *records])[1]
    separate = "eight separate models (eight times the parameters, the same steps in all)"
    return [
        _of_pals(looks(records, own_rate)),
        f"PALs minus {separate}: {_said(eight.loc['pals-204'])}{_for_comparison(eight.loc['shared'])}.",
        _of_all_methods(differences[differences["seeds"] >= SEEDS]),
        _by_task(task_differences(records, "pals-204", "shared").set_index("task").loc[list(TASKS)]),
        _without_them(acting(pilot)[1] if switched_off.empty else switched_off),
    ]


def looks(records: Sequence[dict], own_rate: Sequence[dict] = ()) -> pd.DataFrame:
    """PALs minus the shared model, looked at in several ways: `what`, `difference`, `half` (of its 95 % interval) and
    `seeds`. The first row is the main comparison, the last the paper's one learning rate for all parameters.

    The first three seeds are those that all methods have; the last three are a look of their own if they are others.
    """

    def pairs(schedule: str = "annealed", what: str = "average", of: Sequence[dict] = records) -> dict[int, float]:
        outcome = Comparison.parse(f"pals-204 {schedule} > shared {schedule} : {what}").decide(of)
        return dict(zip(outcome.seeds, outcome.differences, strict=True))

    main, tasks = pairs(), [pairs(what=task) for task in TASKS if task != "cola"]
    seeds, common = sorted(main), sorted(set.intersection(*map(set, tasks)))
    parts = [seeds[:SEEDS]] * (len(seeds) > SEEDS) + [seeds[-SEEDS:]] * (len(seeds) >= 2 * SEEDS)
    makers = sorted({maker(record) for record in records})
    shared = [record for record in records if record["config"]["method"] == "shared"]
    found = {"annealed sampling, all seeds": main}
    found["without CoLA"] = {seed: fmean(of[seed] for of in tasks) for seed in common}
    found |= {f"seeds {', '.join(map(str, part))} alone": {seed: main[seed] for seed in part} for part in parts}
    if len(makers) > 1:
        found |= {f"runs on {name} alone": pairs(of=[r for r in records if maker(r) == name]) for name in makers}
    found |= {f"{schedule} sampling": pairs(schedule) for schedule in SCHEDULES if schedule != "annealed"}
    found["at BERT's own rate, as in the paper"] = pairs(of=[*shared, *own_rate])
    rows = [(what, *mean_and_half([*of.values()] or [math.nan]), len(of)) for what, of in found.items()]
    return pd.DataFrame(rows, columns=["what", "difference", "half", "seeds"])


def _of_pals(looks: pd.DataFrame) -> str:
    """The main comparison, how far the other looks at it agree, and the paper's own rate."""
    main, own_rate, others = looks.iloc[0], looks.iloc[-1], looks.iloc[1:-1]
    said, others = f"PALs minus the fully shared model: {_said(main)}.", others[others["seeds"] >= SEEDS]
    if len(others):
        low, high = others["difference"].min(), others["difference"].max()
        kinds = [_kind(*of) for of in others[["difference", "half"]].itertuples(index=False)]
        said += f" Other looks ({len(others)}, such as without CoLA; notebook 11): {low:+.2f} to {high:+.2f}, by their "
        said += f"own intervals {kinds.count(_BETTER)} better and {kinds.count(_WORSE)} worse."
    if own_rate["seeds"] >= SEEDS:
        said += f" At BERT's own rate for the PALs, as in the paper: {_points(*own_rate[['difference', 'half']])}"
        said += f" ({own_rate['seeds']} seeds)."
    return said


def _for_comparison(shared: pd.Series) -> str:
    known = shared["seeds"] >= SEEDS
    return f" (the shared model minus them: {_points(shared['difference'], shared['half'])})" if known else ""


def _of_all_methods(compared: pd.DataFrame) -> str:
    if len(compared) < 2:
        return "No other method has been compared with the shared model on three seeds yet."
    alone, together = compared["p"] < 0.05, pd.Series(holm(list(compared["p"])), compared.index) < 0.05
    above, best = compared["difference"] > 0, compared["difference"].idxmax()
    named = [", ".join(f'"{LABELS[m]}"' for m in compared.index[together & side]) for side in (above, ~above)]
    left = [f"{names or 'none'} {side}" for names, side in zip(named, ("above", "below"), strict=True)]
    if "pals-204" in compared.index and alone["pals-204"] and not together["pals-204"]:
        left.append("PALs no longer")
    return (
        f"Of {len(compared)} methods with at least {SEEDS} seeds, {(alone & above).sum()} scored above the shared "
        f"model and {(alone & ~above).sum()} below it, each by its own 95 % interval (after Holm's correction for "
        f"{len(compared)}: {'; '.join(left)}); "
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
    known = differences.dropna(subset="difference").groupby("setting", sort=False)["difference"]
    seeds = {name: list(of) for name, of in known}
    known = {name: mean_and_half(of) for name, of in seeds.items() if len(of) >= SEEDS}
    if not known:
        return "What removing the PALs from the trained models changes has not been measured on three seeds yet."
    ends = (
        f"{known[name][0]:+.1f} ± {known[name][1]:.1f} points ({len(seeds[name])} seeds; at {name.replace('$', '')})"
        for name in dict.fromkeys((max(known, key=known.get), min(known, key=known.get)))
    )
    return f"Removing the PALs from trained models changes the dev average by {' to '.join(ends)}."


def _points(difference: float, half: float) -> str:
    return f"{difference:+.2f} ± {half:.2f}"


def _said(row: pd.Series) -> str:
    """The text for a difference: its value, interval, number of seeds and verdict."""
    if row["seeds"] < SEEDS:
        return f"not answered, with {row['seeds']:.0f} of {SEEDS} seeds"
    difference, half = row["difference"], row["half"]
    interval = f"95 % interval {difference - half:+.2f} to {difference + half:+.2f}, {row['seeds']:.0f} seeds"
    return f"{difference:+.2f} points ({interval}): {_kind(difference, half)}"


_BETTER, _WORSE = "better", "worse"


def _kind(difference: float, half: float) -> str:
    """What a difference ± half of its 95 % interval shows."""
    if on_the_edge(difference, half):
        return "this ends at 0, and one more seed may decide either way"
    if abs(difference) <= half:
        return "no difference that so many runs can show"
    return _BETTER if difference > 0 else _WORSE
