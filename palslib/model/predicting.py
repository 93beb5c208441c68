"""Many tasks in one pass: what no task adapts is computed once, and rows are grouped by task for the rest.

Stickland & Murray 2019, introduction and section 5, weigh parameters against this: with task functions on top of BERT,
h_L is computed once and serves every task; within BERT each task needs its own pass. For T tasks, L layers of which the
first k are no task's own (`Method.shared_layers`), k + T (L - k) layers are run: `operations.layer_passes`.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import pandas as pd
import torch
from transformers.masking_utils import create_bidirectional_mask

from palslib.bert.backbones import load_tokenizer
from palslib.data.tasks import Task

Text = str | Sequence[str]
"""One text, or two that are a pair."""
_tokenizer = lru_cache(maxsize=4)(load_tokenizer)


_FORMS = {1: "one text", 2: "a pair"}


def _columns(task: Task) -> str:
    return f"{_FORMS[len(task.texts)]} ({', '.join(task.texts)})"


def _requests(model, texts: Text | Sequence[Text], tasks: str | Sequence) -> tuple[list[tuple], list[list[str]]]:
    """Every row's text or texts as a tuple, and the tasks that it is for; raises ValueError for what does not fit."""
    if isinstance(texts, (str, tuple)):  # one text or pair: all tasks on it
        texts, tasks = [texts], [tasks]
    elif isinstance(tasks, str):
        tasks = [tasks] * len(texts)
    texts, tasks = list(texts), list(tasks)
    if not texts:
        raise ValueError("no texts to predict: the list is empty")
    if len(texts) != len(tasks):
        raise ValueError(
            f"{len(texts)} texts and tasks for {len(tasks)}: a list of texts takes one entry of tasks for each text "
            "(a name, or a list of names), or one name for all; a text by itself takes a list of names"
        )
    rows = [(text,) if isinstance(text, str) or not hasattr(text, "__iter__") else tuple(text) for text in texts]
    names = [[entry] if isinstance(entry, str) else list(entry) for entry in tasks]
    for i, (row, wanted) in enumerate(zip(rows, names, strict=True)):
        if len(row) not in (1, 2) or not all(isinstance(text, str) for text in row):
            raise ValueError(f"row {i} (the first is 0): {texts[i]!r} is neither a text nor a pair of texts")
        if not wanted:
            raise ValueError(f"row {i} (the first is 0) is for no task. Valid: {', '.join(model.tasks)}")
        for task in map(model._known, wanted):
            if len(task.texts) != len(row):
                fit = ", ".join(t.name for t in model.tasks.values() if len(t.texts) == len(row))
                raise ValueError(
                    f"row {i} (the first is 0): task {task.name!r} takes {_columns(task)}, not {_FORMS[len(row)]}; "
                    f"this model's tasks for {_FORMS[len(row)]}: {fit or 'none'}"
                )
    return rows, names


