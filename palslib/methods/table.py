"""Every method of the paper and of the reports by name: what it adds, where, and of which size.

Stickland & Murray 2019, *BERT and PALs*, sections 2 and 3 (https://arxiv.org/abs/1902.02671). A method is a row of
`METHODS`; what it computes is one class in `adaptation.py`, what it costs is one formula in `counting.py`.

Letters, once for the whole package: `B` batch, `S` tokens, `d` hidden size (768), `d_ff` inner size (3072), `L` layers
(12), `H` heads (12), `s` projected size, `m` adapter bottleneck, `T` tasks (8), `N` examples of a task, `E` epochs.
"""

from dataclasses import dataclass, fields, replace

from palslib.common import check_name, unknown

# Which options each kind of method takes; an option set on any other kind contradicts it and is refused.
_EVERYWHERE = {"pooler", "freeze"}
_OPTIONS = {
    "shared": _EVERYWHERE,
    "fine-tuned": set(),
    "pal": _EVERYWHERE | {"size", "heads", "layers", "sharing", "activation", "init"},
    "low-rank": _EVERYWHERE | {"size", "layers", "activation", "init"},
    "ffn": _EVERYWHERE | {"size", "inner", "layers", "sharing", "init"},
    "lhuc": _EVERYWHERE | {"layers"},
    "serial": _EVERYWHERE | {"size", "layers", "activation", "init"},
    "bert-layer-on-top": _EVERYWHERE | {"init"},
    "attention-on-top": _EVERYWHERE | {"size", "heads", "on_top", "residual", "layer_norm", "init"},
    "ffn-on-top": _EVERYWHERE | {"size", "inner", "on_top", "residual", "layer_norm", "init"},
    "houlsby": _EVERYWHERE
    | {"size", "activation", "init", "adapters_per_layer", "span", "second", "own_norms", "classifier_layers"},
    "feature-extraction": _EVERYWHERE,
}
_CHOICES = {
    "layers": ("all", "top", "bottom"),
    "sharing": ("layers", "none", "tasks", "layers and tasks"),
    "activation": ("identity", "gelu"),
    "init": ("identity", "normal"),
    "pooler": ("shared", "per-task"),
    "freeze": ("nothing", "backbone", "backbone but norms"),
    "second": ("serial", "parallel"),
    "span": (1, 3),
    "adapters_per_layer": (1, 2),
    "classifier_layers": (1, 2),
}


