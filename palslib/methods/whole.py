"""Methods for comparison: BERT with nothing added, a whole copy of BERT for each task, features of a frozen BERT."""

from dataclasses import dataclass
from typing import ClassVar

from palslib.methods.method import Box, Freeze, Method, Part, Term


@dataclass(frozen=True, kw_only=True)
class Shared(Method):
    """All tasks share all of BERT; each has only a head of its own."""

    kind: ClassVar[str] = "shared"

    def __post_init__(self):
        super().__post_init__()
        if self.freeze != "nothing":
            raise ValueError(
                f"nothing to train: {self.name!r} adds no parameters and its backbone is frozen "
                f"(freeze={self.freeze!r}); 'feature-extraction' is the method that trains heads on a frozen backbone"
            )


@dataclass(frozen=True, kw_only=True)
class FineTuned(Method):
    """A whole copy of the backbone for each task: the 8x parameters that the paper avoids."""

    kind: ClassVar[str] = "fine-tuned"
    copies_backbone: ClassVar[bool] = True

    @classmethod
    def options(cls):
        return []

    def terms(self, backbone):
        yield Term("a whole backbone", "all of BERT", backbone.parameters)
        yield Term("the one it replaces", "all of BERT", backbone.parameters, "replaced")

    def parts(self, backbone):
        return [Part("copy", ())]

    def captions(self, backbone):
        return [("layer", "a whole BERT per task")]

    def build(self, encoder, pooler, shared=None):
        from palslib.methods.functions import OwnBackbone

        return OwnBackbone(self, encoder, pooler)


@dataclass(frozen=True, kw_only=True)
class FeatureExtraction(Method):
    """γ Σ softmax(w)_l h_l over the frozen backbone's embeddings and layers (Peters et al. 2019; ledger C18)."""

    kind: ClassVar[str] = "feature-extraction"

    freeze: Freeze = "backbone"

    def __post_init__(self):
        super().__post_init__()
        if self.freeze == "nothing":
            raise ValueError(f"{self.name!r} reads a frozen backbone; freeze='nothing' contradicts it")

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
        from palslib.methods.functions_on_top import ScalarMix

        return ScalarMix(self, encoder, pooler)
