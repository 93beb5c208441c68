"""One task of a model as a separate module, with the arguments of a Transformers model for sequence classification.

It is for code that does not know about tasks: notebook 13 gives it to Transformers' `Trainer` and exports it. It has
the model's parameters: training it trains the model, which still predicts and is saved as usual.

Its output is a type of this package: for use without palslib, export a wrapper that returns only the logits. The
example batch of an export must have at least two rows, otherwise `torch.export` treats B as the constant 1.

On several GPUs start a process for each (`torchrun`). `nn.DataParallel`, which `Trainer` uses otherwise, would separate
the two texts of pairs that are encoded separately, and does not copy what tasks share.
"""

from torch import nn

from palslib.data.tasks import Task


class OneTask(nn.Module):
    """A `MultiTaskModel` for one of its tasks."""

    def __init__(self, model: nn.Module, task: Task):
        super().__init__()
        self.model, self.task = model, task

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, labels=None):
        """The model's `Output`; logits of a score are on the task's own scale, as the labels are.

        Args:
            input_ids, attention_mask, token_type_ids: a padded batch, (B, S); (2B, S) for a task that encodes the texts
                of a pair separately.
            labels: (B,) as in `palslib.load_rows`: class numbers, or scores on the task's own scale.
        """
        given = {"scores" if self.task.is_regression else "labels": labels}
        output = self.model(self.task.name, input_ids, attention_mask, token_type_ids, **given)
        if self.task.is_regression:
            output.logits = output.logits * self.task.scale
        return output
