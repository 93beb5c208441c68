"""The memory of a long run."""

import platform
import subprocess
import sys

import pytest

RUN = """
import resource
from palslib import RunConfig, train

most = {}
sizes = {"backbone": "tiny", "size": 12, "tasks": ("rte", "sst2"), "batch_size": 16, "precision": "bf16"}
def note(run):
    most[run.step] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

train(RunConfig(**sizes, steps=900, progress=False), on_step=note)
print(most[899] - most[300])
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.system() != "Linux", reason="elsewhere ru_maxrss has other units")
def test_memory_does_not_grow_with_the_steps(tmp_path, monkeypatch):
    """After 300 steps, each of other shapes, nearly 600 more take less than 5 MB; the last one evaluates."""
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 5_000
