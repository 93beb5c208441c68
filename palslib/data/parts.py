"""Parts of rows that share no text: of one file (80/10/10), and of the training rows (a tenth is held out).

Rows that share a text, in any column, are in one group, and so are those connected through others; a part consists of
whole groups. So nothing in one part was seen in another one, also no pair turned round; but for a text that is in very
many pairs, which connects nothing.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Sequence

from palslib.common.later import np, pd
from palslib.common.names import check_name
from palslib.data.sources import is_text

PARTS = ("train", "validation", "test")
HELD_OUT, KEPT = "held-out part of train", "train without held-out part"
"""The two parts of a task's training rows when settings are chosen by scores on rows that no reported score uses, as in
the runs recorded with `held_out_by="texts"`: by first texts alone, so that some texts are in both."""
HELD_OUT_GROUPS, KEPT_GROUPS = "held-out groups of train", "train without held-out groups"
"""The same two parts by groups, as new runs have them."""
OF_TRAIN = (HELD_OUT, KEPT, HELD_OUT_GROUPS, KEPT_GROUPS)


def groups_of(columns: Sequence[Iterable]) -> np.ndarray:
    """(N,) The group of each row, as a hash of its texts. Texts are equal if an uncased BERT reads the same words; what
    is not a text counts as an empty one. An empty text connects no pairs, nor does one that very many share, such as
    a topic: over a twentieth of all rows, and over five."""
    columns = [[cell if is_text(cell) else "" for cell in column] for column in columns]
    texts = "\0".join([str(len(columns)), *itertools.chain(*columns)])  # no text has a NUL
    key = hashlib.sha256(texts.encode()).hexdigest()
    if key not in _GROUPS:
        _GROUPS[key] = _groups(columns)
    return _GROUPS[key].copy()


_GROUPS: dict[str, np.ndarray] = {}
"""Hash of texts -> their groups: 100,000 rows take 10 seconds, and every split of a file asks for the same groups."""


def _groups(columns: Sequence[Sequence[str]]) -> np.ndarray:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    normal, words = BertNormalizer().normalize_str, BertPreTokenizer().pre_tokenize_str
    cells = [cell for column in columns for cell in column]
    plain = {cell: " ".join(word for word, _ in words(normal(cell))) for cell in set(cells)}
    number, texts = pd.factorize(np.array([plain[cell] for cell in cells], dtype=object))
    first, last = number.reshape(len(columns), -1)[[0, -1]]  # (N,) each: the same where there is one column
    common = np.bincount(number, minlength=len(texts)) > max(5, len(first) / 20)
    weak = (texts == "") | (common & (len(columns) > 1))
    first, last = np.where(weak[first], last, first), np.where(weak[last], first, last)
    links = coo_array((np.ones(len(first)), (first, last)), shape=(len(texts), len(texts)))
    count, group = connected_components(links, directed=False)
    least = np.full(count, np.iinfo(np.uint64).max, dtype=np.uint64)
    np.minimum.at(least, group, pd.util.hash_array(texts, categorize=False))
    return pd.util.hash_array(least)[group[first]]  # hashed again: the least of many hashes is small


def _share(groups: np.ndarray, rows: int) -> np.ndarray:
    """(N,) Which rows are in a part of `rows` rows, if the groups allow: whole groups that fit, by their hashes."""
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    taken = np.zeros(len(sizes), dtype=bool)
    for i, size in enumerate(sizes.tolist()):
        if size <= rows:
            taken[i], rows = True, rows - size
    return taken[group]


def part(groups: np.ndarray, split: str) -> np.ndarray:
    """(N,) Which rows of a file are in a split, by the rows' groups; the order of rows means nothing."""
    tenth = round(len(groups) / 10)
    parts = np.where(_share(groups, tenth), "validation", "train")
    rest = np.flatnonzero(parts == "train")
    parts[rest[_share(~groups[rest], tenth)]] = "test"  # from the other end: a few more rows exchange no test rows
    return parts == check_name("split", split, PARTS)


def part_of_train(frame: pd.DataFrame, texts: Sequence[str], split: str) -> pd.DataFrame:
    """The training rows that are held out, about a tenth, or the others."""
    if split in (HELD_OUT_GROUPS, KEPT_GROUPS):
        out = _share(groups_of([frame[column] for column in texts]), round(len(frame) / 10))
    else:
        hashes = (hashlib.sha256(text.strip().encode()).digest() for text in frame[texts[0]])
        out = np.array([each[1] * 10 < 256 for each in hashes], dtype=bool)
    return frame[out == (split in (HELD_OUT, HELD_OUT_GROUPS))]
