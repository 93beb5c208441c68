"""Attention maps and head statistics, of BERT's heads and of the PALs' heads, as tidy frames.

A projected attention layer is ordinary multi-head attention in a small space (Stickland & Murray 2019, section 3.3), so
each task has heads of its own that can be looked at like BERT's:

    map = softmax(q kᵀ / √(s/H))      (S, S); row i says where token i looks, and sums to 1

Two kinds of heads: `bert`, the backbone's under a task's adaptation, and `pal`, what the task adds. Layers and heads
count from 0, layers on top of BERT after its last one. Padding is never counted, neither as a row nor as a column.
"""

from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy.optimize import linear_sum_assignment
from scipy.special import entr
from torch import nn

from palslib.common import check_name
from palslib.methods.functions import PAL, ProjectedAttention

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
"""Columns of `head_statistics` -> how a figure names them."""


@dataclass(frozen=True)
class AttentionMaps:
    """All heads' maps on one text or pair of texts."""

    task: str | None
    """Whose adaptation was on; None for the plain backbone."""
    method: str
    """The model's method, for messages."""
    tokens: tuple[str, ...]
    """The S tokens as the tokenizer writes them, special ones and padding too."""
    texts: np.ndarray
    """(S,) which text a token belongs to: 0, 1, or -1 for special tokens and padding."""
    cls: np.ndarray
    """(S,) true at the tokenizer's [CLS] (RoBERTa's <s>)."""
    sep: np.ndarray
    """(S,) true at its [SEP] (RoBERTa's </s>)."""
    real: np.ndarray
    """(S,) false at padding."""
    weights: dict[str, np.ndarray]
    """Kind of head -> maps (layers, heads, S, S)."""
    layers: dict[str, tuple[int, ...]]
    """Kind of head -> the numbers of its layers."""

    @property
    def name(self) -> str:
        """The task, as frames name it: `plain` for none."""
        return self.task or "plain"

    def of(self, kind: str) -> np.ndarray:
        """The maps (layers, heads, S, S) of `bert` or `pal`. Raises ValueError where there are none."""
        if kind == "pal" and kind not in self.weights:
            why = "adds no projected attention" if self.task else "has PALs for its tasks only; name one"
            raise ValueError(f"there are only BERT's maps: method {self.method!r} {why}")
        return self.weights[check_name("kind of head", kind, self.weights)]

    @property
    def bert(self) -> np.ndarray:
        """The backbone's maps (L, H, S, S)."""
        return self.of("bert")

    @property
    def pal(self) -> np.ndarray:
        """The task's own maps (adapted layers, H, S, S)."""
        return self.of("pal")

    def layer(self, kind: str, layer: int) -> np.ndarray:
        """One layer's maps without padding, (heads, real tokens, real tokens)."""
        maps, layers = self.of(kind), self.layers[kind]
        if layer not in layers:
            raise ValueError(f"no {kind} heads in layer {layer}; there are in {', '.join(map(str, layers))}")
        return maps[layers.index(layer)][:, self.real][:, :, self.real]


@contextmanager
def eager_attention(model: nn.Module):
    """Within the block every attention in the model is computed step by step, without dropout.

    Under sdpa and flash attention the weights never exist. All that was set is restored, after an error too.
    """
    found = {id(c): c for m in model.modules() if hasattr(c := getattr(m, "config", None), "_attn_implementation")}
    before = [(config, config._attn_implementation) for config in found.values()]
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        for config, _ in before:
            config._attn_implementation = "eager"
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation = implementation
        for module, training in modes:
            module.training = training


@contextmanager
def _weights_of(modules: Iterable[nn.Module]):
    """A dictionary that fills, while the model runs, with the second thing that each module's forward returns."""
    seen: dict[nn.Module, torch.Tensor | None] = {}
    hooks = [m.register_forward_hook(lambda m, _, output: seen.update({m: output[1]})) for m in modules]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def attention_modules(model, task: str | None) -> dict[str, dict[int, nn.Module]]:
    """Kind of head -> layer -> the module that has a task's heads (None: the plain backbone's). Raises ValueError."""
    adaptation = model.adaptations[check_name("task of this model", task, model.tasks)] if task is not None else None
    encoder = getattr(adaptation, "encoder", None) or model.backbone  # fine-tuned: the task's own copy
    modules = {"bert": {i: layer.attention.self for i, layer in enumerate(encoder.encoder.layer)}}
    if added := [m for m in adaptation.modules() if isinstance(m, ProjectedAttention)] if adaptation else []:
        first = adaptation.layers.start if isinstance(adaptation, PAL) else len(modules["bert"])
        modules["pal"] = dict(enumerate(added, first))
    return modules


def attention_maps(
    model, task: str | None, tokenizer, text: str, pair: str | None = None, max_length: int = 128, padded: bool = False
) -> AttentionMaps:
    """Where every head of a `MultiTaskModel` looks, on one text or on a pair of texts.

    Args:
        task: whose adaptation is on and whose own heads are shown; None for the plain backbone.
        tokenizer: the backbone's; a text over `max_length` tokens is cut, the longer of a pair first.
        padded: pad to `max_length`, to see that padding changes nothing.

    Raises ValueError for a task that the model does not have, RuntimeError where a module gave no maps.
    """
    modules = attention_modules(model, task)
    width = {"truncation": True, "max_length": max_length, "padding": "max_length" if padded else False}
    encoding = tokenizer(text, pair, return_token_type_ids=True, return_tensors="pt", **width)
    inputs = {name: value.to(next(model.parameters()).device) for name, value in encoding.items()}
    every = [module for kind in modules.values() for module in kind.values()]
    with eager_attention(model), torch.inference_mode(), _weights_of(every) as seen:
        _ = model.encode(None, **inputs) if task is None else model(task=task, **inputs)
    if missing := [type(module).__name__ for module in every if seen.get(module) is None]:
        raise RuntimeError(f"no attention weights from {len(missing)} of {len(every)} modules, first {missing[0]}")

    ids = encoding["input_ids"][0].numpy()
    return AttentionMaps(
        task,
        model.method.label,
        tuple(tokenizer.convert_ids_to_tokens(ids)),
        np.array([-1 if text is None else text for text in encoding.sequence_ids(0)]),
        ids == tokenizer.cls_token_id,
        ids == tokenizer.sep_token_id,
        encoding["attention_mask"][0].numpy().astype(bool),
        {kind: torch.cat([seen[m] for m in some.values()]).float().cpu().numpy() for kind, some in modules.items()},
        {kind: tuple(some) for kind, some in modules.items()},
    )


