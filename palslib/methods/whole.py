"""Methods for comparison: BERT with nothing added, a whole copy of BERT for each task, features of a frozen BERT.

The features are those of Peters et al. 2019 (https://arxiv.org/abs/1903.05987), over embeddings h_0 and all layers:

    γ Σ softmax(w)_l h_l
"""

import copy
from dataclasses import dataclass
from typing import ClassVar, Literal

from palslib.bert.later import nn, torch
from palslib.methods.adaptation import Adaptation
from palslib.methods.method import Box, Method, Part, Term


@dataclass(frozen=True, kw_only=True)
class Shared(Method, kind="shared"):
    """All tasks share all of BERT; each has only a head of its own."""

    freeze: Literal["nothing"] = "nothing"
    """It trains the whole backbone; `feature-extraction` trains heads on a frozen one."""


@dataclass(frozen=True, kw_only=True)
class FineTuned(Method, kind="fine-tuned"):
    """A whole copy of the backbone for each task: the 8x parameters that the paper avoids."""

    copies_backbone: ClassVar[bool] = True

    pooler: Literal["shared"] = "shared"
    """Each task's copy has a pooler already."""
    freeze: Literal["nothing"] = "nothing"
    """The copies are all that is trained."""

    def terms(self, backbone):
        yield Term("a whole backbone", "all of BERT", backbone.parameters)
        yield Term("the one it replaces", "all of BERT", backbone.parameters, "replaced")

    def parts(self, backbone):
        return [Part("copy", ())]

    def captions(self, backbone):
        return [("layer", "a whole BERT per task")]

    def build(self, encoder, pooler, shared=None):
        return OwnBackbone(self, encoder, pooler)


class OwnBackbone(Adaptation):
    """A task's copy of the backbone."""

    def __init__(self, method: FineTuned, encoder, pooler):
        super().__init__(method, encoder, pooler)
        self.backbone = copy.deepcopy(encoder)
        self.pooler = copy.deepcopy(pooler) if getattr(encoder, "pooler", None) is None else None

    def pool(self, first, pooler):
        return super().pool(first, self.pooler or self.backbone.pooler)

    def merge(self, layers):
        """Nothing is to be done: what is merged is a copy of this backbone and its pooler."""

    def copied(self):
        return [self.backbone, *super().copied()]


@dataclass(frozen=True, kw_only=True)
class FeatureExtraction(Method, kind="feature-extraction"):
    """γ Σ softmax(w)_l h_l over the frozen backbone's embeddings and layers (Peters et al. 2019; ledger C18)."""

    freeze: Literal["backbone", "backbone but norms"] = "backbone"
    """The part of BERT that is not trained."""

    def terms(self, backbone):
        yield Term("scalar mix of all layers", "L + 2", backbone.num_layers + 2)

    def operations(self, backbone, tokens):
        return tokens * backbone.hidden_size * (backbone.num_layers + 1)

    def parts(self, backbone):
        words = f"softmax-weighted sum\nof {backbone.num_layers} layers and embeddings"
        return [Part("over all layers", (Box(words),))]

    def captions(self, backbone):
        return [("layer", f"{backbone.num_layers + 2} numbers per task")]

    def build(self, encoder, pooler, shared=None):
        return ScalarMix(self, encoder, pooler)


class ScalarMix(Adaptation):
    """A task's weights w and scale γ."""

    def __init__(self, method: FeatureExtraction, encoder, pooler):
        super().__init__(method, encoder, pooler)
        self.mix = nn.Parameter(torch.zeros(encoder.config.num_hidden_layers + 1))
        self.gamma = nn.Parameter(torch.ones(1))

    def on_top(self, states, rows):
        return self.gamma * torch.einsum("l,lnd->nd", self.mix.softmax(0), torch.stack(states))
