"""Bad inputs by the thousand, and what becomes of each: `python tests/data/fuzz_inputs.py --runs 1000 --seed 1`.

An input of some kind (a Parquet file, a saved model, a config, ...) is made, damaged in one way, and given to palslib
in a process of its own, in a folder of its own. What may become of it:

    named error           an error of palslib's own whose message names the file or the field
    accepted and right    what comes back is what was saved, or what the input means
    raw traceback         anything else: a library's own error, one that names nothing, a dead process
    silent                accepted and wrong, or refused after something in a running model had changed
    hang                  no answer within LIMIT seconds
    left-over             files in its folder that should not be there
    written outside       files outside of its folder

A bit that flips inside a text of somebody's own file makes another text, which nobody can know without a checksum: that
counts as right where the table is whole (`whole`).
"""

import argparse
import json
import math
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before what reads it is imported
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # every input has a process by fork
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import BertConfig, BertModel
from transformers.utils.logging import disable_progress_bar

from palslib.bert.backbones import load_config, load_encoder, load_tokenizer
from palslib.common.places import PROJECT, RECORDS
from palslib.data.tasks import Task, get_task, load_rows, task_from_file
from palslib.data.tokens import tokenise_task
from palslib.grid.sweep import Grid
from palslib.methods.counting import count_parameters
from palslib.model.multi_task import MultiTaskModel
from palslib.plan.config import RunConfig, make_plan
from palslib.records import environment, load_records, write_record

LIMIT = 10.0
"""Seconds; a usual one takes a tenth of a second, a Parquet file one."""
OUTCOMES = "named error", "accepted and right", "raw traceback", "silent", "hang", "left-over", "written outside"
BAD = OUTCOMES[2:]


@dataclass
class Case:
    """One damaged input, and how to tell what became of it."""

    damage: str
    """In words."""
    act: Callable[[], object]
    """What a user calls."""
    right: Callable[[object], bool]
    """Of what it returned, whether that is right."""
    names: tuple[str, ...]
    """The message of an error must have one of these in it."""
    unchanged: Callable[[], bool] = lambda: True
    """After an error: whether what was there before is as it was."""
    files: tuple[str, ...] = ()
    """Patterns of files that may be new in the folder."""


def never(_: object) -> bool:
    """Of what has to be refused."""
    return False


# ------------------------------------------------------------------------------------------------------- ways to damage


OTHERS = [b"PK\x03\x04", b"\x80\x02}q\x00.", b"<html>", b"\xff\xfe{\x00}\x00"]
"""How an archive, a pickle, a web page and UTF-16 begin."""


