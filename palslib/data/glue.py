"""GLUE's numbers of rows in one table, from which all other modules take them.

Sizes of the official training sets (Stickland & Murray 2019, section 4.1; ledger A17), and those that the authors'
released code uses (ledger D5). Those of the test sets are in `submission.GLUE_FILES`.
"""

from typing import NamedTuple


class Sizes(NamedTuple):
    """Rows of one of the paper's eight tasks."""

    train: int
    """Training examples."""
    dev: int
    """Rows of the official dev set; for MNLI, of both dev sets."""
    pieces: float
    """Mean word pieces of a training row with BERT's uncased vocabulary (MNLI, QQP and QNLI: over some of the rows)."""


SIZES = {
    "cola": Sizes(8_551, 1_043, 11.3),
    "sst2": Sizes(67_349, 872, 13.3),
    "mrpc": Sizes(3_668, 408, 53.2),
    "stsb": Sizes(5_749, 1_500, 27.8),
    "qqp": Sizes(363_846, 40_430, 30.6),
    "mnli": Sizes(392_702, 19_647, 40.0),
    "qnli": Sizes(104_743, 5_463, 49.2),
    "rte": Sizes(2_490, 277, 66.6),
}
"""Task -> its sizes, in the order of `tasks.TASKS`."""
TRAIN_SIZES = {task: sizes.train for task, sizes in SIZES.items()}
"""Task -> training examples."""
RELEASED_SIZES = TRAIN_SIZES | {"qqp": 363_849, "qnli": 108_436}  # QNLI: of its withdrawn first version
"""Task -> training examples N according to the released code, which has N · 25 / 32, cut to an integer (ledger D5); the
common factor cancels in the probabilities."""
