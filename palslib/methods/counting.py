"""How many parameters a method adds, by closed form, term by term, in integers.

Stickland & Murray 2019, section 2: eight separate BERTs cost 8x, PALs 1.13x. With hidden size d and projected size s, a
task's PALs cost 2ds for V^E and V^D plus 3s^2 in each of L layers (section 3.3); 1,811,520 for BERT-base and s = 204.
The paper's figures leave out biases and the gains and shifts of layer norms; `exact=True` counts those too and equals
what a built model holds.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from palslib.common import unknown
from palslib.methods.table import Method, get_method

PAPER_BUDGET = 15_000_000  # parameters added for eight tasks on BERT-base: the paper's "1.13x" (ledger A27, B13)


@dataclass(frozen=True)
class Backbone:
    """The sizes of a BERT-shaped encoder; `parameters` counts it whole, pooler included."""

    name: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int = 512
    token_types: int = 2
    embedding_size: int | None = None
    """Width of the embeddings where it is not the hidden size (ELECTRA); a linear map then leads to d."""

    @property
    def layer_parameters(self) -> int:
        """4d^2 + 2 d d_ff + 9d + d_ff; 12d^2 + 13d where d_ff = 4d (ledger A2)."""
        d, d_ff = self.hidden_size, self.intermediate_size
        return 4 * d * d + 2 * d * d_ff + 9 * d + d_ff

    @property
    def parameters(self) -> int:
        """Embeddings, layers and pooler; 109,482,240 for BERT-base (ledger A1)."""
        d = self.hidden_size
        e = self.embedding_size or d
        embeddings = (self.vocab_size + self.max_positions + self.token_types) * e + 2 * e
        projection = e * d + d if e != d else 0
        return embeddings + projection + self.num_layers * self.layer_parameters + d * d + d

    @classmethod
    def of(cls, backbone) -> "Backbone":
        """From a name, a `Backbone`, or anything with a Hugging Face encoder's configuration attributes."""
        if isinstance(backbone, Backbone):
            return backbone
        if isinstance(backbone, str):
            backbone = backbone.removeprefix("minbert:")  # our own BERT is of the same sizes
            if backbone in BACKBONES:
                return BACKBONES[backbone]
            from palslib.bert.backbones import load_config  # a Hub id or a folder: its configuration has to be read

            try:
                backbone = load_config(backbone)
            except (OSError, ValueError) as error:
                raise unknown("backbone (nor is it a folder or a reachable Hub id)", backbone, BACKBONES) from error
        c = backbone
        return cls(
            getattr(c, "name_or_path", "") or c.model_type,
            c.vocab_size,
            c.hidden_size,
            c.num_hidden_layers,
            c.num_attention_heads,
            c.intermediate_size,
            c.max_position_embeddings,
            c.type_vocab_size,
            getattr(c, "embedding_size", None),
        )


BACKBONES = {
    b.name: b
    for b in (
        Backbone("bert-base-uncased", 30_522, 768, 12, 12, 3072),
        Backbone("bert-large-uncased", 30_522, 1024, 24, 16, 4096),
        Backbone("minilm", 30_522, 384, 6, 12, 1536),
        Backbone("tiny", 30_522, 48, 2, 4, 101, 128),
    )
}


@dataclass(frozen=True)
class Term:
    """One summand of a count."""

    part: str
    """What it is, in words: `V^E and V^D`."""
    formula: str
    """In the package's letters: `2ds`."""
    value: int
    """Its value for one owner."""
    owner: str = "task"
    """`task`: each task has its own; `tasks`: all tasks share one; `replaced`: a part of the backbone that no task uses
    any longer, subtracted once."""


@dataclass(frozen=True)
class ParameterCount:
    """What a method adds to a backbone for a number of tasks. Classifier heads never count, as in the paper."""

    method: Method
    backbone: Backbone
    num_tasks: int
    terms: tuple[Term, ...]

    def _sum(self, owner: str) -> int:
        return sum(t.value for t in self.terms if t.owner == owner)

    @property
    def per_task(self) -> int:
        """Parameters that each task owns."""
        return self._sum("task")

    @property
    def shared_by_tasks(self) -> int:
        """Added parameters that all tasks share, counted once."""
        return self._sum("tasks")

    @property
    def added(self) -> int:
        """Parameters added to one backbone for all tasks."""
        return self.num_tasks * self.per_task + self.shared_by_tasks - self._sum("replaced")

    @property
    def total(self) -> int:
        """Backbone and added."""
        return self.backbone.parameters + self.added

    @property
    def ratio(self) -> float:
        """Total over one backbone: the paper's parameter column."""
        return self.total / self.backbone.parameters


