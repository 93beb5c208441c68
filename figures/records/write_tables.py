"""The CSV files of this folder, from its records; a test computes each again.

`python figures/records/write_tables.py` writes the files, as does `make numbers`; after a look,
`second_beside.py` comes first.
"""

from statistics import fmean

import pandas as pd
import second_beside
import second_study
from second_study import read_second

from palslib.common.places import RECORDS
from palslib.common.reading import read_object
from palslib.data.metrics import main_scores
from palslib.grid.sweep import Grid
from palslib.methods.table import LABELS
from palslib.records import read_records
from palslib.study.ledger.claims import maker
from palslib.study.ledger.intervals import paired
from palslib.study.ledger.paper import load_ledger
from palslib.study.ledger.verdicts import evidence
from palslib.study.results.acting import setting_name
from palslib.study.results.tables import COMPARED, label, of_study

RATES = ["learning_rate", "adaptation_rate"]
SCORES = ["dev average", "without CoLA", "CoLA", "switched off"]


def row_of(record: dict) -> dict:
    """A run's arm, settings and scores; `fields` are those of its recipe that were switched."""
    config, last, off = record["config"], record["results"]["last"], record["results"].get("switched off")
    row = {name: config[name] for name in ("arm", "method", "schedule", "seed", "steps", "recipe", *RATES)}
    row |= {"setting": setting_name(record), "size": record["method"].get("size"), "maker": maker(record)}
    row |= {"fields": ", ".join(sorted(config["recipe_options"]))}
    scores = main_scores(last["scores"])
    row |= {"dev average": last["dev_average"], "CoLA": scores.pop("cola"), "without CoLA": fmean(scores.values())}
    return row | {"switched off": off["dev_average"] - last["dev_average"] if off else None}


def runs_in(records: list[dict]) -> pd.DataFrame:
    return pd.DataFrame(map(row_of, records)).astype(dict.fromkeys(SCORES, float))


def first_study() -> pd.DataFrame:
    return runs_in(of_study(evidence(), "first study"))


