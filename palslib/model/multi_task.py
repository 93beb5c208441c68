"""One BERT, many tasks: the adapted layer and the model around it.

Stickland & Murray 2019, section 3.2, with BERT's own inner residual written out. MH is multi-head attention, FFN the
feed-forward network, LN a layer norm (https://arxiv.org/abs/1902.02671):

    a = LN( h + A₁(MH(h)) )                 A₁  Houlsby, after attention
    f = A₂(FFN(a))                          A₂  Houlsby, after the feed-forward
    y = scale( LN( a + f + TS(h) ) )        TS  PAL, low rank, FFN;  scale  LHUC;  serial: y + TS(y)
"""

import hashlib
from dataclasses import dataclass

import torch
from torch import nn
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.bert.modeling_bert import BertPooler

from palslib.bert.backbones import load_encoder
from palslib.bert.dropout import use_fast_dropout
from palslib.common import check_name
from palslib.data.tasks import Task, get_task
from palslib.methods.functions import LHUC, Adaptation, make_projections
from palslib.methods.on_top import build_adaptation, initialise, plain_class
from palslib.methods.table import Method, get_method
from palslib.model.classifiers import make_head, task_loss
from palslib.model.predicting import Serving
from palslib.model.saving import Saved


class AdaptedLayer:
    """Mixin in front of a backbone's layer class: the equation, with the active task's adaptation as an argument."""

    def forward(self, hidden_states, attention_mask=None, *args, adaptation: Adaptation | None = None, **kwargs):
        """h (B, S, d) to y (B, S, d). Without an adaptation the layer is the backbone's own."""
        if adaptation is None:
            return super().forward(hidden_states, attention_mask, *args, **kwargs)
        i, h, sums = self.layer_index, hidden_states, (self.attention.output, self.output)
        norm_a, norm_y = adaptation.norms(i) or (sums[0].LayerNorm, sums[1].LayerNorm)

        mh = sums[0].dropout(sums[0].dense(self.attention.self(h, attention_mask, **kwargs)[0]))
        a = norm_a(adaptation.after_attention(i, mh) + h)
        ffn = sums[1].dropout(sums[1].dense(self.intermediate(a)))
        y = adaptation.after_feed_forward(i, ffn, a) + a
        if (ts := adaptation.parallel(i, h, attention_mask)) is not None:
            y = y + ts
        return adaptation.after_layer(i, norm_y(y))


class _Reached(Exception):
    """Raised by the probe of `adapt_layers`."""


class _Probe:
    def norms(self, layer):
        raise _Reached


def _is_bert_layer(layer: nn.Module) -> bool:
    """Whether a layer has the parts that the equation names, and no others (a further norm, a second stream)."""
    names = {name for name, _ in layer.named_children()}
    if names != {"attention", "intermediate", "output"}:
        return False
    if {name for name, _ in layer.attention.named_children()} != {"self", "output"}:
        return False
    sums = (layer.attention.output, layer.output)
    return all(hasattr(part, name) for part in sums for name in ("dense", "dropout", "LayerNorm"))


def adapt_layers(encoder: nn.Module) -> nn.Module:
    """Puts `AdaptedLayer` in front of each layer's class, in place; weights, keys and `isinstance` stay as they were.

    Raises ValueError for an encoder whose layers are not BERT's (attention with output, intermediate, output), or that
    does not hand its call arguments on to them: a task's parameters would have no effect there.
    """
    name, layers = type(encoder).__name__, getattr(getattr(encoder, "encoder", None), "layer", None)
    if layers is None or not all(map(_is_bert_layer, layers)):
        raise ValueError(
            f"{name} is not BERT-shaped: its layers are not encoder.layer[i].{{attention.{{self, output}}, "
            "intermediate, output}} with a layer norm in each output"
        )
    if getattr(encoder.config, "is_decoder", False):
        raise ValueError(f"{name} is a decoder; palslib adapts encoders")
    for i, layer in enumerate(layers):
        plain = plain_class(layer)
        layer.__class__ = type(f"Adapted{plain.__name__}", (AdaptedLayer, plain), {"plain_class": plain})
        layer.layer_index = i
    device, cause = next(encoder.parameters()).device, None
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            encoder(input_ids=torch.zeros((1, 2), dtype=torch.long, device=device), adaptation=_Probe())
    except _Reached:
        return encoder
    except Exception as error:
        cause = error
    for layer in layers:
        layer.__class__ = plain_class(layer)
    raise ValueError(f"{name} is not BERT-shaped: it does not hand call arguments on to its layers") from cause