def hurt(rng: random.Random, content: bytes) -> tuple[str, bytes]:
    """Bytes as a disk, a transfer or an editor may leave them."""
    at, one = rng.randrange(len(content)), rng.randrange(8)
    length = rng.randrange(1, 1 + len(content) // 2)
    ways = {
        "a bit flipped": lambda: content[:at] + bytes([content[at] ^ (1 << one)]) + content[at + 1 :],
        "cut": lambda: content[:at],
        "emptied": lambda: b"",
        "noise": lambda: rng.randbytes(len(content)),
        "noise before it": lambda: rng.randbytes(8) + content,
        "zeros in it": lambda: content[:at] + bytes(len(content[at : at + length])) + content[at + length :],
        "more behind it": lambda: content + rng.randbytes(length),
        "a part twice": lambda: content[: at + 1] + content[at:],
        "another kind of file": lambda: rng.choice(OTHERS),
        "a pickle": lambda: pickle.dumps({"a": 1}),
    }
    name = rng.choice(list(ways))
    return name, ways[name]()


NASTY = [True, False, None, "", "5", "\0", "a\nb", "\ud800", "/tmp/x", "../x", "x" * 300, [], {}, [1], [[]], {"a": 1}]
NASTY += [0, -1, 0.5, 1e9, 1e12, 10**9, 10**12, 10**400, 1e308, -1e308, math.nan, math.inf, "annealed", "nan", "1e9"]


def nested(depth: int, brackets: str = "[]") -> str:
    """JSON as deep as that."""
    opening = '{"a":' if brackets == "{}" else "["
    return opening * depth + "1" + brackets[1] * depth


def hurt_json(rng: random.Random, text: str) -> tuple[str, bytes]:
    """A JSON file that is none, or not one of ours."""
    at = rng.randrange(1, len(text))
    ways = {
        "cut": text[:at].encode(),
        "emptied": b"",
        "noise": rng.randbytes(len(text)),
        "UTF-16": text.encode("utf-16"),
        "with a byte order mark": b"\xef\xbb\xbf" + text.encode(),
        "a byte that is no UTF-8": text[:at].encode() + b"\xff" + text[at:].encode(),
        "NUL bytes": text[:at].encode() + b"\0\0\0" + text[at:].encode(),
        "100,000 brackets": nested(100_000).encode(),
        "100,000 objects": nested(100_000, "{}").encode(),
        "900 brackets": nested(900).encode(),
        "a number of 5,000 digits": (b'{"steps": ' + b"9" * 5_000 + b"}"),
        "a list": f"[{text}]".encode(),
        "a string": b'"a"',
        "a number": b"NaN",
        "null": b"null",
    }
    name = rng.choice(list(ways))
    return name, ways[name]


def hurt_tree(rng: random.Random, tree: dict) -> tuple[str, list]:
    """Somewhere in a tree a value of another kind, a key too few, or one too many. Returns the path to it, too."""
    place, path = tree, []
    while True:
        key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
        path.append(key)
        if isinstance(place[key], (dict, list)) and place[key] and rng.random() < 0.75:
            place = place[key]
            continue
        way = rng.choice(["other value", "other value", "missing", "wrapped"])
        if way == "missing":
            del place[key]
        else:
            place[key] = [place[key]] if way == "wrapped" else rng.choice(NASTY)
        return f"{way} at {'.'.join(map(str, path))}" + (f": {place[key]!r:.40}" if way == "other value" else ""), path


# ----------------------------------------------------------------------------------------------------- Parquet files

PAIRS = [("It rains.", "It is wet.", 0), ("It rains.", "It is dry.", 1), ("A cat.", "", 1), ("Ä dog.", "An animal.", 0)]
PAIRS = PAIRS * 5
README = """---
configs:
- config_name: rte
  data_files: [{split: train, path: rte/train.parquet}]
---
"""


def _columns(rng: random.Random) -> tuple[str, pa.Table, bool]:
    """A table that is not as it should be, and whether it means the same all the same."""
    first, second, label = (list(column) for column in zip(*PAIRS, strict=True))
    good = {"sentence1": pa.array(first), "sentence2": pa.array(second), "label": pa.array(label)}
    rows = len(label)
    texts = {
        "numbers": pa.array(range(rows)),
        "nulls": pa.array([None, *first[1:]]),
        "all null": pa.nulls(rows),
        "bytes": pa.array([x.encode() for x in first]),
        "lists": pa.array([[x] for x in first]),
        "objects": pa.array([{"a": x} for x in first]),
        "dates": pa.array(range(rows), pa.timestamp("s")),
    }
    labels = {
        "fractions": pa.array([0.5] * rows),
        "unknown": pa.array([7] * rows),
        "negative": pa.array([-1] * rows),
        "nulls": pa.array([None, *label[1:]]),
        "NaN": pa.array([math.nan] * rows),
        "infinite": pa.array([math.inf] * rows),
        "lists": pa.array([[x] for x in label]),
        "objects": pa.array([{"a": x} for x in label]),
        "dates": pa.array(label, pa.timestamp("ns")),
        "times": pa.array(label, pa.duration("ns")),
        "bytes": pa.array([str(x).encode() for x in label]),
        "huge": pa.array([2**63 - 1] * rows),
        "names that are none": pa.array(["yes"] * rows),
    }
    names = pa.array([("entailment", "not_entailment")[x] for x in label])
    fine = {
        "sentence1": {
            "large strings": pa.array(first, pa.large_string()),
            "a dictionary": pa.array(first).dictionary_encode(),
        },
        "label": {
            "small integers": pa.array(label, pa.int8()),
            "floats": pa.array(label, pa.float64()),
            "names": names,
            "names by dictionary": names.dictionary_encode(),
        },
    }  # fmt: skip
    way = rng.choice(["texts", "texts", "labels", "labels", "labels", "fine", "columns"])
    if way == "columns":
        what = rng.choice(["renamed", "missing", "twice", "in capitals", "no rows", "no columns"])
        table = pa.table(good)
        if what == "twice":
            return what, table.append_column("label", good["label"]), False
        if what == "no columns":
            return what, table.select([]), False
        others = {"renamed": ["a", "b", "c"], "in capitals": ["Sentence1", "Sentence2", "Label"]}.get(what)
        table = table.rename_columns(others) if others else table
        table = table[:0] if what == "no rows" else table.drop(["sentence2"]) if what == "missing" else table
        return what, table, False
    column = rng.choice(["sentence1", "sentence2"]) if way == "texts" else "label"
    column = rng.choice(list(fine)) if way == "fine" else column
    kinds = fine[column] if way == "fine" else texts if way == "texts" else labels
    kind = rng.choice(list(kinds))
    return f"{column}: {kind}", pa.table(good | {column: kinds[kind]}), way == "fine"


def whole(frame: pd.DataFrame, rows: int | None = len(PAIRS)) -> bool:
    """Whether a table is one of texts and classes, of so many rows."""
    texts = [x for name in frame if name != "label" for x in frame[name]]
    printable = all(isinstance(x, str) and "\0" not in x for x in texts)
    return printable and frame["label"].isin([0, 1, 2]).all() and rows in (None, len(frame))


def parquet(rng: random.Random, folder: Path) -> Case:
    path = folder / "own" / "rte" / "train.parquet"
    path.parent.mkdir(parents=True)
    (folder / "own" / "README.md").write_text(README)
    good, expected = True, pd.DataFrame(PAIRS, columns=["sentence1", "sentence2", "label"])
    way = rng.random()
    if way < 0.1:
        pq.write_table(pa.Table.from_pandas(expected), path)
        damage, content = hurt(rng, README.encode())
        (folder / "own" / "README.md").write_bytes(content)
        damage, right = f"{damage} (README.md)", expected.equals
    elif way < 0.6:
        damage, table, good = _columns(rng)
        pq.write_table(table, path)
        right = expected.equals if good else never
    else:
        pq.write_table(pa.Table.from_pandas(expected), path, compression=rng.choice(["snappy", "none", "zstd"]))
        damage, content = hurt(rng, path.read_bytes())
        path.write_bytes(content)
        right = whole

    def act():
        import datasets

        datasets.config.HF_DATASETS_CACHE = folder.parent / "cache"
        return load_rows("rte", str(folder / "own"))

    return Case(damage, act, right, ("train.parquet", "own rte/train", "README.md"))


# --------------------------------------------------------------------------------------------------- delimited files

MOOD = Task("mood", ("text",), ("bad", "good"))
LINES = ["text,label", *(f'"Text {i}, of some words, ä.",{("bad", "good")[i % 2]}' for i in range(40))]


def delimited(rng: random.Random, folder: Path) -> Case:
    text, row = "\n".join(LINES) + "\n", rng.randrange(1, len(LINES))

    def line(new: str) -> bytes:
        return "\n".join([*LINES[:row], new, *LINES[row + 1 :]]).encode() + b"\n"

    refused = {
        "a NUL byte in a text": line('"a\0b",good'),
        "a NUL byte in a label": line('"a",go\0od'),
        "NUL bytes at the end": text.encode() + bytes(50),
        "a control character in a label": line('"a",goo\x1bd'),
        "a control character in the header": text.replace("label", "la\x07bel").encode(),
        "UTF-16": text.encode("utf-16"),
        "UTF-16 without a mark": text.encode("utf-16-le"),
        "Latin-1": text.encode("latin-1"),
        "another separator": text.replace(",", ";").encode(),
        "a cell too many": line('"a","b",good'),
        "a cell too few": line("a"),
        "an open quote": line('"a,good'),
        "an unknown label": line('"a",great'),
        "an empty label": line('"a",'),
        "a label that is NaN": line('"a",nan'),
        "a label that is infinite": line('"a",inf'),
        "a header twice": text.replace("text,label", "label,label").encode(),
        "a column renamed": text.replace("text,label", "text,lable").encode(),
        "a header alone": b"text,label\n",
        "no header": "\n".join(LINES[1:]).encode(),
        "emptied": b"",
        "line breaks alone": b"\n\n\r\n",
        "a cell of 200,000 letters": line('"' + "a" * 200_000 + '",good'),
    }
    accepted = {
        "a byte order mark": b"\xef\xbb\xbf" + text.encode(),
        "Windows's line ends": text.replace("\n", "\r\n").encode(),
        "empty lines at the end": text.encode() + b"\n\n",
        "no line end": text.encode()[:-1],
        "a control character in a text": line(f'"a{chr(rng.choice([1, 7, 8, 27, 31, 127]))}b",good'),  # real files have
        "a tab in a text": line('"a\tb",good'),
        "a line break in a text": line('"a\nb",good'),
    }
    path = folder / "mood.csv"
    own = rng.random() < 0.3  # its classes are those that occur
    read = (lambda: load_rows(task_from_file(path), path, "train")) if own else lambda: load_rows(MOOD, path, "train")
    if (way := rng.random()) < 0.25:
        damage, content = hurt(rng, text.encode())
        # A label's letter may become another letter; what is left must be a table.
        right = lambda frame: all(isinstance(x, str) and "\0" not in x and "�" not in x for x in frame["text"])  # noqa: E731
    else:
        ways = refused if way < 0.85 else accepted
        damage = rng.choice(list(ways))
        content, right = ways[damage], never if ways is refused else lambda frame: whole(frame, None)
        if own and damage in ("an unknown label", "a label that is NaN", "a label that is infinite"):
            right = lambda frame: set(frame["label"]) <= {0, 1, 2}  # a class of its own  # noqa: E731
    path.write_bytes(content)
    return Case(damage, read, right, ("mood.csv",))


# ------------------------------------------------------------------------------------- saved models and saved tasks


@cache
def running() -> MultiTaskModel:
    """A small model in which nothing is as it was drawn."""
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
    config = BertConfig(**sizes, vocab_size=99, max_position_embeddings=40)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = MultiTaskModel.from_backbone(BertModel(config), "pals-204", ["rte", "stsb"], size=12, heads=3)
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model.eval()


def snapshot(model: torch.nn.Module) -> dict:
    """A model's tensors, copied."""
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(a: dict, b: dict) -> bool:
    """Whether two snapshots are equal, bit for bit."""
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)


