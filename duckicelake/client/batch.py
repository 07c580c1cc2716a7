"""PURE. Divide rows into portions that are sent as JSON lines or as Arrow."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from duckicelake.errors import BadInputError
from duckicelake.extras import import_extra

Rows: TypeAlias = Any
"""A mapping, an iterable of them, newline-delimited JSON as bytes, or whatever Arrow reads: tables, batches, pandas."""


def encode_line(row: Mapping[str, Any]) -> bytes:
    """Encode a row as JSON without a line break.

    Times become ISO 8601, binary values hexadecimal digits. Decimals, UUIDs, NaN and infinities become texts. Numpy's
    numbers become Python's.

    Raises:
        BadInputError: the row is no mapping, or JSON has no form for a value.

    """
    if not isinstance(row, Mapping):
        raise BadInputError(f"Invalid row of type {type(row).__name__}: expected a mapping from column to value")
    try:
        return _ENCODER.encode(row if isinstance(row, dict) else dict(row)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return _encode_finite_line(row, error)


def _encode_finite_line(row: Mapping[str, Any], error: Exception) -> bytes:
    try:
        return _ENCODER.encode(_replace_nonfinite(row)).encode()
    except (TypeError, ValueError, RecursionError):
        raise BadInputError(f"Invalid value in a row: JSON has no form for it ({error})") from error


def _replace_nonfinite(value: Any) -> Any:
    """Replace numbers that JSON doesn't have by texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _replace_nonfinite(part) for name, part in value.items()}
    return [_replace_nonfinite(part) for part in value] if isinstance(value, list | tuple) else value


def _encode_value(value: Any) -> Any:
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return value.hex()
        case Mapping():
            return dict(value)
    if hasattr(value, "dtype"):
        return _replace_nonfinite(value.tolist())
    raise TypeError(f"{type(value).__name__} is no type of a column's values")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_encode_value)


@dataclass(frozen=True, slots=True)
class Batching:
    """When a writer sends a batch. Rows keep their order, and batches go one after the other.

    Attributes:
        max_rows: rows of a batch.
        max_bytes: bytes of a batch.
        max_age: seconds for which the oldest row may wait.
        max_waiting: bytes that may wait before `append` blocks.

    """

    max_rows: int = 10_000
    max_bytes: int = 8 << 20
    max_age: float = 1.0
    max_waiting: int = 64 << 20


class Portion(Protocol):
    """Rows that fit into one batch. Portions of one `kind` can be joined."""

    @property
    def kind(self) -> object: ...

    @property
    def content_type(self) -> str: ...

    @property
    def count(self) -> int: ...

    @property
    def size(self) -> int:
        """Approximate bytes of the request body."""

    def after(self, rows: int) -> "Portion":
        """Return the portion without its first rows."""

    def with_all(self, others: Sequence[Any]) -> "Portion":
        """Return one portion of this and others of the same kind, in order."""

    def body(self) -> bytes: ...

    def to_rows(self) -> Any:
        """Return the rows in a form that can be appended again."""


@dataclass(frozen=True, slots=True)
class JsonPortion:
    """Rows as JSON lines."""

    lines: Sequence[bytes]
    size: int
    kind: str = "json"
    content_type: str = "application/x-ndjson"

    @classmethod
    def from_lines(cls, lines: Sequence[bytes]) -> "JsonPortion":
        return cls(lines, sum(map(len, lines)) + len(lines))

    @property
    def count(self) -> int:
        return len(self.lines)

    def after(self, rows: int) -> "JsonPortion":
        return JsonPortion.from_lines(self.lines[rows:])

    def with_all(self, others: Sequence["JsonPortion"]) -> "JsonPortion":
        return JsonPortion.from_lines([line for portion in (self, *others) for line in portion.lines])

    def body(self) -> bytes:
        return b"\n".join(self.lines)

    def to_rows(self) -> list[Any]:
        return [_parse_line(line) for line in self.lines]


@dataclass(frozen=True, slots=True)
class ArrowPortion:
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

    def after(self, rows: int) -> "ArrowPortion":
        return ArrowPortion(self.table.slice(rows))

    def with_all(self, others: Sequence["ArrowPortion"]) -> "ArrowPortion":
        arrow = _import_arrow()
        return ArrowPortion(arrow.concat_tables([self.table, *(other.table for other in others)]).combine_chunks())

    def body(self) -> bytes:
        arrow = _import_arrow()
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, self.table.schema) as stream:
            stream.write_table(self.table)
        return bytes(sink.getvalue())

    def to_rows(self) -> Any:
        return self.table


def join_portions(several: Sequence[Portion]) -> Portion:
    """Join portions of one kind."""
    first, *others = several
    return first.with_all(others) if others else first


def split_into_portions(rows: Rows, batching: Batching) -> Iterator[Portion]:
    """Divide rows into portions that each fit into a batch; a single larger row is a portion of its own.

    Raises:
        BadInputError: a row can't be encoded; the rows before it have been yielded.

    """
    if isinstance(rows, Mapping):
        yield JsonPortion.from_lines([encode_line(rows)])
    elif isinstance(rows, bytes):
        yield from _split_lines((line for line in rows.split(b"\n") if line.strip()), batching)
    elif hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        yield from _split_table(_convert_to_table(rows), batching)
    elif isinstance(rows, Iterable) and not isinstance(rows, str):
        yield from _split_lines(map(encode_line, rows), batching)
    else:
        raise BadInputError(
            f"Invalid rows of type {type(rows).__name__}: expected mappings, Arrow, pandas or bytes of JSON lines"
        )


def _split_lines(lines: Iterator[bytes], batching: Batching) -> Iterator[JsonPortion]:
    kept: list[bytes] = []
    size = done = 0
    try:
        for line in lines:
            if len(kept) == batching.max_rows or (kept and size + len(line) >= batching.max_bytes):
                yield JsonPortion(kept, size)
                done += len(kept)
                kept, size = [], 0
            kept.append(line)
            size += len(line) + 1
    except BadInputError as error:
        if kept:
            yield JsonPortion(kept, size)
        raise BadInputError(f"row {done + len(kept)}: {error}; the rows before it were appended") from error
    if kept:
        yield JsonPortion(kept, size)


def _split_table(table: Any, batching: Batching) -> Iterator[ArrowPortion]:
    if not table.num_rows:
        return
    rows = min(batching.max_rows, max(1, table.num_rows * batching.max_bytes // max(table.nbytes, 1)))
    for first in range(0, table.num_rows, rows):
        yield ArrowPortion(table.slice(first, rows))


def _convert_to_table(rows: Any) -> Any:
    arrow = _import_arrow()
    if hasattr(rows, "reset_index"):  # pandas, whose index is no column
        return arrow.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata()
    return arrow.table(rows) if hasattr(rows, "__arrow_c_stream__") else arrow.Table.from_batches([rows])


def _import_arrow() -> Any:
    return import_extra("pyarrow")  # mappings need no Arrow


def _parse_line(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # the caller's bytes were no JSON
        return text
