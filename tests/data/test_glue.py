"""GLUE's sizes are one table; what holds of them, by hand, and that every other name is derived from it."""

from pathlib import Path

import pytest

import palslib
from palslib.data.glue import RELEASED_SIZES, SIZES, TRAIN_SIZES
from palslib.data.submission import GLUE_FILES
from palslib.data.tasks import TASKS
from palslib.ledger.paper import GLUE_TRAIN_SIZES
from palslib.plan import recipes
from palslib.plan.sampling import official_sizes


def test_totals():
    """Training: 8,551 + 67,349 + 3,668 + 5,749 + 363,846 + 392,702 + 104,743 + 2,490 = 949,098; test: 426,309."""
    assert list(TRAIN_SIZES) == list(RELEASED_SIZES) == list(TASKS)
    assert sum(TRAIN_SIZES.values()) == 949_098
    assert sum(sum(sizes.test.values()) for sizes in SIZES.values()) == 426_309


def test_cut_to_integers_the_factor_cancels_to_2e_4():
    """Ledger D5: MRPC is cut the most, 3,668 · 25/32 = 2,865.625 to 2,865, by 2.2e-4."""
    cut = {task: 1 - (n * 25 // 32) / (n * 25 / 32) for task, n in RELEASED_SIZES.items()}
    assert max(cut, key=cut.get) == "mrpc" and cut["mrpc"] == pytest.approx(0.625 / 2_865.625)


def test_every_other_name_is_this_table():
    assert GLUE_TRAIN_SIZES is TRAIN_SIZES and recipes.RELEASED_SIZES is RELEASED_SIZES
    assert official_sizes(TASKS) == TRAIN_SIZES
    assert {(f.config or f.task, f.split, f.rows) for f in GLUE_FILES.values()} == {
        (config, split, rows) for config, sizes in SIZES.items() for split, rows in sizes.test.items()
    }
    sources = Path(palslib.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if "392_702" in path.read_text(encoding="utf-8")] == ["glue.py"]
