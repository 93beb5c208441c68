"""The cost of answering for several tasks: layer passes, and multiply-adds of matrix products, in closed form.

Stickland & Murray 2019, introduction and discussion: task functions on top of BERT let all tasks share one pass through
it; those within BERT do not. For T tasks and L layers, of which all tasks share the first k (`Method.shared_layers`):

    layer passes = k + T (L - k)        k = L on top, L/2 for PALs in the top half, 0 for PALs in every layer

For S tokens, a layer multiplies S (4d² + 2 d d_ff) times in its matrices and 2 S² d times in its attention. Additions,
norms, activations, scales and look-ups are left out: they are small, and not matrix products.
"""

from dataclasses import dataclass
from numbers import Integral

from palslib.methods.backbone import Backbone
from palslib.methods.method import Method
from palslib.methods.table import get_method


def layer_passes(method: str | Method, num_layers: int, num_tasks: int) -> int:
    """How many times layers of the backbone, or of a task's copy of it, run for all tasks on one input.

    >>> layer_passes("pals-276-top", 12, 8)  # 6 + 8 · 6, in place of 8 · 12 = 96
    54
    """
    shared = get_method(method).shared_layers(num_layers)
    return shared + num_tasks * (num_layers - shared)


@dataclass(frozen=True)
class Operations:
    """Multiply-adds for one text."""

    shared: int
    """Done once for all tasks."""
    per_task: int
    """Done for each task: its layers, what it adds to them or puts on top, the pooler; not the classifier."""

    def total(self, num_tasks: int) -> int:
        """Multiply-adds for `num_tasks` tasks in one pass."""
        return self.shared + num_tasks * self.per_task


def count_operations(method: str | Method, backbone="bert-base-uncased", tokens: int = 128, **options) -> Operations:
    """Multiply-adds for one text of `tokens` word pieces; `options` change the method. The last layer counts like the
    others, as in the paper, though the model computes it for [CLS] alone (`MultiTaskModel.whole_last_layer`).

    >>> round(count_operations("shared").total(1) / 1e9, 1)  # BERT-base, 128 tokens
    11.2
    """
    m, b = get_method(method, **options), Backbone.of(backbone)
    if not isinstance(tokens, Integral) or tokens < 1:
        raise ValueError(f"tokens must be a positive integer, not {tokens!r}")
    tokens = int(tokens)
    d, k, layer = b.hidden_size, m.shared_layers(b.num_layers), b.layer_operations(tokens)
    own = (b.num_layers - k) * layer + m.operations(b, tokens) + d * d  # the pooler reads one token
    return Operations(0, own) if m.copies_backbone else Operations(k * layer, own)
