"""The configuration of a training run: fields of JSON types, which are checked before anything is loaded."""

import glob
import json
import math
import os
import re
from collections.abc import Callable
from dataclasses import asdict, field, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import ArgsKwargs

from palslib.bert.backbones import plain, portable
from palslib.common.files import LIST, LOCK, digest
from palslib.common.names import check_name, shown
from palslib.common.places import as_path, runs_folder
from palslib.common.reading import read_object
from palslib.common.settings import Names, Number, Place, Text, settings
from palslib.data.glue import RELEASED_SIZES, TRAIN_SIZES
from palslib.data.parts import HELD_OUT, HELD_OUT_GROUPS, KEPT, KEPT_GROUPS
from palslib.data.sources import SUFFIXES, ending, locate
from palslib.data.tasks import BUILT_IN, TASKS, Task, get_task, load_rows, name_of, task_from_file
from palslib.methods.counting import fit_budget
from palslib.methods.table import METHODS, Method, get_method
from palslib.plan.recipes import Recipe, get_recipe
from palslib.plan.sampling import MOST_STEPS, PAPER_EPOCHS, SCHEDULES, TrainingPlan

_LATER = {"adaptation_rate": 1.0, "inspect": False, "weights": "pretrained", "own": {}, "own_method": {}}
_LATER |= {"held_out": False, "held_out_by": "texts", "passes": None, "task_weights": {}, "patience": 0}
"""Fields added after runs had been recorded, with their defaults; a default is left out of the key of a run."""

CHANGE_NO_RESULT = {"folder", "progress", "log_with", "keep", "checkpoint_every", "setting", "study", "arm"}
"""Fields that are not in the key of a run."""

TRACKERS = ("aim", "clearml", "comet_ml", "dvclive", "mlflow", "swanlab", "tensorboard", "trackio", "wandb")
"""Accelerate's own names of trackers, listed here because loading Accelerate takes a second."""


def as_now(config: dict) -> dict:
    """The config of a record, which may be an older one, with the present names of its fields."""
    now = {"alpha_parts" if name == "epochs" else name: value for name, value in config.items()}
    return {"held_out_by": "texts"} | now if now.get("held_out") else now


# The upper bounds of fields are far beyond any experiment. They refuse mistyped values that would otherwise ask for
# terabytes (attention of size 1e9), run for years or overflow float32.


