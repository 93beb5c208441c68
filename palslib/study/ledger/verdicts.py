"""One verdict of `VERDICTS` for every row of the ledger; rows C by the rule in `claims.py`.

A row that does not get its expected verdict is marked `does not hold` (A), `not demonstrated` (B) or `not switchable`
(D).
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pandas as pd

from palslib.common.places import RECORDS
from palslib.data.tasks import Task
from palslib.plan.config import RunConfig
from palslib.plan.recipes import RECIPES
from palslib.records import files_within, read_records
from palslib.study.ledger.claims import Verdict, claim_verdict
from palslib.study.ledger.derivations import agrees_with_ledger, derive, near, numbers, places, possible
from palslib.study.ledger.paper import Row, load_ledger

ASIDE = ("pilot", "same-rate", "trained", "heads", "precision", "tuning-bf16", "gem-300-steps", "minbert-150-steps")
ASIDE += ("tuning", "confirmation", "bert-base-tuning")
"""Folders of records that decide no verdict: the pilot, from which the settings of the others were chosen; runs in
another setting beside it; models trained to be shipped; runs from before the plan (figures/records/FIRST_STUDY.md); and
tuning and confirmation of the second study, which has its own rule (`results/second.py`). `separate` is evidence."""

VERDICTS = {
    "holds": "A: derived here, and equal",
    "does not follow": "B: derived here, and different",
    "within rounding": "B: different, but not for every value that its rounded inputs can have had",
    "reproduced": "C: here, several seeds agree with the claim",
    "not reproduced": "C: here, several seeds contradict it",
    "too small to matter": "C: a difference lies within the margin, whatever it is; any others are as claimed",
    "inconclusive": "C: too few seeds, or too wide an interval",
    "not testable at this scale": "C: what it rests on takes longer runs than there are",
    "not run": "C: the runs that would decide do not exist",
    "switchable": "D: a field of the recipe or of a run, or several",
    "kept in both": "D: no difference between the recipes",
}
"""Verdict -> its meaning, in the order in which verdicts are counted and drawn."""


def _near(unit: float, of: Callable = all) -> Callable[[list, list], bool]:
    """A check that all (or `any`) printed numbers equal the derived ones at their positions, rounded to `unit`."""
    return lambda p, v: of(near(b, a, unit) for a, b in zip(p, v, strict=True))


# Checks whether the printed numbers follow: p are those of `published`, v the derived ones, each flattened in order.
# Rows A expect True, rows B False. Rows A without a printed number are absent: only their derivation counts.
_FOLLOWS: dict[str, Callable[[list, list], bool]] = {
    **dict.fromkeys(("A21", "A23", "A24", "B9", "B19", "B21"), _near(0.1)),
    **dict.fromkeys(("A19", "A25", "B15"), _near(1)),
    **{"A1": _near(1e7), "A28": _near(1e5), "B12": _near(0.001), "B14": _near(1e6)},
    **{"B5": _near(1, any), "B8": _near(0.1, any), "B16": _near(0.01, any)},
    "A3": lambda p, v: _near(1e5)(p, v[:1]),
    **{row: lambda p, v: near(v[1], p[0], 0.01) for row in ("A4", "A5", "A6", "A7", "A9")},
    "A10": lambda p, v: near(v[2], p[0], 0.01) and near(v[3], p[0], 0.01),
    "A13": lambda p, v: v[1] <= p[0],
    "A18": lambda p, v: near(v[0] - v[1], p[0], 0.1),
    "A20": lambda p, v: p[0] == p[1] * p[2] == v[0] and near(v[1], p[3] * p[0], 1),
    "A22": lambda p, v: [b for b, a in zip(p, v, strict=True) if not near(a, b, 0.001)] == [p[4]],
    "A26": lambda p, v: near(v[0], p[0], 1e7) and near(v[1], p[1], 1),
    "A27": lambda p, v: p[:3] == v[:3] and p[3] <= v[3],
    "B1": lambda p, v: near(v[0], p[0], 1e6) or any(near(v[1], ratio, 0.01) for ratio in p[1:]),
    "B2": lambda p, v: not _near(0.1)(p, v[:4]) or _near(0.1, any)(p, v[4:]),
    "B3": lambda p, v: _near(1e6)(p, v[:1]),  # the printed value is the second
    "B4": lambda p, v: near(v[1], p[1], 0.01),
    "B6": lambda p, v: v[0] == p[1],
    "B7": lambda p, v: _near(0.001, any)(p, v[:2]),  # plain means; the note says what the shifted ones give
    "B10": lambda p, v: v[0] in p,
    "B11": lambda p, v: v[0] == v[1],
    "B13": lambda p, v: near(v[0], p[1], 0.01),
    "B17": lambda p, v: v[0] <= p[0] or v[1] <= p[1],
    "B18": lambda p, v: p[0] == v[0],
    "B20": lambda p, v: near(v[0], 0, 0.1) or near(v[1], 0, 0.1),
}

_NOTES = {
    "A1": "the printed number is rounded to two figures",
    "A3": "minbert's 1.8 million is rounded to two figures",
    "A22": "all but the fifth, which B12 takes up",
    "A25": "by the ratio as printed to three places; 7.06 by the exact one",
    "A26": "both printed numbers are rounded, to two figures and to one",
    "A27": "low rank could have 101; the paper took 100",
    "B2": "with the first numbers none of the four averages comes out",
    "B3": "the printed value is the second, with d_i = d",
    "B6": "half a pass over 156,090 examples is 1,951 steps of 40, or 2,439 of 32; neither reading is preferred",
    "B7": "the second average is the fourth value, with (r + 1)/2 for STS; the first is none of them",
    "B14": "where 127 million comes from is not known",
    "B18": "Houlsby's scores on the twelve are not printed; full fine-tuning wins seven, and what decides is one task",
    "B20": "the same baseline printed twice",
    "D3": "of CoLA's 131 batches 16 have one label: 915 of 1,043 rows count",
    "D13": "a pooler for each task is an option of the method",
    "D16": "in Task.scale",
}


def format_values(values, like=None) -> str:
    """The text of a ledger entry's numbers, thousands separated, with as many decimals as `like` has.

    Named and nested lists are separated by semicolons. In one list, all but integers get the same number of decimals.
    """
    like = values if like is None else like
    if isinstance(values, dict):
        return "; ".join(f"{name.replace('_', ' ')} {format_values(value)}" for name, value in values.items())
    if isinstance(values, list):
        if any(isinstance(value, list) for value in values):
            return "; ".join(format_values(v, k) for v, k in zip(values, like, strict=True))
        most = max((places(k) for k in like if k is not None), default=0)
        likes = [k if k is None or isinstance(k, int) else round(0.1**most, most) for k in like]
        return " · ".join(format_values(v, k) or "–" for v, k in zip(values, likes, strict=True))
    if values is None:
        return ""
    if 0 < abs(values) < 1e-4:
        return f"{values:g}"
    half_up = Decimal(repr(round(values, 9))).quantize(Decimal(10) ** -places(like), ROUND_HALF_UP)
    return f"{half_up:,}"


def _derived_verdict(row: Row) -> Verdict:
    values = derive(row.id)
    text, note = format_values(values, row.derived), _NOTES.get(row.id, "")
    if not agrees_with_ledger(row.id):
        note = f"the ledger states {format_values(row.derived)}"
        return Verdict("does not hold" if row.kind == "A" else "not demonstrated", text, note)
    follows = row.id not in _FOLLOWS or _FOLLOWS[row.id](numbers(row.published), numbers(values))
    if row.kind == "A":
        return Verdict("holds" if follows else "does not hold", text, note)
    if follows:
        return Verdict("not demonstrated", text, note)
    if not (ranges := possible(row)):
        return Verdict("does not follow", text, note)
    digits, may = max(map(places, numbers(row.derived))) + 1, {True: "may", False: "cannot"}
    said = [f"{low:,.{digits}f} to {high:,.{digits}f}, which {may[fits]} be {n}" for low, high, n, fits in ranges]
    note = "; ".join(filter(None, [note, f"before rounding, {' · '.join(said)}"]))
    within = all(fits for *_, fits in ranges)
    return Verdict("within rounding" if within else "does not follow", text, note)


def _switch_verdict(row: Row) -> Verdict:
    note = _NOTES.get(row.id, "")
    if not row.fields:
        return Verdict("kept in both", f"divided by {Task.scale:g}", note)
    if row.source == "ours":
        text = "; ".join(f"{name}: {getattr(RunConfig, name)} unless it is chosen" for name in row.fields)
        return Verdict("switchable", text, note)
    pairs = {name: [getattr(RECIPES[recipe], name) for recipe in ("paper", "released")] for name in row.fields}
    text = "; ".join(f"{name}: {paper} / {released}" for name, (paper, released) in pairs.items())
    differ = all(paper != released for paper, released in pairs.values())
    return Verdict("switchable" if differ else "not switchable", text, note)


def verdict(row: Row, records: Sequence[dict] = ()) -> Verdict:
    """The verdict on one row; `records` (as `read_records` returns them) decide rows C only."""
    if row.kind == "C":
        return claim_verdict(row, records)
    return _switch_verdict(row) if row.kind == "D" else _derived_verdict(row)


def evidence(folder: Path = RECORDS) -> list[dict]:
    """The records that decide verdicts: all of a folder except those in its folders `ASIDE`."""
    return read_records(p for p in files_within(folder) if not {*p.relative_to(folder).parts[:-1]} & {*ASIDE})


def verdict_frame(records: Sequence[dict] | None = None, decided: Mapping[str, Verdict] | None = None) -> pd.DataFrame:
    """All rows in order: id, kind, source, statement, derivation, published, ours, verdict, note, files of records.

    Args:
        records: records of runs, as `read_records` returns them; by default `evidence()`.
        decided: verdicts by row that take the place of those by `records`.
    """
    records = evidence() if records is None else records
    rows = []
    for row in load_ledger().values():
        found = (decided or {}).get(row.id) or verdict(row, records)
        said = (row.id, row.kind, row.source, row.statement, row.derivation, format_values(row.published) or "–")
        rows.append((*said, found.value or "–", found.verdict, found.note, found.files))
    columns = ["id", "kind", "source", "statement", "derivation", "published", "ours", "verdict", "note", "files"]
    return pd.DataFrame(rows, columns=columns)
