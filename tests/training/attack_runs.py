"""Attacks on runs, with real processes, seeded, counted by outcome:

    python tests/training/attack_runs.py --seed 1 --fraction 1.0

Runs and saves are killed before any file-system event, by the kernel in the middle of a write, or asked to end. `same
bits`: the run ended with the weights and predictions of one that nothing had befallen, and nothing else in its folder.
Saved models are damaged: `refused` names the file. The other outcomes are defects. For a record, the properties of
`test_bad_inputs.py` are tried with other inputs, ten times as many with PALSLIB_SLOW=1. (`test_checkpoints.py` damages
checkpoints; `test_one_writer.py` starts a run twice.)
"""

import argparse
import filecmp
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from random import Random
from tempfile import mkdtemp

import hypothesis
import pandas as pd
import torch
from small_runs import SMALL, TURN

from palslib.common.files import LOCK
from palslib.grid.sweep import Grid, Terms, sweep
from palslib.model.multi_task import MultiTaskModel
from palslib.plan.config import RunConfig
from palslib.records import environment, write_record
from palslib.training.in_turn import train_in_turn
from palslib.training.loop import train
from palslib.training.pretraining import pretrain

OUTCOMES = ("same bits", "refused", "error", "other bits", "hang", "left over")
TINY = SMALL | {"size": 24, "steps": 8, "checkpoint_every": 2}
PATIENCE = 120
"""Seconds after which a process counts as one that hangs."""


def save(folder: Path) -> None:
    """Saves two models, one in place of the other, beside a user's note."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer of mine.md").touch()
    for seed in (0, 1):
        MultiTaskModel.from_backbone("tiny", "pals-204", ["rte"], seed, size=12).save_pretrained(folder)


def sweep_of_one(folder: Path) -> None:
    """A sweep, which is struck, and its one run, which may outlive it."""
    configs = Grid(base=TINY, runs=[{"keep": "last"}]).configs(folder)
    assert {*sweep(configs, 1, Terms([sys.executable, "-m", "palslib", "train"])).values()} == {"finished"}


WORKS = {
    "train": lambda folder: train(RunConfig(**TINY, evaluate_every=4, keep="best", folder=str(folder))),
    "pretrain": lambda folder: pretrain(RunConfig(**TINY, folder=str(folder))),
    "train in turn": lambda folder: train_in_turn(["cola", "rte"], folder, **TURN),
    "save": save,
    "sweep": sweep_of_one,
}
"""What is attacked: each writes into a folder, and is called again to its end."""


def start(name: str, folder: Path, before=lambda: None) -> int:
    """A process that works, and ends with status 0, or 1 after an error; what it prints is in a file."""
    if number := os.fork():
        return number
    status = 1
    try:
        sys.stdout = sys.stderr = open(f"{folder}.printed", "a")  # noqa: SIM115
        signal.alarm(PATIENCE)
        before()
        WORKS[name](folder)
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)


def end(number: int) -> int:
    """The exit status of a process, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def files_in(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")} - {Path(LOCK)}


# The attacks: each returns the exit status of the process that it has struck.
def killed_at_an_event(name: str, folder: Path, draw: Random) -> int:
    """Before anything that opens, makes, renames or removes in the folder, up to the 150th time."""
    left = [draw.randint(1, 150)]

    def hook(event: str, given: tuple) -> None:
        if event.split(".")[0] in ("open", "os", "shutil") and str(folder) in str(given[:2]):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return end(start(name, folder, lambda: sys.addaudithook(hook)))


def killed_in_a_write(name: str, folder: Path, draw: Random) -> int:
    """By the kernel, at a byte of the first file that grows so long."""
    most = int(10 ** draw.uniform(1.5, 7.2))

    def before() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python's own way would be an error
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    return end(start(name, folder, before))


def asked_to_end(name: str, folder: Path, draw: Random) -> int:
    """By a signal: a run saves a checkpoint, if it has begun, and goes on from there."""
    number = start(name, folder)
    time.sleep(draw.uniform(0, 2))
    os.kill(number, draw.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]))
    return end(number)


