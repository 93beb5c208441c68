"""The answer to the paper's question in five sentences, computed from the records (README, notebook 11, the book).

Each answer comes from the second study once its runs decide it; before that, it comes from the first.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

import pandas as pd

from palslib.data.metrics import main_scores
from palslib.data.tasks import TASK_LABELS
from palslib.study.ledger.claims import SEEDS
from palslib.study.ledger.intervals import (
    MARGIN,
    NEGATIVE,
    NO_WORSE,
    OPEN,
    POSITIVE,
    TOO_SMALL,
    Difference,
    difference,
    paired,
    welch,
)
from palslib.study.results import second
from palslib.study.results.tables import average, compared, label, runs_of, scores_by_method

LOOKS = (3, 5, 8)
"""The numbers of seeds at which the first study's main comparison was looked at. Five were planned; three were added
because the interval from five seeds ended at 0."""
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
_NAMES = {"pals-204": "PALs", EIGHT: EIGHT, "shared": "sharing everything", "pal-common": "one PAL for all tasks"}
_NAMES |= {"low-rank-100": "low rank (about as many parameters, without attention)"}
_OWN_OR_MORE = (
    " PALs for eight tasks also have eight times as many parameters as one PAL for all, so a difference could come "
    "from having *own* parameters, or just from having *more*."
)
NOT_SHOWN = (
    "**Not shown**: what holds for BERT-base, after the paper's 60,000 steps, or with all texts of the three largest "
    "tasks, MNLI, QQP and QNLI. The runs here train a smaller BERT for fewer steps, and use 3 to 10 % of those three "
    "tasks' texts."
)
NOTES = (
    "In [a, b], a minus says that PALs score less. *As well*: the whole interval lies above -0.5 points. *Open*: no "
    "difference and one of more than half a point, up or down, are both possible. There are two studies. In the "
    "*first* a run took 2,000 steps; in the *second* it took 8,000 (each of the eight BERTs 2,000 of its own), and "
    "each method has the best of four settings of its learning rates, chosen on a tenth of the training texts. (Of "
    "SST-2's phrases in this tenth, 89 % are part of a longer phrase that was trained on; no choice depends on "
    "SST-2.) The eight BERTs have the rate that is best for sharing everything, not one of their own, which may "
    "favour PALs. *99.5 %*: the second study's questions are looked at with 6 seeds and, if then open, with 12. A "
    "strict first look (99.5 %, then 95.2 %) keeps the chance that one of the two finds a difference where there is "
    "none at 5 %. Intervals cover chance between seeds, not the choice of texts: RTE has only 277."
)
"""What the sentences of `answer` take as known, in Markdown."""
Scores = dict[int, dict[str, float]]
"""Seed -> task -> the score of a run."""


def comparisons(records: Sequence[dict], new: Sequence[dict] = ()) -> pd.DataFrame:
    """A row for each comparison in `ASKED`: `left` and `right`; the `study` that answers it (none: empty); the mean
    scores `left mean` and `right mean`; `difference`, `low`, `high`, `seeds` and `level` of its interval; in how many
    of the common seeds the difference has its sign (`same sign`: 6 of 6); the difference of the other tasks' means
    `without RTE`; and the `verdict`.

    Args:
        records: the first study's runs.
        new: the records of the second study's grids.
    """
    rows = [_against_eight(new)]
    for row in second.decide(new).to_dict("records")[:3]:
        sides = (row["left"], row["right"])
        if not math.isnan(row["low"]):
            found = Difference(row["difference"], row["low"], row["high"], tuple(map(int, row["seeds"].split(" and "))))
            runs = second.arms(new, row["level"])
            rows.append(_row(sides, "second study", found, *map(_scores, map(runs.get, sides)), row["level"]))
        elif (found := _of_first_study(records, *sides)) and min(found.seeds) >= SEEDS:
            runs = [{run["config"]["seed"]: run for run in runs_of(line, records)} for line in sides]
            rows.append(_row(sides, "first study", found, *map(_scores, runs)))
        else:
            rows.append(dict(zip(("left", "right", "study", "verdict"), (*sides, "", row["verdict"]), strict=True)))
    return pd.DataFrame(rows)


def _scores(runs: Mapping[int, dict]) -> Scores:
    return {seed: main_scores(run["results"]["last"]["scores"]) for seed, run in runs.items()}


def _row(sides, study: str, found: Difference, left: Scores, right: Scores, level: float = 0.95) -> dict:
    means = [pd.DataFrame(scores).mean(axis=1) for scores in (left, right)]  # of each task, over seeds
    gaps = [fmean(left[seed].values()) - fmean(right[seed].values()) for seed in left.keys() & right.keys()]
    row = {"left": sides[0], "right": sides[1], "study": study, **found.cells, "level": level, "verdict": found.kind()}
    row |= {"left mean": means[0].mean(), "right mean": means[1].mean()}
    row["same sign"] = f"{sum(gap * found.value > 0 for gap in gaps)} of {len(gaps)}"
    return row | {"without RTE": (means[0] - means[1]).drop("rte", errors="ignore").mean()}


def _against_eight(new: Sequence[dict]) -> dict:
    """PALs against eight BERTs, on the seeds of the latter, by the second study's runs. No two of these runs share
    their randomness, so the interval is Welch's, of two independent samples."""
    eight, pals = second.separate(new), _scores(second.arms(new)["pals-204"])
    pals = {seed: pals[seed] for seed in eight if seed in pals}
    if min(len(eight), len(pals)) < SEEDS:
        return {"left": "pals-204", "right": EIGHT, "study": "", "verdict": second.NOT_RUN}
    found = welch(_means(pals), _means(eight))
    row = _row(("pals-204", EIGHT), "second study", found, pals, eight)
    return row | {"verdict": NO_WORSE if found.kind() != POSITIVE and found.low >= -MARGIN else found.kind()}