def tensors_in(path: Path) -> tuple[dict, dict]:
    """Of a file of tensors, metadata as an earlier version would write them, without a checksum, and the tensors."""
    with safe_open(path, "pt") as file:
        about = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return {k: v for k, v in about.items() if k in ("task", "method", "fingerprint")}, tensors


def hurt_tensors(rng: random.Random, path: Path) -> str:
    """A file of tensors of which one is wrong, written without a checksum."""
    about, tensors = tensors_in(path)
    name = rng.choice(list(tensors))
    value = tensors[name]
    ways = {
        "NaN": lambda: value.flatten().index_fill(0, torch.tensor([0]), math.nan).view_as(value),
        "infinite": lambda: value.flatten().index_fill(0, torch.tensor([0]), math.inf).view_as(value),
        "another shape": lambda: torch.zeros(*value.shape, 2),
        "another order of sizes": lambda: value.reshape(-1) if value.ndim > 1 else value[None],
        "one row too many": lambda: torch.cat([value, value[:1]]),
        "whole numbers": lambda: value.long(),
        "float64": lambda: value.double(),
        "complex": lambda: value.to(torch.complex64),
        "missing": lambda: None,
    }
    way = rng.choice([*ways, "unexpected", "renamed"])
    if way == "missing":
        del tensors[name]
    elif way in ways:
        tensors[name] = ways[way]()
    else:
        tensors[name + "x"] = value.clone() if way == "unexpected" else tensors.pop(name)
    save_file(tensors, path, metadata=about or None)
    return f"{way}, without checksum"


