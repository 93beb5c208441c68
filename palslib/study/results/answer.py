"""The answer to the paper's question in five sentences, and its tables (README, notebook 11, the book)."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from palslib.data.tasks import TASK_LABELS
from palslib.study.ledger import intervals
from palslib.study.ledger.claims import SEEDS
from palslib.study.ledger.intervals import MARGIN, NEGATIVE, NO_WORSE, OPEN, POSITIVE, TOO_SMALL, Difference
from palslib.study.results.tables import average, label, runs_of

EIGHT = "eight BERTs"
"""The paper's baseline: for each task a BERT of its own, trained for that task alone."""
ASKED = {
    ("pals-204", EIGHT): {
        POSITIVE: "One BERT with PALs does better than eight BERTs",
        NO_WORSE: "One BERT with PALs does as well as eight BERTs, or at most 0.5 points worse",
        NEGATIVE: "One BERT with PALs does worse than eight BERTs",
        OPEN: "Whether one BERT with PALs does as well as eight BERTs is open",
    },
    ("pals-204", "shared"): {
        POSITIVE: "PALs are better than sharing everything",
        NEGATIVE: "Sharing everything is better than PALs",
        TOO_SMALL: "PALs and sharing everything differ by less than matters",
        OPEN: "Whether PALs are better than sharing everything is open",
    },
    ("pals-204", "pal-common"): {
        POSITIVE: "A PAL for each task is better than one for all tasks",
        NEGATIVE: "One PAL for all tasks is better than one for each task",
        TOO_SMALL: "One PAL for all tasks does as well as one for each task",
        OPEN: "Whether each task needs a PAL of its own is open",
    },
    ("pals-204", "low-rank-100"): {
        POSITIVE: "The attention within PALs helps",
        NEGATIVE: "Attention is not needed: low rank, which has none, is better",
        TOO_SMALL: "Attention is not needed: low rank, which has none, does as well",
        OPEN: "Whether the attention within PALs helps is open",
    },
}
"""What is compared, in the order of the questions -> the answer for each verdict."""
_NOT_ASKED = "the second study asks this only when the question before has an answer"
FIRST_LOOK = 0.995
"""The level of the second study's first look."""
_NAMES = {"pals-204": "PALs", EIGHT: EIGHT, "shared": "sharing everything", "pal-common": "one PAL for all tasks"}
_NAMES |= {"low-rank-100": "low rank (about as many parameters, without attention)"}
_OWN_OR_MORE = (
    " PALs for eight tasks also have eight times as many parameters as one PAL for all, so a difference could come "
    "from having *own* parameters, or just from having *more*."
)
NOT_SHOWN = (
    "**Not shown**: what holds for BERT-base, after the paper's 60,000 steps, or with all texts of the three largest "
    "tasks, MNLI, QQP and QNLI. The runs here train a smaller BERT for fewer steps, and use 3 to 10 % of those three "
    "tasks' texts. All start from weights (MiniLM's) that were already trained to compare sentences, in part on texts "
    "of MNLI, QQP and SQuAD, from which QNLI is made; some of these may be among the texts that are scored."
)
NOTES = (
    "In [a, b], a minus says that what is named first scores less. *As well*: the whole interval lies above -0.5 "
    "points. *Open*: the interval contains 0, and also a difference of more than half a point. There are two "
    "studies. In the *first* a run took 2,000 steps; in the *second* it took 8,000 (each of the eight BERTs 2,000 of "
    "its own), and each method has the best of four settings of its learning rates, chosen on a tenth of the training"
    " texts. (In SST-2, 89 % of this tenth are parts of longer phrases that were trained on; no choice depends on "
    "SST-2.) The eight BERTs were not tuned for themselves: they have the rate that is best for sharing everything, "
    "which may favour PALs. *99.5 %*: the second study looks at its questions with 6 seeds and, where these leave one"
    " open, again with 12. Two looks have two chances to find by luck a difference that is not there, so both are "
    "stricter than 95 % (99.5 %, then 95.2 %); for one question they err together in 5 % of such cases. Intervals "
    "cover chance between seeds, not the choice of the texts that are scored: RTE has only 277."
)
"""What the sentences of `answer` take as known, in Markdown."""


