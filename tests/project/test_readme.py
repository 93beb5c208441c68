"""The README: its tree lists every room, its numbers are the records', and what it quotes exists."""

import json
import re
import subprocess

import pytest

from palslib import METHODS, count_parameters
from palslib.common import PROJECT, RECORDS
from palslib.ledger.results import answer, cell, one_setting, pilot_frame
from palslib.ledger.verdicts import evidence
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


def test_the_answer_is_what_the_records_say():
    """The sentences of notebook 11, word for word."""
    said = re.findall(r"^\* (.*)$", README.split("## Do PALs work?")[1].split("![")[0], re.M)
    assert said == answer(one_setting(evidence()), read_records(RECORDS / "pilot"))


def test_the_pilots_table_is_its_records():
    """A row a setting: means over seeds ± standard errors, and how many seeds."""
    rows = re.findall(r"^\| (.*) \| (\S+) \| (.*) \| (.*) \| (.*) \| (.*) \| (.*) \| (\d+) \|$", README, re.M)
    table = pilot_frame(read_records(RECORDS / "pilot"))
    assert len(rows) == len(table)
    for row, found in zip(rows, table.to_dict("records"), strict=True):
        scores = [cell(found[n], found[f"{n} error"]) for n in ("dev average", "without CoLA", "CoLA", "switched off")]
        setting = found["setting"].replace("$V^D$", "Vᴰ")
        assert list(row) == [found["method"], f"{found['rate']:g}", setting, *scores, str(found["seeds"])]


BENCHMARK = json.loads((RECORDS / "benchmark" / "cpu-2-cores.json").read_text())["parts"]
COLUMNS = [(b, p) for b in ("bert-base-uncased", "minilm") for p in ("float32", "bf16")]


def cells(row: str) -> list[str]:
    """The four cells behind a row's name in the table of speed."""
    (found,) = re.findall(rf"^\| {re.escape(row)} \| (.*) \|$", README, re.M)
    return found.split(" | ")


def test_the_ratio_of_a_step_with_pals_is_the_record():
    rows = {(r["backbone"], r["precision"], r["what"]): r for r in BENCHMARK["step"]}
    found = [rows[*column, "pals-204"] for column in COLUMNS]
    shown = [f"{r['ratio']['median']:.2f} ({r['ratio floor']:.2f})" for r in found]
    assert cells("a step with PALs, over one without (by operations)") == shown


def test_the_speed_over_the_released_codes_way_is_the_record():
    rows = {(r["backbone"], r["what"]): r for r in BENCHMARK["released"]}
    assert cells("PALs, over the released code's way") == [f"{rows[column]['speed-up']:.1f}×" for column in COLUMNS]


@pytest.mark.parametrize(
    ("row", "part", "key", "value"),
    [
        ("all of BERT, over Transformers alone", "peers", "what", "transformers"),
        ("adapters on a frozen BERT, over `adapters` 1.3", "peers", "what", "adapters"),
        ("shared, over the first version, which padded", "before", "method", "shared"),
        ("PALs, over the first version", "before", "method", "pals-204"),
    ],
)
def test_the_speed_over_others_is_the_record(row, part, key, value):
    """In the record each other way stands before ours on the same batches."""
    pairs = zip(BENCHMARK[part][::2], BENCHMARK[part][1::2], strict=True)
    rows = {(other["backbone"], other["precision"]): ours for other, ours in pairs if other[key] == value}
    assert cells(row) == [f"{rows[column]['speed-up']:.2f}×" for column in COLUMNS]


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


@pytest.mark.slow
def test_the_python_of_the_readme_runs_as_it_stands(tmp_path, monkeypatch):
    """Train, keep, predict, save, load; and a file of one's own beside RTE."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path / "runs"))
    lines = [f"I feel {word} today {i},{word}" for i in range(20) for word in ("fine", "ill")]
    (tmp_path / "mood.csv").write_text("\n".join(["tweet,feeling", *lines]))
    blocks, names = re.findall(r"```python\n(.*?)```", README, re.S), {}
    assert len(blocks) == 2
    for block in blocks:
        exec(block, names)
    assert names["record"].model().tasks["mood"].labels == ("fine", "ill")
    assert set(names["elsewhere"].tasks) == {"rte", "stsb"}