@settings
class RunConfig:
    """All settings of a training run. On equal machines equal settings give equal weights (on a GPU up to rounding),
    whatever `folder`, `progress`, `log_with`, `keep`, `checkpoint_every`, `setting`, `study` and `arm` are."""

    method: Text = "pals-204"
    """A name of `METHODS`, or the name of the method in `own_method`."""
    size: Annotated[int, Field(ge=1, le=4096)] | Literal["budget", "paper"] | None = None
    """The method's size s: `budget` fits it to the paper's 1.13x on this backbone, `paper` keeps the method's own size,
    a number sets it. The default is `paper` with the recipe `released` (the released code's sizes) and with
    `own_method`, otherwise `budget`; a `Method` given in Python keeps its own size. (`dataclasses.replace` keeps size
    and options of the earlier config: to change the method, give `size=None` and `method_options={}` too.)"""
    method_options: dict = field(default_factory=dict)
    """Other options of the method, by name (`{"heads": 6}`)."""
    own_method: dict = field(default_factory=dict)
    """A method that is not in `METHODS`, whose name is given in `method`: its family as `kind` (of the package, or your
    own, which must be defined) and its options (`{"kind": "lora", "size": 4}`). In Python, `method` may also be a
    `Method`."""
    backbone: Place = "minilm"
    """`minilm`, `tiny`, a Hub id or a folder; with the prefix `minbert:`, the same weights in our own BERT code."""
    weights: Literal["pretrained", "random"] = "pretrained"
    """`pretrained`: the backbone's own weights. `random`: weights drawn from `seed`, for training from scratch."""
    tasks: Names = tuple(TASKS)
    """Names of tasks in `TASKS` or another of `SUITES`, names of delimited files in `data`, or files of your own
    (`mood.csv`, with the columns text and label); round robin takes them in this order."""
    own: dict[str, str | dict] = field(default_factory=dict)
    """Tasks of your own, by names that can be used in `tasks`: a file (CSV, TSV, JSON Lines, Parquet) with the
    columns text and label (`{"mood": "mood.csv"}`), or the fields of a `Task` (`{"mood": {"texts": ["tweet"],
    "labels": ["bad", "good"], "data": "mood.csv"}}`). In Python, `tasks` may also contain a `Task`."""
    data: Place = "synthetic"
    """`synthetic`, `glue`, `minbert`, `crowdflower`, or a folder or file (see `load_rows`)."""
    held_out: bool = False
    """Score the model, in place of the dev sets, on a tenth of the training rows, on which it then does not train: for
    choosing settings on rows that no reported score uses."""
    held_out_by: Literal["groups", "texts"] = "groups"
    """How rows are held out: by connected groups of texts (`parts.groups_of`), or, as in runs recorded before there
    was this field, by first texts alone."""
    schedule: Literal[*SCHEDULES] = "annealed"
    """A name of `sampling.SCHEDULES`."""
    alpha: Annotated[Number, Field(ge=0, le=10)] | None = None
    """A constant exponent α of the sampling probabilities p ∝ N^α, only with the schedule `proportional`."""
    alpha_parts: Annotated[int, Field(ge=1, le=10_000)] = PAPER_EPOCHS
    """Number of equal parts of the steps, in each of which α is constant (the paper's "epochs"; for passes over the
    data see `passes`)."""
    steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] = 60
    """Updates of the model, each on one batch of one task."""
    passes: Annotated[Number, Field(gt=0, le=10_000)] | None = None
    """In place of `steps`: enough steps for this number of passes over the training examples of all tasks together."""
    batch_size: Annotated[int, Field(ge=1, le=65_536)] = 32
    """Examples per step."""
    max_length: Annotated[int, Field(ge=8, le=8192)] = 128
    """Word pieces per row, at most; longer rows are cut."""
    learning_rate: Annotated[Number, Field(ge=0, le=100)] = 1e-4
    """Peak learning rate. The paper's 2e-5 suits BERT-base, 1e-4 MiniLM's narrower layers."""
    adaptation_rate: Annotated[Number, Field(gt=0, le=1_000_000)] = 1.0
    """Learning rate of the parameters that the method adds (each task's pooler included; no effect on `fine-tuned`,
    whose copies are BERT's), as a multiple of BERT's. Ours, not in the paper: Adam moves a parameter by at most rate x
    steps, so a shorter run needs a higher rate to move it as far as in the paper."""
    weight_decay: Annotated[Number, Field(ge=0, le=1000)] = 0.01
    """Weight decay of AdamW, not applied to biases, layer norms and LHUC vectors."""
    warmup: Annotated[Number, Field(ge=0, lt=1)] = 0.1
    """Fraction of the steps in which the learning rate rises to its peak."""
    clip: Annotated[Number, Field(gt=0, le=1e30)] = 1.0
    """Maximum norm of the gradient, which is clipped to it; a large number clips nothing."""
    head_dropout: Annotated[Number, Field(ge=0, lt=1)] | None = None
    """Dropout of the pooled [CLS] before the head; None: the backbone's `hidden_dropout_prob`."""
    memory: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Gradient Episodic Memory: examples stored of each of this run's tasks (not of those that come with `start`). A
    gradient that points against that of another task's examples is changed so that it does not. 0: no memory."""
    memory_margin: Annotated[Number, Field(ge=0, le=1_000_000)] = 0.5
    """Gradient Episodic Memory: at least this multiple of each memory's gradient is added to one that is changed."""
    memory_over: Literal["trained", "shared"] = "trained"
    """Gradient Episodic Memory: the parameters whose gradients are compared, either all `trained` ones (everything, if
    nothing is frozen) or only those that are also `shared` by the tasks."""
    task_weights: dict[str, Annotated[Number, Field(gt=0)]] = field(default_factory=dict)
    """Factors of tasks' losses, by name (`{"rte": 2}`); 1 for all others."""
    start: Place | None = None
    """A folder of weights kept by an earlier run, from which this run starts, by default with its method, backbone and
    `max_length`. `tasks` that it has are trained further, others are added. The optimiser and the schedule begin anew;
    with the same seed the same examples are drawn again. To train nothing but new tasks:
    the method option freeze, as `{"freeze": "backbone"}`."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the weights, the order of training and dropout."""
    recipe: Text = "paper"
    """`paper` or `released`."""
    recipe_options: dict = field(default_factory=dict)
    """Fields of `Recipe` that override those of `recipe`."""
    precision: Literal["auto", "float32", "tf32", "bf16", "fp16"] = "auto"
    """`float32`, `tf32` (float32 with products in TF32, on a GPU), `bf16` (autocast), `fp16` (autocast with scaled
    losses, on a GPU), or `auto`: the first of bf16, fp16 and float32 for which the device has fast products."""
    micro_batches: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Number of parts in which a batch is computed, with summed gradients (gradient accumulation)."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass, to save memory."""
    evaluate_every: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0
    """Steps between evaluations on the whole dev sets; 0: only at the end."""
    patience: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0
    """Early stopping: after this number of evaluations without a better dev average the run ends; 0: after `steps`."""
    inspect: bool = False
    """At every evaluation, also measure the size of the task functions relative to BERT's hidden states, and the
    entropy of their heads; at the end, also evaluate with everything that tasks add within BERT switched off."""
    setting: Text | None = None
    """The setting's name for readers, as tables and figures print it (`PALs, rate x 10`); it changes no result."""
    study: Text | None = None
    """The study that the run belongs to, whose runs share all but arm, schedule and seed; it changes no result."""
    arm: Text | None = None
    """What the run stands for in its study: a method and its options (`pals-204 heads=6`); it changes no result."""
    evaluate_first: bool = False
    """Also evaluate before the first step."""
    checkpoint_every: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0
    """Steps between checkpoints, from which a killed run is resumed; 0: none, so it begins anew."""
    keep: Literal["none", "last", "best"] = "none"
    """Weights kept at the end: `none`, `last`, or `best` (the last and the best by dev average)."""
    folder: Place | None = None
    """Folder of the run; by default one in `runs/train/` (`pretrain`: `runs/pretraining/`), named by a hash of the
    config."""
    progress: bool = True
    """Show progress bars and scores."""
    log_with: Literal[*TRACKERS] | None = None
    """Also log losses and scores through accelerate, to one of its trackers, whose package must be installed.
    `tensorboard` (files in the run's folder) and `trackio` (a local database) send nothing over the network."""

    @model_validator(mode="before")
    @classmethod
    def _own_by_name(cls, arguments: ArgsKwargs) -> ArgsKwargs:
        """Replaces objects by JSON types: a `Task` or a file in `tasks` by its name, with its fields in `own`; a
        `Method` by its name, its size and the options that differ from `METHODS` (or from its family's defaults). Takes
        from the model in `start` what is not given."""
        named = dict(arguments.kwargs or {})
        if named.get("start") and (path := as_path(named["start"]) / LIST).is_file():
            saved = read_object(path)
            if "method" in saved:
                known = {"backbone": saved["backbone_name"], "max_length": saved["max_length"]}
                own = named.get("own_method")
                method = saved["method"] | (own if isinstance(own, dict) and "method" not in named else {})
                named = known | {"method": Method.from_dict(method)} | named
        if isinstance(named.get("method"), Method):
            named |= _method_fields(named["method"], named)
        tasks, own = named.get("tasks"), named.get("own", {})
        if isinstance(tasks, (list, tuple)) and isinstance(own, dict):
            files = {task: name_of(Path(task)) for task in tasks if isinstance(task, str) and _is_file(task, own)}
            new = {name: path for path, name in files.items()}
            if twice := [name for name in new if isinstance(own.get(name), dict)]:
                raise ValueError(f"own says how {twice[0]!r} is read: in tasks give this name, not its file")
            mine = [task for task in tasks if isinstance(task, Task)]  # the recipe decides its `ties`
            new |= {t.name: t.changes() for t in mine if BUILT_IN.get(t.name) != replace(t, ties="first")}
            named["tasks"] = tuple(t.name if isinstance(t, Task) else files.get(str(t), t) for t in tasks)
            named["own"] = own | new  # a new file replaces an earlier one of its name
        return ArgsKwargs(arguments.args, named)

    def __post_init__(self):
        for task in self.tasks:
            self.task(task)  # raises ValueError for an unknown one
        if self.own and self.tasks == tuple(TASKS):
            own = ", ".join(self.own)
            raise ValueError(f"own defines {own}, but tasks still names GLUE's eight: name your own there too")
        if not self.tasks or len(set(self.tasks)) != len(self.tasks):
            raise ValueError(f"tasks must name at least one task, each only once, not {list(self.tasks)}")
        make_plan(self, dict.fromkeys(self.tasks, 1))  # raises ValueError for an alpha or sizes that do not fit
        self.resolved_method(fitted=False)  # raises ValueError for options that do not fit the method
        if self.memory and len(self.tasks) == 1:
            raise ValueError(f"memory={self.memory} needs a second task in the run: those of `start` have no examples")
        for task in self.task_weights:
            check_name("task in task_weights", task, self.tasks)
        if self.patience and not self.evaluate_every:
            raise ValueError(f"patience={self.patience} counts evaluations: give evaluate_every, too")
        if self.start and self.weights == "random":
            raise ValueError("weights='random' contradicts start, which loads the weights of a saved model")

    def task(self, name: str) -> Task:
        """The task of this name: from `own`, otherwise from `get_task`."""
        own = self.own.get(name)
        if own is None:
            return get_task(name, self.data, self.own)
        if name in BUILT_IN:
            raise ValueError(f"own: {name!r} is the name of a built-in task; choose another")
        if isinstance(own, str):
            return _task_in(own, name, _state(own))
        usual, file = {"texts": ("text",)}, str(own.get("data", ""))
        if ending(file) in SUFFIXES:
            usual |= {"separator": SUFFIXES[ending(file)], "files": Path(file).name}
        task = Task(name, **(usual | own))
        if not {"labels", "metrics"} & own.keys():
            raise ValueError(f"own: the task {name!r} needs labels (its classes) or metrics (of a score)")
        return task

    def with_steps(self, known: dict[tuple, int] | None = None) -> "RunConfig":
        """The same config with `steps` in place of `passes`. Computing them needs the sizes of the data: `known` are
        those that were counted for other configs, and new ones are added."""
        if self.passes is None:
            return self
        rows, known = 0, {} if known is None else known
        for task in map(self.task, self.tasks):
            part = self.splits(task)[0]
            key = (self.data, repr(task), part)  # tasks of one name may differ between configs
            if key not in known:
                known[key] = len(load_rows(task, self.data, part))
            rows += known[key]
        return replace(self, steps=math.ceil(self.passes * rows / self.batch_size), passes=None)

    def splits(self, task: Task) -> tuple[str, tuple[str, ...]]:
        """The split of a task that the run trains on, and those that it is scored on."""
        if not self.held_out:
            return "train", task.evaluation
        return (KEPT_GROUPS, (HELD_OUT_GROUPS,)) if self.held_out_by == "groups" else (KEPT, (HELD_OUT,))

    @property
    def resolved_size(self) -> int | str:
        """`size`, or its default for this recipe and method if it is None."""
        return self.size or ("paper" if self.recipe == "released" or self.own_method else "budget")

    def resolved_recipe(self) -> Recipe:
        """The recipe with this run's `recipe_options`."""
        return get_recipe(self.recipe, **self.recipe_options)

    def base_method(self) -> Method:
        """The row of `METHODS`, or the method in `own_method`, before options, size and recipe are applied."""
        if self.own_method and self.method in METHODS:
            raise ValueError(f"own_method: {self.method!r} is the name of a built-in method; choose another")
        if self.own_method and not re.fullmatch(r"[\w.+-]{1,100}", self.method):  # it names folders and rows of tables
            raise ValueError(f"own_method: its name has 1 to 100 letters, digits or . + - _, not {shown(self.method)}")
        if self.own_method:
            return Method.from_dict(self.own_method | {"name": self.method})
        kind = self.method.partition("-")[0].lower()
        if kind in {*Method.families} - {method.kind for method in METHODS.values()}:
            how = f"own_method={{'kind': {kind!r}, ...}}, or in a shell --own-method kind={kind} ..."
            raise ValueError(f"method {self.method!r} needs its options: {how}")
        return get_method(self.method)

    def resolved_method(self, fitted: bool = True) -> Method:
        """The method as it will be built: the base method with its options and size, the latter fitted to the budget
        (unless `fitted` is False, for which the backbone is not needed), and what the recipe changes."""
        method, options = self.base_method(), dict(self.method_options)
        if "size" in options:
            raise ValueError("give size as RunConfig.size, not among method_options")
        budget = method.has_size and self.resolved_size == "budget"
        if isinstance(self.size, int):
            options["size"] = self.size
        given = options | ({"size": "budget"} if budget else {})
        if twice := [name for name, value in given.items() if self.own_method.get(name, value) != value]:
            raise ValueError(f"{min(twice)} is in own_method already: give it once")
        if budget and "heads" in options:
            options["size"] = options["heads"]  # until s is fitted; the fitted one is divisible, too
        method, named = method.with_options(**options), {*options, *self.own_method}
        if budget and fitted:
            kept = {name: getattr(method, name) for name in ("heads", "inner") if name in named}
            method = fit_budget(method, self.backbone, len(self.tasks), **kept)
        return self.resolved_recipe().apply(method, named)

    @property
    def key(self) -> str:
        """A hash of everything that decides the run's outcome. A file or folder that is given by its absolute path
        counts by its name and content, so that a project may be moved."""
        omitted = CHANGE_NO_RESULT | {name for name, default in _LATER.items() if getattr(self, name) == default}
        omitted |= set() if self.held_out else {"held_out_by"}
        values = {name: value for name, value in asdict(self).items() if name not in omitted}
        values |= {"size": self.resolved_size, "epochs": values.pop("alpha_parts")}  # by its earlier name
        values |= {name: _by_content(values[name]) for name in ("data", "backbone", "start")}
        if self.own:
            values["own"] = {name: _with_file(task, _by_content) for name, task in self.own.items()}
        return digest(json.dumps(values, sort_keys=True))[:10]

    def has_kept(self, kept: str) -> bool:
        """Whether a run with `keep=kept` has kept the weights that this config asks for."""
        order = ("none", "last", "best")  # each includes those before it
        return kept not in order or order.index(kept) >= order.index(self.keep)

    @property
    def name(self) -> str:
        """A readable and unique name: `pals-204-annealed-seed0-1a2b3c4d5e`."""
        return f"{self.method}-{self.schedule}-seed{self.seed}-{self.key}"

    @classmethod
    def from_dict(cls, values: dict) -> "RunConfig":
        """The config with these values of JSON types, which may include a `preset`, of which they replace values and
        options of the recipe. Raises ValueError."""
        names = [*(f.name for f in fields(cls)), "preset"]
        values = {check_name("parameter", name, names): value for name, value in values.items()}
        preset = values.pop("preset", None)
        base = PRESETS[check_name("preset", preset, PRESETS)] if preset is not None else {}
        if values.get("passes") is not None and "steps" in values:
            raise ValueError("steps and passes both say how long the run is: give one of them")
        if isinstance(options := values.get("recipe_options"), dict):
            values["recipe_options"] = base.get("recipe_options", {}) | options
        return cls(**(base | values))


