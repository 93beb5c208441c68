"""The set-up files agree with each other, and what the Makefile says when a machine is not fit for it."""

import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from palslib.common.places import PROJECT

SETUP_FILES = ["pyproject.toml", "constraints.txt", "environment.yml", "Makefile", ".ci/run", ".pre-commit-config.yaml"]
SETUP_FILES += [".binder/environment.yml", ".binder/postBuild", ".devcontainer/devcontainer.json"]
SETUP_FILES += [".github/workflows/test.yml"]
EXTRAS = "-e .[lab,test,browser,book,onnx]"


@pytest.fixture(scope="module")
def pyproject() -> dict:
    return tomllib.loads((PROJECT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def pins() -> dict[str, str]:
    lines = [line for line in (PROJECT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    return {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines}


def test_every_dependency_has_an_exact_version_that_it_allows(pyproject, pins):
    extras = pyproject["project"]["optional-dependencies"]
    named = [*pyproject["project"]["dependencies"], *(name for extra in extras.values() for name in extra)]
    for requirement in (one for one in map(Requirement, named) if one.name != "palslib"):
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier
    assert pins["torch"] == "2.13.0"


def test_environment_yml_installs_the_same_thing(pyproject):
    text = (PROJECT / "environment.yml").read_text()
    pip = re.findall(r"^      - (.*)$", text, re.MULTILINE)
    assert pip == ["-c constraints.txt", EXTRAS]
    extras = pyproject["project"]["optional-dependencies"]
    assert set(extras) == {"notebooks", "lab", "test", "browser", "book", "onnx"}
    assert "palslib[notebooks]" in extras["lab"] and "palslib[notebooks]" in extras["test"]
    assert "- python=3.11" in text and pyproject["project"]["requires-python"] == ">=3.11"


def targets(text: str) -> set[str]:
    """What a file calls make for."""
    return {target for call in re.findall(r"\bmake ([a-z ]+)", text) for target in call.split()}


@pytest.mark.parametrize("name", [".binder/postBuild", ".devcontainer/devcontainer.json", ".github/workflows/test.yml"])
def test_what_other_machines_call_is_a_target(name):
    called = targets((PROJECT / name).read_text())
    makefile = (PROJECT / "Makefile").read_text()
    assert {"cpu"} < called <= set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))


def test_binder_and_the_dev_container_have_the_python_of_environment_yml():
    ours, binder = (
        yaml.safe_load((PROJECT / name).read_text()) for name in ("environment.yml", ".binder/environment.yml")
    )
    assert binder["channels"] == ours["channels"]
    assert binder["dependencies"] == [name for name in ours["dependencies"] if isinstance(name, str)]
    assert os.access(PROJECT / ".binder" / "postBuild", os.X_OK)
    container = json.loads((PROJECT / ".devcontainer" / "devcontainer.json").read_text())
    assert container["image"] == "python:3.11" and "python=3.11" in binder["dependencies"]
    assert container["postCreateCommand"] == "make cpu && make extras"


def test_the_workflow_has_the_systems_of_the_readme():
    """Keys as GitHub has them. Windows is not among them: a run's lock needs Linux, macOS or WSL."""
    workflow = yaml.safe_load((PROJECT / ".github" / "workflows" / "test.yml").read_text())
    assert set(workflow) == {"name", True, "defaults", "permissions", "jobs"}  # YAML 1.1 reads `on` as true
    systems = set()
    for job in workflow["jobs"].values():
        assert set(job) <= {"strategy", "runs-on", "timeout-minutes", "steps"}
        assert all(set(step) in ({"uses"}, {"uses", "with"}, {"run"}) for step in job["steps"])
        assert job["steps"][1]["with"] == {"python-version": "3.11"}
        systems |= set(job.get("strategy", {}).get("matrix", {}).get("os", [job["runs-on"]]))
    assert systems == {"ubuntu-latest", "macos-latest"}
    assert "Linux, macOS (Apple silicon) or WSL" in (PROJECT / "README.md").read_text()


@pytest.mark.parametrize("name", SETUP_FILES)
def test_no_package_index_is_named(name):
    text = (PROJECT / name).read_text().replace("https://arxiv.org/", "")  # where the paper is
    assert not re.search(r"https?://|file://|index-url|find-links|/opt/|/root/", text)


def test_version_is_said_once_more_only_where_it_must_be(pyproject):
    import palslib

    citation = (PROJECT / "CITATION.cff").read_text()
    assert pyproject["project"]["version"] == palslib.__version__
    assert f"\nversion: {palslib.__version__}\n" in citation


# --- make, in a folder that holds the set-up files only: nothing below installs anything


@pytest.fixture
def folder():
    """Readable by everybody (pytest's own temporary folders are not)."""
    path = Path(tempfile.mkdtemp(prefix="palslib-setup-"))
    path.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(PROJECT / name, path)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


def make(folder: Path, *arguments: str, **options) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    call = ["make", "-C", str(folder), "--no-print-directory", *arguments]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=60, **options)
    return done.returncode, done.stdout + done.stderr


def refusal(folder: Path, *arguments: str, **options) -> str:
    """The one line that make says before it stops."""
    status, said = make(folder, *arguments, **options)
    assert status == 2 and said.count("\n") == 1, said
    return said


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("target", ["reproduce", "test", "lab"])
def test_no_python(folder, target):
    said = refusal(folder, target, "PYTHON=no-such-python")
    assert "Python 3.11 or newer is needed" in said and "'no-such-python' is missing" in said


def test_too_old_a_python(folder):
    old = script(folder / "python3.9", '[ "$1" = --version ] && echo Python 3.9.1 && exit; exit 1')
    said = refusal(folder, "reproduce", f"PYTHON={old}")
    assert "Python 3.11 or newer is needed" in said and "is Python 3.9.1" in said


def test_an_environment_whose_python_is_gone(folder):
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/python").symlink_to("/no/such/python")
    said = refusal(folder, "test")
    assert "The Python in .venv is gone or too old" in said and "rm -rf .venv" in said


def test_an_environment_that_lacks_a_module(folder):
    script(folder / ".venv/bin/python", 'case "$*" in *torch*) echo "ModuleNotFoundError: No torch" >&2; exit 1; esac')
    for stamp in ("core.stamp", "extras.stamp"):
        (folder / ".venv" / stamp).touch()
    assert ".venv is broken (ModuleNotFoundError: No torch): remove it" in refusal(folder, "reproduce")


def test_a_read_only_folder(folder):
    folder.chmod(0o555)
    root = os.geteuid() == 0  # whom permissions do not stop
    assert "This folder is read-only" in refusal(folder, "reproduce", **({"user": "nobody"} if root else {}))


def test_the_second_call_installs_nothing_again(folder):
    script(folder / ".venv/bin/python", f'echo "$*" >> {folder}/calls')
    assert make(folder, "test")[0] == 0
    calls = (folder / "calls").read_text()
    assert calls.count("-m pip") == 2 and f"-c constraints.txt {EXTRAS}" in calls
    assert make(folder, "test")[0] == 0
    again = (folder / "calls").read_text().removeprefix(calls)
    assert "-m pip" not in again
    call = "-m pytest -n 2 --dist loadfile"
    assert [line for line in again.splitlines() if "pytest" in line] == [call, f"{call} --nbval notebooks"]


def test_a_torch_for_cpus_first(folder):
    """The version of constraints.txt, into the environment that the other targets then find."""
    script(folder / ".venv/bin/python", f'echo "$*" >> {folder}/calls')
    assert make(folder, "cpu")[0] == 0
    call = (folder / "calls").read_text().splitlines()[-1]
    assert call == "-m uv pip install --python .venv/bin/python --torch-backend cpu torch==2.13.0"


def test_without_pytorchs_own_index_pips_build_is_taken(folder):
    body = f'echo "$*" >> {folder}/calls; case "$*" in *torch-backend*) exit 1; esac'
    script(folder / ".venv/bin/python", body)
    status, said = make(folder, "cpu")
    assert status == 0 and "out of reach" in said
    assert (folder / "calls").read_text().endswith("-c constraints.txt torch==2.13.0\n")


def test_sweep_wants_a_grid(folder):
    script(folder / ".venv/bin/python", f'echo "$*" >> {folder}/calls')
    assert "make sweep GRID=FILE.json" in refusal(folder, "sweep")
    assert make(folder, "sweep", "GRID=my.json", "ARGS=--slots 3")[0] == 0
    assert (folder / "calls").read_text().endswith("-m palslib sweep my.json --slots 3\n")


@pytest.mark.parametrize("fails", ["", " --nbval notebooks"])
def test_make_test_says_what_failed(folder, fails):
    script(folder / ".venv/bin/python", f'[ "$*" != "-m pytest -n 2 --dist loadfile{fails}" ]')
    status, said = make(folder, "test")
    assert status == 2
    assert said.count("  passed  ") == said.count("  FAILED  ") == 1 and f"  FAILED  pytest{fails}:" in said
