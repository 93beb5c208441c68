"""One command line: settings are flags, files and presets come under them, and what is wrong is one line."""

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from torch import nn

import palslib
from palslib import __main__ as command_line
from palslib.__main__ import COMMANDS, main
from palslib.plan.config import PRESETS, RunConfig
from palslib.training.trained import Trained

STEPS = "steps must be an integer of at least 1 and of at most 10,000,000"
SMALL = ["--backbone", "tiny", "--size", "24", "--tasks", "rte", "--steps", "2", "--no-progress"]


@pytest.fixture
def trained(monkeypatch):
    """The configs that `train` was called with; nothing is trained."""
    configs = []
    history = [{"step": 0, "dev_average": 33.0}, {"step": 0, "dev_average": None}]  # an average may be undefined
    record = Trained({"key": "k", "results": {"last": {"dev_average": 50.0}}, "history": history}, Path("mine"))
    monkeypatch.setattr("palslib.training.loop.train", lambda config: (configs.append(config), record)[1])
    return configs


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["--preset", "mini"], PRESETS["mini"]),
        (["--preset=mini", "--steps=5"], PRESETS["mini"] | {"steps": 5}),
        (["FILE"], {"steps": 7, "schedule": "proportional", "alpha": 0, "method_options": {"heads": 6}}),
        (["FILE", "--alpha", "0.5", "--steps", "60"], {"schedule": "proportional", "alpha": 0.5, "steps": 60,
                                                      "method_options": {"heads": 6}}),
        (["FILE", "--preset", "mini", "--alpha", "None"], PRESETS["mini"] | {"steps": 7, "schedule": "proportional",
                                                                            "method_options": {"heads": 6}}),
        (["--tasks", "rte", "--method-options", "heads=6", "--tasks", "cola", "--method-options", "init=normal"],
         {"tasks": ("rte", "cola"), "method_options": {"heads": 6, "init": "normal"}}),
        (["--tasks", "rte", "cola", "--size", "paper"], {"tasks": ("rte", "cola"), "size": "paper"}),
        (["--size", "60", "--method-options", "heads=6", "init=normal"],
         {"size": 60, "method_options": {"heads": 6, "init": "normal"}}),
        (["--recipe-options", "bias_correction=false", "epsilon=1e-6"],
         {"recipe_options": {"bias_correction": False, "epsilon": 1e-6}}),
        (["--evaluate-first", "--no-progress", "--start", "12"],
         {"evaluate_first": True, "progress": False, "start": "12"}),
    ],
)  # fmt: skip
def test_train_takes_a_file_a_preset_and_flags(trained, tmp_path, capsys, words, expected):
    """Flags go before the file, the file before the preset, also where a flag says what is the default."""
    values = {"steps": 7, "schedule": "proportional", "alpha": 0, "method_options": {"heads": 6}}
    (tmp_path / "run.json").write_text(json.dumps(values))
    assert main(["train", *(str(tmp_path / "run.json") if word == "FILE" else word for word in words)]) == 0
    assert trained == [RunConfig(**expected)] and trained[0].key == RunConfig(**expected).key
    out, err = capsys.readouterr()
    assert out == '{"key": "k", "dev_average": 50.0}\n'
    assert ("33.0" in err and "mine" in err and "next: " in err) if trained[0].progress else err == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tran"], "palslib: unknown command 'tran': did you mean 'train'? Valid: train, predict, "),
        (["train", "--step", "3"], "palslib train: unknown flag '--step': did you mean '--steps'? Valid: --method, "),
        (["train", "--steps", "3", "x.json"], "palslib train: unexpected argument 'x.json'"),
        (["train", "--steps"], "palslib train: --steps: expected one argument"),
        (["train", "--seed", "9" * 5000], "palslib train: seed must be an integer of at least 0 and below 9,223,"),
        (["train", "--steps", "[" * 100_000], f"palslib train: {STEPS}, not '[[["),
        (["train", "--steps", "x"], f"palslib train: {STEPS}, not 'x'"),
        (["train", "--learning-rate", "NaN"], "learning_rate must be a number of at least 0 and of at most 100, not n"),
        (["train", "--alpha", "0.5"], "palslib train: alpha=0.5 contradicts schedule 'annealed'"),
        (["train", "--preset", "smok"], "palslib train: unknown preset 'smok': did you mean 'smoke'?"),
        (["train", "--method-options", "heads"], "palslib train: --method-options: 'heads' is not of the form NAME=VA"),
        (["train", "--start", "x", "--weights", "random"], "palslib train: weights='random' contradicts start"),
        (["train", "--data", "/nowhere/glue", "--tasks", "mine"], "palslib train: no data folder or file '/nowhere"),
        (["train", "--recipe-options", "clip=a", "clip=b"], "palslib train: the key 'clip' occurs twice"),
        (["pretrain", "/nowhere/x.json"], "palslib pretrain: [Errno 2] No such file or directory: '/nowhere/x.json'"),
        (["predict", "a"], "palslib predict: the following arguments are required: FILES"),
        (["predict", "a", "/nowhere.csv"], "palslib predict: no data file '/nowhere.csv'"),
        (["evaluate", "a", "FILE", "--output", "FILE"], "x.json: give a new file that ends in .csv; --force replaces"),
        (["heads", "a"], "palslib heads: the following arguments are required: OUT"),
        (["adapters", "r.json", "--folder", "x"], "palslib adapters: tasks is missing"),
        (["adapters", "r.json", "--folder=x", "--tasks=rte", "--rows=0"], "palslib adapters: rows must be an integer"),
        (["adapters", "r", "--folder=x", "--tasks=rte", "--options", "rows=1"], "palslib adapters: rows has its own"),
        (["sweep", "pilot", "--command", ""], "palslib sweep: --command is empty"),
        (["sweep", "pilot", "--expect", "/nowhere/x.json"], "palslib sweep: [Errno 2] No such file"),
        (["sweep", "pilot", "--expect", "FILE", "--collect", "x"], "give only one of --collect and --expect"),
        (["clean", "--folder=~/nowhere"], f"palslib clean: {Path.home()}/nowhere "),
        (["benchmark", "--adapters-python", "/nowhere"], "--adapters-python: /nowhere is not a program"),
        (["benchmark", "--parts", "peer"], "unknown part of the benchmark 'peer': did you mean 'peers'?"),
        (["benchmark", "--draw", "FILE", "--quick"], "--draw measures nothing, so it takes no --quick"),
        (["benchmark", "--draw", "/nowhere"], "palslib benchmark: --draw: there is no file /nowhere"),
        (["heads", "a", "notes.txt"], "palslib heads: a record is a file that ends in .json, not notes.txt"),
        (["heads", "a", "FILE"], "x.json already exists and is not a record of this kind: give another file"),
    ],
)  # fmt: skip
def test_a_bad_call(tmp_path, capsys, words, message):
    (tmp_path / "x.json").write_text('{"config": {}, "environment": {}}')
    assert main([str(tmp_path / "x.json") if word == "FILE" else word for word in words]) == 2
    out, err = capsys.readouterr()
    assert message in err and (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize("words", [[], ["--help"], ["train", "--help"]])
def test_a_reader_that_has_enough_is_no_traceback(words):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "palslib", *words], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert done.returncode in (1, 2) and done.stderr.strip().endswith("Broken pipe")
    assert done.stderr.count("Broken pipe") == 1 and "Traceback" not in done.stderr


