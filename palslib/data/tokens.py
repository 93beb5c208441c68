"""Tokenised splits, cached in files with checksums and read without Python loops, and batches from them."""

import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from palslib.common.files import atomic_write
from palslib.common.places import runs_folder
from palslib.common.processes import progress_bar
from palslib.data.tasks import Task, get_task, load_rows


@dataclass(frozen=True)
class TokenisedTask:
    """One split of one task as word pieces: all rows end to end, and where each begins."""

    task: Task
    input_ids: np.ndarray
    """Word pieces of all rows, one after the other."""
    token_type_ids: np.ndarray
    """0 in the first text, 1 in the second, like `input_ids`."""
    offsets: np.ndarray
    """(rows + 1,) Row i is at offsets[i]:offsets[i + 1]. If the task encodes each text of a pair by itself, first texts
    are rows 0 to N - 1 here, and second texts rows N to 2N - 1."""
    labels: np.ndarray
    """Class numbers, or scores divided by the task's scale."""
    cut: int
    """Number of rows (of texts, where each is encoded by itself) that were longer than the limit and truncated."""
    pad_token_id: int
    content: str = ""
    """A hash of the texts and labels as they were read."""

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def lengths(self) -> np.ndarray:
        """(N,) word pieces of every row, of both texts together where each is encoded by itself."""
        return np.diff(self.offsets).reshape(-1, len(self)).sum(0)

    def pieces(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The indices of all word pieces of these rows, and how many each sequence has; these are first texts, then
        second texts where each is encoded by itself."""
        sequences = np.concatenate([rows, rows + len(self)]) if self.task.apart else rows
        starts = self.offsets[sequences]
        lengths = self.offsets[sequences + 1] - starts
        firsts = np.cumsum(lengths) - lengths
        return np.repeat(starts - firsts, lengths) + np.arange(lengths.sum()), lengths

    def batch(self, rows: np.ndarray, width: int | None = None, device=None) -> dict:
        """A batch of the given rows: `rows` without padding (`bert.rows.Rows`), and `labels` (B,) in the order given.

        If the task encodes each text of a pair by itself, there are 2B rows, first texts then second texts.

        Args:
            width: if given, pads every row to this many word pieces, as the released code does (ledger D14).
        """
        import torch

        from palslib.bert.rows import Rows, to

        rows = np.asarray(rows)
        pieces, lengths = self.pieces(rows)
        ids, types = (torch.from_numpy(x[pieces].astype(np.int64)) for x in (self.input_ids, self.token_type_ids))
        device = torch.device(device or "cpu")
        packed = Rows.pack(ids, types, lengths, one_group=device.type != "cpu")
        moved = to(device, packed.tensors() | {"labels": torch.from_numpy(self.labels[rows])})
        packed = packed.with_tensors(moved)
        if width is not None:
            packed = packed.with_padding(width, self.pad_token_id)
        return {"rows": packed, "labels": moved["labels"]}


def some_rows(data: TokenisedTask, most: int) -> TokenisedTask:
    """At most `most` rows, evenly spread over the split, because some splits are sorted by source."""
    if len(data) <= most:
        return data
    rows = np.linspace(0, len(data) - 1, most).round().astype(int)
    pieces, lengths = data.pieces(rows)
    ids, types, offsets = data.input_ids[pieces], data.token_type_ids[pieces], np.cumsum([0, *lengths])
    return replace(data, input_ids=ids, token_type_ids=types, offsets=offsets, labels=data.labels[rows])


def shortfalls(tasks: Iterable[TokenisedTask], tokenizer, max_length: int) -> list[str]:
    """Sentences on the parts of texts that a model will not see, with the setting to change: where over a quarter of a
    task's training rows are cut, or over a tenth of its word pieces are [UNK]."""
    cut, unknown = [], []
    others = [i for i in tokenizer.all_special_ids if i != tokenizer.unk_token_id]
    for data in tasks:
        texts = data.input_ids[~np.isin(data.input_ids, others)]
        if (share := data.cut / (len(data.offsets) - 1)) > 0.25:
            cut.append(f"{data.task.name} {share:.0%}")
        if (share := np.count_nonzero(texts == tokenizer.unk_token_id) / max(len(texts), 1)) > 0.1:
            unknown.append(f"{data.task.name} {share:.0%}")
    faults = (
        (cut, f"training rows over max_length={max_length} word pieces are cut", "raise max_length"),
        (unknown, "word pieces of the training texts are [UNK]", "choose a backbone for their language"),
    )
    return [f"{what}: {', '.join(over)}; {advice}" for over, what, advice in faults if over]


def content_of(frame: pd.DataFrame) -> str:
    """A hash of the texts and labels, row by row, of a split from `load_rows`."""
    return hashlib.sha256(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes()).hexdigest()[:24]


def _key(content: str, task: Task, tokenizer, max_length: int) -> str:
    if not tokenizer.is_fast:
        raise ValueError("this needs a fast tokenizer, which has a file tokenizer.json")
    rules = tokenizer.backend_tokenizer
    rules.no_truncation()  # else the key would depend on settings that an earlier call left here
    rules.no_padding()
    parts = content + rules.to_str() + repr((task, max_length, tokenizer.truncation_side))
    return hashlib.sha256(parts.encode()).hexdigest()[:24]


_AT_ONCE = 10_000_000
"""The letters that are tokenised at once: a text's word pieces take far more memory than the few that are kept."""


def _cut_second(pieces, i: int, max_length: int) -> list[int]:
    """The places of row i's word pieces that the released code keeps: it drops the last one of the longer text (if the
    lengths are equal, of the second text) until the row is short enough (ledger D18)."""
    text_of = pieces.sequence_ids(i)  # 0, 1, or None for [CLS] and [SEP]
    left, kept = {text: text_of.count(text) for text in (0, 1, None)}, []
    while sum(left.values()) > max_length:
        left[0 if left[0] > left[1] else 1] -= 1
    for index, text in enumerate(text_of):
        if left[text] > 0:
            left[text] -= 1
            kept.append(index)
    return kept


def word_pieces(texts: Sequence[list[str]], tokenizer, max_length: int, ties: str) -> tuple[list, list, int]:
    """The word pieces and the token types of rows, which have one text or two (columns of texts), and the number of
    rows that were cut to `max_length`, longest text first; `ties`: as in `Task`."""
    asked = {"return_token_type_ids": True, "return_attention_mask": False, "verbose": False}
    pieces = tokenizer(*texts, **asked)
    over = [i for i, row in enumerate(pieces["input_ids"]) if len(row) > max_length]
    kept = {i: _cut_second(pieces, i, max_length) for i in over} if ties == "second" and len(texts) > 1 else {}
    if over and not kept:
        pieces = tokenizer(*texts, truncation=True, max_length=max_length, **asked)
    ids, types = pieces["input_ids"], pieces["token_type_ids"]
    for i, places in kept.items():
        ids[i], types[i] = [ids[i][k] for k in places], [types[i][k] for k in places]
    return ids, types, len(over)


def _tokenise(frame: pd.DataFrame, task: Task, tokenizer, max_length: int, progress: bool) -> dict[str, np.ndarray]:
    """The arrays of `TokenisedTask`, by name."""
    texts = frame[list(task.texts)]
    if task.apart:
        texts = pd.concat([texts[column] for column in task.texts]).to_frame()
    portion = texts.map(len).sum(axis=1).cumsum().to_numpy() // _AT_ONCE  # of each row, by the letters before its end
    ids, types, cut = [], [], 0
    for _, rows in progress_bar([*texts.groupby(portion)], f"word pieces of {task.name}", progress):
        columns = [rows[column].tolist() for column in rows]
        new_ids, new_types, over = word_pieces(columns, tokenizer, max_length, task.ties)
        ids += new_ids
        types += new_types
        cut += over
    labels = frame["label"].to_numpy()
    if task.is_regression:
        labels = (labels / task.scale).astype(np.float32)
    offsets = np.cumsum([0, *map(len, ids)])
    arrays = {"offsets": offsets, "labels": labels, "cut": np.array(cut)}
    for name, rows, kind in (("input_ids", ids, np.int32), ("token_type_ids", types, np.int8)):
        arrays[name] = np.fromiter(itertools.chain.from_iterable(rows), kind, offsets[-1])
    return arrays


def tokenise_task(
    task: str | Task,
    tokenizer,
    data: str = "synthetic",
    split: str = "train",
    max_length: int = 128,
    progress: bool = False,
) -> TokenisedTask:
    """Loads a split, tokenises it once and caches the result under `runs/cache/`; later calls read the file.

    Pairs become [CLS] first [SEP] second [SEP], or one row for each text where the task encodes each by itself. A row
    over `max_length` word pieces is truncated, longest text first, and counted. The file's name depends on texts,
    labels, tokenizer and limit, so that no outdated file is ever read; a damaged one is made anew. `progress` shows a
    progress bar.
    """
    task = get_task(task, data)
    frame = load_rows(task, data, split)
    key = _key(content := content_of(frame), task, tokenizer, max_length)
    path = runs_folder() / "cache" / f"{task.name}-{key}.npz"
    if (arrays := _read(path, key)) is None:
        arrays = _tokenise(frame, task, tokenizer, max_length, progress)
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez(file, key=key, **arrays)
    cut = int(arrays.pop("cut"))
    return TokenisedTask(task, **arrays, cut=cut, pad_token_id=tokenizer.pad_token_id, content=content)


def _read(path: Path, key: str) -> dict[str, np.ndarray] | None:
    """The arrays in a cached file, each with its checksum; None if it is missing, damaged or of another key."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as parts:
            arrays = dict(parts)
        return arrays if arrays.pop("key") == key else None
    except Exception:  # zipfile and NumPy have many for a file that is not what it was
        return None
