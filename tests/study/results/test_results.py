"""Table 3 and what else the records say: from made-up records of known difference, by hand."""

import math

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import second_beside
import second_study
from made_up import record_of
from pytest import approx
from scipy import stats
from second_study import decide
from test_second import alone, confirmed, loud

from palslib.common.places import RECORDS as COMMITTED
from palslib.data.glue import TRAIN_SIZES
from palslib.data.tasks import TASK_LABELS, TASKS, get_task
from palslib.plan.sampling import MIXED
from palslib.records import read_records
from palslib.study.figures.results import acting_panels, answer_rows, forest, schedule_lines, task_forest
from palslib.study.ledger.claims import smallest_difference
from palslib.study.ledger.paper import TABLE_2, TABLE_3
from palslib.study.results import answer, tables
from palslib.study.results.acting import acting, acting_table


def run(method: str, seed: int, score: float, off: float | None = None, **changes) -> dict:
    """A finished run's record: every metric of every task is `score`, but for RTE, one more for each seed. Unless its
    arm is given, it is its method, or, with another recipe than the paper's, none."""
    names = {"study": "first study", "arm": None if {"recipe", "recipe_options"} & changes.keys() else method}
    settings = names | {"data": "glue", "method": method, "seed": seed, "steps": 2_000} | changes
    scores = {t: {m: score for m in get_task(t).metrics} for t in TASKS}
    scores["mnli"]["accuracy_mm"] = score
    scores["rte"] = {"accuracy": score + seed}
    record = record_of(scores, score + seed / 8, **settings) | {"environment": {"cpu": "AMD EPYC"}}
    record["config"]["arm"] = record["config"]["arm"] or ""
    last = record["results"]["last"]
    last["glue_average"] = score
    if off is not None:
        record["results"]["switched off"] = {"scores": scores, "dev_average": last["dev_average"] + off}
        record["history"] = [{"step": 2_000, "acting": {"rte": {"size": {"0": 0.1, "1": 0.3}}}}]
    return record


def runs(method: str, *scores: float, **changes) -> list[dict]:
    return [run(method, seed, score, **changes) for seed, score in enumerate(scores)]


RECORDS = [
    *runs("shared", 60.0, 62.0, 61.0),
    *runs("pals-204", 62.0, 64.1, 62.9, adaptation_rate=10),
    *runs("pals-204", 61.0, 63.0, 62.0, adaptation_rate=10, schedule="proportional"),
    *runs("low-rank-100", 59.0, 61.0, adaptation_rate=10),
]


def test_without_the_runs_of_a_method_its_cell_is_a_dash_and_the_table_stays():
    cells = tables.table_3_cells(tables.table_3(RECORDS)).set_index(("", "method"))
    assert cells.loc["PALs", ("annealed", "here")] == "63.1 ± 0.64 (3)"  # 62, 64.225, 63.15
    kept = tables.table_3_cells(tables.table_3([r for r in RECORDS if r["config"]["method"] != "pals-204"]))
    assert kept.set_index(("", "method")).loc["PALs", ("annealed", "here")] == "–"
    frame = tables.against([record for record in RECORDS if record["config"]["method"] != "shared"])
    assert frame["difference"].isna().all() and (frame["verdict"] == "not run").all()


def test_a_run_that_is_there_twice_is_no_second_seed():
    again = RECORDS + runs("shared", 60.0, 62.0, 61.0, evaluate_every=500)
    assert all(frame(again).equals(frame(RECORDS)) for frame in (tables.table_3, tables.by_task))


