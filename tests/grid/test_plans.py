"""The grids of the evidence: each can run, and together they hold what every claim needs."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from palslib import TASKS, train
from palslib.common.places import RECORDS
from palslib.data.synthetic import synthetic_split
from palslib.grid.sweep import PLANS, Grid
from palslib.ledger.claims import Comparison
from palslib.ledger.paper import load_ledger
from palslib.ledger.results import one_setting, plan_frame, quirk_effects, table_3
from palslib.ledger.selection import Selection, Setting
from palslib.records import read_records


def small_data(folder: Path) -> None:
    """GLUE, the course's files and Crowdflower's, as they are laid out, a few rows each."""
    for task in TASKS.values():
        (folder / "glue" / task.name).mkdir(parents=True)
        for split in ("train", *task.evaluation):
            path = folder / "glue" / task.name / f"{split}-00000-of-00001.parquet"
            synthetic_split(task.name, split)[:12].to_parquet(path)
    (folder / "minbert").mkdir()
    for name, columns, rows in (
        ("ids-sst", "id\tsentence\tsentiment", ["a\tGood.\t4", "b\tBad.\t0"]),
        ("quora", "id\tsentence1\tsentence2\tis_duplicate", ["a\tWhy?\tWhy so?\t1", "b\tWhy?\tHow?\t0"]),
        ("sts", "id\tsentence1\tsentence2\tsimilarity", ["a\tIt rains.\tRain.\t4.5", "b\tIt rains.\tA cat.\t0.5"]),
    ):
        for split in ("train", "dev"):
            lines = [columns, *(f"{row[0]}{i}{row[1:]}" for i in range(6) for row in rows)]
            (folder / "minbert" / f"{name}-{split}.csv").write_text("\n".join(lines) + "\n")
    (folder / "crowdflower").mkdir()
    for task in json.loads((PLANS / "crowdflower.json").read_text())["base"]["tasks"]:
        rows = [f"{word} {i},{label}" for i in range(20) for word, label in (("Nice", "good"), ("Awful", "bad"))]
        (folder / "crowdflower" / f"{task}.csv").write_text("\n".join(["text,label", *rows]) + "\n")


def test_every_claim_has_its_runs_in_a_grid_that_stands_ready(tmp_path, monkeypatch):
    """What a row C needs is in one of the plans; the one that is not is named in PLAN.md."""
    small_data(tmp_path)
    monkeypatch.setenv("PALSLIB_DATA", str(tmp_path))
    grids = {path.stem: Grid.named(path.stem).configs(Path("runs")) for path in PLANS.glob("*.json")}
    assert all(grids.values())
    grids = {name: configs for name, configs in grids.items() if name not in ("pilot", "table3", "trained")}
    runs = [
        {"status": "finished", "config": asdict(config), "method": config.resolved_method().to_dict()}
        | {"precision": config.precision}
        for configs in grids.values()
        for config in configs
    ]
    needs = {(row.id, need) for row in load_ledger().values() if row.kind == "C" for need in row.needs}
    missing = {row for row, need in needs if not any(map(Selection.parse(need).matches, runs))}
    assert missing == {"C13e"}, "what a row C needs is a run of a grid in palslib/grid/plans"
    for text in (text for row in load_ledger().values() if row.kind == "C" for text in row.compare):
        comparison = Comparison.parse(text)
        settings = [
            {Setting.of(run, comparison.alone).shared for run in runs if term.matches(run)}
            for term in comparison.left + comparison.right
        ]
        if all(settings):
            said = f"{text}: the grids' runs differ in more than what is compared (their `base`: precision, steps, ...)"
            assert set.intersection(*settings), said
    plan = (RECORDS / "PLAN.md").read_text(encoding="utf-8")
    assert all(row in plan for row in missing)
    unplanned = [name for name in grids if f"`{name}`" not in plan]
    assert not unplanned, f"PLAN.md says what is run for, and by which rule judged: {', '.join(unplanned)}"
    for name, configs in grids.items():  # three seeds of a method on one machine, before the next seed
        seeds = {config.seed for config in configs}
        assert len(seeds) in (2, 3), f"{name}: three seeds, or two more; it has {len(seeds)}"


@pytest.mark.slow
def test_every_comparison_finds_its_runs_in_what_the_grids_leave(tmp_path, monkeypatch):
    """Each grid is run with its first seed, two steps a run; then every comparison of the ledger has that seed, every
    cell of table 3 that is planned its run, every quirk the run that it differs from."""
    small_data(tmp_path)
    monkeypatch.setenv("PALSLIB_DATA", str(tmp_path))
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path / "runs"))
    for path in sorted(PLANS.glob("*.json")):
        if path.stem not in ("pilot", "table3", "trained", "main-seeds"):
            for config in Grid.from_file(path).configs(tmp_path / "sweeps" / path.stem):
                every = min(1, config.evaluate_every)
                short = {"steps": 3, "batch_size": 2, "evaluate_every": every, "checkpoint_every": 0, "inspect": False}
                if config.seed == 0:
                    train(replace(config, **short, progress=False))
    records = read_records(tmp_path / "sweeps")
    frame = plan_frame(records)
    assert set(frame.loc[frame["seeds"] == 0, "row"]) == {"C13e", "C17", "C24"}  # no runs of a grid decide these
    runs = one_setting(records)
    found = table_3(runs)
    assert (found.loc[found["schedule"] == "annealed", "seeds"] == 1).all()
    assert set(quirk_effects(runs)["row"]) == {"D1", "D2", "D4", "D6", "D7", "D8", "D10", "D11", "D12", "all"}