def recorded(config: RunConfig) -> dict:
    """A config as records have it, without paths of this machine."""
    values = {k: v for k, v in asdict(config).items() if k not in ("folder", "progress", "log_with")}
    values |= {name: portable(values[name]) for name in ("data", "backbone", "start") if values[name]}
    own = {name: _with_file(task, lambda path: Path(path).name) for name, task in config.own.items()}
    return json.loads(json.dumps(values | {"size": config.resolved_size, "own": own}))  # with lists for tuples


def _is_file(task: str, own: dict) -> bool:
    """Whether a task is named by a file, perhaps of a kind that is refused later, and not by a name in `own`."""
    return task not in own and (ending(task) in SUFFIXES or (ending(task) != "" and os.path.isfile(task)))


def _with_file(task: str | dict, change: Callable[[str], str]) -> str | dict:
    """A task of the user's own, with the path of its file changed."""
    if isinstance(task, str):
        return change(task)
    return task | {"data": change(task["data"])} if task.get("data") else task


def _by_content(source: str | None) -> str | None:
    """A source of data or weights, in which an absolute path is replaced by its last name and a hash of its files: of a
    folder those that its list names, or else files of data and weights, except what runs have written there."""
    if source is None or not (path := Path(plain(source))).is_absolute():
        return source
    path = path.resolve()  # as the folder of runs is
    if (path / LIST).is_file():
        files = [path / LIST]
    elif path.is_dir():
        files = sorted(file for file in path.rglob("*") if ending(file) in (*SUFFIXES, ".safetensors", ".bin"))
        if not path.is_relative_to(runs := runs_folder()):
            files = [file for file in files if not file.is_relative_to(runs)]
        written = {lock.parent for lock in path.glob(f"*/**/{LOCK}")}
        files = [file for file in files if written.isdisjoint(file.parents)]
    else:
        files = sorted(path.parent.glob(glob.escape(path.name).replace("{split}", "*")))
    hashes = [_hash_of(file, file.stat().st_size, file.stat().st_mtime_ns) for file in files if file.is_file()]
    return " ".join([portable(source), *hashes]) if hashes else source


