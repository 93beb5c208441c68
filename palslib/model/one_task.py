"""One task of a model as a module of its own: called like a Transformers model for sequence classification, or merged
into one.

`OneTask` is for code that does not know about tasks: notebook 13 gives it to Transformers' `Trainer` and exports it. It
has the model's parameters: training it trains the model, which still predicts and is saved as usual.

On several GPUs start a process for each (`torchrun`). `nn.DataParallel`, which `Trainer` uses otherwise, would separate
the two texts of pairs that are encoded separately, and does not copy what tasks share.
"""

import copy

from torch import nn
from transformers import AutoModelForSequenceClassification

from palslib.bert.draws import new_weights
from palslib.data.tasks import Task


class OneTask(nn.Module):
    """A `MultiTaskModel` for one of its tasks."""

    def __init__(self, model: nn.Module, task: Task):
        super().__init__()
        self.model, self.task, self.training = model, task, model.training

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, labels=None):
        """The model's output; logits of a score are on the task's own scale, as the labels are; its loss is of
        scores divided by the scale.

        Args:
            input_ids, attention_mask, token_type_ids: a padded batch, (B, S); (2B, S) for a task that encodes the texts
                of a pair separately.
            labels: (B,) as in `palslib.load_rows`: class numbers, or scores on the task's own scale.
        """
        if labels is not None and self.task.is_regression:
            labels = labels.float() / self.task.scale
        output = self.model(self.task.name, input_ids, attention_mask, token_type_ids, labels)
        if self.task.is_regression:
            output.logits = output.logits * self.task.scale
        return output


def merged(model: nn.Module, task: str) -> nn.Module:
    """Transformers' own BERT for sequence classification, with the same outputs for a task (a score is divided by the
    task's scale): what a LoRA adds is multiplied into its matrices, so nothing of palslib is needed where it is used.
    `merged(model, "rte").save_pretrained(folder)` writes it for `AutoModelForSequenceClassification`.

    Raises ValueError for a method that adds more than matrices, a pair's texts encoded apart, and another architecture.
    """
    known, adaptation = model._known(task), model.adaptations[task]
    if known.apart or model.config.model_type != "bert":
        raise ValueError(f"task {task!r} can be merged only with a linear head on a BERT, as Transformers has it")
    config = copy.deepcopy(model.config)
    config.num_labels = known.num_outputs
    config.id2label = dict(enumerate(known.labels or [task]))
    config.label2id = {label: i for i, label in config.id2label.items()}
    config.problem_type = "regression" if known.is_regression else "single_label_classification"
    config.classifier_dropout = model.head_dropout
    with new_weights(0):  # which are then replaced
        plain = AutoModelForSequenceClassification.from_config(config, dtype=model.dtype).eval().to(model.device)
    encoder = getattr(adaptation, "backbone", model.backbone)
    pooler = adaptation.pooler or encoder.pooler or model.pooler
    plain.bert.load_state_dict(encoder.state_dict(), strict=False)  # perhaps without a pooler
    plain.bert.pooler.load_state_dict(pooler.state_dict())
    plain.classifier.load_state_dict(model.heads[task].state_dict())
    adaptation.merge(plain.bert.encoder.layer)
    return plain
