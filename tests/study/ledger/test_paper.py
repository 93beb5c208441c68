"""The ledger's shape, and that it quotes the published tables as they print their numbers.

What follows from the numbers (rows A and B) is worked out by hand in `test_verdicts.py`.
"""

import re
import tomllib
from math import sqrt
from pathlib import Path
from statistics import fmean

import pytest

from palslib.plan.sampling import annealed_alpha, task_probabilities
from palslib.study.ledger import paper
from palslib.study.ledger.paper import (
    ADAPTERS_FIGURE_6_BERT_BASE,
    ADAPTERS_FIGURE_6_ELMO_SICK_E,
    ADAPTERS_TABLE_2,
    ADAPTERS_TABLE_3,
    GEM_TABLE_1,
    GLUE_TRAIN_SIZES,
    MINBERT_TABLE_1,
    RTE_ELSEWHERE,
    TABLE_2,
    TABLE_3,
    load_ledger,
)

LEDGER = load_ledger()
COUNTS = {"A": 28, "B": 21, "C": 26, "D": 18}
"""Rows of each kind, counted nowhere else; those with a letter behind the number are in APART."""
APART = ["C10b", "C13b", "C13c", "C13d", "C13e"]  # claims of C10 and C13 that are tested apart
SCHEDULES = ("proportional", "square-root", "annealed")


# --- the ledger's shape ---------------------------------------------------------------------------------------------


def test_every_row_is_there_once_and_in_order():
    """TOML itself refuses a second table of the same name."""
    rows = [f"{kind}{n}" for kind, count in COUNTS.items() for n in range(1, count + 1)]
    rows[rows.index("C14") : rows.index("C14")] = APART[1:]
    rows.insert(rows.index("C11"), APART[0])
    assert list(LEDGER) == rows, "a new row is counted in COUNTS, or in APART"
    assert all(row.id == row_id and row.kind == row_id[0] for row_id, row in LEDGER.items())


def test_statements_are_short_and_claims_need_runs():
    for row in LEDGER.values():
        assert len(row.statement) <= 200, "must stay readable in a table"
    assert [row.id for row in LEDGER.values() if row.kind == "C" and not row.needs] == ["C24"], "it is not pursued"
    assert [row.id for row in LEDGER.values() if row.steps] == [row.id for row in LEDGER.values() if row.scale]
    assert [row.id for row in LEDGER.values() if row.scale] == ["C1", "C10b", "C13b"], (
        "what no run of this size can show"
    )


KEYS = {
    "A": (["derived"], ["published"]),
    "B": (["published", "derived"], []),
    "C": ([], ["published", "needs", "compare", "scale", "steps"]),
    "D": (["fields"], ["published", "derived"]),
}
"""Kind -> the keys, besides the texts, that a row must have, and those that it may have."""


def test_rows_have_the_keys_of_their_kind():
    for row_id, table in tomllib.loads((Path(paper.__file__).parent / "ledger.toml").read_text("utf-8")).items():
        assert re.fullmatch(r"[A-D][1-9][0-9]*[b-z]?", row_id), row_id
        required, optional = ({*keys} for keys in KEYS[row_id[0]])
        required |= {"source", "statement", "derivation"}
        assert required <= table.keys() <= required | optional, row_id


@pytest.mark.parametrize("wrong", [{"scale": 3}, {"needs": "shared annealed"}, {"statement": 1}, {"scales": "long"}])
def test_a_malformed_row_is_refused_by_row_and_key(wrong):
    texts = dict.fromkeys(("source", "statement", "derivation"), "text")
    with pytest.raises(ValueError, match=f"ledger row.*{next(iter(wrong))}"):
        paper.Row(id="C3", kind="C", **texts | wrong)


def test_sections_are_those_that_the_paper_has():
    """2.2 LHUC, 3 the budget, 3.1 BERT, 3.2 on top, 3.3 within, 4.1 sampling; all else is cited by its subject."""
    known = {"", "2.2", "3", "3.1", "3.2", "3.3", "4.1", "set-up", "results", "discussion", "T1", "T2", "T3"}
    for row in LEDGER.values():
        for source in row.source.split("; "):
            if source.startswith("paper"):
                where = source.removeprefix("paper").replace(" and ", ", ").split(",")
                assert {part.strip() for part in where} <= known | {"adapters"}, (row.id, row.source)


# --- A and B: what the sources print --------------------------------------------------------------------------------

