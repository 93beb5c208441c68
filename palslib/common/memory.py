"""One message for a lack of memory, whichever library runs out of it."""

from collections.abc import Iterator
from contextlib import contextmanager

_ON_A_CPU = ("can't allocate memory", "std::bad_alloc")
"""Words in torch's RuntimeError for a lack of memory on a CPU."""


@contextmanager
def enough_memory(advice: str) -> Iterator[None]:
    """A block in which a lack of memory, of the machine or of a GPU, is a MemoryError that says what needs less."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        why = [*str(error).splitlines(), ""][0]
        of_torch = type(error).__name__ == "OutOfMemoryError" or any(words in why for words in _ON_A_CPU)
        if why.startswith("out of memory: ") or not (of_torch or isinstance(error, MemoryError)):
            raise
        raise MemoryError(f"out of memory: {advice} ({why or 'no memory left'})") from error