def test_table_3_has_every_cell_of_the_papers_and_means_with_errors_and_seeds():
    """62, 64.1, 62.9 and an eighth a seed: 62, 64.225, 63.15, mean 63.125, s = 1.1127, over √3 .6424."""
    frame = tables.table_3(RECORDS).set_index(["method", "schedule"])
    for method, cells in TABLE_3.items():
        for schedule, printed in cells.items():
            if schedule != "ratio":
                assert frame.loc[(method, schedule), "paper"] == printed.mean
    cell = frame.loc[("pals-204", "annealed")]
    assert (cell["mean"], cell["error"], cell["seeds"]) == (approx(63.125), approx(0.6424, rel=1e-3), 3)
    rest = tables.table_3(RECORDS, without=("rte",)).set_index(["method", "schedule"])
    assert rest.loc[("pals-204", "annealed"), "mean"] == approx(63) and rest["paper"].isna().all()


def test_methods_against_shared_from_all_seeds_of_both():
    """63.125 - 61.125; low rank 60.0625 of two seeds; the paper's 81.7 - 80.7 with √(.2² + .3²) · 2.776."""
    frame = tables.against([*RECORDS, *runs("shared", *[61.0] * 5)[3:]]).set_index("method")
    pals = frame.loc["pals-204"]
    assert pals["difference"] == approx(63.125 - (60 + 62.125 + 61.25 + 61.375 + 61.5) / 5)
    assert pals["seeds"] == 3 and pals["base seeds"] == 5
    assert pals["low"] < pals["difference"] < pals["high"] and pals["verdict"] == "open"
    assert (pals["paper"], pals["paper half"]) == (approx(1.0), approx(2.776 * math.hypot(0.2, 0.3)))
    assert frame.loc["low-rank-100", "seeds"] == 2 and frame.loc["lhuc", "verdict"] == "not run"
    assert list(frame.index) == [method for method in tables.COMPARED if method != "shared"]
    shown = answer.differences_table(frame.reset_index())
    assert shown["method"].tolist() == ["PALs"] and shown.iloc[0, 2].startswith(f"{pals['difference']:+.2f} [")


def test_tasks_apart_in_pairs():
    """2, 2.1, 1.9 on each of eight tasks: ± t(1 - .05 / 16, 2) · .1 / √3."""
    frame = tables.task_differences(RECORDS, "pals-204", "shared").set_index("task")
    row = frame.loc["cola"]
    half = stats.t.ppf(1 - 0.05 / 16, 2) * 0.1 / math.sqrt(3)
    assert (row["difference"], row["high"] - row["difference"]) == (approx(2.0), approx(half))
    assert list(frame.index) == list(TASKS) and tables.task_differences([], "pals-204", "shared").empty


def test_schedules_are_compared_over_the_seeds_that_all_have():
    """Seeds 0 to 2 under annealed and proportional, one of them missing in a third schedule."""
    records = [*RECORDS, *runs("shared", 55.0, 57.0, schedule="square-root")]
    common = tables.of_common_seeds(records, ("pals-204", "shared"))
    assert {r["config"]["seed"] for r in common} == {0, 1} and len(common) == 2 * 4
    assert tables.of_common_seeds([], ("shared",)) == []


def test_table_2s_columns():
    frame = tables.by_task(RECORDS).set_index(["method", "column"])
    assert frame.loc[("pals-204", "rte"), "mean"] == approx((62 + 65.1 + 64.9) / 3)
    assert frame.loc[("pals-204", "qqp_f1"), "paper"] == TABLE_2["pals-204"]["qqp_f1"]
    held_out = tables.by_task(runs("shared", 60.0, 61.0, held_out=True), ["shared"])
    assert held_out["column"].tolist() == list(TASKS) and held_out["paper"].isna().all()  # its rows are not the paper's
    assert held_out["mean"].tolist() == [60.5] * 7 + [61.0]  # one's own runs may be held out; the ledger takes none
    released = runs("shared", 60.0, 61.0)
    for record in released:  # the released code has one score a task
        del record["results"]["last"]["scores"]["mnli"]["accuracy_mm"]
    frame = tables.by_task(released, ["shared"]).set_index("column")
    assert math.isnan(frame.loc["mnli_mm", "mean"]) and frame.loc["mnli_m", "mean"] == 60.5


