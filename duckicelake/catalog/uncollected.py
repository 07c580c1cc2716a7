"""Python's garbage collector left out of work that makes very much."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """What is made meanwhile is hardly ever in a cycle: the collector would look through all of it for nothing.

    The whole process is spared it; of threads that overlap here the first one to leave ends that.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
