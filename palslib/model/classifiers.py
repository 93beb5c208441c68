"""The heads of tasks, which compute logits from the pooled hidden state h of [CLS], and the loss of each task.

The paper's head is linear (Stickland & Murray 2019, section 3.1). The minBERT report encodes the texts of a pair
separately, as h1 and h2; its heads are W [h1, h2] + b for classes and 5·σ(cos(h1, h2)) for a similarity from 0 to 5. As
a cosine is between -1 and 1, the latter cannot predict values below 5·σ(-1) = 1.34 or above 5·σ(1) = 3.66 (ledger B16).
"""

import torch
from torch import nn
from torch.nn import functional

from palslib.bert.rows import check_integers
from palslib.common.names import check_type
from palslib.data.tasks import Task


def halves(h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The first texts and the second texts (B, d) of pairs (2B, d). Raises ValueError for an odd number of texts."""
    if len(h) % 2:
        raise ValueError(f"{len(h)} texts do not form pairs: give all the first texts, then as many second texts")
    return h.chunk(2)


class Concatenation(nn.Linear):
    """The head W [h1, h2] + b: from (2B, d), first texts then second texts, to (B, outputs)."""

    def __init__(self, d: int, outputs: int):
        super().__init__(2 * d, outputs)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.cat(halves(h), -1))


class Cosine(nn.Module):
    """The head 5·σ(cos(h1, h2)): from (2B, d), first texts then second texts, to (B, 1). It has no parameters."""

    def __init__(self, d: int, outputs: int):
        super().__init__()

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return 5 * torch.sigmoid(functional.cosine_similarity(*halves(h.float())))[:, None]


HEADS: dict[str, type[nn.Module]] = {"linear": nn.Linear, "concatenation": Concatenation, "cosine": Cosine}
"""The class of each kind of head, by the name in `Task.head`."""


def task_loss(task: Task, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The loss, a mean over (B,): squared error for a score, binary cross entropy for one logit, else cross entropy.
    For classes, each row counts as much as its class in `Task.class_weights`.
    Raises ValueError for labels of another shape, which would be broadcast over the rows, or of no class."""
    if not task.is_regression:
        check_integers(f"labels of task {task.name!r}", labels)
    check_type(f"labels of task {task.name!r}", labels, torch.Tensor, "a tensor of numbers")
    if tuple(labels.shape) not in ((len(logits),), (len(logits), 1)):
        raise ValueError(f"labels of task {task.name!r} must have shape ({len(logits)},), not {tuple(labels.shape)}")
    labels = labels.reshape(-1).to(torch.float32 if task.is_regression else torch.int64)
    if task.is_regression:
        return functional.mse_loss(logits[:, 0], labels)
    most, looks = len(task.labels) - 1, labels.device.type == "cpu" and not torch.compiler.is_compiling()
    if looks and not 0 <= labels.min() <= labels.max() <= most:  # on a GPU this would have to wait
        raise ValueError(f"labels of task {task.name!r} are class numbers from 0 to {most}, not {labels.tolist()}")
    if task.class_weights is None and task.num_outputs == 1:
        return functional.binary_cross_entropy_with_logits(logits[:, 0], labels.float())
    if task.class_weights is not None:
        logits = functional.pad(logits, (2 - logits.shape[1], 0)) if task.num_outputs == 1 else logits  # to (0, x)
        return functional.cross_entropy(logits, labels, logits.new_tensor(task.loss_weights))
    return functional.cross_entropy(logits, labels)
