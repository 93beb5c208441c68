"""The README: its tree lists every room, its numbers are the records', and what it quotes exists."""

import json
import re
import subprocess
from statistics import fmean

import pandas as pd
import pytest

from palslib import METHODS, count_parameters
from palslib.analysis.forgetting import transfer_measures
from palslib.common import PROJECT, RECORDS
from palslib.data.tasks import get_task
from palslib.ledger.minbert_report import results_frame
from palslib.records import load_records, read_records, summarise

README = (PROJECT / "README.md").read_text()


def test_the_tree_has_a_line_for_every_room():
    """Every folder and file of palslib is in the tree, and none that is gone; so is every folder of the project."""
    tree = README.split("## What is where")[1].split("```")[1]
    lines = [line for line in tree.splitlines() if re.match(r"  \w", line)]  # `  a.py, b.py    what they are`
    listed = {name for line in lines for name in re.findall(r"\w+(?:/|\.py)", re.split(r"\s{2,}", line.strip())[0])}
    listed |= {name for line in lines for name in re.findall(r"^  (\w+(?:/|\.py)) ", line)}
    here = {path.name for path in (PROJECT / "palslib").iterdir() if path.suffix == ".py"} - {"__init__.py"}
    here |= {f"{path.parent.name}/" for path in (PROJECT / "palslib").glob("*/__init__.py")}
    assert listed == here
    top = {path.split("/")[0] + "/" for path in _tracked() if "/" in path and not path.startswith(".")}
    assert {line.split()[0] for line in tree.splitlines() if re.match(r"\w+/", line)} == top


def _tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True)
    return done.stdout.splitlines() or [f"{folder}/x" for folder in ("notebooks", "palslib", "tests", "figures")]


def test_the_results_are_those_of_the_records():
    """Every row of the results table is a committed record, to the printed digit."""
    rows = re.findall(r"^\| `(\S+)` \| (\d+|–) \| ([\d.]+)× \| (\S+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \|", README, re.M)
    records = load_records(RECORDS / "mini")
    assert len(rows) == len(records) > 0
    for method, size, ratio, schedule, seed, last, best in rows:
        found = records.query(
            "method == @method and schedule == @schedule and seed == @seed",
            local_dict={"method": method, "schedule": schedule, "seed": int(seed)},
        )
        assert len(found) == 1, (method, schedule, seed)
        record = found.iloc[0]
        assert size == ("–" if record["size"] != record["size"] else f"{record['size']:.0f}")
        shown = [f"{record['ratio']:.3f}", f"{record['last dev average']:.1f}", f"{record['best dev average']:.1f}"]
        assert [ratio, last, best] == shown


def test_every_score_by_task_is_the_records():
    """The second table: each task's first metric at the last step, in the order of its header."""
    columns = [
        "cola matthews",
        "sst2 accuracy",
        "mrpc accuracy",
        "stsb pearson",
        "qqp accuracy",
        "mnli accuracy",
        "qnli accuracy",
        "rte accuracy",
    ]
    rows = re.findall(r"^\| `(\S+)`((?: \| -?[\d.]+){8}) \|$", README, re.M)
    records = load_records(RECORDS / "mini").set_index("method")
    assert sorted(row[0] for row in rows) == sorted(records.index)
    for method, values in rows:
        assert values.split(" | ")[1:] == [f"{records.loc[method, f'last {c}']:.1f}" for c in columns]


def test_the_minbert_reports_table_is_the_records():
    """Three tasks: means over seeds, beside the report's printed mean."""
    rows = re.findall(r"^\| ([a-z][\w-]+ [\w-]+) \| (\d+)((?: \| [\d.]+){5}) \|$", README, re.M)
    frame = results_frame(read_records(RECORDS / "minbert")).set_index(["model", "task"])
    assert [row[0] for row in rows] == list(frame.index.unique("model"))
    for model, seeds, values in rows:
        own = frame.loc[model]
        shown = [own.loc[task, "ours"] for task in ("sst5", "quora", "sts", "mean")] + [own.loc["mean", "report"]]
        assert int(seeds) == own["seeds"].min()
        assert values.split(" | ")[1:] == [f"{value:.1f}" for value in shown]


