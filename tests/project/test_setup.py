"""The set-up files agree with each other, and what the Makefile says when a machine is not fit for it."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from palslib.common.places import PROJECT

EXTRAS = "-e .[lab,test,browser,book,onnx]"
ABOUT = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]


def test_every_dependency_has_an_exact_version_that_it_allows():
    lines = [line for line in (PROJECT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    pins = {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines}
    named = [*ABOUT["dependencies"], *(name for extra in ABOUT["optional-dependencies"].values() for name in extra)]
    for requirement in (one for one in map(Requirement, named) if one.name != "palslib"):
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier


def test_every_machine_installs_the_same_thing():
    names = ("environment.yml", ".binder/environment.yml", ".github/workflows/test.yml")
    ours, binder, workflow = (yaml.safe_load((PROJECT / name).read_text()) for name in names)
    assert ours["dependencies"] == [*binder["dependencies"], {"pip": ["-c constraints.txt", EXTRAS]}]
    extras = ABOUT["optional-dependencies"]
    assert set(extras) == {"notebooks", "lab", "test", "browser", "book", "onnx"}
    assert "palslib[notebooks]" in extras["lab"] and "palslib[notebooks]" in extras["test"]
    assert "python=3.11" in ours["dependencies"] and ABOUT["requires-python"] == ">=3.11"
    container = json.loads((PROJECT / ".devcontainer" / "devcontainer.json").read_text())
    assert container["image"] == "python:3.11"
    assert {job["steps"][1]["with"]["python-version"] for job in workflow["jobs"].values()} == {"3.11"}


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt", "environment.yml", "Makefile", ".ci/run"])
def test_no_package_index_is_named(name):
    text = (PROJECT / name).read_text().replace("https://arxiv.org/", "")  # where the paper is
    assert not re.search(r"https?://|file://|index-url|find-links", text)


# --- make, in a folder that holds the set-up files only: nothing below installs anything


@pytest.fixture
def folder(tmp_path) -> Path:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(PROJECT / name, tmp_path)
    return tmp_path


def make(folder: Path, *arguments: str) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    call = ["make", "-C", str(folder), "--no-print-directory", *arguments]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


PYTHON = ".venv/bin/python"
NO_TORCH = 'case "$*" in *torch*) echo "ModuleNotFoundError: No torch" >&2; exit 1; esac'


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def calls(folder):
    """A Python in `.venv` that does nothing; its calls so far, a line for each."""
    script(folder / PYTHON, f'echo "$*" >> {folder}/calls')
    return lambda: (folder / "calls").read_text().splitlines()


@pytest.mark.parametrize(
    ("target", "python", "text", "said"),
    [
        ("reproduce", "old", '[ "$1" = --version ] && echo Python 3.9.1 && exit; exit 1', "is Python 3.9.1"),
        ("lab", "none", None, "none' is missing"),
        ("test", PYTHON, None, "The Python in .venv is gone, too old or without pip: remove it (rm -rf .venv)"),
        ("reproduce", PYTHON, NO_TORCH, ".venv is broken (ModuleNotFoundError: No torch): remove it"),
    ],
)
def test_a_python_that_is_not_fit_is_named(folder, target, python, text, said):
    """Too old, missing, moved away since the environment was made, or without a module."""
    if python == PYTHON:
        (folder / ".venv/bin").mkdir(parents=True)
        for stamp in ("core.stamp", "extras.stamp"):
            (folder / ".venv" / stamp).touch()
    if text:
        script(folder / python, text)
    status, words = make(folder, target, *([] if python == PYTHON else [f"PYTHON={folder / python}"]))
    assert status == 2 and words.count("\n") == 1 and said in words, words
    assert python == PYTHON or "Python 3.11 or newer is needed" in words


def test_the_second_call_installs_nothing_again(folder, calls):
    assert make(folder, "test")[0] == 0
    first = calls()
    installed = [line for line in first if "-m pip" in line]
    assert len(installed) == 2 and any(f"-c constraints.txt {EXTRAS}" in line for line in installed)
    assert make(folder, "test")[0] == 0
    again, call = calls()[len(first) :], "-m pytest -n 2 --dist loadfile"
    assert not [line for line in again if "-m pip" in line]
    assert [line for line in again if "pytest" in line] == [call, f"{call} --nbval notebooks"]


def test_a_torch_for_cpus_first(folder, calls):
    """The version of constraints.txt, into the environment that the other targets then find; pip's build where
    PyTorch's own index is out of reach."""
    assert make(folder, "cpu")[0] == 0
    assert calls()[-1] == f"-m uv pip install --python {PYTHON} --torch-backend cpu torch==2.13.0"
    script(folder / PYTHON, f'echo "$*" >> {folder}/calls; case "$*" in *torch-backend*) exit 1; esac')
    status, said = make(folder, "cpu")
    assert status == 0 and "out of reach" in said and calls()[-1].endswith("-c constraints.txt torch==2.13.0")


@pytest.mark.parametrize("fails", ["", " --nbval notebooks"])
def test_make_test_says_what_failed(folder, fails):
    script(folder / PYTHON, f'[ "$*" != "-m pytest -n 2 --dist loadfile{fails}" ]')
    status, said = make(folder, "test")
    assert status == 2
    assert said.count("  passed  ") == said.count("  FAILED  ") == 1 and f"  FAILED  pytest{fails}:" in said
