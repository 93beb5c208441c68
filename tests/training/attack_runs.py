"""Attacks on runs, with real processes, seeded, counted by outcome:

    python tests/training/attack_runs.py --seed 1 --fraction 1.0

Runs and saves are killed before any file-system event, by the kernel in the middle of a write, or asked to end; two
processes write at once. `same bits`: the run ended with the weights of one that nothing had befallen, and with nothing
else in its folder. The other outcomes are defects. (`test_checkpoints.py` damages checkpoints.)
"""

import argparse
import filecmp
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from tempfile import mkdtemp

import pandas as pd
import torch
from small_runs import SMALL

from palslib.common.files import LOCK, InUse
from palslib.model.multi_task import MultiTaskModel
from palslib.plan.config import RunConfig
from palslib.records import environment, write_record
from palslib.training.in_turn import train_in_turn
from palslib.training.loop import train
from palslib.training.pretraining import pretrain

OUTCOMES = ("same bits", "error", "other bits", "hang", "left over")
TINY = SMALL | {"size": 24, "steps": 8, "checkpoint_every": 2}
TURN = {"backbone": "tiny", "epochs": 2, "epoch_steps": 2, "batch_size": 4, "progress": False, "precision": "float32"}
PATIENCE = 120
"""Seconds after which a process counts as one that hangs."""
KINDS = {"killed_at_an_event": 100, "killed_in_a_write": 60, "asked_to_end": 40, "two_writers": 20}
"""How many of each are one whole attack."""


def save(folder: Path) -> None:
    """Saves two models, one in place of the other, beside a user's note."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer of mine.md").touch()
    for seed in (0, 1):
        MultiTaskModel.from_backbone("tiny", "pals-204", ["rte"], seed, size=12).save_pretrained(folder)


WORKS = {
    "train": lambda folder: train(RunConfig(**TINY, evaluate_every=4, keep="best", folder=str(folder))),
    "pretrain": lambda folder: pretrain(RunConfig(**TINY, folder=str(folder))),
    "train in turn": lambda folder: train_in_turn(["cola", "rte"], folder, **TURN),
    "save": save,
}
"""What is attacked: each writes into a folder, and is called again to its end."""


def start(name: str, folder: Path, before=lambda: None) -> int:
    """A process that works, and ends with status 0, 3 for a folder in use, or 4; what it prints is in a file."""
    if number := os.fork():
        return number
    status = 4
    try:
        sys.stdout = sys.stderr = open(f"{folder}.printed", "a")  # noqa: SIM115
        signal.alarm(PATIENCE)
        before()
        WORKS[name](folder)
        status = 0
    except InUse:
        status = 3
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)


def end(number: int) -> int:
    """The exit status of a process, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def files_in(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")} - {Path(LOCK)}


class Attacks:
    """A folder in which works are attacked, and what they end with if they are left alone."""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.random, self.number = folder, random.Random(seed), 0
        began = time.monotonic()
        assert [end(start(name, folder / name)) for name in WORKS] == [0] * len(WORKS)
        self.seconds = (time.monotonic() - began) / len(WORKS)

    def new(self) -> tuple[str, Path]:
        """What is attacked next, and its folder."""
        self.number += 1
        return self.random.choice(list(WORKS)), self.folder / f"attack-{self.number}"

    def outcome(self, name: str, folder: Path) -> str:
        """The work is taken to its end, and judged."""
        if (status := end(start(name, folder))) != 0:
            return "hang" if status == -signal.SIGALRM else "error"
        whole = self.folder / name
        if files_in(folder) != files_in(whole):
            return "left over"
        for path in whole.rglob("*.safetensors"):
            if not filecmp.cmp(path, folder / path.relative_to(whole), shallow=False):
                return "other bits"
        return "same bits"

    def killed_at_an_event(self) -> str:
        """Before anything that opens, makes, renames or removes in the folder, up to the 150th time."""
        (name, folder), left = self.new(), [self.random.randint(1, 150)]

        def hook(event: str, given: tuple) -> None:
            if event.split(".")[0] in ("open", "os", "shutil") and str(folder) in str(given[:2]):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        end(start(name, folder, lambda: sys.addaudithook(hook)))
        return self.outcome(name, folder)

    def killed_in_a_write(self) -> str:
        """By the kernel, at a byte of the first file that grows so long."""
        (name, folder), most = self.new(), int(10 ** self.random.uniform(1.5, 7.2))

        def before() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python's own way would be an error
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

        end(start(name, folder, before))
        return self.outcome(name, folder)

    def asked_to_end(self) -> str:
        """By a signal: a run saves a checkpoint, if it has begun, and goes on from there."""
        name, folder = self.new()
        number = start(name, folder)
        time.sleep(self.random.uniform(0, self.seconds))
        os.kill(number, self.random.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]))
        return "hang" if end(number) == -signal.SIGALRM else self.outcome(name, folder)

    def two_writers(self) -> str:
        """One is refused, or both were never there at once; one may be killed, too."""
        folder, numbers = self.new()[1], []
        for _ in range(2):
            numbers.append(start("train", folder))
            time.sleep(self.random.uniform(0, self.seconds / 2))
        if self.random.random() < 0.5:
            os.kill(self.random.choice(numbers), signal.SIGKILL)
        if 4 in [end(number) for number in numbers]:
            return "error"
        return self.outcome("train", folder)


def attack(seed: int, fraction: float) -> pd.DataFrame:
    """A row for each kind of attack, a column for each outcome; what a defect left on the disk is kept and shown."""
    torch.set_num_threads(1)
    attacks, rows = Attacks(Path(mkdtemp(prefix="attack-")), seed), {}
    for kind, most in KINDS.items():
        rows[kind] = Counter()
        for _ in range(max(1, round(most * fraction))):
            outcome = getattr(attacks, kind)()
            rows[kind][outcome] += 1
            if outcome != "same bits":
                print(f"{kind}: {outcome}, see {attacks.folder}/attack-{attacks.number}", flush=True)
    table = pd.DataFrame.from_dict(rows, "index").reindex(columns=OUTCOMES).fillna(0).astype(int)
    if not table[list(OUTCOMES[1:])].to_numpy().any():
        shutil.rmtree(attacks.folder)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fraction", type=float, default=1.0)
    parser.add_argument("--record", type=Path, help="a JSON file for the counts and where they come from")
    options = parser.parse_args()
    table = attack(options.seed, options.fraction)
    print(f"\nseed {options.seed}, {int(table.to_numpy().sum())} attacks\n{table.to_string()}")
    if options.record:
        record = {"seed": options.seed, "counts": table.to_dict("index"), "environment": environment()}
        write_record(options.record, record)
    sys.exit(int(table[list(OUTCOMES[1:])].to_numpy().any()))
