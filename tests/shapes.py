"""Tiny models for the tests: four families of encoder, every method at a small size, and inputs for them."""

import numpy as np
import torch
from transformers.models.auto import AutoConfig, AutoModel

from palslib.bert.rows import Rows
from palslib.data.tasks import Task
from palslib.data.tokens import TokenisedTask
from palslib.methods.ia3 import IA3
from palslib.methods.lora import LoRA
from palslib.methods.method import Method
from palslib.methods.table import METHODS, get_method
from palslib.model.multi_task import MultiTaskModel

D, HEADS, LAYERS, INNER, VOCABULARY = 24, 4, 3, 37, 99
"""An odd number of layers, so that half of them is no integer; an odd inner size, so that mixed-up sizes fail."""

SHAPES = ["bert", "roberta", "xlm-roberta", "bert-without-pooler"]
EVERY = [*METHODS, LoRA("lora"), IA3("ia3")]
FROZEN = [name for name, m in METHODS.items() if m.freeze != "nothing"]
ON_TOP = [name for name in METHODS if "on-top" in name]
STARTS_AS_BACKBONE = [name for name in METHODS if name not in [*ON_TOP, "feature-extraction"]]


def tiny_encoder(shape="bert", seed=0, attention="sdpa", dropout: float = 0.0, layers: int = LAYERS, **options):
    """An encoder of a model type (or `bert-without-pooler`) in eval mode, with random weights, whose standard deviation
    (0.2) makes attention far from uniform; `options` are other fields of its configuration."""
    sizes = {"hidden_size": D, "num_hidden_layers": layers, "num_attention_heads": HEADS, "intermediate_size": INNER}
    sizes |= {"vocab_size": VOCABULARY, "max_position_embeddings": 40, "initializer_range": 0.2}
    sizes |= {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    if "roberta" in shape:
        sizes |= {"type_vocab_size": 1, "pad_token_id": 1}
    config = AutoConfig.for_model(shape.removesuffix("-without-pooler"), **sizes | options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = AutoModel.from_config(config, attn_implementation=attention).eval()
        with torch.no_grad():  # Hugging Face sets biases to 0 and norms to 1, which would hide a mix-up
            for parameter in encoder.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
    if shape == "bert-without-pooler":
        encoder.pooler = None
    return encoder


def tiny_method(name: str, **options) -> Method:
    """A method of `METHODS` with size 12, for d = 24, and 3 heads of width 4 where it has heads."""
    method = get_method(name)
    small = {"size": 12} if method.has_size else {}
    if "heads" in method.options():
        small["heads"] = 3
    return method.with_options(**(small | options))


def tiny_model(
    name: str, shape: str = "bert", tasks=("rte", "stsb"), seed=0, attention="sdpa", dropout=0.0, mode="eval", **options
) -> MultiTaskModel:
    """A tiny model, by default with a classification task and a regression task."""
    encoder = tiny_encoder(shape, attention=attention, dropout=dropout)
    model = MultiTaskModel.from_backbone(encoder, tiny_method(name, **options), tasks, seed)
    return model.train(mode == "train")


def batch(shape: str = "bert", rows: int = 3, width: int = 7, pad: int = 0) -> dict[str, torch.Tensor]:
    """A padded batch: row i has `width - i` tokens, so the longest has `width`; `pad` adds columns of padding only."""
    draw = torch.Generator().manual_seed(1)
    lengths = width - torch.arange(rows)
    mask = (torch.arange(width + pad) < lengths[:, None]).long()
    ids = torch.zeros(rows, width + pad, dtype=torch.long)
    ids[:, :width] = torch.randint(5, VOCABULARY, (rows, width), generator=draw)
    padding = 1 if "roberta" in shape else 0
    types = (torch.arange(width + pad) >= 3).long() * mask
    return {"input_ids": torch.where(mask > 0, ids, padding), "attention_mask": mask, "token_type_ids": types}


def tokens(task: Task, lengths, labels) -> TokenisedTask:
    """A task's rows of so many word pieces each."""
    ids = np.random.default_rng(3).integers(5, VOCABULARY, sum(lengths))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return TokenisedTask(task, ids, np.zeros_like(ids), offsets, np.asarray(labels), 0, 0)


@torch.no_grad()
def logits_of(model: MultiTaskModel, shape: str = "bert", task: str = "rte") -> torch.Tensor:
    """A task's logits on `batch(shape)`."""
    return model(task, **batch(shape)).logits


@torch.no_grad()
def states(model: MultiTaskModel, task: str | None, inputs: dict) -> list[torch.Tensor]:
    """The hidden states of all layers under a task, (B, S, d) each, zero at padding."""
    rows = Rows.from_padded(**inputs)
    return [rows.padded(h) for h in model.encode(task, rows)]


@torch.no_grad()
def randomise(module: torch.nn.Module, seed: int = 7, std: float = 0.3) -> None:
    """Adds normal noise to every parameter of a module, so that no V^D is zero and no norm is at its initial value."""
    draw = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.add_(std * torch.randn(parameter.shape, generator=draw))


def moved(model: MultiTaskModel) -> MultiTaskModel:
    """The model as if trained: all parameters that the method adds differ from their initial values."""
    randomise(model.adaptations)
    if model.shared is not None:
        randomise(model.shared)
    return model


def randomised(name: str, shape: str = "bert", **options) -> MultiTaskModel:
    """A tiny model as if trained."""
    return moved(tiny_model(name, shape, **options))


def equal_states(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    """Whether two modules have the same keys and, bit for bit, the same values of the same types."""
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(a[key].dtype == b[key].dtype and torch.equal(a[key], b[key]) for key in a)
