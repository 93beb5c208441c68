"""Selects the runs that a row of the ledger names, and tells which of them may be compared."""

import json
from dataclasses import asdict, dataclass
from math import isclose

from palslib.common.names import check_name
from palslib.data.tasks import TASKS
from palslib.methods.backbone import BACKBONES
from palslib.methods.counting import count_parameters
from palslib.methods.table import METHODS
from palslib.plan.config import CHANGE_NO_RESULT, RunConfig
from palslib.plan.recipes import RECIPES
from palslib.plan.sampling import SCHEDULES

# Not compared in `_has_options`: fitting to a budget changes them, or `Setting` compares them.
_FREE = ("size", "inner", "heads", "init")
_VARIED = {"method", "method_options", "size", "schedule", "alpha", "seed", "recipe", "weights"}
_VARIED |= {"memory", "memory_margin", "memory_over", "own_method"}
_PRACTICAL = CHANGE_NO_RESULT | {"evaluate_every", "evaluate_first", "micro_batches"}
_PRACTICAL |= {"inspect", "gradient_checkpointing"}
# Options of a selection, not of a method; below, the words allowed for them.
_OPTIONS = ("size", "data", "gem", "memory_margin", "memory_over", "pretraining", "recipe", "weights")
_NAMED = {"size": ("paper", "budget"), "gem": ("on", "off"), "pretraining": ("mlm",)}
_NAMED |= {"weights": ("pretrained", "random"), "recipe": tuple(RECIPES)}
FURTHER = "-mlm"
"""The suffix of the name of a backbone that `pretraining` has trained further, on the texts of the tasks."""


def _value(text: str):
    try:
        return json.loads(text)  # numbers, true, false
    except json.JSONDecodeError:
        return text


def _plain(value):
    return list(value) if isinstance(value, tuple) else value


def _unchanged(config: dict) -> bool:
    """Whether a run changes nothing in its recipe and its schedule."""
    # The minBERT and GEM reports keep the rate constant (`jump` is a quirk, D11); official sizes are the paper's.
    usual = {"decay": ("linear", "constant"), "sizes": ("loaded", "official")}
    changed = [name for name, value in config["recipe_options"].items() if value not in usual.get(name, ())]
    return not changed and config["alpha"] is None


