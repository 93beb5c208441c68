"""One JSON record for each run; tables and figures read only these."""

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from palslib.paths import PROJECT, RECORDS, write_text

_PACKAGES = ("palslib", "torch", "transformers", "accelerate", "datasets", "numpy", "scikit-learn")


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def environment() -> dict:
    """Versions, git commit (and whether the tree was dirty), and the processor; no path or name of the machine."""
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "git_commit": _git("rev-parse", "HEAD"),
        "git_dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "cpu": _processor(),
        "cores": os.cpu_count(),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def write_record(path: Path, record: dict) -> None:
    """Writes a record whole or not at all."""
    write_text(path, json.dumps(record, indent=1) + "\n")


def read_records(source: str | Path | Iterable[Path] = RECORDS) -> list[dict]:
    """The records of a folder (searched below it), in order of path. Raises ValueError naming a file that is no JSON."""
    paths = sorted(Path(source).rglob("*.json")) if isinstance(source, (str, Path)) else source
    records = []
    for path in paths:
        try:
            record = json.loads(path.read_text())
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}: not a JSON record: {error}") from error
        if isinstance(record, dict) and "config" in record:
            records.append(record)
    return records


def load_records(source: str | Path | Iterable[Path] = RECORDS) -> pd.DataFrame:
    """One row for each finished run: config, counts, both averages and every task's metrics (last and best)."""
    rows = []
    for record in read_records(source):
        if record.get("status") != "finished":
            continue
        config = record["config"]
        row = {
            k: config[k] for k in ("method", "schedule", "seed", "backbone", "data", "steps", "recipe", "batch_size")
        }
        row |= {"size": record["method"]["size"], "ratio": record["counts"]["ratio"], "key": record["key"]}
        row |= {"seconds": record["seconds"]["total"], "precision": record["precision"]}
        for which in ("last", "best"):
            result = record["results"][which]
            row |= {f"{which} dev average": result["dev_average"], f"{which} GLUE average": result["glue_average"]}
            row[f"{which} step"] = result["step"]
            for task, scores in result["scores"].items():
                row |= {f"{which} {task} {metric}": value for metric, value in scores.items()}
        rows.append(row)
    return pd.DataFrame(rows)


def history_frame(record: dict) -> pd.DataFrame:
    """A record's learning curves, tidy: step, task (or `average`), metric, score in percent."""
    rows = []
    for point in record["history"]:
        rows.append({"step": point["step"], "task": "average", "metric": "dev", "score": point["dev_average"]})
        for task, scores in point["scores"].items():
            rows += [{"step": point["step"], "task": task, "metric": m, "score": v} for m, v in scores.items()]
    return pd.DataFrame(rows)


def summarise(frame: pd.DataFrame, by: list[str], value: str = "last dev average") -> pd.DataFrame:
    """Mean, standard error and number of seeds of a score; a mean of one seed has no standard error (NaN)."""
    groups = frame.groupby(by, sort=False)[value]
    return groups.agg(mean="mean", standard_error="sem", seeds="count").reset_index()
