"""The matrix R and its three numbers by hand, from made-up records, and their heat map."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from palslib.study.analysis.forgetting import accuracy_matrix
from palslib.study.analysis.forgetting import transfer_measures as measures
from palslib.study.figures.forgetting import accuracy_frame, accuracy_heatmap

TASKS = ["rte", "stsb", "mrpc"]
SCORES = {0: [50, -10, 40], 4: [80, 0, 45], 7: [70, 60, 55], 10: [65, 50, 75]}  # of ten steps: 4, 3 and 3 a task


def record(scores=SCORES, **config):
    """Accuracy and, as MRPC's and STS-B's second metrics, something else that must not be taken."""
    points = [
        {"step": step, "scores": {t: {"first": s, "second": -99.0} for t, s in zip(TASKS, row, strict=False)}}
        for step, row in scores.items()
    ]
    config = {"tasks": TASKS[: len(next(iter(scores.values())))], "steps": 10, "schedule": "sequential"} | config
    return {"config": config, "history": points, "results": {"last": points[-1]}}


def test_the_matrix_and_its_measures_by_hand():
    """In the order of training, whatever order the scores were written in; evaluations in between are left out.

    Average (65 + 50 + 75) / 3; backward ((65 - 80) + (50 - 60)) / 2; forward ((0 + 10) + (55 - 40)) / 2."""
    one = record(dict(sorted((SCORES | {5: [1, 2, 3]}).items())))
    for point in one["history"]:
        point["scores"] = dict(reversed(point["scores"].items()))
    R = accuracy_matrix(one)
    assert R.index.name == "after" and list(R.index) == list(R.columns) == TASKS
    np.testing.assert_array_equal(R, [[80, 0, 45], [70, 60, 55], [65, 50, 75]])
    assert measures(one) == {"average": pytest.approx(190 / 3), "backward": -12.5, "forward": 12.5}


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (record({step: row for step, row in SCORES.items() if step}), [190 / 3, -12.5, np.nan]),  # none at the start
        (record({0: [50], 10: [80]}), [80, np.nan, np.nan]),  # one task
        (record(schedule="round-robin"), [190 / 3, np.nan, np.nan]),
        (record(SCORES | {10: [65, None, 75]}), [np.nan, np.nan, 12.5]),  # null: Pearson of constant predictions
    ],
)
def test_what_cannot_be_measured_is_not_a_number(of, expected):
    """Average, backward, forward."""
    assert list(measures(of).values()) == pytest.approx(expected, nan_ok=True)


def test_other_records_are_refused():
    with pytest.raises(ValueError, match="'annealed'"):
        accuracy_matrix(record(schedule="annealed"))
    with pytest.raises(ValueError, match=r"\[4, 7\].* \[0, 10\]"):
        accuracy_matrix(record({0: SCORES[0], 10: SCORES[10]}))


def test_heat_map():
    """Every number where its row and column say, in one scale of colours; the stairs run below the diagonal."""
    R, ax = accuracy_matrix(record()), plt.figure().add_subplot()
    assert list(accuracy_frame(R)) == ["after", "task", "score"] and len(accuracy_frame(R)) == 9
    accuracy_heatmap(R, ax)
    assert [float(text.get_text()) for text in ax.texts] == [80, 0, 45, 70, 60, 55, 65, 50, 75]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["RTE", "STS-B", "MRPC"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["RTE", "STS-B", "MRPC"]
    assert ax.collections[0].get_clim() == (0, 100)
    assert {text.get_text() for text in ax.texts if text.get_color() == "black"} == {"0.0", "45.0", "50.0"}
