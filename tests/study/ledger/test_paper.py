"""The ledger quotes the published tables as they print their numbers.

What follows from the numbers (rows A and B) is worked out by hand in `test_verdicts.py`.
"""

import pytest

from palslib.plan.sampling import annealed_alpha, task_probabilities
from palslib.study.ledger import derivations, paper

LEDGER = paper.load_ledger()


def printed(row_id: str, *names: str) -> list:
    """The published numbers of a row, or those of these names, in order."""
    published = LEDGER[row_id].published
    return [published[name] for name in names] if names else list(published.values())


def scores(row: dict) -> dict:
    """A row of a table without its average."""
    return {task: score for task, score in row.items() if task not in ("average", "total")}


# --- A and B: what the sources print --------------------------------------------------------------------------------


def test_ratios_are_those_of_table_3():
    """Six rows A and the BERT layer's, B1, are all that it prints. Both numbers of B1 are one slip: 73M make 1.67."""
    methods = {"A4": "pals-204", "A5": "low-rank-100", "A6": "pals-no-sharing-84", "A7": "pals-276-top"}
    methods |= {"A9": "attention-on-top-204", "A10": "ffn-on-top-408"}
    assert {r: [paper.TABLE_3[m]["ratio"]] for r, m in methods.items()} == {
        row_id: derivations.numbers(LEDGER[row_id].published) for row_id in methods
    }
    assert printed("B1", "ratio_in_table") == [paper.TABLE_3["bert-layer-on-top"]["ratio"]]
    others = {"bert-layer-on-top", "pals-276-bottom", "shared"}
    assert {*methods.values(), *others} == {method for method, row in paper.TABLE_3.items() if "ratio" in row}
    assert [round(1 + 73_000_000 / LEDGER["A1"].derived, 2)] == printed("B1", "ratio")


def test_averages_and_totals_are_those_of_the_tables():
    minbert, tuned = paper.MINBERT_TABLE_1, paper.TABLE_2["fine-tuned"]
    totals = [row["total"] for row in paper.ADAPTERS_TABLE_2.values()]
    averages = [row["average"] for row in paper.ADAPTERS_TABLE_3.values()]
    quoted = {
        "A21": [row["average"] for row in paper.TABLE_2.values()],
        "B2": [row["average"] for row in paper.TABLE_2.values()],
        "A22": [row["average"] for row in minbert.values()],
        "B12": [minbert["pals-204", "annealed"]["average"]],
        "B17": [minbert["fine-tuned", "single-task"]["sst"], minbert["shared", "annealed"]["average"]],
        "B7": [row["average"] for row in paper.GEM_TABLE_1.values()],
        "B23": [row["qqp"] for row in paper.GEM_TABLE_1.values()],
        "A23": totals[:2],
        "B8": totals[2:],
        "A24": averages[:1],
        "B9": averages[1:],
        "B19": [paper.ADAPTERS_FIGURE_6["ELMo, difference"]["sick_e"]],
        "B20": [row[task] for row in (tuned, paper.ADAPTERS_TABLE_2["fine-tuned"]) for task in ("qnli", "stsb")],
    }
    assert {row_id: derivations.numbers(LEDGER[row_id].published) for row_id in quoted} == quoted


# --- C: the claims quote the tables, and the tables say what the claims say -----------------------------------------


@pytest.mark.parametrize("row_id", ["C2", "C3", "C4", "C6", "C7", "C12"])
def test_claims_quote_table_3(row_id):
    """C2 has mean and error by schedule, C3 means, C12 errors; the others the mean under annealed sampling."""
    for method, quoted in LEDGER[row_id].published.items():
        cells = {name: cell for name, cell in paper.TABLE_3[method].items() if name != "ratio"}
        expected = {
            "C2": {schedule: cell._asdict() for schedule, cell in cells.items()},
            "C3": {schedule: cell.mean for schedule, cell in cells.items()},
            "C12": {schedule: {"error": cell.error} for schedule, cell in cells.items()},
        }.get(row_id, cells["annealed"].mean)
        assert quoted == expected, method


