"""Keep a bounded number of processes that run queries, each for one principal, and more that are started ahead."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from duckicelake.errors import CatalogError, TooManyRequestsError
from duckicelake.query import processes
from duckicelake.query.processes import OpenOrder, QueryLimits, QueryProcess

T = TypeVar("T")
_WAITING_PER_PROCESS: Final = 8
_IDLE_PER_PROCESS: Final = 4
"""Processes without a query that are kept for each that may run. To open a lake takes half a second of CPU."""


@dataclass(slots=True)
class ProcessTurn:
    """One of the places in which queries run, and the process that is in it. order: how that opened the lake."""

    process: QueryProcess
    order: OpenOrder


class QueryProcesses:
    """The processes of a server's worker.

    One more of each program is started ahead, so that the next principal needn't wait.
    """

    def __init__(self, limits: QueryLimits) -> None:
        self.limits = limits
        self._slots = asyncio.Semaphore(limits.processes)
        self._waiting = 0
        self._idle: list[QueryProcess] = []
        self._started: set[QueryProcess] = set()
        self._spares: dict[Path, QueryProcess] = {}
        """Processes without a lake, by the programs that they run."""
        self._stopping: dict[QueryProcess, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def take(self, order: OpenOrder, rest: tuple[str, ...] | None = None) -> AsyncIterator[ProcessTurn]:
        """Take a process that has opened the lake for this principal. A query that is left before its end is ended.

        rest: of an answer before, which the process should have if any has. Raises TooManyRequestsError,
        UnavailableError.
        """
        if self._waiting >= self.limits.processes * _WAITING_PER_PROCESS:
            raise TooManyRequestsError("Too many queries wait for their turn: try again")
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        turn = None
        try:
            turn = ProcessTurn(await self._find(order, rest), order)
            yield turn
        finally:
            if turn is None or not turn.process.is_busy:
                self._end_turn(turn)
            else:
                stopping = asyncio.create_task(self._stop(turn))
                self._stopping[turn.process] = stopping
                stopping.add_done_callback(lambda _: self._stopping.pop(turn.process, None))

    async def change(self, turn: ProcessTurn, order: OpenOrder) -> None:
        """Let a turn go on with a process that has opened the lake in another way. Raises UnavailableError."""
        process = await self._find(order)
        self._keep(turn.process)
        turn.process, turn.order = process, order

    async def work_anew(self, turn: ProcessTurn, work: Callable[[], Awaitable[T]]) -> T:
        """Do a turn's work, once more in a new process if one that was used before breaks.

        DuckDB 1.5.5 keeps the names of a table's inlined rows, of which a flush after an ALTER TABLE drops some.
        Raises what the work raises.
        """
        try:
            return await work()
        except CatalogError:
            if not (turn.process.is_reused and turn.process.is_broken):
                raise
        turn.process.kill()
        turn.process = await self._open(turn.order)
        return await work()

    def close(self) -> None:
        """End all processes."""
        if self._timer is not None:
            self._timer.cancel()
        for process in self._started:
            process.kill()
        self._started.clear()
        self._idle.clear()
        self._spares.clear()

    async def _stop(self, turn: ProcessTurn) -> None:
        try:
            await turn.process.stop()
        except (CatalogError, TimeoutError):
            turn.process.kill()
        finally:
            self._end_turn(turn)

    def _end_turn(self, turn: ProcessTurn | None) -> None:
        self._slots.release()
        if turn is not None:
            self._keep(turn.process)

    async def _find(self, order: OpenOrder, rest: tuple[str, ...] | None = None) -> QueryProcess:
        stopping = [task for process, task in self._stopping.items() if process.key == order.key]
        if stopping and not any(process.key == order.key for process in self._idle):
            await asyncio.wait(stopping, return_when=asyncio.FIRST_COMPLETED)
        found = [process for process in self._idle if process.key == order.key and process.is_alive]
        free = sorted((one for one in found if one.rest in {None, rest}), key=lambda one: one.rest is None)
        if not free and len(found) < self.limits.processes:
            return await self._open(order)
        process = (free or found)[0]
        self._idle.remove(process)
        return process

    async def _open(self, order: OpenOrder) -> QueryProcess:
        process = self._take_spare(order.worker)
        try:
            await process.work(partial(process.open, order, self.limits))
        except BaseException:
            process.kill()
            raise
        if order.worker not in self._spares:
            self._spares[order.worker] = self._start(order.worker)
            self._watch_idle()
        return process

    def _take_spare(self, worker: Path) -> QueryProcess:
        spare = self._spares.pop(worker, None)
        return spare if spare is not None and spare.is_alive else self._start(worker)

    def _start(self, worker: Path) -> QueryProcess:
        for ended in [one for one in self._started if not one.is_alive]:
            ended.kill()
            self._started.discard(ended)
        process = QueryProcess(worker)
        self._started.add(process)
        return process

    def _keep(self, process: QueryProcess) -> None:
        """Keep a process for its principal's next query, if it still runs and can read the lake."""
        if process.is_broken:
            process.kill()
        if not process.is_alive:
            return
        process.used_at, process.is_reused = time.monotonic(), True
        self._idle.append(process)
        while self._has_too_many():
            self._idle.pop(0).kill()
        self._watch_idle()

    def _has_too_many(self) -> bool:
        """Return whether one that waits for a query is to end: each has connections to Postgres, too."""
        count, limits = len(self._idle), self.limits
        if count <= limits.processes:
            return False
        is_crowded = count > _IDLE_PER_PROCESS * limits.processes
        return is_crowded or sum(process.memory_bytes for process in self._idle) > limits.memory_bytes

    def _end_idle(self) -> None:
        """End processes that no query has used for a while, those ahead included; look again while there are any."""
        for process in [one for one in self._idle if one.is_outdated or not one.is_alive]:
            self._idle.remove(process)
            process.kill()
        for worker in [one for one, spare in self._spares.items() if spare.is_outdated and not self._idle]:
            self._spares.pop(worker).kill()
        self._timer = None
        self._watch_idle()

    def _watch_idle(self) -> None:
        if self._timer is None and (self._idle or self._spares):
            seconds = min(processes.LARGE_IDLE_SECONDS, processes.IDLE_SECONDS) / 2
            self._timer = asyncio.get_running_loop().call_later(seconds, self._end_idle)
