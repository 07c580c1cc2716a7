"""Works that take turns: one thread computes what another, which mostly waits for Postgres, writes."""

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import Empty, Full, Queue
from threading import Event
from typing import Final, TypeVar

T = TypeVar("T")
_END: Final = object()
_WAIT_SECONDS: Final = 0.1
_TURN_SECONDS: Final = 0.0002
"""Who hears from Postgres gets the interpreter back so soon: by Python's default it would wait for 5 ms each time."""


@contextmanager
def computed_ahead(items: Iterable[T], most: int = 3) -> Iterator[Iterator[T]]:
    """The items, so many of them computed ahead by another thread; what it raises is raised when its turn comes."""
    made: Queue[object] = Queue(most)
    stopped = Event()

    def put(item: object) -> bool:
        while not stopped.is_set():
            try:
                made.put(item, timeout=_WAIT_SECONDS)
            except Full:
                continue
            return True
        return False

    def compute() -> None:
        try:
            for item in items:
                if not put(item):
                    return
        finally:
            put(_END)

    with _short_turns(), ThreadPoolExecutor(1, "duckicelake-ahead") as pool:
        computing = pool.submit(compute)

        def taken() -> Iterator[T]:
            while (item := made.get()) is not _END:
                yield item  # type: ignore[misc]
            computing.result()

        try:
            yield taken()
        finally:
            stopped.set()
            _emptied(made)


@contextmanager
def _short_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _emptied(queue: Queue[object]) -> None:
    """Let go of what nobody takes any more."""
    while True:
        try:
            queue.get_nowait()
        except Empty:
            return
