"""Selects the runs that a row of the ledger names, and tells which of them may be compared."""

import json
from dataclasses import asdict, dataclass
from math import isclose

from palslib.common.names import check_name
from palslib.data.tasks import TASKS
from palslib.methods.backbone import BACKBONES
from palslib.methods.counting import count_parameters
from palslib.methods.table import METHODS
from palslib.plan.config import RunConfig
from palslib.plan.sampling import SCHEDULES

_FREE = ("size", "inner", "heads", "init")  # fields of a method that fitting to a budget changes or `Setting` compares
_VARIED = {"method", "method_options", "size", "schedule", "alpha", "seed", "recipe", "weights"}
_VARIED |= {"memory", "memory_margin", "memory_over", "own_method"}
_PRACTICAL = {"evaluate_every", "evaluate_first", "checkpoint_every", "keep", "folder", "progress", "micro_batches"}
_PRACTICAL |= {"inspect", "gradient_checkpointing"}
_OPTIONS = ("size", "data", "gem", "memory_margin", "memory_over", "pretraining", "weights")  # besides a method's own
_NAMED = {"size": ("paper", "budget"), "gem": ("on", "off"), "pretraining": ("mlm",)}
_NAMED |= {"weights": ("pretrained", "random")}  # what these are if no numbers
FURTHER = "-mlm"
"""The suffix of the name of a backbone that `pretraining` has trained further, on the texts of the tasks."""
_DEFAULTS = asdict(RunConfig())  # for fields that older records lack


def _value(text: str):
    try:
        return json.loads(text)  # numbers, true, false
    except json.JSONDecodeError:
        return text


def _plain(value):
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Selection:
    """The runs that a row of the ledger names: `Selection.parse("pals-204 annealed heads=6 data=glue")`."""

    method: str
    schedule: str
    """A name of `SCHEDULES`, or `single-task`."""
    options: dict
    """Options of the method, `size` (a number, `paper` or `budget`; default: see `_sized`), `data` (default `glue`),
    `gem=on` (episodic memory; or its size, and then `memory_margin` and `memory_over`), `pretraining=mlm` (backbone
    pre-trained further on the texts of the tasks) and `weights=random` (no pre-training)."""

    @classmethod
    def parse(cls, text: str) -> "Selection":
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
        return cls(method, schedule, options)

    @property
    def alone(self) -> bool:
        """Whether it selects models for one task each."""
        return self.schedule == "single-task"

    def matches(self, record: dict) -> bool:
        """Whether a record is of a finished run of this kind, with the paper's recipe and no backbone for tests."""
        config, built = _DEFAULTS | record["config"], record["method"]
        wanted = dict(self.options)
        size, data, weights = wanted.pop("size", None), wanted.pop("data", "glue"), wanted.pop("weights", "pretrained")
        gem, further = wanted.pop("gem", "off"), wanted.pop("pretraining", None) == "mlm"
        memory = {name: wanted.pop(name, _DEFAULTS[name]) for name in ("memory_margin", "memory_over")}
        if record["status"] != "finished" or (config["method"], config["data"]) != (self.method, data):
            return False
        # The minBERT and GEM reports keep the rate constant; `jump` is a quirk, D11.
        changed = [name for name, value in config["recipe_options"].items() if name != "decay" or value == "jump"]
        if config["recipe"] != "paper" or changed or config["alpha"] is not None:
            return False
        if config["backbone"].removeprefix("minbert:") == "tiny" or config["start"]:  # random weights, for tests
            return False
        if (config["memory"] > 0, config["backbone"].endswith(FURTHER)) != (gem != "off", further):
            return False
        if isinstance(gem, int) and memory | {"memory": gem} != {k: config[k] for k in (*memory, "memory")}:
            return False
        if config["weights"] != weights:
            return False
        if self.alone:  # several in one run only if they train nothing that tasks share
            apart = self.method == "fine-tuned" or built.get("freeze") == "backbone"
            if not apart and len(config["tasks"]) > 1:
                return False
        elif config["schedule"] != self.schedule:
            return False
        elif data == "glue" and self.schedule != "sequential" and set(config["tasks"]) != set(TASKS):
            return False  # mixing fewer tasks is not comparable with mixing the paper's eight
        if built.get("size") is not None and not self._sized(size, record, config):
            return False
        if set(config["own_method"]) - {"kind", "size"} - set(wanted):  # options beyond those selected
            return False
        usual = asdict(METHODS[self.method]) if self.method in METHODS else {}
        heads = config["method_options"].get("heads", usual.get("heads"))
        if heads != wanted.get("heads", usual.get("heads")):  # as asked for: fitting s may change heads
            return False
        expected = usual | wanted
        built = usual | built  # older records lack some options
        return all(_plain(built.get(k)) == _plain(v) for k, v in expected.items() if k not in _FREE)

    def _sized(self, size: int | str | None, record: dict, config: dict) -> bool:
        """Whether a run has this size. The default is the size that fits the paper's budget; on BERT-base it is the
        paper's, or that size if its ratio nearly agrees (low rank: 101 in place of 100; not on top of BERT)."""
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
    """Rate and start of what the method adds; None if it adds nothing, which is comparable with every setting."""

    @classmethod
    def of(cls, record: dict, alone: bool = False) -> "Setting":
        """The setting of a record; models for one task each (`alone`) may differ in tasks and rates. Data of one name
        may be whole in one run and sub-sampled in another, so their sizes in the record are compared too."""
        varied = _VARIED | _PRACTICAL | {"adaptation_rate"} | ({"tasks", "learning_rate"} if alone else set())
        config = {k: v for k, v in (_DEFAULTS | record["config"]).items() if k not in varied}
        config["backbone"] = config["backbone"].removesuffix(FURTHER)
        sizes = None if alone else [record.get("data", {}).get(part) for part in ("train", "dev")]
        shared = json.dumps([config, record["precision"], sizes], sort_keys=True)
        method = METHODS.get(record["config"]["method"])  # may be undefined where its record is read
        adds = record.get("counts", {}).get("added") != 0
        if method:
            adds = not method.copies_backbone and any(method.terms(BACKBONES["minilm"]))
        if not adds:
            return cls(shared, None)
        rate = record["config"].get("adaptation_rate", 1.0)
        usual = asdict(method) if method else {}
        init = (usual | record["method"]).get("init", "identity")  # LHUC, which has no such option, starts as BERT
        return cls(shared, json.dumps([rate, init]))


def repeats(one: dict, other: dict) -> bool:
    """Whether two records of one method and seed are of one run done twice, perhaps evaluated more often."""
    schedules = {record["config"]["schedule"] for record in (one, other)}
    return len(schedules) == 1 and Setting.of(one) == Setting.of(other)
