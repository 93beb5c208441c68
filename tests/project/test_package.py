"""The package as pip installs it, away from any clone; and what it is without the parts that other systems lack."""

import ast
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement

import palslib
import palslib.records
from palslib.common.places import PROJECT


def test_what_editors_see_is_there():
    """Editors read the stub in place of the package: each name that it lists can be imported from where it says."""
    assert "train" in palslib.__all__ and all(hasattr(palslib, name) for name in palslib.__all__)


def test_imports_run_in_no_circle():
    """At the top of a file, within a function or for editors. Which room may import which: `test_readme.py`."""
    paths = [path for path in (PROJECT / "palslib").rglob("*.py") if path.name not in ("__init__.py", "__main__.py")]
    names = {".".join(path.relative_to(PROJECT).with_suffix("").parts): path for path in paths}
    imported = {}
    for name, path in names.items():
        lines = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        froms = [node for node in lines if isinstance(node, ast.ImportFrom)]
        said = {node.module for node in froms} | {f"{node.module}.{a.name}" for node in froms for a in node.names}
        imported[name] = (said & names.keys()) - {name}
    assert [*TopologicalSorter(imported).static_order()]  # a CycleError names the circle


def git(folder: Path, *arguments: str) -> None:
    about = ["-c", "user.name=Me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", folder, *about, *arguments], check=True, capture_output=True)


def test_a_commit_is_of_the_packages_own_repository(tmp_path, monkeypatch):
    """Not of one that it merely lies in, nor of one that the environment names."""
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "mine")
    (tmp_path / "lib").mkdir()
    own = palslib.records.environment()["git_commit"]
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    assert palslib.records.environment()["git_commit"] == own
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.setattr(palslib.records, "PROJECT", tmp_path)
    assert len(palslib.records.environment()["git_commit"]) == 40
    monkeypatch.setattr(palslib.records, "PROJECT", tmp_path / "lib")
    unknown = palslib.records.environment()
    assert unknown["git_dirty"] is unknown["git_commit"] is None


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A copy of what the package is built from, in a folder called as a clone is."""
    folder = tmp_path_factory.mktemp("clones") / "palslib"
    for name in ("palslib", "figures/records"):
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, folder)
    return folder


def needed(requirements: list[str]) -> set[str]:
    """The names of these packages and of all that they need."""
    found, todo = set(), list(map(Requirement, requirements))
    while todo:
        one = todo.pop()
        for extra in {"", *one.extras}:
            if (one.name, extra) not in found:
                found.add((one.name, extra))
                more = map(Requirement, importlib.metadata.requires(one.name) or ())
                todo += [other for other in more if other.marker is None or other.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


class Environment:
    """An environment without palslib, in which the packages of this one are seen (but not what is editable here), or
    `only` some."""

    def __init__(self, folder: Path, only: set[str] | None = None):
        self.folder, self.work = folder / "env", folder / "work"
        self.work.mkdir()
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder], check=True)
        self.packages = next(self.folder.glob("lib/python*/site-packages"))
        if only is None:
            (self.packages / "others.pth").write_text(sysconfig.get_path("purelib"))
        for name in only or ():
            for top in {path.parts[0] for path in importlib.metadata.files(name)} - {"..", "__pycache__"}:
                if not (self.packages / top).exists():
                    (self.packages / top).symlink_to(Path(sysconfig.get_path("purelib"), top))

    def run(self, *call, program: str = "python", status: int = 0) -> str:
        """What a program of this environment prints, called in the working folder."""
        known = {k: v for k, v in os.environ.items() if not k.startswith(("PALSLIB", "PYTHON"))}
        known |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        call = [self.folder / "bin" / program, *call]
        done = subprocess.run(call, cwd=self.work, env=known, capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr if status else done.stdout


@pytest.mark.slow
def test_a_wheel_in_an_empty_environment(clone, tmp_path):
    """It trains, saves and predicts with the dependencies of the first wing alone, in a repository of the user's: the
    run is under the working folder, its record has no commit, and the records of the project come with the package. A
    command for which the notebooks' packages are missing says what to install."""
    about = tomllib.loads((clone / "pyproject.toml").read_text())["project"]
    elsewhere = Environment(tmp_path, needed([*about["dependencies"], "pip"]))
    call = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation", clone]
    subprocess.run([*call, "-w", tmp_path], check=True, capture_output=True)
    elsewhere.run("-m", "pip", "install", "-q", "--no-deps", "--no-index", *tmp_path.glob("*.whl"))
    git(tmp_path, "init")
    git(tmp_path, "commit", "--allow-empty", "-m", "mine")
    flags = "--backbone tiny --method pals-204 --tasks rte cola --steps 2 --batch-size 4 --keep last"
    elsewhere.run("train", *flags.split(), program="palslib")
    [weights] = (elsewhere.work / "runs" / "train").glob("*/last")
    predict = f"import palslib; print(palslib.MultiTaskModel.from_pretrained({str(weights)!r}).predict('a', 'cola'))"
    assert elsewhere.run("-c", predict)
    assert "pip install 'palslib[notebooks]'" in elsewhere.run("reproduce", program="palslib", status=2)
    assert "pip install 'palslib[notebooks]'" in elsewhere.run("-c", "import palslib.study.notebook", status=1)
    [record] = (elsewhere.work / "runs" / "train").rglob("record.json")
    about = json.loads(record.read_text())["environment"]
    assert about["git_commit"] is None and about["packages"]["palslib"] == palslib.__version__
    asked = "import palslib; print(palslib.__file__, len(palslib.load_records()))"
    place, records = elsewhere.run("-c", asked).split()
    assert Path(place).is_relative_to(elsewhere.packages)
    assert int(records) == len(palslib.load_records()) > 0
    assert (elsewhere.packages / "palslib" / "py.typed").is_file()


@pytest.mark.slow
def test_the_cell_that_installs_the_package(clone, tmp_path, monkeypatch):
    """Where palslib is missing, the cell of every notebook installs it from the clone around the page; where there is
    none, it says what is missing. (No dependencies, which are there, and no tools to build.)"""
    elsewhere = Environment(tmp_path)
    cells = nbformat.read(PROJECT / "notebooks" / "00_start_here.ipynb", as_version=4).cells
    [install] = [cell.source for cell in cells if cell.id == "install"]
    for name, value in {"NO_INDEX": "1", "NO_DEPS": "1", "NO_BUILD_ISOLATION": "0"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    assert "This page has to lie in the folder notebooks" in elsewhere.run("-m", "IPython", "-c", install, status=1)
    elsewhere.work = clone / "notebooks"
    elsewhere.work.mkdir()
    elsewhere.run("-m", "IPython", "-c", f"{install}\nimport palslib; palslib.count_parameters('lhuc')")
    place = elsewhere.run("-P", "-c", "import palslib; print(palslib.__file__)").strip()
    assert Path(place).is_relative_to(elsewhere.packages)
