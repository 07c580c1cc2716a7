"""Queue rows, send them in batches by one thread, and complete futures."""

import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from duckicelake.client.batch import Batching, Portion, join_portions
from duckicelake.client.sender import Sender, WriterTarget
from duckicelake.errors import PipelineError, RowsNotWritten

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a writer is, in rows: appended, and of those written, or skipped as written by an earlier run.

    snapshot_id: the DuckLake snapshot that has the last of them. retries: requests that were sent again. trouble: what
    it waits for at the moment, if it does.
    """

    appended: int = 0
    written: int = 0
    skipped: int = 0
    batches: int = 0
    snapshot_id: int | None = None
    retries: int = 0
    trouble: str | None = None


class Stream:
    """Rows on their way to a table."""

    def __init__(self, target: WriterTarget, batching: Batching) -> None:
        self._batching = batching
        self._stopped = threading.Event()
        self._sender = Sender(target, self._stopped)
        self._changed = threading.Condition()
        self._waiting: deque[tuple[float, Portion]] = deque()
        self._rows = self._bytes = self._on_the_way = 0
        self._progress = Progress()
        self._appended = self._done = self._wanted = 0
        self._room: list[Future[None]] = []
        self._flushes: list[tuple[int, Future[Progress]]] = []
        self._failure: RowsNotWritten | None = None
        self._thread = threading.Thread(target=self._run, name=f"rows of {target.table}", daemon=True)
        self._thread.start()

    @property
    def progress(self) -> Progress:
        with self._changed:
            return self._now()

    def put(self, portion: Portion) -> Future[None] | None:
        """Take rows in. None: there is room for more; else it comes with the future. RowsNotWritten."""
        with self._changed:
            if self._failure is not None or self._stopped.is_set():
                raise self._end()
            self._waiting.append((time.monotonic(), portion))
            self._rows += portion.count
            self._bytes += portion.size
            self._appended += portion.count
            self._changed.notify_all()
            if self._bytes + self._on_the_way <= self._batching.max_waiting:
                return None
            room: Future[None] = Future()
            self._room.append(room)
            return room

    def flush(self) -> Future[Progress]:
        """Done when all that has been put is written, or with RowsNotWritten."""
        future: Future[Progress] = Future()
        with self._changed:
            if self._failure is None and self._done == self._appended:
                future.set_result(self._now())
            elif self._stopped.is_set() or self._failure is not None:
                future.set_exception(self._end())
            else:
                self._wanted = self._appended
                self._flushes.append((self._appended, future))
                self._changed.notify_all()
        return future

    def stop(self) -> None:
        """Let go of what isn't written, and end the thread as soon as it is no longer under way with a batch."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    def _end(self) -> PipelineError:
        """Why nothing goes any more."""
        if self._failure is not None:
            reason, *rest = self._failure.args
            failure = RowsNotWritten(reason, *rest)  # another one each time: each has its own traceback
            failure.__cause__ = reason
            return failure
        return PipelineError("the writer is closed: what isn't written won't be; open another one")

    def _now(self) -> Progress:
        sender = self._sender
        return replace(self._progress, appended=self._appended, retries=sender.retries, trouble=sender.trouble)

    def _run(self) -> None:
        batch: Portion | None = None
        try:
            while taken := self._next():
                batch = join_portions(taken)
                batch = self._unknown(batch)
                newest = self._sender.send(batch, self._done) if batch.count else None
                self._acknowledge(batch, newest)
        except PipelineError as error:
            self._fail(error, batch)
        except Exception as error:  # noqa: BLE001 - a bug: told to whoever waits, who would wait for ever
            self._fail(PipelineError(f"the writer failed: {error!r}"), batch)
        finally:
            self._sender.close()
            self._let_go()

    def _next(self) -> list[Portion]:
        """The next batch, once it is time for it; empty: there is none to come."""
        with self._changed:
            while not self._stopped.is_set():
                seconds = self._until_due()
                if seconds is not None and seconds <= 0:
                    return self._taken()
                self._changed.wait(seconds)
        return []

    def _until_due(self) -> float | None:
        """Seconds until rows must go; None: there are none."""
        if not self._waiting:
            return None
        full = self._rows >= self._batching.max_rows or self._bytes >= self._batching.max_bytes
        if full or self._room or self._wanted > self._done:
            return 0.0
        return self._waiting[0][0] + self._batching.max_age - time.monotonic()

    def _taken(self) -> list[Portion]:
        """The first portions that may go together."""
        taken = [self._waiting.popleft()[1]]
        rows, size = taken[0].count, taken[0].size
        while self._waiting:
            portion = self._waiting[0][1]
            rows, size = rows + portion.count, size + portion.size
            if rows > self._batching.max_rows or size > self._batching.max_bytes or portion.kind != taken[0].kind:
                break
            taken.append(self._waiting.popleft()[1])
        self._rows -= sum(each.count for each in taken)
        self._on_the_way = sum(each.size for each in taken)
        self._bytes -= self._on_the_way
        return taken

    def _unknown(self, batch: Portion) -> Portion:
        """The batch without the rows that an earlier writer has written."""
        skipped = max(0, min(self._sender.applied() - self._done, batch.count))
        if not skipped:
            return batch
        with self._changed:
            self._done += skipped
            self._progress = replace(self._progress, skipped=self._progress.skipped + skipped)
        return batch.after(skipped)

    def _acknowledge(self, batch: Portion, snapshot_id: int | None) -> None:
        with self._changed:
            self._on_the_way = 0
            self._done += batch.count
            if snapshot_id is not None:
                written, batches = self._progress.written + batch.count, self._progress.batches + 1
                self._progress = replace(self._progress, written=written, batches=batches, snapshot_id=snapshot_id)
            if self._bytes <= self._batching.max_waiting:
                for room in self._room:
                    _settle(room, None)
                self._room.clear()
            while self._flushes and self._flushes[0][0] <= self._done:
                _settle(self._flushes.pop(0)[1], self._now())

    def _fail(self, reason: PipelineError, batch: Portion | None) -> None:
        with self._changed:
            rows = [] if batch is None else batch.given()
            self._failure = RowsNotWritten(reason, self._done, rows, [portion.given() for _, portion in self._waiting])

    def _let_go(self) -> None:
        """Tell all who wait that nothing goes any more."""
        with self._changed:
            futures: list[Future[Any]] = [*self._room, *(flush for _, flush in self._flushes)]
            for future in futures:
                if future.set_running_or_notify_cancel():
                    future.set_exception(self._end())
            self._stopped.set()
            self._waiting.clear()
            self._room.clear()
            self._flushes.clear()


def _settle(future: Future[T], result: T) -> None:
    """Unless whoever waited has gone."""
    if future.set_running_or_notify_cancel():
        future.set_result(result)
