"""Memory of a process that trains on a CPU."""

import ctypes
import platform


def keep_freed_memory() -> None:
    """Lets this process keep freed memory for its next tensors, blocks of up to 1 GiB, where the C library is glibc.

    It would give every large tensor's memory back, and the next tensor's pages would be cleared and mapped anew: a
    tenth of a training step in bf16. How much memory the process takes at most does not change.
    """
    if platform.libc_ver()[0] == "glibc":
        trim_threshold, mmap_threshold = -1, -3  # numbers of malloc.h
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(mmap_threshold, 1 << 30)
        mallopt(trim_threshold, (1 << 31) - 1)


def give_back_freed_memory() -> None:
    """Gives what has been kept back to the system, so that what the process holds is what it uses."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