def answer(records: Sequence[dict], new: Sequence[dict] = ()) -> list[str]:
    """Five sentences, in Markdown, on the question of the paper, from the rows of `comparisons`."""
    done = len(second.of_grid("tuning", new)), sum(map(len, second.arms(new).values()))
    waits = {
        second.NOT_ASKED: "the second study asks this only after question 2 has an answer",
        second.NOT_RUN: "the runs are under way ({} of 32 that choose settings and {} of 27 that decide are done)",
    }
    sentences = []
    for row in comparisons(records, new).to_dict("records"):
        words = ASKED[row["left"], row["right"]]
        if row["study"]:
            sentence = f"**{words[row['verdict']]}**: {_in_words(row)}."
        else:
            unknown = words[OPEN].removesuffix("open") + "not known yet"
            sentence = f"**{unknown}**: {waits[row['verdict']].format(*done)}."
        if row["right"] == EIGHT and row["study"]:
            sentence += _beside_eight(new)
        sentences.append(sentence + (_OWN_OR_MORE if row["right"] == "pal-common" else ""))
    return [*sentences, NOT_SHOWN]


def _in_words(row: dict) -> str:
    """`PALs score 0.98 points more than sharing everything [-0.12, +2.08], in 6 of 6 seeds (second study; ...)`."""
    found = Difference(row["difference"], row["low"], row["high"], (0, 0))
    left, right = row["seeds"].split(" and ")
    if row["right"] == EIGHT:
        said = f"PALs score {row['left mean']:.1f} of 100 and eight BERTs {row['right mean']:.1f}, {_more(found.value)}"
        seeds = f", {left} seeds each" if left == right else f", {left} and {right} seeds"
    else:
        said = f"PALs score {_more(found.value)} than {_NAMES[row['right']]}"
        seeds = f", {'less' if found.value < 0 else 'more'} in {row['same sign']} seeds"
    level = "" if row["level"] == 0.95 else f"; {100 * row['level']:g} % interval"
    again = (row["verdict"], row["level"]) == (OPEN, second.FIRST_LOOK)
    level += "; six more seeds are planned, and are looked at when all are there" if again else ""
    excluded = row["verdict"] == OPEN and found.high < MARGIN
    end = ". It rules out that PALs are better by half a point or more" if excluded else ""
    return f"{said} {found.text.removeprefix(f'{found.value:+.2f} ')}{seeds} ({row['study']}{level}){end}"


