"""The benchmark, quick: every part gives finite, positive numbers, a record that says where, and a figure."""

import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from palslib.__main__ import main
from palslib.bert import attention, cpu_attention, dropout, layer
from palslib.methods.counting import BACKBONES
from palslib.methods.operations import count_operations
from palslib.plan.recipes import get_recipe
from palslib.records import load_records
from palslib.study.benchmark.others import Other, classifier, count_trained
from palslib.study.benchmark.parts import PEERS, RELEASED, Benchmark, take_step, typical_steps
from palslib.study.benchmark.released import ReleasedRun
from palslib.study.benchmark.timing import in_turn, spread
from palslib.study.figures.benchmark import lines, machine
from palslib.training.loop import Run


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """`benchmark --quick` in a folder of its own: the record and the folder."""
    folder = tmp_path_factory.mktemp("benchmark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PALSLIB_RUNS", str(folder / "runs"))
        patch.setenv("PALSLIB_FIGURES", str(folder / "figures"))
        patch.delenv("PALSLIB_DATA", raising=False)
        assert main(["benchmark", "--quick", "--record", str(folder / "records" / "here.json")]) == 0
    return json.loads((folder / "records" / "here.json").read_text()), folder


def test_parts(done):
    """Each comparison in each precision, the first of a comparison at 1; every time has a floor."""
    parts, precisions = done[0]["parts"], done[0]["precisions"]
    for row in itertools.chain(*parts.values()):
        s = row["seconds"]
        assert 0 < s["low"] <= s["median"] <= s["high"] < math.inf and s["times"] >= 2 and row["floor"] > 0
    assert [(r["what"], r["precision"]) for r in parts["step"]] == [
        (method, precision) for precision in precisions for method in ("shared", "pals-204")
    ]
    assert [r["what"] for r in parts["released"]] == ["released", *precisions]
    assert [r["mean length"] == 128 for r in parts["released"]] == [True, *(False for _ in precisions)]
    peers = parts["peers"]
    assert [(r["what"], r["precision"]) for r in peers] == [
        (what, precision) for precision in precisions for what in ("transformers", "palslib")
    ]
    assert len({r["trained"] for r in peers}) == 1 and peers[0]["versions"]["transformers"]
    assert peers[0]["mean length"] > peers[1]["mean length"]  # the same texts, padded to the longest and not
    for row in (parts["step"][0], parts["released"][0], peers[0]):
        assert row["ratio"]["median"] == row["speed-up"] == row["ratio floor"] == 1
    assert all(row["ratio floor"] > 1 for row in parts["step"] if row["what"] == "pals-204")
    assert [r["precision"] for r in parts["evaluation"]] == precisions
    assert [r["what"] for r in parts["start_up"]] == ["Python alone", "import palslib"]


def test_record_lines_and_figure(done, tmp_path, monkeypatch, capsys):
    """A line of the machine, then one for each row; `--draw` prints and draws the same without measuring."""
    record, folder = done
    assert {"cpu", "cores", "packages", "git_commit"} <= set(record["environment"])
    assert record["threads"] == torch.get_num_threads() and min(r["median"] for r in record["rates"].values()) > 0
    assert str(folder.parent) not in json.dumps(record) and "/tmp" not in json.dumps(record)
    assert load_records(folder / "records").empty
    text = lines(record)
    assert len(text) == 1 + sum(map(len, record["parts"].values()))
    assert all("floor" in line for line in text[1:]) and "GFLOP/s" in text[0]
    monkeypatch.setenv("PALSLIB_FIGURES", str(tmp_path))
    monkeypatch.setattr(Benchmark, "record", lambda self: pytest.fail("it measured"))
    assert main(["benchmark", "--draw", str(folder / "records" / "here.json")]) == 0
    assert capsys.readouterr().out.splitlines() == text
    assert all((tmp_path / f"benchmark-quick.{ending}").stat().st_size > 5000 for ending in ("png", "svg"))


def test_typical_steps():
    """Of a hundred batches that shrink from step to step the middles of four quarters; they are taken over and over."""
    taken, data = [], SimpleNamespace(lengths=np.arange(200))
    plan = SimpleNamespace(tasks=["rte"] * 100, examples=lambda step: np.arange(8) + 100 - step)
    run = SimpleNamespace(plan=plan, train_data={"rte": data}, train_step=lambda: taken.append(run.step))
    turns = itertools.cycle(typical_steps(run, 4))
    for _ in range(6):
        take_step(run, turns)
    assert taken == [87, 62, 37, 12, 87, 62]


