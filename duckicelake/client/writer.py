"""A writer for programs with threads."""

from types import TracebackType
from typing import Self

from duckicelake.client.face import Face, ends_at_once
from duckicelake.client.portions import Rows, portions
from duckicelake.client.stream import Progress


class Writer(Face):
    __doc__ = Face.__doc__

    def append(self, rows: Rows) -> None:
        """Take rows: a mapping, an iterable of them, Arrow, pandas, or bytes of JSON lines.

        Waits while too many bytes do. Raises BadInput for rows that can't be sent, and RowsNotWritten.
        """
        for portion in portions(rows, self._batching):
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
        """Close, also where the block failed, unless `ends_at_once`."""
        if ends_at_once(error):
            self.abandon()
        else:
            self.close()
