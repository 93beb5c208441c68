"""Measures the speed of training and evaluation, as ratios within one run: `make benchmark`.

The programs compared take turns, step by step on the same batches, so that other load on the machine affects all alike;
the results are medians and quartiles, and ratios of total times. Each time has a floor (a lower bound): the
multiplications of `operations.py` for the word pieces computed, text by text (three times those of a forward pass for a
training step; of BERT's last layer, those of [CLS] where no more is computed), divided by the rate of a large matrix
product, measured in the same run.
BERT-base has random weights here, as speed does not depend on them. Batches have the lengths of GLUE's texts, from
`$PALSLIB_DATA` if it is set, else of the synthetic GLUE's. If there is a GPU, everything is timed there; bf16 is
measured if the device multiplies it fast.
"""

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, product
from pathlib import Path

import numpy as np
import torch
from torch.utils.benchmark import timer  # a clock that waits for a GPU to be done

from palslib.bert.backbones import load_encoder, load_tokenizer
from palslib.common.places import data_folder, runs_folder
from palslib.common.precision import precision_of
from palslib.common.processes import say
from palslib.data.tasks import TASKS
from palslib.data.tokens import some_rows
from palslib.methods.backbone import Backbone
from palslib.methods.operations import count_operations
from palslib.plan.config import RunConfig
from palslib.plan.recipes import get_recipe
from palslib.records import environment, write_record
from palslib.study.benchmark.others import Other, count_trained
from palslib.study.benchmark.released import ReleasedRun
from palslib.study.figures.benchmark import benchmark_figure, machine, table
from palslib.study.figures.style import save_figure, use_style
from palslib.training.evaluation import evaluate
from palslib.training.loop import Run

BERT = "bert-base-uncased"
ROUNDS = {BERT: 6, "minilm": 16, "tiny": 2}
"""Number of timed steps by backbone."""

RELEASED = ("padding", "bias_correction", "epsilon", "clip", "step_counter", "inactive")
"""Fields of the released code's recipe that affect speed; its sampling does not, and would draw other texts."""

PEERS = {
    "transformers": {"method": "shared"},
    "adapters": {"method": "houlsby-64", "size": "paper", "method_options": {"adapters_per_layer": 2}},
}
"""Other package -> our settings that train the same parameters."""

PARTS = ("step", "released", "evaluation", "start_up", "peers")
"""The names of the parts of a benchmark, which are functions of `Benchmark`."""

STARTS = {
    "Python alone": "",
    "import palslib": "import palslib",
    "first cell": "from palslib.study.notebook import begin, show_figure, show_source, show_table; begin('torch')",
    "a model of 8 tasks": "from palslib import TASKS, MultiTaskModel; MultiTaskModel.from_backbone('minilm', "
    "'pals-204', list(TASKS), size=120)",
}
"""Name -> code with which a notebook may begin."""


