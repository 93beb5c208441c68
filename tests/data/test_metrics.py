"""Metrics against hand numbers, over whole splits and over the released code's batches, and the two averages."""

import math

import numpy as np
import pytest

from palslib.data.metrics import batchwise, dev_average, glue_average, score
from palslib.data.tasks import TASKS, Task, load_rows
from palslib.study.ledger.paper import TABLE_2


def logits(predictions, classes=2):
    return np.eye(classes)[predictions]


def test_hand_numbers():
    """labels 1 1 1 0 0, predictions 1 1 0 0 1: TP 2, FN 1, TN 1, FP 1.

    Accuracy 3/5; F1 of class 1 2·2 / (2·2 + 1 + 1) = 2/3, of class 0 it would be 1/2;
    Matthews (2·1 - 1·1) / √(3·3·2·2) = 1/6. Of three classes, three labels of four are right.
    """
    labels, predictions = [1, 1, 1, 0, 0], [1, 1, 0, 0, 1]
    assert score(TASKS["mrpc"], labels, logits(predictions)) == pytest.approx({"accuracy": 60, "f1": 200 / 3})
    assert score(TASKS["cola"], labels, logits(predictions)) == pytest.approx({"matthews": 100 / 6, "accuracy": 60})
    assert score(TASKS["mnli"], [0, 1, 2, 2], logits([0, 1, 1, 2], 3)) == {"accuracy": 75}


def test_precision_and_recall_by_class_by_hand():
    """labels a a a b c, predictions a a b b b. a: precision 2/2, recall 2/3, F1 4/5; b: 1/3, 1/1, 1/2; c is never
    predicted: 0, 0, 0. Macro F1 is the mean (4/5 + 1/2 + 0) / 3."""
    task = Task("mine", ("text",), ("a", "b", "c"), ("macro_f1", "precision", "recall"))
    assert score(task, [0, 0, 0, 1, 2], logits([0, 0, 1, 1, 1], 3)) == pytest.approx({
        "macro_f1": 130 / 3,
        "precision (a)": 100, "precision (b)": 100 / 3, "precision (c)": 0,
        "recall (a)": 200 / 3, "recall (b)": 100, "recall (c)": 0,
    })  # fmt: skip
    assert np.isnan(score(task, [0, 1], logits([0, 2], 3))["recall (c)"])  # there is no c that could be found


def test_hand_numbers_of_correlations():
    """x 0 1 2 5, y 1 2 4 3: deviations (-2 -1 0 3), (-1.5 -0.5 1.5 0.5), products 3 + 0.5 + 0 + 1.5 = 5,
    Pearson 5 / √(14·5); ranks 1 2 3 4 and 1 2 4 3: Spearman 1 - 6·2 / (4·15) = 0.8."""
    values = score(TASKS["stsb"], [0, 1, 2, 5], np.array([[1], [2], [4], [3]]))
    assert values == pytest.approx({"pearson": 100 * 5 / math.sqrt(70), "spearman": 80})


def test_constant_predictions():
    """No warning, no NaN: over the whole split a correlation of constants counts 0, and F1 without any positive."""
    assert score(TASKS["mrpc"], [0, 0], logits([0, 0])) == {"accuracy": 100, "f1": 0}
    assert score(TASKS["cola"], [0, 1, 1, 0], logits([0, 0, 0, 0])) == {"accuracy": 50, "matthews": 0}
    assert score(TASKS["stsb"], [0, 1, 1, 0], np.full((4, 1), 2.5)) == {"pearson": 0, "spearman": 0}
    nearly = np.array([[2.5], [2.5 + 4e-16], [2.5], [2.5]])
    assert math.isfinite(score(TASKS["stsb"], [0, 1, 2, 3], nearly)["pearson"])


@pytest.mark.parametrize(("task", "value"), [("rte", math.nan), ("cola", math.inf), ("stsb", math.nan)])
def test_outputs_that_are_no_numbers_are_never_scored(task, value):
    """Row 2 of three: else NaN logits would be class 0, infinite ones their class, and a NaN score would count 0."""
    outputs = np.zeros((3, TASKS[task].num_outputs))
    outputs[2, -1] = value
    with pytest.raises(ValueError, match=rf"task '{task}': the output of row 2 is \[.*{value}\], not finite"):
        score(TASKS[task], [0, 1, 0], outputs)
    with pytest.raises(ValueError, match="task 'stsb': the label of row 1 is nan, not finite"):
        score(TASKS["stsb"], [0, math.nan, 1], np.array([[1.0], [2.0], [3.0]]))  # else constant, and 0


