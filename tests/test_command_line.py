"""One command line: settings are flags, files and presets come under them, and what is wrong is one line."""

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import palslib
from palslib import __main__ as command_line
from palslib.__main__ import STUDY, called, commands, main
from palslib.plan.config import PRESETS, RunConfig
from palslib.training.trained import Trained

SMALL = ["--backbone", "tiny", "--size", "24", "--tasks", "rte", "--steps", "2", "--no-progress"]
FILE = {"steps": 7, "schedule": "proportional", "alpha": 0, "method_options": {"heads": 6}}


@pytest.fixture
def trained(monkeypatch):
    """The configs that `train` was called with; nothing is trained."""
    configs = []
    record = Trained({"key": "k", "results": {"last": {"dev_average": 50.0}}}, Path("mine"))
    monkeypatch.setattr("palslib.training.loop.train", lambda config: (configs.append(config), record)[1])
    return configs


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {}),
        ("--preset mini", PRESETS["mini"]),
        ("--preset=mini --steps=5 --keep none", PRESETS["mini"] | {"steps": 5, "keep": "none"}),
        ("FILE", FILE),
        ("--tasks rte cola FILE", FILE | {"tasks": ("rte", "cola")}),
        ("--steps 60 FILE --alpha 0.5", FILE | {"steps": 60, "alpha": 0.5}),
        ("FILE --preset mini --alpha None", PRESETS["mini"] | FILE | {"alpha": None}),
        ("--tasks rte cola --size paper --data glue", {"tasks": ("rte", "cola"), "size": "paper", "data": "glue"}),
        ("--method-options heads=6 init=normal", {"method_options": {"heads": 6, "init": "normal"}}),
        ("--recipe_options epsilon=1e-6 bias_correction=false",
         {"recipe_options": {"epsilon": 1e-6, "bias_correction": False}}),
        ("--learning-rate 1e-3 --evaluate-first --no-progress --start 12",
         {"learning_rate": 1e-3, "evaluate_first": True, "progress": False, "start": "12"}),
        ("--progress false --inspect=true --folder=~/x",
         {"progress": False, "inspect": True, "folder": os.path.expanduser("~/x")}),
    ],
)  # fmt: skip
def test_train_takes_a_file_a_preset_and_flags(trained, tmp_path, capsys, words, expected):
    """Flags go before the file, the file before the preset, also where a flag says what is the default; values have the
    types that make keys equal; `last` is kept unless something else is said."""
    (tmp_path / "run.json").write_text(json.dumps(FILE))
    assert main(["train", *words.replace("FILE", str(tmp_path / "run.json")).split()]) == 0
    config = RunConfig(**{"keep": "last"} | expected)
    assert trained == [config] and trained[0].key == config.key
    out, err = capsys.readouterr()
    assert out == '{"key": "k", "dev_average": 50.0}\n' and ("generated" in err) == (config.data == "synthetic")
    assert (f"palslib predict {Path('mine').absolute()}" in err) == (config.progress and config.keep != "none")


