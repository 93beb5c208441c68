"""GLUE's sizes, by hand arithmetic."""

import pytest

from palslib.data.glue import RELEASED_SIZES, SIZES, TRAIN_SIZES
from palslib.data.tasks import TASKS


def test_totals():
    """Training: 8,551 + 67,349 + 3,668 + 5,749 + 363,846 + 392,702 + 104,743 + 2,490 = 949,098; test: 426,309."""
    assert list(TRAIN_SIZES) == list(RELEASED_SIZES) == list(TASKS)
    assert sum(TRAIN_SIZES.values()) == 949_098
    assert sum(sum(sizes.test.values()) for sizes in SIZES.values()) == 426_309


def test_cut_to_integers_the_factor_cancels_to_2e_4():
    """Ledger D5: MRPC is cut the most, 3,668 · 25/32 = 2,865.625 to 2,865, by 2.2e-4."""
    cut = {task: 1 - (n * 25 // 32) / (n * 25 / 32) for task, n in RELEASED_SIZES.items()}
    assert max(cut, key=cut.get) == "mrpc" and cut["mrpc"] == pytest.approx(0.625 / 2_865.625)
