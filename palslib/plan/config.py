"""One run of training as plain data: every field a flat JSON type, every nonsense refused before anything is loaded."""

import hashlib
import json
import re
from dataclasses import asdict, field, fields
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import ArgsKwargs

from palslib.common.names import check_name, shown, unknown
from palslib.common.reading import read_object
from palslib.data.tasks import SUFFIXES, TASKS, Task, get_row, get_task, task_from_file
from palslib.methods.counting import fit_budget
from palslib.methods.table import METHODS, Method, get_method
from palslib.plan.recipes import RELEASED_SIZES, Recipe, get_recipe
from palslib.plan.sampling import MOST_STEPS, PAPER_EPOCHS, SCHEDULES, TrainingPlan, official_sizes
from palslib.plan.settings import Names, Number, Text, settings

_LATER = {"adaptation_rate": 1.0, "inspect": False, "weights": "pretrained", "own": {}, "own_method": {}}
"""Fields that came after runs had been recorded: at these, their defaults, they leave a run's key as it was."""

# Upper bounds of fields are far beyond any experiment: above them a mistyped value would not fail but ask for terabytes
# (attention of size 1e9), run for years, or leave what float32 can hold.


@settings
class RunConfig:
    """What decides a run. Two with equal configs (but for `folder`, `progress`, `log_with`) end with equal weights."""

    method: Text = "pals-204"
    """A name of `METHODS`."""
    size: Annotated[int, Field(ge=1, le=4096)] | Literal["budget", "paper"] | None = None
    """s: `budget` fits it to the paper's 1.13x on this backbone, `paper` keeps the method's own, or a number. Unsaid it
    is `paper` with the recipe `released`, whose sizes are the released code's, and for a method of one's own, and else
    `budget`."""
    method_options: dict = field(default_factory=dict)
    """Other options of the method, by name (`{"heads": 6}`)."""
    own_method: dict = field(default_factory=dict)
    """A method of one's own, which `method` then names: its family, which has to be defined, as `kind`, and its options
    (`{"kind": "LoRA", "size": 4}`). In Python a `Method` may stand in `method` itself."""
    backbone: Text = "minilm"
    """`minilm`, `tiny`, a Hub id or a folder; with `minbert:` before it, the same weights in our own BERT."""
    weights: Literal["pretrained", "random"] = "pretrained"
    """The backbone's own, or of its architecture alone, drawn at random from `seed`: training from scratch."""
    tasks: Names = tuple(TASKS)
    """Names of `TASKS` or of another of `SUITES`, of delimited files in `data`, or files of one's own (`mood.csv`, with
    the columns text and label), in the order of round robin."""
    own: dict = field(default_factory=dict)
    """Tasks of one's own, by names that `tasks` then may have: a CSV, TSV or Parquet file with the columns text and
    label (`{"mood": "mood.csv"}`), or the fields of a `Task` (`{"mood": {"texts": ["tweet"], "labels": ["bad", "good"],
    "data": "mood.csv"}}`). In Python a `Task` may stand in `tasks` itself."""
    data: Text = "synthetic"
    """`synthetic`, `glue`, `minbert`, `crowdflower`, or a folder or file as `load_rows` takes it."""
    schedule: Literal[*SCHEDULES] = "annealed"
    """A name of `sampling.SCHEDULES`."""
    alpha: Annotated[Number, Field(ge=0, le=10)] | None = None
    """A constant exponent, with the schedule `proportional`."""
    epochs: Annotated[int, Field(ge=1, le=10_000)] = PAPER_EPOCHS
    """Equal stretches of the steps in which α is constant."""
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] = 60
    """Updates of the model, each on one batch of one task."""
    batch_size: Annotated[int, Field(ge=1, le=65_536)] = 32
    """Examples a step."""
    max_length: Annotated[int, Field(ge=8, le=8192)] = 128
    """Word pieces a row; longer rows are cut."""
    learning_rate: Annotated[Number, Field(ge=0, le=100)] = 1e-4
    """At its peak. The paper's 2e-5 suits BERT-base; MiniLM's narrower layers take 1e-4."""
    adaptation_rate: Annotated[Number, Field(gt=0, le=1_000_000)] = 1.0
    """Learning rate of what the tasks add to BERT's layers, as a multiple of BERT's. Ours, not in the
    paper: Adam moves a parameter by rate x steps at most, and more keeps the paper's travel in a shorter run."""
    weight_decay: Annotated[Number, Field(ge=0, le=1000)] = 0.01
    """AdamW's, off biases, norms and LHUC."""
    warmup: Annotated[Number, Field(ge=0, lt=1)] = 0.1
    """Fraction of the steps in which the rate rises."""
    clip: Annotated[Number, Field(gt=0, le=1e30)] = 1.0
    """Largest norm of the gradient; a large number clips nothing."""
    head_dropout: Annotated[Number, Field(ge=0, lt=1)] | None = None
    """Dropout of the pooled [CLS] before the head; None: the backbone's own."""
    memory: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Gradient Episodic Memory: examples of each task that are kept, to hold its loss where it is; 0: none."""
    memory_margin: Annotated[Number, Field(ge=0, le=1_000_000)] = 0.5
    """Lower bound on the dual variables of its projection."""
    memory_over: Literal["trained", "shared"] = "trained"
    """The parameters whose gradients it compares: all `trained` ones (where nothing is frozen, all that there are), or
    those of them that tasks `shared`."""
    start: Text | None = None
    """A folder of weights that an earlier run kept: this run goes on from its backbone and tasks, and adds its own."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Of weights, order and dropout."""
    recipe: Text = "paper"
    """`paper` or `released`."""
    recipe_options: dict = field(default_factory=dict)
    """Fields of `Recipe` that differ from it."""
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """`float32`, `bf16` (autocast), or `auto`: bf16 where the device multiplies it fast."""
    micro_batches: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Parts that a batch is computed in, their gradients summed (gradient accumulation)."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass, to save memory."""
    evaluate_every: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0
    """Steps between evaluations on the whole dev sets; 0: only at the end."""
    inspect: bool = False
    """At every evaluation, also how large what the tasks add is beside BERT's hidden states; at the end, the scores
    with it switched off."""
    evaluate_first: bool = False
    """Evaluate before the first step too."""
    checkpoint_every: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0
    """Steps between checkpoints, from which a killed run goes on; 0: none."""
    keep: Literal["none", "last", "best"] = "none"
    """Weights kept at the end: `none`, `last`, or `best` (the last and the best by dev average)."""
    folder: Text | None = None
    """Where the run lies; by default under `runs/train/`, named by a hash of the config."""
    progress: bool = True
    """Show bars and the scores."""
    log_with: Literal["tensorboard", "trackio"] | None = None
    """Follow losses and scores elsewhere too, through accelerate: `tensorboard` (files in the run's folder) or
    `trackio` (its own local database). Neither sends anything away; each is a package to be installed."""

    @model_validator(mode="before")
    @classmethod
    def _own_by_name(cls, given: ArgsKwargs) -> ArgsKwargs:
        """A `Task` or a file in `tasks` becomes its name there and its fields in `own`, which JSON can hold; a `Method`
        its name, its size and what is not as in `METHODS` or, of one's own, as its family has it."""
        named = dict(given.kwargs or {})
        if isinstance(named.get("method"), Method):
            named |= _said(named["method"], named)
        tasks = named.get("tasks")
        if isinstance(tasks, (list, tuple)):
            mine = {task.name: task.said() for task in tasks if isinstance(task, Task) and get_row(task.name) != task}
            files = {t: Path(t).stem for t in tasks if isinstance(t, str) and Path(t).suffix in SUFFIXES}
            named["tasks"] = tuple(t.name if isinstance(t, Task) else files.get(t, t) for t in tasks)
            if mine := mine | {name: path for path, name in files.items()}:
                named["own"] = named.get("own", {}) | mine  # of a file that is named anew, the new one
        return ArgsKwargs(given.args, named)

    def __post_init__(self):
        for task in self.tasks:
            self.task(task)  # refuses an unknown one
        if not self.tasks or len(set(self.tasks)) != len(self.tasks):
            raise ValueError(f"tasks must be at least one, each once, not {list(self.tasks)}")
        if self.batch_size % self.micro_batches:
            raise ValueError(f"batch_size {self.batch_size} is not divisible by micro_batches {self.micro_batches}")
        if self.alpha is not None and self.schedule != "proportional":
            raise ValueError(f"alpha={self.alpha} contradicts schedule {self.schedule!r}; give it with 'proportional'")
        if "size" in self.method_options:
            raise ValueError("give size as RunConfig.size, not among method_options")
        sizes = self.resolved_recipe().sizes
        if sizes != "loaded":  # known for GLUE's tasks alone
            for task in self.tasks:
                check_name(f"task for sizes={sizes!r} (recipe_options={{'sizes': 'loaded'}} takes any)", task, TASKS)
        method = self._unfitted()
        if isinstance(self.size, int) and not method.has_size:
            raise ValueError(f"size={self.size} contradicts method {self.method!r}, which has no size to choose")

    def task(self, name: str) -> Task:
        """The task of that name: one of one's own, or as `get_task` finds it."""
        given = self.own.get(name)
        if given is None:
            return get_task(name, self.data, self.own)
        if get_row(name):
            raise ValueError(f"own: {name!r} is the name of a task that there is; choose another")
        if isinstance(given, str):
            return task_from_file(given, name=name)
        if not isinstance(given, dict):
            raise ValueError(f"own: {name!r} must be a file or the fields of a Task, not {shown(given)}")
        for said in given:
            check_name(f"field of task {name!r}", said, [f.name for f in fields(Task)[1:]])
        return Task(name, **({"texts": ("text",)} | given))

    @property
    def resolved_size(self) -> int | str:
        """`size`, and where it is unsaid what it then is."""
        return self.size or ("paper" if self.recipe == "released" or self.own_method else "budget")

    def resolved_recipe(self) -> Recipe:
        """The recipe with this run's changes."""
        return get_recipe(self.recipe, **self.recipe_options)

    def resolved_method(self) -> Method:
        """The method as it will be built: options, recipe and size applied to the row of `METHODS`."""
        method, given = self._unfitted(), set(self.method_options)
        if method.has_size and isinstance(self.size, int):
            given |= {"size"}
        elif method.has_size and self.resolved_size == "budget":
            method = fit_budget(method, self.backbone, len(self.tasks))
        return self.resolved_recipe().apply(method, given)

    def _unfitted(self) -> Method:
        """The method with its options and a size that goes with them, before it is fitted to a budget."""
        method, options = self.base_method(), dict(self.method_options)
        if method.has_size and isinstance(self.size, int):
            options["size"] = self.size
        elif "heads" in options and self.resolved_size == "budget" and method.has_size:
            options["size"] = options["heads"]  # 24 divide MiniLM's 120, but not the 204 of BERT-base
        return method.with_options(**options)

    def base_method(self) -> Method:
        """The row of `METHODS`, or the method of one's own, before options, size and recipe."""
        if not self.own_method:
            return get_method(self.method)
        if self.method in METHODS:
            raise ValueError(f"own_method: {self.method!r} is the name of a method that there is; choose another")
        if not re.fullmatch(r"[\w.+-]{1,100}", self.method):  # the run's folder is called after it, and rows of tables
            raise ValueError(f"own_method: its name has 1 to 100 letters, digits or . + - _, not {shown(self.method)}")
        options = dict(self.own_method)
        if (kind := options.pop("kind", None)) not in Method.families:
            raise ValueError(f"{unknown('kind in own_method', kind, Method.families)}; your own is to be defined first")
        family = Method.families[kind]
        for option in options:
            check_name(f"option of {family.kind} in own_method", option, family.options())
        return family(self.method, **options)

    @property
    def key(self) -> str:
        """A hash of everything that decides the run's outcome."""
        unsaid = {name for name, default in _LATER.items() if getattr(self, name) == default}
        unsaid |= {"folder", "progress", "log_with", "keep", "checkpoint_every"}  # which change no result
        about = {k: v for k, v in asdict(self).items() if k not in unsaid} | {"size": self.resolved_size}
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:10]

    def has_kept(self, kept: str) -> bool:
        """Whether a run with that `keep` has kept the weights that this one asks for."""
        order = ("none", "last", "best")  # each keeps what those before it keep
        return kept not in order or order.index(kept) >= order.index(self.keep)

    @property
    def name(self) -> str:
        """Readable and unique: `pals-204-annealed-seed0-1a2b3c4d5e`."""
        return f"{self.method}-{self.schedule}-seed{self.seed}-{self.key}"

    @classmethod
    def from_dict(cls, values: dict) -> "RunConfig":
        """From JSON's types; `preset` may name one of `PRESETS`. Unknown parameters are refused."""
        names = [*(f.name for f in fields(cls)), "preset"]
        values = {check_name("parameter", name, names): value for name, value in values.items()}
        preset = values.pop("preset", None)
        base = PRESETS[check_name("preset", preset, PRESETS)] if preset is not None else {}
        return cls(**(base | values))

    @classmethod
    def from_file(cls, path: str | Path) -> "RunConfig":
        """From a JSON file. Raises ValueError naming file and field."""
        values = read_object(path)
        try:
            return cls.from_dict(values)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error


