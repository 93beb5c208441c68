"""GLUE's numbers of rows in one table, from which all other modules take them.

Sizes of the official training sets (Stickland & Murray 2019, section 4.1; ledger A17), the sizes that the authors'
released code uses (ledger D5), and those of the test sets of https://gluebenchmark.com.
"""

from typing import NamedTuple


class Sizes(NamedTuple):
    """Rows of one configuration of the repository nyu-mll/glue."""

    test: dict[str, int]
    """Split -> rows of the official test set."""
    train: int = 0
    """Training examples; 0 where the paper does not train on it."""
    released: int = 0
    """Training examples N by the released code, which has N · 25 / 32, cut to an integer; the factor cancels."""
    dev: int = 0
    """Rows of the official dev set; for MNLI, of both dev sets."""
    pieces: float = 0
    """Mean word pieces of a training row by BERT's uncased vocabulary (for MNLI, QQP and QNLI over a part)."""


SIZES = {
    "cola": Sizes({"test": 1_063}, 8_551, 8_551, 1_043, 11.3),
    "sst2": Sizes({"test": 1_821}, 67_349, 67_349, 872, 13.3),
    "mrpc": Sizes({"test": 1_725}, 3_668, 3_668, 408, 53.2),
    "stsb": Sizes({"test": 1_379}, 5_749, 5_749, 1_500, 27.8),
    "qqp": Sizes({"test": 390_965}, 363_846, 363_849, 40_430, 30.6),
    "mnli": Sizes({"test_matched": 9_796, "test_mismatched": 9_847}, 392_702, 392_702, 19_647, 40.0),
    "qnli": Sizes({"test": 5_463}, 104_743, 108_436, 5_463, 49.2),  # released: of QNLI's withdrawn version
    "rte": Sizes({"test": 3_000}, 2_490, 2_490, 277, 66.6),
    "wnli": Sizes({"test": 146}),
    "ax": Sizes({"test": 1_104}),
}
"""Configuration -> its sizes: the paper's eight tasks in the order of `tasks.TASKS`, then others of a submission."""
TRAIN_SIZES = {task: sizes.train for task, sizes in SIZES.items() if sizes.train}
"""Task -> training examples, for the paper's eight tasks."""
RELEASED_SIZES = {task: sizes.released for task, sizes in SIZES.items() if sizes.released}
"""Task -> training examples N according to the released code, which has N · 25 / 32 (ledger D5)."""