def _state(file: str) -> tuple | None:
    """Where a file of training rows is, its size and its time of change, so that it is read again when one of them is
    another; None where there is no such file."""
    source = locate(file)
    path = Path(source.replace("{split}", "train")).absolute()
    return (source, path, path.stat().st_size, path.stat().st_mtime_ns) if path.is_file() else None


@lru_cache
def _task_in(file: str, name: str, state: tuple | None) -> Task:
    return task_from_file(file, name=name)


@cache
def _hash_of(file: Path, size: int, changed: int) -> str:
    """The hash of a file, which is read again when its size or its time of change is another."""
    return digest(file)


def _method_fields(method: Method, named: dict) -> dict:
    """The fields of a config that describe a method, combined with the fields `named`."""
    row, size = METHODS.get(method.name), named.get("size")
    listed = type(row) is type(method)
    usual = vars(row) if listed else {field.name: field.default for field in fields(method)}
    options = {name: getattr(method, name) for name in method.options()}
    resized = listed and options.get("size") != usual.get("size")  # by which `inner` would be scaled, if not named
    changed = {k: value for k, value in options.items() if value != usual[k] or (k == "inner" and resized)}
    changed = json.loads(json.dumps(changed))  # with lists for tuples, as in a config that is read from a file
    if isinstance(size, int) and changed.get("size", size) != size:
        other = f"the size {method.size} of the given method {method.name!r}"
        raise ValueError(f"size={size} contradicts {other}: give one of them (size=None with dataclasses.replace)")
    if not listed:
        own = {"kind": method.kind, **changed, **named.get("method_options", {})}
        return {"method": method.name, "own_method": own, "method_options": {}}
    if size is None or (size == "paper" and "size" in changed):
        size = options.get("size")
    changed.pop("size", None)
    return {"method": method.name, "size": size, "method_options": changed | named.get("method_options", {})}