IN_TEXTS = {
    "A1": 110_000_000, "A3": 1_800_000, "A13": 1_500_000, "C11": 1_500_000, "A18": 0.8, "A19": 158, "A25": 7,
    "A26": [340_000_000, 3], "A27": [204, 84, 276, 100], "A28": 1_900_000, "B3": 42_000_000, "B4": [5_400_000, 1.13],
    "B10": [408, 252], "B11": [12, 6], "B13": [15_000_000, 1.13], "B14": 127_000_000,
    "B5": {"round_robin": 1, "proportional": 0},
    "B1": {"added": 73_000_000, "ratio": 1.67, "ratio_in_table": 1.66},
    "B6": {"s_in_text": 324, "s_in_table": 326, "batch_in_text": 32, "batch_in_captions": 40, "steps": 1_950}
    | {"batches": 5_850},
    "D5": {"factor": 25 / 32, "qnli": 108_436, "qqp": 363_849},
}  # fmt: skip
"""Printed in no table that the package holds."""


def test_numbers_that_stand_in_texts():
    assert {row_id: LEDGER[row_id].published for row_id in IN_TEXTS} == IN_TEXTS


RATIOS = {
    "A4": {"pals-204"},
    "A5": {"low-rank-100"},
    "A6": {"pals-no-sharing-84"},
    "A7": {"pals-276-top", "pals-276-bottom"},
    "A9": {"attention-on-top-204"},
    "A10": {"ffn-on-top-408"},
}


def test_ratios_are_those_of_table_3():
    """Six rows A and the BERT layer's, B1, are all that it prints. Both numbers of B1 are one slip: 73M make 1.67."""
    for row_id, methods in RATIOS.items():
        assert {TABLE_3[method]["ratio"] for method in methods} == {LEDGER[row_id].published}
    assert LEDGER["B1"].published["ratio_in_table"] == TABLE_3["bert-layer-on-top"]["ratio"]
    assert set().union(*RATIOS.values(), ["bert-layer-on-top", "shared"]) == {
        m for m, row in TABLE_3.items() if "ratio" in row
    }
    assert round(1 + 73_000_000 / LEDGER["A1"].derived, 2) == LEDGER["B1"].published["ratio"]


def test_averages_and_totals_are_those_of_the_tables():
    minbert, tuned = MINBERT_TABLE_1, ADAPTERS_TABLE_2["fine-tuned"]
    totals = [row["total"] for row in ADAPTERS_TABLE_2.values()]
    averages = [row["average"] for row in ADAPTERS_TABLE_3.values()]
    quoted = {
        "A21": [row["average"] for row in TABLE_2.values()],
        "B2": [row["average"] for row in TABLE_2.values()],
        "A22": [row["average"] for row in minbert.values()],
        "B12": minbert["pals-204", "annealed"]["average"],
        "B17": [minbert["fine-tuned", "single-task"]["sst"], minbert["shared", "annealed"]["average"]],
        "B7": [row["average"] for row in GEM_TABLE_1.values()],
        "A23": totals[:2],
        "B8": totals[2:],
        "A24": averages[0],
        "B9": averages[1],
        "B19": ADAPTERS_FIGURE_6_ELMO_SICK_E["difference"],
        "B20": [[row["qnli"], row["stsb"]] for row in (TABLE_2["fine-tuned"], tuned)],
    }
    published = {row_id: LEDGER[row_id].published for row_id in quoted}
    assert {k: list(v.values()) if isinstance(v, dict) else v for k, v in published.items()} == quoted


def test_b2_the_second_numbers_are_what_another_report_names_f1():
    """For the same model, adapters T2 prints 71.2 and 88.9."""
    for task in ("qqp", "mrpc"):
        assert TABLE_2["fine-tuned"][f"{task}_f1"] == ADAPTERS_TABLE_2["fine-tuned"][task]


def test_b8_by_its_scores_not_shared_is_first_of_three_adapters_not_last():
    adapters = {m: dict(row) for m, row in ADAPTERS_TABLE_2.items() if m != "fine-tuned"}
    totals = {m: row.pop("total") for m, row in adapters.items()}
    means = {m: fmean(row.values()) for m, row in adapters.items()}
    assert min(totals, key=totals.get) == max(means, key=means.get) == "houlsby-64-not-shared"


# --- C: the claims quote the tables, and the tables say what the claims say -----------------------------------------


@pytest.mark.parametrize("row_id", ["C2", "C3", "C4", "C6", "C7", "C12"])
def test_claims_quote_table_3(row_id):
    """C2 lists mean and error by schedule, C3 means, C12 errors; the others the mean under annealed sampling."""
    for method, quoted in LEDGER[row_id].published.items():
        cells = [TABLE_3[method][schedule] for schedule in SCHEDULES if schedule in TABLE_3[method]]
        expected = {
            "C2": [list(cell) for cell in cells],
            "C3": [cell.mean for cell in cells],
            "C12": [cell.error for cell in cells],
        }.get(row_id, cells[-1].mean)
        assert quoted == expected, method


