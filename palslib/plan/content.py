"""Hashes of a run's inputs, which its config only names: texts and labels, weights, the code of a method of your own.

The content under a name (`data="mine"`, `backbone="runs/mine"`) may be exchanged. A record or checkpoint that was made
from other content belongs to another run.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from palslib.bert.backbones import MINILM_SHA256, plain
from palslib.common.files import LIST, check_files, digest, read_list
from palslib.common.processes import say
from palslib.data.tasks import BUILT_IN, load_rows
from palslib.data.tokens import content_of
from palslib.plan.config import RunConfig

_DECIDING = ("config.json", "model*.safetensors", "pytorch_model*.bin", "masked_language_model.safetensors", "*.model")
_DECIDING += ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_DECIDING += ("vocab.txt", "vocab.json", "merges.txt")
"""The files in a backbone's folder that a run depends on, if no list says which they are."""


def folder_content(folder: Path) -> str:
    """A hash of the files in a folder that a run depends on. Raises FileNotFoundError where there are none, ValueError
    where they are not those that its list names."""
    if (folder / LIST).is_file():  # `palslib clean` removes weights and keeps the list, which has their hash
        return (check_files if (folder / "model.safetensors").exists() else read_list)(folder)["digest"]
    paths = sorted({path for pattern in _DECIDING for path in folder.glob(pattern) if path.is_file()})
    if not paths:
        kept = [str(folder / name) for name in ("last", "best") if (folder / name).is_dir()]
        advice = f": give {' or '.join(kept)}" if kept else ""
        raise FileNotFoundError(f"{folder} {'holds no weights' if folder.exists() else 'does not exist'}{advice}")
    return digest(*(part for path in paths for part in (path.name, path)))


def _backbone_content(backbone: str) -> str | None:
    """A hash of a backbone's weights; None where there is none."""
    from huggingface_hub import try_to_load_from_cache  # here, because a sweep loads no model

    if backbone == "minilm":
        return MINILM_SHA256[:24]  # checked where the weights are loaded
    if Path(backbone).is_dir():
        return folder_content(Path(backbone))
    try:
        path = try_to_load_from_cache(backbone, "config.json")  # in the cache: .../snapshots/COMMIT/config.json
    except ValueError as error:  # no name of the Hub's: the folder is gone
        raise FileNotFoundError(f"there is no folder {backbone}") from error
    return Path(path).parent.name if isinstance(path, str) else None


def _sources(kind: type) -> Iterator[str]:
    """The source of a class's functions, also of a class that was defined in a notebook cell."""
    for value in vars(kind).values():
        function = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
        with suppress(OSError, TypeError):  # those that dataclasses make have none; other values are no functions
            yield inspect.getsource(function)


def _method_content(method) -> str:
    """A hash of a user's own method: its options, and the functions, numbers and texts of its class and of the classes
    that `build` uses."""
    used = inspect.getclosurevars(type(method).build).globals.values()
    own = [one for one in used if inspect.isclass(one) and one.__module__ == type(method).__module__]
    kinds = (type(method), *own)
    options = {"kind", *method.options()}
    values = [(k, v) for kind in kinds for k, v in vars(kind).items() if not k.startswith("__") and k not in options]
    # A function or an object in a tuple is written with its address, 0x..., which is another in each process.
    constants = [f"{k}={v!r}" for k, v in values if type(v) in (int, float, str, bool, tuple) and "0x" not in repr(v)]
    return digest(repr(method), *(source for kind in kinds for source in _sources(kind)), *constants)


def run_content(config: RunConfig, known: dict[tuple, str]) -> dict[str, str]:
    """The hashes of a run's inputs by name: each split (`rte/train`), `backbone` or `start`, the user's own `method`,
    and the class names of tasks that are not built in (`mood/classes`). An input that is out of reach, or has no hash,
    is left out and told. `known`: (data, repr of the task, split) -> hash, for splits that need not be read; others'
    hashes are added.
    """
    content, told = {}, []

    @contextmanager
    def reading(name: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, PermissionError, ConnectionError) as error:
            told.append(f"{name} cannot be read, so a change of it goes unnoticed: {error}")

    if config.start:  # whose weights are the backbone's, trained further
        with reading("start"):
            content["start"] = folder_content(Path(config.start))
    elif (backbone := plain(config.backbone)) != "tiny":
        with reading("backbone"):
            content["backbone"] = _backbone_content(backbone)
    method = config.base_method()
    if not type(method).__module__.startswith("palslib."):
        content["method"] = _method_content(method)
    for name in config.tasks:
        with reading(name):  # the classes of the user's own task may be those that occur in its file
            task = config.task(name)
            trained, scored = config.splits(task)
            if name not in BUILT_IN and task.labels:
                content[f"{name}/classes"] = digest(repr(task.labels))
            for split in (trained, *scored):
                with reading(f"{name}/{split}"):
                    key = (config.data, repr(task), split)  # tasks of one name may differ between configs
                    if key not in known:
                        known[key] = content_of(load_rows(task, config.data, split))
                    content[f"{name}/{split}"] = known[key]
    told += [f"{name} has no hash: a change of it goes unnoticed" for name, value in content.items() if not value]
    if told:
        say(told, config.name)
    return {name: value for name, value in content.items() if value}


def exchanged(
    before: dict[str, str], config: RunConfig, now: dict[str, str] | None = None, known: dict[tuple, str] | None = None
) -> list[str]:
    """The names of inputs whose hashes are not those `before`. What is out of reach counts as unchanged, and is told.
    `now`: the present hashes, if they were computed already; `known`: as in `run_content`.
    """
    if now is None and before:
        now = run_content(config, {} if known is None else known)
        new = [f"{name} has no hash in the record: a change of it goes unnoticed" for name in now if name not in before]
        if new:  # a run's name takes a look at all its files
            say(new, config.name)
    return [name for name, value in before.items() if now.get(name, value) != value]