# ------------------------------------------------------------------------------------------------------ by batches: D3
def test_perfect_predictions_by_batches():
    """Ledger D3: three batches of eight, the second with one label only: (1 + 0 + 1) / 3, though all is right."""
    labels = np.array([0, 1] * 4 + [1] * 8 + [1, 0] * 4)
    values = score(TASKS["cola"], labels, logits(labels), by_batches=True)
    assert values == pytest.approx({"matthews": 200 / 3, "accuracy": 100})


def test_perfect_predictions_on_real_labels(real_data):
    """Ledger D3: .87728 of the 1,043 rows of CoLA's own dev set, in its order. 1,043 = 130 · 8 + 3: 16 batches of eight
    have one label, and so 128 rows count 0: 915 / 1,043 = .87728; with equal weights it would be 115 / 131 = .87786."""
    labels = load_rows("cola", str(real_data / "glue"), "validation")["label"].to_numpy()
    assert len(labels) == 1_043
    assert batchwise("matthews", labels, labels) == pytest.approx(915 / 1_043)


def test_last_batch_is_partial():
    """Ten rows: a batch of eight with Pearson 1, a batch of two with -1. By rows (8 · 1 - 2 · 1) / 10 = .6; over all
    rows it is above .9."""
    labels = np.array([0, 1, 2, 3, 4, 5, 1, 2, 3, 4.0])
    predictions = np.array([0, 1, 2, 3, 4, 5, 1, 2, 4, 3.0])
    assert batchwise("pearson", labels, predictions) == pytest.approx(0.6)
    assert score(TASKS["stsb"], labels, predictions[:, None])["pearson"] > 90


def test_constant_batch_makes_pearson_nan():
    """Ledger D3: one batch of constant predictions, and the mean, the task's score and the dev average are NaN."""
    labels, predictions = np.arange(16.0), np.r_[np.arange(8.0), np.full(8, 3.0)]
    values = score(TASKS["stsb"], labels, predictions[:, None], by_batches=True)
    assert math.isnan(values["pearson"]) and not math.isnan(values["spearman"])
    assert math.isnan(dev_average({"stsb": values, "rte": {"accuracy": 60.0}}))


@pytest.mark.parametrize(
    ("labels", "metrics"),
    [((), ("f1",)), (("a", "b", "c"), ("f1",)), (("a", "b"), ("precision",)), (("a", "b"), ("pearson",))],
)
def test_what_a_task_cannot_be_scored_by(labels, metrics):
    with pytest.raises(ValueError, match=f"unknown metric of task 'mine' '{metrics[0]}'"):
        Task("mine", ("text",), labels, metrics)


# ------------------------------------------------------------------------------------------------------------ averages
def table_2(row):
    """A row of the paper's table 2 in the form that `evaluate` returns."""
    return {
        "mnli": {"accuracy": row["mnli_m"], "accuracy_mm": row["mnli_mm"]},
        "qqp": {"accuracy": row["qqp_acc"], "f1": row["qqp_f1"]},
        "mrpc": {"accuracy": row["mrpc_acc"], "f1": row["mrpc_f1"]},
        "cola": {"matthews": row["cola"], "accuracy": -1e9},
        "stsb": {"pearson": -1e9, "spearman": row["stsb"]},
        **{task: {"accuracy": row[task]} for task in ("qnli", "sst2", "rte")},
    }


def test_glue_average_is_table_2s():
    """Ledger A21: nine scores, MNLI twice, F1 of QQP and MRPC; all four rows as printed, no task left out."""
    for row in TABLE_2.values():
        assert round(glue_average(table_2(row)), 1) == row["average"]
    scores = table_2(TABLE_2["pals-204"])
    assert {glue_average({t: s for t, s in scores.items() if t != task}) for task in TASKS} == {None}
    scores["mnli"].pop("accuracy_mm")
    assert glue_average(scores) is None


def test_dev_average():
    """The plain mean of each task's first metric: (50 + 80 + 60) / 3; mismatched MNLI and F1 do not enter."""
    scores = {
        "cola": {"matthews": 50.0, "accuracy": 75.0},
        "mnli": {"accuracy": 80.0, "accuracy_mm": 10.0},
        "mrpc": {"accuracy": 60.0, "f1": 70.0},
    }
    assert dev_average(scores) == pytest.approx(190 / 3)