KINDS = {killed_at_an_event: 100, killed_in_a_write: 60, asked_to_end: 40}
"""How many of each are one whole attack."""


def outcome(kind, name: str, folder: Path, whole: Path, draw: Random) -> str:
    """A work is attacked, anew if it ended before it was struck, taken to its end, and compared with one that was
    not."""
    struck = 0
    while struck == 0:
        shutil.rmtree(folder, ignore_errors=True)
        struck = kind(name, folder, draw)
    last = end(start(name, folder))
    if -signal.SIGALRM in (struck, last):
        return "hang"
    if last != 0:
        return "error"
    if files_in(folder) != files_in(whole):
        return "left over"
    compared = (path for path in whole.rglob("*") if path.suffix in (".safetensors", ".npz"))
    pairs = [(path, folder / path.relative_to(whole)) for path in compared]
    return "same bits" if all(filecmp.cmp(*pair, shallow=False) for pair in pairs) else "other bits"


def damaged(folder: Path, whole: Path, draw: Random) -> str:
    """A saved model of which one file is cut or has another bit is refused, unless the file decides nothing."""
    shutil.copytree(whole, folder)
    path = draw.choice(sorted(path for path in folder.iterdir() if path.stat().st_size))
    content, at = path.read_bytes(), draw.randrange(path.stat().st_size)
    bit = bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]
    path.write_bytes(content[:at] + draw.choice([b"", bit]))
    try:
        model = MultiTaskModel.from_pretrained(folder).state_dict()
    except ValueError as error:
        return "refused" if path.name in str(error) else "error"
    same = MultiTaskModel.from_pretrained(whole).state_dict()
    return "same bits" if all(torch.equal(tensor, model[name]) for name, tensor in same.items()) else "other bits"


def inputs_tried(seed: int) -> dict[str, int]:
    """Property of `test_bad_inputs.py` -> the number of other inputs that it held for; it raises where it does not."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from data import test_bad_inputs

    counts = {}
    for name, test in vars(test_bad_inputs).items():
        if hasattr(test, "hypothesis") and name.startswith("test_"):

            def one(*given, name=name, inner=test.hypothesis.inner_test, **more):
                counts[name] = counts.get(name, 0) + 1
                inner(*given, **more)

            test.hypothesis.inner_test = one
            hypothesis.seed(seed)(test)()
    return counts


def attacked(seed: int, fraction: float) -> pd.DataFrame:
    """A row for each attack: its kind and outcome. What a defect left on the disk is kept and shown."""
    torch.set_num_threads(1)
    folder, draw, rows = Path(mkdtemp(prefix="attack-")), Random(seed), []
    assert [end(start(name, folder / name)) for name in WORKS] == [0] * len(WORKS)
    for kind, most in KINDS.items():
        for _ in range(max(1, round(most * fraction))):
            name = draw.choice(list(WORKS))
            rows.append((kind.__name__, outcome(kind, name, folder / f"attack-{len(rows)}", folder / name, draw)))
            if rows[-1][1] != "same bits":
                print(*rows[-1], f"{folder}/attack-{len(rows) - 1}", flush=True)
    for number in range(round(100 * fraction)):
        rows.append(("damaged", damaged(folder / f"damaged-{number}", folder / "save", draw)))
    if {outcome for _, outcome in rows} <= {*OUTCOMES[:2]}:
        shutil.rmtree(folder)
    return pd.DataFrame(rows, columns=["kind", "outcome"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fraction", type=float, default=1.0)
    parser.add_argument("--record", type=Path, help="a JSON file for the counts and where they come from")
    options = parser.parse_args()
    found = attacked(options.seed, options.fraction)
    table = pd.crosstab(found["kind"], found["outcome"]).reindex(columns=OUTCOMES, fill_value=0)
    print(f"\nseed {options.seed}, {len(found)} attacks\n{table.to_string()}")
    if options.record:
        record = {"seed": options.seed, "counts": table.to_dict("index"), "inputs": inputs_tried(options.seed)}
        write_record(options.record, record | {"environment": environment()})
    sys.exit(int(not found["outcome"].isin(OUTCOMES[:2]).all()))
