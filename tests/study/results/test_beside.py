"""What stands beside the second study's decisions, on made-up records."""

import numpy as np
import pytest
import second_beside as beside
from pytest import approx
from second_beside import WEIGHTED, over_examples
from second_study import ARMS, ONE_RATE, QUESTIONS, answered, read_second
from test_second import confirmed, loud

from palslib.common.places import RECORDS
from palslib.common.reading import read_object
from palslib.data.metrics import METRICS, dev_average, main_scores
from palslib.data.tasks import TASKS, load_rows
from palslib.records import read_predictions


def test_acting_is_of_the_last_step_of_arms_that_add_something():
    records = confirmed()
    for number, record in enumerate(records):
        record["key"] = str(number)
        record["results"]["last"]["dev_average"] = 60.0
        if record["config"]["method"] != "shared":
            layers = {"size": {"0": 0.1, "1": 0.3}, "entropy": {"0": 0.9, "1": 1.0}}
            point = {"step": 8000, "acting": {"rte": layers}}
            record["history"] = [{"step": 4000, "acting": {"rte": {"size": {"0": 9.0}}}}, point]
            scores = record["results"]["last"]["scores"]
            record["results"]["switched off"] = {"dev_average": 58 + record["config"]["seed"] % 2, "scores": scores}
        else:
            record["history"] = [{"step": 8000}]
    frame = beside.acting(records).set_index("arm")
    seeds = dict.fromkeys(ARMS[1:], 6) | {ONE_RATE: 3}
    assert dict(frame["seeds"]) == seeds
    assert frame["size"].tolist() == approx([0.2] * 4) and frame["entropy"].tolist() == approx([0.95] * 4)
    assert frame["switched off"][:3].str.startswith("-1.50 [-2.07, -0.93]").all()  # 0.548 / √6 · t = 0.57
    assert beside.acting([]).empty


@pytest.mark.parametrize(
    ("runs", "seeds", "level", "draws"),
    [(confirmed(), 6, 0.995, 50), ([*loud(), *confirmed(range(306, 312), pals=9.0)], 12, 0.952, 2)],
)
def test_questions_over_seeds_and_examples(monkeypatch, runs, seeds, level, draws):
    """PALs are right on all of 200 rows, the others on nine tenths: 10 points, a standard error of 2.1 by rows. Seeds
    and level are those of the look that decides, whatever other runs there are."""
    labels = {"rte/validation": np.random.default_rng(0).integers(0, 2, 200)}
    wrong = {name: np.where(np.arange(200) < 20, 1 - right, right) for name, right in labels.items()}
    runs = runs if seeds == 12 else [*runs, confirmed([306])[0]]
    for run in runs:
        config = run["config"]
        run["file"] = f"confirmation/{config['method']}-{config['adaptation_rate']}-{config['seed']}.json"
    monkeypatch.setattr(beside, "read_predictions", lambda path: labels if "pals-204-10" in path.name else wrong)
    rows = beside.over_both(runs, labels, draws)
    assert [(row["left"], row["right"]) for row in rows] == list(QUESTIONS) and beside.over_both([], labels) == []
    assert [row["difference"] for row in rows] == approx([10, 10, 10, 0])
    assert {row["level"] for row in rows} == {level} and rows[0]["seeds"] == f"{seeds} and {seeds}"
    alone = over_examples([labels] * seeds, [wrong] * seeds, labels, level, draws)
    assert (rows[0]["low"], rows[0]["high"]) == (alone.low, alone.high)


def predictions(rng, labels: dict, right: float) -> dict:
    return {name: np.where(rng.random(len(rows)) < right, rows, 1 - rows) for name, rows in labels.items()}


def test_dev_examples_widen_an_interval_that_seeds_alone_leave_narrow():
    """Three equal runs a side that differ on a tenth of 200 rows: √(.1 · .9 / 200) = 2.1 points, on two tasks 1.5."""
    rng = np.random.default_rng(3)
    labels = {f"{task}/validation": rng.integers(0, 2, 200) for task in ("rte", "mrpc")}
    perfect = {name: rows.copy() for name, rows in labels.items()}
    worse = {name: np.where(np.arange(200) < 20, 1 - rows, rows) for name, rows in labels.items()}
    interval = over_examples([perfect] * 3, [worse] * 3, labels, draws=400)
    assert interval.value == approx(10) and interval.seeds == (3, 3)
    assert (interval.high - interval.low) / 2 == approx(1.96 * 1.5, rel=0.2)
    other = [predictions(rng, labels, right) for right in (0.5, 0.9)]
    wide = over_examples([perfect] * 3, other, labels, draws=400)  # two runs that differ much: seeds count as well
    assert wide.high - wide.low > 2 * (interval.high - interval.low)


@pytest.mark.parametrize("metric", WEIGHTED)
def test_a_row_that_counts_several_times_is_a_row_that_is_there_several_times(metric):
    rng = np.random.default_rng(5)
    labels, runs, weights = rng.integers(0, 2, 50), rng.integers(0, 2, (3, 50)), rng.integers(0, 4, 50)
    runs[2] = 1  # equal predictions have no correlation
    expected = [METRICS[metric](np.repeat(labels, weights), np.repeat(run, weights)) for run in runs]
    assert WEIGHTED[metric](labels, runs, weights.astype(float)) == approx(np.nan_to_num(expected))


def test_the_record_of_examples_is_of_the_look_that_decides():
    names = ("question", "left", "right", "level")
    shown = [[row[name] for name in names] for row in read_object(beside.OVER_EXAMPLES)["questions"]]
    assert shown == [[row[name] for name in names] for row, _ in answered(read_second())]


@pytest.mark.real_data
def test_the_committed_scores_follow_from_the_predictions_that_are_kept_with_them():
    labels = {}
    for record in read_second():
        last, kept = record["results"]["last"], read_predictions(RECORDS / record["file"])
        assert last["dev_average"] == approx(dev_average(last["scores"]), abs=1e-9), record["file"]
        for task, score in main_scores(last["scores"]).items():
            split = next(name for name in kept if name.startswith(f"{task}/"))  # MNLI's first is the matched one
            if split not in labels:
                labels[split] = load_rows(task, "glue", split.partition("/")[2])["label"].to_numpy()
            score_again = METRICS[TASKS[task].metrics[0]](labels[split], kept[split])
            assert score == approx(100 * np.nan_to_num(score_again), abs=1e-4), (record["file"], task)
