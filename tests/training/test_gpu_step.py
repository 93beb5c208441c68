"""What a training step asks of a GPU, counted without one: on torch's *meta* device nothing is computed, and every
operation is seen. A copy from the host, or a wait for a value, would leave the device idle."""

from collections import Counter

import numpy as np
import pytest
import torch
from shapes import randomised
from torch.utils._python_dispatch import TorchDispatchMode

from palslib.bert.attention import fused
from palslib.bert.backbones import load_tokenizer
from palslib.bert.rows import Rows, to
from palslib.data.tokens import tokenise_task
from palslib.methods import pal
from palslib.training.optimizer import clip_gradients

GPU = torch.device("meta")
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "_coalesce", "unique", "equal", "is_nonzero")
VIEWS = ("view", "_unsafe_view", "t", "transpose", "expand", "split", "split_with_sizes", "slice", "select", "detach")
VIEWS += ("unsqueeze", "squeeze", "permute", "alias", "unbind", "as_strided", "reshape", "_reshape_alias")


class Spy(TorchDispatchMode):
    """Counts operations on the device, copies to it, and waits for it."""

    def __init__(self):
        super().__init__()
        self.copies, self.waits, self.operations = [], [], Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out, name = function(*args, **(kwargs or {})), function.__name__.partition(".")[0]
        flat = [x for x in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        made = [x for x in torch.utils._pytree.tree_leaves(out) if isinstance(x, torch.Tensor)]
        on = {x.device.type for x in flat}
        if GPU.type in {x.device.type for x in made} | on:
            if name not in VIEWS:
                self.operations[name] += 1
            if "cpu" in on and any(x.numel() > 1 for x in flat if x.device.type == "cpu"):
                self.copies.append(name)
            if any(x.device.type == "cpu" for x in made) or name.startswith(WAITS):
                self.waits.append(name)
        return out


@pytest.fixture(scope="module")
def data():
    return tokenise_task("stsb", load_tokenizer("tiny"), max_length=32)


@pytest.mark.parametrize(("method", "most"), [("shared", 420), ("pals-204", 640)])
def test_a_step_copies_once_and_never_waits(method, most, data, monkeypatch):
    """Batch, forward, backward and clipping of one step."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)  # it does not know this device
    model = randomised(method, mode="train", dropout=0.1).to(GPU)
    with Spy() as spy:
        batch = data.batch(np.arange(8), device=GPU)
        batch["rows"].input_ids.remainder_(90)  # the tiny vocabulary
        model(task="stsb", **batch).loss.backward()
        clip_gradients(list(model.parameters()), 1.0)
    assert spy.copies == ["_to_copy"] and spy.waits == []
    assert spy.operations.total() <= most, spy.operations


def test_labels_and_pieces_travel_together_and_arrive_unchanged(monkeypatch):
    """Of any type and shape, as bytes."""

    class Elsewhere:  # stands for a GPU, whose tensors are on the CPU here
        type = "elsewhere"

    monkeypatch.setattr(torch.Tensor, "to", lambda x, device=None, **_: x)
    tensors = {"scores": torch.tensor([0.1, 1 / 3, 4.75]), "ids": torch.tensor([7, 2**40]), "mask": torch.eye(3) > 0}
    tensors |= {"none": torch.zeros(0), "grid": torch.tensor([[1.5, -torch.inf]]).expand(2, 2)}
    moved = to(Elsewhere(), tensors)
    assert moved.keys() == tensors.keys()
    assert all(torch.equal(moved[name], x) and moved[name].dtype == x.dtype for name, x in tensors.items())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["shared", "pals-204"])
def test_a_gpus_forward_pass_compiles_into_one_graph(method, data, monkeypatch):
    """`torch.compile` traces batches of any shape in one piece: a graph for the first shape, another for all others."""
    from torch._dynamo.utils import counters

    from palslib.bert import encoders, layer
    from palslib.model import multi_task

    for module in (layer, encoders, multi_task):  # on a GPU both are torch's own
        monkeypatch.setattr(module, "drop", torch.nn.functional.dropout)
    monkeypatch.setattr(layer, "attend", lambda q, k, v, rows, heads, p, *_: fused(q, k, v, rows, heads, p))
    monkeypatch.setattr(pal, "attend", lambda q, k, v, rows, heads, p, *_: fused(q, k, v, rows, heads, p))
    model = randomised(method, mode="train", dropout=0.1)
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(lambda rows, labels: model("stsb", rows=rows, labels=labels).loss, backend="aot_eager")
    for first in range(0, 96, 8):
        batch = data.batch(np.arange(first, first + 8))
        rows = batch["rows"]
        ids = rows.input_ids.remainder(90)
        there = Rows.pack(ids, rows.token_type_ids, rows.lengths, one_group=True)
        compiled(there, batch["labels"]).backward()
    assert not counters["graph_break"] and counters["stats"]["unique_graphs"] <= 2