@dataclass
class Output:
    """What a forward pass returns."""

    logits: torch.Tensor
    """(B, classes), (B, 1) for a score divided by the task's scale, or (B, 1) for two classes by one logit."""
    loss: torch.Tensor | None = None
    """The mean over rows of `heads.task_loss`; None without labels."""


class MultiTaskModel(Saved, Serving, nn.Module):
    """A backbone that tasks share, and for each task one `adaptations[task]` and one `heads[task]`."""

    def __init__(self, encoder: nn.Module, method: str | Method, tasks, seed: int = 0, backbone_name: str = ""):
        super().__init__()
        self.method, self.seed, self.backbone_name = get_method(method), seed, backbone_name
        self.tasks: dict[str, Task] = {}
        self.head_dropout: float | None = None  # of the pooled [CLS]; None: the backbone's own
        self.config = encoder.config
        self.backbone = use_fast_dropout(adapt_layers(encoder))
        pooler = getattr(encoder, "pooler", None) or getattr(encoder, "moved_pooler", (None,))[0]
        self.pooler_is_new = pooler is None  # ELECTRA has none
        self.pooler = pooler or self._drawn("pooler", lambda: BertPooler(self.config))
        # It is called here, after what goes on top. A second model on this encoder finds it in the tuple, where it is
        # not registered.
        encoder.pooler, encoder.moved_pooler = None, (pooler,)
        self.shared = None  # what tasks share beyond the backbone
        if self.method.sharing.endswith("tasks"):
            self.shared = self._drawn("shared", lambda: make_projections(self.method, self.config))
        self.adaptations, self.heads = nn.ModuleDict(), nn.ModuleDict()
        for task in tasks:
            self.add_task(task)
        self.requires_grad_where_trained()
        self.train(encoder.training)  # all parts in one mode; `load_encoder` gives it in eval mode

    @classmethod
    def from_backbone(cls, backbone="minilm", method="pals-204", tasks=("rte",), seed: int = 0, **options):
        """A model on a pre-trained backbone.

        Args:
            backbone: `minilm`, `tiny`, a Hub id or folder, each also with `minbert:` before it; or an encoder already
                loaded (it is adapted in place).
            method: a name of `METHODS` or a `Method`; `options` change it (`size=120`, `freeze="backbone"`).
            tasks: names of `TASKS`, or `Task`s.
            seed: of all that is drawn at random; each task's draw depends on it and the task's name alone.
        """
        name = backbone if isinstance(backbone, str) else type(backbone).__name__
        encoder = load_encoder(backbone, seed) if isinstance(backbone, str) else backbone
        return cls(encoder, get_method(method, **options), tasks, seed, name)

    def _drawn(self, name: str, make):
        """Makes a module from random numbers that depend on the seed and a name alone."""
        number = int.from_bytes(hashlib.sha256(f"{self.seed} {name}".encode()).digest()[:7], "little")
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(number)  # torch.manual_seed would reset a GPU's generator too
            module = make()
            if not isinstance(module, Adaptation):
                initialise(module, self.method, self.config.initializer_range)
        return module

    def add_task(self, task: str | Task) -> None:
        """Gives one more task its parameters; nothing of the other tasks changes."""
        task = get_task(task)
        if task.name in self.tasks:
            raise ValueError(f"task {task.name!r} is already in the model (tasks: {', '.join(self.tasks)})")
        head = self._drawn(f"head {task.name}", lambda: make_head(task, self.config.hidden_size))
        adaptation = self._drawn(
            task.name, lambda: build_adaptation(self.method, self.backbone, self.pooler, self.shared)
        )
        use_fast_dropout(adaptation)
        device = self.pooler.dense.weight.device
        self.tasks[task.name] = task
        self.heads[task.name] = head.to(device).train(self.training)
        # What is copied from a backbone that is not trained is trained all the same.
        self.adaptations[task.name] = adaptation.to(device).train(self.training).requires_grad_(True)

    def _known(self, task: str) -> Task:
        return self.tasks[check_name("task of this model", task, self.tasks)]

    def remove_task(self, task: str) -> None:
        """Takes a task and its parameters out."""
        self._known(task)
        del self.tasks[task], self.heads[task], self.adaptations[task]

    def requires_grad_where_trained(self) -> None:
        """Freezes what the method does not train: the backbone, or all of it but its layer norms; or trains all.

        Parts that the tasks' own copies replace (separate poolers, fine-tuned models) are not trained either. A pooler
        that did not come with the backbone always is: frozen it would be noise.
        """
        method, frozen = self.method, self.method.freeze != "nothing"
        self.requires_grad_(True)
        if frozen or method.kind == "fine-tuned":
            self.backbone.requires_grad_(False)
        if method.kind == "fine-tuned" or method.pooler == "per-task" or (frozen and not self.pooler_is_new):
            self.pooler.requires_grad_(False)
        if self.method.freeze == "backbone but norms":
            for part in self.backbone.modules():
                if isinstance(part, nn.LayerNorm):
                    part.requires_grad_(True)

    def checkpoint_activations(self) -> None:
        """Recomputes activations in the backward pass to save memory (gradient checkpointing), in tasks' copies too."""
        for part in self.modules():
            if hasattr(part, "activation_checkpointing_enable"):  # Hugging Face's models and ours
                part.activation_checkpointing_enable({"use_reentrant": False})

    def encode(self, task: str | None, input_ids, attention_mask=None, token_type_ids=None, **kwargs):
        """The backbone's output under a task's adaptation (None: the plain backbone), before what goes on top."""
        adaptation = self.adaptations[self._known(task).name] if task is not None else None
        if self.config.type_vocab_size < 2:  # RoBERTa has one token type, whatever the tokenizer says
            token_type_ids = None
        encoder = getattr(adaptation, "encoder", None) or self.backbone
        return encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            adaptation=adaptation,
            **kwargs,
        )

    def forward(self, task: str, input_ids, attention_mask=None, token_type_ids=None, labels=None) -> Output:
        """One task's logits, and its loss where `labels` (B,) are given; inputs are (B, S), or (2B, S), first texts
        then second texts, for a task that encodes them apart."""
        adaptation = self.adaptations[self._known(task).name]
        encoded = self.encode(
            task, input_ids, attention_mask, token_type_ids, output_hidden_states=adaptation.needs_all_layers
        )
        states = encoded.hidden_states if adaptation.needs_all_layers else (encoded.last_hidden_state,)
        logits = self.logits(task, states, create_bidirectional_mask(self.config, states[-1], attention_mask))
        return Output(logits, None if labels is None else task_loss(self.tasks[task], logits, labels))

    def logits(self, task: str, states: tuple[torch.Tensor, ...], mask: torch.Tensor | None) -> torch.Tensor:
        """From hidden states (B, S, d), of all layers or the last one alone, to a task's logits (B, outputs)."""
        adaptation = self.adaptations[task]
        pooled = adaptation.pool(adaptation.on_top(states, mask), self.pooler)  # (B, d)
        dropout = self.config.hidden_dropout_prob if self.head_dropout is None else self.head_dropout
        pooled = nn.functional.dropout(pooled, dropout, self.training)
        return self.heads[task](pooled).float()

    def parameter_groups(self, weight_decay: float, decay_lhuc: bool = False) -> list[dict]:
        """Trained parameters with and without weight decay: none on vectors, which are biases, norms and scales."""
        scales = {id(p) for m in self.modules() if isinstance(m, LHUC) for p in m.parameters()} if decay_lhuc else ()
        trained = [p for p in self.parameters() if p.requires_grad]
        decayed = [p.ndim > 1 or id(p) in scales for p in trained]
        return [
            {"params": [p for p, d in zip(trained, decayed, strict=True) if d], "weight_decay": weight_decay},
            {"params": [p for p, d in zip(trained, decayed, strict=True) if not d], "weight_decay": 0.0},
        ]
