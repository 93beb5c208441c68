"""The miniature GLUE: always the same bytes, GLUE's shape, and tasks that words alone do not solve."""

import hashlib
from functools import cache
from itertools import product

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from palslib.data.glue import RELEASED_SIZES, TRAIN_SIZES
from palslib.data.lexicon import LEXICON
from palslib.data.synthetic import SYNTHETIC_DEV_SIZE, SYNTHETIC_TRAIN_SIZES, synthetic_split
from palslib.data.tasks import TASKS

CLASSIFICATION = [task for task in TASKS if task != "stsb"]
SPLITS = [
    (task, split) for task in TASKS for split in ("train", "validation") if (task, split) != ("mnli", "validation")
]
SPLITS += [("mnli", "validation_matched"), ("mnli", "validation_mismatched")]
COURSE = list(product(("sst5", "quora", "sts"), ("train", "validation")))
GOLDEN = "f382e644e5e32c1ff45e09da7b71aef896dfed38329b59202a16168eba23162c"
GOLDEN_COURSE = "60a44f448ab7536ed12711266da34a24c662f9bb126a230ed0b46549a6981f96"


@pytest.fixture(scope="module")
def frames():
    return {(task, split): synthetic_split(task, split) for task, split in SPLITS}


def texts(frame):
    return frame.drop(columns=["label", "idx"])


@cache
def many(task, split):
    """The small tasks have too few rows for a fair measurement: several seeds of them, 2,000 rows at most."""
    seeds = 5 if split != "train" else 20 if SYNTHETIC_TRAIN_SIZES[task] < 1000 else 1
    frame = pd.concat([synthetic_split(task, split, seed) for seed in range(seeds)], ignore_index=True)
    return frame.drop_duplicates(TASKS[task].texts).head(2000)


def joined(frame, task):
    return frame[list(TASKS[task].texts)].agg(" ".join, axis=1)


@pytest.mark.parametrize(("splits", "golden"), [(SPLITS, GOLDEN), (COURSE, GOLDEN_COURSE)])
def test_golden(splits, golden):
    digest = hashlib.sha256()
    for split in splits:
        digest.update(synthetic_split(*split).to_csv(index=False, lineterminator="\n").encode())
    assert digest.hexdigest() == golden


def test_sizes_keep_the_ratios_of_glue(frames):
    """GLUE's own: 8,551 + 67,349 + 3,668 + 5,749 + 363,846 + 392,702 + 104,743 + 2,490 = 949,098."""
    assert list(TRAIN_SIZES) == list(RELEASED_SIZES) == list(TASKS)
    assert sum(TRAIN_SIZES.values()) == 949_098
    assert SYNTHETIC_TRAIN_SIZES == {
        "cola": 220, "sst2": 1731, "mrpc": 94, "stsb": 148, "qqp": 9352, "mnli": 10094, "qnli": 2692, "rte": 64,
        "sst5": 220, "quora": 3637, "sts": 155,
    }  # fmt: skip
    assert round(SYNTHETIC_TRAIN_SIZES["mnli"] / SYNTHETIC_TRAIN_SIZES["rte"], 1) == 157.7 == round(392702 / 2490, 1)
    for (task, split), frame in frames.items():
        assert len(frame) == (SYNTHETIC_TRAIN_SIZES[task] if split == "train" else SYNTHETIC_DEV_SIZE)


@pytest.mark.parametrize("task", TASKS)
def test_no_row_twice_and_no_text_in_both_train_and_dev(frames, task):
    mine = {split: texts(frame) for (name, split), frame in frames.items() if name == task}
    assert not any(frame.duplicated().any() for frame in mine.values())
    train = set(mine.pop("train").to_numpy().ravel())
    for dev in (*mine.values(), texts(synthetic_split(task, next(iter(mine)), seed=7))):
        assert train.isdisjoint(dev.to_numpy().ravel())


def test_mismatched_speaks_of_other_people_things_and_places(frames):
    words, nouns = {}, {}
    for genre, other in (("town", "matched"), ("sea", "mismatched")):
        sections = [text.replace("=", ",") for section, text in LEXICON.items() if section.startswith(genre)]
        nouns[genre] = {word.split()[-1] for text in sections for word in text.split(",")}
        words[genre] = set(" ".join(texts(frames["mnli", f"validation_{other}"]).to_numpy().ravel()).lower().split())
    assert nouns["town"].isdisjoint(nouns["sea"])
    assert words["town"].isdisjoint(nouns["sea"]) and words["sea"].isdisjoint(nouns["town"])


def shared_words(frame, task):
    """Lengths, and for pairs the share of each text's words that the other has."""
    words = [[set(text.lower().strip(".?").split()) for text in frame[column]] for column in TASKS[task].texts]
    if len(words) == 1:
        return np.array([[len(a) / 20] for a in words[0]])
    pairs = zip(*words, strict=True)
    return np.array([[len(a & b) / len(a), len(a & b) / len(b), len(a) / 20, len(b) / 20] for a, b in pairs])


@pytest.mark.parametrize("task", CLASSIFICATION)
def test_words_and_overlap_do_not_solve_it(task):
    """Measured: cola 0.68, sst2 0.47, mrpc 0.73, qqp 0.66, mnli 0.59, qnli 0.56, rte 0.62. No single word does, too."""
    train, dev = many(task, "train"), many(task, "validation_matched" if task == "mnli" else "validation")
    vectors = TfidfVectorizer(token_pattern=r"[a-z]+", min_df=2).fit(joined(train, task))
    x, y = (np.hstack([vectors.transform(joined(f, task)).toarray(), shared_words(f, task)]) for f in (train, dev))
    assert LogisticRegression(max_iter=1000).fit(x, train.label).score(y, dev.label) < 0.80
    assert dev.label.value_counts(normalize=True).max() < 0.75
    has = CountVectorizer(binary=True, token_pattern=r"[a-z]+").fit_transform(joined(train, task))
    one_hot = np.eye(train.label.max() + 1)[train.label]
    with_word = has.T @ one_hot  # (words, classes): rows of each class with the word
    stumps = (with_word.max(1) + (one_hot.sum(0) - with_word).max(1)) / len(train)
    assert stumps.max() < one_hot.mean(0).max() + 0.10 < 0.81
