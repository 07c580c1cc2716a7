"""Queue rows, send them in batches by one thread, and complete futures."""

import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from duckicelake.client.batch import Batching, Portion, join_portions
from duckicelake.client.sender import Sender, WriterTarget
from duckicelake.errors import PipelineError, RowsNotWrittenError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a writer, in rows.

    Attributes:
        appended: rows that were appended.
        written: rows that this writer has written.
        skipped: rows that an earlier run has written.
        batches: batches that were written.
        snapshot_id: DuckLake's snapshot of the last batch.
        retries: number of repeated requests.
        trouble: the failure that the writer waits out now, None without one.

    """

    appended: int = 0
    written: int = 0
    skipped: int = 0
    batches: int = 0
    snapshot_id: int | None = None
    retries: int = 0
    trouble: str | None = None


class Stream:
    """A queue of rows, and the thread that sends them."""

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
        self._failure: RowsNotWrittenError | None = None
        self._thread = threading.Thread(target=self._run, name=f"rows of {target.table}", daemon=True)
        self._thread.start()

    @property
    def progress(self) -> Progress:
        with self._changed:
            return self._current_progress()

    def put(self, portion: Portion) -> Future[None] | None:
        """Queue rows. Return None if there is room for more, else a future that completes when there is.

        Raises:
            RowsNotWrittenError: an earlier batch was refused.

        """
        with self._changed:
            if self._failure is not None or self._stopped.is_set():
                raise self._build_end_error()
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
        """Return a future that completes when all queued rows are written, or fails with RowsNotWrittenError."""
        future: Future[Progress] = Future()
        with self._changed:
            if self._failure is None and self._done == self._appended:
                future.set_result(self._current_progress())
            elif self._stopped.is_set() or self._failure is not None:
                future.set_exception(self._build_end_error())
            else:
                self._wanted = self._appended
                self._flushes.append((self._appended, future))
                self._changed.notify_all()
        return future

    def stop(self) -> None:
        """Drop unwritten rows, and end the thread after the batch that it sends now."""
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    def _build_end_error(self) -> PipelineError:
        """Build the error for calls after the end."""
        if self._failure is not None:
            reason, *rest = self._failure.args
            failure = RowsNotWrittenError(reason, *rest)  # a new one each time: each has its own traceback
            failure.__cause__ = reason
            return failure
        return PipelineError("the writer is closed: rows that aren't written won't be; open another writer")

    def _current_progress(self) -> Progress:
        sender = self._sender
        return replace(self._progress, appended=self._appended, retries=sender.retries, trouble=sender.trouble)

    def _run(self) -> None:
        batch: Portion | None = None
        try:
            while taken := self._next():
                batch = join_portions(taken)
                batch = self._skip_written(batch)
                newest = self._sender.send(batch, self._done) if batch.count else None
                self._acknowledge(batch, newest)
        except PipelineError as error:
            self._fail(error, batch)
        except Exception as error:  # noqa: BLE001 - a bug: callers that wait must get it
            self._fail(PipelineError(f"the writer failed: {error!r}"), batch)
        finally:
            self._sender.close()
            self._fail_waiting()

    def _next(self) -> list[Portion]:
        """Wait for the next batch and return its portions; empty at the end."""
        with self._changed:
            while not self._stopped.is_set():
                seconds = self._until_due()
                if seconds is not None and seconds <= 0:
                    return self._take()
                self._changed.wait(seconds)
        return []

    def _until_due(self) -> float | None:
        """Return the seconds until a batch must be sent, None without rows."""
        if not self._waiting:
            return None
        full = self._rows >= self._batching.max_rows or self._bytes >= self._batching.max_bytes
        if full or self._room or self._wanted > self._done:
            return 0.0
        return self._waiting[0][0] + self._batching.max_age - time.monotonic()

    def _take(self) -> list[Portion]:
        """Take the first portions that fit into one batch."""
        taken = [self._waiting.popleft()[1]]
        rows, size = taken[0].count, taken[0].size
        while self._waiting:
            portion = self._waiting[0][1]
            rows, size = rows + portion.count, size + portion.size
            if rows > self._batching.max_rows or size > self._batching.max_bytes or portion.kind != taken[0].kind:
                break
            taken.append(self._waiting.popleft()[1])
        self._rows -= sum(portion.count for portion in taken)
        self._on_the_way = sum(portion.size for portion in taken)
        self._bytes -= self._on_the_way
        return taken

    def _skip_written(self, batch: Portion) -> Portion:
        """Return the batch without the rows that an earlier writer has written."""
        skipped = max(0, min(self._sender.read_applied() - self._done, batch.count))
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
                _settle(self._flushes.pop(0)[1], self._current_progress())

    def _fail(self, reason: PipelineError, batch: Portion | None) -> None:
        with self._changed:
            rows = [] if batch is None else batch.to_rows()
            self._failure = RowsNotWrittenError(
                reason, self._done, rows, [portion.to_rows() for _, portion in self._waiting]
            )

    def _fail_waiting(self) -> None:
        """Fail all futures that callers wait for."""
        with self._changed:
            futures: list[Future[Any]] = [*self._room, *(flush for _, flush in self._flushes)]
            for future in futures:
                if future.set_running_or_notify_cancel():
                    future.set_exception(self._build_end_error())
            self._stopped.set()
            self._waiting.clear()
            self._room.clear()
            self._flushes.clear()


def _settle(future: Future[T], result: T) -> None:
    """Set the result, unless the caller has cancelled the future."""
    if future.set_running_or_notify_cancel():
        future.set_result(result)
