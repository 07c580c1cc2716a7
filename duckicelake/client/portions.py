"""PURE. Rows as a writer keeps them until they are sent: lines of JSON, or Arrow."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from duckicelake.client.json_lines import line
from duckicelake.errors import BadInput, MissingRequirement

Rows: TypeAlias = Any
"""A mapping, an iterable of them, newline-delimited JSON as bytes, or whatever Arrow reads: tables, batches, pandas."""


@dataclass(frozen=True, slots=True)
class Batching:
    """When rows are sent: so many, so many bytes of them, or once the oldest has waited for max_age seconds.

    max_waiting: bytes that may wait before `append` does. Rows keep their order, and batches go one after the other.
    """

    max_rows: int = 10_000
    max_bytes: int = 8 << 20
    max_age: float = 1.0
    max_waiting: int = 64 << 20


class Portion(Protocol):
    """Some rows, no more than a batch takes. Those of one `kind` may go together."""

    @property
    def kind(self) -> object: ...

    @property
    def content_type(self) -> str: ...

    @property
    def count(self) -> int: ...

    @property
    def size(self) -> int:
        """Bytes, about as many as it takes to send them."""

    def after(self, rows: int) -> "Portion":
        """Without so many of its first rows."""

    def with_all(self, others: Sequence[Any]) -> "Portion":
        """And others of the same kind behind it."""

    def body(self) -> bytes: ...

    def given(self) -> Any:
        """The rows in a form that can be appended again."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows as JSON, one in each line."""

    lines: Sequence[bytes]
    size: int
    kind: str = "json"
    content_type: str = "application/x-ndjson"

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> "Lines":
        return cls(lines, sum(map(len, lines)) + len(lines))

    @property
    def count(self) -> int:
        return len(self.lines)

    def after(self, rows: int) -> "Lines":
        return Lines.of(self.lines[rows:])

    def with_all(self, others: Sequence["Lines"]) -> "Lines":
        return Lines.of([each for portion in (self, *others) for each in portion.lines])

    def body(self) -> bytes:
        return b"\n".join(self.lines)

    def given(self) -> list[Any]:
        return [_parsed(each) for each in self.lines]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows as an Arrow table."""

    table: Any
    content_type: str = "application/vnd.apache.arrow.stream"

    @property
    def kind(self) -> object:
        return self.table.schema

    @property
    def count(self) -> int:
        return int(self.table.num_rows)

    @property
    def size(self) -> int:
        return int(self.table.nbytes)

    def after(self, rows: int) -> "Table":
        return Table(self.table.slice(rows))

    def with_all(self, others: Sequence["Table"]) -> "Table":
        arrow = _arrow()
        return Table(arrow.concat_tables([self.table, *(each.table for each in others)]).combine_chunks())

    def body(self) -> bytes:
        arrow = _arrow()
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, self.table.schema) as stream:
            stream.write_table(self.table)
        return bytes(sink.getvalue())

    def given(self) -> Any:
        return self.table


def joined(several: Sequence[Portion]) -> Portion:
    """One of several of the same kind."""
    first, *others = several
    return first.with_all(others) if others else first


def portions(rows: Rows, batching: Batching) -> Iterator[Portion]:
    """The rows, each portion small enough to be sent by itself unless a single row isn't.

    BadInput for a row that can't be written; the rows before it have been yielded.
    """
    if isinstance(rows, Mapping):
        yield Lines.of([line(rows)])
    elif isinstance(rows, bytes):
        yield from _lines((each for each in rows.split(b"\n") if each.strip()), batching)
    elif hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        yield from _tables(_table(rows), batching)
    elif isinstance(rows, Iterable) and not isinstance(rows, str):
        yield from _lines(map(line, rows), batching)
    else:
        raise BadInput(f"rows are mappings, Arrow, pandas or bytes of JSON lines, not {type(rows).__name__}")


def _lines(lines: Iterator[bytes], batching: Batching) -> Iterator[Lines]:
    kept: list[bytes] = []
    size = done = 0
    try:
        for each in lines:
            if len(kept) == batching.max_rows or (kept and size + len(each) >= batching.max_bytes):
                yield Lines(kept, size)
                done += len(kept)
                kept, size = [], 0
            kept.append(each)
            size += len(each) + 1
    except BadInput as error:
        if kept:
            yield Lines(kept, size)
        raise BadInput(f"row {done + len(kept)}: {error}; the rows before it were appended") from error
    if kept:
        yield Lines(kept, size)


def _tables(table: Any, batching: Batching) -> Iterator[Table]:
    if not table.num_rows:
        return
    rows = min(batching.max_rows, max(1, table.num_rows * batching.max_bytes // max(table.nbytes, 1)))
    for first in range(0, table.num_rows, rows):
        yield Table(table.slice(first, rows))


def _table(rows: Any) -> Any:
    arrow = _arrow()
    if hasattr(rows, "reset_index"):  # pandas, whose index is no column
        return arrow.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata()
    return arrow.table(rows) if hasattr(rows, "__arrow_c_stream__") else arrow.Table.from_batches([rows])


def _arrow() -> Any:
    try:
        import pyarrow  # noqa: PLC0415 - who writes mappings needs no Arrow
    except ImportError as error:
        raise MissingRequirement("Arrow isn't installed: pip install pyarrow, or append mappings") from error
    return pyarrow


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # bytes that were no JSON in the first place
        return text