def test_the_study_of_most_runs_is_shown_unless_another_is_named():
    later = [run("pals-204", seed, 50.0, study="longer") for seed in range(300, 300 + 2 * len(RECORDS))]
    in_turn = run("pals-204", 0, 50.0, schedule="sequential")
    assert tables.of_study([*RECORDS, *later]) == later
    assert tables.of_study([*RECORDS, *later, in_turn], "first study") == RECORDS
    why = tables.left_out([*RECORDS, *later, in_turn], RECORDS).to_dict("records")
    assert why[0] == {"runs": len(later), "why": "longer, finished, annealed"} and len(why) == 2


def test_whether_adaptations_act_by_setting():
    """After the last step alone; each seed of a setting once; means over seeds and layers; the lowest entropy with its
    task."""
    pilot = runs("pals-204", 60.0, off=-0.1) + runs("pals-204", 61.0, 61.0, off=-3.0, adaptation_rate=10)
    pilot[2]["results"]["switched off"]["dev_average"] -= 1  # the second seed: -4
    for number, record in enumerate(pilot):
        record["history"][0]["acting"]["rte"]["entropy"] = {"0": 1.0, "1": 0.9 - number / 10}
        record["history"][0]["acting"]["cola"] = {"size": {"0": 0.3, "1": 0.5}, "entropy": {"0": 1.0, "1": 0.85}}
        record["history"].insert(0, {"step": 1_000, "acting": {"sst2": {"size": {"0": 9.0}, "entropy": {"0": 0.0}}}})
    one, ten = acting_table([*pilot, *pilot[:2], *runs("shared", 60.0, off=0.0)]).to_dict("records")
    assert (one["seeds"], one["lowest"], one["lowest_of"]) == (1, approx(0.85), "cola")
    assert (ten["setting"], ten["lowest"], ten["lowest_of"]) == ("10 × BERT's rate", approx(0.7), "rte")
    assert (ten["seeds"], ten["size"], ten["off"], ten["off_error"]) == (2, approx(0.3), approx(-3.5), approx(0.5))
    assert ten["entropy"] == approx((1.0 + 0.8 + 1.0 + 0.85 + 1.0 + 0.7 + 1.0 + 0.85) / 8)
    sizes, off = acting(pilot)
    assert off["difference"].tolist() == approx([-0.1, -3.0, -4.0])
    assert sizes[sizes["layer"] == 1]["size"].tolist() == approx([0.4] * 3)
    uninspected = runs("pals-204", 60.0, adaptation_rate=10)  # hides no inspected run of its setting
    again = runs("pals-204", 61.0, off=-9.0, adaptation_rate=10)  # of a setting that `more` has too
    assert acting(uninspected, pilot)[1]["difference"].tolist() == off["difference"].tolist()
    assert acting(again, pilot)[1]["difference"].tolist() == approx([-0.1, -9.0])
    frozen = runs("pals-204", 50.0, off=-20.0, adaptation_rate=10, arm="pals-204 freeze=backbone")
    off = acting([*pilot, *frozen], methods=("pals-204", "pals-204 freeze=backbone"))[1]  # as notebook 11's lines
    assert off["setting"].tolist()[-1] == "PALs, freeze=backbone: 10 × BERT's rate" and len(off) == 4
    assert acting([])[0].empty


