"""Measures the speed of training and evaluation, as ratios within one run: `make benchmark`.

The programs compared take turns, step by step on the same batches, so that other load on the machine affects all alike;
the results are medians and quartiles. Each time has a floor (a lower bound): the multiplications of `operations.py` for
the word pieces computed, text by text (three times those of a forward pass for a training step), divided by the rate of
a large matrix product, measured in the same run. BERT-base has random weights here, as speed does not depend on them.
Batches have the lengths of GLUE's texts, from `$PALSLIB_DATA` if it is set, else of the synthetic GLUE's. If there is a
GPU, everything is timed there, by the device's own events; bf16 is measured if the device multiplies it fast.

`torch.compile` is not used, as it is slower: on a CPU (AMD EPYC, torch 2.13) one PAL of BERT-base, compiled for all
widths, took 2.6 times as long in bf16, forward and backward, and 40 s to compile.
"""

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, product
from pathlib import Path

import numpy as np
import torch
from torch import nn

from palslib.bert.backbones import load_encoder, load_tokenizer
from palslib.common.places import data_folder, runs_folder
from palslib.common.precision import autocast, precision_of
from palslib.common.reading import read_object
from palslib.data.tasks import TASKS, get_task, load_rows
from palslib.data.tokens import some_rows
from palslib.methods.counting import fit_budget
from palslib.methods.operations import count_operations
from palslib.model.multi_task import MultiTaskModel
from palslib.plan.config import RunConfig
from palslib.plan.recipes import get_recipe
from palslib.records import environment, write_record
from palslib.study.benchmark.others import Other, count_trained
from palslib.study.benchmark.released import ReleasedRun
from palslib.study.benchmark.timing import STARTS, in_turn, made_of, matrix_rate, resident, spread, start_up
from palslib.study.figures.benchmark import benchmark_figure, lines, machine
from palslib.study.figures.style import save_figure, use_style
from palslib.training.evaluation import evaluate
from palslib.training.loop import Run
from palslib.training.optimizer import make_optimizer

BERT = "bert-base-uncased"
ROUNDS = {BERT: 6, "minilm": 16, "tiny": 2}
"""Number of timed steps by backbone; in bf16 twice as many."""

RELEASED = ("padding", "bias_correction", "epsilon", "clip", "step_counter", "inactive")
"""Fields of the released code's recipe that affect speed; its sampling does not, and would draw other texts."""

PEER_TASK = "qqp"
"""The task for comparisons with other packages: the GLUE task whose batches have a typical share of padding (texts of
31 word pieces in batches 69 wide)."""

PEERS = {
    "transformers": {"method": "shared"},
    "adapters": {"method": "houlsby-64", "size": "paper", "method_options": {"adapters_per_layer": 2}},
}
"""Other package -> our settings that train the same parameters."""


