"""The same writer for asyncio: all of its waiting leaves the event loop free."""

import asyncio
from types import TracebackType
from typing import Self

from duckicelake.client.face import Face, ends_at_once
from duckicelake.client.portions import Rows, portions
from duckicelake.client.stream import Progress


class AsyncWriter(Face):
    __doc__ = Face.__doc__

    async def append(self, rows: Rows) -> None:
        """Take rows, as `Writer.append` does."""
        for portion in portions(rows, self._batching):
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
        """Close, also where the block failed, unless `ends_at_once`."""
        if ends_at_once(error):
            self.abandon()
        else:
            await self.close()
