"""What a run is made from beside its config: texts, labels, weights and one's own code, by hashes of what they hold.

A config names them (`data="mine"`, `backbone="runs/mine"`), and what lies under a name may be exchanged. Where a record
or a checkpoint was made from something else, it is of another run.
"""

import contextlib
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from palslib.bert.backbones import MINBERT, MINILM_SHA256, load_config
from palslib.data.tasks import load_rows
from palslib.data.tokens import content_of
from palslib.plan.config import RunConfig

_DECIDING = ("*.safetensors", "*.bin", "config.json", "palslib.json", "tokenizer*", "vocab*", "merges.txt")
"""Those files of a backbone's folder that a run depends on."""


def run_content(config: RunConfig, known: dict[tuple[str, str], str] | None = None) -> dict[str, str]:
    """Hashes by name: `rte/train` and so on, `backbone`, `start`, `method` if it is one's own; none of weights that are
    drawn from the seed.

    Args:
        known: (data, `rte/train`) -> hash of splits that need not be read; those that are read are added.
    """
    known, found = {} if known is None else known, {}
    for task in map(config.task, config.tasks):
        for split in ("train", *task.evaluation):
            place = task.data or config.data, f"{task.name}/{split}"
            if place not in known:
                known[place] = content_of(load_rows(task, config.data, split))
            found[place[1]] = known[place]
    backbone = config.backbone.removeprefix(MINBERT)
    if backbone == "minilm":
        found["backbone"] = MINILM_SHA256[:24]  # as loading it checks
    elif Path(backbone).is_dir():
        found["backbone"] = folder_content(Path(backbone))
    elif backbone != "tiny" and (commit := getattr(load_config(backbone), "_commit_hash", None)):
        found["backbone"] = commit  # of the Hub
    if config.weights == "random":
        found.pop("backbone", None)
    if config.start:
        found["start"] = folder_content(Path(config.start))
    method = config.base_method()
    if not type(method).__module__.startswith("palslib."):
        said = [json.dumps(method.to_dict(), sort_keys=True), *_sources(type(method), set())]
        found["method"] = hashlib.sha256("\n".join(said).encode()).hexdigest()[:24]
    return found


def _sources(thing: type | Callable, seen: set) -> Iterator[str]:
    """The code of a class or function, and of those beside it that it names: a method's family, then its module."""
    seen.add(thing)
    for function in vars(thing).values() if isinstance(thing, type) else [thing]:
        if inspect.isfunction(function):
            with contextlib.suppress(OSError):  # dataclasses write some, which have no source
                yield inspect.getsource(function)
            for name in function.__code__.co_names:
                other = function.__globals__.get(name)
                if getattr(other, "__module__", None) == thing.__module__ and callable(other) and other not in seen:
                    yield from _sources(other, seen)


def folder_content(folder: Path) -> str:
    """A hash of the weights in a folder and of what else decides how they are used; FileNotFoundError for none."""
    digest, paths = hashlib.sha256(), sorted({path for pattern in _DECIDING for path in folder.glob(pattern)})
    if not paths:
        raise FileNotFoundError(f"{folder} holds no weights")
    for path in paths:
        about = path.stat()
        digest.update(f"{path.name} {_hash(path, about.st_size, about.st_mtime_ns)}\n".encode())
    return digest.hexdigest()[:24]


@cache
def _hash(path: Path, size: int, changed: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def exchanged(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Names of what is not what it was; what was not known then is taken as it is."""
    return [name for name, value in before.items() if now.get(name, value) != value]


def exchanged_since(record: dict, config: RunConfig, known: dict[tuple[str, str], str] | None = None) -> list[str]:
    """Names of what has been exchanged since a run left this record; none for an older record, which does not say."""
    if not record.get("content"):
        return []
    try:
        return exchanged(record["content"], run_content(config, known))
    except OSError:  # what it was made from is no longer there, so that nothing else can be made of it either
        return []
