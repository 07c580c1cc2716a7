"""PURE. Rows of a writer until they are sent, as lines of JSON or as Arrow."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from duckicelake.errors import BadInput, MissingRequirement

Rows: TypeAlias = Any
"""A mapping, an iterable of them, newline-delimited JSON as bytes, or whatever Arrow reads: tables, batches, pandas."""


def encode_line(row: Mapping[str, Any]) -> bytes:
    """A row as JSON without a line break.

    Times are written as ISO 8601, binary as hexadecimal digits, decimals, uuids, NaN and infinities as texts; numpy's
    numbers as Python's. BadInput for what is no mapping, and for values that JSON can't say.
    """
    if not isinstance(row, Mapping):
        raise BadInput(f"a row is a mapping from column to value, not {type(row).__name__}")
    try:
        return _ENCODER.encode(row if isinstance(row, dict) else dict(row)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return _encode_finite_line(row, error)


def _encode_finite_line(row: Mapping[str, Any], error: Exception) -> bytes:
    try:
        return _ENCODER.encode(_replace_nonfinite(row)).encode()
    except (TypeError, ValueError, RecursionError):
        raise BadInput(f"a value can't be written as JSON: {error}") from error


def _replace_nonfinite(value: Any) -> Any:
    """The value with texts in place of numbers that JSON doesn't have."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {name: _replace_nonfinite(each) for name, each in value.items()}
    return [_replace_nonfinite(each) for each in value] if isinstance(value, list | tuple) else value


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
class JsonPortion:
    """Rows as JSON, one in each line."""

    lines: Sequence[bytes]
    size: int
    kind: str = "json"
    content_type: str = "application/x-ndjson"

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> "JsonPortion":
        return cls(lines, sum(map(len, lines)) + len(lines))

    @property
    def count(self) -> int:
        return len(self.lines)

    def after(self, rows: int) -> "JsonPortion":
        return JsonPortion.of(self.lines[rows:])

    def with_all(self, others: Sequence["JsonPortion"]) -> "JsonPortion":
        return JsonPortion.of([each for portion in (self, *others) for each in portion.lines])

    def body(self) -> bytes:
        return b"\n".join(self.lines)

    def given(self) -> list[Any]:
        return [_parse_line(each) for each in self.lines]


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
        return ArrowPortion(arrow.concat_tables([self.table, *(each.table for each in others)]).combine_chunks())

    def body(self) -> bytes:
        arrow = _import_arrow()
        sink = arrow.BufferOutputStream()
        with arrow.ipc.new_stream(sink, self.table.schema) as stream:
            stream.write_table(self.table)
        return bytes(sink.getvalue())

    def given(self) -> Any:
        return self.table


def join_portions(several: Sequence[Portion]) -> Portion:
    """One of several of the same kind."""
    first, *others = several
    return first.with_all(others) if others else first


def split_into_portions(rows: Rows, batching: Batching) -> Iterator[Portion]:
    """The rows, each portion small enough to be sent by itself unless a single row isn't.

    BadInput for a row that can't be written; the rows before it have been yielded.
    """
    if isinstance(rows, Mapping):
        yield JsonPortion.of([encode_line(rows)])
    elif isinstance(rows, bytes):
        yield from _split_lines((each for each in rows.split(b"\n") if each.strip()), batching)
    elif hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        yield from _split_table(_convert_to_table(rows), batching)
    elif isinstance(rows, Iterable) and not isinstance(rows, str):
        yield from _split_lines(map(encode_line, rows), batching)
    else:
        raise BadInput(f"rows are mappings, Arrow, pandas or bytes of JSON lines, not {type(rows).__name__}")


def _split_lines(lines: Iterator[bytes], batching: Batching) -> Iterator[JsonPortion]:
    kept: list[bytes] = []
    size = done = 0
    try:
        for each in lines:
            if len(kept) == batching.max_rows or (kept and size + len(each) >= batching.max_bytes):
                yield JsonPortion(kept, size)
                done += len(kept)
                kept, size = [], 0
            kept.append(each)
            size += len(each) + 1
    except BadInput as error:
        if kept:
            yield JsonPortion(kept, size)
        raise BadInput(f"row {done + len(kept)}: {error}; the rows before it were appended") from error
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
    try:
        import pyarrow  # noqa: PLC0415 - who writes mappings needs no Arrow
    except ImportError as error:
        raise MissingRequirement("Arrow isn't installed: pip install pyarrow, or append mappings") from error
    return pyarrow


def _parse_line(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # bytes that were no JSON in the first place
        return text
