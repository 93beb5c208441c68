"""The multi-task model: a backbone shared by all tasks, and for each task the modules that a method adds and a head.

Stickland & Murray 2019, section 3.3. The forward pass, over rows without padding (`bert/rows.py`), is: embeddings, the
backbone's layers, each with the task's adaptation (`bert/layer.py`), modules on top, [CLS], pooler, head. Of the last
layer no more than [CLS] is computed, where nothing else of it is read. An encoder that is passed in still works on its
own; the model made last decides which of its parameters are trained.
"""

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import torch
from huggingface_hub import ModelHubMixin
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.models.bert.modeling_bert import BertPooler

from palslib.bert.backbones import check_tokenizer, has_tokenizer, load_encoder, load_tokenizer
from palslib.bert.draws import new_weights, same_draws, torchs_own
from palslib.bert.dropout import drop
from palslib.bert.encoders import check_encoder, embed
from palslib.bert.layer import PLAIN, POINTS, adapted_layer
from palslib.bert.mixed import Mixed
from palslib.bert.rows import Rows
from palslib.common.names import check_name, shown
from palslib.common.seeds import seed_from
from palslib.data.tasks import Task, get_task
from palslib.methods.adaptation import Adaptation, initialise
from palslib.methods.counting import count_parameters
from palslib.methods.lhuc import Vectors
from palslib.methods.method import Method
from palslib.methods.table import get_method
from palslib.model import files, predicting, saving
from palslib.model.classifiers import HEADS, task_loss
from palslib.model.one_task import OneTask, merged


class TaskModules(nn.ModuleDict):
    """A module for each task, under any name, as tasks may be named after files (`train.csv`). Names with a dot and
    those of its own attributes, which `nn.ModuleDict` refuses, are stored escaped."""

    @staticmethod
    def form(task: str) -> str:
        """The escaped name of a task, which is part of its parameters' names."""
        plain = task.replace("%", "%25").replace(".", "%2E")
        return f"{plain}%" if hasattr(TaskModules(), plain) or not plain else plain

    def __getitem__(self, task: str) -> nn.Module:
        return super().__getitem__(self.form(task))

    def __setitem__(self, task: str, module: nn.Module) -> None:
        super().__setitem__(self.form(task), module)

    def __delitem__(self, task: str) -> None:
        super().__delitem__(self.form(task))

    def __iter__(self) -> Iterator[str]:
        return (form.removesuffix("%").replace("%2E", ".").replace("%25", "%") for form in self._modules)

    __contains__, keys, items = Mapping.__contains__, Mapping.keys, Mapping.items  # of the names that `__iter__` gives


