"""Freed memory that stays with the process."""

import platform
import subprocess
import sys

import pytest

CODE = """
import resource, torch
from palslib.training.accelerator import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(9_000_000)  # 36 MB, freed at once; from 32 MB on glibc never keeps it by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
given_back = faults()
keep_freed_memory()
faults()  # the first time memory has to come from somewhere
print(given_back, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt nor malloc_trim")
def test_freed_memory_is_kept():
    """Page faults of twenty tensors made and freed: at least one for each of them before, next to none afterwards."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    given_back, kept = map(int, done.stdout.split())
    assert given_back >= 20 > 5 * kept
