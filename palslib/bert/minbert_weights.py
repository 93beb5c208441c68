"""Loads Hugging Face BERT checkpoints into `minbert.MinBert` by key, and says what does not fit."""

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import AutoConfig
from transformers.utils import cached_file

from palslib.bert.minbert import MinBert

# What a BERT checkpoint may hold beside the encoder: the heads of pre-training and of tasks, and two constant buffers.
OUTSIDE = ("cls.", "classifier.", "qa_outputs.", "embeddings.position_ids", "embeddings.token_type_ids")

# First parts of the keys of other architectures.
OTHERS = {
    "roberta": "RoBERTa",
    "electra": "ELECTRA",
    "embeddings_project": "ELECTRA",
    "distilbert": "DistilBERT",
    "transformer": "DistilBERT",
    "albert": "ALBERT",
    "deberta": "DeBERTa",
}
_SHOWN = 8  # keys of each kind that an error lists


def _ours(key: str) -> str:
    """A checkpoint's key as our model has it; the oldest call a norm's gain and shift gamma and beta."""
    key = key.removeprefix("bert.")
    return key.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def minbert_from_state(config, state: Mapping[str, torch.Tensor], name: str = "this state dict") -> MinBert:
    """A `MinBert` in float32 and eval mode with a copy of the weights of a BERT, with or without heads around it.

    A checkpoint without any pooler gives a model without one. Raises ValueError where another architecture is
    recognised, and where keys are missing, unexpected or of another shape, with the list of them.
    """
    state = {_ours(key): tensor for key, tensor in state.items() if not _ours(key).startswith(OUTSIDE)}
    with torch.device("meta"):  # no memory and no random numbers for weights that are replaced
        model = MinBert(config, pooler=any(key.startswith("pooler.") for key in state))
    shapes = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    wrong = {
        "missing": [key for key in shapes if key not in state],
        "unexpected": [key for key in state if key not in shapes],
        "of another shape": [
            f"{key} {tuple(state[key].shape)}, not {shape}"
            for key, shape in shapes.items()
            if key in state and tuple(state[key].shape) != shape
        ],
    }
    if any(wrong.values()):
        other = [OTHERS[first] for key in state if (first := key.split(".")[0]) in OTHERS]
        what = f"it is of {other[0]}, another architecture" if other else "it does not fit its configuration"
        raise ValueError(f"{name} is no checkpoint of this BERT: {what}" + "".join(map(_listed, wrong.items())))
    model.load_state_dict({k: v.detach().to(torch.float32, copy=True) for k, v in state.items()}, assign=True)
    return model.requires_grad_(True).eval()


def _listed(kind_and_keys: tuple[str, list[str]]) -> str:
    kind, keys = kind_and_keys
    more = f", and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else ""
    return f"\n{len(keys)} {kind}: {'; '.join(keys[:_SHOWN])}{more}" if keys else ""


def load_minbert(place: str | Path) -> MinBert:
    """The `MinBert` of a Hub id, or of a folder with config.json and model.safetensors (or pytorch_model.bin).

    Raises OSError where the files cannot be had, ValueError where they hold no BERT or are damaged.
    """
    place = str(place)
    config = AutoConfig.from_pretrained(place)
    if config.model_type != "bert":
        raise ValueError(f"{place} is of another architecture, {config.model_type!r}; minBERT loads 'bert'")
    for file in ("model.safetensors", "pytorch_model.bin"):
        if path := cached_file(place, file, _raise_exceptions_for_missing_entries=False):
            try:
                state = load_file(path) if file.endswith("safetensors") else torch.load(path, "cpu", weights_only=True)
            except (SafetensorError, UnpicklingError, EOFError, OSError, RuntimeError) as error:  # torch raises any
                raise ValueError(f"{file} of {place} is damaged: {error or 'it is empty'}") from error
            return minbert_from_state(config, state, place)
    raise FileNotFoundError(f"{place} holds neither model.safetensors nor pytorch_model.bin")
