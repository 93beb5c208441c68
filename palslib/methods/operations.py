"""What answering for several tasks costs: layer passes, and multiply-adds of matrix products, by closed form.

Stickland & Murray 2019, introduction and section 5: task functions on top of BERT let all tasks share one pass through
it, those within BERT do not. For T tasks, L layers of which the first k are no task's own (`Method.shared_layers`):

    layer passes = k + T (L - k)        k = L on top, L/2 for PALs in the top half, 0 for PALs in every layer

A layer on S tokens multiplies S (4d² + 2 d d_ff) times in its matrices and 2 S² d times in its attention. Additions,
norms, activations, scales and look-ups are left out: they are small, and not matrix products.
"""

from dataclasses import dataclass
from itertools import pairwise

from palslib.methods.counting import Backbone
from palslib.methods.table import Method, get_method


def layer_passes(method: str | Method, num_layers: int, num_tasks: int) -> int:
    """How often a layer of the backbone, or of a task's copy of it, runs for all tasks on one input.

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
        """For so many tasks in one pass."""
        return self.shared + num_tasks * self.per_task


def _added(m: Method, b: Backbone, S: int) -> int:
    """What one task's own parameters multiply."""
    d, s, n = b.hidden_size, m.size or 0, m.on_top or len(m.adapted_layers(b.num_layers))
    if m.kind in ("pal", "attention-on-top"):  # 2ds in each layer, or once around all layers on top
        output = s * s * (m.kind == "attention-on-top")
        return (n if m.kind == "pal" else 1) * S * 2 * d * s + n * (S * (3 * s * s + output) + 2 * S * S * s)
    if m.kind in ("ffn", "ffn-on-top"):
        inside = sum(a * c for a, c in pairwise((s, *m.inner, s)))
        return S * ((n if m.kind == "ffn" else 1) * 2 * d * s + n * inside)
    if m.kind in ("low-rank", "serial"):
        return n * S * 2 * d * s
    if m.kind == "houlsby":  # twice in each layer, however many of them share one
        return b.num_layers * 2 * S * 2 * d * s + d * d * (m.classifier_layers == 2)
    if m.kind == "feature-extraction":
        return S * d * (b.num_layers + 1)
    return _layer(b, S) if m.kind == "bert-layer-on-top" else 0


def _layer(b: Backbone, S: int) -> int:
    d = b.hidden_size
    return S * (4 * d * d + 2 * d * b.intermediate_size) + 2 * S * S * d


def count_operations(method: str | Method, backbone="bert-base-uncased", tokens: int = 128, **options) -> Operations:
    """Multiply-adds for one text of so many tokens; `options` change the method.

    >>> round(count_operations("shared").total(1) / 1e9, 1)  # BERT-base, 128 tokens
    11.2
    """
    m, b = get_method(method, **options), Backbone.of(backbone)
    if not isinstance(tokens, int) or tokens < 1:
        raise ValueError(f"tokens must be a positive integer, not {tokens!r}")
    d, k, layer = b.hidden_size, m.shared_layers(b.num_layers), _layer(b, tokens)
    embeddings = tokens * d * b.embedding_size if b.embedding_size not in (None, d) else 0
    own = (b.num_layers - k) * layer + _added(m, b, tokens) + d * d  # the pooler reads one token
    if m.kind == "fine-tuned":
        return Operations(0, own + embeddings)
    return Operations(k * layer + embeddings, own)
