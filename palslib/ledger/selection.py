"""Which runs a row of the ledger means, and which of them may be compared."""

import json
from dataclasses import asdict, dataclass
from math import isclose

from palslib.data.tasks import TASKS
from palslib.methods.backbone import BACKBONES
from palslib.methods.counting import count_parameters
from palslib.methods.table import METHODS
from palslib.plan.config import RunConfig

_FREE = ("size", "inner", "heads", "init")  # of a method: what fitting to a budget changes, and what `Setting` compares
_VARIED = {"method", "method_options", "size", "schedule", "alpha", "seed", "recipe", "weights"}
_VARIED |= {"memory", "memory_margin", "memory_over", "own_method"}
_PRACTICAL = {"evaluate_every", "evaluate_first", "checkpoint_every", "keep", "folder", "progress", "micro_batches"}
_PRACTICAL |= {"inspect", "gradient_checkpointing"}
FURTHER = "-mlm"
"""How the name of a backbone ends that `pretraining` has trained further, on the texts of the tasks."""
_DEFAULTS = asdict(RunConfig())  # of what an older record does not know


def _value(text: str):
    try:
        return json.loads(text)  # numbers, true, false
    except json.JSONDecodeError:
        return text


def _parameters(count: dict) -> float:
    """Of the backbone, by what a record counts of a method that adds to it."""
    return count["added"] / (count["ratio"] - 1)


def _plain(value):
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Selection:
    """Which runs a row means: `Selection.parse("pals-204 annealed heads=6 data=glue")`."""

    method: str
    schedule: str
    """A name of `SCHEDULES`, or `single-task`."""
    options: dict
    """Of the method; besides, `size` (a number, `paper` or `budget`; unsaid, see `_sized`), `data` (else `glue`),
    `gem=on` (with episodic memory; or its size, and then `memory_margin` and `memory_over`), `pretraining=mlm` (of the
    backbone, further, on the texts of the tasks) and `weights=random` (no pre-training)."""

    @classmethod
    def parse(cls, text: str) -> "Selection":
        """From a row's `needs`, or from one term of its `compare`."""
        method, schedule, *options = text.split()
        return cls(method, schedule, {k: _value(v) for k, v in (option.split("=", 1) for option in options)})

    @property
    def alone(self) -> bool:
        """Whether it means models for one task each."""
        return self.schedule == "single-task"

    def matches(self, record: dict) -> bool:
        """Whether a record is of a finished run of this kind, under the paper's recipe and on real data."""
        config, built = _DEFAULTS | record["config"], record["method"]
        wanted = dict(self.options)
        size, data, weights = wanted.pop("size", None), wanted.pop("data", "glue"), wanted.pop("weights", "pretrained")
        gem, further = wanted.pop("gem", "off"), wanted.pop("pretraining", None) == "mlm"
        memory = {name: wanted.pop(name, _DEFAULTS[name]) for name in ("memory_margin", "memory_over")}
        if record["status"] != "finished" or (config["method"], config["data"]) != (self.method, data):
            return False
        changed = set(config["recipe_options"]) - {"decay"}  # the minBERT and GEM reports keep the rate constant
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
        if self.alone:  # models for one task each: in one run, too, where they train nothing that tasks share
            apart = self.method == "fine-tuned" or built.get("freeze") == "backbone"
            if not apart and len(config["tasks"]) > 1:
                return False
        elif config["schedule"] != self.schedule:
            return False
        elif data == "glue" and self.schedule != "sequential" and set(config["tasks"]) != set(TASKS):
            return False  # mixing few tasks is another matter than mixing the paper's eight
        if built.get("size") is not None and not self._sized(size, record, config):
            return False
        if set(config["own_method"]) - {"kind", "size"} - set(wanted):  # one's own is its family's but for what is said
            return False
        usual = asdict(METHODS[self.method]) if self.method in METHODS else {}
        heads = config["method_options"].get("heads", usual.get("heads"))
        if heads != wanted.pop("heads", usual.get("heads")):  # by itself, for 24 do not divide 204 but do 120
            return False
        expected = usual | wanted
        built = usual | built  # an older record does not know every option
        return all(_plain(built.get(k)) == _plain(v) for k, v in expected.items() if k not in _FREE)

    def _sized(self, size: int | str | None, record: dict, config: dict) -> bool:
        """Whether a run has this size. An unsaid one is what fits the paper's budget; on the paper's own backbone it is
        the paper's, which the budget gives too (low rank: 101 in place of 100), but for what goes on top."""
        if isinstance(size, int):
            return record["method"]["size"] == size
        asked, count = config["size"] or "budget", record.get("counts")  # unsaid, by this recipe
        if self.method not in METHODS:
            return asked == (size or "paper") and bool(size or "size" not in config["own_method"])
        paper = count_parameters(self.method, num_tasks=len(config["tasks"]))
        if size or not count or not isclose(_parameters(count), paper.backbone.parameters, rel_tol=0.05):
            return asked == (size or "budget")
        same = bool(self.options) or isclose(count["ratio"], paper.ratio, abs_tol=0.01)
        return asked == "paper" or (asked == "budget" and same)


@dataclass(frozen=True)
class Setting:
    """All that two runs must share to be compared, as far as one of them has it."""

    shared: str
    acting: str | None
    """None for a method that adds nothing, which goes with every setting of those that do."""

    @classmethod
    def of(cls, record: dict, alone: bool = False) -> "Setting":
        """Of a record; models for one task each (`alone`) may differ in tasks and rates. Data of one name may be whole
        in one run and sub-sampled in another: their sizes, which every record has, tell them apart."""
        varied = _VARIED | _PRACTICAL | {"adaptation_rate"} | ({"tasks", "learning_rate"} if alone else set())
        config = {k: v for k, v in (_DEFAULTS | record["config"]).items() if k not in varied}
        config["backbone"] = config["backbone"].removesuffix(FURTHER)
        sizes = None if alone else [record.get("data", {}).get(part) for part in ("train", "dev")]
        shared = json.dumps([config, record["precision"], sizes], sort_keys=True)
        method = METHODS.get(record["config"]["method"])  # one's own may not be defined where its record is read
        adds = record.get("counts", {}).get("added") != 0
        if method:
            adds = not method.copies_backbone and any(method.terms(BACKBONES["minilm"]))
        if not adds:
            return cls(shared, None)
        rate = record["config"].get("adaptation_rate", 1.0)
        usual = asdict(method) if method else {}
        init = (usual | record["method"]).get("init", "identity")  # LHUC, which has no choice, starts as BERT
        return cls(shared, json.dumps([rate, init]))
