"""Records: one JSON file a run, whole or absent, without a trace of the machine's folders, read into tidy frames."""

import json
import math
import os

import pandas as pd
import pytest

from palslib.records import environment, history_frame, load_records, read_records, summarise, write_record


def record(seed=0, average=60.0, method="pals-204", status="finished"):
    config = {"method": method, "schedule": "annealed", "seed": seed, "backbone": "tiny", "data": "synthetic"}
    point = {"step": 10, "dev_average": average, "glue_average": None, "scores": {"rte": {"accuracy": average}}}
    return {
        "key": f"key{seed}",
        "status": status,
        "config": config | {"steps": 20, "recipe": "paper", "batch_size": 8},
        "method": {"size": 120},
        "counts": {"ratio": 1.13},
        "seconds": {"total": 3.0},
        "precision": "float32",
        "results": {"last": point, "best": point | {"step": 5}},
        "history": [point | {"step": 5, "dev_average": 50.0, "loss": {"rte": 0.7}}, point],
    }


def test_round_trip(tmp_path):
    write_record(tmp_path / "a" / "one.json", record(0))
    write_record(tmp_path / "b.json", record(1, 62.0))
    (tmp_path / "c.json").write_text('{"no": "record"}')
    (tmp_path / "d.json").write_text("[1, 2]")
    write_record(tmp_path / "e.json", record(2, status="stopped"))
    frame = load_records(tmp_path)
    assert frame["seed"].tolist() == [0, 1]  # in order of path; what has not finished is no result
    row = frame.iloc[1]
    assert (row["last dev average"], row["best step"], row["last rte accuracy"]) == (62.0, 5, 62.0)
    assert (row["size"], row["ratio"], row["seconds"], row["key"]) == (120, 1.13, 3.0, "key1")
    assert len(load_records(tmp_path / "b.json")) == 1
    assert len(load_records([str(tmp_path / "b.json"), tmp_path / "a" / "one.json"])) == 2
    assert load_records(tmp_path / "a" / "none").empty


def test_a_record_of_several_runs_is_each_of_them(tmp_path):
    write_record(tmp_path / "two.json", {"kind": "ablation", "spans": ["a,b"], "runs": [record(0), record(1)]})
    runs = read_records(tmp_path)
    assert [(run["config"]["seed"], run["spans"]) for run in runs] == [(0, ["a,b"]), (1, ["a,b"])]
    assert load_records(tmp_path)["seed"].tolist() == [0, 1]


def test_malformed_json_is_named(tmp_path):
    write_record(tmp_path / "a.json", record())
    (tmp_path / "broken.json").write_text('{"config": ')
    with pytest.raises(ValueError, match=r"broken\.json: not a JSON record: Expecting value: line 1"):
        load_records(tmp_path)
    (tmp_path / "broken.json").write_bytes(b'{"config": "\xff"}')
    with pytest.raises(ValueError, match=r"broken\.json: not a JSON record"):
        read_records(tmp_path)


def test_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "one.json"
    write_record(path, record(0))
    before = path.read_bytes()
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_record(path, record(1) | {"thing": object()})

    def crash(*args):
        raise OSError("disk gone")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="disk gone"):
        write_record(path, record(1))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["one.json"]


def test_nan_is_null(tmp_path):
    """The released code's averages can be NaN (ledger D3), which JSON does not have."""
    write_record(tmp_path / "one.json", record(0, math.nan))
    strict = json.loads((tmp_path / "one.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert strict["results"]["last"]["dev_average"] is None
    assert math.isnan(load_records(tmp_path)["last dev average"].astype(float).iloc[0])


def test_history_frame():
    frame = history_frame(record())
    assert frame.to_dict("list") == {
        "step": [5, 5, 10, 10],
        "task": ["average", "rte", "average", "rte"],
        "metric": ["dev", "accuracy", "dev", "accuracy"],
        "score": [50.0, 60.0, 60.0, 60.0],
    }


def test_summarise():
    """60 and 62: mean 61, deviation √2, standard error √2 / √2 = 1. One seed has none."""
    frame = pd.DataFrame(
        {"method": ["a", "a", "b"], "seed": [0, 1, 0], "last dev average": [60.0, 62.0, 70.0], "steps": [1, 1, 1]}
    )
    rows = summarise(frame, ["method"]).set_index("method")
    assert rows.loc["a"].tolist() == pytest.approx([61, 1, 2])
    assert rows.loc["b", ["mean", "seeds"]].tolist() == [70, 1]
    assert math.isnan(rows.loc["b", "standard_error"])


def test_summarise_refuses_a_seed_twice():
    """Two runs of one seed differ in something else: they are no sample of seeds."""
    frame = pd.DataFrame({"method": ["a", "a"], "steps": [60, 2000], "seed": [0, 0], "last dev average": [40.0, 66.0]})
    with pytest.raises(ValueError, match=r"two runs of one seed in one group: {'method': 'a', 'seed': 0}"):
        summarise(frame, ["method"])
    assert len(summarise(frame, ["method", "steps"])) == 2


def test_environment_names_no_folder_and_no_host():
    about = environment()
    text = json.dumps(about)
    assert os.uname().nodename not in text or os.uname().nodename in ("localhost",)
    assert os.getcwd() not in text
    assert os.path.expanduser("~") + "/" not in text
    assert about["packages"]["torch"]
    assert about["git_commit"] is None or len(about["git_commit"]) == 40
    assert about["git_dirty"] in (True, False)
