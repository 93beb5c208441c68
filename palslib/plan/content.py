"""Hashes of a run's inputs, which its config only names: texts and labels, weights, the code of a method of your own.

The content under a name (`data="mine"`, `backbone="runs/mine"`) may be exchanged. A record or checkpoint that was made
from other content belongs to another run.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path

from palslib.bert.backbones import INCLUDED, plain
from palslib.common.files import digest
from palslib.common.processes import say
from palslib.data.tasks import load_rows
from palslib.data.tokens import content_of
from palslib.plan.config import RunConfig

_DECIDING = ("*.safetensors", "*.bin", "config.json", "palslib.json", "tokenizer*", "vocab*", "merges.txt")
"""The files in a backbone's folder that a run depends on."""


def folder_content(folder: Path) -> str:
    """A hash of the files in a folder that a run depends on. Raises FileNotFoundError where there are none."""
    if not (paths := sorted({path for pattern in _DECIDING for path in folder.glob(pattern)})):
        kept = [str(folder / name) for name in ("last", "best") if (folder / name).is_dir()]
        raise FileNotFoundError(f"{folder} holds no weights{': give ' if kept else ''}{' or '.join(kept)}")
    return digest(*(part for path in paths for part in (path.name, path)))


def _inputs(config: RunConfig, known: dict[str, str]) -> Iterator[tuple[str, object]]:
    """The name of each input, and a function that computes its hash; `known` are those of splits that were read."""
    backbone = plain(config.backbone)
    if config.start or (backbone not in INCLUDED and Path(backbone).is_dir()):
        yield ("start" if config.start else "backbone"), lambda: folder_content(Path(config.start or backbone))
    method = config.base_method()
    if not type(method).__module__.startswith("palslib."):
        kinds = (type(method), *filter(inspect.isclass, inspect.getclosurevars(type(method).build).globals.values()))
        yield "method", lambda: digest(repr(method), *map(inspect.getsource, kinds))
    for task in map(config.task, config.tasks):
        trained, scored = config.splits(task)
        if task.name in config.own:
            yield f"{task.name}/classes", lambda task=task: digest(repr(task.labels))
        for split in (trained, *scored):
            name = f"{task.name}/{split}"
            yield name, lambda n=name, t=task, s=split: known.get(n) or content_of(load_rows(t, config.data, s))


def run_content(config: RunConfig, known: dict[str, str]) -> dict[str, str]:
    """The hashes of a run's inputs by name: each split (`rte/train`), `backbone` or `start`, the user's own `method`."""
    return {name: compute() for name, compute in _inputs(config, known)}


def exchanged(
    before: dict[str, str], config: RunConfig, now: dict[str, str] | None = None, known: dict[str, str] | None = None
) -> list[str]:
    """The names of inputs that differ from those `before`; what is out of reach now is told and counts as unchanged.
    The hashes of splits that are in `known` are not computed again, and new ones are added to it."""
    found, known = {}, {} if known is None else known
    for name, compute in _inputs(config, known) if now is None else ():
        try:
            found[name] = compute()
        except OSError as error:
            say([f"{name} cannot be compared with the input of the record: {error}"], config.name)
    known |= found
    now = found if now is None else now
    return [name for name, value in before.items() if now.get(name, value) != value]
