"""`make benchmark`: how fast training and evaluation are, as ratios measured in one run.

What is compared takes turns, step by step on the same batches, so that whatever else the machine does meets all alike;
given are medians and quartiles. Beside each time stands its floor: the multiplications of `operations.py` (three times
those of a forward pass for a training step) over the rate of a large matrix product, measured in the same run.
BERT-base has random weights here, for speed does not depend on them. Batches have the lengths of GLUE's texts, from
`$PALSLIB_DATA` where it is set, else of the synthetic GLUE's. Where there is a GPU, all of it is timed there, by the
device's own events; bf16 is measured where the device multiplies it fast.

`torch.compile` is not used, for it does not pay: on a CPU (AMD EPYC, torch 2.13) one PAL of BERT-base, compiled for all
widths, took 2.6 times as long in bf16, forward and back, and 40 s to compile.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from palslib.benchmark.timing import STARTS, in_turn, matrix_rate, resident, spread, start_up
from palslib.bert.backbones import load_config, load_tokenizer
from palslib.bert.dropout import Dropout
from palslib.common import data_folder, runs_folder
from palslib.data.tasks import TASKS, get_task
from palslib.data.tokens import some_rows
from palslib.figures.benchmark import benchmark_figure, lines, machine
from palslib.figures.style import save_figure, use_style
from palslib.methods.counting import fit_budget
from palslib.methods.operations import count_operations
from palslib.model.multi_task import MultiTaskModel
from palslib.plan.config import RunConfig
from palslib.plan.recipes import get_recipe
from palslib.records import environment, write_record
from palslib.training.evaluation import EVALUATION_BATCH, autocast, evaluate, precision_of
from palslib.training.loop import Run
from palslib.training.optimizer import make_optimizer

BERT = "bert-base-uncased"
ROUNDS = {BERT: 6, "minilm": 16, "tiny": 2}
"""Steps that count, by backbone; in bf16 twice as many."""

RELEASED = ("padding", "bias_correction", "epsilon", "clip", "step_counter", "inactive")
"""What of the released code's recipe takes time; its sampling does not, and would draw other texts."""