def test_turns_and_quartiles():
    """One of each a round, and warm rounds do not count."""
    calls = []
    times = in_turn({name: lambda name=name: calls.append(name) for name in "ab"}, 3, warm=2)
    assert "".join(calls) == "ab" * 5 and [len(t) for t in times.values()] == [3, 3]
    assert spread([4.0, 1.0, 3.0, 2.0, 5.0]) == {"median": 3.0, "low": 2.0, "high": 4.0, "times": 5}
    names = [machine({"device": d, "threads": n}) for d, n in (("cpu", 2), ("cpu", 1), ("NVIDIA H200", 8))]
    assert names == ["cpu-2-cores", "cpu-1-core", "nvidia-h200"]


def test_floor(tmp_path):
    """Three forward passes of 20 texts of 40 tokens and 12 of 10, at 2 · 10^9 operations a second, two for each
    multiply-add."""
    benchmark, shape = Benchmark(tmp_path, quick=True), next(iter(BACKBONES))
    benchmark.rates["float32"]["median"] = 2e9
    long, short = (count_operations("shared", shape, tokens).total(1) for tokens in (40, 10))
    batch = np.array([40] * 20 + [10] * 12)
    assert benchmark.floor(shape, "shared", "float32", [batch, batch]) == pytest.approx(
        3 * (20 * long + 12 * short) / 1e9
    )


def test_the_released_way_computes_the_same(tmp_path):
    """Without dropout, and with one optimiser, three steps of it have the losses of ours."""
    benchmark, losses = Benchmark(tmp_path, quick=True), []
    for kind, padding in ((ReleasedRun, "max_length"), (Run, "longest")):
        run = benchmark.run("tiny", "pals-204", "float32", kind=kind, recipe_options={"padding": padding}, warmup=0.0)
        run.model.eval()
        for _ in range(3):
            run.train_step()
        run.read_losses()
        losses.append(run.losses)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_the_released_way_is_not_ours(tmp_path, monkeypatch):
    """No attention and no dropout of ours is in its steps, and after them all is as it was."""
    theirs = get_recipe("released")
    options = {name: getattr(theirs, name) for name in RELEASED}
    run = Benchmark(tmp_path, quick=True).run("tiny", "pals-204", "float32", kind=ReleasedRun, recipe_options=options)
    with monkeypatch.context() as patch:
        for module in (cpu_attention, dropout):
            patch.setattr(module, "kept", lambda *given: pytest.fail("dropout of ours"))
        patch.setattr(attention, "CpuAttention", None)
        run.train_step()
    assert getattr(layer.attend, "real", layer.attend) is attention.attend
    assert getattr(layer.drop, "real", layer.drop) is dropout.drop


def test_transformers_compute_the_same(tmp_path):
    """On a batch that the peer gets, with our head, its classifier has our loss; and as many parameters are trained. So
    are beside the package `adapters`, in MiniLM: 2 · 6 · (2 · 64 · 384 + 384 + 64), and 2 · 385."""
    benchmark = Benchmark(tmp_path, quick=True)
    run = benchmark.run("tiny", "shared", "float32", tasks=("rte",))
    batch = benchmark.padded_batches(run, [0])[0]
    theirs = classifier(run.config.backbone).eval()
    theirs.classifier.load_state_dict(run.model.heads["rte"].state_dict())
    run.model.eval()
    assert theirs(**batch).loss.item() == pytest.approx(run.model("rte", **batch).loss.item(), rel=1e-5)
    assert count_trained(theirs) == count_trained(run.model)
    run = benchmark.run("minilm", precision="float32", tasks=("rte",), **PEERS["adapters"])
    assert count_trained(run.model) == 595_970


def test_another_that_fails(tmp_path):
    with pytest.raises(ChildProcessError, match="adapters"):
        Other("adapters", "/bin/false")
    (stub := tmp_path / "python").write_text('#!/bin/sh\necho \'{"trained": 1, "versions": {}}\'\n')
    stub.chmod(0o755)
    with pytest.raises(ChildProcessError, match="adapters"), Other("adapters", stub) as other:
        other.process.wait()  # it ends between two steps
        other()
