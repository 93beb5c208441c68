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

KERNELS = """
import ctypes, torch
from palslib.training.accelerator import keep_freed_memory

class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "a", "b", "c", "d", "e", "f", "used", "free", "g")]

heap = ctypes.CDLL(None).mallinfo2
heap.restype = Heap
keep_freed_memory()
torch.set_num_threads(1)
for rows in range(1, 600):
    torch.nn.functional.gelu(torch.ones(rows, 64))
    before = heap().used if rows == 100 else before if rows > 100 else 0
print(heap().used - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt nor malloc_trim")
def test_freed_memory_is_kept():
    """Page faults of twenty tensors made and freed: at least one for each of them before, next to none afterwards."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    given_back, kept = map(int, done.stdout.split())
    assert given_back >= 20 > 5 * kept


@pytest.mark.skipif(platform.libc_ver() < ("glibc", "2.33"), reason="other C libraries have no mallinfo2")
def test_kernels_of_other_shapes_do_not_pile_up(monkeypatch):
    """500 shapes more take less than a megabyte; where oneDNN keeps 1,024, several."""
    done = subprocess.run([sys.executable, "-c", KERNELS], capture_output=True, text=True, check=True)
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "1024")
    kept = subprocess.run([sys.executable, "-c", KERNELS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1e6 < int(kept.stdout)
