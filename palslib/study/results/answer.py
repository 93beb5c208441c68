"""The answer to the paper's question in five sentences, computed from the records (README, notebook 11, the book).

Each answer comes from the second study once its runs decide it; before that, it comes from the first.
"""

import math
from collections.abc import Sequence
from statistics import fmean

import pandas as pd

from palslib.data.tasks import TASK_LABELS
from palslib.study.ledger.claims import SEEDS, Comparison
from palslib.study.ledger.intervals import (
    NEGATIVE,
    OPEN,
    POSITIVE,
    TOO_SMALL,
    Difference,
    difference,
    level_of_looks,
    paired,
)
from palslib.study.results import second
from palslib.study.results.tables import label, runs_of, scores_by_method

LOOKS = (3, 5, 8)
"""The numbers of seeds at which the first study's main comparison was looked at. Five were planned; three were added
because the interval from five seeds ended at 0."""
_SAID = {
    ("PALs", "sharing everything"): {
        POSITIVE: "PALs beside BERT's layers help here",
        NEGATIVE: "PALs beside BERT's layers do harm here",
        TOO_SMALL: "PALs beside BERT's layers make no difference that matters here",
        OPEN: "Whether PALs beside BERT's layers help is open",
    },
    ("PALs", "one PAL, as large as a task's own, that all tasks use"): {
        POSITIVE: "A PAL for each task is better than one for all tasks",
        NEGATIVE: "One PAL for all tasks is better than one for each task",
        TOO_SMALL: "One PAL for all tasks does as well as one for each task",
        OPEN: "Whether each task needs a PAL of its own is open",
    },
    ("PALs", "low rank (about as many parameters, without attention)"): {
        POSITIVE: "The attention within PALs helps",
        NEGATIVE: "Attention is not needed: low rank, which has none, is better",
        TOO_SMALL: "Attention is not needed: low rank, which has none, does as well",
        OPEN: "Whether the attention within PALs helps is open",
    },
    ("PALs trained at BERT's learning rate (elsewhere at a higher one)", "sharing everything"): {
        POSITIVE: "PALs help with one learning rate for all parameters, as in the paper",
        NEGATIVE: "With one learning rate for all parameters, as in the paper, PALs do harm",
        TOO_SMALL: "With one learning rate for all parameters, as in the paper, PALs make no difference that matters",
        OPEN: "Whether PALs help with one learning rate for all parameters, as in the paper, is open",
    },
}
"""What is compared to answer each question -> the answer for each kind of difference."""
NOT_SHOWN = (
    "**Not shown**: what holds for BERT-base, after the paper's 60,000 steps, or with all texts of the three largest "
    "tasks, MNLI, QQP and QNLI. The runs here train a smaller BERT for fewer steps, and use 3 to 10 % of those three "
    "tasks' texts."
)
NOTES = (
    "The *first study* took 2,000 steps, the *second* 8,000. *Tuned alike*: each method has the best of four settings "
    "of its learning rates, chosen on texts held out from training. *Open*: no difference and one of over half a point"
    " are both possible. *99.5 %*: looking twice gives two chances of a false alarm; to keep them at 5 % in total, the"
    " second study uses 99.5 % at 6 seeds and, if a question is open, 95.2 % at 12. *3 seeds against 8*: 3 of the "
    "method that is named first. In [a, b], a minus says that this method scores less."
)
"""What the sentences of `answer` take as known, in Markdown."""


def answer(records: Sequence[dict], own_rate: Sequence[dict] = (), new: Sequence[dict] = ()) -> list[str]:
    """Five sentences, in Markdown, on the question of the paper.

    Args:
        records: the first study's runs, of one setting.
        own_rate: runs in which PALs learn at BERT's own rate.
        new: the records of the second study's grids.
    """
    decided, first = second.decide(new), first_study(records, own_rate)
    done = len(second.of_grid("tuning", new)), sum(map(len, second.arms(new).values()))
    waits = {
        second.NOT_ASKED: "the plan asks this only after the question before it has an answer",
        second.NOT_RUN: "the runs are under way ({} of 32 that choose settings and {} of 27 that decide are done)",
    }
    said = []
    for (sides, words), of, row in zip(_SAID.items(), first, decided.itertuples(), strict=True):
        if row.verdict not in waits:
            found = Difference(row.difference, row.low, row.high, tuple(map(int, row.seeds.split(" and "))))
            how = "8,000 steps" if row.left == second.ONE_RATE else "8,000 steps, both tuned alike"
            how += f"; {100 * row.level:g} % interval"
            if (row.verdict, row.level) == (OPEN, second.FIRST_LOOK):
                how += "; the twelve seeds that are planned if it is open are not all run yet"
            said.append(f"**{words[row.verdict]}**: {_in_words(*sides, found)} ({how}).")
        elif min(of.seeds) >= SEEDS:
            said.append(f"**{words[of.kind()]}**: {_in_words(*sides, of)} (first study: 2,000 steps, not tuned alike).")
        else:
            unknown = words[OPEN].removesuffix("open") + "not known yet"
            said.append(f"**{unknown}**: {waits[row.verdict].format(*done)}.")
    return [*said, NOT_SHOWN]


