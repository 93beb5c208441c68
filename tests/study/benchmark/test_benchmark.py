"""The benchmark, quick: every part gives finite, positive numbers, a record that says where, and a figure."""

import itertools
import json
import math

import numpy as np
import pytest

from palslib.__main__ import main
from palslib.bert import attention, cpu_attention, dropout
from palslib.common.places import RECORDS
from palslib.methods.operations import count_operations
from palslib.records import load_records
from palslib.study.benchmark.others import classifier, count_trained
from palslib.study.benchmark.parts import PEERS, Benchmark
from palslib.study.benchmark.released import ReleasedRun
from palslib.study.figures.benchmark import benchmark_figure
from palslib.study.figures.style import use_style
from palslib.training.loop import Run


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A benchmark of the tiny backbone."""
    return Benchmark(tmp_path_factory.mktemp("quick"), quick=True)


def test_the_command_line_measures_records_and_draws(tmp_path, monkeypatch, capsys):
    """Each comparison in each precision, the first of a comparison at 1; every time has a floor."""
    for name, value in {"PALSLIB_RUNS": "runs", "PALSLIB_FIGURES": "figures"}.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.delenv("PALSLIB_DATA", raising=False)
    path = tmp_path / "records" / "here.json"
    assert main(["benchmark", "--quick", "--record", str(path)]) == 0
    record, text = json.loads(path.read_text()), capsys.readouterr().out
    parts, precisions = record["parts"], record["precisions"]
    for row in itertools.chain(*parts.values()):
        s = row["seconds"]
        assert 0 < s["low"] <= s["median"] <= s["high"] < math.inf and s["times"] >= 2 and row["floor"] > 0
    for part, names in {"step": ["shared", "pals-204"], "peers": ["transformers", "palslib"]}.items():
        assert [(r["precision"], r["what"]) for r in parts[part]] == [*itertools.product(precisions, names)]
    assert [r["what"] for r in parts["released"]] == ["released", *precisions]
    assert [r["mean length"] == 128 for r in parts["released"]] == [True, *(False for _ in precisions)]
    theirs, ours = parts["peers"][:2]
    assert theirs["trained"] == ours["trained"] and theirs["versions"]["transformers"]
    assert theirs["mean length"] > ours["mean length"]  # the same texts, padded to the longest and not
    for row in (parts["step"][0], parts["released"][0], theirs):
        assert row["ratio"]["median"] == row["speed-up"] == row["ratio floor"] == 1
    assert parts["step"][1]["ratio floor"] > 1 > ours["ratio floor"]
    assert [r["precision"] for r in parts["evaluation"]] == precisions
    assert [r["what"] for r in parts["start_up"]] == ["Python alone", "import palslib"]

    assert {"cpu", "cores", "packages", "git_commit"} <= set(record["environment"])
    assert "/tmp" not in json.dumps(record) and load_records(path.parent).empty
    assert len(text.splitlines()) == 2 + sum(map(len, parts.values())) and "GFLOP/s" in text
    pictures = [tmp_path / "figures" / f"benchmark-quick.{ending}" for ending in ("png", "svg")]
    assert all(picture.is_file() for picture in pictures)


def test_the_committed_record_is_drawn_and_other_packages_have_a_panel_of_their_own():
    """Another's way at 10 texts a second, and ours at 25."""
    use_style()  # titles stand on the left
    record = json.loads((RECORDS / "benchmark" / "cpu-2-cores-amd.json").read_text())
    ways, kinds = {"transformers": "shared", "adapters": "houlsby-64"}, ("float32", "bf16")
    rows = []
    for precision, (way, method), ours in itertools.product(kinds, ways.items(), (False, True)):
        program = {"what": "palslib" if ours else way, "method": method, "backbone": "minilm", "precision": precision}
        rows.append(program | {"speed-up": 2.5 if ours else 1.0, "texts a second": 25 if ours else 10})
    figure = benchmark_figure(record | {"parts": record["parts"] | {"peers": rows}})
    [ax] = [ax for ax in figure.axes if ax.get_title(loc="left").startswith("e ")]
    assert list(ax.lines[0].get_ydata()) == [2.5] * 4
    texts = [text.get_text() for text in ax.texts]
    assert texts == ["transformers\n2.5×\n10 → 25/s", "adapters\n2.5×\n10 → 25/s"] * 2
    assert [label.get_text() for label in ax.get_xticklabels()] == ["MiniLM\nfloat32"] * 2 + ["MiniLM\nbf16"] * 2


def test_floor(quick, monkeypatch):
    """Three forward passes of 20 texts of 40 tokens and 12 of 10, at 2 · 10^9 operations a second, two for each
    multiply-add. In the last of BERT-base's layers [CLS] alone has a query and an output, 2 · 768², a feed-forward,
    2 · 768 · 3072, and a row of attention, 2 · 768 · 40 or 10: the 39 or 9 others are spared them."""
    monkeypatch.setitem(quick.rates["float32"], "median", 2e9)
    long, short = (count_operations("shared", tokens=tokens).total(1) for tokens in (40, 10))
    batch = np.array([40] * 20 + [10] * 12)
    whole, first = (
        quick.floor("bert-base-uncased", "shared", "float32", [batch, batch], whole=whole) for whole in (True, False)
    )
    assert whole == pytest.approx(3 * (20 * long + 12 * short) / 1e9)
    spared = 20 * 39 * (2 * 768**2 + 2 * 768 * 3072 + 2 * 768 * 40)
    spared += 12 * 9 * (2 * 768**2 + 2 * 768 * 3072 + 2 * 768 * 10)
    assert whole - first == pytest.approx(3 * spared / 1e9)


def test_the_released_way_computes_the_same_in_its_own_way(quick, monkeypatch):
    """Without dropout, and with one optimiser, three steps of it have the losses of ours. Neither attention nor dropout
    of ours is in its steps."""
    losses = []
    for kind, padding in ((ReleasedRun, "max_length"), (Run, "longest")):
        run = quick.run("tiny", "pals-204", "float32", kind=kind, recipe_options={"padding": padding}, warmup=0.0)
        run.model.eval()
        for _ in range(3):
            run.train_step()
        run.read_losses()
        losses.append(run.losses)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    run = quick.run("tiny", "pals-204", "float32", kind=ReleasedRun, recipe_options={"padding": "max_length"})
    with monkeypatch.context() as patch:
        for module in (cpu_attention, dropout):
            patch.setattr(module, "kept", lambda *given: pytest.fail("dropout of ours"))
        patch.setattr(attention, "CpuAttention", None)
        run.train_step()


def test_transformers_compute_the_same(quick):
    """On a batch that the peer gets, with our head, its classifier has our loss; and as many parameters are trained. So
    are beside the package `adapters`, in MiniLM: 2 · 6 · (2 · 64 · 384 + 384 + 64), and 2 · 385."""
    run = quick.run("tiny", "shared", "float32", tasks=("rte",))
    batch = quick.padded_batches(run, [0])[0]
    theirs = classifier(run.config.backbone).eval()
    theirs.classifier.load_state_dict(run.model.heads["rte"].state_dict())
    run.model.eval()
    assert theirs(**batch).loss.item() == pytest.approx(run.model("rte", **batch).loss.item(), rel=1e-5)
    assert count_trained(theirs) == count_trained(run.model)
    run = quick.run("minilm", precision="float32", tasks=("rte",), **PEERS["adapters"])
    assert count_trained(run.model) == 595_970