def test_claims_say_what_so_many_seeds_can_show():
    """By their own spread where there are three pairs (of differences 1.9, 2 and 2.1), else by the given one."""
    frame = tables.claims_frame(RECORDS, spread=0.5).set_index("row")
    main = "PALs (annealed) should be better than shared (annealed)"
    c2 = frame.loc["C2"].set_index("compared").loc[main]
    assert (c2["seeds"], c2["verdict"], c2["spread"]) == (3, "reproduced", approx(0.1))
    assert c2["smallest"] == smallest_difference(c2["spread"], 3)
    assert (frame.loc["C11", "smallest"] == smallest_difference(0.5, 3)).all()
    assert frame.loc[["C13", "C14", "C15", "C18"], "smallest"].isna().all()  # 0.5 is no spread of such scores
    one_task = frame["compared"].str.contains(" on [A-Z]") & (frame["seeds"] < 3)
    assert one_task.sum() > 9 and frame.loc[one_task, "smallest"].isna().all()
    undefined = [*runs("shared", *[math.nan] * 3), *runs("pals-204", 60.0, 61.0, 62.0)]
    assert tables.claims_frame(undefined).set_index("row").loc[["C2"], "smallest"].isna().all()
    just = [*runs("shared", 60.0, 60.0, 60.0), *runs("pals-204", 60.17, 60.27, 60.37)]  # ± 4.303 · 0.1 / √3 = 0.248
    assert tables.claims_frame(just).set_index("compared").loc[main, "verdict"] == "reproduced, only just"


def sentences_of(records: list[dict], new: list[dict]) -> list[str]:
    return answer.answer(second_study.answers(records, [*new, *alone()]))


def test_the_answer_in_five_sentences():
    """The second study's first question is open, so the third is answered by the first study: 3 ± t(.975, 6) · s ·
    √(2/3); PALs 62, 64.225, 63.15, shared 60, 62.125, 61.25, low rank 59, 61.125, 60.25; s = 1.1."""
    sentences = sentences_of([*RECORDS, run("low-rank-100", 2, 60.0, adaptation_rate=10)], loud())
    assert len(sentences) == 5 and "not known yet**: the second study asks this only when" in sentences[2]
    assert len(answer.questions_table(decide(loud()))) == 1 and "six more seeds are planned" in sentences[1]
    open_still = "**Whether PALs are better than sharing everything is open**: PALs score 0.10 points more"
    methods = ((62, 64.225, 63.15), (60, 62.125, 61.25), (59, 61.125, 60.25))
    spread = math.sqrt(sum(2 * pd.Series(scores).var() for scores in methods) / 6)
    half = stats.t.ppf(0.975, 6) * spread * math.sqrt(2 / 3)
    ends = f"[{3 - half:+.2f}, {3 + half:+.2f}], more in 3 of 3 seeds (first study)."
    assert sentences[1].startswith(open_still) and sentences[3].endswith(ends)
    sizes = read_records(COMMITTED / "main")[0]["data"]["train"]
    shares = [sizes[task] / TRAIN_SIZES[task] for task in ("mnli", "qqp", "qnli")]
    assert f"{min(shares):.0%} to {max(shares):.0%}" == "3% to 10%" and "use 3 to 10 % of those three" in sentences[4]
    worse = sentences_of([*runs("low-rank-100", 60.0, 62.0, 61.0), *runs("pals-204", 48.0, 50.1, 48.9)], loud())
    assert worse[3].startswith("**Attention is not needed: low rank, which has none, is better**: PALs score 12.00")


def small(method: str, seed: int, score: float, steps: int = 40, recipe: str = "paper") -> dict:
    """A run of two tasks, one of them one's own, called like a measure, on generated data with the tiny backbone."""
    settings = {"tasks": ["rte"], "backbone": "tiny", "data": "synthetic", "schedule": "proportional", "recipe": recipe}
    record = run(method, seed, score, steps=steps, **settings)
    scores = {"rte": {"accuracy": score}, "spread": {"accuracy": score + 2}}
    record["config"] |= {"tasks": ["rte", "spread"], "own": {"spread": "mood.csv"}, "study": None, "arm": None}
    record["results"]["last"] |= {"scores": scores, "dev_average": score + 1, "glue_average": None}
    return record