def _in_words(left: str, right: str, found: Difference) -> str:
    more = f"{abs(found.value):.2f} points {'less' if found.value < 0 else 'more'}"
    return f"{left} score {more} than {right}{str(found).removeprefix(f'{found.value:+.2f}')}"


def own_answer(records: Sequence[dict], differences: pd.DataFrame, base: str) -> list[str]:
    """What a user's own study shows, in a sentence for each line of `tables.against`, and what it does not show."""
    said = []
    for row in differences.dropna(subset="difference").to_dict("records"):
        found = Difference(row["difference"], row["low"], row["high"], (row["seeds"], row["base seeds"]))
        verdict = row["verdict"] if math.isfinite(found.high) else "no interval"
        said.append(f"**{label(row['method'])} minus {label(base)}** {found}: {verdict}.")
    shown = set()
    for config in (record["config"] for record in records):
        data = [f"data {config['data']}"] if set(config["tasks"]) - set(config["own"]) else []
        data += ["your own data"] if config["own"] else []
        shown.add(f"{config['backbone']}, {config['steps']:,} steps, {' and '.join(data)}")
    alone = "" if said else "any difference between methods, and "
    beyond = f"beyond {'; '.join(sorted(shown))}" if shown else "else: there are no runs"
    return [*said, f"**Not shown**: {alone}anything {beyond}."]


def first_study(records: Sequence[dict], own_rate: Sequence[dict] = ()) -> list[Difference]:
    """The four differences in the first study. Question 1: paired by seed as planned, at a level that allows for the
    looks. Question 2: never run. Questions 3 and 4: all seeds, one variance."""
    scores = scores_by_method(records)
    scores[second.ONE_RATE] = [r["results"]["last"]["dev_average"] for r in runs_of("pals-204", own_rate)]
    pairs = _pairs(records)
    looks = [n for n in LOOKS if n <= len(pairs)]
    none = Difference(math.nan, math.nan, math.nan, (0, 0))
    of_rest = (("pals-204", "low-rank-100"), (second.ONE_RATE, "shared"))
    rest = [difference(scores, *of) if all(scores[name] for name in of) else none for of in of_rest]
    return [paired(pairs, level_of_looks(looks) if looks else 0.95), none, *rest]


def _pairs(records: Sequence[dict]) -> list[float]:
    """PALs minus shared for each seed that both have."""
    return Comparison.parse("pals-204 annealed > shared annealed").decide(records).differences


def growth(records: Sequence[dict]) -> str:
    """The first study's main difference at each of its looks, and the interval that allows for them, in words."""
    pairs = _pairs(records)
    said = ", ".join(f"{fmean(pairs[:n]):+.2f} after {n} seeds" for n in LOOKS if n <= len(pairs))
    allowed = first_study(records)[0].text
    return f"PALs minus sharing everything at each look: {said or 'none yet'};\nallowing for the looks: {allowed}"


def numbered(sentences: Sequence[str]) -> str:
    """The sentences as a numbered list in Markdown."""
    return "\n".join(f"{number}. {sentence}" for number, sentence in enumerate(sentences, 1))


def with_intervals(frame: pd.DataFrame, name: str = "points [interval]") -> pd.DataFrame:
    """The frame with its columns `difference`, `low` and `high` as one column of text."""
    ends = ["difference", "low", "high"]
    text = [Difference(*of, (0, 0)).text for of in frame[ends].itertuples(index=False)]
    place = frame.columns.get_loc("difference")
    shown = frame.drop(columns=ends).reset_index(drop=True)
    shown.insert(place, name, text)
    return shown


def differences_table(frame: pd.DataFrame, base: str = "shared") -> pd.DataFrame:
    """The frame of `tables.against` as text: `method`, `seeds`, the difference with its simultaneous interval, and
    `verdict`; methods without three seeds are left out."""
    found = frame.loc[frame["seeds"] >= SEEDS, ["method", "seeds", "difference", "low", "high", "verdict"]]
    found["method"] = found["method"].map(label)
    return with_intervals(found, f"minus {label(base)} [simultaneous 95 % interval]")


def questions_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame of `second.decide`, or of `beside.over_both`, as text, without the questions that have no answer:
    `question`, the arms that are `compared`, the difference with its interval, `seeds` of both, `level`, `verdict`."""
    found = frame.dropna(subset="low")
    shown = found.drop(columns=["left", "right"]).assign(level=[f"{100 * level:g} %" for level in found["level"]])
    shown.insert(1, "compared", _compared(found))
    return with_intervals(shown)


def tasks_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame of `second.by_task` as text: a row for each task with its margin, and a column for each pair of arms
    that is compared, with the difference, its interval and the verdict."""
    words = with_intervals(frame, "words")["words"] + " " + frame["verdict"]
    rows = frame.assign(words=words, compared=_compared(frame) + " (" + frame["seeds"] + " seeds)")
    rows["task"], rows["margin"] = rows["task"].map(TASK_LABELS), rows["margin"].map("{:.2f}".format)
    return rows.set_index(["task", "margin", "compared"])["words"].unstack(sort=False).reset_index()


def _compared(frame: pd.DataFrame) -> pd.Series:
    return frame["left"].map(label) + " − " + frame["right"].map(label)
