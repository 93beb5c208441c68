"""The grids of the evidence: each can run, and together they hold what every claim needs."""

import json
from dataclasses import asdict
from pathlib import Path

from palslib.common.places import RECORDS
from palslib.grid.sweep import PLANS, Grid
from palslib.ledger.paper import load_ledger
from palslib.ledger.selection import Selection


def test_every_claim_has_its_runs_in_a_grid_that_stands_ready(tmp_path, monkeypatch):
    """What a row C needs is in one of the plans; the one that is not is named in PLAN.md."""
    (tmp_path / "crowdflower").mkdir()
    for task in json.loads((PLANS / "crowdflower.json").read_text())["base"]["tasks"]:
        (tmp_path / "crowdflower" / f"{task}.csv").write_text("text,label\nNice!,good\nAwful.,bad\n")
    monkeypatch.setenv("PALSLIB_DATA", str(tmp_path))
    grids = {path.stem: Grid.named(path.stem).configs(Path("runs")) for path in PLANS.glob("*.json")}
    assert all(grids.values())
    grids = {name: configs for name, configs in grids.items() if name not in ("pilot", "table3", "trained")}
    runs = [
        {"status": "finished", "config": asdict(config), "method": config.resolved_method().to_dict()}
        for configs in grids.values()
        for config in configs
    ]
    needs = {(row.id, need) for row in load_ledger().values() if row.kind == "C" for need in row.needs}
    missing = {row for row, need in needs if not any(map(Selection.parse(need).matches, runs))}
    assert missing == {"C13e"}, "what a row C needs is a run of a grid in palslib/grid/plans"
    plan = (RECORDS / "PLAN.md").read_text(encoding="utf-8")
    assert all(row in plan for row in missing)
    unplanned = [name for name in grids if f"`{name}`" not in plan]
    assert not unplanned, f"PLAN.md says what is run for, and by which rule judged: {', '.join(unplanned)}"
    for name, configs in grids.items():  # three seeds of a method on one machine, before the next seed
        seeds = {config.seed for config in configs}
        assert len(seeds) in (2, 3), f"{name}: three seeds, or two more; it has {len(seeds)}"
