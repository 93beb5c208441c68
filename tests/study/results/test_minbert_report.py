"""The table of the minBERT report: means over seeds by hand, rows without runs, and runs that are not its."""

import json
import math
from dataclasses import asdict

import matplotlib.pyplot as plt
import pytest

from palslib.plan.config import RunConfig
from palslib.study.figures.minbert import results_dots, similarity_range, training_curves
from palslib.study.ledger.derivations import derive
from palslib.study.ledger.paper import MINBERT_TABLE_1, load_ledger
from palslib.study.results.minbert import (
    COLUMNS,
    LABELS,
    claims_frame,
    curves_frame,
    model_label,
    rank_frame,
    results_frame,
    results_table,
)


def record(method="shared", schedule="annealed", seed=0, scores=(40.0, 70.0, 60.0), **options):
    """A record of a finished run on the course's data, as `make_record` writes one, with these three scores."""
    tasks = options.pop("tasks", ("sst5", "quora", "sts"))
    config = RunConfig(
        method=method, schedule=schedule, seed=seed, tasks=tasks, data=options.pop("data", "minbert"), **options
    )
    metrics = {"sst5": "accuracy", "quora": "accuracy", "sts": "pearson"}
    results = {task: {metrics[task]: score} for task, score in zip(tasks, scores, strict=True)}
    return {
        "status": "finished",
        "config": {k: v for k, v in asdict(config).items() if k not in ("folder", "progress")},
        "method": asdict(config.resolved_method()),
        "precision": "float32",
        "results": {"last": {"scores": results, "dev_average": sum(scores) / len(scores)}},
    }


def line(frame, model, task):
    (found,) = frame[(frame["model"] == model) & (frame["task"] == task)].to_dict("records")
    return found


def test_the_rows_are_those_of_the_ledger():
    """C13 names the runs in the order of the report's table, so that each row finds its own."""
    for (method, schedule), need in zip(MINBERT_TABLE_1, load_ledger()["C13"].needs, strict=True):
        named = need.split()[:2]
        assert named == [method.replace("324", "204"), schedule]
        assert ("size=" in need) == (method == "pals-324")


def test_mean_over_seeds():
    """SST-5 of 40 and 42 is 41 ± 1; (41 + 70 + 61) / 3 = 57.33. The report's .495, .771, .502 have the mean 58.93.

    The seeds' means of three are 56.67 and 58: 57.33 ± 0.67.
    """
    frame = results_frame([record(), record(seed=1, scores=(42.0, 70.0, 62.0))])
    assert list(frame["model"].unique()) == [" ".join(model) for model in MINBERT_TABLE_1]
    assert line(frame, "shared annealed", "sst5") == {
        "model": "shared annealed",
        "task": "sst5",
        "report": pytest.approx(49.5),
        "ours": 41.0,
        "standard_error": pytest.approx(1.0),
        "seeds": 2,
    }
    mean = line(frame, "shared annealed", "mean")
    assert (mean["ours"], mean["report"], mean["seeds"]) == (pytest.approx(172 / 3), pytest.approx(176.8 / 3), 2)
    assert mean["standard_error"] == pytest.approx(2 / 3)
    rest = frame[frame["model"] != "shared annealed"]
    assert rest["ours"].isna().all() and (rest["seeds"] == 0).all()


def test_every_row_has_its_own_run():
    """PALs at the budget's size and at a larger one are told apart; records that were JSON are the same."""
    found = []
    for k, ((method, schedule), _) in enumerate(MINBERT_TABLE_1.items()):
        size = {"size": 348} if method == "pals-324" else {}
        size |= {"method_options": {"activation": "gelu"}} if method.startswith("pals") else {}
        name = "round-robin" if schedule == "single-task" else schedule
        made = record(method.replace("324", "204"), name, scores=(float(k), 50.0, 60.0), **size)
        found.append(json.loads(json.dumps(made)))
    frame = results_frame(found)
    assert frame[frame["task"] == "sst5"]["ours"].tolist() == list(range(8))
    assert (frame["seeds"] == 1).all()