def answer(rows: pd.DataFrame) -> list[str]:
    """Five sentences, in Markdown, on the question of the paper.

    Args:
        rows: `figures/records/answers.csv`; its columns are those of `answers` in `second_study.py` there.
    """
    by_sides = {(row["left"], row["right"]): row for row in rows.to_dict("records")}
    sentences = []
    for sides, words in ASKED.items():
        row, beside = by_sides[sides], ""
        if pd.isna(row["study"]):
            claim, reason = words[OPEN].removesuffix("open") + "not known yet", _NOT_ASKED
        else:
            claim, reason = words[row["verdict"]], _in_words(row)
        if row["right"] == EIGHT:
            rest, shared = by_sides["pals-204 without RTE", EIGHT], by_sides["shared", EIGHT]
            claim += "; not shown without RTE" if row["verdict"] == NO_WORSE and rest["low"] < -MARGIN else ""
            beside = (
                f" Without RTE the difference is {rest['difference']:+.2f} {_interval(rest)}. In the same seeds "
                f"sharing everything scores {_more(shared)} than the eight {_interval(shared)}."
            )
        if row["right"] == "pal-common":
            beside = _OWN_OR_MORE
        sentences.append(f"**{claim}**: {reason}.{beside}")
    return [*sentences, NOT_SHOWN]


def _in_words(row: Mapping) -> str:
    """`PALs score 0.98 points more than sharing everything [-0.12, +2.08], in 6 of 6 seeds (second study; ...)`."""
    left, right = row["seeds"].split(" and ")
    if row["right"] == EIGHT:
        points = f"PALs score {row['left mean']:.1f} of 100 and eight BERTs {row['right mean']:.1f}, {_more(row)}"
        seeds = f", {left} seeds each" if left == right else f", {left} and {right} seeds"
    else:
        points = f"PALs score {_more(row)} than {_NAMES[row['right']]}"
        seeds = f", {'less' if row['difference'] < 0 else 'more'} in {row['same sign']} seeds"
    level = "" if row["level"] == 0.95 else f"; {100 * row['level']:g} % interval"
    again = (row["verdict"], row["level"]) == (OPEN, FIRST_LOOK)
    level += "; six more seeds are planned, and are looked at when all are there" if again else ""
    excluded = row["verdict"] == OPEN and row["high"] < MARGIN
    end = ". The interval rules out that PALs are better by half a point or more" if excluded else ""
    return f"{points} {_interval(row)}{seeds} ({row['study']}{level}){end}"


def _more(row: Mapping) -> str:
    """`0.98 points more`, or less."""
    return f"{abs(row['difference']):.2f} points {'less' if row['difference'] < 0 else 'more'}"


def _interval(row: Mapping) -> str:
    """`[-0.12, +2.08]`."""
    return f"[{row['low']:+.2f}, {row['high']:+.2f}]"


