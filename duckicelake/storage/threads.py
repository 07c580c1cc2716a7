"""Run work on files in other threads, a few calls at a time."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from threading import Event, Semaphore, Thread
from typing import Final, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")
MAX_PARALLEL_CALLS: Final = 8
_MAX_THREADS: Final = 64


def run_in_parallel(act: Callable[[T], R], items: Iterable[T], at_once: int = MAX_PARALLEL_CALLS) -> list[R]:
    """Call `act` for each item in several threads; return the results in order when all are done.

    The calling thread works, too, so busy threads slow it down and never block it. After a failure no new item begins.

    Raises:
        Exception: the one of the first item that failed.

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
    """Call `act` in another thread; return a function that waits for its result or raises its exception.

    If no thread has begun by then, the waiting thread calls `act` itself.
    """
    return _build_getter(_open_pool().submit(copy_context().run, act), act)


def start_within(slots: Semaphore, act: Callable[[], R]) -> Callable[[], R] | None:
    """Call `start_in_thread` in a free slot, which the thread frees at its end; None if no slot is free."""
    if not slots.acquire(blocking=False):
        return None
    beginning = _open_pool().submit(copy_context().run, act)
    beginning.add_done_callback(lambda _: slots.release())
    return _build_getter(beginning, act)


class DaemonCall(Generic[R]):
    """A call in a thread of its own that may hang: its caller waits as long as it wants, the process ends anyway."""

    def __init__(self, act: Callable[[], R]) -> None:
        """Begin the call."""
        self._act = act
        self._made: list[R] = []
        self._error: BaseException | None = None
        self._ended = Event()
        Thread(target=copy_context().run, args=(self._run,), name="duckicelake-call", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait for the end for so many seconds; return whether it has come."""
        return self._ended.wait(seconds)

    def read_result(self) -> R:
        """Return the result of a call that has ended, or raise its exception."""
        if self._error is not None:
            raise self._error
        return self._made[0]

    def _run(self) -> None:
        try:
            self._made.append(self._act())
        except BaseException as error:  # noqa: BLE001 - raised again by whoever reads the result
            self._error = error
        finally:
            self._ended.set()


def _build_getter(beginning: Future[R], act: Callable[[], R]) -> Callable[[], R]:
    return lambda: act() if beginning.cancel() else beginning.result()


@cache
def _open_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MAX_THREADS, "duckicelake-files")
