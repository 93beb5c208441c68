"""README and the pages it links to: the tree lists every room, numbers are the records', and what is quoted exists."""

import json
import re
import shlex
import subprocess
import sys

import computed
import pytest

from palslib import METHODS, count_parameters
from palslib.__main__ import called
from palslib.common.places import PROJECT

README = (PROJECT / "README.md").read_text(encoding="utf-8")
PAGES = "\n".join(page.read_text(encoding="utf-8") for page in computed.PAGES)
TREE = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## What is where")[1].split("```")[1]


def _listed() -> list[str]:
    """Folders and files of palslib in the order of the tree: lines like `  a.py, b.py    what they are`."""
    lines = [re.split(r"\s{2,}", line.strip())[0] for line in TREE.splitlines() if re.match(r"  \w", line)]
    return [name for line in lines for name in re.findall(r"\w+(?:/|\.py)", line)]


def test_the_tree_has_a_line_for_every_room():
    """Every folder and file of palslib is in the tree, and none that is gone; so is every folder of the project."""
    here = {path.name for path in (PROJECT / "palslib").iterdir() if path.suffix == ".py"} - {"__init__.py"}
    here |= {f"{path.parent.name}/" for path in (PROJECT / "palslib").glob("*/__init__.py")}
    assert set(_listed()) == here
    done = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True)
    tracked = done.stdout.splitlines() or [f"{folder}/x" for folder in ("notebooks", "palslib", "tests", "figures")]
    top = {path.split("/")[0] + "/" for path in tracked if "/" in path and not path.startswith(".")}
    assert {line.split()[0] for line in TREE.splitlines() if re.match(r"\w+/", line)} == top


@pytest.mark.parametrize("room", _listed())
def test_a_room_imports_only_what_is_above_it(room):
    above = {name.rstrip("/").removesuffix(".py") for name in _listed()[: _listed().index(room) + 1]}
    path = PROJECT / "palslib" / room
    for file in [path] if path.is_file() else path.rglob("*.py"):
        imported = re.findall(r"^\s*(?:from|import) palslib\.(\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
        assert not (below := set(imported) - above), f"{file.name} imports {', '.join(below)}"


@pytest.mark.parametrize("page", computed.PAGES, ids=lambda path: path.name)
def test_the_numbers_of_a_page_are_the_records(page):
    """`make numbers` writes them."""
    text = page.read_text(encoding="utf-8")
    assert computed.written(text) == text, "call `make numbers`"


def test_every_number_that_can_be_computed_is_on_a_page():
    assert sorted(set(re.findall(r"<!-- computed: (.*?) -->", PAGES))) == sorted(computed.BLOCKS)
    assert PAGES.count("<!-- computed: ") == PAGES.count("<!-- end -->")


def test_the_readme_is_a_screen_and_a_half_and_its_examples_hold():
    """The comment behind the first line of Python says 1.132."""
    assert len(README.splitlines()) <= 110 and "# 1.132" in README
    assert round(count_parameters("pals-204", "bert-base-uncased", num_tasks=8).ratio, 3) == 1.132
    named = re.findall(r"-p method (\S+)|--method (\S+)", PAGES)
    assert named and {first or second for first, second in named} <= METHODS.keys()


def test_make_lists_the_targets_that_pages_name_and_other_machines_call():
    said = subprocess.run(["make", "help"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    named = set(re.findall(r"(?:^|`)make ([a-z]+)\b", PAGES, re.M))
    assert named >= {"reproduce", "test", "lab", "sweep", "benchmark", "book", "cpu"}
    for file in (".binder/postBuild", ".devcontainer/devcontainer.json", ".github/workflows/test.yml"):
        called = " ".join(re.findall(r"\bmake ([a-z ]+)", (PROJECT / file).read_text())).split()
        assert "cpu" in called
        named |= {*called}
    assert all(f"make {target} " in said for target in named)


@pytest.mark.parametrize("call", re.findall(r"^(?:python -m )?palslib (\w+ [^#\n]*)", PAGES, re.MULTILINE))
def test_the_calls_of_the_examples_are_understood(call):
    assert "--help" in call or called(shlex.split(call))


@pytest.mark.slow
def test_the_python_of_the_pages_runs_as_it_stands(tmp_path, monkeypatch):
    """Train, keep, predict, save, load; and a file of one's own beside QQP, in README and among the data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path / "runs"))
    readme, others = {}, {}
    for block in re.findall(r"```python\n(.*?)```", README, re.S):
        exec(block, readme)
    for block in re.findall(r"```python\n(.*?)```", PAGES.removeprefix(README), re.S):
        own = block.replace("mood.csv", "example-mood.csv")  # a reader's file; here the one that README wrote
        exec(own, others)  # the same run, which has finished; and the end of a `mine.py`, which is none here
    assert others["record"]["key"] == readme["record"]["key"]
    assert readme["record"].model().tasks["example-mood"].labels == ("fine", "ill")
    assert set(readme["elsewhere"].tasks) == {"qqp", "stsb"}


@pytest.mark.slow
def test_a_method_of_ones_own_is_swept_as_the_page_says(tmp_path):
    """`mine.py` with a family and the page's lines; a process that does not know the family says what to do."""
    [lines] = [b for b in re.findall(r"```python\n(.*?)```", PAGES, re.S) if "start()" in b]
    head = "from dataclasses import dataclass\nfrom palslib.methods.low_rank import LowRank\n"
    family = "@dataclass(frozen=True, kw_only=True)\nclass Mine(LowRank):\n    size: int = 4\n\n\n"
    (tmp_path / "mine.py").write_text(head + family + lines)
    base = {"backbone": "tiny", "tasks": ["rte"], "steps": 2, "batch_size": 4, "method": "mine"}
    grid = {"base": base, "runs": [{"own_method": {"kind": "Mine", "size": size}} for size in (4, 8)]}
    (tmp_path / "grid.json").write_text(json.dumps(grid))
    for program, status, said in (
        (["mine.py"], 0, "2 of 2 runs finished"),
        (["-m", "palslib"], 2, "unknown kind of method 'Mine'"),
    ):
        call = [sys.executable, *program, "sweep", "grid.json", "--folder", "runs"]
        done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == status and said in done.stdout + done.stderr, done.stdout + done.stderr
    sizes = [json.loads(path.read_text())["method"]["size"] for path in (tmp_path / "runs").glob("*/record.json")]
    assert sorted(sizes) == [4, 8]