class Benchmark:
    """One run of it. `quick` takes the tiny backbone and few rounds: it shows that all works, and no more."""

    def __init__(self, quick: bool = False, progress: Callable[[str], None] = lambda line: None):
        self.quick, self.progress, self.began = quick, progress, time.perf_counter()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.precisions = ["float32"] + ["bf16"] * (precision_of(RunConfig()) == "bf16")
        real = not quick and data_folder() is not None and (data_folder() / "glue").is_dir()
        self.data, self.tasks = "glue" if real else "synthetic", ("cola", "rte") if quick else tuple(TASKS)
        self.backbones = ["tiny"] if quick else [BERT, "minilm"]
        self.rates = {p: matrix_rate(self.device, p, 2 if quick else 30) for p in self.precisions}

    def run(self, backbone: str, method: str, precision: str, released: bool = False) -> Run:
        """A run of training that is about to begin; `released` as the released code does it: the same texts padded to
        128, attention in single steps that keep the weights, torch's dropout, each tensor clipped and updated alone."""
        size = {"size": 12} if self.quick and method != "shared" else {}
        theirs, rows = get_recipe("released" if released else "paper"), 8 if self.quick else 32
        about = {"method": method, "tasks": self.tasks, "data": self.data, "precision": precision}
        about["recipe_options"] = {name: getattr(theirs, name) for name in RELEASED}
        with tempfile.TemporaryDirectory() as folder:
            place = self.random_bert(folder) if backbone == BERT else backbone
            config = RunConfig(backbone=place, steps=10_000, batch_size=rows, progress=False, **about, **size)
            run = Run(config, Path(folder))
        if released:
            run.model.backbone.set_attn_implementation("eager")
            for part in run.model.modules():
                if isinstance(part, Dropout):
                    part.__class__ = nn.Dropout
        return run

    @staticmethod
    def random_bert(folder: str) -> str:
        """Puts a BERT-base of random weights into a folder, with BERT's word pieces; returns the folder."""
        from transformers import AutoModel, BertConfig
        from transformers.utils import logging

        logging.disable_progress_bar()
        AutoModel.from_config(BertConfig()).save_pretrained(folder)
        load_tokenizer("minilm").save_pretrained(folder)
        return folder

    def floor(self, backbone: str, method, precision: str, widths, rows, passes: int = 3) -> float:
        """Seconds of a mean step on batches of these widths and rows, were it matrix products alone; a training step is
        three forward passes."""
        shape = load_config(backbone) if backbone == "tiny" else backbone
        work = [count_operations(method, shape, int(width)).total(1) for width in widths]
        return float(2 * passes * np.mean(np.multiply(work, rows)) / self.rates[precision]["median"])

    def compare(self, runs: dict[str, Run], backbone: str, rounds: int) -> list[dict]:
        """Steps of several runs on the same batches, beside those of the first."""
        warm = 1 if self.quick else 2
        times = in_turn({name: run.train_step for name, run in runs.items()}, rounds, self.device, warm)
        first, rows = next(iter(times.values())), []
        for name, run in runs.items():
            size, steps = run.config.batch_size, range(warm, warm + rounds)
            lengths = [run.train_data[run.plan.tasks[step]].lengths[run.plan.examples(step)] for step in steps]
            least = run.config.max_length if run.recipe.padding == "max_length" else 0
            widths = [max(least, int(of.max())) for of in lengths]
            row = {"backbone": backbone, "precision": run.precision, "what": name, "size": run.method.size}
            row |= {"mean length": float(np.mean(lengths)), "mean width": float(np.mean(widths))}
            row |= {"seconds": spread(times[name]), "texts a second": size * rounds / sum(times[name])}
            row |= {"floor": self.floor(backbone, run.method, run.precision, widths, size)}
            row |= {"ratio": spread(np.divide(times[name], first)), "speed-up": sum(first) / sum(times[name])}
            rows.append(row | {"ratio floor": row["floor"] / (rows[0] if rows else row)["floor"]})
        return rows

    def step(self) -> list[dict]:
        """(a) A training step with PALs, of the paper's share of parameters, over one without."""
        rows = []
        for backbone in self.backbones:
            for precision in self.precisions:
                self.progress(f"training step, {backbone}, {precision}")
                runs = {method: self.run(backbone, method, precision) for method in ("shared", "pals-204")}
                rows += self.compare(runs, backbone, ROUNDS[backbone] * (1 + (precision == "bf16")))
        return rows

    def released(self) -> list[dict]:
        """(b) Training with PALs as the released code does it, and as it is done here."""
        rows = []
        for backbone in self.backbones:
            self.progress(f"the released code's way, {backbone}")
            runs = {"released": self.run(backbone, "pals-204", "float32", released=True)}
            runs |= {precision: self.run(backbone, "pals-204", precision) for precision in self.precisions}
            rows += self.compare(runs, backbone, max(2, ROUNDS[backbone] // 2))
        return rows

    def evaluation(self) -> list[dict]:
        """(c) All dev sets; of each an evenly spread part, so that lengths are those of the whole."""
        backbone = self.backbones[-1]
        run = self.run(backbone, "pals-204", "float32")
        most = 16 if self.quick else 150
        data = {task: {s: some_rows(d, most) for s, d in of.items()} for task, of in run.dev_data.items()}
        self.progress(f"evaluation, {backbone}")
        ways = {p: lambda p=p: evaluate(run.model, data, None, run.accelerator, p) for p in self.precisions}
        times = in_turn(ways, 2 if self.quick else 3, self.device)
        splits = [split for of in data.values() for split in of.values()]
        lengths = [np.sort(split.lengths)[::-1] for split in splits]
        batches = [of[i : i + EVALUATION_BATCH] for of in lengths for i in range(0, len(of), EVALUATION_BATCH)]
        widths, sizes, texts = [of[0] for of in batches], [len(of) for of in batches], sum(map(len, splits))
        rows = []
        for precision, spent in times.items():
            floor = len(batches) * self.floor(backbone, run.method, precision, widths, sizes, passes=1)
            row = {"backbone": backbone, "precision": precision, "texts": texts, "batch": EVALUATION_BATCH}
            row |= {"seconds": spread(spent), "floor": floor, "texts a second": spread(np.divide(texts, spent))}
            rows.append(row)
        return rows

    def many_tasks(self) -> list[dict]:
        """(d) A step for one task, in models of 1 to 64 tasks that all have trained, and what the models weigh."""
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

        step(*model_of(1), "task0")  # what the first step of a process takes for itself is no model's
        rows, models = [], {}
        for number in numbers:
            self.progress(f"{number} tasks")
            before = resident(self.device)
            models[number] = model, optimizer = model_of(number)
            for task in model.tasks:  # each has a gradient once, and so its state in the optimiser
                step(model, optimizer, task, rows=2)
            tensors = [*model.parameters(), *(v for of in optimizer.state.values() for v in of.values())]
            row = {"backbone": backbone, "precision": precision, "tasks": number, "size": method.size}
            row |= {
                "parameters": sum(p.numel() for p in model.parameters()),
                "resident": resident(self.device) - before,
            }
            rows.append(row | {"bytes": sum(t.numel() * t.element_size() for t in tensors)})
        steps = {n: lambda n=n: step(*models[n], f"task{n - 1}") for n in numbers}
        times = in_turn(steps, 2 if self.quick else 10, self.device, warm=2)
        floor = self.floor(backbone, method, precision, [ids.shape[1]], batch)
        for row in rows:
            spent = times[row["tasks"]]
            row |= {"seconds": spread(spent), "ratio": spread(np.divide(spent, times[1])), "floor": floor}
        return rows

    def start_up(self) -> list[dict]:
        """(e) A notebook's first cell."""
        self.progress("start of a notebook")
        return start_up(2, tuple(STARTS)[:2]) if self.quick else start_up()

    def record(self) -> dict:
        """All parts, one after the other, with the machine and its rates."""
        parts = (self.step, self.released, self.evaluation, self.many_tasks, self.start_up)
        measured = {part.__name__: part() for part in parts}
        gpu = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else None
        record = {"status": "quick" if self.quick else "finished", "device": gpu or "cpu"}
        record |= {"timer": "device events" if gpu else "clock", "threads": torch.get_num_threads()}
        record |= {"precisions": self.precisions, "texts": self.data, "rates": self.rates, "parts": measured}
        return record | {"seconds": time.perf_counter() - self.began, "environment": environment()}


def benchmark(record: Path | None = None, draw: Path | None = None, quick: bool = False) -> None:
    """Measures, prints and records, and draws the figure `benchmark`; or draws a record that there is."""
    if draw:
        found = json.loads(draw.read_text(encoding="utf-8"))
    else:
        found = Benchmark(quick, lambda line: print(f"... {line}", file=sys.stderr, flush=True)).record()
        write_record(record or runs_folder() / "benchmark" / f"{machine(found)}.json", found)
    print(*lines(found), sep="\n")
    use_style()
    save_figure(benchmark_figure(found), "benchmark")
