"""One message for a lack of memory, whichever library runs out of it."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def enough_memory(advice: str) -> Iterator[None]:
    """A block in which a lack of memory, on the machine or a GPU, becomes a MemoryError that says what needs less."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        why = [*str(error).splitlines(), ""][0]
        on_cpu = any(words in why for words in ("can't allocate memory", "std::bad_alloc"))  # torch's RuntimeError
        of_torch = on_cpu or type(error).__name__ == "OutOfMemoryError"
        if why.startswith("out of memory: ") or not (of_torch or isinstance(error, MemoryError)):
            raise
        raise MemoryError(f"out of memory: {advice} ({why or 'no memory left'})") from error
