"""GLUE's numbers of training rows in one table, from which all other modules take them.

Sizes of the official training sets (ledger A17), and those that the released code of Stickland & Murray 2019 uses
(ledger D5). Those of the test sets are in `submission.GLUE_FILES`.
"""

TRAIN_SIZES = {
    "cola": 8_551,
    "sst2": 67_349,
    "mrpc": 3_668,
    "stsb": 5_749,
    "qqp": 363_846,
    "mnli": 392_702,
    "qnli": 104_743,
    "rte": 2_490,
}
"""Task -> training examples, in the order of `tasks.TASKS`."""
RELEASED_SIZES = TRAIN_SIZES | {"qqp": 363_849, "qnli": 108_436}  # QNLI: of its withdrawn first version
"""Task -> training examples N according to the released code, which has N · 25 / 32, cut to an integer (ledger D5); the
common factor cancels in the probabilities."""
