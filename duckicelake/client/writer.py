"""Writers of rows for programs with threads and for asyncio."""

import asyncio
from types import TracebackType
from typing import Self

from duckicelake.client.batch import Batching, Rows, split_into_portions
from duckicelake.client.sender import OnUnknown, WriterTarget
from duckicelake.client.stream import Progress, Stream
from duckicelake.errors import RowsNotWritten
from duckicelake.rest.connection import Connection


class BaseWriter:
    """Appends rows to a table, in order, in batches and in the background; may be used by several threads or tasks.

    table: as `ns.t`; it must be there. on_unknown: what happens to columns that the table doesn't have. retry_seconds:
    for how long a batch is sent again while the catalog is away or busy; it is written once all the same. app_id: of a
    stream that, appended from its beginning again, goes on where it was: rows that are there are skipped.

    A batch that the catalog refuses ends the writer: from then on all raises RowsNotWritten, which has the reason, the
    rows of the batch and those behind it, which weren't sent.
    """

    def __init__(
        self,
        table: str,
        connection: Connection | None = None,
        batching: Batching | None = None,
        *,
        app_id: str | None = None,
        on_unknown: OnUnknown = "reject",
        retry_seconds: float = 300.0,
    ) -> None:
        self._batching = batching or Batching()
        target = WriterTarget(table, connection or Connection(), on_unknown, app_id, retry_seconds)
        self._stream = Stream(target, self._batching)

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return self._stream.progress

    def abandon(self) -> None:
        """End without waiting: what isn't in the table by now may or may not get there."""
        self._stream.stop()


def is_abort(error: BaseException | None) -> bool:
    """Whether a block that ends so doesn't wait for its rows: it was interrupted, or they are why it failed."""
    return isinstance(error, RowsNotWritten) or (error is not None and not isinstance(error, Exception))


class Writer(BaseWriter):
    __doc__ = BaseWriter.__doc__

    def append(self, rows: Rows) -> None:
        """Take rows: a mapping, an iterable of them, Arrow, pandas, or bytes of JSON lines.

        Waits while too many bytes do. Raises BadInput for rows that can't be sent, and RowsNotWritten.
        """
        for portion in split_into_portions(rows, self._batching):
            room = self._stream.put(portion)
            if room is not None:
                room.result()

    def flush(self) -> Progress:
        """Return once all that was appended is in the table; RowsNotWritten."""
        return self._stream.flush().result()

    def close(self) -> Progress:
        """Flush and end; RowsNotWritten."""
        try:
            return self.flush()
        finally:
            self.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, also where the block failed, unless `is_abort`."""
        if is_abort(error):
            self.abandon()
        else:
            self.close()


class AsyncWriter(BaseWriter):
    __doc__ = BaseWriter.__doc__

    async def append(self, rows: Rows) -> None:
        """Take rows, as `Writer.append` does."""
        for portion in split_into_portions(rows, self._batching):
            room = self._stream.put(portion)
            if room is not None:
                await asyncio.wrap_future(room)

    async def flush(self) -> Progress:
        """Return once all that was appended is in the table; RowsNotWritten."""
        return await asyncio.wrap_future(self._stream.flush())

    async def close(self) -> Progress:
        """Flush and end; RowsNotWritten."""
        try:
            return await self.flush()
        finally:
            self.abandon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close, also where the block failed, unless `is_abort`."""
        if is_abort(error):
            self.abandon()
        else:
            await self.close()
