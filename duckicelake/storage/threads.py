"""Run work on files in other threads, a few calls at a time."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from threading import Semaphore
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")
MAX_PARALLEL_CALLS: Final = 8
_MAX_THREADS: Final = 64


def run_in_parallel(act: Callable[[T], R], items: Iterable[T], at_once: int = MAX_PARALLEL_CALLS) -> list[R]:
    """What `act` makes of each item, in their order, when all are done.

    Raises what the first of those that failed did; after a failure nothing new is begun. The calling thread works, too:
    threads that others keep busy make it slower, and never wait for one another.
    """
    given = list(items)
    if len(given) == 1:
        return [act(given[0])]
    made: dict[int, R] = {}
    failures: dict[int, BaseException] = {}
    following = iter(range(len(given)))

    def work() -> None:
        for index in following:
            if failures:
                return
            try:
                made[index] = act(given[index])
            except BaseException as error:  # noqa: BLE001 - raised again by the calling thread
                failures[index] = error

    helpers = [_open_pool().submit(copy_context().run, work) for _ in range(min(at_once, len(given)) - 1)]
    work()
    for helper in helpers:
        if not helper.cancel():
            helper.result()
    if failures:
        raise failures[min(failures)]
    return [made[index] for index in range(len(given))]


def start_in_thread(act: Callable[[], R]) -> Callable[[], R]:
    """Begin to act in another thread; what is given waits for the result, or raises as `act` did.

    Who waits acts itself where all threads are still busy.
    """
    return _build_getter(_open_pool().submit(copy_context().run, act), act)


def start_within(slots: Semaphore, act: Callable[[], R]) -> Callable[[], R] | None:
    """The same in one of the slots, which is free again when the thread is done; None where no slot is free."""
    if not slots.acquire(blocking=False):
        return None
    beginning = _open_pool().submit(copy_context().run, act)
    beginning.add_done_callback(lambda _: slots.release())
    return _build_getter(beginning, act)


def _build_getter(beginning: Future[R], act: Callable[[], R]) -> Callable[[], R]:
    return lambda: act() if beginning.cancel() else beginning.result()


@cache
def _open_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MAX_THREADS, "duckicelake-files")