def _several(maps: AttentionMaps | Iterable[AttentionMaps]) -> list[AttentionMaps]:
    return [maps] if isinstance(maps, AttentionMaps) else list(maps)


def head_statistics(maps: AttentionMaps | Iterable[AttentionMaps]) -> pd.DataFrame:
    """A row for each head: task, kind, layer, head and the columns of `STATISTICS`.

    Each is a mean over a text's rows, then over the texts. Entropy is 0 for a head that looks at one token and log S
    for one that looks at all S alike; the others are the share of attention that goes there. Rows for which there is
    no such place do not enter: the first token has no previous one, a special token no other sentence; NaN where no row
    has one. Attention to [SEP] is the sum over all of them.
    """
    frames = [_statistics(one, kind) for one in _several(maps) for kind in one.weights]
    return pd.concat(frames).groupby(["task", "kind", "layer", "head"], sort=False).mean().reset_index()


def _statistics(maps: AttentionMaps, kind: str) -> pd.DataFrame:
    weights = np.stack([maps.layer(kind, layer) for layer in maps.layers[kind]]).astype(np.float64)
    texts, size = maps.texts[maps.real], weights.shape[-1]
    places = {  # (S, S): which keys are meant, for each query
        "to_cls": np.broadcast_to(maps.cls[maps.real], (size, size)),
        "to_sep": np.broadcast_to(maps.sep[maps.real], (size, size)),
        "to_self": np.eye(size, dtype=bool),
        "to_previous": np.eye(size, k=-1, dtype=bool),
        "to_next": np.eye(size, k=1, dtype=bool),
        "to_other": texts[:, None] + texts == 1,  # 0 and 1; no two of -1, 0, 1 else have this sum
    }
    entropy = entr(weights).sum(-1).mean(-1)  # (layers, heads)
    values = {"entropy": entropy, "relative_entropy": entropy / np.log(max(size, 2))}
    for name, place in places.items():
        rows = place.any(1)
        values[name] = (weights * place).sum(-1)[..., rows].mean(-1) if rows.any() else np.full_like(entropy, np.nan)
    layer, head = (axis.ravel() for axis in np.indices(entropy.shape))
    about = {"task": maps.name, "kind": kind, "layer": np.array(maps.layers[kind])[layer], "head": head}
    return pd.DataFrame(about | {name: value.ravel() for name, value in values.items()})


def js_divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Jensen–Shannon divergence of distributions on the last axis, in nats: 0 for equal ones, log 2 at the most.

    H((p + q)/2) − (H(p) + H(q))/2 with H the entropy (Lin 1991).
    """
    p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    mixed, apart = entr((p + q) / 2).sum(-1), (entr(p).sum(-1) + entr(q).sum(-1)) / 2
    return np.maximum(mixed - apart, 0)


def head_divergences(
    first: AttentionMaps | Iterable[AttentionMaps],
    second: AttentionMaps | Iterable[AttentionMaps],
    kinds: tuple[str, str] = ("pal", "pal"),
) -> pd.DataFrame:
    """How differently two sets of heads look at the same texts: each head of a layer against each of that layer's.

    Two tasks' own heads, one task's heads against BERT's (`kinds=("pal", "bert")`), or BERT's under two tasks. Columns
    task, kind, other_task, other_kind, layer, head, other_head; divergence, Jensen–Shannon, the mean over rows, then
    over texts; matched. Two tasks' heads are drawn apart, so head 3 of one has nothing to do with head 3 of the other:
    `matched` marks the pairing of a layer's heads with the least total divergence, which is what can be compared.
    Raises ValueError where the texts differ.
    """
    first, second = _several(first), _several(second)
    about = {"task": first[0].name, "kind": kinds[0], "other_task": second[0].name, "other_kind": kinds[1]}
    found: dict[int, list[np.ndarray]] = {}
    for one, two in zip(first, second, strict=True):
        if one.tokens != two.tokens or (one.name, two.name) != (first[0].name, second[0].name):
            raise ValueError("each side must be one task's maps, and both sides of the same texts in the same order")
        for layer in sorted(set(one.layers[kinds[0]]) & set(two.layers[kinds[1]])):
            p, q = one.layer(kinds[0], layer), two.layer(kinds[1], layer)
            found.setdefault(layer, []).append(js_divergence(p[:, None], q).mean(-1))  # (heads, other heads)
    frames = []
    for layer, values in found.items():
        mean = np.mean(values, axis=0)
        matched = np.zeros(mean.shape, dtype=bool)
        matched[linear_sum_assignment(mean)] = True
        values = (*np.indices(mean.shape), mean, matched)
        columns = zip(("head", "other_head", "divergence", "matched"), values, strict=True)
        frames.append(pd.DataFrame(about | {"layer": layer} | {name: values.ravel() for name, values in columns}))
    return pd.concat(frames, ignore_index=True)