def test_claims_quote_table_2_and_the_reports():
    assert LEDGER["C1"].published == {m: TABLE_2[m]["average"] for m in ("fine-tuned", "pals-204")} | {"ratio": 1.13}
    assert LEDGER["C5"].published == {m: row["rte"] for m, row in TABLE_2.items()} | RTE_ELSEWHERE
    large = ("cola", "sst2", "mnli_m", "mnli_mm", "qqp_f1", "qnli")
    assert LEDGER["C22"].published == {m: [TABLE_2[m][c] for c in large] for m in ("fine-tuned", "pals-204")}

    minbert = {f"{m}-{schedule}".removesuffix("-single-task"): r for (m, schedule), r in MINBERT_TABLE_1.items()}
    assert LEDGER["C13"].published == {key: list(row.values())[:3] for key, row in minbert.items()}
    apart = {"C13b": "pals-204-{}", "C13c": "shared-{}", "C13d": "{}-annealed"}
    for row_id, name in apart.items():
        for key, value in LEDGER[row_id].published.items():
            assert value == minbert[name.format(key)]["average"], (row_id, key)
    assert LEDGER["C14"].published == {key: list(row.values())[:3] for key, row in GEM_TABLE_1.items()}
    assert LEDGER["C15"].published == {key: list(row.values())[:9] for key, row in ADAPTERS_TABLE_2.items()}
    assert LEDGER["C16"].published == {key: list(row.values()) for key, row in ADAPTERS_TABLE_3.items()}
    assert LEDGER["C18"].published == ADAPTERS_FIGURE_6_BERT_BASE


def test_table_3_says_what_the_claims_say_of_it():
    """What the table itself bears out of C2, C3, C4, C7 and C12.

    C2   PALs over shared in each schedule: 80.6 > 79.17, 81.0 > 80.56, 81.7 > 80.7
    C3   annealed best for PALs, but not for the BERT layer (81.6 > 81.5) nor the FFN on top (81.07 > 80.8)
    C4   every layer 81.7 > top half 81.61 > bottom half 81.4
    C7   PALs 81.7 > without sharing 81.3
    C12  a larger error with annealed than with proportional sampling for shared alone: .3 against .03
    """
    annealed = {method: row["annealed"].mean for method, row in TABLE_3.items()}
    assert all(TABLE_3["pals-204"][s].mean > TABLE_3["shared"][s].mean for s in SCHEDULES)
    assert [TABLE_3["pals-204"][s].mean for s in SCHEDULES] == sorted(TABLE_3["pals-204"][s].mean for s in SCHEDULES)
    assert {m for m, row in TABLE_3.items() if "square-root" in row and row["square-root"].mean > annealed[m]} == {
        "bert-layer-on-top",
        "ffn-on-top-408",
    }
    assert annealed["pals-204"] > annealed["pals-276-top"] > annealed["pals-276-bottom"]
    assert annealed["pals-204"] > annealed["pals-no-sharing-84"]
    complete = {method: row for method, row in TABLE_3.items() if "proportional" in row}
    assert {m for m, row in complete.items() if row["annealed"].error > row["proportional"].error} == {"shared"}


def test_table_2_says_what_the_claims_say_of_it():
    """RTE rises with sharing, 66.4 < 75.5 < 76.0 < 76.6 (C5). PALs lose 0.9 on CoLA and SST-2, else 0.3 (C22)."""
    rte = [TABLE_2[m]["rte"] for m in ("fine-tuned", "attention-on-top-204", "pals-204", "shared")]
    assert rte == sorted(rte)
    lost = {c: TABLE_2["fine-tuned"][c] - TABLE_2["pals-204"][c] for c in TABLE_2["pals-204"]}
    assert {c for c, points in lost.items() if points > 0.35} == {"cola", "sst2"}
    assert lost["cola"] == pytest.approx(lost["sst2"]) == pytest.approx(0.9)


def test_pals_and_low_rank_lie_within_two_standard_errors():
    """Low rank 81.9 - PALs 81.7 = 0.2, with standard error sqrt(.2² + .2²) = .28 (C6: equal on average)."""
    low, pals = TABLE_3["low-rank-100"]["annealed"], TABLE_3["pals-204"]["annealed"]
    assert abs(low.mean - pals.mean) < 2 * sqrt(low.error**2 + pals.error**2)


def test_how_often_separate_models_go_through_their_data_in_60_000_annealed_steps():
    """The words of C1: 25 epochs of 2,400 steps of 32 examples, shares p ∝ N^α."""
    shares = [task_probabilities(GLUE_TRAIN_SIZES, annealed_alpha(epoch, 25)) for epoch in range(1, 26)]
    passes = {t: sum(2_400 * of[t] for of in shares) * 32 / size for t, size in GLUE_TRAIN_SIZES.items()}
    assert min(passes, key=passes.get) == "mnli" and max(passes, key=passes.get) == "rte"
    assert f"{passes['mnli']:.1f} times (MNLI) to {passes['rte']:.0f} times (RTE)" in LEDGER["C1"].scale
