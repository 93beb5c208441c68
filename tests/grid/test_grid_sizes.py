"""Grids that no machine could hold, and grids of nothing, are refused at once."""

import json
import time
from pathlib import Path

import pytest

from palslib.grid.sweep import MOST_RUNS, Grid

FIELDS = ("seed", "steps", "learning_rate", "clip", "weight_decay", "epochs", "batch_size", "evaluate_every")


def test_59_to_the_8th_runs_are_refused_before_one_is_made():
    """146,830,437,604,321 configs, which were made first and counted then."""
    began = time.monotonic()
    with pytest.raises(ValueError, match="runs and product: a grid has 1 to 10,000 runs, not 146,830,437,604,321"):
        Grid(product={name: list(range(1, 60)) for name in FIELDS}).configs(Path("sweep"))
    assert time.monotonic() - began < 1


def test_the_bound_is_of_runs_and_product_together():
    grid = Grid(base={"size": 24}, product={"seed": list(range(4))}, runs=[{"steps": n} for n in range(1, 2502)])
    with pytest.raises(ValueError, match="not 10,004"):
        grid.configs(Path("sweep"))
    assert len(Grid(base={"size": 24}, product={"seed": [0, 1]}).configs(Path("sweep"))) == 2 <= MOST_RUNS


def test_a_grid_of_no_runs_is_refused():
    with pytest.raises(ValueError, match="a grid has 1 to 10,000 runs, not 0"):
        Grid(runs=[]).configs(Path("sweep"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "not JSON: 'utf-8' codec"),
        (b"[" * 100_000, "nested more than 64 deep"),
        (b'{"runs": NaN}', "NaN is not a finite number"),
        (b'{"base": {}, "base": {}}', "the key 'base' comes twice"),
        (json.dumps({"product": [1]}).encode(), "part of a grid 'product' must be a dict"),
    ],
)
def test_a_file_that_is_no_grid_is_named(content, message, tmp_path):
    (tmp_path / "grid.json").write_bytes(content)
    with pytest.raises(ValueError, match=rf"grid\.json: .*{message}"):
        Grid.from_file(tmp_path / "grid.json")