def _terms(m: Method, b: Backbone):
    """Yields (part, formula, weights, biases and norms, owner) for one task."""
    d, s, L = b.hidden_size, m.size or 0, len(m.adapted_layers(b.num_layers))
    sizes = (s, *m.inner, s)  # of a projected feed-forward network, input to output
    ffn = sum(a * c for a, c in pairwise(sizes))
    ffn_formula = f"({' + '.join(f'{a}·{c}' for a, c in pairwise(sizes))})"
    if m.kind == "fine-tuned":
        yield "a whole backbone", "all of BERT", b.parameters, 0, "task"
        yield "the one it replaces", "all of BERT", b.parameters, 0, "replaced"
    elif m.kind in ("pal", "ffn"):
        pairs = 1 if m.sharing.startswith("layers") else L
        owner = "tasks" if m.sharing.endswith("tasks") else "task"
        yield "V^E and V^D", f"{pairs} · 2ds" if pairs > 1 else "2ds", pairs * 2 * d * s, pairs * (s + d), owner
        if m.kind == "pal":
            yield "query, key, value", f"{L} · 3s²", L * 3 * s * s, L * 3 * s, "task"
        else:
            yield "feed-forward", f"{L} · {ffn_formula}", L * ffn, L * sum(sizes[1:]), "task"
    elif m.kind in ("low-rank", "serial"):
        yield "V^E and V^D", f"{L} · 2ds", L * 2 * d * s, L * (s + d), "task"
    elif m.kind == "lhuc":
        yield "scales", f"{L}d", L * d, 0, "task"
    elif m.kind == "bert-layer-on-top":
        weights = 4 * d * d + 2 * d * b.intermediate_size
        yield "a BERT layer", "4d² + 2d·d_ff", weights, b.layer_parameters - weights, "task"
    elif m.kind in ("attention-on-top", "ffn-on-top"):
        n, norm = m.on_top, 2 * s * m.layer_norm
        yield "V^E and V^D", "2ds", 2 * d * s, s + d, "task"
        if m.kind == "attention-on-top":
            yield "query, key, value, output", f"{n} · 4s²", n * 4 * s * s, n * (4 * s + norm), "task"
        else:
            yield "feed-forward", f"{n} · {ffn_formula}", n * ffn, n * (sum(sizes[1:]) + norm), "task"
    elif m.kind == "houlsby":  # the report counts biases and norms in
        adapters = math.ceil(b.num_layers / m.span) * m.adapters_per_layer
        yield "adapters", f"{adapters} · (2md + d + m)", adapters * (2 * s * d + d + s), 0, "task"
        if m.own_norms:
            yield "layer norms", f"{2 * b.num_layers} · 2d", b.num_layers * 4 * d, 0, "task"
        if m.classifier_layers == 2:
            yield "hidden layer of the classifier", "d² + d", d * d + d, 0, "task"
    elif m.kind == "feature-extraction":
        yield "scalar mix of all layers", "L + 2", b.num_layers + 2, 0, "task"
    if m.pooler == "per-task":
        yield "pooler", "d²", d * d, d, "task"
        yield "the shared pooler it replaces", "d²", d * d, d, "replaced"


def count_parameters(
    method: str | Method, backbone="bert-base-uncased", num_tasks: int = 8, exact: bool = False, **options
) -> ParameterCount:
    """Counts what `method` adds to `backbone` for `num_tasks` tasks.

    Args:
        method: a name of `METHODS` or a `Method`; `options` change it (`size=120`).
        backbone: a name, a Hugging Face configuration, or a `Backbone`.
        exact: also biases, and gains and shifts of layer norms: everything that a built adaptation holds.

    >>> count_parameters("pals-204", "bert-base-uncased", num_tasks=8).per_task
    1811520
    """
    method, backbone = get_method(method, **options), Backbone.of(backbone)
    if not isinstance(num_tasks, int) or num_tasks < 1:
        raise ValueError(f"num_tasks must be a positive integer, not {num_tasks!r}")
    terms = tuple(
        Term(part, formula, weights + exact * extras, owner)
        for part, formula, weights, extras, owner in _terms(method, backbone)
    )
    return ParameterCount(method, backbone, num_tasks, terms)


def fit_budget(
    method: str | Method, backbone="bert-base-uncased", num_tasks: int = 8, added: int | None = None
) -> Method:
    """The method with the largest s whose added parameters stay within the paper's budget on this backbone.

    Args:
        added: the budget in parameters; by default 15 million for eight tasks on BERT-base, scaled to the backbone's
            size and held for any number of tasks (ledger A27).

    s stays a multiple of the method's heads. Below the paper's proportion (s < 204 at d = 768) twelve heads would be
    very narrow, so the number becomes the divisor of s nearest to 12 · s / (204 · d / 768); the returned method says
    which. A paper's row that fits its own budget comes back as it is. Raises ValueError for a method without an s, and
    where not even the smallest s fits.
    """
    method, backbone = get_method(method), Backbone.of(backbone)
    if not method.has_size:
        raise ValueError(f"method {method.name!r} has no size s to fit to a budget")
    if added is None:
        added = PAPER_BUDGET * backbone.parameters // BACKBONES["bert-base-uncased"].parameters
    step = method.heads or 1

    def cost(size: int) -> int:
        return count_parameters(method, backbone, num_tasks, size=size).added

    if cost(step) > added:
        raise ValueError(
            f"no size of {method.name!r} fits {added:,} parameters for {num_tasks} tasks on {backbone.name}: "
            f"the smallest, s={step}, adds {cost(step):,}"
        )
    size = step
    while cost(size + step) <= added:
        size += step
    proportion = 204 * backbone.hidden_size / 768
    if not method.heads or size == method.size or size >= proportion:
        return method.with_options(size=size)
    divisors = [h for h in range(1, size + 1) if size % h == 0]
    return method.with_options(size=size, heads=min(divisors, key=lambda h: abs(h - 12 * size / proportion)))
