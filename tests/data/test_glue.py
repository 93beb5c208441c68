"""GLUE's sizes, by hand arithmetic."""

from palslib.data.glue import RELEASED_SIZES, SIZES, TRAIN_SIZES
from palslib.data.tasks import TASKS


def test_totals():
    """Training: 8,551 + 67,349 + 3,668 + 5,749 + 363,846 + 392,702 + 104,743 + 2,490 = 949,098; test: 426,309."""
    assert list(TRAIN_SIZES) == list(RELEASED_SIZES) == list(TASKS)
    assert sum(TRAIN_SIZES.values()) == 949_098
    assert sum(sum(sizes.test.values()) for sizes in SIZES.values()) == 426_309