WRONG = {
    "train --lr 1": "--learning-rate", "train --learning-rate NaN": "learning_rate", "train --preset smok": "'smoke'",
    "train --alpha 0.5": "schedule", "train --method lora-8": "own_method", "train --method-options heads": "NAME=VAL",
    "train --recipe-options clip=a clip=b": "occurs twice",
    "train FILE": "'steps'", "train --data /nowhere/glue --tasks mine": "/glue",
    "pretrain /nowhere/x.json": "/nowhere/x.json", "predict --text c a /nowhere.csv": "FILE that exists",
    "predict a b.csv b.csv": "each once",
    "heads a notes.txt": "notes.txt", "heads a FILE": "is not a record of this kind",
    "adapters r.json --folder x": "--tasks", "adapters r.json --folder=x --tasks=rte --rows=0": "rows",
    "sweep nosuch": "'nosuch'", "train --tets 1": "palslib train --help",
    "sweep pilot --base seed=3": "--base", "clean --folder /nowhere": "/nowhere",
    "benchmark --adapters-python /nowhere": "/nowhere",
    "benchmark --parts stepp": "'step'", "sweep pilot --limit 0": "limit must be at least 1",
    "train --method-options heads=6 --method_options sharing=layers": "--method-options is given twice",
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_call_ends_with_2(tmp_path, capsys, words):
    """In tyro's words, or in ours on one line."""
    (tmp_path / "x.json").write_text('{"stepz": 3}')
    assert main(words.replace("FILE", str(tmp_path / "x.json")).split()) == 2
    out, err = capsys.readouterr()
    assert WRONG[words] in err and out == "" and (err.count("\n") == 1) == err.startswith("palslib")


def test_any_exception_is_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    assert main(["train", "--backbone", "/nowhere/bert", *SMALL[2:]]) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("palslib train: ") and "/nowhere/bert" in line
    error = KeyError("a\nb")
    error.add_note("while reading x.json")
    monkeypatch.setattr("palslib.training.loop.train", lambda config: (_ for _ in ()).throw(error))
    assert main(["train", "--data", "glue"]) == 1
    assert capsys.readouterr().err == "palslib train: KeyError: 'a\\nb'; while reading x.json\n"
    assert main(["train", "--data", "glue", "--debug"]) == 1 and "Traceback" in capsys.readouterr().err


def test_only_the_first_of_several_processes_prints(trained, monkeypatch, capsys):
    monkeypatch.setattr(command_line, "FIRST", False)
    assert main(["train"]) == 0 and main(["train", "--steps", "0"]) == 2 and main(["train", "--steps"]) == 2
    assert capsys.readouterr() == ("", "")
    call = [sys.executable, "-c", "from palslib.common.processes import FIRST; print(FIRST)"]
    said = [subprocess.check_output(call, env=os.environ | {"RANK": "1", "WORLD_SIZE": n}) for n in ("", "1", "2")]
    assert said == [b"True\n", b"True\n", b"False\n"]  # a RANK that was left over silences nothing


def test_help_shows_every_setting_and_loads_neither_torch_nor_pandas():
    """Nor does the overview load pydantic."""
    script = "import sys; from palslib.__main__ import main; main(['--help']); assert 'pydantic' not in sys.modules\n"
    script += "main(['sweep', '--help']); main(['train', '--help'])\n"
    script += "assert not {'torch', 'pandas', 'numpy'} & {*sys.modules}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    text = " ".join(done.stdout.replace("│", " ").split())
    assert {*STUDY} <= {*commands()} and all(f" {name} " in text for name in commands()) and "NAME=VALUE" in text
    assert all(f"--{field.name.replace('_', '-')}" in text for field in fields(RunConfig))
    assert "Word pieces per row, at most; longer rows are cut. (default: 128)" in text


@pytest.mark.parametrize(
    ("words", "text", "files"),
    [
        ("predict --text tweet RUN A --task mood", ("tweet",), ("A",)),
        ("predict RUN --text tweet A B --no-progress", ("tweet",), ("A", "B")),
        ("evaluate --splits train test RUN A --text one two", ("one", "two"), ("A",)),
        ("predict RUN A --text one two", ("one", "two"), ("A",)),
    ],
)
def test_a_list_of_columns_does_not_swallow_files(tmp_path, monkeypatch, words, text, files):
    monkeypatch.chdir(tmp_path)
    Path("RUN").mkdir()
    for name in ("RUN/record.json", "A", "B"):
        Path(name).touch()
    call = called(words.split())
    assert (call.model, call.files, call.text) == (Path("RUN"), files, text)


def test_what_goes_to_a_file_is_utf8_whatever_the_terminals_encoding():
    call, terminal = [sys.executable, "-m", "palslib", "train", "--help"], {"PYTHONIOENCODING": "latin-1"}
    assert "α" in subprocess.check_output(call, env=os.environ | terminal).decode()


def test_version_and_no_command(capsys):
    assert main(["--version"]) == 0 and capsys.readouterr().out == f"palslib {palslib.__version__}\n"
    assert main([]) == 2 and "predict, evaluate, train" in capsys.readouterr().err
