"""Run work on files in other threads, a few calls at a time."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar, copy_context
from functools import cache, partial
from threading import Semaphore, Thread
from typing import Final, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")
MAX_PARALLEL_CALLS: Final = 8
_MAX_THREADS: Final = 64
_MAY_HANG: Final = ContextVar("may_hang", default=False)
"""Whether the work under way is a DaemonCall's. Python waits at its end for threads of a pool, and not for daemons."""


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

    helpers = [_begin(work) for _ in range(min(at_once, len(given)) - 1)]
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
    return _build_getter(_begin(act), act)


def start_within(slots: Semaphore, act: Callable[[], R]) -> Callable[[], R] | None:
    """Call `start_in_thread` in a free slot, which the thread frees at its end; None if no slot is free."""
    if not slots.acquire(blocking=False):
        return None
    beginning = _begin(act)
    beginning.add_done_callback(lambda _: slots.release())
    return _build_getter(beginning, act)


class DaemonCall(Generic[R]):
    """A call in a thread of its own that may hang: its caller waits as long as it wants, the process ends anyway.

    Threads that the call begins by functions of this module don't keep the process either.
    """

    def __init__(self, act: Callable[[], R]) -> None:
        """Begin the call."""
        context = copy_context()
        context.run(_MAY_HANG.set, True)
        self._future: Future[R] = Future()
        _begin_daemon(self._future, partial(context.run, act))

    def wait(self, seconds: float) -> bool:
        """Wait for the end for so many seconds; return whether it has come."""
        return bool(wait([self._future], seconds).done)

    def read_result(self) -> R:
        """Return the result of a call that has ended, or raise its exception."""
        return self._future.result()


def _begin(act: Callable[[], R]) -> Future[R]:
    run = partial(copy_context().run, act)
    if not _MAY_HANG.get():
        return _open_pool().submit(run)
    future: Future[R] = Future()
    _begin_daemon(future, run)
    return future


def _begin_daemon(future: Future[R], act: Callable[[], R]) -> None:
    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = act()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever reads the result
            future.set_exception(error)
        else:
            future.set_result(result)

    Thread(target=run, name="duckicelake-call", daemon=True).start()


def _build_getter(beginning: Future[R], act: Callable[[], R]) -> Callable[[], R]:
    return lambda: act() if beginning.cancel() else beginning.result()


@cache
def _open_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MAX_THREADS, "duckicelake-files")