def exchanged(damage: str, path: Path) -> str:
    """Removes a file, and may put a folder in its place."""
    path.unlink()
    if damage != "missing":
        path.mkdir()
    return damage


def model_folder(rng: random.Random, folder: Path) -> Case:
    model = running()
    model.save_pretrained(folder / "model")
    weights, about = folder / "model" / "model.safetensors", folder / "model" / "palslib.json"
    way = rng.choice(["bytes", "bytes", "tensors", "json", "tree", "tree", "tree of an earlier version", "file"])
    if way == "bytes":
        path = rng.choice([weights, about])
        damage, content = hurt(rng, path.read_bytes())
        path.write_bytes(content)
        damage += f" ({path.name})"
    elif way == "tensors":
        damage = hurt_tensors(rng, weights)
    elif way == "json":
        damage, content = hurt_json(rng, about.read_text())
        about.write_bytes(content)
    elif way == "file":
        path = rng.choice([weights, about])
        damage = exchanged(rng.choice(["missing", "a folder in its place"]), path)
    else:
        tree = json.loads(about.read_text())
        damage, _ = hurt_tree(rng, tree)
        about.write_text(json.dumps(tree))
        if "earlier" in way:
            save_file(tensors_in(weights)[1], weights)
            damage += ", without checksum"
    before, tasks = snapshot(model), dict(model.tasks)

    def load():
        return MultiTaskModel.from_pretrained(folder / "model")

    def right(loaded) -> bool:
        if not same(snapshot(loaded), before) or loaded.method != model.method or list(loaded.tasks) != list(tasks):
            return False
        given = json.loads(about.read_text())  # what the description says, it must be, where no checksum says otherwise
        named = (loaded.seed, loaded.backbone_name) == (given["seed"], given["backbone_name"])
        kinds = (type(loaded.seed), type(loaded.backbone_name)) == (int, str)
        rows = [json.loads(json.dumps(asdict(task))) for task in loaded.tasks.values()]
        return named and kinds and all(row | mine == row for row, mine in zip(rows, given["tasks"], strict=True))

    return Case(damage, load, right, ("palslib.json", "model.safetensors", str(folder / "model")))


def task_file(rng: random.Random, folder: Path) -> Case:
    model = running()
    path = model.save_task("rte", folder)
    new = rng.random() < 0.5
    saved, task = snapshot(model), model.tasks["rte"]
    way = rng.choice(["bytes", "bytes", "tensors", "tensors", "metadata", "file"])
    if way == "bytes":
        damage, content = hurt(rng, path.read_bytes())
        path.write_bytes(content)
    elif way == "tensors":
        damage = hurt_tensors(rng, path)
    elif way == "file":
        damage = rng.choice(["missing", "a folder in its place", "two in the folder"])
        if damage == "two in the folder":
            shutil.copy(path, folder / "stsb.safetensors")
            path = folder
        else:
            exchanged(damage, path)
    else:
        about, tensors = tensors_in(path)
        key = rng.choice(list(about))
        way = rng.choice(["tree", "tree", "json", "missing"]) if key != "fingerprint" else "missing"
        if way == "tree":
            tree = json.loads(about[key])
            damage, _ = hurt_tree(rng, tree)
            about[key] = json.dumps(tree)
        elif way == "json":
            about[key] = rng.choice(["", "{", "[]", "null", "NaN", nested(900), nested(5_000), '{"name": "rte"}', "\0"])
            damage = f"{key} is {about[key]!r:.20}"
        else:
            damage = f"{key} is missing"
            del about[key]
        save_file(tensors, path, metadata=about)
        damage += ", without checksum"
    for p in model.adaptations["rte"].parameters():  # another state, in which nothing may be exchanged on an error
        p.data.add_(1.0)
    if new:
        model.remove_task("rte")
    before, tasks = snapshot(model), dict(model.tasks)

    def right(name) -> bool:
        # A metric, a split or a scale of a task without checksum is what the file says; the parameters must be those.
        plausible = model.tasks[name].texts == task.texts and model.tasks[name].num_outputs == task.num_outputs
        return name == "rte" and plausible and same(snapshot(model), saved) and isinstance(model.tasks[name], Task)

    def unchanged() -> bool:
        return same(snapshot(model), before) and model.tasks == tasks

    return Case(damage, lambda: model.load_task(path), right, (path.name, str(folder)), unchanged)