def test_other_runs_do_not_count():
    """On synthetic data, with random weights, with memory, of another size, or not finished."""
    others = [
        record(data="synthetic"),
        record(backbone="minbert:tiny"),
        record(memory=8),
        record("pals-204", size=24),
        record() | {"status": "stopped"},
    ]
    assert (results_frame(others)["seeds"] == 0).all()


def test_a_seed_twice_is_refused():
    with pytest.raises(ValueError, match="two runs of one seed in one group"):
        results_frame([record(arm="shared"), record(arm="shared", steps=70)])


def test_separate_models_are_one_row_and_a_seed_without_all_three_has_no_mean():
    """Two seeds of SST-5 and Quora, one of STS: the mean is that of the seed that has all, and says one seed."""
    scores = {"sst5": (50.0, 54.0), "quora": (60.0, 64.0), "sts": (70.0,)}
    runs = [
        record("fine-tuned", tasks=(task,), seed=seed, scores=(score,))
        for task, of in scores.items()
        for seed, score in enumerate(of)
    ]
    frame = results_frame(runs)
    mean = line(frame, "fine-tuned single-task", "mean")
    assert (mean["ours"], mean["seeds"]) == (60.0, 1)
    assert line(frame, "fine-tuned single-task", "sst5")["ours"] == 52.0
    none = line(results_frame(runs[:4]), "fine-tuned single-task", "mean")
    assert math.isnan(none["ours"]) and none["seeds"] == 0


def test_places():
    """The report's means of these two are .589 and .595: the order turns round; what was not run has no place."""
    runs = [record(), record(schedule="round-robin", scores=(30.0, 70.0, 60.0))]
    assert rank_frame(results_frame(runs)).to_dict("list") == {
        "model": ["shared annealed", "shared round-robin"],
        "report": [2, 1],
        "ours": [1, 2],
    }
    assert rank_frame(results_frame([])).empty


def test_table():
    table = results_table(results_frame([record(), record(seed=1, scores=(42.0, 70.0, 62.0))]))
    assert list(table.columns[:4]) == ["model", "seeds", "SST-5", "SST-5 (report)"]
    assert list(table["seeds"]) == [0, 2] + [0] * 6
    columns = ["SST-5", "Quora", "STS", "mean", "mean (report)", "place (ours)"]
    table = table.replace("\u00a0", " ", regex=True)  # cells do not break
    assert table.loc[1, columns].tolist() == ["41.0 ± 1.0", "70.0 ± 0.0", "61.0 ± 1.0", "57.3 ± 0.7", "58.9", "1"]
    assert table.loc[0, columns].tolist() == ["not run"] * 4 + ["60.8", "–"]
    assert results_table(results_frame([record()])).loc[1, "SST-5"] == "40.0"


def test_claims():
    """Round robin minus annealed: 2 and 4 points, so 3 ± 12.7 · √2 / √2; PALs with GELU were not run."""
    runs = [record(seed=seed, scores=(40.0, 70.0, 60.0)) for seed in (0, 1)]
    runs += [record(schedule="round-robin", seed=s, scores=(40.0 + 3 * g, 70.0, 60.0)) for s, g in ((0, 2), (1, 4))]
    frame = claims_frame(runs).set_index("compared")
    rows = {"C13": 3, "C13b": 2, "C13c": 2, "C13d": 2, "C13e": 1, "C28": 2, "C29": 1}
    assert frame["row"].value_counts().to_dict() == rows
    ran = frame.loc["shared, round robin: better than shared, annealed"]
    assert (ran["difference"], ran["high"], ran["seeds"]) == (pytest.approx(3), pytest.approx(15.706, abs=1e-3), 2)
    assert ran["verdict"] == "inconclusive"
    pals = [
        record("pals-204", schedule, scores=(40.0, 70.0, 60.0), method_options={"activation": "gelu"})
        for schedule in ("annealed", "round-robin")
    ]
    overfits = claims_frame(pals).set_index("row").loc["C13b", ["seeds", "verdict"]].to_numpy().tolist()
    assert overfits == [[1, "not testable at this scale"], [0, "not run"]]  # as the ledger says of the row
    missing = frame.loc["shared, annealed: no worse than PALs, s = 204, annealed"]
    assert missing["verdict"] == "not run" and missing["seeds"] == 0
    assert "shared, annealed: no worse than shared, annealed, further pre-trained" in frame.index
    assert "PALs, s = 324, annealed: no worse than PALs, s = 204, annealed" in frame.index
    assert "PALs, s = 324, annealed: better than PALs, s = 204, annealed on STS" in frame.index


