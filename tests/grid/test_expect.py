"""The package's own grids, and how long one takes: by hand arithmetic."""

import json
import shutil
from dataclasses import replace

import pytest

from palslib.__main__ import main
from palslib.bert.backbones import load_config
from palslib.common.places import RECORDS
from palslib.grid.expect import attained, expected_hours, operations
from palslib.grid.sweep import Grid
from palslib.plan.config import RunConfig

RECORD = {
    "parts": {
        "step": [
            {"backbone": "minilm", "precision": "bf16", "method": "pals-204", "floor": 0.01, "seconds": {"median": 0.1}}
        ]
    },
    "rates": {"bf16": {"median": 2e12}},
}


def test_table_3s_grid_is_the_papers_a_seed_at_a_time(tmp_path):
    """That it has every cell three times: study/results/test_results.py."""
    configs = Grid.named("table3").configs(tmp_path)
    assert [c.seed for c in configs] == sorted(c.seed for c in configs) and len(configs) == 3 * 19
    assert {(c.backbone, c.steps, c.size) for c in configs} == {("bert-base-uncased", 60_000, "paper")}


def test_operations_of_a_run_by_hand():
    """CoLA alone on a plain MiniLM: 11 pieces, each 4·384² + 2·384·1,536 = 1,769,472 in six layers, attention
    2·11²·384, pooler 384²; 20 steps of 32 texts three times, 1,043 dev texts once."""
    text = 6 * (11 * 1_769_472 + 2 * 11**2 * 384) + 384**2
    config = RunConfig(method="shared", tasks=("cola",), steps=20)
    assert operations(config) == 3 * 20 * 32 * text + 1_043 * text
    assert expected_hours([config, config], RECORD) == pytest.approx(2 * (3 * 640 + 1_043) * text / 3.6e14)
    with pytest.raises(ValueError, match=r"unknown GLUE task \(only these have sizes\) 'sst5': did you mean 'sst2'"):
        operations(RunConfig(tasks=("rte", "sst5")))


def test_what_a_run_does_besides_is_counted():
    """Evaluations before the first step, every 15 of 20 steps, and with the additions switched off; padding."""
    about = {"tasks": ("cola",), "steps": 20, "size": "paper"}
    dev = operations(RunConfig(**about, evaluate_every=10)) - operations(RunConfig(**about))
    plain = operations(RunConfig(**about))
    for more, evaluations in (({"evaluate_every": 15}, 1), ({"inspect": True}, 1), ({"evaluate_first": True}, 1)):
        assert operations(RunConfig(**about, **more)) - plain == pytest.approx(evaluations * dev)
    padded = operations(RunConfig(**about, recipe_options={"padding": "max_length"}))
    assert padded > 128 / 11 * plain  # attention grows with the square


@pytest.mark.parametrize(
    ("of_plan", "rte"),
    [
        ({"schedule": "proportional", "alpha": 0}, 0.5),
        ({"schedule": "proportional"}, 2_490 / (2_490 + 8_551)),
        ({"schedule": "round-robin"}, 0.5),
    ],
)
def test_the_steps_of_each_task_are_those_of_the_plan(of_plan, rte):
    """Two tasks by turns, by size (α = 1), or with a constant α = 0: as often."""
    both = RunConfig(method="shared", tasks=("rte", "cola"), steps=1000, **of_plan)
    once, twice = ([replace(both, tasks=(task,), steps=steps) for task in both.tasks] for steps in (1000, 2000))
    trained = [operations(b) - operations(a) for a, b in zip(once, twice, strict=True)]
    dev = sum(map(operations, once)) - sum(trained)
    assert operations(both) == pytest.approx(dev + rte * trained[0] + (1 - rte) * trained[1], rel=1e-3)


def test_the_rate_that_a_device_attained(tmp_path):
    """Products run at 2e12 / 2 multiply-adds a second, and a step takes ten times as long as its products."""
    assert attained(RECORD, "minilm") == pytest.approx(1e11)
    with pytest.raises(ValueError, match="a step of bert-base-uncased and PALs in bf16"):
        attained(RECORD)
    (tmp_path / "named").mkdir()
    load_config("minilm").save_pretrained(tmp_path / "named")  # the same sizes under another name
    assert attained(RECORD, str(tmp_path / "named")) == attained(RECORD, "minilm")
    for other in ({"some": "other record"}, {"parts": ["step"]}, {"parts": {"step": [3]}}):
        with pytest.raises(ValueError, match="not a record of `make benchmark` with a step"):
            attained(other)


def test_a_grid_by_name_with_other_settings_says_its_hours_and_runs_nothing(tmp_path, capsys):
    (tmp_path / "record.json").write_text(json.dumps(RECORD))
    words = ["sweep", "table3", "--expect", str(tmp_path / "record.json"), "--folder", str(tmp_path / "runs")]
    assert main([*words, "--base", "backbone=minilm", "size=budget", "steps=100", "evaluate_every=0"]) == 0
    assert capsys.readouterr().out.startswith("57 runs, ")
    both = {"backbone": ["minilm", "bert-base-uncased"]}
    grid = {"base": {"steps": 100, "size": "paper"}, "product": both}
    (tmp_path / "both.json").write_text(json.dumps(grid))
    assert main(["sweep", str(tmp_path / "both.json"), *words[2:]]) == 2  # each backbone by its own rate
    assert "a step of bert-base-uncased and PALs in bf16" in capsys.readouterr().err
    assert main([*words, "--base", "backbone=minilm", "size=budget", "--slurm", "partition=none"]) == 0
    assert not (tmp_path / "runs").exists()
    assert main(["sweep", "tabel3"]) == 2
    assert "unknown grid (and no such file exists) 'tabel3': did you mean 'table3'?" in capsys.readouterr().err


def test_runs_that_are_recorded_elsewhere_are_left_out(tmp_path, capsys, monkeypatch):
    """The whole grid, or one run of 18; a folder that does not exist is no folder without records."""
    assert main(["sweep", "main", "--recorded", str(RECORDS)]) == 0
    assert capsys.readouterr().out == f"18 of 18 runs are recorded in {RECORDS}\n"
    (tmp_path / "recorded").mkdir()
    shutil.copy(next((RECORDS / "main").glob("*.json")), tmp_path / "recorded")
    (tmp_path / "record.json").write_text(json.dumps(RECORD))
    words = ["sweep", "main", "--expect", str(tmp_path / "record.json"), "--recorded"]
    assert main([*words, str(tmp_path / "recorded")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("1 of 18 runs are recorded") and said[1].startswith("17 runs, ")
    path = next((tmp_path / "recorded").iterdir())
    monkeypatch.setattr("palslib.plan.content.exchanged_since", lambda *_: ["rte/train"])  # by other texts, since
    assert main([*words, str(tmp_path / "recorded")]) == 0 and capsys.readouterr().out.startswith("0 of 18 runs")
    monkeypatch.undo()
    path.write_text(path.read_text().replace('"status": "finished"', '"status": "stopped"'))
    assert main([*words, str(tmp_path / "recorded")]) == 0 and capsys.readouterr().out.startswith("0 of 18 runs")
    assert main([*words, str(tmp_path / "recorder")]) == 2 and "no such folder" in capsys.readouterr().err