# ---------------------------------------------------------------------------------------------------------- records


def records(rng: random.Random, folder: Path) -> Case:
    path, source = folder / "record.json", RECORDS / "main" / "pals-204-annealed-seed0-7f8c30a020.json"
    text, expected = source.read_text(), load_records(source)
    whole, tree = json.loads(text), json.loads(text)
    if rng.random() < 0.4:
        damage, content = hurt_json(rng, text)
        path.write_bytes(content)
        right = never
    else:
        damage, place = (hurt_read if rng.random() < 0.6 else hurt_tree)(rng, tree)
        path.write_text(json.dumps(tree))

        def right(frame) -> bool:
            if place == ["status"]:  # of a run that has not finished
                return isinstance(tree.get("status"), str) and frame.empty
            old, new = (_at(there, place) for there in (whole, tree))
            alike = type(new) is type(old) or (type(old) is float and type(new) is int)
            if alike and isinstance(new, str | int | float) and new in frame.iloc[0].tolist():
                return True  # another number, another name: it says so
            if new is None and place[-1] in ("dev_average", "glue_average"):
                return True  # no number, as an average of the released code can be
            if place[0] == "results" and "scores" in place and damage.startswith("missing"):
                return set(frame) < set(expected)  # a run without that task, or that metric
            free = {"scores", "loss"} & set(place[:-1]) or place[0] in ("config", "method")
            cells = zip(frame.iloc[0], expected.iloc[0], strict=True)
            types_hold = all(type(a) is type(b) or a is None or b is None for a, b in cells)
            return frame.equals(expected) or bool(free and types_hold and list(frame) == list(expected))

    return Case(damage, lambda: load_records(rng.choice([path, [path]])), right, ("record.json",))


def _at(tree, path: list):
    for part in path:
        tree = tree[part] if isinstance(tree, list) or (isinstance(tree, dict) and part in tree) else None
    return tree


def hurt_read(rng: random.Random, tree: dict) -> tuple[str, list]:
    """Like `hurt_tree`, where `load_records` looks."""
    read = ["key", "precision", "config", "method", "counts", "seconds", "results", "counts.ratio", "seconds.total"]
    read += ["results.last", "results.best.scores", "results.last.step", "results.best.dev_average"]
    read += ["results.last.glue_average", "results.last.scores.rte", "config.method", "config.schedule", "config.seed"]
    read += ["config.backbone", "config.data", "config.steps", "config.batch_size"]
    *above, last = path = rng.choice(read).split(".")
    place = tree
    for name in above:
        place = place[name]
    if rng.random() < 0.3:
        del place[last]
        return f"missing at {'.'.join(path)}", path
    place[last] = rng.choice([x for x in NASTY if type(x) is not type(place[last])])
    return f"other value at {'.'.join(path)}: {place[last]!r:.40}", path


# --------------------------------------------------------------------------------------------------- configs and grids

SMALL = {"backbone": "minilm", "tasks": ["rte", "cola"], "steps": 20, "evaluate_every": 0, "size": 24}


def _asked(rng: random.Random) -> tuple[str, dict]:
    """A config with a field or two of nonsense."""
    values, damage = dict(SMALL), []
    for _ in range(rng.choice([1, 1, 2])):
        names = [f.name for f in fields(RunConfig)] + ["alpha", "size", "steps", "data", "tasks", "preset", "x"]
        name, value = rng.choice(names), rng.choice(NASTY)
        if name == "tasks":
            bad = [["rte", "rte"], ["/tmp/x"], ["../rte"], [""], ["*"], ["**"], ["\0"], ["a/b"], "rte", value]
            value = rng.choice(bad)
        if name in ("method_options", "recipe_options"):
            option = rng.choice(["heads", "sharing", "size", "pal_heads", "epsilon", "clip", "x", "houlsby_size"])
            value = {option: rng.choice(NASTY)}
        if name == "alpha":
            values["schedule"] = "proportional"
        values[name] = value
        damage.append(f"{name}={value!r:.30}")
    return ", ".join(damage), values


def _makes_sense(config: RunConfig) -> bool:
    """Whether a run of it could be started: numbers finite, sizes of this world, an order of training."""
    about = asdict(config)
    given = [x for v in about.values() for x in (v.values() if isinstance(v, dict) else [v])]
    numbers = [x for x in given if isinstance(x, (int, float)) and not isinstance(x, bool)]
    texts = [x for x in [*given, *config.tasks] if isinstance(x, str)]
    if not all(abs(x) < 1e307 for x in numbers) or any("\0" in x or "\n" in x for x in texts) or "" in texts:
        return False
    if config.batch_size * config.max_length > 1e9 or config.steps > 1e8 or config.memory * config.max_length > 1e10:
        return False
    if count_parameters(config.resolved_method(), config.backbone, len(config.tasks)).added > 1e11:
        return False
    plan = make_plan(config, dict.fromkeys(config.tasks, 1000))
    expected = plan.expected_steps()
    return all(math.isfinite(n) for n in expected.values()) and abs(sum(expected.values()) - config.steps) < 1


