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
"""Works that are done together, so that the first of them don't wait for long."""

W = TypeVar("W")
R = TypeVar("R")
More = Callable[[], list[W]]
"""Takes those that have come since."""
Act = Callable[[Sequence[W], More[W]], Sequence[R | Exception]]
"""Gives for each work, and for those that it has taken besides, its result or what is to be raised in its place."""


@dataclass(frozen=True, slots=True)
class _WaitingWork(Generic[W, R]):
    """Work for the thread. context: of the request, which its traces belong to."""

    work: W
    told: asyncio.Future[R]
    context: Context = field(default_factory=copy_context)


class Coalescer(Generic[W, R]):
    """Has works done in the order in which they were asked for. The thread ends when the gathering is forgotten."""

    def __init__(self, act: Act[W, R], name: str) -> None:
        """act: what it raises is for all works that it was given."""
        self._act = act
        self._thread = ThreadPoolExecutor(1, name)
        self._mutex = Lock()
        self._waiting: list[_WaitingWork[W, R]] = []
        self._is_busy = False

    async def do(self, work: W) -> R:
        """The work's result, or what was raised in its place."""
        asked: _WaitingWork[W, R] = _WaitingWork(work, asyncio.get_running_loop().create_future())
        with self._mutex:
            self._waiting.append(asked)
            was_busy, self._is_busy = self._is_busy, True
        if not was_busy:
            self._thread.submit(self._work_off)
        return await asked.told

    def _work_off(self) -> None:
        while True:
            with self._mutex:
                group = self._taken(MAX_COALESCED_WORKS)
                self._is_busy = bool(group)
            if not group:
                return
            self._do(group)

    def _taken(self, most: int) -> list[_WaitingWork[W, R]]:
        taken, self._waiting = self._waiting[:most], self._waiting[most:]
        return taken

    def _do(self, group: list[_WaitingWork[W, R]]) -> None:
        def more() -> list[W]:
            with self._mutex:
                taken = self._taken(MAX_COALESCED_WORKS - len(group))
            group.extend(taken)
            return [each.work for each in taken]

        results: Sequence[R | Exception]
        try:
            results = group[0].context.run(self._act, [each.work for each in group], more)
        except Exception as error:  # noqa: BLE001 - raised where the results are awaited
            results = [error] * len(group)
        by_loop: defaultdict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[R], Any]]] = defaultdict(list)
        for asked, result in zip(group, results, strict=True):
            by_loop[asked.told.get_loop()].append((asked.told, result))
        for loop, pairs in by_loop.items():
            with suppress(RuntimeError):  # it was closed: nobody waits there any more
                loop.call_soon_threadsafe(_deliver, pairs)


def _deliver(pairs: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for told, result in pairs:
        if told.done():
            continue
        if isinstance(result, Exception):
            told.set_exception(result)
        else:
            told.set_result(result)
