"""Kinds of head, their losses, and pairs whose texts are encoded apart: by hand, and through the whole model."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from shapes import tiny_encoder, tiny_method
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

from palslib.data.metrics import class_of, score
from palslib.data.tasks import SUITES, Task, get_task
from palslib.model.classifiers import Concatenation, Cosine, task_loss
from palslib.model.multi_task import MultiTaskModel

MINBERT = SUITES["minbert"]


# ------------------------------------------------------------------------------------------------------------- by hand


def test_cosine_by_hand():
    """Equal directions: 5σ(1) = 3.655; at right angles, and at length 0: 2.5; opposite: 5σ(-1) = 1.345. Lengths do not
    matter, so that a score of 0 or 5 is out of reach (ledger B16)."""
    first = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    second = torch.tensor([[5.0, 0.0], [0.0, 9.0], [-6.0, -8.0], [1.0, 0.0]])
    found = Cosine(2, 1)(torch.cat([first, second]))
    torch.testing.assert_close(found, torch.tensor([[3.6553], [2.5], [1.3447], [2.5]]), atol=1e-4, rtol=0)
    with pytest.raises(ValueError, match="3 texts do not form pairs"):  # two with one would be broadcast
        Cosine(2, 1)(first[:3])


def test_concatenation_by_hand():
    """W = [1, 10, 100, 1000], b = 5: texts (1, 2) and (3, 4) give 1 + 20 + 300 + 4000 + 5."""
    head = Concatenation(2, MINBERT["quora"].num_outputs)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 10, 100, 1000]]))
        head.bias.fill_(5)
    h = torch.tensor([[1.0, 2], [0, 0], [3, 4], [1, 0]])  # two pairs: rows 0 and 2, 1 and 3
    assert head(h).tolist() == [[4326.0], [105.0]]


def test_losses_by_hand():
    """Cross entropy of probabilities 1/4 and 1/2; binary of 1/4 (wrong) and 1/2; squares of 1 and 3."""
    logits = torch.log(torch.tensor([[0.25, 0.75, 1e-30], [0.25, 0.25, 0.5]]))
    three = Task("three", ("text",), ("a", "b", "c"))
    assert float(task_loss(three, logits, torch.tensor([0, 2]))) == pytest.approx((math.log(4) + math.log(2)) / 2)
    logits = torch.tensor([[-math.log(3)], [0.0]])  # σ = 1/4 and 1/2
    found = float(task_loss(MINBERT["quora"], logits, torch.tensor([1, 0])))
    assert found == pytest.approx((math.log(4) + math.log(2)) / 2)
    assert float(task_loss(MINBERT["sts"], torch.tensor([[1.0], [5.0]]), torch.tensor([2.0, 2.0]))) == 5.0


@pytest.mark.parametrize("name", ["sst2", "quora"])
def test_class_weights_are_torch_s(name):
    """Also where one logit decides: its softmax is that of (0, x)."""
    weights, labels = {"negative": 3.0, "positive": 0.5}, torch.tensor([0, 1, 1, 0, 1])
    task = replace(get_task(name), class_weights=dict(zip(get_task(name).labels, weights.values(), strict=True)))
    given = torch.randn(5, task.num_outputs, generator=torch.Generator().manual_seed(0))
    logits = given if name == "sst2" else torch.cat([torch.zeros(5, 1), given], 1)
    expected = nn.CrossEntropyLoss(torch.tensor([3.0, 0.5]))(logits, labels)
    torch.testing.assert_close(task_loss(task, given, labels), expected)


def test_balanced_class_weights_are_scikit_learn_s():
    labels = np.array([0, 0, 0, 1, 2, 2])
    task = Task("three", ("text",), ("a", "b", "c"), class_weights="balanced")
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    assert task.balanced(labels).loss_weights == pytest.approx(expected.tolist())
    with pytest.raises(ValueError, match=r"needs Task.balanced\(labels\) first"):
        task_loss(task, torch.zeros(6, 3), torch.tensor(labels))
    for wrong in ({"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 0}, "balance"):
        with pytest.raises(ValueError, match="class_weights"):
            Task("three", ("text",), ("a", "b", "c"), class_weights=wrong)


def test_class_of_one_logit():
    assert class_of(np.array([[-0.1], [0.0], [0.1]])).tolist() == [0, 0, 1]
    assert score(MINBERT["quora"], np.array([0, 1, 1, 0]), np.array([[-1.0], [1], [-1], [-1]]))["accuracy"] == 75


# ---------------------------------------------------------------------------------------- through tokens and the model


@pytest.mark.parametrize("method", ["pals-204", "shared", "attention-on-top-204", "pals-276-top", "fine-tuned"])
@pytest.mark.parametrize("task", ["quora", "sts"])
def test_the_model_encodes_each_text_by_itself(method, task):
    """The head on [CLS] of one text alone and of the other alone equals the stacked batch, padding and all."""
    model = MultiTaskModel.from_backbone(tiny_encoder(), tiny_method(method), [task])
    ids = torch.randint(5, 99, (4, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, 5:] = 0
    mask[3, 3:] = 0
    head, model.heads[task] = model.heads[task], nn.Identity()
    with torch.no_grad():
        alone = torch.cat([model(task, ids[i : i + 1, : mask[i].sum()]).logits for i in range(4)])
        apart = head(alone)
        model.heads[task] = head
        stacked = model(task, ids, mask).logits
    assert stacked.shape == (2, 1)
    torch.testing.assert_close(stacked, apart, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["stsb", "rte", "quora"])
def test_labels_in_a_column_give_the_same_loss(name):
    """(B, 1) would be broadcast to (B, B)."""
    task = get_task(name)
    logits, labels = torch.randn(4, task.num_outputs), torch.tensor([0, 1, 1, 0])
    labels = labels.float() if task.is_regression else labels
    assert torch.equal(task_loss(task, logits, labels[:, None]), task_loss(task, logits, labels))
    assert torch.equal(task_loss(task, logits, labels.int()), task_loss(task, logits, labels))


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        *(("rte", labels) for labels in (torch.tensor([7]), torch.tensor([1.0]), [1])),
        *(("stsb", labels) for labels in ([1.0], torch.tensor([0.5, 1.0]), torch.zeros(1, 3))),
    ],
    ids=str,
)
def test_labels_of_no_class_or_another_shape_are_refused_by_name(task, labels):
    model = MultiTaskModel.from_backbone(tiny_encoder(), tiny_method("pals-204"), [task])
    with pytest.raises(ValueError, match=f"labels of task '{task}'"):
        model(task, input_ids=torch.tensor([[2, 5, 3]]), labels=labels)
    for ids in (None, [[2, 5, 3]], torch.tensor([[2.0, 5.0]])):
        with pytest.raises(ValueError, match="input_ids"):
            model(task, ids)