class Serving:
    """The part of `MultiTaskModel` that answers for several tasks at once."""

    def forward_many(
        self, rows: Mapping[str, Sequence[int] | None], input_ids, attention_mask=None, token_type_ids=None
    ) -> dict[str, torch.Tensor]:
        """Logits of several tasks on one batch (B, S), what they share computed once.

        Args:
            rows: task -> the rows of the batch that it is for, or None for all. For tasks that encode the texts of a
                pair apart a row is still one text: first texts, then as many second texts.

        Equal to `forward` one task at a time, up to rounding. A task's own copy of the backbone shares nothing.
        """
        inputs = (input_ids, attention_mask, token_type_ids)
        k = self.method.shared_layers(self.config.num_hidden_layers)
        common, logits = None, {}
        for task, some in rows.items():
            self._known(task)
            adaptation = self.adaptations[task]
            if (copy := getattr(adaptation, "encoder", None)) is not None:
                states, mask = self._enter(copy, *(x if some is None or x is None else x[some] for x in inputs))
            else:
                if common is None:
                    states, mask = self._enter(self.backbone, *inputs)
                    common = self._go_on(self.backbone, None, states, mask, k), mask
                states, mask = common
                if some is not None:
                    states, mask = tuple(h[some] for h in states), None if mask is None else mask[some]
            logits[task] = self.logits(task, self._go_on(copy or self.backbone, adaptation, states, mask), mask)
        return logits

    def _enter(self, encoder, input_ids, attention_mask, token_type_ids) -> tuple[tuple, torch.Tensor | None]:
        """What the first layer gets: (h_0,), that is the embedded tokens (B, S, d), and the mask."""
        types = token_type_ids if self.config.type_vocab_size > 1 else None
        h = encoder.embeddings(input_ids=input_ids, token_type_ids=types)
        if hasattr(encoder, "embeddings_project"):  # ELECTRA's embeddings are narrower
            h = encoder.embeddings_project(h)
        return (h,), create_bidirectional_mask(self.config, h, attention_mask)

    @staticmethod
    def _go_on(encoder, adaptation, states: tuple, mask, until: int | None = None) -> tuple:
        """From (h_0, ..., h_j) to (h_0, ..., h_until), under a task's adaptation or none."""
        for layer in encoder.encoder.layer[len(states) - 1 : until]:
            states = (*states, layer(states[-1], mask, adaptation=adaptation))
        return states

    def predict(
        self,
        texts: Text | Sequence[Text],
        tasks: str | Sequence[str | Sequence[str]],
        tokenizer=None,
        max_length: int = 128,
        batch_size: int = 64,
    ) -> pd.DataFrame:
        """Labels and probabilities, or scores, of several tasks.

        Args:
            texts: one text, a string or a tuple of two, for all the `tasks`; or a list of texts, each for the task, or
                the list of tasks, at its place in `tasks` (one name stands for all rows).
            tokenizer: the backbone's own if none is given.
            max_length: longer rows are cut, in word pieces.

        Returns a row for each text and task, texts in order: `row`, `task`, `label` (missing for a score), `score` (the
        label's probability, or the score on the task's scale), `probabilities` (in the order of the task's labels).
        Dropout is off, and the model's training mode is as before afterwards. Raises ValueError for an unknown task, no
        texts, a pair for a task of one text and the reverse, and lengths that differ.
        """
        pairs, names = _requests(self, texts, tasks)
        tokenizer = tokenizer or _tokenizer(self.backbone_name)
        forms, outputs = {}, {}  # (texts a row, encoded apart) -> row -> its tasks; (row, task) -> logits
        for i, wanted in enumerate(names):
            for name in wanted:
                form = (len(pairs[i]), self.tasks[name].apart)
                forms.setdefault(form, {}).setdefault(i, []).append(name)
        was_training = self.training
        self.eval()
        try:
            with torch.inference_mode():
                for (_, apart), of_row in forms.items():
                    order = sorted(of_row, key=lambda i: -sum(map(len, pairs[i])))  # rows of like length together
                    for start in range(0, len(order), batch_size):
                        chunk = order[start : start + batch_size]
                        outputs |= self._predict_batch(chunk, pairs, of_row, apart, tokenizer, max_length)
        finally:
            self.train(was_training)
        answers = [
            (i, name, *self._answer(name, outputs[i, name])) for i, wanted in enumerate(names) for name in wanted
        ]
        return pd.DataFrame(answers, columns=["row", "task", "label", "score", "probabilities"])

    def _predict_batch(self, chunk, pairs, of_row, apart, tokenizer, max_length) -> dict:
        """(row, task) -> logits of one batch of rows, all of one form."""
        columns = [list(column) for column in zip(*(pairs[i] for i in chunk), strict=True)]
        if apart:
            columns = [columns[0] + columns[1]]
        batch = tokenizer(
            *columns,
            padding=True,
            truncation=True,
            max_length=max_length,
            return_token_type_ids=True,
            return_tensors="pt",
        )
        where = {}  # task -> places in the chunk
        for place, i in enumerate(chunk):
            for name in of_row[i]:
                where.setdefault(name, []).append(place)
        rows = {
            name: None if p == list(range(len(chunk))) else p + [len(chunk) + place for place in p] * apart
            for name, p in where.items()
        }
        device = self.pooler.dense.weight.device
        logits = self.forward_many(rows, **{name: batch[name].to(device) for name in tokenizer.model_input_names})
        return {
            (chunk[p], t): row for t, of_task in logits.items() for p, row in zip(where[t], of_task.cpu(), strict=True)
        }

    def _answer(self, name: str, logits: torch.Tensor) -> tuple[str | None, float, tuple[float, ...]]:
        """Label, score and probabilities from the logits (outputs,) of one row."""
        task = self.tasks[name]
        if task.is_regression:
            return None, logits.item() * task.scale, ()
        if task.num_outputs == 1:
            logits = torch.stack([torch.zeros(()), logits[0]])  # the softmax of (0, x) is (σ(-x), σ(x))
        p = logits.softmax(0)
        return task.labels[p.argmax()], p.max().item(), tuple(p.tolist())
