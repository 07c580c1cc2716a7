"""What is done beside the requests, in a thread of its own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def in_thread(name: str, run: Callable[[threading.Event], object]) -> Iterator[None]:
    """Have it run for as long as the context lasts, which ends once it has come to its end after the event is set."""
    ended = threading.Event()
    thread = threading.Thread(target=run, args=(ended,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
