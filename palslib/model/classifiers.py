"""What makes logits of pooled hidden states h = [CLS], one class a kind of head; and each task's loss.

Linear (Stickland & Murray 2019, section 3.1). Where each text of a pair is encoded by itself, to h1 and h2, as in the
minBERT report: W [h1, h2] + b for classes, and 5·σ(cos(h1, h2)) for a similarity of 0 to 5. The sigmoid of a cosine
lies between σ(-1) and σ(1), so this one can say nothing below 1.34 or above 3.66 (ledger B16).
"""

import torch
from torch import nn
from torch.nn import functional

from palslib.data.tasks import Task


class Concatenation(nn.Linear):
    """W [h1, h2] + b; (2B, d), first texts then second texts, to (B, outputs)."""

    def __init__(self, d: int, outputs: int):
        super().__init__(2 * d, outputs)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.cat(h.chunk(2), -1))


class Cosine(nn.Module):
    """5·σ(cos(h1, h2)); (2B, d), first texts then second texts, to (B, 1). It has no parameters."""

    def __init__(self, d: int, outputs: int):
        super().__init__()

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return 5 * torch.sigmoid(functional.cosine_similarity(*h.float().chunk(2)))[:, None]


HEADS: dict[str, type[nn.Module]] = {"linear": nn.Linear, "concatenation": Concatenation, "cosine": Cosine}
"""The class of each kind of head that a task can name."""


def make_head(task: Task, d: int) -> nn.Module:
    """A task's head on hidden states of size d."""
    return HEADS[task.head](d, task.num_outputs)


def task_loss(task: Task, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean squared error for a score, binary cross entropy for a single logit, else cross entropy; a mean over (B,)."""
    if task.is_regression:
        return functional.mse_loss(logits[:, 0], labels)
    if task.num_outputs == 1:
        return functional.binary_cross_entropy_with_logits(logits[:, 0], labels.float())
    return functional.cross_entropy(logits, labels)
