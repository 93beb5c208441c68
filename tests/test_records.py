"""Records: one JSON file a run, whole or absent, without a trace of the machine's folders, read into tidy frames."""

import json
import math
import re

import pandas as pd
import pytest
from made_up import record_of

from palslib.common.places import RECORDS
from palslib.records import load_records, read_records, summarise, write_record


def record(seed=0, average=60.0, status="finished"):
    made = record_of({"rte": {"accuracy": average}}, average, backbone="tiny", size=120, seed=seed)
    last = made["results"]["last"] | {"glue_average": None}
    results = {"last": last, "best": last | {"step": 5}}
    more = {"key": f"key{seed}", "status": status, "counts": {"ratio": 1.13}, "seconds": {"total": 3.0}}
    return made | more | {"results": results}


def test_round_trip(tmp_path):
    write_record(tmp_path / "a" / "one.json", record(0))
    write_record(tmp_path / "b.json", record(1, 62.0))
    (tmp_path / "c.json").write_text('{"no": "record"}')
    (tmp_path / "d.json").write_text("[1, 2]")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "record.json").write_text('{"kind": "pretraining", "key": "abc"}')
    write_record(tmp_path / "e.json", record(2, status="stopped"))
    frame = load_records(tmp_path)
    assert frame["seed"].tolist() == [0, 1]  # in order of path; what has not finished is no result
    row = frame.iloc[1]
    assert (row["last dev average"], row["best step"], row["last rte accuracy"]) == (62.0, 5, 62.0)
    assert (row["size"], row["ratio"], row["seconds"], row["key"]) == (120, 1.13, 3.0, "key1")
    assert len(load_records(tmp_path / "b.json")) == 1
    assert len(load_records([str(tmp_path / "b.json"), tmp_path / "a" / "one.json"])) == 2
    (tmp_path / "none").mkdir()
    assert load_records(tmp_path / "none").empty
    with pytest.raises(FileNotFoundError, match="nome: no such folder of records"):
        read_records(tmp_path / "nome")  # a mistyped folder is no folder without runs
    with pytest.raises(FileNotFoundError, match=r"none\.json"):
        load_records(tmp_path / "none.json")


def test_a_record_of_several_runs_is_each_of_them(tmp_path):
    write_record(tmp_path / "two.json", {"kind": "ablation", "spans": ["a,b"], "runs": [record(0), record(1)]})
    runs = read_records(tmp_path)
    assert [(run["config"]["seed"], run["spans"]) for run in runs] == [(0, ["a,b"]), (1, ["a,b"])]
    assert load_records(tmp_path)["seed"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("config", None),
        ("config.seed", True),
        ("method", "pals-204"),
        ("counts.ratio", "1.13"),
        ("results.last.dev_average", "60"),
        ("results.best.scores.rte.accuracy", {}),
        *((missing, ...) for missing in ("status", "config.seed", "results.best")),
    ],
)
def test_a_field_of_another_kind_is_named(field, value, tmp_path):
    """Nothing of a record is taken for what it is not: a text would be a label in a figure, a list a column's value."""
    part = made = json.loads(json.dumps(record()))
    *above, last = field.split(".")
    for name in above:
        part = part[name]
    part[last] = value
    if value is ...:
        del part[last]
    (tmp_path / "one.json").write_text(json.dumps(made))
    with pytest.raises(ValueError, match=rf"one\.json: {re.escape(field)} is "):
        load_records(tmp_path)


@pytest.mark.parametrize("name", ["one.json", "record.json"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", "holds no record of a run"),
        (b'{"runs": 5}', "runs is 5"),
        (b'{"config": {}, "status": "finished"}', "key is missing"),
        (b'{"config": ', "not a JSON record: Expecting value: line 1"),
    ],
)
def test_a_file_that_is_no_record_is_named(content, message, name, tmp_path):
    """If it is given by name, or has the name that a run gives to its own."""
    write_record(tmp_path / "a.json", record())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}: {message}"):
        read_records(tmp_path / name if name == "one.json" else tmp_path)


def test_committed_runs_have_their_names_however_their_folder_is_spelt(monkeypatch):
    monkeypatch.chdir(RECORDS.parent)
    for folder in ("records/gem", RECORDS / "gem"):
        assert {run["config"]["study"] for run in read_records(folder)} == {"GEM"}


def test_nan_is_null(tmp_path):
    """The released code's averages can be NaN (ledger D3), which JSON does not have."""
    write_record(tmp_path / "one.json", record(0, math.nan))
    strict = json.loads((tmp_path / "one.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert strict["results"]["last"]["dev_average"] is None
    assert math.isnan(load_records(tmp_path)["last dev average"].astype(float).iloc[0])


def test_summarise():
    """60 and 62: mean 61, deviation √2, standard error √2 / √2 = 1. One seed has none; without average it is none. Two
    runs of one seed differ in something else: they are no sample of seeds."""
    averages = {"method": [*"aaab"], "seed": [0, 1, 2, 0], "last dev average": [60.0, 62.0, math.nan, 70.0]}
    frame = pd.DataFrame(averages).assign(size=[204, 204, 204, None])
    rows = summarise(frame, ["method", "size"]).set_index("method")  # without a size: a group too
    assert rows.loc["a", ["mean", "standard_error", "seeds"]].tolist() == pytest.approx([61, 1, 2])
    assert rows.loc["b", ["mean", "seeds"]].tolist() == [70, 1] and math.isnan(rows.loc["b", "standard_error"])
    with pytest.raises(ValueError, match=r"two runs of one seed in one group: {'method': 'a', 'seed': 0}"):
        summarise(frame.assign(seed=0), ["method"])


def test_summarise_refuses_runs_of_different_settings(tmp_path):
    """Two seeds, and ten times the rate: no sample of seeds. Which weights were kept changes nothing; a field that an
    older record lacks has its default."""
    for seed, more in ((0, {}), (1, {"keep": "best", "adaptation_rate": 1.0}), (2, {"learning_rate": 1e-2})):
        run = record(seed=seed)
        del run["config"]["adaptation_rate"]
        (tmp_path / f"{seed}.json").write_text(json.dumps(run | {"config": run["config"] | more}))
    frame = load_records(tmp_path)
    assert summarise(frame[frame["seed"] < 2], ["method", "schedule"])["seeds"].tolist() == [2]
    with pytest.raises(ValueError, match=r"runs of one group \({'method': '.+'}\) differ in learning_rate: select"):
        summarise(frame, ["method"])