def test_a_sweep_of_ones_own_has_its_table_its_differences_and_intervals():
    """Houlsby 61, 63, 62 and LHUC 60, 62, 61, on other tasks, data, schedule and backbone than the paper's: +1 ± t of
    four degrees of freedom · √(2/3). Without `shared` the first line is what others are compared with."""
    sweep = [small("lhuc", seed, score) for seed, score in enumerate((60.0, 62.0, 61.0))]
    sweep += [small("houlsby-64", seed, score) for seed, score in enumerate((61.0, 63.0, 62.0))]
    others = [small("lhuc", 0, 50.0, steps=10), small("lhuc", 3, 50.0) | {"status": "killed"}]
    every = tables.of_study([*sweep, *others])
    assert tables.lines(every) == ["lhuc", "houlsby-64", "lhuc steps=10"]
    assert tables.left_out([*sweep, *others], every)["why"].tolist() == ["yours, killed, proportional"]
    alone = small("lhuc", 0, 90.0)  # a model of one task: its score is no average
    alone["config"]["tasks"] = ["rte"]
    assert tables.of_study([*sweep, alone]) == tables.of_study(sweep)
    study = tables.of_study(sweep)
    methods = tuple(tables.lines(study))
    left, base = tables.first_two(methods)
    assert (left, base) == ("houlsby-64", "lhuc") and tables.first_two(tables.COMPARED) == ("pals-204", "shared")
    row = tables.against(study, base, methods).iloc[0]
    half = stats.t.ppf(0.975, 4) * math.sqrt(2 / 3)
    assert (row["difference"], row["high"]) == (approx(1.0), approx(1 + half, abs=0.01)) and math.isnan(row["paper"])
    sentences = answer.own_answer(study, tables.against(study, base, methods), base)
    assert sentences[0] == "**Houlsby minus LHUC** +1.00 [+1.00, +1.00], 3 seeds, paired by seed: positive."
    assert sentences[1].endswith("beyond tiny, 40 steps, data synthetic and your own data.")
    turned = [small("houlsby-64", seed, score) for seed, score in enumerate((63.0, 61.0, 62.0))]
    unlike = tables.of_study([*sweep[:3], *turned])
    assert answer.own_answer(unlike, tables.against(unlike, base, methods), base)[0].endswith("by seed: open.")
    unlike = tables.of_study([small("lhuc", 0, math.nan), *sweep[1:3], *turned])
    assert "undefined" in answer.own_answer(unlike, tables.against(unlike, base, methods), base)[0]
    hashed = [run | {"content": {"spread/train": "a", "rte/train": "c"}} for run in sweep]
    changed = hashed[0] | {"content": {"spread/train": "b"}}  # the file was exchanged between the runs
    assert tables.lines(tables.of_study([*hashed, changed]))[-1] == 'lhuc content={"spread/train": "b"}'
    cells = tables.table_3_cells(tables.table_3(study, methods=methods))
    assert cells.values.tolist() == [["LHUC", "62.0 ± 0.58 (3)"], ["Houlsby", "63.0 ± 0.58 (3)"]]
    by_task = tables.by_task(study, methods).set_index(["method", "column"])
    assert by_task.loc[("lhuc", "spread"), "mean"] == approx(63.0)
    tasks = tables.task_differences(study, left, base)
    assert tasks[["task", "difference"]].to_numpy().tolist() == [["rte", 1.0], ["spread", 1.0]]
    assert "any difference" in answer.own_answer([], tables.against([], "shared", ()), "shared")[0]