def in_pairs(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    """A row for each seed of both, with its `difference`. Of repeated runs those from processors of one maker count
    (of several such makers, the alphabetically last); whether there are none is told in `other processor`."""
    pairs = left.merge(right, on="seed", suffixes=("", " right"))
    pairs["other processor"] = pairs["maker"] != pairs["maker right"]
    pairs["difference"] = pairs["dev average"] - pairs["dev average right"]
    pairs = pairs.sort_values(["other processor", "maker"], ascending=[False, True])
    return pairs.drop_duplicates("seed", keep="last").sort_values("seed")


def variants() -> pd.DataFrame:
    """The first study's annealed runs of other methods than the compared ones, or with options: minus `shared`, and
    minus the method without the options."""
    runs, rows = first_study().query("schedule == 'annealed'"), []
    for arm, part in runs.groupby("arm", sort=False):
        if arm in (*COMPARED, ""):  # deviations from the paper's recipe have no arm
            continue
        scores, shared = part["dev average"], in_pairs(part, runs[runs["arm"] == "shared"])
        row = {"run": label(arm), "size": part["size"].iloc[-1], "mean": scores.mean(), "error": scores.sem()}
        row |= {"seeds": len(part), "minus shared": in_words(shared)}
        row |= {"other processor": shared["other processor"].sum()}
        plain = in_pairs(part, runs[runs["arm"] == arm.split()[0]])
        rows.append(row | {"minus the method as it stands": in_words(plain)})
    return pd.DataFrame(rows)


def in_words(pairs: pd.DataFrame) -> str:
    return f"{paired(pairs['difference'].tolist()).text} ({len(pairs)})"


def deviations() -> pd.DataFrame:
    """Runs with one or all of the released code's deviations (rows D of the ledger) minus the paper's recipe, at the
    same rate of the adaptations."""
    runs = pd.concat([first_study(), runs_in(read_records(RECORDS / "same-rate"))])
    row_of_field = {field: row.id for row in load_ledger().values() if row.kind == "D" for field in row.fields}
    rows, same = [], ["method", "schedule", "adaptation_rate"]
    switched = runs[(runs["fields"] != "") | (runs["recipe"] == "released")]
    for (fields, *values), part in switched.groupby(["fields", *same], sort=False):
        plain = runs[(runs["arm"] == runs["method"]) & (runs[same] == values).all(axis=1)]
        pairs = in_pairs(part, plain)
        row = {"row": row_of_field.get(fields.split(", ")[0], "all"), "fields": fields}
        row |= dict(zip(("method", "schedule", "rate"), values, strict=True))
        row |= paired(pairs["difference"].tolist()).cells | {"seeds": len(pairs)}
        row |= {"undefined": pairs["difference"].isna().sum(), "other processor": pairs["other processor"].sum()}
        rows.append(row)
    order = [*load_ledger(), "all"]
    return pd.DataFrame(rows).sort_values("row", key=lambda names: names.map(order.index), kind="stable")


def looks() -> pd.DataFrame:
    """PALs minus shared after the seeds of each look: five were planned, and three added because the interval of five
    ended at 0."""
    runs = first_study().query("schedule == 'annealed'")
    pairs = in_pairs(runs[runs["arm"] == "pals-204"], runs[runs["arm"] == "shared"])
    means = [pairs["difference"].head(seeds).mean() for seeds in (3, 5, 8)]
    return pd.DataFrame({"seeds": (3, 5, 8), "difference": means})


def tuning() -> pd.DataFrame:
    """The settings of the second study's tuning. Of a method's settings the one with the highest mean score on held-out
    training rows is chosen; of equal ones the one with the lowest rates (figures/records/PLAN.md)."""
    runs = runs_in(read_records(RECORDS / "tuning"))
    table = runs.groupby(["method", "setting", *RATES])["dev average"].agg(seeds="size", mean="mean").reset_index()
    best = table.sort_values(["mean", *RATES], ascending=[False, True, True]).drop_duplicates("method")
    table["chosen"] = table["setting"].isin(best["setting"])
    order = [run["setting"] for run in Grid.named("tuning").runs]
    return table.sort_values("setting", key=lambda names: names.map(order.index))


def pilot() -> pd.DataFrame:
    """The settings of the pilot. Rule 3 of FIRST_STUDY.md chooses, of PALs' settings with 2,000 steps whose score falls
    by a point or more without their PALs, the one with the best score."""
    runs = runs_in(read_records(RECORDS / "pilot")).rename(columns={"learning_rate": "rate"})
    runs["setting"] = runs["setting"].where(runs["method"] != "shared", "–")
    runs["method"] = runs["method"].map(LABELS)
    runs = runs.sort_values(["method", "rate", "steps", "adaptation_rate", "setting"])
    groups = runs.groupby(["method", "rate", "steps", "setting"], sort=False)
    table = pd.DataFrame()
    for name in SCORES:
        table[[name, f"{name} error"]] = groups[name].agg(["mean", "sem"])
    table = table.assign(seeds=groups.size()).reset_index()
    acts = table.query("method == 'PALs' and steps == 2000 and `switched off` <= -1")
    return table.assign(chosen=table.index == acts["dev average"].idxmax())


def answers() -> pd.DataFrame:
    return second_study.answers(of_study(evidence(), "first study"), read_second())


def questions() -> pd.DataFrame:
    return second_beside.questions(read_second(), read_object(second_beside.OVER_EXAMPLES)["questions"])


def second_verdicts() -> pd.DataFrame:
    verdicts = second_study.of_ledger(read_second())
    rows = [{"row": row} | verdict._asdict() | {"files": " ".join(verdict.files)} for row, verdict in verdicts.items()]
    return pd.DataFrame(rows)


TABLES = {table.__name__: table for table in (variants, deviations, looks, tuning, pilot, answers, questions)}
TABLES |= {"second-verdicts": second_verdicts, "questions-by-task": lambda: second_beside.by_task(read_second())}
TABLES |= {"second-acting": lambda: second_beside.acting(read_second())}


if __name__ == "__main__":
    for name, table in TABLES.items():
        table().to_csv(RECORDS / f"{name}.csv", index=False, float_format="%.6g")
