"""The published numbers and the ledger's rows, as data.

The tables hold each number as its source prints it, right or wrong, under the method's name in `palslib.methods` where
it has one; a number that is not recorded here is absent, not zero. Which statements hold and which do not follow is
stated row by row in `ledger.toml`, beside this file; its head says what the short names of the sources stand for, and
what the kinds of rows A, B, C and D are.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from palslib.common.settings import Names, Number, settings
from palslib.data import glue

GLUE_TRAIN_SIZES = glue.TRAIN_SIZES  # as officially split (ledger A17, B22)


def _table(columns: str, rows: Mapping) -> dict:
    """The rows with named columns, without their gaps: `{method: (1, None)}` becomes `{method: {"a": 1}}`."""
    table = {}
    for method, values in rows.items():
        row = zip(columns.split(), values, strict=True)
        table[method] = {column: value for column, value in row if value is not None}
    return table


# Paper, table 2: GLUE test server. The caption says "F1/accuracy"; the columns are accuracy, then F1 (ledger B2).
TABLE_2 = _table(
    "mnli_m mnli_mm qqp_acc qqp_f1 qnli sst2 cola stsb mrpc_acc mrpc_f1 rte average",
    {
        "fine-tuned": (84.6, 83.4, 89.2, 71.2, 90.1, 93.5, 52.1, 85.8, 84.8, 88.9, 66.4, 79.6),
        "shared": (84.0, 83.4, 88.9, 70.8, 89.3, 93.4, 51.2, 83.6, 81.3, 86.7, 76.6, 79.9),
        "attention-on-top-204": (84.0, 83.2, 88.8, 71.2, 89.7, 93.2, 47.1, 85.3, 83.1, 87.5, 75.5, 79.6),
        "pals-204": (84.3, 83.5, 89.2, 71.5, 90.0, 92.6, 51.2, 85.8, 84.6, 88.7, 76.0, 80.4),
    },
)

# RTE on the test server for two systems with which the paper compares its own (ledger C5).
RTE_ELSEWHERE = {"bert-large": 70.1, "mt-dnn": 75.5}


class Mean(NamedTuple):
    """A mean over three seeds, with its standard error."""

    mean: float
    error: float | None = None  # None where it is below 0.005, which the paper does not print


# Paper, table 3: mean of the GLUE dev scores by schedule, and the printed ratio of parameters to BERT-base's. One ratio
# does not follow: 1.66 for the BERT layer (ledger B1). All of "pals-no-sharing-84" is the summary's.
TABLE_3 = _table(
    "ratio proportional square-root annealed",
    {
        "shared": (1.00, Mean(79.17, 0.03), Mean(80.56, 0.04), Mean(80.7, 0.3)),
        "bert-layer-on-top": (1.66, Mean(80.6, 0.2), Mean(81.6, 0.3), Mean(81.5, 0.2)),
        "attention-on-top-204": (1.10, Mean(80.3, 0.1), Mean(81.4, 0.1), Mean(81.5, 0.1)),
        "ffn-on-top-408": (1.10, None, Mean(81.07), Mean(80.8, 0.1)),
        "pals-204": (1.13, Mean(80.6, 0.2), Mean(81.0, 0.2), Mean(81.7, 0.2)),
        "pals-no-sharing-84": (1.13, None, None, Mean(81.3, 0.1)),
        "low-rank-100": (1.13, None, None, Mean(81.9, 0.2)),
        "pals-276-top": (1.13, None, None, Mean(81.61, 0.06)),
        "pals-276-bottom": (1.13, None, None, Mean(81.4, 0.1)),
    },
)

# minbert, table 1, by (method, schedule): SST, QQP, STS (the course: accuracy twice, Pearson); the average is the mean
# of the three in seven rows (ledger A22), but not for PALs annealed (B12). "pals-324" is printed with s = 326 (B6).
MINBERT_TABLE_1 = _table(
    "sst qqp sts average",
    {
        ("fine-tuned", "single-task"): (0.523, 0.780, 0.521, 0.608),
        ("shared", "annealed"): (0.495, 0.771, 0.502, 0.589),
        ("shared", "round-robin"): (0.507, 0.769, 0.508, 0.595),
        ("shared", "proportional"): (0.529, 0.777, 0.472, 0.593),
        ("pals-204", "annealed"): (0.519, 0.775, 0.448, 0.580),
        ("pals-204", "round-robin"): (0.489, 0.757, 0.429, 0.558),
        ("pals-204", "proportional"): (0.509, 0.779, 0.489, 0.592),
        ("pals-324", "annealed"): (0.500, 0.780, 0.488, 0.589),
    },
)

# Training examples of the course that minbert was written for (ledger B6): SST and STS from its files, Quora from its
# handout of 2025.
MINBERT_TRAIN_SIZES = {"sst": 8_544, "qqp": 141_506, "sts": 6_040}

# gem, table 1: the same three tasks; neither average is the mean of its row (ledger B7). Its PALs' size is not given.
GEM_TABLE_1 = _table(
    "sst qqp sts average",
    {"fine-tuned": (0.515, 0.780, 0.384, 0.726), "pals": (0.515, 0.754, 0.329, 0.645)},
)

# adapters, table 2: GLUE, F1 for MRPC and QQP; the third total does not follow from its row (ledger A23, B8).
ADAPTERS_TABLE_2 = _table(
    "cola sst2 mrpc stsb qqp mnli_m mnli_mm qnli rte total",
    {
        "fine-tuned": (52.1, 93.5, 88.9, 87.1, 71.2, 84.6, 83.4, 90.5, 66.4, 79.7),
        "houlsby-64": (55.2, 90.9, 88.7, 82.5, 71.4, 84.1, 83.3, 90.6, 68.2, 79.4),
        "houlsby-64-not-shared": (55.6, 93.4, 87.8, 83.9, 71.4, 84.0, 83.1, 90.7, 66.0, 79.2),
        "houlsby-64-3-shared": (53.5, 92.6, 88.6, 84.6, 70.9, 83.5, 82.9, 90.3, 67.6, 79.3),
    },
)

# adapters, table 3: twelve Crowdflower-type tasks; for the second average see ledger B9 (A24, B18, C16).
ADAPTERS_TABLE_3 = _table(
    "airline corporate_messaging disasters economic_news emotion political_audience political_bias political_message "
    "primary_emotions progressive_opinion news_aggregator us_economy average",
    {
        "fine-tuned": (83.6, 92.5, 85.3, 82.1, 38.4, 80.9, 75.2, 38.9, 36.9, 71.6, 96.3, 75.3, 71.4),
        "houlsby-64-not-shared": (83.3, 92.2, 84.0, 84.6, 41.6, 78.5, 76.5, 79.3, 35.1, 81.4, 92.2, 71.0, 74.9),
    },
)

# adapters, figure 6, after Peters et al.; a difference is fine-tuning minus feature extraction (ledger B19, C18).
ADAPTERS_FIGURE_6 = _table(
    "ner sst2 mnli sick_e sick_r mrpc stsb",
    {
        "Skip-thoughts": (None, 81.8, 62.9, None, 86.6, 75.8, 71.8),
        "ELMo, features": (91.7, 91.8, 79.6, 86.3, 86.1, 76.0, 75.9),
        "ELMo, fine-tuned": (91.9, 91.2, 76.4, 83.3, 83.3, 74.7, 75.5),
        "ELMo, difference": (0.2, -0.6, -3.2, -3.3, -2.8, -1.3, -0.4),
        "BERT-base, features": (92.2, 93.0, 84.6, 84.8, 86.4, 78.1, 82.9),
        "BERT-base, fine-tuned": (92.4, 93.5, 84.6, 85.8, 88.7, 84.8, 87.1),
        "BERT-base, difference": (0.2, 0.5, 0.0, 1.0, 2.3, 6.7, 4.2),
    },
)


@settings(part="ledger row {id}")
class Row:
    """One row of the ledger, with the keys that the head of `ledger.toml` explains."""

    id: str
    """Letter and number, such as `"A21"`; a separately tested part of a claim has one more letter: `"C13b"`."""
    kind: str
    """The letter: A, B, C or D."""
    source: str
    statement: str
    derivation: str
    published: Number | dict | None = None
    """A number, or a table of numbers or of tables by name; a mean with its `error`. So are `derived` and `unit`."""
    derived: Number | dict | None = None
    counted: str = ""
    unit: Number | dict | None = None
    width: Number = 0
    needs: Names = ()
    """The runs that decide; those of `compare` come last."""
    compare: Names = ()
    """Comparisons, as `claims.Comparison` reads them."""
    scale: str = ""
    steps: int = 0
    fields: Names = ()
    note: str = ""
    page: str = ""
    """The notebook's name, without `.ipynb`."""


def _row(row_id: str, table: dict) -> Row:
    """One table of the ledger as a `Row`, which needs the runs that it compares."""
    row = Row(id=row_id, kind=row_id[0], **table)
    compared = [run for text in row.compare for run in re.split(r" (?:>=|>|\+) ", text.partition(" : ")[0])]
    return replace(row, needs=tuple(dict.fromkeys([*row.needs, *compared])))


@cache
def load_ledger() -> dict[str, Row]:
    """The package's ledger by row id, A1 first. Read once and shared: do not change the result."""
    text = files("palslib.study.ledger").joinpath("ledger.toml").read_text(encoding="utf-8")
    return {row_id: _row(row_id, table) for row_id, table in tomllib.loads(text).items()}