class MultiTaskModel(
    ModelHubMixin,  # adds `push_to_hub("user/model")`
    nn.Module,
    library_name="palslib",
    tags=["multi-task", "adapters"],
    pipeline_tag="text-classification",
    paper_url="https://arxiv.org/abs/1902.02671",
    model_card_template=saving.CARD,
):
    """A backbone shared by tasks, and for each task one `adaptations[task]` and one `heads[task]`."""

    def __init__(
        self, encoder: nn.Module, method: str | Method, tasks, seed: int = 0, backbone_name: str = "", tokenizer=None
    ):
        super().__init__()
        if isinstance(tasks, str) or not isinstance(tasks, Iterable):
            raise ValueError(f"tasks must be a list of names or Tasks, not {shown(tasks)}")
        check_encoder(encoder)
        self.method, self.seed = get_method(method), operator.index(seed)  # a NumPy number could not be saved
        self.backbone_name = backbone_name or type(encoder).__name__
        if tokenizer is not None:
            check_tokenizer(tokenizer, self.backbone_name)
        self.own_tokenizer = tokenizer
        """The tokenizer that was given or loaded, and is saved with the model; None where there is none."""
        self.tasks: dict[str, Task] = {}
        self.head_dropout: float | None = None
        """Dropout of the pooled [CLS]; None: the backbone's `hidden_dropout_prob`."""
        self.max_length = 128
        """Maximum length, in word pieces, of a row to predict; the same as in training."""
        self.max_lengths: dict[str, int] = {}
        """The same for tasks that were trained with another one, by name."""
        self.sparse_embeddings = False
        """Whether the word embeddings' gradient is sparse, for an optimiser that supports it."""
        self.recomputes = False
        """Whether the backward pass recomputes each layer's activations, to save memory (gradient checkpointing)."""
        self.whole_last_layer = False
        """Whether all of the last layer is computed; the pooler reads only [CLS] of it, and logits are the same."""
        self._lookers: tuple[tuple[Callable, tuple[str, ...], nn.Module | None], ...] = ()
        self.config, self.backbone = encoder.config, encoder
        self.training = encoder.training  # `load_encoder` returns it in eval mode; new parts have this mode too
        self.new_pooler = None
        """The pooler of a backbone that has none."""
        if getattr(encoder, "pooler", None) is None:
            self.new_pooler = self._drawn("pooler", lambda: BertPooler(self.config))
        self.shared = self._drawn("shared", lambda: self.method.build_shared(encoder))
        self._check_count("shared_by_tasks", self.shared)
        self.adaptations, self.heads = TaskModules().train(self.training), TaskModules().train(self.training)
        for task in tasks:
            self.add_task(task)
        self.requires_grad_where_trained()

    @classmethod
    def from_backbone(
        cls,
        backbone="minilm",
        method="pals-204",
        tasks=("rte",),
        seed: int = 0,
        weights="pretrained",
        tokenizer=None,
        **options,
    ):
        """A model on a pre-trained backbone, in eval mode (a loaded encoder keeps its mode): call `train()` before a
        loop of your own.

        Args:
            backbone: `minilm`, `tiny`, a Hub id or folder, each also with the prefix `minbert:`; or a loaded encoder,
                whose parameters the model then shares.
            method: a name of `METHODS` or a `Method`; `options` change it (`size=120`, `freeze="backbone"`).
            tasks: names of `TASKS`, or `Task`s.
            seed: the seed of all random weights; a task's weights depend only on it and on the task's name.
            weights: `pretrained`, or `random` for the same architecture from scratch.
            tokenizer: the tokenizer of a loaded encoder, which is needed to predict from texts and is saved with the
                model; a backbone given by name has its own.
        """
        backbone = os.fspath(backbone) if isinstance(backbone, os.PathLike) else backbone
        encoder, name = backbone, type(backbone).__name__
        if weights != "pretrained" and not isinstance(backbone, str):
            raise ValueError(f"weights={weights!r} needs a backbone given by name; this {name} already has weights")
        if isinstance(backbone, str):
            encoder, name = load_encoder(backbone, seed, weights), backbone
            if tokenizer is None and has_tokenizer(backbone):
                tokenizer = load_tokenizer(backbone)  # now: a folder may be gone when the model is saved
        return cls(encoder, get_method(method, **options), tasks, seed, name, tokenizer)

    @property
    def tokenizer(self):
        """The backbone's tokenizer. Raises OSError, with advice, where a backbone came without one."""
        if self.own_tokenizer is None:
            raise OSError(f"{self.backbone_name} came without a tokenizer: give tokenizer=... to from_backbone")
        return self.own_tokenizer

    @property
    def pooler(self) -> nn.Module:
        """The pooler that tasks share: the backbone's own, or a new one where it has none."""
        return self.new_pooler or self.backbone.pooler

    @property
    def device(self) -> torch.device:
        """The device of the backbone."""
        return self.backbone.embeddings.word_embeddings.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the backbone's parameters, which new ones get too."""
        return self.backbone.embeddings.word_embeddings.weight.dtype

    def _drawn(self, name: str, make: Callable[[], nn.Module | None]) -> nn.Module | None:
        """Makes a module on the backbone's device, in the model's mode; its random weights depend only on the seed and
        a name."""
        on_device = torch.device("meta" if self.device.type == "meta" else "cpu")
        seed = seed_from(self.seed, name)
        foreign = not type(self.method).__module__.startswith("palslib.")  # may draw in ways of its own
        with on_device, new_weights(seed), torchs_own(seed, torch.device("cpu")) if foreign else nullcontext():
            module, std = make(), self.config.initializer_range
            if isinstance(module, Adaptation):
                module.draw(std)
            elif module is not None:
                initialise(module, std, getattr(self.method, "init", "identity"), starts_as_bert=name == "shared")
        return module if module is None else module.to(self.device, self.dtype).train(self.training)

    def add_task(self, task: str | Task) -> None:
        """Adds a task with new parameters; those of the other tasks do not change."""
        task = get_task(task)
        if task.name in self.tasks:
            raise ValueError(f"task {task.name!r} is already in the model (tasks: {', '.join(self.tasks)})")
        self.put(task, self.new_parts(task))

    def new_parts(self, task: Task) -> dict[str, nn.Module]:
        """The newly initialised modules of a task: `adaptation` and `head`."""
        head = self._drawn(f"head {task.name}", lambda: HEADS[task.head](self.config.hidden_size, task.num_outputs))
        adaptation = self._drawn(task.name, lambda: self.method.build(self.backbone, self.pooler, self.shared))
        self._check_count("per_task", adaptation)
        for part in adaptation.copied():  # copies of a frozen backbone's modules are trained too
            part.requires_grad_(True)
        return {"adaptation": adaptation, "head": head}

    def _check_count(self, which: str, module: nn.Module | None) -> None:
        counted = getattr(count_parameters(self.method, self.config, 1, exact=True), which)
        built = sum(p.numel() for p in module.parameters()) if module is not None else 0
        if built != counted:
            what = f"{counted:,} parameters {which.replace('_', ' ')}"
            raise ValueError(f"method {self.method.name!r}: its `terms` count {what}, but its module has {built:,}")

    def parts(self, task: str) -> dict[str, nn.Module]:
        """The modules of a task of this model: `adaptation` and `head`."""
        return {"adaptation": self.adaptations[task], "head": self.heads[task]}

    def put(self, task: Task, parts: dict[str, nn.Module]) -> None:
        """Adds a task with its modules, or replaces a task's modules."""
        self.tasks[task.name], self.heads[task.name] = task, parts["head"]
        self.adaptations[task.name] = parts["adaptation"]

    def _known(self, task: str) -> Task:
        return self.tasks[check_name("task of this model", task, self.tasks)]

    def remove_task(self, task: str) -> None:
        """Removes a task and its parameters."""
        self._known(task)
        del self.tasks[task], self.heads[task], self.adaptations[task]
        self.max_lengths.pop(task, None)

    def length(self, task: str) -> int:
        """The maximum length, in word pieces, of a row of this task."""
        return self.max_lengths.get(task, self.max_length)

    def requires_grad_where_trained(self) -> None:
        """Freezes what the method does not train: nothing, the backbone, or the backbone except its layer norms.

        Parts that are replaced by the tasks' own copies (separate poolers, fine-tuned models) are frozen too. A new
        pooler, for a backbone without one, is trained even on a frozen backbone: untrained it would only add noise.
        """
        method, frozen = self.method, self.method.freeze != "nothing"
        self.backbone.requires_grad_(not (frozen or method.copies_backbone))
        if method.freeze == "backbone but norms":
            for part in self.backbone.modules():
                if isinstance(part, nn.LayerNorm):
                    part.requires_grad_(True)
        if method.copies_backbone or method.pooler == "per-task":
            self.pooler.requires_grad_(False)

    @contextmanager
    def watch(self, looker: Callable, *points: str, task: str | None = None):
        """A block in which `looker(point, layer, value)` is called at the given points of `bert/layer.py` (by default
        all) and returns the value or, but for attention weights, a replacement. Rows come longest first (`Rows.order`).

        In nested blocks the looker of the outer one is called first. With `task` it is called for that task only.
        """
        points = tuple(check_name("point", point, POINTS) for point in points)
        outer, own = self._lookers, None if task is None else self.adaptations[self._known(task).name]
        self._lookers = (*outer, (looker, points, own))
        try:
            yield
        finally:
            self._lookers = outer

    def _watched(self, adaptation, rows: Rows) -> Rows:
        """The same rows, with the lookers that watch this adaptation."""
        lookers = tuple((looker, points) for looker, points, own in self._lookers if own in (None, adaptation))
        return replace(rows, lookers=rows.lookers + lookers) if lookers else rows

    def encode(self, task: str | None, rows: Rows) -> tuple[torch.Tensor, ...]:
        """A task's hidden states (h_0, ..., h_L), each (N, d), before modules on top; for None the plain backbone's."""
        return self._run_layers(PLAIN if task is None else self.adaptations[self._known(task).name], rows)

    def _run_layers(self, adaptation, rows: Rows, states: tuple = (), until: int | None = None) -> tuple:
        """Extends the hidden states (h_0, ..., h_j) to (h_0, ..., h_until), by default to h_L, with an adaptation;
        without states it begins with h_0, the word pieces' embeddings."""
        if not states:
            encoder = getattr(adaptation, "backbone", self.backbone)  # fine-tuned: the task's own copy
            sparse = self.sparse_embeddings and self.training and torch.is_grad_enabled()
            states = (embed(encoder, rows, sparse),)
        rows = self._watched(adaptation, rows)
        for i in range(len(states) - 1, self.config.num_hidden_layers if until is None else until):
            states = (*states, self._layer(adaptation, states[-1], rows, i))
        return states

    def _layer(self, adaptation, h: torch.Tensor, rows: Rows, i: int) -> torch.Tensor:
        """The output of layer i, with an adaptation where the method adapts this layer."""
        layers = getattr(adaptation, "backbone", self.backbone).encoder.layer
        inputs = (layers[i], h, rows, adaptation if i in self.method.adapted_layers(len(layers)) else PLAIN, i)
        if self.recomputes and torch.is_grad_enabled():
            return checkpoint(adapted_layer, *inputs, use_reentrant=False, context_fn=same_draws)
        return adapted_layer(*inputs)

    def final_states(self, task: str | None, states: tuple, rows: Rows) -> torch.Tensor:
        """The hidden states (N, d) whose [CLS] the pooler reads: the last layer's output, after any modules on top."""
        if task is None:
            return states[-1]
        adaptation = self.adaptations[task]
        return adaptation.on_top(states, self._watched(adaptation, rows))

    def _first(self, adaptation, rows: Rows, states: tuple = ()) -> torch.Tensor:
        """The final states of [CLS], (B, d), from the hidden states (h_0, ..., h_j) of the layers that have been run.
        Of the last layer no more is run, where nothing else of it is read: by modules on top or a looker."""
        last, watched = self.config.num_hidden_layers - 1, self._watched(adaptation, rows)
        if len(states) > last + 1 or self.whole_last_layer or watched.lookers or not adaptation.reads_first_alone:
            return adaptation.on_top(self._run_layers(adaptation, rows, states), watched)[rows.starts]
        h = self._run_layers(adaptation, rows, states, last)[-1]
        return self._layer(adaptation, h, rows.first_alone(), last)

    def _logits(self, task: str, first: torch.Tensor, rows: Rows) -> torch.Tensor:
        """A task's logits (B, outputs), in the caller's order, from the final states of [CLS], (B, d)."""
        first = first.index_select(0, rows.order.argsort())
        pooled = self.adaptations[task].pool(first, self.pooler)  # (B, d)
        dropout = self.config.hidden_dropout_prob if self.head_dropout is None else self.head_dropout
        return self.heads[task](drop(pooled, dropout, self.training)).float()

    def forward(
        self, task: str, input_ids=None, attention_mask=None, token_type_ids=None, labels=None, rows: Rows | None = None
    ) -> SequenceClassifierOutput:
        """One task's `logits`, (B, classes), or (B, 1) for a score (divided by the task's scale) and for two classes
        with a single logit; and `loss`, that of `classifiers.task_loss`, where `labels` (B,) are given.

        Args:
            input_ids, attention_mask, token_type_ids: a padded batch, (B, S), whose padding is removed first; (2B, S),
                first texts then second texts, for a task that encodes them separately.
            labels: class numbers; for a task with a score, the score divided by the task's scale (STS-B: 5). Those of
                `load_rows` are on the task's own scale, as `one_task` takes them.
            rows: a batch without padding, in place of the padded one.
        """
        if rows is None:
            pack = Rows.grid if torch.compiler.is_exporting() else Rows.from_padded
            rows = pack(input_ids, attention_mask, token_type_ids)
        ours = type(self.method).__module__.startswith("palslib.")
        if ours and not self._lookers and self.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            rows = rows.filled(self.config.pad_token_id or 0)  # lookers and methods of your own see no padding
        logits = self._logits(task, self._first(self.adaptations[self._known(task).name], rows), rows)
        loss = None if labels is None else task_loss(self.tasks[task], logits, labels)
        return SequenceClassifierOutput(loss, logits)

    def forward_many(
        self,
        tasks: Mapping[str, Sequence[int] | None],
        input_ids=None,
        attention_mask=None,
        token_type_ids=None,
        rows: Rows | None = None,
    ) -> dict[str, torch.Tensor]:
        """The logits of several tasks on one batch, with shared layers computed once for each row, and BERT's own maps
        in one pass over the rows of all tasks (`bert/mixed.py`).

        Args:
            tasks: task -> its rows of the batch, or None for all. For tasks that encode the texts of a
                pair separately, each row is a single text: first texts, then as many second texts.
            input_ids, attention_mask, token_type_ids, rows: as in `forward`.

        Gives the same as `forward` called for one task at a time, up to rounding. Nothing is shared between tasks that
        have their own copies of the backbone, or within a block of `watch`.
        """
        rows = Rows.from_padded(input_ids, attention_mask, token_type_ids) if rows is None else rows
        added = {task: self.adaptations[self._known(task).name] for task in tasks}
        apart = len(tasks) == 1 or self.method.copies_backbone or self._lookers  # a looker sees a task at a time
        if not apart and len(rows.input_ids) > sum(rows.lengths):  # padding does not travel with a task's rows
            tasks = {task: range(len(rows)) if some is None else some for task, some in tasks.items()}
        # task -> its rows, and which of all word pieces are theirs
        parts = {task: (rows, slice(None)) if some is None else rows.take(some) for task, some in tasks.items()}
        if apart:
            return {task: self._logits(task, self._first(added[task], own), own) for task, (own, _) in parts.items()}
        layers = self.config.num_hidden_layers
        common = self._run_layers(PLAIN, rows, until=self.method.shared_layers(layers))
        states = {task: tuple(h[pieces] for h in common) for task, (_, pieces) in parts.items()}
        if len(common) > layers:  # every layer is shared
            firsts = [self._first(added[task], own, states[task]) for task, (own, _) in parts.items()]
        else:
            mixed = Mixed(list(added.values()), [own for own, _ in parts.values()])
            joined = tuple(map(torch.cat, zip(*states.values(), strict=True)))
            firsts = self._first(mixed, mixed.rows, joined).split(mixed.numbers)
        return {t: self._logits(t, first, own) for (t, (own, _)), first in zip(parts.items(), firsts, strict=True)}

    def one_task(self, task: str) -> OneTask:
        """This model as a module for one task, called without its name: for Transformers' `Trainer`, `torch.export`,
        ONNX (`one_task.py`)."""
        return OneTask(self, self._known(task))

    merged = merged
    predict = predicting.predict
    predict_file = files.predict_file
    evaluate_file = files.evaluate_file
    fingerprint = saving.fingerprint
    save_task = saving.save_task
    load_task = saving.load_task
    save_pretrained = saving.save_pretrained
    from_pretrained = classmethod(saving.from_pretrained)
    continued = classmethod(saving.continued)
    generate_model_card = saving.model_card

    def parameter_groups(self, weight_decay: float, decay_scales: bool, adaptation_rate: float = 1.0) -> list[dict]:
        """Groups of trained parameters with and without weight decay; vectors (biases, norms and scales) have none.

        Args:
            decay_scales: whether LHUC's vectors have weight decay nevertheless (ledger D15).
            adaptation_rate: the learning rate of the parameters that the method adds, as a multiple of BERT's; the
                multiple of each group is in its `multiple`.
        """
        parts = () if self.method.copies_backbone else (self.adaptations, self.shared)  # a BERT per task adds nothing
        added = {id(p) for part in parts if part is not None for p in part.parameters()}
        scales = {id(p) for part in self.modules() if isinstance(part, Vectors) for p in part.parameters()}
        groups: dict[tuple[bool, bool], list] = {}
        for p in self.parameters():
            if p.requires_grad:
                vector = p.ndim < 2 and not (decay_scales and id(p) in scales)
                groups.setdefault((id(p) in added and adaptation_rate != 1, vector), []).append(p)
        return [
            {"params": some, "weight_decay": 0.0 if vector else weight_decay, "multiple": adaptation_rate if own else 1}
            for (own, vector), some in sorted(groups.items(), key=operator.itemgetter(0))
        ]
