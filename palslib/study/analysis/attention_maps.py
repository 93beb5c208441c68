"""Attention maps and head statistics, of BERT's heads and of the PALs' heads, as tidy frames.

A projected attention layer is ordinary multi-head attention in a small space (Stickland & Murray 2019, section 3.3), so
each task has heads of its own that can be inspected like BERT's:

    map = softmax(q kᵀ / √(s/H))      (S, S); row i is the attention of token i, and sums to 1

There are two kinds of heads: `bert`, those of a BERT layer under a task's adaptation, and `pal`, the projected ones
that the task adds. Layers and heads count from 0; layers on top of BERT come after its last one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy.optimize import linear_sum_assignment
from scipy.special import entr

from palslib.bert.dropout import without_dropout
from palslib.bert.rows import Rows
from palslib.common.names import check_name

KINDS = {"attention": "bert", "task attention": "pal"}
"""Point of `bert/layer.py` where attention weights are observed -> kind of head."""
STATISTICS = {
    "entropy": "entropy (nats)",
    "relative_entropy": "entropy / log S",
    "to_cls": "attention to [CLS]",
    "to_sep": "attention to [SEP]",
    "to_self": "attention to itself",
    "to_previous": "attention to the previous token",
    "to_next": "attention to the next token",
    "to_other": "attention to the other sentence",
}
"""Columns of `head_statistics` -> their labels in figures."""


@dataclass(frozen=True)
class AttentionMaps:
    """The attention maps of all heads on one text or pair of texts."""

    task: str
    """The task whose adaptation was used; `plain` for the backbone alone."""
    tokens: tuple[str, ...]
    """The S tokens as the tokenizer writes them, special ones too."""
    texts: np.ndarray
    """(S,) which text a token belongs to: 0, 1, or -1 for special tokens."""
    cls: np.ndarray
    """(S,) true at the tokenizer's [CLS] (RoBERTa's <s>)."""
    sep: np.ndarray
    """(S,) true at its [SEP] (RoBERTa's </s>)."""
    weights: dict[str, np.ndarray]
    """Kind of head -> maps (layers, heads, S, S)."""
    layers: dict[str, tuple[int, ...]]
    """Kind of head -> the numbers of its layers."""

    def of(self, kind: str) -> np.ndarray:
        """The maps (layers, heads, S, S) of `bert`, the backbone's, or `pal`, the task's own. Raises ValueError where
        there are none."""
        if kind == "pal" and kind not in self.weights:
            raise ValueError("there are only BERT's maps: the method adds no projected attention, or no task is named")
        return self.weights[check_name("kind of head", kind, self.weights)]

    def layer(self, kind: str, layer: int) -> np.ndarray:
        """One layer's maps (heads, S, S)."""
        maps, layers = self.of(kind), self.layers[kind]
        if layer not in layers:
            raise ValueError(f"layer {layer} has no {kind} heads; layers with them: {', '.join(map(str, layers))}")
        return maps[layers.index(layer)]


def _seen(model, task: str | None, rows: Rows) -> dict[str, dict[int, torch.Tensor]]:
    """Kind of head -> layer -> the weights (1, H, S, S) of a single row, under a task (None: the plain backbone)."""
    seen: dict[str, dict[int, torch.Tensor]] = {}

    def look(point, layer, weights):
        seen.setdefault(KINDS[point], {})[layer] = weights[..., : rows.width, : rows.width]  # padded on a GPU
        return weights

    with without_dropout(model), torch.inference_mode(), model.watch(look, *KINDS):
        model.final_states(task, model.encode(task, rows), rows)
    return seen


def numbers_of_heads(model, task: str | None) -> dict[str, dict[int, int]]:
    """Kind of head -> layer -> number of heads, from a row of two word pieces. Raises ValueError for unknown tasks."""
    seen = _seen(model, task, Rows.from_padded(torch.zeros(1, 2, dtype=torch.long, device=model.device)))
    numbers: dict[str, dict[int, int]] = {}
    for kind, layers in seen.items():
        numbers[kind] = {layer: weights.shape[1] for layer, weights in layers.items()}
    return numbers


def attention_maps(
    model, task: str | None, tokenizer, text: str, pair: str | None = None, max_length: int = 128
) -> AttentionMaps:
    """The attention maps of all heads of a `MultiTaskModel`, without dropout, on one text or on a pair of texts.

    Args:
        task: the task whose adaptation and own heads are used; None for the plain backbone.
        tokenizer: the backbone's; a text over `max_length` tokens is truncated, the longer of a pair first.

    Raises ValueError for a task that the model does not have.
    """
    form = {"return_token_type_ids": True, "return_tensors": "pt"}
    encoding = tokenizer(text, pair, truncation=True, max_length=max_length, **form)
    ids, types = (encoding[name].to(model.device) for name in ("input_ids", "token_type_ids"))
    seen, ids = _seen(model, task, Rows.from_padded(ids, token_type_ids=types)), ids[0].cpu().numpy()
    return AttentionMaps(
        task=task or "plain",
        tokens=tuple(tokenizer.convert_ids_to_tokens(ids)),
        texts=np.array([-1 if number is None else number for number in encoding.sequence_ids(0)]),
        cls=ids == tokenizer.cls_token_id,
        sep=ids == tokenizer.sep_token_id,
        weights={kind: torch.cat([*layers.values()]).float().cpu().numpy() for kind, layers in seen.items()},
        layers={kind: tuple(layers) for kind, layers in seen.items()},
    )


def head_statistics(maps: AttentionMaps | Iterable[AttentionMaps]) -> pd.DataFrame:
    """A row for each head: task, kind, layer, head and the columns of `STATISTICS`.

    Each statistic is a mean over a text's rows, then over the texts. Entropy is 0 for a head that attends to one token
    and log S for one that attends to all S equally; the others are the share of attention that goes to a place. Rows
    without it are left out (the first token has no previous one, a special token no other sentence); NaN if all are.
    Attention to [SEP] is the sum over all of them.
    """
    several = [maps] if isinstance(maps, AttentionMaps) else maps
    frames = [_statistics(one, kind) for one in several for kind in one.weights]
    return pd.concat(frames).groupby(["task", "kind", "layer", "head"], sort=False).mean().reset_index()


def _statistics(maps: AttentionMaps, kind: str) -> pd.DataFrame:
    weights = maps.of(kind).astype(np.float64)
    weights /= weights.sum(-1, keepdims=True)  # in float32 the sum is 1 up to rounding, which 1 - entropy would show
    texts, size = maps.texts, weights.shape[-1]
    keys = {  # (S, S): true at the keys that count for each query
        "to_cls": np.broadcast_to(maps.cls, (size, size)),
        "to_sep": np.broadcast_to(maps.sep, (size, size)),
        "to_self": np.eye(size, dtype=bool),
        "to_previous": np.eye(size, k=-1, dtype=bool),
        "to_next": np.eye(size, k=1, dtype=bool),
        "to_other": texts[:, None] + texts == 1,  # only 0 and 1 have this sum
    }
    entropy = entr(weights).sum(-1).mean(-1)  # (layers, heads)
    values = {"entropy": entropy, "relative_entropy": entropy / np.log(max(size, 2))}
    for name, counted in keys.items():
        rows = counted.any(1)
        values[name] = (weights * counted).sum(-1)[..., rows].mean(-1) if rows.any() else np.full_like(entropy, np.nan)
    layer, head = (axis.ravel() for axis in np.indices(entropy.shape))
    columns = {"task": maps.task, "kind": kind, "layer": np.array(maps.layers[kind])[layer], "head": head}
    return pd.DataFrame(columns | {name: value.ravel() for name, value in values.items()})


def js_divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Jensen–Shannon divergence of distributions on the last axis, in nats: 0 for equal ones, at most log 2.

    H((p + q)/2) − (H(p) + H(q))/2 with H the entropy (Lin 1991).
    """
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    mixed, apart = entr((p + q) / 2).sum(-1), (entr(p).sum(-1) + entr(q).sum(-1)) / 2
    return np.maximum(mixed - apart, 0)


def head_divergences(
    first: Sequence[AttentionMaps], second: Sequence[AttentionMaps], kinds: tuple[str, str] = ("pal", "pal")
) -> pd.DataFrame:
    """The divergence of two sets of heads on the same texts: in each layer, each head of one against each of the other.

    The sets are two tasks' own heads, one task's heads and BERT's (`kinds=("pal", "bert")`), or BERT's under two tasks.
    Columns layer, head, other_head; divergence (Jensen–Shannon, the mean over rows, then over texts); matched. Two
    tasks' heads are initialised independently, so head 3 of one does not correspond to head 3 of the other: `matched`
    marks the pairing of a layer's heads with the least total divergence; these pairs can be compared. Raises ValueError
    if the texts differ, or if a side mixes tasks.
    """
    divergences: dict[int, list[np.ndarray]] = {}  # layer -> (heads, other heads) of each text
    for one, two in zip(first, second, strict=True):
        if one.tokens != two.tokens or (one.task, two.task) != (first[0].task, second[0].task):
            raise ValueError("each side must hold one task's maps, both of the same texts in the same order")
        for layer in sorted(set(one.layers[kinds[0]]) & set(two.layers[kinds[1]])):
            p, q = one.layer(kinds[0], layer), two.layer(kinds[1], layer)
            divergences.setdefault(layer, []).append(js_divergence(p[:, None], q).mean(-1))
    columns = ["layer", "head", "other_head", "divergence", "matched"]
    if not divergences:  # heads on top of BERT: no layer in common
        return pd.DataFrame(columns=columns, dtype=float)
    frames = []
    for layer, of_texts in divergences.items():
        mean = np.mean(of_texts, axis=0)
        matched = np.zeros(mean.shape, dtype=bool)
        matched[linear_sum_assignment(mean)] = True
        values = [np.full(mean.shape, layer), *np.indices(mean.shape), mean, matched]
        frames.append(pd.DataFrame(dict(zip(columns, map(np.ravel, values), strict=True))))
    return pd.concat(frames, ignore_index=True)
