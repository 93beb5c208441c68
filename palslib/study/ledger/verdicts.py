"""One verdict of `VERDICTS` for every row of the ledger; rows C by the rule in `claims.py`.

A row that does not get its expected verdict is marked `does not hold` (A), `not demonstrated` (B) or `not switchable`
(D).
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from palslib.common.places import RECORDS
from palslib.data.tasks import TASK_LABELS, Task
from palslib.grid.sweep import Grid
from palslib.methods.table import LABELS
from palslib.plan.config import RunConfig
from palslib.plan.recipes import RECIPES
from palslib.records import files_within, read_records
from palslib.study.ledger.claims import Verdict, claim_verdict
from palslib.study.ledger.derivations import agrees_with_ledger, examine, numbers, places, possible
from palslib.study.ledger.paper import Row, load_ledger

ASIDE = ("pilot", "same-rate", "trained", "heads", "precision", "tuning-bf16", "gem-300-steps", "minbert-150-steps")
ASIDE += ("tuning", "confirmation", "control", "bert-base-tuning")
"""Folders of records that decide no verdict: the pilot, from which the settings of the others were chosen; runs in
another setting beside it; models trained to be shipped; runs from before the plan (figures/records/FIRST_STUDY.md); and
tuning, confirmation and control of the second study, which has its own rule (`figures/records/second_study.py`).
`separate` is evidence."""
SECTION_4 = ("adapters-alone", "crowdflower", "gem-again", "gem-mixed", "minbert-again", "schedules", "today")
SECTION_4 += ("variants-longer",)
"""The grids of section 4 of the second study's plan: each decides once all its runs are there, since a verdict that is
looked at after every run would be reached by chance sooner or later."""

VERDICTS = ("holds", "derived", "does not follow", "within rounding", "reproduced", "not reproduced")
VERDICTS += ("too small to matter", "inconclusive", "not testable at this scale", "not run")
VERDICTS += ("switchable", "kept in both")
"""In the order in which verdicts are counted and drawn; notebook 06 says what each means."""

_NAMES = LABELS | TASK_LABELS
_NAMES |= {"sst": "SST", "sts": "STS", "mnli_m": "MNLI-m", "mnli_mm": "MNLI-mm", "qqp_acc": "QQP", "sick_e": "SICK-E"}
_NAMES |= {"sick_r": "SICK-R", "bert-large": "BERT-large", "mt-dnn": "MT-DNN"}
_NAMES |= {"square-root": "square root", "round-robin": "round robin"}
"""Name of a number in the ledger -> the words for it; others are words, with underscores."""


def format_values(values, decimals: int | None = None, between: str = "; ", even: bool = False) -> str:
    """The text of a ledger entry's numbers, thousands separated; floats with these decimals, by default each with its
    own, or, if they are to be `even`, all of a table with those of the longest.

    Values with names are separated by semicolons, those within a named value by commas; a single name is left out. A
    mean and its error are `79.17 ± 0.03`.
    """
    if values is None:
        return ""
    if isinstance(values, dict) and "error" in values:
        return f"{format_values(values.get('mean'))} ± {format_values(values['error'])}".strip()
    if isinstance(values, dict):
        if even:
            decimals = max((places(value) for value in values.values() if isinstance(value, float)), default=0)
        texts = {name: format_values(value, decimals, ", ", even) for name, value in values.items()}
        if len(texts) == 1:
            return texts.popitem()[1]
        tables = {name for name, value in values.items() if isinstance(value, dict) and "error" not in value}
        words = {name: _NAMES.get(name, name.replace("_", " ")) + (":" if name in tables else "") for name in texts}
        return between.join(f"{words[name]} {text}" for name, text in texts.items())
    if isinstance(values, int):
        return f"{values:,}"
    if 0 < abs(values) < 1e-4:
        return f"{values:g}"
    return f"{values:,.{places(values) if decimals is None else decimals}f}"


def _derived_verdict(row: Row) -> Verdict:
    text, agrees, follows = format_values(row.derived, even=True), agrees_with_ledger(row.id), examine(row).follows
    if row.kind == "A":
        holds = "derived" if row.published is None or row.source == "ours" else "holds"
        return Verdict(holds if agrees and follows else "does not hold", text, row.note)
    if follows or not agrees:
        return Verdict("not demonstrated", text, row.note)
    if not (ranges := possible(row)):
        return Verdict("does not follow", text, row.note)
    digits, may = max(map(places, numbers(row.derived))) + 1, {True: "may", False: "cannot"}
    texts = [f"{low:,.{digits}f} to {high:,.{digits}f}, which {may[fits]} be {n}" for low, high, n, fits in ranges]
    note = "; ".join(filter(None, [row.note, f"before rounding, {' · '.join(texts)}"]))
    within = all(fits for *_, fits in ranges)
    return Verdict("within rounding" if within else "does not follow", text, note)


def _switch_verdict(row: Row) -> Verdict:
    if not row.fields:
        return Verdict("kept in both", f"divided by {Task.scale:g}", row.note)
    if row.source == "ours":
        text = "; ".join(f"{name}: {getattr(RunConfig, name)} unless it is chosen" for name in row.fields)
        return Verdict("switchable", text, row.note)
    paper, released = RECIPES["paper"], RECIPES["released"]
    pairs = {name: (getattr(paper, name), getattr(released, name)) for name in row.fields}
    text = "; ".join(f"{name}: {ours} / {theirs}" for name, (ours, theirs) in pairs.items())
    differ = all(ours != theirs for ours, theirs in pairs.values())
    return Verdict("switchable" if differ else "not switchable", text, row.note)


def verdict(row: Row, records: Sequence[dict] = ()) -> Verdict:
    """The verdict on one row; `records` (as `read_records` returns them) decide rows C only."""
    if row.kind == "C":
        return claim_verdict(row, records)
    return _switch_verdict(row) if row.kind == "D" else _derived_verdict(row)


def evidence(folder: Path = RECORDS) -> list[dict]:
    """The records that decide verdicts: all of a folder except those in its folders `ASIDE`, and in those of
    `SECTION_4` that are not complete."""
    some = {name for name in SECTION_4 if len([*(folder / name).glob("*.json")]) < Grid.named(name).size}
    return read_records(p for p in files_within(folder) if not {*p.relative_to(folder).parts[:-1]} & {*ASIDE, *some})


def _of_the_second_study() -> dict[str, Verdict]:
    rows = pd.read_csv(RECORDS / "second-verdicts.csv", keep_default_na=False).itertuples()
    return {row.row: Verdict(row.verdict, row.value, row.note, tuple(row.files.split())) for row in rows}


def verdict_frame(records: Sequence[dict] | None = None) -> pd.DataFrame:
    """All rows in order: id, kind, source, statement, derivation, published, ours, verdict, note, files of records.

    Args:
        records: records of runs, as `read_records` returns them; by default `evidence()`, and for the rows that the
            second study decides, its verdicts (`second-verdicts.csv`).
    """
    decided = _of_the_second_study() if records is None else {}
    records = evidence() if records is None else records
    rows = []
    for row in load_ledger().values():
        outcome = decided.get(row.id) or verdict(row, records)
        note = "; ".join(filter(None, [outcome.note, row.note])) if row.kind == "C" else outcome.note
        decimals = places(row.unit) if isinstance(row.unit, float) and row.unit < 1 else None
        printed = format_values(row.published, decimals) or "–"
        texts = (row.id, row.kind, row.source, row.statement, row.derivation, printed)
        rows.append((*texts, outcome.value or "–", outcome.verdict, note, outcome.files))
    columns = ["id", "kind", "source", "statement", "derivation", "published", "ours", "verdict", "note", "files"]
    return pd.DataFrame(rows, columns=columns)