def _said(method: Method, given: dict) -> dict:
    """How the fields of a config say a method, beside what else is given."""
    row = METHODS.get(method.name)
    listed = type(row) is type(method)
    usual = vars(row) if listed else {f.name: f.default for f in fields(method)}
    options = {name: value for name in method.options() if (value := getattr(method, name)) != usual[name]}
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
    if not listed:
        return {"method": method.name, "own_method": {"kind": method.kind, **options}}
    options.pop("size", None)
    said = {"method": method.name, "size": given.get("size") or getattr(method, "size", None)}
    return said | {"method_options": options | given.get("method_options", {})}


_BASE = {"backbone": "bert-base-uncased", "data": "glue", "steps": 60_000, "learning_rate": 2e-5, "size": "paper"}
_COURSE = {"backbone": "minbert:bert-base-uncased", "data": "minbert", "tasks": ("sst5", "quora", "sts")}
_COURSE |= {"size": "paper", "epochs": 10, "head_dropout": 0.3}  # three tasks with the s of eight
_FLAT = {"learning_rate": 1e-5, "warmup": 0.0, "recipe_options": {"decay": "constant"}, "keep": "best"}
PRESETS: dict[str, dict] = {
    "smoke": {"steps": 160, "learning_rate": 2e-4, "evaluate_every": 40, "checkpoint_every": 40},
    "mini": {"data": "glue", "steps": 2_000, "evaluate_every": 400, "checkpoint_every": 100, "keep": "best"},
    "paper": _BASE | {"evaluate_every": 2_400, "checkpoint_every": 1_200, "keep": "best"},
    "minbert": _COURSE | _FLAT | {"batch_size": 40, "steps": 19_500, "evaluate_every": 1_950, "checkpoint_every": 390},
    "gem": _COURSE | _FLAT | {"batch_size": 16, "steps": 12_000, "evaluate_every": 1_200, "checkpoint_every": 400},
}
"""`smoke`: a minute, synthetic data. `mini`: MiniLM on GLUE's files, an hour of a CPU. `paper`: BERT-base, a GPU.
`minbert` and `gem`: the two reports', ten of their epochs, all of BERT trained. With it frozen, gem has 1e-3; its
projection is `memory` and the fields after it."""


def make_plan(config: RunConfig, sizes: dict[str, int]) -> TrainingPlan:
    """The order of training that a config asks for, on data of these sizes."""
    recipe = config.resolved_recipe()
    sampling_sizes = None  # those that are loaded
    if recipe.sizes == "official":
        sampling_sizes = official_sizes(config.tasks)
    elif recipe.sizes == "released":
        sampling_sizes = {task: RELEASED_SIZES[task] for task in config.tasks}
    return TrainingPlan(
        sizes,
        config.schedule,
        config.steps,
        config.batch_size,
        config.seed,
        config.epochs,
        sampling_sizes,
        config.alpha,
        recipe.round_robin_advances,
        recipe.order == "reshuffled",
    )