def test_a_bad_file(tmp_path, capsys):
    (tmp_path / "run.json").write_text('{"stepz": 3}')
    assert main(["train", str(tmp_path / "run.json")]) == 2
    out, err = capsys.readouterr()
    assert "unknown parameter 'stepz': did you mean 'steps'?" in err and "run.json" in err
    assert err.startswith("palslib train: ") and (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--backbone", "/nowhere/bert"], "could not load the configuration of backbone '/nowhere/bert'"),
        (["--data", "/nowhere/glue"], "no data folder or file '/nowhere/glue'"),
    ],
)
def test_a_run_that_fails(tmp_path, monkeypatch, capsys, more, message):
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    assert main(["train", *SMALL, *more]) == 1
    out, err = capsys.readouterr()
    assert message in err and err.startswith("palslib train: ") and (out, err.count("\n")) == ("", 1)


def test_a_loss_that_is_not_finite(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(nn.functional, "cross_entropy", lambda logits, labels: logits.sum() * math.nan)
    assert main(["train", *SMALL, "--folder", str(tmp_path / "run")]) == 1
    error = "palslib train: the loss is nan at step 0, task 'rte'; last good checkpoint: none\n"
    assert capsys.readouterr().err == error


def test_only_the_first_of_several_processes_prints(trained, monkeypatch, capsys):
    monkeypatch.setattr(command_line, "FIRST", False)
    assert main(["train"]) == 0 and main(["train", "--steps", "0"]) == 2
    assert capsys.readouterr() == ("", "")


# ---------------------------------------------------------------------------------------------------------------- help


@pytest.fixture(scope="module")
def helps():
    """What `--help` of every command says, and whether torch was imported, in a process of its own."""
    script = "import io, sys, json, contextlib; from palslib.__main__ import main, COMMANDS; said = {}\n"
    script += "for words in ([], *([c] for c in COMMANDS)):\n"
    script += "    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):\n"
    script += "        main([*words, '--help'])\n"
    script += "    said[' '.join(words)] = out.getvalue(), 'torch' in sys.modules\n"
    script += "print(json.dumps(said))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_help_loads_no_torch(helps):
    assert {command: loaded for command, (_, loaded) in helps.items()} == dict.fromkeys(["", *COMMANDS], False)
    assert [line.split()[0] for line in helps[""][0].splitlines() if line.startswith("  ")] == list(COMMANDS)


@pytest.mark.parametrize("command", ["train", "pretrain"])
def test_help_shows_every_setting(helps, command):
    """Each with its default, and with what the line under the field says."""
    text = " ".join(helps[command][0].replace("│", " ").split())
    for field in fields(RunConfig):
        assert f"--{field.name.replace('_', '-')}" in text
    assert "Word pieces a row; longer rows are cut. (default: 128)" in text
    assert "A name of `sampling.SCHEDULES`. (default: annealed)" in text
    assert "[CONFIG.json] [--preset {smoke,mini,paper,minbert,gem}]" in text


def test_help_of_a_preset_shows_its_values(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--preset", "mini", "--help"])
    assert "(default: 2000)" in capsys.readouterr().out


def test_help_is_grouped_and_printed_where_alpha_is_no_letter():
    """On a terminal of ASCII alone."""
    call = [sys.executable, "-m", "palslib", "train", "--help"]
    done = subprocess.run(call, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=True)
    said = done.stdout.decode("ascii")
    assert [line for line in said.splitlines() if line.endswith(":") and line[0] != " "][1:] == [
        f"{title}:" for title in command_line.GROUPS.values()
    ] and "\\u03b1" in said


def test_version(capsys):
    assert main(["--version"]) == 0 and capsys.readouterr().out == f"palslib {palslib.__version__}\n"


def test_without_a_command(capsys):
    assert main([]) == 2 and "usage: palslib COMMAND" in capsys.readouterr().out


def test_every_setting_can_be_given_as_a_flag(trained):
    """What `asdict` says, given back flag by flag, is the same config."""
    config = RunConfig(recipe_options={"order": "replayed"}, alpha=0.25, schedule="proportional", head_dropout=0.1)
    words = []
    for name, value in asdict(config).items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [flag if value else f"--no-{flag[2:]}"]
        elif isinstance(value, dict):
            words += [flag, *(f"{k}={v}" for k, v in value.items())]
        else:
            words += [flag, *map(str, value if isinstance(value, tuple) else [value])]
    assert main(["train", *words]) == 0 and trained == [config]
