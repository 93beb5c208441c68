"""GLUE's own numbers of rows, in one table: all that is said of its sizes elsewhere comes from here.

Training sets as officially split (Stickland & Murray 2019, section 4.1; ledger A17), the same as the authors' released
code has them (ledger D5), and the test sets of https://gluebenchmark.com.
"""

from typing import NamedTuple


class Sizes(NamedTuple):
    """Rows of one configuration of the repository nyu-mll/glue."""

    test: dict[str, int]
    """Split -> rows of the official test set."""
    train: int = 0
    """Training examples; 0 where the paper trains nothing for it."""
    released: int = 0
    """The same in the released code: there it is N · 25 / 32, cut to an integer, so the factor cancels."""
    dev: int = 0
    """Rows of the official dev set; of MNLI both."""
    pieces: float = 0
    """Word pieces of a training row, a mean by BERT's uncased vocabulary (of MNLI, QQP and QNLI over a part)."""


SIZES = {
    "cola": Sizes({"test": 1_063}, 8_551, 8_551, 1_043, 11.3),
    "sst2": Sizes({"test": 1_821}, 67_349, 67_349, 872, 13.3),
    "mrpc": Sizes({"test": 1_725}, 3_668, 3_668, 408, 53.2),
    "stsb": Sizes({"test": 1_379}, 5_749, 5_749, 1_500, 27.8),
    "qqp": Sizes({"test": 390_965}, 363_846, 363_849, 40_430, 30.6),
    "mnli": Sizes({"test_matched": 9_796, "test_mismatched": 9_847}, 392_702, 392_702, 19_647, 40.0),
    "qnli": Sizes({"test": 5_463}, 104_743, 108_436, 5_463, 49.2),  # released: of the version that was withdrawn
    "rte": Sizes({"test": 3_000}, 2_490, 2_490, 277, 66.6),
    "wnli": Sizes({"test": 146}),
    "ax": Sizes({"test": 1_104}),
}
"""Configuration -> its sizes: the paper's eight tasks in the order of `tasks.TASKS`, then what is submitted besides."""
TRAIN_SIZES = {task: sizes.train for task, sizes in SIZES.items() if sizes.train}
"""Task -> training examples, of the paper's eight."""
RELEASED_SIZES = {task: sizes.released for task, sizes in SIZES.items() if sizes.released}
"""Task -> training examples by the released code."""