PARTS = ("step", "released", "evaluation", "many_tasks", "start_up", "peers", "profile", "mixed_tasks")
"""The names of the parts of a benchmark, which are functions of `Benchmark`."""


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
    """One run of the benchmark."""

    def __init__(self, folder: Path, quick: bool = False, adapters_python: Path | None = None):
        """
        Args:
            folder: for temporary weights and batches.
            quick: uses the tiny backbone and few rounds, which only shows that everything works.
            adapters_python: an interpreter that has the package `adapters`.
        """
        self.folder, self.quick, self.began = folder, quick, time.perf_counter()
        self.adapters_python = adapters_python
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.precisions = ["float32"] + ["bf16"] * (precision_of("auto") == "bf16")
        real = not quick and data_folder() is not None and (data_folder() / "glue").is_dir()
        self.data, self.tasks = "glue" if real else "synthetic", ("cola", "rte") if quick else tuple(TASKS)
        self.backbones = ["tiny"] if quick else [BERT, "minilm"]
        self.rates = {p: matrix_rate(self.device, p, 2 if quick else 30) for p in self.precisions}

    def progress(self, line: str) -> None:
        print("...", line, file=sys.stderr, flush=True)

    def rounds(self, backbone: str, precision: str) -> int:
        """The number of timed steps."""
        return ROUNDS[backbone] * (1 + (precision == "bf16"))

    def run(self, backbone: str, method: str, precision: str, kind: type[Run] = Run, **more) -> Run:
        """A training run before its first step; `more` are settings of its config."""
        size = {"size": 12} if self.quick and method == "pals-204" else {}
        about = {"method": method, "backbone": self.saved(backbone), "precision": precision, "progress": False} | size
        about |= {"tasks": self.tasks, "data": self.data, "batch_size": 8 if self.quick else 32, "steps": 10_000}
        return kind(RunConfig(**about | more), self.folder)

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
            of = {"input_ids": rows.input_ids, "token_type_ids": rows.token_type_ids}
            of["attention_mask"] = torch.ones_like(rows.input_ids)
            batches.append({name: rows.padded(x) for name, x in of.items()} | {"labels": batch["labels"]})
        return batches

    def floor(self, shape, method, precision: str, batches, passes: int = 3) -> float:
        """Seconds of a mean step if it did only matrix products, on batches of rows of these lengths, (B,) each; a
        training step counts as three forward passes."""
        work = {n: count_operations(method, shape, n).total(1) for n in set(np.concatenate(batches).tolist())}
        total = sum(work[n] for of in batches for n in of.tolist())
        return 2 * passes * total / len(batches) / self.rates[precision]["median"]

    def compare(self, ways: dict[str, Run | Other], backbone: str, rounds: int) -> list[dict]:
        """The times of several programs on the same batches, with ratios to the first; the last is one of our runs.

        Every batch is run once before it is timed, as in a run that has gone on for a while: memory has its full size,
        and the kernels that bf16 products create for each shape exist.
        """
        ours = list(ways.values())[-1]
        steps = typical_steps(ours, rounds)
        texts = [batch_lengths(ours, step) for step in steps]
        calls = {n: w if isinstance(w, Other) else partial(take_step, w, cycle(steps)) for n, w in ways.items()}
        times = in_turn(calls, rounds, self.device, warm=rounds)
        if len({way.tokens for way in ways.values()}) > 1:
            raise RuntimeError(f"{', '.join(ways)} were not given the same texts")
        first, rows = next(iter(times.values())), []
        for name, way in ways.items():
            if isinstance(way, Other):
                run, trained, versions = ours, way.trained, {"versions": way.versions}
                computed = [np.full_like(of, of.max()) for of in texts]
            else:
                run, trained, versions, computed = way, count_trained(way.model), {}, texts
            if run.recipe.padding == "max_length":
                computed = [np.full_like(of, run.config.max_length) for of in texts]
            row = {"backbone": backbone, "precision": run.precision, "what": name, "method": run.config.method}
            row |= {"size": getattr(run.method, "size", None), "trained": trained}
            row |= {"mean length": float(np.mean(np.stack(computed)))}
            row |= {"seconds": spread(times[name]), "texts a second": run.config.batch_size * rounds / sum(times[name])}
            passes = 3 - (run.method.freeze == "backbone")  # a frozen backbone's matrices have no gradients
            row |= {"floor": self.floor(run.model.config, run.method, run.precision, computed, passes)}
            row |= {"ratio": spread(np.divide(times[name], first)), "speed-up": sum(first) / sum(times[name])}
            rows.append(row | versions | {"ratio floor": row["floor"] / (rows[0] if rows else row)["floor"]})
        return rows

    def step(self) -> Iterator[dict]:
        """(a) A training step with PALs, at the paper's share of parameters, compared with one without."""
        for backbone, precision in product(self.backbones, self.precisions):
            self.progress(f"training step, {backbone}, {precision}")
            runs = {method: self.run(backbone, method, precision) for method in ("shared", "pals-204")}
            yield from self.compare(runs, backbone, self.rounds(backbone, precision))

    def released(self) -> Iterator[dict]:
        """(b) Training with PALs as in the released code, with the same texts padded to 128, compared with ours."""
        theirs = get_recipe("released")
        options = {name: getattr(theirs, name) for name in RELEASED}
        for backbone in self.backbones:
            self.progress(f"training as the released code does, {backbone}")
            runs = {"released": self.run(backbone, "pals-204", "float32", kind=ReleasedRun, recipe_options=options)}
            runs |= {precision: self.run(backbone, "pals-204", precision) for precision in self.precisions}
            yield from self.compare(runs, backbone, max(2, ROUNDS[backbone] // 2))

    def peers(self) -> Iterator[dict]:
        """(f) Training one task, compared with other packages: all of BERT with Transformers alone; adapters at two
        places of each layer of a frozen BERT with `adapters`."""
        kinds = {"transformers": sys.executable} | ({"adapters": self.adapters_python} if self.adapters_python else {})
        if not self.adapters_python:
            self.progress("adapters: left out, as --adapters-python does not name a Python that has this package")
        task, batches = "rte" if self.quick else PEER_TASK, self.folder / "batches.pt"
        for backbone, precision, kind in product(self.backbones, self.precisions, kinds):
            self.progress(f"compared with {kind}, {backbone}, {precision}")
            rounds = self.rounds(backbone, precision)
            ours = self.run(backbone, precision=precision, tasks=(task,), **PEERS[kind])
            torch.save(self.padded_batches(ours, typical_steps(ours, rounds)), batches)
            config = ours.config
            given = {"rate": config.learning_rate, "decay": config.weight_decay, "clip": config.clip}
            given |= {"backbone": config.backbone, "batches": str(batches), "bf16": ours.precision == "bf16"}
            with Other(kind, kinds[kind], **given) as other:
                yield from self.compare({kind: other, "palslib": ours}, backbone, rounds)

    def profile(self) -> Iterator[dict]:
        """(h) The time of a step with PALs by kind of operation, by torch's profiler, which takes some time itself."""
        for backbone, precision in product(self.backbones, self.precisions):
            self.progress(f"profile, {backbone}, {precision}")
            run, rounds = self.run(backbone, "pals-204", precision), ROUNDS[backbone]
            steps = typical_steps(run, rounds)
            spent, shares = made_of(partial(take_step, run, cycle(steps)), rounds, self.device)
            floor = self.floor(run.model.config, run.method, precision, [batch_lengths(run, step) for step in steps])
            row = {"backbone": backbone, "precision": precision, "what": "pals-204", "seconds": spread(spent)}
            yield row | {"floor": floor, "shares": shares}

    def evaluation(self) -> Iterator[dict]:
        """(c) Evaluation on an evenly spread part of each dev set, so that lengths are those of the whole."""
        backbone = self.backbones[-1]
        run = self.run(backbone, "pals-204", "float32")
        most = 16 if self.quick else 150
        data = {task: {s: some_rows(d, most) for s, d in of.items()} for task, of in run.dev_data.items()}
        self.progress(f"evaluation, {backbone}")
        ways = {p: partial(evaluate, run.model, data, None, run.accelerator, p) for p in self.precisions}
        times = in_turn(ways, 2 if self.quick else 3, self.device)
        splits = [split for of in data.values() for split in of.values()]
        lengths, texts = np.concatenate([split.lengths for split in splits]), sum(map(len, splits))
        for precision, spent in times.items():
            floor = self.floor(run.model.config, run.method, precision, [lengths], passes=1)
            row = {"backbone": backbone, "precision": precision, "texts": texts}
            yield row | {"seconds": spread(spent), "floor": floor, "texts a second": spread(np.divide(texts, spent))}

    def many_tasks(self) -> Iterator[dict]:
        """(e) A step for one task, in models of 1 to 64 tasks, all trained before, and the memory of the models."""
        backbone, precision = self.backbones[-1], self.precisions[-1]
        numbers, batch = ((1, 2, 4), 8) if self.quick else ((1, 2, 4, 8, 16, 32, 64), 32)
        method, config = fit_budget("pals-204", "minilm", 8), RunConfig()
        method = replace(method, size=12, heads=4) if self.quick else method
        rng = np.random.default_rng(0)
        ids = torch.from_numpy(rng.integers(1000, 20_000, (batch, 40))).to(self.device)
        labels = torch.from_numpy(rng.integers(0, 2, batch)).to(self.device)

        def model_of(number: int):
            tasks = [replace(get_task("rte"), name=f"task{i}") for i in range(number)]
            model = MultiTaskModel.from_backbone(backbone, method, tasks).to(self.device).train()
            return model, make_optimizer(model, config, config.resolved_recipe())

        def step(model, optimizer, task: str, rows: int = batch) -> None:
            with autocast(precision, self.device):
                loss = model(task, ids[:rows], labels=labels[:rows]).loss
            loss.backward()
            nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], config.clip)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        step(*model_of(1), "task0")  # memory that a process takes at its first step belongs to no model
        rows, models = [], {}
        for number in numbers:
            self.progress(f"{number} tasks")
            before = resident(self.device)
            models[number] = model, optimizer = model_of(number)
            for task in model.tasks:  # each gets a gradient once, and thus state in the optimiser
                step(model, optimizer, task, rows=2)
            tensors = [*model.parameters(), *(v for of in optimizer.state.values() for v in of.values())]
            row = {"backbone": backbone, "precision": precision, "tasks": number, "size": method.size}
            row |= {"parameters": sum(p.numel() for p in model.parameters())}
            row |= {"resident": resident(self.device) - before}
            rows.append(row | {"bytes": sum(t.numel() * t.element_size() for t in tensors)})
        steps = {n: partial(step, *models[n], f"task{n - 1}") for n in numbers}
        times = in_turn(steps, 2 if self.quick else 10, self.device, warm=2)
        floor = self.floor(backbone, method, precision, [np.full(batch, 40)])
        for row in rows:
            spent = times[row["tasks"]]
            yield row | {"seconds": spread(spent), "ratio": spread(np.divide(spent, times[1])), "floor": floor}

    def mixed_tasks(self) -> Iterator[dict]:
        """(i) `predict` for one text of each task, and for eight, all in one call, compared with one call per task."""
        for backbone in self.backbones:
            run = self.run(backbone, "pals-204", "float32")
            predict, floor = run.model.predict, partial(self.floor, run.model.config, run.method, passes=1)
            for precision, each in product(self.precisions, (1, 8)):
                self.progress(f"{each} texts per task, {backbone}, {precision}")
                texts, lengths = {}, []
                for name, data in run.train_data.items():
                    frame = load_rows(data.task, self.data).sample(each, random_state=0)
                    texts[name] = list(frame[list(data.task.texts)].itertuples(index=False, name=None))
                    lengths.append(data.lengths[frame.index])
                tasks = [name for name, of in texts.items() for _ in of]
                ways = {
                    "a call a task": lambda ask=predict, texts=texts: [ask(of, name) for name, of in texts.items()],
                    "one call": partial(predict, [text for of in texts.values() for text in of], tasks),
                }
                with autocast(precision, self.device):
                    times = in_turn(ways, self.rounds(backbone, precision), self.device, warm=2)
                for what, spent in times.items():
                    row = {"backbone": backbone, "precision": precision, "what": what, "texts a task": each}
                    row |= {"tasks": len(texts), "seconds": spread(spent)}
                    row |= {"floor": floor(precision=precision, batches=[np.concatenate(lengths)])}
                    yield row | {"speed-up": spread(np.divide(times["a call a task"], spent))}

    def start_up(self) -> list[dict]:
        """(d) The start of a notebook."""
        self.progress("start of a notebook")
        return start_up(2, tuple(STARTS)[:2]) if self.quick else start_up()

    def record(self, parts: Sequence[str] = PARTS) -> dict:
        """The record: the results of some parts, run one after the other, with the machine and its rates."""
        measured = {part: list(getattr(self, part)()) for part in parts}
        gpu = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else None
        record = {"status": "quick" if self.quick else "finished", "device": gpu or "cpu"}
        record |= {"timer": "device events" if gpu else "clock", "threads": torch.get_num_threads()}
        record |= {"precisions": self.precisions, "texts": self.data, "rates": self.rates, "parts": measured}
        return record | {"seconds": time.perf_counter() - self.began, "environment": environment()}


def benchmark(record: Path | None = None, draw: Path | None = None, parts: Sequence[str] = (), **options) -> None:
    """Measures, prints and records the speed, and draws the figure `benchmark`; or prints and draws the record `draw`.

    Args:
        parts: names in `PARTS`, if not all are to be measured; then no figure is drawn.
        options: `quick` and `adapters_python` of `Benchmark`.
    """
    if draw:
        if "parts" not in (found := read_object(draw)):
            raise ValueError(f"{draw} holds no record of `palslib benchmark`")
    else:
        with tempfile.TemporaryDirectory() as folder:
            found = Benchmark(Path(folder), **options).record(parts or PARTS)
        name = machine(found) + ("-quick" if found["status"] == "quick" else "")
        write_record(record or runs_folder() / "benchmark" / f"{name}.json", found)
    print(*lines(found), sep="\n")
    if not found["parts"].keys() >= set(PARTS) - {"mixed_tasks"}:  # the figure does not show mixed tasks
        return
    use_style()
    save_figure(benchmark_figure(found), "benchmark-quick" if found["status"] == "quick" else "benchmark")
