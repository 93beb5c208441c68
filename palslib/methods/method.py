"""The class `Method`: what a method adds to BERT for each task, where, at what cost, and how it is built.

Stickland & Murray 2019, *BERT and PALs*, sections 2.2 and 3.1 to 3.3 (https://arxiv.org/abs/1902.02671). A family of
methods is a class: its fields are the options, and its functions describe the family. For a method of your own, add
such a class: notebook 13 defines LoRA in a cell, and `lhuc.py` is a short one. `bert/rows.py` explains its letters.
"""

import re
from abc import ABC
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from palslib.common.names import check_name, plain, shown, unknown
from palslib.methods.adaptation import Adaptation
from palslib.methods.backbone import Backbone

Freeze = Literal["nothing", "backbone", "backbone but norms"]
Half = Literal["all", "top", "bottom"]
"""Which layers are adapted: `all`, the `top` half or the `bottom` half."""
Init = Literal["identity", "normal"]
Activation = Literal["identity", "gelu"]


@dataclass(frozen=True)
class Term:
    """One summand of a count of parameters."""

    part: str
    """The counted part in words: `V^E and V^D`."""
    formula: str
    """Its formula in the package's letters: `2ds`."""
    value: int
    """Its value for one owner; for the paper's terms, only the weights."""
    owner: str = "task"
    """`task`: each task has its own; `tasks`: all tasks share one; `replaced`: a part of the backbone that no task uses
    any longer, subtracted once."""
    extras: int = 0
    """Biases, and gains and shifts of layer norms, which the paper does not count."""

    def __post_init__(self):
        check_name("owner of a term", self.owner, ("task", "tasks", "replaced"))


@dataclass(frozen=True)
class Box:
    """One box of a diagram."""

    text: str
    """One or two lines of about 14 letters; longer lines are set in smaller type."""
    owner: Literal["layer", "task", "tasks", "bert"] = "layer"
    """Its owner: `layer`, each task has one for each layer; `task`, each task has one for all layers; `tasks`, all
    tasks share one; `bert`, a part of BERT."""

    def __post_init__(self):
        check_name("owner of a box", self.owner, ("layer", "task", "tasks", "bert"))


PLACES = {
    "attention": "on query, key or value, inside attention",
    "after attention": "in series, with a residual, before the first sum",
    "inner": "on the feed-forward's inner activation",
    "after feed-forward": "in series, with a residual, before the second sum",
    "beside": "from the layer's input to the second sum",
    "beside feed-forward": "from the attention's output to the second sum",
    "norms": "in place of the layer norms",
    "scale": "on the layer's output",
    "serial": "on the layer's output, with a residual",
    "on top": "after the last layer",
    "over all layers": "after the last layer, reading all of them",
    "copy": "in place of BERT",
}
"""Where a part can be drawn in a diagram."""


@dataclass(frozen=True)
class Part:
    """The boxes of a diagram at one place of BERT."""

    place: str
    """One of `PLACES`."""
    boxes: tuple[Box, ...]
    """In the order in which data flow through them."""
    times: int = 0
    """On top: the boxes are a layer that is there so many times, and get a frame; 0: they stand alone, without one."""
    residual: bool = False
    """On top: whether a residual goes around the first box. On `attention` and `inner`: whether what the boxes make is
    added (LoRA); else it changes what is there ((IA)³)."""

    def __post_init__(self):
        check_name("place of a diagram", self.place, PLACES)


def divisors(size: int) -> list[int]:
    """The numbers of heads into which a width can be split."""
    return [h for h in range(1, size + 1) if size % h == 0]


def nearest_divisor(size: int, heads: float) -> int:
    """The divisor of a width that is closest to a wanted number of heads."""
    return min(divisors(size), key=lambda h: abs(h - heads))


def check_heads(name: str, size: int, heads: int) -> None:
    """Raises ValueError, naming it, for a width that cannot be split into so many heads."""
    if size % heads:
        raise ValueError(f"{name} is not divisible by its {heads} heads (divisors: {divisors(size)})")