@dataclass(frozen=True)
class Method:
    """What is added to BERT for each task. Options that a kind does not take keep their defaults, or are refused."""

    name: str
    """The row's name in `METHODS`."""
    kind: str
    """Which class of `adaptation.py` and which formula of `counting.py`."""
    size: int | None = None
    """s, the projected size; for Houlsby's adapters m, the bottleneck. None where a method has no size to choose."""
    inner: tuple[int, ...] = ()
    """Inner sizes of a projected feed-forward network."""
    heads: int | None = None
    """Attention heads of the added attention; s is a multiple of them."""
    layers: str = "all"
    """Within BERT: which layers are adapted, `all`, the `top` half or the `bottom` half."""
    sharing: str = "layers"
    """What shares one pair V^E, V^D: a task's `layers`, `none` (a pair a layer), `tasks` (a pair a layer for all
    tasks), or `layers and tasks` (one pair in all)."""
    on_top: int | None = None
    """Layers on top of BERT."""
    residual: bool = True
    """On top: residual connection around each added layer (paper section 4; ledger C20)."""
    layer_norm: bool = True
    """On top: layer norm after each added layer (ledger C20)."""
    activation: str = "identity"
    """After V^D in a PAL, between the two matrices elsewhere (ledger D6, D7)."""
    init: str = "identity"
    """`identity`: V^D and its bias start at zero within layers, so that the model starts as BERT; `normal`: all added
    matrices, and gains and shifts of added norms, are drawn N(0, 0.02) as in the released code (ledger D8)."""
    pooler: str = "shared"
    """One pooler for all tasks, or one `per-task` in its place (paper section 2.1)."""
    freeze: str = "nothing"
    """What of BERT is not trained: `nothing`, the whole `backbone`, or the `backbone but norms`."""
    adapters_per_layer: int = 1
    """Houlsby: one adapter used at both places of a layer, or one for each."""
    span: int = 1
    """Houlsby: consecutive layers that share their adapters."""
    second: str = "serial"
    """Houlsby: the adapter after the feed-forward reads its output (`serial`), or the attention's output and is added
    (`parallel`, as in the released code; ledger D9)."""
    own_norms: bool = False
    """Houlsby: each task trains its own layer norms."""
    classifier_layers: int = 1
    """Houlsby: 2 puts a hidden layer of size d before the classifier (ledger A15)."""

    def __post_init__(self):
        check_name("kind of method", self.kind, _OPTIONS)
        if isinstance(self.inner, list):  # as it comes from JSON
            object.__setattr__(self, "inner", tuple(self.inner))
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("name", "kind") or value == field.default:
                continue
            if field.name not in _OPTIONS[self.kind]:
                allowed = ", ".join(sorted(_OPTIONS[self.kind])) or "none"
                raise ValueError(f"method {self.name!r} takes no option {field.name!r} (its options: {allowed})")
            if field.name in _CHOICES and value not in _CHOICES[field.name]:
                raise unknown(f"{field.name} of {self.name!r}", value, map(str, _CHOICES[field.name]))
        for option in ("size", "heads", "on_top"):
            value = getattr(self, option)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ValueError(f"{option} of {self.name!r} must be a positive integer, not {value!r}")
            if value is None and option in _OPTIONS[self.kind]:
                raise ValueError(f"method {self.name!r} of kind {self.kind!r} needs {option}")
        if "inner" in _OPTIONS[self.kind] and (not self.inner or min(self.inner) < 1):
            raise ValueError(f"method {self.name!r} of kind {self.kind!r} needs positive inner sizes, not {self.inner}")
        if self.heads and self.size and self.size % self.heads:
            divisors = [h for h in range(1, self.size + 1) if self.size % h == 0]
            raise ValueError(
                f"size {self.size} of {self.name!r} is not divisible by its {self.heads} heads (divisors: {divisors})"
            )
        if self.kind == "shared" and self.freeze != "nothing":
            raise ValueError(
                f"nothing to train: 'shared' adds no parameters and its backbone is frozen (freeze={self.freeze!r}); "
                "'feature-extraction' is the method that trains heads on a frozen backbone"
            )

        if self.kind == "feature-extraction" and self.freeze == "nothing":
            raise ValueError("'feature-extraction' reads a frozen backbone; freeze='nothing' contradicts it")

    @property
    def has_size(self) -> bool:
        """Whether there is an s (or m) to choose."""
        return self.takes("size")

    def takes(self, option: str) -> bool:
        """Whether an option can be chosen for this kind of method."""
        return option in _OPTIONS[self.kind]

    @property
    def label(self) -> str:
        """The name, and the size where it is not the one in the name: `pals-204 (s=120)`."""
        usual = METHODS[self.name].size if self.name in METHODS else self.size
        return self.name if self.size == usual else f"{self.name} (s={self.size})"

    def adapted_layers(self, num_layers: int) -> range:
        """Indices of the layers adapted within BERT; `top` and `bottom` are halves."""
        half = num_layers // 2
        return {
            "all": range(num_layers),
            "top": range(num_layers - half, num_layers),
            "bottom": range(half),
        }[self.layers]

    def shared_layers(self, num_layers: int) -> int:
        """How many leading layers compute the same for every task: those before the first that a task adapts."""
        if self.takes("layers"):
            adapted = self.adapted_layers(num_layers)
        else:  # adapters are in every layer, a task's own copy is all layers; what goes on top is in none
            adapted = range(num_layers if self.takes("span") or not _OPTIONS[self.kind] else 0)
        return adapted.start if adapted else num_layers

    def with_options(self, **options) -> "Method":
        """The same method with other options. A new `size` scales the inner sizes with it, unless they are given."""
        for option in options:
            check_name("option", option, sorted(f.name for f in fields(self) if f.name not in ("name", "kind")))
        size = options.get("size")
        if self.inner and size and "inner" not in options:
            options["inner"] = tuple(round(i * size / self.size) for i in self.inner)
        return replace(self, **options)


_ROWS = [
    Method("shared", "shared"),
    Method("fine-tuned", "fine-tuned"),
    Method("pals-204", "pal", size=204, heads=12),
    Method("pals-no-sharing-84", "pal", size=84, heads=12, sharing="none"),
    Method("pals-276-top", "pal", size=276, heads=12, layers="top"),
    Method("pals-276-bottom", "pal", size=276, heads=12, layers="bottom"),
    Method("pals-shared-across-tasks-204", "pal", size=204, heads=12, sharing="layers and tasks"),
    Method("low-rank-100", "low-rank", size=100),
    Method("ffn-306", "ffn", size=204, inner=(306,)),
    Method("lhuc", "lhuc"),
    Method("serial-100", "serial", size=100),
    Method("bert-layer-on-top", "bert-layer-on-top"),
    Method("attention-on-top-204", "attention-on-top", size=204, heads=12, on_top=6),
    Method("ffn-on-top-408", "ffn-on-top", size=204, inner=(408,), on_top=6),
    Method("ffn-on-top-252x2", "ffn-on-top", size=204, inner=(252, 252), on_top=6),
    Method("houlsby-64", "houlsby", size=64, activation="gelu", freeze="backbone"),
    Method(
        "houlsby-64-not-shared",
        "houlsby",
        size=64,
        activation="gelu",
        freeze="backbone",
        adapters_per_layer=2,
        own_norms=True,
        classifier_layers=2,
    ),
    Method("houlsby-64-3-shared", "houlsby", size=64, activation="gelu", freeze="backbone", span=3),
    Method("feature-extraction", "feature-extraction", freeze="backbone"),
]
METHODS: dict[str, Method] = {row.name: row for row in _ROWS}


def get_method(method: "str | Method", **options) -> Method:
    """The method of that name (or that method itself), with options changed.

    >>> get_method("pals-204", size=120).label
    'pals-204 (s=120)'
    """
    if not isinstance(method, Method):
        method = METHODS[check_name("method", method, METHODS)]
    return method.with_options(**options) if options else method
