"""Which runs may be compared, and what each of them stands for.

An *arm* is what runs train: a method and its options, such as `pals-204 heads=6`. The runs of one *study* share all
else (backbone, data, steps, rates), so that its arms can be compared. A run states both in its config; for the
committed runs they stand in `figures/records/index.csv`.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mode

import pandas as pd

from palslib.common.names import check_name
from palslib.methods.table import LABELS, METHODS
from palslib.plan.config import CHANGE_NO_RESULT
from palslib.plan.sampling import MIXED, SCHEDULES

_NO_SETTINGS = {"method", "method_options", "own_method", "size", "schedule", "seed"} | CHANGE_NO_RESULT
_NO_SETTINGS |= {"evaluate_every", "evaluate_first", "micro_batches", "inspect", "gradient_checkpointing"}
_ONE_EACH = "one-each"
_BASELINES = {"glue": "eight BERTs", "minbert": "three BERTs"}
"""Data -> the name of the baseline: a BERT for each task."""
_WORDS = {
    "freeze=backbone": "BERT frozen",
    "weights=random": "from random weights",
    "pooler=per-task": "separate poolers",
    "memory=32": "with memory",
    "activation=gelu": "with GELU",
    "pretraining=mlm": "pre-trained further",
    "size=paper": "the paper's size",
    "sharing=tasks": "in each layer",
    "residual=false": "without residual",
    "layer_norm=false": "without layer norm",
    "single-task": "a model for each task",
    "square-root": "square root",
    "round-robin": "round robin",
    "sequential": "one task after another",
}
"""Option or schedule of a term -> the words for it."""


@dataclass(frozen=True)
class Term:
    """One side of a comparison, or a part of it: the runs of an arm under a schedule."""

    arm: str
    schedule: str
    """A name of `SCHEDULES`, or `single-task`: models for one task each."""
    data: str | None = "glue"
    """The data that the runs are on; None: any."""

    @classmethod
    def parse(cls, text: str) -> "Term":
        """The term that the ledger writes as `method schedule option=value ...`, one option of which may be `data`."""
        method, schedule, *options = text.split()
        check_name("schedule", schedule, (*SCHEDULES, "single-task"))
        data = [option.removeprefix("data=") for option in options if option.startswith("data=")]
        options = sorted(option for option in options if not option.startswith("data="))
        return cls(" ".join([method, *options]), schedule, *data)

    @property
    def alone(self) -> bool:
        """Whether it is of models for one task each."""
        return self.schedule == "single-task"

    @property
    def words(self) -> str:
        """Its runs in words: `PALs (annealed, BERT frozen)`."""
        if self.arm == "fine-tuned" and self.alone:
            return _BASELINES.get(self.data, "a BERT for each task")
        method, *options = self.arm.split()
        words = [_WORDS.get(word, word.replace("_", " ").replace("=", " = ")) for word in (self.schedule, *options)]
        return f"{LABELS.get(method, method)} ({', '.join(words)})"

    def matches(self, record: dict) -> bool:
        """Whether a run, which has a name, belongs to it. A mixed run of a method that shares nothing between tasks
        counts as models for one task each, if its arm is called so."""
        config = record["config"]
        arm = config["arm"].replace(f" tasks={_ONE_EACH}", "") if self.alone else config["arm"]
        arms = [arm, *([f"{arm} size=paper"] if config["size"] == "paper" else [])]
        in_data = self.data is None or (self.data == config["data"] and not config["held_out"])
        return self.arm in arms and in_data and (self.alone or config["schedule"] == self.schedule)


def named(records: Iterable[dict]) -> list[dict]:
    """The finished runs, each with a study and an arm in its config.

    Runs that state no study count as one. Within a study, the arm of a run that states none is its method with its
    options and with every setting in which it differs from most of the study's runs, such as `shared steps=4000`.
    """
    studies: dict[str, list[dict]] = {}
    for record in records:
        if record["status"] == "finished":
            studies.setdefault(record["config"]["study"] or "", []).append(record)
    runs = []
    for study, of_study in studies.items():
        for record, arm in zip(of_study, _arms(of_study), strict=True):
            runs.append(record | {"config": record["config"] | {"study": study, "arm": arm}})
    return runs


def _arms(records: list[dict]) -> list[str]:
    """The arms of a study's runs: those that they state, and for the others the names that `named` describes."""
    configs = [record["config"] for record in records]
    stated = [config["arm"] for config in configs]
    if None not in stated:
        return stated
    settings = pd.DataFrame([settings_of(record) for record in records])
    mixed = settings[[len(config["tasks"]) > 1 and config["schedule"] in MIXED for config in configs]]
    usual = (settings if mixed.empty else mixed).drop(columns=["weights of start", "code"]).mode().iloc[0].to_dict()
    sizes = [config["size"] for config in configs if isinstance(config["size"], str) and not config["own_method"]]
    usual |= {"size": mode(sizes or ["budget"]), "memory": "0", "weights": "pretrained"}
    methods = [config["method"] for config in configs]
    kinds = [config["own_method"].get("kind") for config in configs]
    of_methods = settings[["adaptation_rate", "code"]].assign(kind=kinds)  # what adds nothing has no rate
    own = of_methods.groupby(methods).agg(mode)
    return [
        _arm(record, usual | own.loc[method].to_dict()) if arm is None else arm
        for record, method, arm in zip(records, methods, stated, strict=True)
    ]


