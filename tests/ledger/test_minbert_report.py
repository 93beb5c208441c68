"""The table of the minBERT report: means over seeds by hand, rows without runs, and runs that are not its."""

import matplotlib.pyplot as plt
import pytest

from palslib.ledger.minbert_report import results_dots, results_frame, results_table, similarity_range
from palslib.ledger.paper import MINBERT_TABLE_1, load_ledger
from palslib.plan.config import RunConfig
from palslib.records import read_records, write_record


def record(method="shared", schedule="annealed", seed=0, scores=(40.0, 70.0, 60.0), **options):
    """A record of a finished run on the course's data, as `make_record` writes one, with these three scores."""
    from dataclasses import asdict

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
    for (method, schedule), need in zip(MINBERT_TABLE_1, load_ledger()["C13"].needs, strict=False):
        named = need.split()[:2]
        assert named == [method.replace("324", "204"), schedule]
        assert ("size=" in need) == (method == "pals-324")


def test_mean_over_seeds():
    """SST-5 of 40 and 42 is 41; (41 + 70 + 61) / 3 = 57.33. The report's .495, .771, .502 have the mean 58.93."""
    frame = results_frame([record(), record(seed=1, scores=(42.0, 70.0, 62.0))])
    assert list(frame["model"].unique()) == [" ".join(model) for model in MINBERT_TABLE_1]
    assert line(frame, "shared annealed", "sst5") == {
        "model": "shared annealed",
        "task": "sst5",
        "report": pytest.approx(49.5),
        "ours": 41.0,
        "seeds": 2,
    }
    mean = line(frame, "shared annealed", "mean")
    assert (mean["ours"], mean["report"], mean["seeds"]) == (pytest.approx(172 / 3), pytest.approx(176.8 / 3), 2)
    rest = frame[frame["model"] != "shared annealed"]
    assert rest["ours"].isna().all() and (rest["seeds"] == 0).all()


def test_every_row_has_its_own_run(tmp_path):
    """PALs at the budget's size and at a larger one are told apart; records that went through a file are the same."""
    for k, ((method, schedule), _) in enumerate(MINBERT_TABLE_1.items()):
        size = {"size": 348} if method == "pals-324" else {}
        size |= {"method_options": {"activation": "gelu"}} if method.startswith("pals") else {}
        name = "round-robin" if schedule == "single-task" else schedule
        made = record(method.replace("324", "204"), name, scores=(float(k), 50.0, 60.0), **size)
        write_record(tmp_path / f"{k}.json", made)
    frame = results_frame(read_records(tmp_path))
    assert frame[frame["task"] == "sst5"]["ours"].tolist() == list(range(8))
    assert (frame["seeds"] == 1).all()


def test_separate_records_of_separate_models():
    """Three runs of one task each are one row; the mean waits for the third."""
    parts = [record("fine-tuned", tasks=(task,), scores=(50.0,)) for task in ("sst5", "quora", "sts")]
    frame = results_frame(parts[:2])
    assert line(frame, "fine-tuned single-task", "quora")["ours"] == 50.0
    mean = line(frame, "fine-tuned single-task", "mean")
    assert mean["ours"] != mean["ours"] and mean["seeds"] == 0  # NaN
    assert line(results_frame(parts), "fine-tuned single-task", "mean")["ours"] == 50.0


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
        results_frame([record(), record(steps=70)])


def test_table():
    """One row a model; where there is no run, the table says so."""
    table = results_table(results_frame([record()]))
    assert list(table.columns[:4]) == ["model", "seeds", "SST-5", "SST-5 (report)"]
    assert list(table["seeds"]) == ["no record", "1"] + ["no record"] * 6
    assert table.loc[1, ["SST-5", "Quora", "STS", "mean"]].tolist() == [40.0, 70.0, 60.0, pytest.approx(170 / 3)]


@pytest.mark.parametrize("records", [[], [record()]])
def test_dots(records):
    """Eight models in each of four panels, the first on top; what was measured only where it was."""
    figure = results_dots(results_frame(records))
    assert [ax.get_title() for ax in figure.axes] == ["SST-5", "Quora", "STS", "mean"]
    report, ours = figure.axes[0].collections[1:]
    assert report.get_offsets().tolist()[-1] == [pytest.approx(52.3), 7]
    assert [x for x, _ in ours.get_offsets().tolist() if x is not None and x == x] == [40.0] * len(records)
    plt.close(figure)


def test_similarity_range():
    """Of 0, 1.4, 3.6 and 5 two lie within [1.34, 3.66]."""
    ax = similarity_range([0.0, 1.4, 3.6, 5.0])
    assert ax.get_title() == "50% of the pairs lie between 1.34 and 3.66"
    assert sum(patch.get_height() for patch in ax.containers[0]) == 2
    plt.close(ax.figure)
