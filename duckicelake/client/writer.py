"""Writers of rows for programs with threads and for asyncio."""

import asyncio
from types import TracebackType
from typing import Self

from duckicelake.client.batch import Batching, Rows, split_into_portions
from duckicelake.client.sender import OnUnknown, WriterTarget
from duckicelake.client.stream import Progress, Stream
from duckicelake.errors import RowsNotWrittenError
from duckicelake.rest.connection import Connection


class BaseWriter:
    """Append rows to a table, in order, in batches, in the background. Threads or tasks may share a writer.

    A batch that the catalog refuses ends the writer. Every later call raises RowsNotWrittenError. The error has the
    reason, the rows of the batch, and the rows behind it, which weren't sent.

    Args:
        table: as `ns.t`; it must exist.
        on_unknown: what to do with columns that the table doesn't have.
        retry_seconds: time for which a batch is sent again while the catalog is away or busy. It is written once.
        app_id: the name of a stream. A stream that is appended from its beginning again skips rows that are written.

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
        """The progress so far."""
        return self._stream.progress

    def abandon(self) -> None:
        """End without waiting: rows that aren't in the table yet may or may not be written."""
        self._stream.stop()


def is_abort(error: BaseException | None) -> bool:
    """Return whether a block that ends so must not wait for its rows: an interruption, or refused rows."""
    return isinstance(error, RowsNotWrittenError) or (error is not None and not isinstance(error, Exception))


class Writer(BaseWriter):
    __doc__ = BaseWriter.__doc__

    def append(self, rows: Rows) -> None:
        """Queue rows: a mapping, an iterable of mappings, Arrow, pandas, or bytes of JSON lines.

        Blocks while more than `max_waiting` bytes wait.

        Raises:
            BadInputError: rows can't be encoded.
            RowsNotWrittenError: an earlier batch was refused.

        """
        for portion in split_into_portions(rows, self._batching):
            room = self._stream.put(portion)
            if room is not None:
                room.result()

    def flush(self) -> Progress:
        """Wait until all appended rows are in the table. Raises RowsNotWrittenError."""
        return self._stream.flush().result()

    def close(self) -> Progress:
        """Flush, then end the writer. Raises RowsNotWrittenError."""
        try:
            return self.flush()
        finally:
            self.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the writer, unless `is_abort`."""
        if is_abort(error):
            self.abandon()
        else:
            self.close()


class AsyncWriter(BaseWriter):
    __doc__ = BaseWriter.__doc__

    async def append(self, rows: Rows) -> None:
        """Queue rows, as `Writer.append` does."""
        for portion in split_into_portions(rows, self._batching):
            room = self._stream.put(portion)
            if room is not None:
                await asyncio.wrap_future(room)

    async def flush(self) -> Progress:
        """Wait until all appended rows are in the table. Raises RowsNotWrittenError."""
        return await asyncio.wrap_future(self._stream.flush())

    async def close(self) -> Progress:
        """Flush, then end the writer. Raises RowsNotWrittenError."""
        try:
            return await self.flush()
        finally:
            self.abandon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the writer, unless `is_abort`."""
        if is_abort(error):
            self.abandon()
        else:
            await self.close()
