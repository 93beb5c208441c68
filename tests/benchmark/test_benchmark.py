"""The benchmark, quick: every part gives finite, positive numbers, a record that says where, and a figure."""

import json
import math

import pytest
import torch

from palslib.__main__ import main
from palslib.benchmark.measure import Benchmark
from palslib.benchmark.timing import in_turn, spread
from palslib.figures.benchmark import lines, machine
from palslib.methods.counting import BACKBONES
from palslib.methods.operations import count_operations
from palslib.records import load_records


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """`benchmark --quick` in a folder of its own: the record, the folder, and what was printed at the end."""
    folder = tmp_path_factory.mktemp("benchmark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PALSLIB_RUNS", str(folder / "runs"))
        patch.setenv("PALSLIB_FIGURES", str(folder / "figures"))
        patch.delenv("PALSLIB_DATA", raising=False)
        assert main(["benchmark", "--quick", "--record", str(folder / "records" / "here.json")]) == 0
    return json.loads((folder / "records" / "here.json").read_text()), folder


def numbers(value):
    if isinstance(value, dict):
        return [n for v in value.values() for n in numbers(v)]
    if isinstance(value, list):
        return [n for v in value for n in numbers(v)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def test_numbers_are_finite_and_positive(done):
    record, _ = done
    assert all(math.isfinite(n) for n in numbers(record))
    timed = [row for rows in record["parts"].values() for row in rows]
    for row in timed:
        s = row["seconds"]
        assert 0 < s["low"] <= s["median"] <= s["high"] and s["times"] >= 2
        assert row["floor"] > 0
    assert all(n > 0 for n in numbers(record["rates"]))


def test_parts(done):
    """Each comparison in each precision, the first of a comparison at 1, and memory that grows with tasks."""
    parts, precisions = done[0]["parts"], done[0]["precisions"]
    assert [(r["what"], r["precision"]) for r in parts["step"]] == [
        (method, precision) for precision in precisions for method in ("shared", "pals-204")
    ]
    assert [r["what"] for r in parts["released"]] == ["released", *precisions]
    assert {r["mean width"] for r in parts["released"] if r["what"] == "released"} == {128.0}
    assert len({r["mean length"] for r in parts["released"]}) == 1  # the same texts
    assert all(r["mean width"] < 128 for r in parts["released"] if r["what"] != "released")
    for row in (parts["step"][0], parts["released"][0]):
        assert row["ratio"]["median"] == row["speed-up"] == row["ratio floor"] == 1
    assert all(row["ratio floor"] > 1 for row in parts["step"] if row["what"] == "pals-204")
    assert [r["precision"] for r in parts["evaluation"]] == precisions
    assert [r["tasks"] for r in parts["many_tasks"]] == [1, 2, 4]
    assert [r["what"] for r in parts["start_up"]] == ["Python alone", "import palslib"]


def test_a_task_costs_its_parameters_and_their_state(done):
    """Weights of 4 bytes, and as many twice for AdamW: 12 bytes for each parameter, and one counter for each tensor."""
    one, two, four = done[0]["parts"]["many_tasks"]
    each = two["parameters"] - one["parameters"]
    assert four["parameters"] - two["parameters"] == 2 * each
    more = four["bytes"] - two["bytes"]
    assert 12 * 2 * each < more < 12.5 * 2 * each


def test_record(done):
    """It names the machine and no path, is no record of a run, and its figure is drawn."""
    record, folder = done
    assert {"cpu", "cores", "packages", "git_commit"} <= set(record["environment"])
    assert record["environment"]["packages"]["torch"] and record["threads"] == torch.get_num_threads()
    assert str(folder.parent) not in json.dumps(record) and "/tmp" not in json.dumps(record)
    assert load_records(folder / "records").empty
    assert all((folder / "figures" / f"benchmark.{ending}").stat().st_size > 5000 for ending in ("png", "svg"))


def test_lines(done):
    """A line of the machine, then one for each row, each with its floor."""
    text = lines(done[0])
    assert len(text) == 1 + sum(map(len, done[0]["parts"].values()))
    assert all("floor" in line for line in text[1:]) and "GFLOP/s" in text[0]


def test_draw(done, tmp_path, monkeypatch, capsys):
    """A record that there is, without measuring."""
    monkeypatch.setenv("PALSLIB_FIGURES", str(tmp_path))
    monkeypatch.setattr(Benchmark, "record", lambda self: pytest.fail("it measured"))
    assert main(["benchmark", "--draw", str(done[1] / "records" / "here.json")]) == 0
    assert capsys.readouterr().out.splitlines() == lines(done[0])
    assert (tmp_path / "benchmark.png").exists()


def test_in_turn():
    """One of each a round, and warm rounds do not count."""
    calls = []
    functions = {name: lambda name=name: calls.append(name) for name in "ab"}
    times = in_turn(functions, 3, torch.device("cpu"), warm=2)
    assert "".join(calls) == "ab" * 5
    assert [len(t) for t in times.values()] == [3, 3]


def test_spread():
    assert spread([4.0, 1.0, 3.0, 2.0, 5.0]) == {"median": 3.0, "low": 2.0, "high": 4.0, "times": 5}


@pytest.mark.parametrize(
    "device, threads, name", [("cpu", 2, "cpu-2-cores"), ("cpu", 1, "cpu-1-core"), ("NVIDIA H200", 8, "nvidia-h200")]
)
def test_machine(device, threads, name):
    assert machine({"device": device, "threads": threads}) == name


def test_floor():
    """Three forward passes of 32 texts of 40 tokens at 2 · 10^9 operations a second, two for each multiply-add."""
    benchmark = Benchmark(quick=True)
    benchmark.rates["float32"]["median"] = 2e9
    shape = next(iter(BACKBONES))
    expected = 3 * 32 * count_operations("shared", shape, 40).total(1) / 1e9
    assert benchmark.floor(shape, "shared", "float32", [40, 40], 32) == pytest.approx(expected)
