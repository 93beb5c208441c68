"""The table of the minBERT report: means over seeds by hand, rows without runs, and runs that are not its."""

import math
from statistics import fmean

import matplotlib.pyplot as plt
from made_up import record_of
from pytest import approx

from palslib.study.figures.minbert import results_dots, similarity_range, training_curves
from palslib.study.ledger.derivations import derive
from palslib.study.ledger.paper import MINBERT_TABLE_1
from palslib.study.results import minbert


def record(method="shared", schedule="annealed", seed=0, scores=(40.0, 70.0, 60.0), **options):
    """A record of a finished run on the course's data with these three scores."""
    settings = {"tasks": ("sst5", "quora", "sts"), "data": "minbert"} | options
    scored = zip(settings["tasks"], scores, strict=True)
    results = {task: {"pearson" if task == "sts" else "accuracy": score} for task, score in scored}
    return record_of(results, fmean(scores), method=method, schedule=schedule, seed=seed, **settings)


def test_mean_over_seeds():
    """SST-5 of 40 and 42 is 41 ± 1; (41 + 70 + 61) / 3 = 57.33. The report's .495, .771, .502 have the mean 58.93.

    The seeds' means of three are 56.67 and 58: 57.33 ± 0.67.
    """
    frame = minbert.results_frame([record(), record(seed=1, scores=(42.0, 70.0, 62.0))])
    columns = ["report", "ours", "standard_error", "seeds"]
    shared = frame[frame["model"] == "shared annealed"].set_index("task")[columns]
    assert shared.loc["sst5"].tolist() == approx([49.5, 41, 1, 2])
    assert shared.loc["mean"].tolist() == approx([176.8 / 3, 172 / 3, 2 / 3, 2])
    again = [record(seed=seed, scores=(99.0, 99.0, 99.0), study="again") for seed in (7,)]
    assert minbert.results_frame([record(), record(seed=1, scores=(42.0, 70.0, 62.0)), *again]).equals(frame)
    rest = frame[frame["model"] != "shared annealed"]
    assert rest["ours"].isna().all() and (rest["seeds"] == 0).all()
    table = minbert.results_table(frame).replace("\u00a0", " ", regex=True)  # cells do not break
    columns = ["seeds", "SST-5", "SST-5 (report)", "mean", "place (ours)"]
    assert table.loc[1, columns].tolist() == [2, "41.0 ± 1.0", "49.5", "57.3 ± 0.7", "1"]
    assert table.loc[0, columns].tolist() == [0, "not run", "52.3", "not run", "–"]


def test_every_row_has_its_own_run():
    """PALs at the budget's size and at a larger one are told apart."""
    records = []
    for k, ((method, schedule), _) in enumerate(MINBERT_TABLE_1.items()):
        size = {"size": 348} if method == "pals-324" else {}
        size |= {"method_options": {"activation": "gelu"}} if method.startswith("pals") else {}
        name = "round-robin" if schedule == "single-task" else schedule
        records.append(record(method.replace("324", "204"), name, scores=(float(k), 50.0, 60.0), **size))
    frame = minbert.results_frame(records)
    assert frame[frame["task"] == "sst5"]["ours"].tolist() == list(range(8))
    assert (frame["seeds"] == 1).all()
    assert minbert.rank_frame(frame)["ours"].tolist() == list(range(8, 0, -1))


def test_separate_models_are_one_row_and_a_seed_without_all_three_has_no_mean():
    """Two seeds of SST-5 and Quora, one of STS: the mean is that of the seed that has all, and says one seed."""
    scores = {"sst5": (50.0, 54.0), "quora": (60.0, 64.0), "sts": (70.0,)}
    runs = [
        record("fine-tuned", tasks=(task,), seed=seed, scores=(score,))
        for task, by_seed in scores.items()
        for seed, score in enumerate(by_seed)
    ]
    these = "model == 'fine-tuned single-task'"
    whole, part = (minbert.results_frame(some).query(these).set_index("task") for some in (runs, runs[:4]))
    assert whole.loc["mean", ["ours", "seeds"]].tolist() == [60.0, 1] and whole.loc["sst5", "ours"] == 52.0
    assert math.isnan(part.loc["mean", "ours"])


def followed(*, losses=({"sst5": 1.5}, {"sst5": 1.0, "sts": 2.0}), **options):
    """A record of two evaluations, ten steps apart, with the scores of `record` at the last and ten less before."""
    run = record(**options)
    last = run["results"]["last"]["scores"]
    first = {task: {metric: score - 10 for metric, score in scores.items()} for task, scores in last.items()}
    both = zip((10, 20), (first, last), losses, strict=True)
    return run | {"history": [{"step": step, "scores": scores, "loss": loss} for step, scores, loss in both]}


def test_curves():
    """A row for each task and evaluation; a task that was not drawn since the last evaluation has no loss."""
    frame = minbert.curves_frame([followed(), followed(method="pals-204"), followed(data="synthetic")])
    assert set(frame["model"]) == {"shared annealed"}  # the report's PALs have a GELU
    assert len(frame) == 2 * 3 and (frame["seed"] == 0).all()
    at = frame.set_index(["task", "step"])
    assert at.loc["sts", "score"].to_dict() == {10: 50, 20: 60}
    assert at.loc["sst5", "loss"].to_dict() == {10: 1.5, 20: 1.0}
    assert math.isnan(at.loc[("sts", 10), "loss"]) and at.loc[("sts", 20), "loss"] == 2
    assert list(minbert.curves_frame([]).columns) == list(frame.columns)


def test_figures():
    """Eight models a panel, the first on top, our score only where there is one; curves are means of seeds, in a band
    of a standard error on both sides."""
    for records in ([], [record()]):
        frame = minbert.results_frame(records)
        figure = results_dots(frame, minbert.rank_frame(frame), minbert.LABELS)
        ax = figure.axes[0]
        assert ax.collections[1].get_offsets().tolist()[-1] == [approx(52.3), 7]
        assert [x for x in ax.lines[0].get_xdata() if x == x] == [40.0] * len(records)
    runs = [followed(), followed(seed=1, scores=(42.0, 70.0, 62.0)), followed(schedule="round-robin")]
    ax = training_curves(minbert.curves_frame(runs), {task: minbert.LABELS[task] for task in minbert.COLUMNS}).axes[0]
    assert {tuple(y) for line in ax.lines if len(y := line.get_ydata())} == {(31, 41), (30, 40)}
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (30, 42)
    ax = plt.figure().add_subplot()
    similarity_range(*derive("B16").values(), ax)  # 5σ(-1), 5σ(0), 5σ(1)
    assert ax.lines[0].get_ydata()[[0, 100, 200]] == approx([1.345, 2.5, 3.655], abs=0.001)