def test_the_answer_is_the_second_studys_where_it_decides():
    new = confirmed(pals=1.0, common=0.9)
    sentences = sentences_of(RECORDS, new)
    assert "PALs score 1.00 points more" in sentences[1]
    assert "more in 6 of 6 seeds (second study; 99.5 % interval)" in sentences[1]
    assert sentences[2].startswith("**One PAL for all tasks does as well") and "0.10 points more" in sentences[2]
    assert sentences[3].startswith("**The attention within PALs helps**")
    row = answer.questions_table(decide(new)).iloc[1]
    assert (row["compared"], row["verdict"]) == ("PALs − one PAL for all tasks", "too small to matter")
    assert row["points [interval]"].startswith("+0.10 [-")
    by = answer.tasks_table(second_beside.by_task(new)).set_index("task")
    assert list(by.index) == [TASK_LABELS[task] for task in TASKS] and by.loc["RTE", "margin"] == "1.08"
    assert by["PALs − shared (6 and 6 seeds)"]["CoLA"].startswith("+1.00 [") and by.shape == (8, 5)


@pytest.mark.filterwarnings("ignore:Precision loss")  # scipy, of scores that are all equal
def test_pals_against_eight_berts():
    """By hand: PALs have 60 and noise of -.1, .1, 0 at seeds 300 to 302; the eight have 59 (RTE: 51). So PALs score 1
    more on seven tasks and 9 on RTE, 2 on average: 9 / 8 = 1.125 of it from RTE."""
    new = [*confirmed(), *alone(**dict.fromkeys(TASKS, 59.0) | {"rte": 51.0})]
    row = second_study.answers(RECORDS, new).iloc[0]
    assert tuple(row[["left", "right", "verdict", "seeds"]]) == ("pals-204", answer.EIGHT, "positive", "3 and 3")
    assert (row["difference"], row["without RTE"]) == (approx(2), approx(1))
    by_scipy = stats.ttest_ind([59.9, 60.1, 60.0], [58.0] * 3, equal_var=False).confidence_interval(0.95)
    assert (row["low"], row["high"]) == (approx(by_scipy.low), approx(by_scipy.high))
    sentence = answer.answer(second_study.answers(RECORDS, new))[0]
    assert "PALs score 60.0 of 100 and eight BERTs 58.0, 2.00 points more" in sentence and "3 seeds each" in sentence
    assert "Without RTE the difference is +1.00 [+" in sentence
    assert "In the same seeds sharing everything scores 2.00 points more than the eight [+" in sentence
    for score, verdict in ((60.0, "no worse"), (60.2, "no worse"), (62.0, "negative")):
        row = second_study.answers(RECORDS, [*confirmed(), *alone(**dict.fromkeys(TASKS, score))]).iloc[0]
        assert row["verdict"] == verdict


def names(ax) -> list[str]:
    return [tick.get_text() for tick in ax.get_yticklabels()]


def test_figures_draw_what_there_is():
    axes = plt.subplots(1, 2)[1]
    forest(tables.against(RECORDS), tables.LABELS, "shared", axes[0])
    assert {"PALs  (3 seeds)", "BERT layer on top  (not run)"} < set(names(axes[0]))
    task_forest(tables.task_differences(RECORDS, "pals-204", "shared"), axes[1])
    assert names(axes[1])[:2] == ["CoLA", "SST-2"]
    schedule_lines(tables.table_3(RECORDS), tables.LABELS, ("shared", "pals-204"), axes := plt.subplots(1, 2)[1])
    assert [tick.get_text() for tick in axes[1].get_xticklabels()] == list(MIXED)
    acting_panels(*acting(runs("pals-204", 60.0, 60.0, off=-0.1)), axes := plt.subplots(1, 2)[1])
    assert len(axes[0].lines[0].get_xdata()) == 2 and [text.get_text() for text in axes[0].texts] == ["1 ×"]
    answers = second_study.answers(RECORDS, [*confirmed(pals=1.0), *alone()])
    answer_rows(answer.answered(answers), ax := plt.subplots()[1])
    assert names(ax)[1] == "PALs − sharing everything\n(second study, 99.5 %)"
    for records in ([], RECORDS[:1]):
        forest(tables.against(records), tables.LABELS, "shared", plt.subplots()[1])
        task_forest(tables.task_differences(records, "pals-204", "shared"), plt.subplots()[1])
