"""The number of parameters that a method adds, in closed form, term by term, in integers.

Stickland & Murray 2019, section 3: eight separate BERTs cost 8x, PALs 1.13x. With hidden size d and projected size s, a
task's PALs cost 2ds for V^E and V^D plus 3s^2 in each of L layers (section 3.3); 1,811,520 for BERT-base and s = 204.
The paper's figures leave out biases and the gains and shifts of layer norms; `exact=True` counts those too, which
gives the number in a built model. Each method gives its own terms: `Method.terms`.
"""

from dataclasses import dataclass, replace
from numbers import Integral

from palslib.methods.backbone import BACKBONES, Backbone
from palslib.methods.method import Method, Term, nearest_divisor
from palslib.methods.table import get_method

PAPER_BUDGET = 15_000_000  # parameters added for eight tasks on BERT-base: the paper's "1.13x" (ledger A27, B13)


@dataclass(frozen=True)
class ParameterCount:
    """The parameters that a method adds to a backbone for some tasks. As in the paper, classifiers are not counted."""

    method: Method
    backbone: Backbone
    num_tasks: int
    terms: tuple[Term, ...]

    def _sum(self, owner: str) -> int:
        return sum(t.value for t in self.terms if t.owner == owner)

    @property
    def per_task(self) -> int:
        """Added parameters of each task."""
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
        """Parameters that the tasks use: the backbone's and the added ones, without those that the tasks' own copies
        replace (shared pooler, fine-tuned's shared backbone). A built model keeps these, as new tasks start from them.
        """
        return self.backbone.parameters + self.added

    @property
    def ratio(self) -> float:
        """Total divided by one backbone's parameters: the paper's parameter column."""
        return self.total / self.backbone.parameters


def count_parameters(
    method: str | Method, backbone="bert-base-uncased", num_tasks: int = 8, exact: bool = False, **options
) -> ParameterCount:
    """Counts what `method` adds to `backbone` for `num_tasks` tasks.

    Args:
        method: a name of `METHODS` or a `Method`; `options` change it (`size=120`).
        backbone: a name, a Hugging Face configuration, or a `Backbone`.
        exact: also counts biases, and gains and shifts of layer norms: everything that a built adaptation holds. (Those
            of Houlsby's adapters and of whole copies of BERT count in any case.)

    >>> count_parameters("pals-204", "bert-base-uncased", num_tasks=8).per_task
    1811520
    """
    method, backbone = get_method(method, **options), Backbone.of(backbone)
    if not isinstance(num_tasks, Integral) or num_tasks < 1:
        raise ValueError(f"num_tasks must be a positive integer, not {num_tasks!r}")
    terms = tuple(replace(t, value=t.value + t.extras) if exact else t for t in method.all_terms(backbone))
    return ParameterCount(method, backbone, int(num_tasks), terms)


def paper_budget(backbone: Backbone) -> int:
    """The paper's budget, scaled to the size of another backbone."""
    return PAPER_BUDGET * backbone.parameters // BACKBONES["bert-base-uncased"].parameters


def fit_budget(
    method: str | Method, backbone="bert-base-uncased", num_tasks: int = 8, added: int | None = None, **kept
) -> Method:
    """The method with the largest s whose added parameters stay within the paper's budget on this backbone.

    Args:
        added: the budget in parameters; by default 15 million for eight tasks on BERT-base, scaled to the backbone's
            size, and the same for any number of tasks (ledger A27).
        kept: options that the fit does not change (`heads=6`, `inner=(100,)`).

    s is a multiple of the method's number of heads. Below the paper's proportion (s < 204 at d = 768) twelve heads
    would be very narrow, so the returned method's number of heads is then the divisor of s nearest to
    12 · s / (204 · d / 768). If s is the method's own size, its heads stay. Raises ValueError for a method without an
    s, and if not even the smallest s fits.
    """
    method, backbone = get_method(method), Backbone.of(backbone)
    if not method.has_size:
        raise ValueError(f"method {method.name!r} has no size s to fit to a budget")
    if added is None:
        added = paper_budget(backbone)
    heads = kept.get("heads", getattr(method, "heads", None))
    step = heads or 1

    def cost(size: int) -> int:
        return count_parameters(method, backbone, num_tasks, size=size, **kept).added

    if not cost(step) <= added:  # true of NaN, too
        raise ValueError(
            f"no size of {method.name!r} fits {added:,} parameters for {num_tasks} tasks on {backbone.name}: "
            f"the smallest, s={step}, adds {cost(step):,}"
        )
    if cost(1_000_000 * step) <= added:
        raise ValueError(f"the size of {method.name!r} cannot be fitted: even s={1_000_000 * step:,} fits")
    size = step
    while cost(size + step) <= added:
        size += step
    proportion = 204 * backbone.hidden_size / 768
    if not heads or size == method.size or size >= proportion:
        return method.with_options(size=size, **kept)
    fitting = {"heads": nearest_divisor(size, 12 * size / proportion)}
    return method.with_options(size=size, **fitting | kept)