def configs(rng: random.Random, folder: Path) -> Case:
    path = folder / "config.json"
    if rng.random() < 0.2:
        damage, content = hurt_json(rng, json.dumps(SMALL))
        path.write_bytes(content)
        return Case(damage, lambda: RunConfig.from_file(path), never, ("config.json",))
    damage, values = _asked(rng)
    path.write_text(json.dumps(values))

    def act():
        config = RunConfig.from_file(path)
        config.resolved_method()
        return config

    def right(config: RunConfig) -> bool:
        kept = [type(getattr(config, k)) is type(v) for k, v in values.items() if k not in ("preset", "tasks")]
        return all(kept) and _makes_sense(config)

    # The field may be said by its name in words (`unknown task`), or as that of what it belongs to.
    names = tuple(n for k in values if k not in SMALL or values[k] != SMALL[k] for n in (k, k.removesuffix("s")))
    options = [o for k in ("method_options", "recipe_options") if isinstance(values.get(k), dict) for o in values[k]]
    return Case(damage, act, right, (*names, *options, "parameter", "config.json"))


def grids(rng: random.Random, folder: Path) -> Case:
    path, grid = folder / "grid.json", {"base": SMALL, "product": {"seed": [0, 1]}}
    wide = ["seed", "steps", "learning_rate", "clip", "weight_decay", "warmup", "epochs", "batch_size"]
    ways = ["file", "59^8", "wide", "values", "values", "values", "part", "part", "runs", "many runs", "no runs"]
    way = damage = rng.choice(ways)
    content = None
    if way == "file":
        damage, content = hurt_json(rng, json.dumps(grid))
    elif way == "59^8":
        grid["product"] = {name: list(range(1, 60)) for name in wide}
    elif way == "wide":
        grid["product"] = {name: list(range(1, 60)) for name in wide[: rng.randrange(3, 8)]}
    elif way == "values":
        damage, values = _asked(rng)
        grid["product"] = {k: [v, v] if rng.random() < 0.2 else [v] for k, v in values.items() if k not in SMALL}
        damage = f"product {grid['product']!r:.40}"
    elif way == "part":
        part, value = rng.choice(["base", "product", "runs", "x"]), rng.choice(NASTY)
        grid[part], damage = value, f"{part}={value!r:.30}"
    elif way == "runs":
        grid["runs"] = [rng.choice(NASTY)]
        damage = f"runs {grid['runs']!r:.30}"
    elif way == "many runs":
        grid["runs"] = [{"epochs": i} for i in range(1, 60_000)]
    else:
        grid["runs"] = []
    path.write_bytes(json.dumps(grid).encode() if content is None else content)

    def right(found: list) -> bool:
        number = math.prod(len(v) for v in grid.get("product", {}).values()) * len(grid.get("runs", [{}]))
        each = 0 < len(found) == number <= 100_000 and len({c.name for c in found}) == number
        return each and all(map(_makes_sense, found))

    names = ("grid.json", "product", "runs", "base", "part of a grid", "preset", *(f.name for f in fields(RunConfig)))
    return Case(damage, lambda: Grid.from_file(path).configs(folder / "sweep"), right, names)


# ------------------------------------------------------------------------------------------------------- names of tasks


def task_names(rng: random.Random, folder: Path) -> Case:
    outside = folder.parent / "outside"
    outside.mkdir(exist_ok=True)
    bad = [f"{outside}/x", "../x", "../outside/x", "a/b", "a\\b", "..", ".", "...", "", " ", "\0", "a\0b", "a\nb"]
    bad += ["\x1b[2J", "\ud800", "x" * 300, "/", "a/../../outside/x", "\x7f", "a\u2028b"]
    bad += [None, 5, ["a"], "tab\tb", "\r"]
    good = ["a.b", "a%2Eb", "keys", "ä", "日本", "a b", "x" * 60, "training", "-", "%"]
    name = rng.choice(bad if rng.random() < 0.75 else good)
    model, way = running(), rng.choice(["Task", "get_task", "tokens"])
    (folder / "data").mkdir()

    def act():
        task = get_task(name, folder / "data") if way == "get_task" else Task(name, ("text",), ("bad", "good"))
        if way == "tokens":
            os.environ["PALSLIB_RUNS"] = str(folder / "runs")
            (folder / "data" / "x.csv").write_text("\n".join(LINES))
            return tokenise_task(task, load_tokenizer("tiny"), str(folder / "data" / "{split}.csv"), "x").task.name
        model.add_task(task)
        path = model.save_task(task.name, folder / "saved")
        model.remove_task(task.name)
        return model.load_task(path)

    def right(found) -> bool:
        return found == name and name in good

    if way == "get_task":
        right = never
    files = ("saved/*", "runs/*", "runs/cache/*", "data/x.csv", "saved", "runs")
    return Case(f"{name!r:.30} ({way})", act, right, ("task", repr(name)), files=files)


# ---------------------------------------------------------------------------------------------------------- token cache


