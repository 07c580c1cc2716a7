"""The shared freshness check (design D6): the next one answers all who asked before it was sent."""

import asyncio
import time
from collections import defaultdict

from duckicelake.catalog.measuring import UNMEASURED, Meter
from duckicelake.lake.freshness import FreshnessLine
from duckicelake.lake.state import Asked, Freshness

_Waiting = defaultdict[Asked, list[asyncio.Future[Freshness | None]]]


class SharedChecks:
    """For one event loop. While a check is under way, those who ask are gathered for the next."""

    def __init__(self, line: FreshnessLine, meter: Meter = UNMEASURED) -> None:
        self._line = line
        self._meter = meter
        self._waiting: _Waiting = defaultdict(list)
        self._checking: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def fresh(self, asked: Asked) -> Freshness | None:
        """How the table is at a moment after the call; None if it isn't there, or can't be asked about this way."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()  # a system call each time
        future: asyncio.Future[Freshness | None] = self._loop.create_future()
        self._waiting[asked].append(future)
        if self._checking is None or self._checking.done():
            self._checking = self._loop.create_task(self._check_all())
        return await future

    async def _check_all(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # who is being read from the sockets just now shall have a share in this check
            waiting, self._waiting = self._waiting, defaultdict(list)
            try:
                await self._check(waiting)
            finally:
                _answer_rest(waiting)

    async def _check(self, waiting: _Waiting) -> None:
        sent = time.perf_counter()
        try:
            answers = await self._line.freshness(list(waiting))
        except Exception:  # noqa: BLE001 - those who asked ask the other way, which can say what is wrong
            return
        self._meter.took("freshness", time.perf_counter() - sent)
        for futures, fresh in zip(waiting.values(), answers, strict=True):
            _answer(futures, fresh)


def _answer(futures: list[asyncio.Future[Freshness | None]], fresh: Freshness | None) -> None:
    for future in futures:
        if not future.done():
            future.set_result(fresh)


def _answer_rest(waiting: _Waiting) -> None:
    for futures in waiting.values():
        _answer(futures, None)