def answered(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of `answers.csv` that answer a question, with `compared` for readers: PALs − eight BERTs."""
    rows = rows[[sides in ASKED for sides in zip(rows["left"], rows["right"], strict=True)]].dropna(subset="study")
    return rows.assign(compared="PALs − " + rows["right"].map(_NAMES).str.partition(" (")[0])


def own_answer(records: Sequence[dict], differences: pd.DataFrame, base: str) -> list[str]:
    """What a user's own study shows, in a sentence for each line of `tables.against`, and what it does not show. Where
    a line has the seeds of `base`, its interval is paired by seed; all of these hold together (Bonferroni's 95 %)."""
    sentences, settings, run = [], set(), differences[differences[["seeds", "base seeds"]].min(axis=1) > 0]
    for row in run.to_dict("records"):
        gap, how = Difference(row["difference"], row["low"], row["high"], (row["seeds"], row["base seeds"])), ""
        if pairs := _pairs(records, row["method"], base):
            gap, how = intervals.paired(pairs, 1 - 0.05 / len(run)), ", paired by seed"
        undefined = "undefined, as the average of a run is" if math.isnan(gap.value) else "no interval"
        verdict = gap.kind() if math.isfinite(gap.high) else undefined
        sentences.append(f"**{label(row['method'])} minus {label(base)}** {gap}{how}: {verdict}.")
    for config in (record["config"] for record in records):
        data = [f"data {config['data']}"] if set(config["tasks"]) - set(config["own"]) else []
        data += ["your own data"] if config["own"] else []
        settings.add(f"{config['backbone']}, {config['steps']:,} steps, {' and '.join(data)}")
    differing = "" if sentences else "any difference between methods, and "
    beyond = f"beyond {'; '.join(sorted(settings))}" if settings else "else: there are no runs"
    return [*sentences, f"**Not shown**: {differing}anything {beyond}."]


def _pairs(records: Sequence[dict], left: str, right: str) -> list[float]:
    """The differences between runs of one seed, where both lines have the same three or more seeds; else none."""
    a, b = ({run["config"]["seed"]: average(run) for run in runs_of(line, records)} for line in (left, right))
    return [a[seed] - b[seed] for seed in a] if len(a) >= SEEDS and a.keys() == b.keys() else []


def numbered(sentences: Sequence[str]) -> str:
    """The sentences as a numbered list in Markdown."""
    return "\n".join(f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1))


def with_intervals(frame: pd.DataFrame, name: str = "points [interval]") -> pd.DataFrame:
    """The frame with its columns `difference`, `low` and `high` as one column of text."""
    ends = ["difference", "low", "high"]
    texts = [Difference(*row, (0, 0)).text for row in frame[ends].itertuples(index=False)]
    shown = frame.drop(columns=ends).reset_index(drop=True)
    shown.insert(frame.columns.get_loc("difference"), name, texts)
    return shown


def differences_table(frame: pd.DataFrame, base: str = "shared") -> pd.DataFrame:
    """The frame of `tables.against` as text: `method`, `seeds`, the difference with its simultaneous interval, and
    `verdict`; methods without three seeds are left out."""
    shown = frame.loc[frame["seeds"] >= SEEDS, ["method", "seeds", "difference", "low", "high", "verdict"]]
    shown["method"] = shown["method"].map(label)
    return with_intervals(shown, f"minus {label(base)} [simultaneous 95 % interval]")


def questions_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of `questions.csv` that have an answer, as text: `question`, the arms that are `compared`, the
    difference with its interval, `seeds` of both, `level`, `verdict`."""
    rows = frame.dropna(subset="low")
    rows = rows.assign(compared=_compared(rows), level=[f"{100 * level:g} %" for level in rows["level"]])
    return with_intervals(rows[["question", "compared", "difference", "low", "high", "seeds", "level", "verdict"]])


def tasks_table(frame: pd.DataFrame) -> pd.DataFrame:
    """`questions-by-task.csv` as text: a row for each task with its margin, and a column for each pair of arms
    that is compared, with the difference, its interval and the verdict."""
    words = with_intervals(frame, "words")["words"] + " " + frame["verdict"]
    rows = frame.assign(words=words, compared=_compared(frame) + " (" + frame["seeds"] + " seeds)")
    rows["task"], rows["margin"] = rows["task"].map(TASK_LABELS), rows["margin"].map("{:.2f}".format)
    return rows.set_index(["task", "margin", "compared"])["words"].unstack(sort=False).reset_index()


def _compared(frame: pd.DataFrame) -> pd.Series:
    return frame["left"].map(label) + " − " + frame["right"].map(label)
