"""Run the work of concurrent requests together on one thread."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, Generic, TypeVar

MAX_COALESCED_WORKS: Final = 64
"""Works in one call, so that the first of them don't wait for long."""

W = TypeVar("W")
R = TypeVar("R")
More = Callable[[], list[W]]
"""Takes the works that have arrived since."""
Act = Callable[[Sequence[W], More[W]], Sequence[R | Exception]]
"""Returns one result per work, those that it took besides included; an exception is raised for that work."""


@dataclass(frozen=True, slots=True)
class _WaitingWork(Generic[W, R]):
    """Work for the thread. context: of the request, for its traces."""

    work: W
    result: asyncio.Future[R]
    context: Context = field(default_factory=copy_context)


class Coalescer(Generic[W, R]):
    """Do works in order of arrival, several in one call. Its thread ends when the coalescer is deleted."""

    def __init__(self, act: Act[W, R], name: str) -> None:
        """Make a coalescer. act: an exception that it raises is raised for all its works."""
        self._act = act
        self._thread = ThreadPoolExecutor(1, name)
        self._mutex = Lock()
        self._waiting: list[_WaitingWork[W, R]] = []
        self._is_busy = False

    async def do(self, work: W) -> R:
        """Do the work and return its result, or raise its exception."""
        waiting: _WaitingWork[W, R] = _WaitingWork(work, asyncio.get_running_loop().create_future())
        with self._mutex:
            self._waiting.append(waiting)
            was_busy, self._is_busy = self._is_busy, True
        if not was_busy:
            self._thread.submit(self._work_off)
        return await waiting.result

    def _work_off(self) -> None:
        while True:
            with self._mutex:
                group = self._take(MAX_COALESCED_WORKS)
                self._is_busy = bool(group)
            if not group:
                return
            self._do(group)

    def _take(self, most: int) -> list[_WaitingWork[W, R]]:
        taken, self._waiting = self._waiting[:most], self._waiting[most:]
        return taken

    def _do(self, group: list[_WaitingWork[W, R]]) -> None:
        def more() -> list[W]:
            with self._mutex:
                taken = self._take(MAX_COALESCED_WORKS - len(group))
            group.extend(taken)
            return [waiting.work for waiting in taken]

        results: Sequence[R | Exception]
        try:
            results = group[0].context.run(self._act, [waiting.work for waiting in group], more)
        except Exception as error:  # noqa: BLE001 - raised where the results are awaited
            results = [error] * len(group)
        by_loop: defaultdict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[R], Any]]] = defaultdict(list)
        for waiting, result in zip(group, results, strict=True):
            by_loop[waiting.result.get_loop()].append((waiting.result, result))
        for loop, pairs in by_loop.items():
            with suppress(RuntimeError):  # a closed loop has no requests that wait
                loop.call_soon_threadsafe(_deliver, pairs)


def _deliver(pairs: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in pairs:
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
