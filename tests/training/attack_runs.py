"""Attacks on runs: killed at any moment, at a file-system event, in the middle of a write; their checkpoints, kept
weights and records damaged; a user's files, links or another run's in the place of their own; two writers at once. All
with real processes, seeded, and counted by outcome:

    python tests/training/attack_runs.py --seed 1 --fraction 1.0

`same bits`: the run ended with the weights of one that nothing had befallen. `named`: so it did, and its record says
what was found. `refused`: an error of ours, by name. The others are defects.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import pandas as pd
import torch
from small_runs import SMALL, weights

from palslib.common.lock import MARK, RUN_FILES, InUse
from palslib.common.places import runs_folder
from palslib.common.reading import read_object
from palslib.plan.config import RunConfig
from palslib.records import environment, write_record
from palslib.training.loop import train

GOOD = ("same bits", "named", "refused")
BAD = ("raw traceback", "silent", "hang", "left over")
TINY = SMALL | {"size": 24, "steps": 8, "evaluate_every": 4, "checkpoint_every": 2, "keep": "best"}
OF_A_MODEL = ("model.safetensors", "palslib.json", "config.json", "tokenizer.json")
PATIENCE = 120.0
"""Seconds after which a process counts as one that hangs."""
NAMED = (ValueError, OSError, FloatingPointError)


class Attacks:
    """A folder in which runs are attacked, and what a run ends with that is left alone."""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.random, self.number = folder, random.Random(seed), 0
        for run_seed in (0, 1):  # of the second, parts are put into the first
            config = RunConfig(**TINY, seed=run_seed, folder=str(folder / f"whole-{run_seed}"))
            began = time.monotonic()
            assert self.end(self.start(config)) == 0
            self.seconds = time.monotonic() - began
            stopped = RunConfig(**TINY, seed=run_seed, folder=str(folder / f"stopped-{run_seed}"))
            assert self.end(self.start(stopped, stop=5)) == 0

    def config(self) -> RunConfig:
        """A run in a folder that is not there yet."""
        self.number += 1
        return RunConfig(**TINY, folder=str(self.folder / f"run-{self.number}"))

    def start(self, config: RunConfig, stop: int | None = None, before=None) -> int:
        """A process that trains: status 0, 3 for an error of ours and 4 for any other; what it prints is in a file."""
        number = os.fork()
        if number:
            return number
        status = 4
        try:
            said = os.open(f"{config.folder}.said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(said, 1)
            os.dup2(said, 2)
            if before:
                before(Path(config.folder))
            train(config, on_step=lambda run: run.step != stop)
            status = 0
        except NAMED as error:
            print(type(error).__name__, error, flush=True)
            status = 3
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    @staticmethod
    def end(number: int) -> int | None:
        """The exit status of a process, negative for a signal; None if it had to be ended."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found, status = os.waitpid(number, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
        return None

    def outcome(self, config: RunConfig, word: bool = False) -> str:
        """The run is taken to its end, and judged. `word`: something had been damaged, which it has to say."""
        status = self.end(self.start(config))
        if status != 0:
            return {None: "hang", 3: "refused"}.get(status, "raw traceback")
        folder = Path(config.folder)
        notes = read_object(folder / "record.json").get("notes")
        for name in ("last", "best"):
            found, expected = weights(folder, name), weights(self.folder / "whole-0", name)
            if found.keys() != expected.keys() or not all(torch.equal(t, found[k]) for k, t in expected.items()):
                return "silent"
        if sorted(p.name for p in folder.iterdir()) != ["best", "last", MARK, "predictions.npz", "record.json"]:
            return "left over"
        if bool(notes) != word:
            return "silent"
        return "named" if word else "same bits"

    # --------------------------------------------------------------------------------------------------------- kills

    def killed_by_time(self) -> str:
        """Up to three times, at any moment."""
        config = self.config()
        for _ in range(self.random.randint(1, 3)):
            number = self.start(config)
            time.sleep(self.random.uniform(0, self.seconds))
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
        return self.outcome(config)

    def killed_at_an_event(self) -> str:
        """Before anything that opens, makes, renames or removes in the run's folder, up to the 150th time."""
        config, least = self.config(), self.random.randint(1, 150)

        def before(folder: Path) -> None:
            seen = 0

            def hook(event: str, given: tuple) -> None:
                nonlocal seen
                if event.split(".")[0] in ("open", "os", "shutil") and str(folder) in str(given[:2]):
                    seen += 1
                    if seen == least:
                        os.kill(os.getpid(), signal.SIGKILL)

            sys.addaudithook(hook)

        self.end(self.start(config, before=before))
        return self.outcome(config)

    def killed_in_a_write(self) -> str:
        """By the kernel, at a byte of the first file that grows so long."""
        config, most = self.config(), int(10 ** self.random.uniform(1.5, 7.2))

        def before(_folder: Path) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python's own way would be an error
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

        self.end(self.start(config, before=before))
        return self.outcome(config)

    def asked_to_end(self) -> str:
        """By SIGTERM or SIGINT: it saves a checkpoint, if it had begun, and goes on from there."""
        config = self.config()
        number = self.start(config)
        time.sleep(self.random.uniform(0, self.seconds))
        os.kill(number, self.random.choice([signal.SIGTERM, signal.SIGINT]))
        if self.end(number) is None:
            return "hang"
        return self.outcome(config)

    # ------------------------------------------------------------------------------------------------------- damages

    def damage(self, path: Path) -> None:
        """One of eight, to a file."""
        content = bytearray(path.read_bytes())
        place = self.random.randrange(len(content))
        kind = self.random.choice(["flip", "cut", "empty", "zeros", "garbage", "gone", "longer", "other"])
        other = Path(str(path.parent).replace(path.parts[-3], "stopped-1")) / path.name
        if kind == "flip":
            content[place] ^= 1 << self.random.randrange(8)
        elif kind == "cut":
            content = content[:place]
        elif kind == "empty":
            content = bytearray()
        elif kind == "zeros":
            content[place : place + 512] = bytes(len(content[place : place + 512]))
            content[place] ^= 0xFF  # else it may have been zeros
        elif kind == "garbage":
            content = bytearray(self.random.randbytes(200))
        elif kind == "longer":
            content += b"\x00"
        elif kind == "other" and other.exists() and other.read_bytes() != content:
            content = other.read_bytes()
        else:
            return path.unlink()
        path.write_bytes(content)

    def stopped(self) -> RunConfig:
        """A run with two checkpoints, of steps 5 and 4."""
        config = self.config()
        shutil.copytree(self.folder / "stopped-0", config.folder)
        return config

    def damaged_checkpoint(self) -> str:
        """A file of the newest, and now and then one of the one before, too."""
        config = self.stopped()
        for name in ["checkpoint", "checkpoint.old"][: self.random.choice([1, 1, 2])]:
            files = sorted(Path(config.folder, name).iterdir())
            self.damage(self.random.choice(files))
        return self.outcome(config, word=True)

    def damaged_best_weights(self) -> str:
        """Those that were kept before the run was stopped: none of the checkpoints goes on with them."""
        config = self.stopped()
        self.damage(Path(config.folder, "best", self.random.choice(OF_A_MODEL)))
        return self.outcome(config, word=True)

    def damaged_weights_to_start_from(self) -> str:
        """A further task on the weights of a run."""
        earlier, config = self.config(), self.config()
        shutil.copytree(self.folder / "whole-0", earlier.folder)
        self.damage(Path(earlier.folder, "last", self.random.choice(OF_A_MODEL)))
        start = str(Path(earlier.folder, "last"))
        try:
            further = RunConfig(**TINY | {"tasks": ("cola",), "start": start}, folder=config.folder)
        except NAMED:  # palslib.json, which says what the weights' tasks are
            return "refused"
        status = self.end(self.start(further))
        if Path(config.folder).exists():
            return "silent" if status == 0 else "left over"
        return {None: "hang", 3: "refused"}.get(status, "raw traceback")

    def damaged_record(self) -> str:
        """Cut or garbage, it is refused; JSON has no checksum, so that a bit of a number would go unseen."""
        config = self.config()
        shutil.copytree(self.folder / "whole-0", config.folder)
        path = Path(config.folder, "record.json")
        content = path.read_bytes()
        path.write_bytes(
            self.random.choice([b"", b"{}", b"[1]", b"\xff\xfe", content[: len(content) // 2], b"[" * 10**5])
        )
        return {None: "hang", 0: "silent", 3: "refused"}.get(self.end(self.start(config)), "raw traceback")

    # ------------------------------------------------------------------------------------ what is a user's or another's

    def untouched(self, config: RunConfig) -> str:
        """The run is refused, and all that lies in its folder or where its links lead is as before."""

        def there() -> dict:
            paths = sorted(Path(config.folder).parent.glob(f"{Path(config.folder).name}*/**/*"))
            return {path: path.is_symlink() or path.is_dir() or path.read_bytes() for path in paths}

        before, status = there(), self.end(self.start(config))
        if status != 3:
            return {None: "hang", 0: "silent"}.get(status, "raw traceback")
        return "refused" if there() == before else "silent"

    def files_of_a_user(self) -> str:
        """A file or a folder of the name of one that a run writes, in a folder that no run has marked."""
        config, name = self.config(), self.random.choice((*RUN_FILES, "lock", "best.old", "checkpoint.x.tmp"))
        path = Path(config.folder, name, *self.random.choice([(), ("model.safetensors",)]))
        path.parent.mkdir(parents=True)
        path.write_bytes(self.random.randbytes(50))
        return self.untouched(config)

    def links(self) -> str:
        """In the place of what a stopped run has written or will write, to a file or a folder elsewhere."""
        config = self.stopped()
        path, other = Path(config.folder, self.random.choice((*RUN_FILES, "lock", MARK))), f"{config.folder}-other"
        if path.is_dir():
            shutil.move(path, other)
        else:
            path.unlink(missing_ok=True)
            Path(other).mkdir()
            other += "/file"
            Path(other).write_text("theirs")
        path.symlink_to(other)
        return self.untouched(config)

    def exchanged_best_weights(self) -> str:
        """Whole, but another run's."""
        config = self.stopped()
        shutil.rmtree(Path(config.folder, "best"))
        shutil.copytree(self.folder / self.random.choice(["stopped-1", "whole-1"]) / "best", f"{config.folder}/best")
        return self.outcome(config, word=True)

    def copied_tokens(self) -> str:
        """The token cache of a split over another one's: it is made anew."""
        one, other = self.random.sample(sorted((runs_folder() / "cache").glob("rte-*.tokens")), 2)
        shutil.copyfile(one, other)
        return self.outcome(self.config())

    # ------------------------------------------------------------------------------------------------------- writers

    def two_writers(self) -> str:
        """One is refused, or both were never there at once; then who is left is killed, too, and the run goes on."""
        config = self.config()
        numbers = [self.start(config)]
        time.sleep(self.random.uniform(0, self.seconds / 2))
        numbers.append(self.start(config))
        if self.random.random() < 0.5:
            time.sleep(self.random.uniform(0, self.seconds))
            os.kill(self.random.choice(numbers), signal.SIGKILL)
        statuses = [self.end(number) for number in numbers]
        if None in statuses or 4 in statuses:
            return "hang" if None in statuses else "raw traceback"
        said = Path(f"{config.folder}.said").read_text()
        if 3 in statuses and InUse.__name__ not in said:
            return "raw traceback"
        return self.outcome(config)


KINDS = {"killed_by_time": 50, "killed_at_an_event": 60, "killed_in_a_write": 40, "asked_to_end": 20}
KINDS |= {"damaged_checkpoint": 60, "damaged_best_weights": 20, "damaged_weights_to_start_from": 20}
KINDS |= {"damaged_record": 20, "two_writers": 20, "files_of_a_user": 20, "links": 20}
KINDS |= {"exchanged_best_weights": 10, "copied_tokens": 10}
"""How many of each are one whole attack."""


def attack(seed: int, fraction: float = 1.0, show=lambda line: None) -> pd.DataFrame:
    """A row for each kind of attack, a column for each outcome; what a defect left on the disk is kept and shown."""
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    attacks, rows, kept = Attacks(folder, seed), {}, False
    for kind, most in KINDS.items():
        rows[kind] = Counter()
        for _ in range(max(1, round(most * fraction))):
            outcome = getattr(attacks, kind)()
            rows[kind][outcome] += 1
            if outcome in BAD:
                kept = True
                show(f"{kind}: {outcome}, see {folder}/run-{attacks.number}")
            else:
                for path in folder.glob(f"run-{attacks.number}*"):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        show(f"{kind}: {dict(rows[kind])}")
    if not kept:
        shutil.rmtree(folder)
    return pd.DataFrame.from_dict(rows, "index").reindex(columns=[*GOOD, *BAD]).fillna(0).astype(int)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fraction", type=float, default=1.0)
    parser.add_argument("--record", type=Path, help="a JSON file for the counts and where they come from")
    given = parser.parse_args()
    began = time.monotonic()
    table = attack(given.seed, given.fraction, lambda line: print(line, flush=True))
    print(f"\nseed {given.seed}, {int(table.to_numpy().sum())} attacks in {time.monotonic() - began:.0f} s\n")
    print(table.to_string())
    if given.record:
        write_record(given.record, {"seed": given.seed, "counts": table.to_dict("index"), "environment": environment()})
    sys.exit(int(table[list(BAD)].to_numpy().any()))