@pytest.mark.parametrize("records", [[], [record()]])
def test_dots(records):
    """Eight models in each panel, the first on top; what was measured only where it was."""
    frame = results_frame(records)
    frame["model"] = frame["model"].map(model_label)
    figure = results_dots(frame, rank_frame(frame), LABELS)
    assert [ax.get_title() for ax in figure.axes] == ["SST-5", "Quora", "STS", "mean", "place by mean"]
    ax = figure.axes[0]
    assert ax.collections[1].get_offsets().tolist()[-1] == [pytest.approx(52.3), 7]
    assert [x for x in ax.lines[0].get_xdata() if x == x] == [40.0] * len(records)
    assert ax.get_yticklabels()[-1].get_text() == "three BERTs"


def followed(*, losses=({"sst5": 1.5}, {"sst5": 1.0, "sts": 2.0}), **options):
    """A record of two evaluations, ten steps apart, with the scores of `record` at the last and ten less before."""
    run = record(**options)
    last = run["results"]["last"]["scores"]
    first = {task: {metric: score - 10 for metric, score in scores.items()} for task, scores in last.items()}
    both = zip((10, 20), (first, last), losses, strict=True)
    return run | {"history": [{"step": step, "scores": scores, "loss": loss} for step, scores, loss in both]}


def test_curves():
    """A row for each task and evaluation; a task that was not drawn since the last evaluation has no loss."""
    frame = curves_frame([followed(), followed(method="pals-204"), followed(data="synthetic")])
    assert set(frame["model"]) == {"shared annealed"}  # the report's PALs have a GELU
    assert len(frame) == 2 * 3 and (frame["seed"] == 0).all()
    at = frame.set_index(["task", "step"])
    assert at.loc["sts", "score"].to_dict() == {10: 50, 20: 60}
    assert at.loc["sst5", "loss"].to_dict() == {10: 1.5, 20: 1.0}
    assert math.isnan(at.loc[("sts", 10), "loss"]) and at.loc[("sts", 20), "loss"] == 2
    assert list(curves_frame([]).columns) == list(frame.columns)


def test_training_curves():
    runs = [followed(), followed(seed=1, scores=(42.0, 70.0, 62.0)), followed(schedule="round-robin")]
    figure = training_curves(curves_frame(runs), {task: LABELS[task] for task in COLUMNS})
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["annealed", "round-robin"]
    assert [ax.get_title() for ax in figure.axes] == ["SST-5", "Quora", "STS", "STS, training loss"]
    assert figure.axes[0].get_ylabel() == "shared\ndev score (%)"
    drawn = {tuple(y) for line in figure.axes[0].lines if len(y := line.get_ydata())}
    assert drawn == {(31, 41), (30, 40)}  # annealed is the mean of two seeds
    band = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (30, 42)  # with a standard error of 1 on both sides


def test_similarity_range():
    """From 5σ(-1) = 1.345 over 5σ(0) = 2.5 to 5σ(1) = 3.655, between grey bands down to 0 and up to 5."""
    ax = plt.figure().add_subplot()
    similarity_range(*derive("B16").values(), ax)
    assert ax.lines[0].get_ydata()[[0, 100, 200]] == pytest.approx([1.345, 2.5, 3.655], abs=0.001)
    assert [text.get_text() for text in ax.texts] == ["1.34", "3.66"]
    assert [band.get_y() + band.get_height() for band in ax.patches] == pytest.approx([1.345, 5], abs=0.001)
