"""Small runs for the tests of this folder: their settings, where they stop, what they leave and how it is damaged."""

import os
import resource
import signal
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file

from palslib.bert.backbones import load_encoder, load_tokenizer
from palslib.common.files import LOCK
from palslib.plan.config import RunConfig
from palslib.training.loop import train

SMALL = {"backbone": "tiny", "size": 12, "tasks": ("rte",), "batch_size": 4, "max_length": 32}
SMALL |= {"precision": "float32", "progress": False}
TURN = {"backbone": "tiny", "epochs": 2, "epoch_steps": 2, "batch_size": 4, "progress": False, "precision": "float32"}
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"]


def small(folder: Path | None, **options) -> RunConfig:
    """The config of a small run in a folder, by default in that of all runs."""
    return RunConfig(**SMALL | options, folder=folder and str(folder))


def on_cpus() -> dict[str, str]:
    """The environment of processes that compute on CPUs, one thread each."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("ACCELERATE")}
    return others | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def stop_at(*steps: int):
    """An `on_step` that stops a run after any of these steps."""
    return lambda run: run.step not in steps


def finish(config: RunConfig) -> tuple[list[int], dict]:
    """Trains to the end: the numbers of the steps that were done for that, and the record."""
    steps = []
    record = train(config, on_step=lambda run: steps.append(run.step))
    return steps, record


def weights(folder: str | Path, name: str = "last") -> dict[str, torch.Tensor]:
    """The weights that a run has kept."""
    return load_file(Path(folder, name, "model.safetensors"))


def check_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def flip(path: Path) -> None:
    """Changes one bit of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def names_in(folder: str | Path) -> list[str]:
    """What lies in a folder, by name, besides the lock of a run's folder."""
    return sorted(path.name for path in Path(folder).iterdir() if path.name != LOCK)


def save_tiny(folder: Path, seed: int = 0) -> None:
    """Saves the tiny backbone and its tokenizer in a folder."""
    for one in (load_encoder("tiny", seed), load_tokenizer("tiny")):
        one.save_pretrained(folder)


def two_classes(path: Path, yes: str = "yes", no: str = "no", rows: int = 60) -> None:
    """Writes a delimited file of two classes."""
    lines = [f"{'good' if i % 2 else 'bad'} day number {i},{yes if i % 2 else no}" for i in range(rows)]
    path.write_text("\n".join(["text,label", *lines]))


@contextmanager
def full_disk(size: int):
    """No file grows beyond so many bytes."""
    usual, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        signal.signal(signal.SIGXFSZ, handler)
