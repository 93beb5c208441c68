"""Signals asking a run to end: it ends after the current step, with a checkpoint if it keeps any, and a short message.

SIGTERM is sent by batch systems and sweeps, SIGINT is Ctrl-C, SIGHUP a terminal that is closed, SIGXCPU a limit of
processor time; SIGUSR1 and SIGUSR2 are what Slurm and other batch systems are asked to send before the time limit. An
evaluation is finished first. A second Ctrl-C, half a second or more after the first, ends the run at once.
"""

import signal
import threading
import time
from pathlib import Path

import torch

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""The signals. One that is ignored (SIGHUP, by `nohup`) stays ignored."""

AGREED_EVERY = 20
"""Steps between the moments at which several processes, signalled at different times, agree on whether to stop."""


class Stopped(KeyboardInterrupt):
    """The exception of a run that a signal has ended; `number` is the signal's number."""

    def __init__(self, message: str, number: int):
        super().__init__(message)
        self.number = number

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows of it: its message, no traceback."""
        return [str(self)]


class StopSignals:
    """A block in which signals are only noted, for `asked`; after it the previous signal handlers are restored.

    In a thread other than the main one, where Python handles no signals, it does nothing.
    """

    def __init__(self):
        self.number, self._since, self._before = 0, 0.0, {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            # None: a handler of C, such as faulthandler's, which could not be put back.
            numbers = [number for number in HANDLED if signal.getsignal(number) not in (signal.SIG_IGN, None)]
            self._before = {number: signal.signal(number, self._note) for number in numbers}
        return self

    def _note(self, number: int, _frame) -> None:
        # A launcher forwards a Ctrl-C that its processes also get from the terminal, so two can come at once.
        if number == self.number == signal.SIGINT and time.monotonic() > self._since + 0.5:
            raise KeyboardInterrupt
        if not self.number:
            self.number, self._since = number, time.monotonic()

    def __exit__(self, kind, *_) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if self.number and kind is None:
            raise Stopped(f"{signal.Signals(self.number).name} came after the run had ended or stopped", self.number)

    def asked(self, accelerator, step: int) -> bool:
        """Whether to stop after this step; the same in all processes."""
        if accelerator.num_processes > 1:
            if step % AGREED_EVERY:
                return False
            numbers = accelerator.gather(torch.tensor([self.number], device=accelerator.device))
            self.number = self.number or int(numbers.max())
        return self.number > 0

    def stop(self, when: str, kept: Path | None) -> None:
        """Raises Stopped; `kept` is the folder of the run if it has a checkpoint."""
        what = "no checkpoint is kept (checkpoint_every=0)"
        if kept:
            what = f"a call with folder={str(kept)!r} resumes it, in Python with resume=True"
        raise Stopped(f"stopped by {signal.Signals(self.number).name} {when}; {what}", self.number)
