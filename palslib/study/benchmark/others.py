"""The programs that palslib is compared with: training steps in their own processes, which take turns with ours.

    transformers   AutoModelForSequenceClassification as users train it: all of it, on batches padded to the longest row
    adapters       the same with the package `adapters`: Houlsby adapters on a frozen BERT

This file is both ends of the pipe. As a script, which any Python that has torch can run, it does not import palslib: it
gets its settings as one JSON object, prints a description of itself, and then answers each line of input with the
seconds of one more step. Where it fails, its own error is printed, and the answer that is missing stops the benchmark.
"""

import itertools
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from torch.utils.benchmark import timer  # a clock that waits for a GPU to be done


class Other(subprocess.Popen):
    """Another program that trains in its own process, until the end of a `with` block closes its input; a call takes
    one step and returns its seconds."""

    def __init__(self, kind: str, python: str | Path, **settings):
        """`kind`: `transformers` or `adapters`; `python`: the interpreter that has it; `settings`: see `padded`."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= {"OMP_NUM_THREADS": str(torch.get_num_threads()), "TRANSFORMERS_VERBOSITY": "error"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        super().__init__([python, __file__, kind, json.dumps(settings)], env=environment, **pipes)
        self.description: dict = json.loads(self.stdout.readline())
        """How many parameters it trains (`trained`), and the `versions` of its packages."""

    def __call__(self) -> float:
        print(file=self.stdin, flush=True)
        return float(self.stdout.readline())


def count_trained(model) -> int:
    """The number of parameters that training changes."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def classifier(backbone: str, kind: str = "transformers"):
    """A classifier of two classes on the BERT in a folder, with Houlsby adapters, m = 64, if the kind is `adapters`."""
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForSequenceClassification.from_pretrained(backbone, num_labels=2)
    if kind == "adapters":
        import adapters

        adapters.init(model)
        factor = model.config.hidden_size / 64
        model.add_adapter("task", adapters.DoubleSeqBnConfig(reduction_factor=factor, non_linearity="gelu"))
        model.train_adapter("task")
    return model.train()


def padded(kind: str, backbone: str, batches: str, bf16: bool, rate: float, decay: float, clip: float) -> tuple:
    """A function that takes a step on a file of padded batches, and a description."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, data = classifier(backbone, kind).to(device), itertools.cycle(torch.load(batches))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=decay, fused=True)

    def step() -> None:
        batch = {name: tensor.to(device) for name, tensor in next(data).items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, clip)
        optimizer.step()
        optimizer.zero_grad()

    packages = dict.fromkeys(["torch", "transformers", kind])
    return step, {"trained": count_trained(model), "versions": {name: version(name) for name in packages}}


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout, sys.stderr  # keeps what libraries print out of the answers
    step, description = padded(sys.argv[1], **json.loads(sys.argv[2]))
    print(json.dumps(description), file=answers, flush=True)
    for _ in sys.stdin:
        began = timer()
        step()
        print(timer() - began, file=answers, flush=True)