def spread(values) -> dict:
    """Median and quartiles of at least one number."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return {"median": median, "low": low, "high": high, "times": len(values)}


def seconds(function: Callable) -> float:
    """The seconds that one call takes; an `Other` measures its own time."""
    if isinstance(function, Other):
        return function()
    began = timer()
    function()
    return timer() - began


def in_turn(functions: Mapping[str, Callable], rounds: int, warm: int = 1) -> dict[str, list[float]]:
    """The seconds of `rounds` calls of each function, one of each per round, after `warm` rounds that do not count."""
    times = [{name: seconds(function) for name, function in functions.items()} for _ in range(warm + rounds)]
    return {name: [row[name] for row in times[warm:]] for name in functions}


def matrix_rate(device: torch.device, precision: str, rounds: int) -> dict:
    """Operations per second, two per multiply-add, of a matrix product as in BERT-base; on a GPU, of a larger one."""
    n, k, m = (8192, 8192, 8192) if device.type == "cuda" else (1280, 768, 3072)
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(shape, device=device, dtype=kind) for shape in ((n, k), (k, m)))
    times = in_turn({"product": lambda: a @ b}, rounds, warm=2)["product"]
    return spread([2 * n * k * m / t for t in times])


def typical_steps(run: Run, rounds: int) -> list[int]:
    """A sample of `rounds` of a run's first hundred steps, evenly spread over their numbers of word pieces."""
    order = sorted(range(100), key=lambda step: batch_lengths(run, step).sum())
    return [order[(2 * i + 1) * 100 // (2 * rounds)] for i in range(rounds)]


def batch_lengths(run: Run, step: int) -> np.ndarray:
    """The number of word pieces of each text of a step's batch, (B,)."""
    return run.train_data[run.plan.tasks[step]].lengths[run.plan.examples(step)]


def take_step(run: Run, steps: Iterator[int]) -> None:
    """Takes that step of a run whose number comes next in `steps`."""
    run.step = next(steps)
    run.train_step()


class Benchmark:
    """One run of the benchmark, with temporary weights and batches in `folder`; the command explains the others."""

    def __init__(self, folder: Path, quick: bool = False, adapters_python: Path | None = None):
        self.folder, self.quick, self.began = folder, quick, time.perf_counter()
        self.adapters_python = adapters_python
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.precisions = ["float32", "bf16"] if precision_of("auto", self.device) == "bf16" else ["float32"]
        real = not quick and data_folder() is not None and (data_folder() / "glue").is_dir()
        self.data, self.tasks = "glue" if real else "synthetic", ("cola", "rte") if quick else tuple(TASKS)
        self.backbones = ["tiny"] if quick else [BERT, "minilm"]
        self.rates = {p: matrix_rate(self.device, p, 2 if quick else 30) for p in self.precisions}

    def run(self, backbone: str, method: str, precision: str, kind: type[Run] = Run, **more) -> Run:
        """A training run before its first step; `more` are settings of its config."""
        size = {"size": 12} if self.quick and method == "pals-204" else {}
        settings = {"method": method, "backbone": self.saved(backbone), "precision": precision, "progress": False}
        settings |= {"tasks": self.tasks, "data": self.data, "batch_size": 8 if self.quick else 32, "steps": 10_000}
        return kind(RunConfig(**settings | size | more), self.folder)

    def saved(self, backbone: str) -> str:
        """The folder of a saved backbone, with the tokenizer that all share; BERT-base has random weights."""
        from transformers import AutoModel, BertConfig

        folder = self.folder / backbone
        if not folder.exists():
            encoder = AutoModel.from_config(BertConfig()) if backbone == BERT else load_encoder(backbone)
            encoder.save_pretrained(folder)
            load_tokenizer("minilm").save_pretrained(folder)
        return str(folder)

    @staticmethod
    def padded_batches(run: Run, steps: Iterable[int]) -> list[dict]:
        """The batches of some of a run's steps, each padded to its longest row."""
        batches = []
        for step in steps:
            batch = run.train_data[run.plan.tasks[step]].batch(run.plan.examples(step))
            rows = batch["rows"]
            inputs = {"input_ids": rows.input_ids, "token_type_ids": rows.token_type_ids}
            inputs["attention_mask"] = torch.ones_like(rows.input_ids)
            batches.append({name: rows.padded(x) for name, x in inputs.items()} | {"labels": batch["labels"]})
        return batches

    def floor(self, shape, method, precision: str, batches, passes: int = 3, whole: bool = False) -> float:
        """Seconds of a mean step if it did only matrix products, on batches of rows of these lengths, (B,) each; a
        training step counts as three forward passes. Unless `whole`, BERT's last layer is counted for [CLS] alone (but
        for what a method adds to it)."""
        shape, total = Backbone.of(shape), 0
        d, inner = shape.hidden_size, shape.intermediate_size
        for n, texts in Counter(np.concatenate(batches).tolist()).items():
            spared = 0 if whole else 2 * d * (d + inner + n) * (n - 1)  # queries, output, feed-forward, attention
            total += texts * (count_operations(method, shape, n).total(1) - spared)
        return 2 * passes * total / len(batches) / self.rates[precision]["median"]

    def compare(self, ways: dict[str, Run | Other], backbone: str) -> list[dict]:
        """The times of several programs on the same batches, with ratios to the first; the last is one of our runs.

        Every batch is run once before it is timed, as in a run that has gone on for a while: memory has its full size,
        and the kernels that bf16 products create for each shape exist.
        """
        ours, rounds = list(ways.values())[-1], ROUNDS[backbone]
        steps = typical_steps(ours, rounds)
        texts = [batch_lengths(ours, step) for step in steps]
        calls = {n: w if isinstance(w, Other) else partial(take_step, w, cycle(steps)) for n, w in ways.items()}
        times = in_turn(calls, rounds, warm=rounds)
        first, rows = next(iter(times.values())), []
        for name, way in ways.items():
            if isinstance(way, Other):
                run, more, whole = ours, way.description, True
                computed = [np.full_like(lengths, lengths.max()) for lengths in texts]
            else:
                run, more, computed = way, {"trained": count_trained(way.model)}, texts
                whole = run.model.whole_last_layer
            if run.recipe.padding == "max_length":
                computed = [np.full_like(lengths, run.config.max_length) for lengths in texts]
            passes = 2 if run.method.freeze == "backbone" else 3  # a frozen backbone's matrices have no gradients
            floor = self.floor(run.model.config, run.method, run.precision, computed, passes, whole)
            row = {
                "backbone": backbone,
                "precision": run.precision,
                "what": name,
                "method": run.config.method,
                "size": getattr(run.method, "size", None),
                "mean length": float(np.mean(np.stack(computed))),
                "seconds": spread(times[name]),
                "floor": floor,
                "texts a second": run.config.batch_size * rounds / sum(times[name]),
                "ratio": spread(np.divide(times[name], first)),
                "ratio floor": floor / rows[0]["floor"] if rows else 1.0,
                "speed-up": sum(first) / sum(times[name]),
            }
            rows.append(row | more)
        return rows

    def step(self) -> Iterator[dict]:
        """(a) A training step with PALs, at the paper's share of parameters, compared with one without."""
        for backbone, precision in product(self.backbones, self.precisions):
            say([f"training step, {precision}"], backbone)
            runs = {method: self.run(backbone, method, precision) for method in ("shared", "pals-204")}
            yield from self.compare(runs, backbone)

    def released(self) -> Iterator[dict]:
        """(b) Training with PALs as in the released code, with the same texts padded to 128, compared with ours."""
        theirs = get_recipe("released")
        options = {name: getattr(theirs, name) for name in RELEASED}
        for backbone in self.backbones:
            say(["training as the released code does"], backbone)
            runs = {"released": self.run(backbone, "pals-204", "float32", kind=ReleasedRun, recipe_options=options)}
            runs |= {precision: self.run(backbone, "pals-204", precision) for precision in self.precisions}
            yield from self.compare(runs, backbone)

    def peers(self) -> Iterator[dict]:
        """(f) Training one task, compared with other packages: all of BERT with Transformers alone; adapters at two
        places of each layer of a frozen BERT with `adapters`."""
        kinds = {"transformers": sys.executable} | ({"adapters": self.adapters_python} if self.adapters_python else {})
        # QQP's batches have a typical share of padding: texts of 31 word pieces in batches 69 wide.
        task, batches = "rte" if self.quick else "qqp", self.folder / "batches.pt"
        for backbone, precision, kind in product(self.backbones, self.precisions, kinds):
            say([f"compared with {kind}, {precision}"], backbone)
            ours = self.run(backbone, precision=precision, tasks=(task,), **PEERS[kind])
            torch.save(self.padded_batches(ours, typical_steps(ours, ROUNDS[backbone])), batches)
            config = ours.config
            settings = {"rate": config.learning_rate, "decay": config.weight_decay, "clip": config.clip}
            settings |= {"backbone": config.backbone, "batches": str(batches), "bf16": ours.precision == "bf16"}
            with Other(kind, kinds[kind], **settings) as other:
                yield from self.compare({kind: other, "palslib": ours}, backbone)

    def evaluation(self) -> Iterator[dict]:
        """(c) Evaluation on an evenly spread part of each dev set, so that lengths are those of the whole."""
        backbone = self.backbones[-1]
        run = self.run(backbone, "pals-204", "float32")
        most = 16 if self.quick else 150
        data = {}
        for task, splits in run.dev_data.items():
            data[task] = {name: some_rows(split, most) for name, split in splits.items()}
        say(["evaluation"], backbone)
        ways = {p: partial(evaluate, run.model, data, None, run.accelerator, p) for p in self.precisions}
        times = in_turn(ways, 2 if self.quick else 3)
        splits = [split for parts in data.values() for split in parts.values()]
        lengths, texts = np.concatenate([split.lengths for split in splits]), sum(map(len, splits))
        for precision, spent in times.items():
            floor = self.floor(run.model.config, run.method, precision, [lengths], passes=1)
            row = {"backbone": backbone, "precision": precision, "texts": texts}
            yield row | {"seconds": spread(spent), "floor": floor, "texts a second": spread(np.divide(texts, spent))}

    def start_up(self) -> list[dict]:
        """(d) The start of a notebook, in a Python process of its own each time; the floor is Python alone."""
        say(["its start"], "a notebook")
        names = list(STARTS)[: 2 if self.quick else None]
        start = partial(subprocess.run, check=True, capture_output=True)
        times = in_turn({name: partial(start, [sys.executable, "-c", STARTS[name]]) for name in names}, 3)
        floor = spread(times[names[0]])["median"]
        return [{"what": name, "seconds": spread(spent), "floor": floor} for name, spent in times.items()]

    def record(self, parts: Sequence[str] = PARTS) -> dict:
        """The record: the results of some parts, run one after the other, with the machine and its rates."""
        measured = {part: list(getattr(self, part)()) for part in parts}
        gpu = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else None
        record = {"status": "quick" if self.quick else "finished", "device": gpu or "cpu"}
        record |= {"threads": torch.get_num_threads(), "precisions": self.precisions, "texts": self.data}
        record |= {"rates": self.rates, "parts": measured}
        return record | {"seconds": time.perf_counter() - self.began, "environment": environment()}


def benchmark(record: Path | None = None, parts: Sequence[str] = (), **options) -> None:
    """Does what the command `palslib benchmark` says, whose settings these are."""
    with tempfile.TemporaryDirectory() as folder:
        measured = Benchmark(Path(folder), **options).record(parts or PARTS)
    quick = "-quick" if measured["status"] == "quick" else ""
    name = "-".join([f"{machine(measured)}{quick}", *parts])
    write_record(record or runs_folder() / "benchmark" / f"{name}.json", measured)
    print(table(measured))
    if measured["parts"].keys() >= set(PARTS):
        use_style()
        save_figure(benchmark_figure(measured), f"benchmark{quick}")
