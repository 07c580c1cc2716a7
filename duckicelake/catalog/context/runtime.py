"""Background threads, and the garbage collector disabled during mass allocation."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Yield what is made meanwhile is hardly ever in a cycle: the collector would look through all of it for nothing.

    The whole process is spared it; of threads that overlap here the first one to leave ends that.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def run_in_thread(name: str, run: Callable[[threading.Event], object]) -> Iterator[None]:
    """Have it run for as long as the context lasts, which ends once it has come to its end after the event is set."""
    ended = threading.Event()
    thread = threading.Thread(target=run, args=(ended,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