def test_claims_quote_table_2_and_the_reports():
    tuned, pals = paper.TABLE_2["fine-tuned"], paper.TABLE_2["pals-204"]
    assert printed("C1") == [tuned["average"], pals["average"], 1.13]
    c5 = ("eight_BERTs", "shared", "attention-on-top-204", "pals-204", *paper.RTE_ELSEWHERE)
    assert printed("C5", *c5) == [*(row["rte"] for row in paper.TABLE_2.values()), *paper.RTE_ELSEWHERE.values()]
    large = ("cola", "sst2", "mnli_m", "mnli_mm", "qqp_acc", "qnli")
    assert printed("C22") == [{column: row[column] for column in large} for row in (tuned, pals)]
    assert printed("C13") == list(map(scores, paper.MINBERT_TABLE_1.values()))
    averages = {" ".join(model): row["average"] for model, row in paper.MINBERT_TABLE_1.items()}
    schedules = ("annealed", "round-robin", "proportional")
    assert printed("C13b", *schedules) == [averages[f"pals-204 {schedule}"] for schedule in schedules]
    assert printed("C13c", *schedules) == [averages[f"shared {schedule}"] for schedule in schedules]
    sizes = [paper.MINBERT_TABLE_1[size, "annealed"] for size in ("pals-204", "pals-324")]
    assert printed("C13d") == [row["average"] for row in sizes]
    assert printed("C29") == [{"sts": row["sts"], "mean": row["average"]} for row in sizes]
    for method, quoted in zip(("shared", "pals-204"), printed("C28"), strict=True):
        assert quoted == {schedule: averages[f"{method} {schedule}"] for schedule in ("annealed", "proportional")}
    assert printed("C14") == list(map(scores, paper.GEM_TABLE_1.values()))
    assert printed("C15") == list(map(scores, paper.ADAPTERS_TABLE_2.values()))
    assert printed("C16") == list(paper.ADAPTERS_TABLE_3.values())
    assert LEDGER["C18"].published | {"ner": 0.2} == paper.ADAPTERS_FIGURE_6["BERT-base, difference"]


def test_table_2_says_what_the_claims_say_of_it():
    """RTE rises with sharing, 66.4 < 75.5 < 76.0 < 76.6 (C5). PALs lose 0.9 on CoLA and SST-2, else 0.3 (C22). Without
    RTE eight BERTs have (716 - 66.4) / 8 = 81.2, PALs (723.6 - 76) / 8 = 80.95, shared (719 - 76.6) / 8 = 80.3 (C1)."""
    rte = [paper.TABLE_2[m]["rte"] for m in ("fine-tuned", "attention-on-top-204", "pals-204", "shared")]
    assert rte == sorted(rte)
    lost = {c: paper.TABLE_2["fine-tuned"][c] - paper.TABLE_2["pals-204"][c] for c in paper.TABLE_2["pals-204"]}
    assert {c for c, points in lost.items() if points > 0.35} == {"cola", "sst2"}
    assert lost["cola"] == pytest.approx(lost["sst2"]) == pytest.approx(0.9)
    nine = zip(paper.TABLE_2.values(), derivations.derive("A21").values(), strict=True)
    tuned, shared, _, pals = ((9 * mean - row["rte"]) / 8 for row, mean in nine)
    text = f"are eight BERTs {tuned:.2f}, PALs {pals:.2f}, shared {shared:.2f}"
    assert LEDGER["C1"].note.endswith(text)


def test_how_often_eight_berts_go_through_their_data_in_60_000_annealed_steps():
    """The words of C1: 25 epochs of 2,400 steps of 32 examples, shares p ∝ N^α."""
    shares = [task_probabilities(paper.GLUE_TRAIN_SIZES, annealed_alpha(epoch, 25)) for epoch in range(1, 26)]
    passes = {t: sum(2_400 * epoch[t] for epoch in shares) * 32 / size for t, size in paper.GLUE_TRAIN_SIZES.items()}
    assert min(passes, key=passes.get) == "mnli" and max(passes, key=passes.get) == "rte"
    assert f"{passes['mnli']:.1f} times (MNLI) to {passes['rte']:.0f} times (RTE)" in LEDGER["C1"].scale