def _beside_eight(new: Sequence[dict]) -> str:
    """What the difference from the eight is without one task, and how far sharing everything is from them."""
    eight, runs = second.separate(new), second.arms(new)
    sides = (_scores(runs[name]) for name in ("pals-204", "shared"))
    pals, shared = ({seed: of[seed] for seed in eight if seed in of} for of in sides)
    rest = welch(_means(pals, "rte"), _means(eight, "rte"))
    gap = welch(_means(shared), _means(eight))
    return (
        f" Without RTE the difference is {rest.text}. In the same seeds sharing everything scores {_more(gap.value)} "
        f"than the eight {gap.text.removeprefix(f'{gap.value:+.2f} ')}."
    )


def _means(scores: Scores, without: str = "") -> list[float]:
    """The mean of each seed's scores, but for those of one task."""
    return [fmean(score for task, score in of.items() if task != without) for of in scores.values()]


def _more(points: float) -> str:
    """`0.98 points more`, or less."""
    return f"{abs(points):.2f} points {'less' if points < 0 else 'more'}"


def answered(records: Sequence[dict], new: Sequence[dict] = ()) -> pd.DataFrame:
    """The rows of `comparisons` that have an answer, with `compared` for readers: PALs − eight BERTs."""
    frame = comparisons(records, new)
    frame = frame[frame["study"] != ""]
    return frame.assign(compared="PALs − " + frame["right"].map(_NAMES).str.partition(" (")[0])


def own_answer(records: Sequence[dict], differences: pd.DataFrame, base: str) -> list[str]:
    """What a user's own study shows, in a sentence for each line of `tables.against`, and what it does not show. Where
    the runs of a seed are alike, the interval is paired by seed."""
    said = []
    for row in differences.dropna(subset="difference").to_dict("records"):
        found = Difference(row["difference"], row["low"], row["high"], (row["seeds"], row["base seeds"]))
        pairs = _pairs_where_alike(records, row["method"], base)
        found, how = (paired(pairs), ", paired by seed") if pairs else (found, "")
        verdict = found.kind() if math.isfinite(found.high) else "no interval"
        said.append(f"**{label(row['method'])} minus {label(base)}** {found}{how}: {verdict}.")
    shown = set()
    for config in (record["config"] for record in records):
        data = [f"data {config['data']}"] if set(config["tasks"]) - set(config["own"]) else []
        data += ["your own data"] if config["own"] else []
        shown.add(f"{config['backbone']}, {config['steps']:,} steps, {' and '.join(data)}")
    alone = "" if said else "any difference between methods, and "
    beyond = f"beyond {'; '.join(sorted(shown))}" if shown else "else: there are no runs"
    return [*said, f"**Not shown**: {alone}anything {beyond}."]


def _pairs_where_alike(records: Sequence[dict], left: str, right: str) -> list[float]:
    """The differences between runs of one seed, where both lines have the same three or more seeds, and their scores go
    up and down with these together (a correlation of at least 0.5); else none."""
    scores = [{run["config"]["seed"]: average(run) for run in runs_of(line, records)} for line in (left, right)]
    if scores[0].keys() != scores[1].keys() or len(scores[0]) < SEEDS:
        return []
    a, b = map(pd.Series, scores)
    return list(a - b) if a.corr(b) >= 0.5 else []


def _of_first_study(records: Sequence[dict], left: str, right: str) -> Difference | None:
    """The difference of two methods in the first study, with one variance for all; None where one has no runs."""
    scores = scores_by_method(records)
    return difference(scores, left, right) if scores.get(left) and scores.get(right) else None


def growth(records: Sequence[dict]) -> str:
    """The first study's main difference, in pairs of runs with the same seed, at each of its looks, in words."""
    pairs = compared("pals-204", "shared", records).differences
    means = ", ".join(f"{fmean(pairs[:n]):+.2f} after {n} seeds" for n in LOOKS if n <= len(pairs))
    return f"PALs minus sharing everything at each look: {means or 'none yet'}"


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