def _arm(record: dict, usual: dict[str, str]) -> str:
    """A run's method with its options and with the settings that are not the usual ones."""
    config = record["config"]
    options = config["own_method"] | config["method_options"]
    usual_size, row = "paper" if config["own_method"] else usual["size"], METHODS.get(config["method"])
    if (row is None or row.has_size) and config["size"] not in (None, usual_size):
        options["size"] = config["size"]
    words = {name: _text(value) for name, value in options.items() if (name, value) != ("kind", usual["kind"])}
    settings = settings_of(record)
    if len(config["tasks"]) == 1:
        del settings["content"]  # the models for one task each of an arm differ in it
    words |= {name: text for name, text in settings.items() if text != usual.get(name, text)}
    return " ".join([config["method"], *sorted(f"{name}={text}" for name, text in words.items())])


def settings_of(record: dict) -> dict[str, str]:
    """All that decides a run's result, besides its arm, schedule and seed, as texts that can be compared. The texts and
    labels of data that anyone can change are told by their hashes."""
    config = record["config"]
    values = {name: value for name, value in config.items() if name not in _NO_SETTINGS}
    changing = config["own" if config["data"] in ("synthetic", "glue") else "tasks"]
    hashes = {name: text for name, text in record.get("content", {}).items() if name.split("/")[0] in changing}
    values |= {"precision": record["precision"], "rows": record.get("data", {}).get("train"), "content": hashes}
    values["code"] = record.get("content", {}).get("method")
    values["evaluate_every"] = config["evaluate_every"] if config["patience"] else None
    values["weights of start"] = record.get("content", {}).get("start")  # in no name: each seed may have its own
    if len(config["tasks"]) == 1:  # the models for one task each of an arm differ in these
        values["tasks"] = _ONE_EACH
        del values["rows"], values["own"]
    return {name: _text(value) for name, value in values.items()}


def check_alike(what: str, runs: list[dict]) -> None:
    """Raises ValueError, naming their files, where runs of one arm and seed differ in a setting."""
    settings = [settings_of(run) | {name: run["config"][name] for name in ("schedule", "own_method")} for run in runs]
    if any(others != settings[0] for others in settings):
        files = ", ".join(run.get("file", run["config"]["method"]) for run in runs)
        raise ValueError(f"{what}: different runs of one seed, {files}: leave one of them out")


def _text(value) -> str:
    if isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else json.dumps(value, sort_keys=True)  # 1 and 1.0 are one rate