@dataclass(frozen=True)
class Selection:
    """The runs that a row of the ledger names: `Selection.parse("pals-204 annealed heads=6 data=glue")`."""

    method: str
    schedule: str
    """A name of `SCHEDULES`, or `single-task`."""
    options: dict
    """Options of the method, `size` (a number, `paper` or `budget`; default: see `_sized`), `data` (default `glue`),
    `gem=on` (episodic memory; or its size, 0 for none, and then `memory_margin` and `memory_over`), `pretraining=mlm`
    (backbone pre-trained further on the texts of the tasks), `recipe=released` and `weights=random` (no
    pre-training)."""
    anywhere: bool = False
    """True: runs on any backbone, data and tasks count; for a user's own study, whose runs share these."""

    @classmethod
    def parse(cls, text: str, anywhere: bool = False) -> "Selection":
        """The selection that an entry of a row's `needs`, or one term of its `compare`, states."""
        method, schedule, *given = text.split()
        options = {k: _value(v) for k, v in (option.split("=", 1) for option in given)}
        check_name("schedule", schedule, (*SCHEDULES, "single-task"))
        if method in METHODS:
            for option in options:
                check_name(f"option of {method}", option, (*METHODS[method].to_dict(), *_OPTIONS))
        for option, names in _NAMED.items():
            if isinstance(value := options.get(option), str):
                check_name(f"{option} in {text!r}", value, names)
        return cls(method, schedule, options, anywhere)

    @property
    def alone(self) -> bool:
        """Whether it selects models for one task each."""
        return self.schedule == "single-task"

    def matches(self, record: dict) -> bool:
        """Whether this selection names the record's finished run. Unless `anywhere`, the run must be like the paper's:
        all eight tasks (if mixed), on `data`, no test backbone, not started from another run."""
        config, built = record["config"], record["method"]
        return (
            (record["status"], config["method"]) == ("finished", self.method)
            and _unchanged(config)
            and (self.anywhere or self._like_the_papers(config))
            and self._has_inputs(config)
            and self._has_memory(config)
            and self._has_tasks(config, built)
            and (built.get("size") is None or self._sized(self.options.get("size"), record, config))
            and self._has_options(config, built)
        )

    def _like_the_papers(self, config: dict) -> bool:
        other = config["backbone"].removeprefix("minbert:") == "tiny" or config["start"] or config["held_out"]
        # Mixing fewer tasks is not comparable with mixing the paper's eight.
        any_tasks = self.alone or self.schedule == "sequential" or config["data"] != "glue"
        whole = any_tasks or set(config["tasks"]) == set(TASKS)
        return not other and whole and config["data"] == self.options.get("data", "glue")

    def _has_inputs(self, config: dict) -> bool:
        further, wanted = self.options.get("pretraining") == "mlm", self.options
        inputs = (config["recipe"], config["weights"], config["backbone"].endswith(FURTHER))
        return inputs == (wanted.get("recipe", "paper"), wanted.get("weights", "pretrained"), further)

    def _has_memory(self, config: dict) -> bool:
        size = self.options.get("gem", "off")
        same = config["memory"] == size if isinstance(size, int) else (config["memory"] > 0) == (size == "on")
        said = [n for n in ("memory_margin", "memory_over") if isinstance(size, int) or n in self.options]
        return same and all(config[name] == self.options.get(name, getattr(RunConfig, name)) for name in said)

    def _has_tasks(self, config: dict, built: dict) -> bool:
        if self.alone:  # several in one run only if they train nothing that tasks share
            return len(config["tasks"]) == 1 or self.method == "fine-tuned" or built.get("freeze") == "backbone"
        return config["schedule"] == self.schedule

    def _has_options(self, config: dict, built: dict) -> bool:
        """Whether the run's options are exactly the selected ones; those in `_FREE` are ignored, except heads that were
        asked for."""
        wanted = {name: value for name, value in self.options.items() if name not in _OPTIONS}
        if set(config["own_method"]) - {"kind", "size"} - set(wanted):
            return False
        recipe = RECIPES[self.options.get("recipe", "paper")]
        usual = asdict(recipe.apply(METHODS[self.method], set())) if self.method in METHODS else {}
        heads = config["method_options"].get("heads", usual.get("heads"))
        if heads != wanted.get("heads", usual.get("heads")):  # as asked for: fitting s may change heads
            return False
        built = usual | built  # older records lack some options
        return all(_plain(built.get(k)) == _plain(v) for k, v in (usual | wanted).items() if k not in _FREE)

    def _sized(self, size: int | str | None, record: dict, config: dict) -> bool:
        """Whether a run has this size. Default: the size fitted to the paper's budget. On BERT-base the paper's own
        size counts too; the fitted one counts there only if its ratio is within 0.01 of the paper's (low rank: 101 for
        100) or options are given."""
        if isinstance(size, int):
            return record["method"]["size"] == size
        asked, count = config["size"] or "budget", record.get("counts")  # the default of this recipe
        if self.method not in METHODS:
            return asked == (size or "paper") and bool(size or "size" not in config["own_method"])
        paper = count_parameters(self.method, num_tasks=len(config["tasks"]))
        if size or not count:
            return asked == (size or "budget")
        parameters = count["added"] / (count["ratio"] - 1)  # of the run's backbone
        if not isclose(parameters, paper.backbone.parameters, rel_tol=0.05):
            return asked == "budget"
        same = bool(self.options) or isclose(count["ratio"], paper.ratio, abs_tol=0.01)
        return asked == "paper" or (asked == "budget" and same)


@dataclass(frozen=True)
class Setting:
    """Everything that two runs must have in common to be compared."""

    shared: str
    acting: str | None
    """Learning-rate multiple and initialisation of the added parameters. None: nothing is added, so the run can be
    compared with every setting."""

    @classmethod
    def of(cls, record: dict, alone: bool = False) -> "Setting":
        """The setting of a record; models for one task each (`alone`) may differ in tasks and rates. Data of one name
        may be whole in one run and sub-sampled in another, and a user's file may change: unless `alone`, sizes are
        compared too, and hashes of what is not GLUE's or generated."""
        varied = _VARIED | _PRACTICAL | {"adaptation_rate"} | ({"tasks", "learning_rate"} if alone else set())
        config = {k: v for k, v in record["config"].items() if k not in varied}
        config["backbone"] = config["backbone"].removesuffix(FURTHER)
        config |= {"precision used": record["precision"]}
        config |= {} if alone else {f"{part} rows": record.get("data", {}).get(part) for part in ("train", "dev")}
        theirs = record["config"]["own" if config["data"] in ("synthetic", "glue") else "tasks"]
        hashes = {} if alone else {n: h for n, h in record.get("content", {}).items() if n.split("/")[0] in theirs}
        config |= {"texts and labels": hashes} if hashes else {}
        shared = json.dumps(config, sort_keys=True)
        method = METHODS.get(record["config"]["method"])  # may be undefined where its record is read
        adds = record.get("counts", {}).get("added") != 0
        if method:
            adds = not method.copies_backbone and any(method.terms(BACKBONES["minilm"]))
        if not adds:
            return cls(shared, None)
        rate = record["config"]["adaptation_rate"]
        usual = asdict(method) if method else {}
        init = (usual | record["method"]).get("init", "identity")  # LHUC, which has no such option, starts as BERT
        return cls(shared, json.dumps({"adaptation_rate": rate, "init": init}))


def repeats(one: dict, other: dict) -> bool:
    """Whether two records of one method and seed are of one run done twice, perhaps evaluated more often."""
    return one["config"]["schedule"] == other["config"]["schedule"] and Setting.of(one) == Setting.of(other)
