"""The module that holds everything one task adds to BERT, in all layers: the base of those in the methods' files.

`bert/layer.py` names the places of a layer that an `Adaptation` can fill; a method fills some of them, and the
others stay the identity.
"""

import copy

from palslib.bert.later import Module, nn, torch
from palslib.bert.layer import Places


class Adaptation(Module, Places):
    """One task's own parameters under a method. This base class adds nothing (method `shared`)."""

    starts_as_bert = True
    """Whether V^D starts at zero (unless the method's `init` is `normal`). On top, all outputs would then be zero."""

    def __init__(self, method, encoder, pooler):
        super().__init__()
        self.method, self.layers = method, method.adapted_layers(encoder.config.num_hidden_layers)
        places = [name for name, plain in vars(Places).items() if callable(plain)]
        acts = [name for name in places if getattr(type(self), name) != getattr(Places, name)]
        who = f"{type(self).__name__} of method {method.name!r}"
        if acts and not self.layers:
            wrong = f"defines {', '.join(acts)} for layers, but adapts no layer of this backbone"
            advice = "give its family a field `layers: Half = 'all'`, or override `adapted_layers`"
            raise ValueError(f"{who} {wrong}: {advice}")
        if self.layers and not acts:
            raise ValueError(f"{who} must define at least one of {', '.join(places)}")
        self.pooler = copy.deepcopy(pooler) if method.pooler == "per-task" else None

    @property
    def reads_first_alone(self) -> bool:
        """Whether only [CLS] of the last layer is read, so that no more of it is computed (`Rows.first_alone`): not
        below modules on top. A class of your own may relate word pieces: it gets the whole layer, unless it says so."""
        known = all(type(part).__module__.startswith("palslib.") for part in (self, self.method))
        return known and type(self).on_top is Adaptation.on_top

    def on_top(self, states, rows):
        """The output (N, d) after the last layer; `states`, each (N, d), ends with the last layer's output."""
        return states[-1]

    def pool(self, first, pooler):
        """The pooled states (B, d) of each row's first word piece, [CLS] (B, d), by the task's own pooler, if any."""
        return (self.pooler or pooler)(first[:, None])  # a pooler expects (B, S, d) and reads the first piece

    def merge(self, layers) -> None:
        """Changes the matrices of BERT's layers so that they compute the same without this module, where that can be:
        for LoRA, and for what adds nothing. Raises ValueError for others."""
        if self.layers or type(self).on_top is not Adaptation.on_top or type(self).pool is not Adaptation.pool:
            raise ValueError(f"method {self.method.name!r} cannot be merged: it changes more than matrices of BERT's")

    def copied(self) -> list:
        """The parts that start as copies of the backbone's and are not drawn at random."""
        return [self.pooler] if self.pooler is not None else []

    def draw(self, std: float) -> None:
        """Draws added parameters: matrices of `nn.Linear` from N(0, std), except those that their module has set to
        zeros (LoRA's B); biases 0; V^D 0 for a method within layers (ledger D8). A bare `nn.Parameter` stays as it was
        made. A family of your own can override this."""
        initialise(self, std, getattr(self.method, "init", "identity"), self.starts_as_bert, self.copied())


def initialise(module, std: float, init: str, starts_as_bert: bool, copied=()) -> None:
    """Draws as `Adaptation.draw` says, but not `copied` parts; a part's `start_as_bert` sets its V^D to zero."""
    kept = {id(p) for part in copied for p in part.parameters()}
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.Linear) and id(part.weight) not in kept:
                if part.weight.is_meta or part.weight.any():  # zeros are intended: `nn.Linear` draws none
                    part.weight.normal_(0, std)
                if part.bias is not None:
                    part.bias.zero_()
            elif isinstance(part, nn.LayerNorm) and init == "normal" and id(part.weight) not in kept:
                for parameter in part.parameters():
                    parameter.normal_(0, std)
        if starts_as_bert and init == "identity":
            for part in module.modules():
                if hasattr(part, "start_as_bert"):
                    part.start_as_bert()