@cache
def tokens_of() -> tuple[str, bytes, object]:
    """Name and bytes of a cache's file, and what it stands for."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PALSLIB_RUNS"] = folder
        data = tokenise_task("cola", load_tokenizer("tiny"), split="validation")
        (path,) = (Path(folder) / "cache").iterdir()
        return path.name, path.read_bytes(), data


def token_cache(rng: random.Random, folder: Path) -> Case:
    name, content, expected = tokens_of()
    path = folder / "cache" / name
    path.parent.mkdir()
    damage, content = hurt(rng, content)
    path.write_bytes(content)

    def act():
        os.environ["PALSLIB_RUNS"] = str(folder)
        return tokenise_task("cola", load_tokenizer("tiny"), split="validation")

    def right(found) -> bool:
        arrays = ("input_ids", "token_type_ids", "offsets", "labels")
        same = all(np.array_equal(getattr(found, a), getattr(expected, a)) for a in arrays)
        return same and found.cut == expected.cut

    return Case(damage, act, right, (), lambda: False)  # it is rebuilt: no error is right


# --------------------------------------------------------------------------------------- full disks, read-only folders


def writing(rng: random.Random, folder: Path) -> Case:
    model, record = running(), {"key": "k", "config": {}, "long": list(range(3000))}
    target = folder / "out"
    places = ["a full disk", "a full disk", "a full disk at the flush", "a read-only folder", "a file for a folder"]
    where = rng.choice(places)
    place = target
    if where == "a read-only folder":
        place = Path("/proc/palslib/out")
    elif where == "a file for a folder":
        (folder / "file").write_text("")
        place = folder / "file" / "out"
    os.environ["PALSLIB_RUNS"] = str(place)
    ways = {
        "save_task": (lambda: model.save_task("rte", place), "rte.safetensors"),
        "save_pretrained": (lambda: model.save_pretrained(place / "model"), "model"),
        "write_record": (lambda: write_record(place / "record.json", record), "record.json"),
        "tokenise_task": (lambda: tokenise_task("cola", load_tokenizer("tiny"), split="validation"), "cola-"),
    }
    way = rng.choice(list(ways))
    save, name = ways[way]
    old = rng.random() < 0.5 and place == target and way != "tokenise_task"
    if old:
        save()
    before = tree(folder, contents=True)
    size = rng.randrange(0, 8000)

    def act():
        if where == "a full disk":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        elif where == "a full disk at the flush":
            flush = os.fsync

            def full(number):
                flush(number)
                raise OSError(28, "No space left on device")

            os.fsync = full
        save()

    def unchanged() -> bool:
        after = tree(folder, contents=True)
        return all(after.get(k) == v for k, v in before.items() if v is not None)

    names = (name, str(place)) if place == target else (name, "/proc", "file")
    return Case(f"{where}: {way}", act, never, names, unchanged, files=("out", "out/cache", "out/model"))


# ----------------------------------------------------------------------------------------------------------- backbones


@cache
def backbone_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        disable_progress_bar()
        running().backbone.save_pretrained(folder)
        load_tokenizer("tiny").save_pretrained(folder)
        torch.save(running().backbone.state_dict(), Path(folder) / "pytorch_model.bin")
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def backbone(rng: random.Random, folder: Path) -> Case:
    files, place = dict(backbone_files()), folder / "backbone"
    files.pop(rng.choice(["model.safetensors", "pytorch_model.bin"]))
    weights = next(name for name in files if name in ("model.safetensors", "pytorch_model.bin"))
    name = rng.choice(["config.json", "config.json", "tokenizer.json", "tokenizer_config.json", weights])
    place.mkdir()
    for each, content in files.items():
        (place / each).write_bytes(content)
    path = place / name
    if name == weights:
        damage, content = hurt(rng, path.read_bytes())
        path.write_bytes(content)
        if weights == "model.safetensors" and rng.random() < 0.5:
            path.write_bytes(files[name])
            damage = hurt_tensors(rng, path)
    elif rng.random() < 0.5 or name == "tokenizer.json":
        damage, content = hurt_json(rng, path.read_text())
        path.write_bytes(content)
    else:
        content = json.loads(path.read_text())
        damage, _ = hurt_tree(rng, content)
        path.write_text(json.dumps(content))
    before = snapshot(running().backbone)

    def act():
        load_config(str(place))
        return load_encoder(str(place)), load_tokenizer(str(place))

    def right(found) -> bool:
        encoder, tokenizer = found
        if name == weights:  # of another's file nobody knows what stood there; its numbers must be numbers
            return all(p.isfinite().all() for p in encoder.parameters())
        plain = tokenizer("It rains.")["input_ids"] == load_tokenizer("tiny")("It rains.")["input_ids"]
        return same(snapshot(encoder), before) and (plain or name == "tokenizer_config.json")

    return Case(f"{name}: {damage}", act, right, (str(place), name))


# -------------------------------------------------------------------------------------------------------------- running

KINDS: dict[str, tuple[Callable, int]] = {
    "Parquet files": (parquet, 110),
    "delimited files": (delimited, 130),
    "model folders": (model_folder, 130),
    "task files": (task_file, 140),
    "records": (records, 120),
    "configs": (configs, 140),
    "grids": (grids, 60),
    "names of tasks": (task_names, 50),
    "token cache": (token_cache, 40),
    "full disk, read-only": (writing, 40),
    "backbone folders": (backbone, 40),
}
"""Kind -> what makes an input of it, and how many of 1,000."""


def tree(folder: Path, contents: bool = False) -> dict[str, bytes | None]:
    """Every path below a folder; a file's bytes where they are asked for."""
    found = (path for path in folder.rglob("*"))
    return {str(p.relative_to(folder)): p.read_bytes() if contents and p.is_file() else None for p in found}


