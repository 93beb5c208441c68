"""What a head is worth: the dev score without it, less the score with it. Nothing is trained.

A head is removed by setting its context, the mean of the values that its attention takes, to zero. In points:

    change = score without the head − score with it        below 0: the head was of use

Heads stand in for each other, so that many changes near 0 do not mean that all heads could go: `per="layer"` and
`per="all"` remove them together.
"""

from collections.abc import Iterable
from contextlib import ExitStack, contextmanager

import pandas as pd
from torch import nn

from palslib.analysis.attention import attention_modules
from palslib.common import check_name
from palslib.data.tokens import TokenisedTask, some_rows
from palslib.training.evaluation import evaluate

Head = tuple[int, int]
"""Layer and number of a head, both from 0."""
PER = {"head": ("layer", "head"), "layer": ("layer",), "all": ()}
"""What is removed at once -> the columns that tell one removal from the next."""


def heads_of(model, task: str, kind: str = "pal") -> list[Head]:
    """All heads of a kind, `pal` (the task's own) or `bert`, layer by layer.

    Raises ValueError for an unknown task or kind, and where the method adds no projected attention.
    """
    return [(i, head) for i, module in _modules(model, task, kind).items() for head in range(_number(module))]


def _modules(model, task: str, kind: str) -> dict[int, nn.Module]:
    modules = attention_modules(model, task)
    if check_name("kind of head", kind, ("pal", "bert")) not in modules:
        raise ValueError(f"method {model.method.label!r} adds no projected attention; it has BERT's heads only")
    return modules[kind]


def _number(module: nn.Module) -> int:
    return getattr(module, "heads", None) or module.num_attention_heads  # ours; Hugging Face's


@contextmanager
def without_heads(model, task: str, heads: Iterable[Head], kind: str = "pal"):
    """Within the block the context of these heads of a task is zero, under sdpa as under eager attention.

    BERT's heads are shared: while one is removed, it is for every task. After the block, after an error too, the model
    computes what it did before, bit for bit. Raises ValueError for a layer or head that is not there.
    """
    modules, gone = _modules(model, task, kind), {}
    for layer, head in heads:
        if layer not in modules:
            raise ValueError(f"no {kind} heads in layer {layer}; there are in {', '.join(map(str, modules))}")
        if not 0 <= head < _number(modules[layer]):
            raise ValueError(f"no {kind} head {head} in layer {layer}; there are 0 to {_number(modules[layer]) - 1}")
        gone.setdefault(layer, []).append(head)

    def zero(module, _, output, which):
        context = output[0].unflatten(-1, (_number(module), -1)).clone()  # (B, S, heads, width)
        context[..., which, :] = 0
        return context.flatten(-2), *output[1:]

    with ExitStack() as stack:
        for layer, which in gone.items():
            hook = modules[layer].register_forward_hook(lambda *call, which=which: zero(*call, which))
            stack.callback(hook.remove)
        yield


@contextmanager
def uniform_heads(model, task: str):
    """Within the block the queries of a task's own heads are zero, so that each takes the plain mean over all tokens.

    What changes then is what the attention pattern was worth, apart from the values that it averages.
    """

    def no_query(linear, _, qkv):
        query, rest = qkv.tensor_split([linear.in_features], dim=-1)  # (B, S, s) and (B, S, 2s)
        return nn.functional.pad(rest, (query.shape[-1], 0))

    with ExitStack() as stack:
        for module in _modules(model, task, "pal").values():
            stack.callback(module.qkv.register_forward_hook(no_query).remove)
        yield


def head_importance(
    model, task: str, data: TokenisedTask, kind: str = "pal", per: str = "head", rows: int = 500, **options
) -> pd.DataFrame:
    """The score of a task without each of its heads in turn, a row for each head and metric.

    Args:
        data: the task's dev split, of which at most `rows` rows are used.
        kind: `pal`, the task's own heads, or `bert`.
        per: what is removed at once, of `PER`.
        options: of `evaluation.evaluate`, such as `precision`.

    Columns task, kind, those of `PER`, metric; score in percent; change in points against the whole model on the same
    rows.
    """
    names = PER[check_name("group of heads", per, PER)]
    groups: dict[tuple, list[Head]] = {}
    for head in heads_of(model, task, kind):
        groups.setdefault(head[: len(names)], []).append(head)
    splits = {task: {"dev": some_rows(data, rows)}}
    whole, found = evaluate(model, splits, **options)[task], []
    for place, heads in groups.items():
        with without_heads(model, task, heads, kind):
            scores = evaluate(model, splits, **options)[task]
        about = {"task": task, "kind": kind} | dict(zip(names, place, strict=True))
        found += [about | {"metric": m, "score": value, "change": value - whole[m]} for m, value in scores.items()]
    return pd.DataFrame(found)
