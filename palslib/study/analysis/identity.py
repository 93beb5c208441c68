"""Checks of a built model: whether it starts as its backbone, and whether it is as large as its closed form says.

Within layers V^D starts at zero, LHUC's 2σ(w) at one and copied weights as copies, so the adapted hidden states equal
the backbone's bit for bit. Layers on top of BERT have no residual connection around them and start at random.
"""

import pandas as pd
import torch

from palslib.bert.dropout import without_dropout
from palslib.bert.rows import Rows
from palslib.methods.counting import count_parameters
from palslib.methods.table import METHODS, get_method
from palslib.model.multi_task import MultiTaskModel


@torch.no_grad()
def final_states(model: MultiTaskModel, task: str | None, rows: Rows) -> torch.Tensor:
    """The hidden states that the pooler reads, (N, d), without dropout: under a task (None: the backbone's), after the
    layers on top of BERT, if any."""
    with without_dropout(model):
        return model.final_states(task, model.encode(task, rows), rows)


def measured(model: MultiTaskModel) -> dict[str, int]:
    """The parameters of a built model: each task's own by its name, and under `tasks` what all tasks share beyond the
    backbone, without output heads. Equal to `per_task` and `shared_by_tasks` of `count_parameters(..., exact=True)`."""
    parts = {**model.adaptations, "tasks": model.shared}
    return {name: sum(p.numel() for p in part.parameters()) if part else 0 for name, part in parts.items()}


@torch.no_grad()
def disturb(model: MultiTaskModel, task: str, std: float = 0.1) -> None:
    """Adds noise to all parameters that a method adds for a task, as if they had been trained."""
    generator = torch.Generator().manual_seed(0)
    for part in filter(None, (model.adaptations[task], model.shared)):
        for parameter in part.parameters():
            parameter.add_(std * torch.randn(parameter.shape, generator=generator).to(parameter.device))


def compare_with_backbone(methods, encoder, inputs: dict) -> pd.DataFrame:
    """A row for each method, built for one task (RTE) on an encoder whose weights do not change.

    Args:
        methods: names or `Method`s.
        encoder: it is left unchanged.
        inputs: `input_ids`, `attention_mask`, `token_type_ids`, each (B, S).

    Returns columns `method`; `per task, BERT-base` (closed form, without biases); `built` and `closed form` (all
    parameters of the built adaptation, counted and computed); `starts as BERT`; `after noise` (`differs` or
    `equal`: the output, once noise is added to all added parameters).
    """
    rows, lines = Rows.from_padded(**inputs), []
    trained = [(parameter, parameter.requires_grad) for parameter in encoder.parameters()]
    for method in map(get_method, methods):
        model = MultiTaskModel(encoder, method, ["rte"])
        published = METHODS.get(method.name, method)  # at the paper's size, whatever its size here
        exact = count_parameters(method, encoder.config, num_tasks=1, exact=True)
        plain, start = final_states(model, None, rows), final_states(model, "rte", rows)
        disturb(model, "rte")
        lines.append(
            {
                "method": method.label,
                "per task, BERT-base": count_parameters(published).per_task,
                "built": sum(measured(model).values()),
                "closed form": exact.per_task + exact.shared_by_tasks,
                "starts as BERT": torch.equal(start, plain),
                "after noise": "differs" if not torch.allclose(final_states(model, "rte", rows), plain) else "equal",
            }
        )
    for parameter, before in trained:  # a method may freeze the backbone
        parameter.requires_grad_(before)
    return pd.DataFrame(lines)