_BASE = {"backbone": "bert-base-uncased", "data": "glue", "steps": 60_000, "learning_rate": 2e-5, "size": "paper"}
_COURSE = {"backbone": "minbert:bert-base-uncased", "data": "minbert", "tasks": ("sst5", "quora", "sts")}
_COURSE |= {"size": "paper", "alpha_parts": 10, "head_dropout": 0.3}  # the size for eight tasks, though there are three
_FLAT = {"learning_rate": 1e-5, "warmup": 0.0, "recipe_options": {"decay": "constant"}, "keep": "best"}
PRESETS: dict[str, dict] = {
    "smoke": {"steps": 160, "learning_rate": 2e-4, "evaluate_every": 20, "checkpoint_every": 40},
    "mini": {"data": "glue", "steps": 2_000, "evaluate_every": 400, "checkpoint_every": 100, "keep": "best"},
    "paper": _BASE | {"evaluate_every": 2_400, "checkpoint_every": 1_200, "keep": "best"},
    "minbert": _COURSE | _FLAT | {"batch_size": 40, "steps": 19_500, "evaluate_every": 1_950, "checkpoint_every": 390},
    "gem": _COURSE | _FLAT | {"batch_size": 16, "steps": 12_000, "evaluate_every": 1_200, "checkpoint_every": 400},
}
"""`smoke`: synthetic data, a minute. `mini`: MiniLM on GLUE's files, under an hour on a CPU. `paper`: BERT-base on a
GPU. `minbert` and `gem`: the settings of the two reports, without minbert's GELU in the PAL (`activation`), ten of
their epochs, with all of BERT trained (gem's rate of 1e-3 is for "pretraining", and it names no schedule); `memory`
and the two fields after it set the projection of gem."""


def make_plan(config: RunConfig, sizes: dict[str, int]) -> TrainingPlan:
    """The training plan of a config, for these numbers of training examples of each task. Raises ValueError where the
    schedule takes no `alpha`, and where the recipe's sizes are not known for a task."""
    recipe = config.resolved_recipe()
    known = {"official": TRAIN_SIZES, "released": RELEASED_SIZES}.get(recipe.sizes)  # None: those of the loaded data
    for task in config.tasks if known else ():
        check_name(f"task for sizes={recipe.sizes!r} (recipe_options={{'sizes': 'loaded'}} takes any)", task, known)
    return TrainingPlan(
        sizes,
        config.schedule,
        config.steps,
        batch_size=config.batch_size,
        seed=config.seed,
        epochs=config.alpha_parts,
        sampling_sizes=known and {task: known[task] for task in config.tasks},
        alpha=config.alpha,
        round_robin_advances=recipe.round_robin_advances,
        reshuffle=recipe.order == "reshuffled",
    )
