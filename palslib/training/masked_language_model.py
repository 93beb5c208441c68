"""BERT as a masked language model: the choice of word pieces, their replacement, and how well they are predicted.

Devlin et al. 2019, section 3.1 and appendix A.1 (https://arxiv.org/abs/1810.04805): 15 % of the word pieces are chosen;
80 % of those become [MASK], 10 % a random piece, 10 % stay, and the loss is the cross entropy of the original pieces.
"""

import math
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from transformers import BertForMaskedLM

from palslib.bert.backbones import INCLUDED, load_config, load_encoder, plain
from palslib.bert.draws import new_weights
from palslib.bert.encoders import check_encoder, hidden_states
from palslib.bert.rows import Rows
from palslib.common.precision import autocast, precision_of
from palslib.common.processes import progress_bar
from palslib.common.seeds import seed_from
from palslib.plan.config import RunConfig

CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1  # CHOSEN of all pieces; MASKED and RANDOM of the chosen ones
ROWS_MEASURED = 64  # rows per batch; the masks depend on it
HEAD = "masked_language_model.safetensors"  # beside the encoder, in folders that `pretraining` writes


def mask(ids: torch.Tensor, tokenizer, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The word pieces (N,) after masking, and which were chosen (N,); special ones ([CLS], [SEP]) never are."""
    generator = torch.Generator().manual_seed(seed)
    choice, fate = (torch.rand(ids.shape, generator=generator, device="cpu") for _ in range(2))
    chosen = (choice < CHOSEN) & ~torch.isin(ids, torch.tensor(tokenizer.all_special_ids, device="cpu"))
    random = torch.randint(len(tokenizer), ids.shape, generator=generator, device="cpu")
    replaced = torch.where(fate < MASKED, tokenizer.mask_token_id, torch.where(fate < MASKED + RANDOM, random, ids))
    return torch.where(chosen, replaced, ids), chosen


def masked_language_model(backbone: str, seed: int = 0, weights: str = "pretrained") -> BertForMaskedLM:
    """The backbone with its pooler, which is not trained, and its own masked-language-model head, or a new one if it
    has none; with random `weights` everything is new."""
    config, name = load_config(backbone), plain(backbone)
    if config.model_type != "bert":
        raise ValueError(f"backbone {backbone!r} is of type {config.model_type}; further pre-training needs type bert")
    encoder, head = load_encoder(name, seed, weights), Path(name) / HEAD
    has_head = name not in INCLUDED and head.is_file()
    with new_weights(seed_from(seed, "masked language model")):
        if weights == "random" or name in INCLUDED or has_head:
            model = BertForMaskedLM(config)
        else:  # if the checkpoint has no head, transformers says so
            model = BertForMaskedLM.from_pretrained(name, dtype=torch.float32)
    if weights == "pretrained" and has_head:
        model.cls.load_state_dict(load_file(head))
    model.bert = encoder
    model.tie_weights()
    check_encoder(encoder)
    return model


def predict_chosen(model, rows: Rows, tokenizer, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits (n, vocabulary) at the n chosen word pieces of a batch, and the original pieces (n,)."""
    seen, chosen = (x.to(rows.input_ids.device) for x in mask(rows.input_ids.cpu(), tokenizer, seed))
    h = hidden_states(model.bert, replace(rows, input_ids=seen))  # (N, d)
    return model.cls(h[chosen]).float(), rows.input_ids[chosen]


def dev_scores(model, data: dict, tokenizer, config: RunConfig, device) -> dict[str, float]:
    """Accuracy (percent), mean loss, perplexity and number of the chosen pieces of dev texts, masked by the seed."""
    loss, right, pieces = 0.0, 0, 0
    model.eval()
    bar = progress_bar(None, "evaluation", config.progress, total=sum(map(len, data.values())), unit=" rows")
    with torch.inference_mode(), autocast(precision_of(config.precision, device), device), bar:
        for task, rows in data.items():
            for i in range(0, len(rows), ROWS_MEASURED):
                some = range(i, min(i + ROWS_MEASURED, len(rows)))
                batch = rows.batch(some, device=device)["rows"]
                logits, labels = predict_chosen(model, batch, tokenizer, seed_from(config.seed, task, i))
                loss += cross_entropy(logits, labels, reduction="sum").item()
                right += (logits.argmax(-1) == labels).sum().item()
                pieces += len(labels)
                bar.update(len(some))
    model.train()
    mean = loss / max(pieces, 1)
    if mean > 700:  # its exponential is too large for a float
        raise FloatingPointError(f"the mean loss on dev texts is {mean:,.0f}: training has diverged")
    return {"accuracy": 100 * right / max(pieces, 1), "loss": mean, "perplexity": math.exp(mean), "pieces": pieces}
