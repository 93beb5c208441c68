"""JSON records, one for each run; tables and figures are made from them alone."""

import csv
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache, partial
from importlib import metadata
from io import BytesIO, StringIO
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from palslib import __version__
from palslib.common.files import write_text
from palslib.common.names import shown
from palslib.common.places import PROJECT, RECORDS, as_path
from palslib.common.processes import processor
from palslib.common.reading import read_json, read_object
from palslib.methods.counting import count_parameters
from palslib.plan.config import CHANGE_NO_RESULT, RunConfig, as_now, recorded

_PACKAGES = ("torch", "transformers", "accelerate", "datasets", "numpy", "scikit-learn")


def _git(*arguments: str) -> str | None:
    """The output of a git command in this code's clone; None where the package is installed, even in another clone."""
    own = ["git", "-C", str(PROJECT), f"--git-dir={PROJECT / '.git'}", f"--work-tree={PROJECT}"]
    try:
        done = subprocess.run([*own, *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def environment() -> dict:
    """Versions, git commit (and whether the package differed from it), processor; no paths, no name of the machine."""
    changes = _git("status", "--porcelain", "--", "palslib", "pyproject.toml")  # a new module counts, a figure does not
    return {
        "python": platform.python_version(),
        "packages": {"palslib": __version__} | {name: _version(name) for name in _PACKAGES},
        "git_commit": _git("rev-parse", "HEAD"),
        "git_dirty": None if changes is None else bool(changes),  # None: unknown, which is not clean
        "cpu": processor(),
        "cores": os.cpu_count(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a machine may have no `datasets`, which only some sources need
        return None


def make_record(run) -> dict:
    """The record of a finished `training.loop.Run`: config, results, counts, sampling, versions, device and time.

    It contains no paths: a folder or file of data or weights is recorded by its name alone.
    """
    config, plan, conditions = run.config, run.plan, run.conditions()
    count = count_parameters(run.method, run.model.config, len(config.tasks))
    exact = count_parameters(run.method, run.model.config, len(config.tasks), exact=True)
    return {
        "key": config.key,
        "status": "finished",
        "config": recorded(config),
        "method": run.method.to_dict(),
        "recipe": asdict(run.recipe),
        "counts": {"per_task": count.per_task, "added": count.added, "ratio": count.ratio, "exact_added": exact.added},
        "results": {"last": run.history[-1], "best": run.best},
        "history": run.history,
        "data": {
            "train": plan.sizes,
            "dev": {t: {s: len(d) for s, d in splits.items()} for t, splits in run.dev_data.items()},
            "cut": {task: data.cut for task, data in run.train_data.items()},
            "cut_dev": {t: {s: d.cut for s, d in splits.items()} for t, splits in run.dev_data.items()},
        },
        "sampling": {
            "expected": plan.expected_steps(run.step),
            "drawn": plan.drawn_steps(run.step),
            "passes": plan.passes(run.step),
        },
        **({"memory": run.memory.counts()} if run.memory else {}),
        "content": run.content,
        **({"notes": run.notes} if run.notes else {}),
        **{name: conditions[name] for name in ("device", "threads", "processes", "precision")},
        "seconds": run.spent | {"total": sum(run.spent.values())},
        "tokens_per_second": run.tokens / max(run.spent["train"], 1e-9),
        "environment": run.environment,
    }


PREDICTIONS = "predictions.npz"
"""The file beside a run's record with what the model predicts after the last step; beside `NAME.json` of a collection
of records it is `NAME.npz`."""


def read_predictions(path: str | Path) -> dict[str, np.ndarray]:
    """What the model of a run predicts for each row of its dev sets, by task and split (`rte/validation`).

    Args:
        path: the run's record.

    Raises FileNotFoundError where there are no predictions beside the record, and ValueError where they are not those
    with which it was written.
    """
    record = as_path(path)
    file = record.with_name(PREDICTIONS) if record.name == "record.json" else record.with_suffix(".npz")
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != read_object(record).get("predictions"):
        raise ValueError(f"{file} is not the file of predictions that {record} was written with")
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


def write_record(path: Path, record: dict) -> None:
    """Writes a record to a JSON file, whole or not at all; a NaN (an undefined average or recall) becomes null."""
    record = json.loads(json.dumps(record), parse_constant=lambda name: None if name == "NaN" else float(name))
    write_text(path, json.dumps(record, indent=1, allow_nan=False) + "\n")


_fields = partial(create_model, "Fields", __config__=ConfigDict(strict=True))
"""Makes the class of JSON objects that have these fields, of these types; they may have others. One that may be missing
is given as (its type, its value if missing)."""
_SCORE = float | None
_CONFIG = _fields(method=str, schedule=str, seed=int, backbone=str, data=str, steps=int, recipe=str, batch_size=int)
_POINT = _fields(step=int, dev_average=_SCORE, glue_average=_SCORE, scores=dict[str, dict[str, _SCORE]])
_FINISHED = _fields(
    key=str,
    config=_CONFIG,
    method=dict,
    precision=str,
    counts=_fields(ratio=float),
    seconds=_fields(total=float),
    results=_fields(last=_POINT, best=_POINT),
)
_RUN = _fields(status=str, config=dict)
_SEVERAL = _fields(runs=list[dict])


def check_fields(path: Path, values: dict, fields: type[BaseModel] = _FINISHED) -> None:
    """Raises ValueError, naming file and field, where a field is missing or of another type; by default the fields are
    those that readers need in the record of a finished run."""
    try:
        fields.model_validate(values)
    except ValidationError as errors:
        error = errors.errors(include_url=False)[0]
        what = "missing" if error["type"] == "missing" else f"{shown(error['input'])}: {error['msg']}"
        raise ValueError(f"{path}: {'.'.join(map(str, error['loc']))} is {what}") from None


def files_within(folder: Path) -> list[Path]:
    """The JSON files in a folder and its subfolders. Raises FileNotFoundError for a folder that does not exist."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder of records")
    return sorted(folder.rglob("*.json"))


@cache
def _names() -> dict[tuple[str, str], dict[str, str]]:
    """File and key of each committed run -> its study and arm, which the older ones do not state themselves."""
    rows = csv.DictReader((RECORDS / "index.csv").read_text().splitlines())
    return {(row["file"], row["key"]): {"study": row["study"], "arm": row["arm"]} for row in rows}


def read_records(source: str | Path | Iterable[Path] = RECORDS) -> list[dict]:
    """The records of the runs in a file, or in a folder and its subfolders, in order of path.

    A file of several runs (`adapter_removal.ablate`) gives a record for each, with the file's other fields. Other JSON
    files in a folder are left out. The field `file` is the record's path, relative to `RECORDS` if it lies there.
    Fields that an older config lacks have their defaults.
    Raises ValueError naming a file that is not JSON, a field of a record that is missing or of the wrong type, and a
    file without a record that is given by name or called `record.json`; FileNotFoundError for a missing file.
    """
    records, defaults = [], asdict(RunConfig())
    by_name = isinstance(source, (str, Path)) and (as_path(source).is_file() or Path(source).suffix == ".json")
    if isinstance(source, (str, Path)):
        source = [as_path(source)] if by_name else files_within(as_path(source))
    for path in map(Path, source):
        whole = read_json(path, "a JSON record")
        whole = whole if isinstance(whole, dict) else {}
        if "runs" in whole:
            check_fields(path, whole, _SEVERAL)
        runs = [whole | run for run in whole.get("runs", [whole])]
        runs = [run for run in runs if {"config", "results", "history"} & run.keys()]
        # A run's own record has this name, as has that of pre-training, which says its kind.
        if not runs and (by_name or (path.name == "record.json" and "kind" not in whole)):
            raise ValueError(f"{path}: holds no record of a run")
        committed = path.resolve().is_relative_to(RECORDS)
        file = path.resolve().relative_to(RECORDS).as_posix() if committed else path.as_posix()
        for run in runs:
            check_fields(path, run, _RUN)
            if run["status"] == "finished":
                check_fields(path, run)
            names = _names().get((file, run.get("key")), {}) if committed else {}
            records.append(run | {"file": file, "config": defaults | as_now(run["config"]) | names})
    return records


def load_records(source: str | Path | Iterable[Path] = RECORDS) -> pd.DataFrame:
    """One row for each finished run: config, counts, both averages and every task's metrics in percent (last, best).

    The column `settings` has, as JSON, all fields of the config that can change the result, except the seed.
    Raises the errors of `read_records`.
    """
    rows = []
    for record in read_records(source):
        if record["status"] != "finished":
            continue
        config = record["config"]
        row = {name: config[name] for name in _CONFIG.model_fields}
        row |= {"size": record["method"].get("size"), "ratio": record["counts"]["ratio"], "key": record["key"]}
        row |= {"seconds": record["seconds"]["total"], "precision": record["precision"]}
        settings = {k: v for k, v in config.items() if k not in {"seed", *CHANGE_NO_RESULT}}
        row["settings"] = json.dumps(settings, sort_keys=True)
        for which in ("last", "best"):
            result = record["results"][which]
            row |= {f"{which} dev average": result["dev_average"], f"{which} GLUE average": result["glue_average"]}
            row[f"{which} step"] = result["step"]
            for task, scores in result["scores"].items():
                row |= {f"{which} {task} {metric}": value for metric, value in scores.items()}
        rows.append(row)
    return pd.DataFrame(rows)


def summarise(frame: pd.DataFrame, by: list[str], value: str = "last dev average") -> pd.DataFrame:
    """The mean, standard error and number of seeds of a score in each group; for one seed the error is NaN.

    Raises ValueError where the runs of a group differ in more than the seed, and where a seed occurs twice.
    """
    if "settings" in frame:
        for group, texts in frame.groupby(by, sort=False, dropna=False)["settings"]:
            settings = pd.DataFrame([json.loads(text) for text in texts.unique()])
            if differ := [name for name in settings if settings[name].astype(str).nunique() > 1]:
                which = dict(zip(by, group, strict=True))
                raise ValueError(f"runs of one group ({which}) differ in {', '.join(differ)}: select one value of each")
    if "seed" in frame and (twice := frame.duplicated([*by, "seed"])).any():
        row = frame.loc[twice.idxmax(), [*by, "seed"]].to_dict()
        raise ValueError(f"two runs of one seed in one group: {row}; add to `by` the columns in which they differ")
    groups = frame.groupby(by, sort=False, dropna=False)[value]
    return groups.agg(mean="mean", standard_error="sem", seeds="count").reset_index()


_NUMBERS = ("layer", "head")  # columns of whole numbers, which may have missing values


def as_lines(frame: pd.DataFrame, digits: int = 4) -> list[str]:
    """A table as a list of lines of comma-separated values, which stays readable in a JSON file."""
    whole = {name: "Int64" for name in _NUMBERS if name in frame}  # otherwise a missing value makes 3 a 3.0
    return frame.astype(whole).to_csv(index=False, float_format=f"%.{digits}f").splitlines()


def from_lines(lines: list[str]) -> pd.DataFrame:
    """The table that `as_lines` has turned into lines; a missing layer or head is <NA>."""
    frame = pd.read_csv(StringIO("\n".join(lines)))
    return frame.astype({name: "Int64" for name in _NUMBERS if name in frame})