@dataclass(frozen=True)
class Method:
    """A method: what is added to BERT for each task. This base class adds nothing; each family is a subclass."""

    kind: ClassVar[str] = ""
    """The family's name in saved files, given as `class PAL(Method, kind="pal")`; by default the class's name."""
    copies_backbone: ClassVar[bool] = False
    """Whether each task has a whole backbone of its own."""

    name: str
    """The method's name, as in `METHODS`."""
    _: KW_ONLY
    pooler: Literal["shared", "per-task"] = "shared"
    """`shared`: one pooler for all tasks; `per-task`: one for each task instead (paper 3.1)."""
    freeze: Freeze = "nothing"
    """The part of BERT that is not trained: `nothing`, the whole `backbone`, or the `backbone but norms`."""

    # ----------------------------------------------------------------------------------------- what each family defines

    def terms(self, backbone: Backbone) -> Iterable[Term]:
        """The parameters that it adds to a backbone, term by term."""
        return ()

    def operations(self, backbone: Backbone, tokens: int) -> int:
        """Multiply-adds that one task adds, for one text of `tokens` word pieces."""
        return 0

    def parts(self, backbone: Backbone) -> Iterable[Part]:
        """The parts of its diagram, place by place."""
        return ()

    def captions(self, backbone: Backbone) -> Iterable[tuple[str, str]]:
        """(owner, words) of each line under a diagram: how many of a part there are, and for whom."""
        owners = dict.fromkeys(box.owner for part in self.parts(backbone) for box in part.boxes)
        words = {"layer": half_of(getattr(self, "layers", "all")), "task": "one per task", "tasks": "one for all tasks"}
        if not self.adapted_layers(backbone.num_layers):
            words["layer"] = "one per task"
        return [(owner, f"added: {words[owner]}") for owner in owners]

    def build(self, encoder, pooler, shared=None):
        """One task's module, an `Adaptation`, from the backbone, the tasks' pooler and the result of `build_shared`."""
        return Adaptation(self, encoder, pooler)

    def build_shared(self, encoder):
        """The module that all tasks share besides the backbone, or None."""
        return None

    def adapted_layers(self, num_layers: int) -> range:
        """Indices of the layers within BERT that it adapts; none, unless a family has `layers` or overrides this."""
        half = num_layers // 2
        ranges = {"all": range(num_layers), "top": range(num_layers - half, num_layers), "bottom": range(half)}
        return ranges.get(getattr(self, "layers", None), range(0))

    # ---------------------------------------------------------------------------------------- common to all families

    families: ClassVar[dict[str, type["Method"]]] = {}

    def __init_subclass__(cls, kind: str = "", **kwargs):
        super().__init_subclass__(**kwargs)
        if ABC in cls.__bases__:  # not a family by itself
            return
        cls.kind = kind or vars(cls).get("kind") or cls.__name__
        other = Method.families.get(cls.kind, cls)
        if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):  # not the same cell, run again
            raise ValueError(f"{other.__module__} already has a family {cls.kind!r}: give this one another `kind`")
        Method.families[cls.kind] = cls

    def __post_init__(self):
        kinds = get_type_hints(type(self))
        for option in self.options():
            value = plain(getattr(self, option))
            value = tuple(value) if isinstance(value, list) else value  # as it comes from JSON
            object.__setattr__(self, option, value)
            _check(f"{option} of {self.name!r}", value, kinds[option])
        if {"size", "heads"} <= {*self.options()}:
            check_heads(f"size {self.size} of {self.name!r}", self.size, self.heads)

    @classmethod
    def options(cls) -> list[str]:
        """The names of the options."""
        return [field.name for field in fields(cls) if field.name != "name"]

    @property
    def has_size(self) -> bool:
        """Whether it has an option `size`, s (or m)."""
        return "size" in self.options()

    @property
    def label(self) -> str:
        """The name with the method's actual size: `pals-204`, or `pals (s=120)` if the size in the name is another; for
        a network, also its inner sizes: `ffn-306` or `ffn (s=102, inner 153)`."""
        size, inner = getattr(self, "size", None), getattr(self, "inner", ())
        if size is None:
            return self.name
        number = re.search(r"-(\d+(x\d+)?)(?=-|$)", self.name)
        usual = f"{inner[0]}x{len(inner)}".removesuffix("x1") if inner else str(size)
        if number and number[1] == usual and (not inner or (size == type(self).size and len({*inner}) == 1)):
            return self.name
        name = self.name.replace(number[0], "", 1) if number else self.name
        return f"{name} (s={size}, inner {', '.join(map(str, inner))})" if inner else f"{name} (s={size})"

    def shared_layers(self, num_layers: int) -> int:
        """The number of leading layers that compute the same for every task: those before the first adapted layer."""
        adapted = self.adapted_layers(num_layers)
        return 0 if self.copies_backbone else min(adapted) if adapted else num_layers

    def with_options(self, **options) -> "Method":
        """The same method with other options. Raises ValueError for an option that it does not take."""
        for option in options:
            check_name(f"option of {self.name!r}", option, self.options())
        return replace(self, **options)

    def to_dict(self) -> dict:
        """The method as a dict for JSON: the name, the family's `kind`, and every option."""
        return {"name": self.name, "kind": self.kind, **asdict(self)}

    @staticmethod
    def from_dict(values: dict) -> "Method":
        """The method made from `to_dict`'s values. Raises ValueError for an unknown kind or option."""
        options = dict(values)
        kind = options.pop("kind", None)
        if kind not in list(Method.families):  # a list or an object from JSON cannot be a key
            known = unknown("kind of method", kind, Method.families)
            raise ValueError(f"{known}; define a family of your own before you use it")
        for option in options:
            check_name(f"option of {kind!r}", option, ["name", *Method.families[kind].options()])
        return Method.families[kind](**options)

    def all_terms(self, backbone: Backbone) -> Iterator[Term]:
        """Its own terms, and those of a pooler per task if it has one."""
        yield from self.terms(backbone)
        if self.pooler == "per-task":
            d = backbone.hidden_size
            yield Term("pooler", "d²", d * d, extras=d)
            yield Term("the shared pooler it replaces", "d²", d * d, "replaced", d)


def _check(option: str, value: Any, kind: Any) -> None:
    """Raises ValueError for a value that is not of an option's type: a choice, a bool, a positive integer or a tuple of
    them. By hand, as the import of pydantic would double the time of a count."""
    choices = get_args(kind)
    if get_origin(kind) is Literal and not any(type(value) is type(one) and value == one for one in choices):
        raise unknown(option, value, map(str, choices))
    if kind is bool and not isinstance(value, bool):
        raise ValueError(f"{option} must be true or false, not {shown(value)}")
    if kind in (int, tuple[int, ...]):
        numbers = (value,) if kind is int else value
        if not (isinstance(numbers, tuple) and numbers and all(type(one) is int and one > 0 for one in numbers)):
            what = "a positive integer" if kind is int else "a list of positive integers"
            raise ValueError(f"{option} must be {what}, not {shown(value)}")


def half_of(layers: object) -> str:
    """The words of a caption for the adapted layers."""
    return "per task and layer" + (f", {layers} half" if layers in ("top", "bottom") else "")
