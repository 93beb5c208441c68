"""The grids of the evidence: each can run, and together they hold what every claim needs."""

from dataclasses import asdict
from pathlib import Path

from palslib.common.places import RECORDS
from palslib.grid.sweep import PLANS, Grid
from palslib.ledger.paper import load_ledger
from palslib.ledger.selection import Selection


def test_every_claim_has_its_runs_in_a_grid_that_stands_ready():
    """What a row C needs is in one of the plans; the two that are not are named in PLAN.md."""
    grids = [path for path in PLANS.glob("*.json") if path.stem not in ("pilot", "table3", "trained")]
    configs = [config for path in grids for config in Grid.named(path).configs(Path("runs"))]
    runs = [
        {"status": "finished", "config": asdict(config), "method": config.resolved_method().to_dict()}
        for config in configs
    ]
    needs = {(row.id, need) for row in load_ledger().values() if row.kind == "C" for need in row.needs}
    missing = {row for row, need in needs if not any(map(Selection.parse(need).matches, runs))}
    assert missing == {"C13e", "C16"}, "what a row C needs is a run of a grid in palslib/grid/plans"
    plan = (RECORDS / "PLAN.md").read_text(encoding="utf-8")
    assert all(row in plan for row in missing)
    unplanned = [path.stem for path in grids if f"`{path.stem}`" not in plan]
    assert not unplanned, f"PLAN.md says what is run for, and by which rule judged: {', '.join(unplanned)}"
    for path in grids:  # three seeds of a method on one machine, before the next seed
        seeds = {config.seed for config in Grid.named(path).configs(Path("runs"))}
        assert len(seeds) in (2, 3), f"{path.name}: three seeds, or two more; it has {len(seeds)}"