@pytest.mark.parametrize(
    ("line", "schedule", "memory"),
    [
        ("one after another", "sequential", False),
        ("one after another, with memory", "sequential", True),
        ("jointly, in turn", "round-robin", False),
        ("mixed, annealed", "annealed", False),
        ("mixed, annealed, with memory", "annealed", True),
    ],
)
def test_the_table_of_tasks_in_turn_is_the_records(line, schedule, memory):
    """Scores after the last step, their average and backward transfer: means over seeds."""
    runs = [r for r in read_records(RECORDS / "gem") if r["config"]["schedule"] == schedule]
    runs = [r for r in runs if bool(r["config"]["memory"]) == memory]
    (found,) = re.findall(rf"^\| {line} \| (\d+) \| (.*) \|$", README, re.M)
    last = [r["results"]["last"]["scores"] for r in runs]
    measures = pd.DataFrame([transfer_measures(r) for r in runs]).mean()
    shown = [fmean(s[t][get_task(t).metrics[0]] for s in last) for t in ("sst2", "stsb", "mrpc")]
    backward = "–" if schedule != "sequential" else f"{measures['backward']:+.1f}".replace("-", "−")
    assert found == (str(len(runs)), " | ".join([*(f"{v:.1f}" for v in [*shown, measures["average"]]), backward]))


def test_the_table_of_speed_is_the_record():
    """Ratios of training steps beside those of operations, and how many times as fast as the released code's way."""
    parts = json.loads((RECORDS / "benchmark" / "cpu-2-cores.json").read_text())["parts"]
    rows = {(part, r["what"], r["precision"], r["backbone"]): r for part in ("step", "released") for r in parts[part]}
    step = re.findall(
        r"over one without, (\w+) \| (\S+) \(operations: (\S+)\) \| (\S+) \(operations: (\S+)\) \|", README
    )
    way = re.findall(r"released code's way, (\w+) \| (\S+)× \| (\S+)× \|", README)
    assert [row[0] for row in step] == [row[0] for row in way] == ["float32", "bf16"]
    for (precision, *ratios), (_, *times) in zip(step, way, strict=True):
        pals = [rows["step", "pals-204", precision, backbone] for backbone in ("bert-base-uncased", "minilm")]
        assert ratios == [f"{r:.2f}" for row in pals for r in (row["ratio"]["median"], row["ratio floor"])]
        runs = [rows["released", precision, precision, backbone] for backbone in ("bert-base-uncased", "minilm")]
        assert times == [f"{row['speed-up']:.1f}" for row in runs]


def test_the_scores_of_both_precisions_are_the_records():
    """Mean and standard error of the dev average, over as many seeds as there are."""
    text = " ".join(README.split())  # the sentence goes over lines
    found = re.search(r"(\d) seeds: ([\d.]+) ± ([\d.]+) in bf16, ([\d.]+) ± ([\d.]+) in float32", text)
    table = summarise(load_records(RECORDS / "precision"), ["precision"], "last dev average").set_index("precision")
    shown = [f"{table.loc[p, c]:.1f}" for p in ("bf16", "float32") for c in ("mean", "standard_error")]
    assert list(found.groups()) == [str(table["seeds"].min()), *shown]
    assert table["seeds"].nunique() == 1


def test_pictures_and_files_that_are_named_exist():
    """Links to pictures and notebooks, and the method names in the examples."""
    for path in re.findall(r"\]\((figures/[^)]+)\)", README) + re.findall(r"`(notebooks/\w+\.ipynb)`", README):
        assert (PROJECT / path).is_file(), path
    for name in re.findall(r"-p method (\S+)", README):
        assert name in METHODS


def test_the_example_says_what_it_gives():
    """The comment behind the first line of Python: 1.132."""
    assert "# 1.132" in README
    assert round(count_parameters("pals-204", "bert-base-uncased", num_tasks=8).ratio, 3) == 1.132


def test_make_lists_the_targets_that_the_readme_names():
    """`make reproduce`, `make test` and the others are what `make` says."""
    said = subprocess.run(["make", "help"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    named = set(re.findall(r"(?:^|`)make ([a-z]+)\b", README, re.M))
    assert named >= {"reproduce", "test", "lab", "sweep", "benchmark"}
    assert all(f"make {target} " in said for target in named)