def named(error: BaseException, names: tuple[str, ...]) -> bool:
    """Whether an error is of ours: a plain kind, raised by palslib (or by the system, of a file), that says of what."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = type(error).__module__ == "builtins" or type(error).__module__.startswith("palslib")
    plain = isinstance(error, (ValueError, OSError, TypeError, ImportError)) and not isinstance(error, UnicodeError)
    of_a_file = isinstance(error, OSError) and error.filename is not None
    here = str(PROJECT / "palslib") in frames[-1].filename or of_a_file
    return ours and plain and here and any(name in str(error) for name in names)


def _answer(case: Case) -> tuple[str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = case.act()
            if case.right(value):
                return "accepted and right", ""
            return "silent", f"{type(value).__name__} {value!r:.100}".splitlines()[0]
    except Exception as error:  # whatever it is, it is what this tool counts
        kind, where = type(error), traceback.extract_tb(error.__traceback__)[-1]
        about = f"{kind.__module__}.{kind.__name__}: {str(error)[:300]!r} ({where.filename}:{where.lineno})"
        if not named(error, case.names):
            return "raw traceback", about
        return ("named error", about) if case.unchanged() else ("silent", f"changed, then {about}")


def outcome(case: Case, folder: Path) -> tuple[str, str]:
    """What became of it, in a process of its own, and the error's words."""
    before, place = tree(folder.parent), folder.parent / "answer"
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1), os.dup2(null, 2)
        file = os.open(place, os.O_CREAT | os.O_WRONLY)  # before the disk is full
        found = _answer(case)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        os.write(file, json.dumps(found).encode())
        os._exit(0)
    end = time.monotonic() + LIMIT
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hang", ""
        time.sleep(0.002)
    answer = place.read_bytes() if place.exists() else b""
    word, about = json.loads(answer) if answer else ("raw traceback", "the process died")
    new = set(tree(folder.parent)) - set(before) - {"answer"}
    inside = f"{folder.name}/"
    new = {name for name in new if not (name == "cache" or name.startswith("cache/"))}
    if outside := sorted(name for name in new if not name.startswith(inside)):
        return "written outside", ", ".join(outside)
    allowed = [f"{inside}{pattern}" for pattern in case.files]
    left = sorted(name for name in new if not any(Path(name).match(pattern) for pattern in allowed) or ".tmp" in name)
    return ("left-over", ", ".join(left)) if left else (word, about)


def run(kind: str, seed: int, number: int) -> tuple[str, str, str]:
    """One input: damage, outcome, words of the error."""
    rng = random.Random(f"{kind} {seed} {number}")
    with tempfile.TemporaryDirectory(prefix="palslib-fuzz-") as box:
        folder = Path(box) / "inside"
        folder.mkdir()
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:  # what a case changes (a model, the environment) is its own
            os.close(reader)
            case = KINDS[kind][0](rng, folder)
            os.write(writer, json.dumps([case.damage, *outcome(case, folder)]).encode())
            os._exit(0)
        os.close(writer)
        with open(reader, "rb") as pipe:
            answer = pipe.read()
        os.waitpid(child, 0)
    return tuple(json.loads(answer))


def table(counts: dict[str, Counter]) -> str:
    """Kinds by outcomes, in Markdown."""
    lines = ["| kind | inputs | " + " | ".join(OUTCOMES) + " |", "|---|" + "---|" * (len(OUTCOMES) + 1)]
    total = sum(counts.values(), Counter())
    for kind, found in (*counts.items(), ("all", total)):
        lines.append(f"| {kind} | {found.total()} | " + " | ".join(str(found[o]) for o in OUTCOMES) + " |")
    return "\n".join(lines)


def fuzz(runs: int, seed: int, kinds=tuple(KINDS), log=None) -> tuple[dict[str, Counter], list[str]]:
    """Counts by kind and outcome, and a line for each that should not be."""
    counts, bad = {}, []
    for kind in kinds:
        counts[kind] = Counter()
        for number in range(max(1, round(KINDS[kind][1] * runs / 1000))):
            damage, word, about = run(kind, seed, number)
            counts[kind][word] += 1
            if word in BAD:
                bad.append(f"{kind} {number}: {damage}: {word}: {about}")
            if log:
                print(f"{kind}\t{number}\t{damage}\t{word}\t{about}", file=log, flush=True)
    return counts, bad


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--log", type=argparse.FileType("w"), help="a line for each input")
    parser.add_argument("--record", type=Path, help="a JSON file for the counts and where they come from")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    counts, bad = fuzz(given.runs, given.seed, given.kinds, given.log)
    print(*bad, sep="\n")
    print(table(counts))
    if given.record:
        full = {kind: {outcome: found[outcome] for outcome in OUTCOMES} for kind, found in counts.items()}
        write_record(given.record, {"seed": given.seed, "counts": full, "environment": environment()})
