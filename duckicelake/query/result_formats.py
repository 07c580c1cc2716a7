"""The formats of results: Arrow's stream, CSV and lines of JSON, written batch by batch."""

import io
import json
import math
from collections.abc import Mapping
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

_TYPES_AS_TEXT: Final = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)


def take_piece(sink: io.BytesIO) -> bytes:
    """Take what was written to a buffer, and empty it."""
    piece = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return piece


class ArrowWriter:
    """Write batches as an Arrow IPC stream."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = io.BytesIO()
        self._writer = pa.ipc.new_stream(self._sink, schema)

    def write(self, batch: pa.RecordBatch) -> bytes:
        self._writer.write_batch(batch)
        return take_piece(self._sink)

    def end(self) -> bytes:
        self._writer.close()
        return take_piece(self._sink)


class CsvWriter:
    """Write batches as CSV with a header; null is an empty field."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = io.BytesIO()
        self._texts = [not is_plain(field.type) for field in schema]
        types = [pa.string() if text else field.type for field, text in zip(schema, self._texts, strict=True)]
        self._schema = pa.schema(list(zip(schema.names, types, strict=True)))
        self._writer = pa.csv.CSVWriter(self._sink, self._schema)

    def write(self, batch: pa.RecordBatch) -> bytes:
        columns = [
            pa.array([None if value is None else dump(value) for value in column.to_pylist()], pa.string())
            if text
            else column
            for column, text in zip(batch.columns, self._texts, strict=True)
        ]
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
        return take_piece(self._sink)

    def end(self) -> bytes:
        return take_piece(self._sink)


class JsonWriter:
    """Write batches as JSON, one row per line. Names that occur twice get a number."""

    def __init__(self, schema: pa.Schema) -> None:
        seen: dict[str, int] = {}
        self._names = []
        for name in schema.names:
            seen[name] = seen.get(name, 0) + 1
            self._names.append(name if seen[name] == 1 else f"{name}_{seen[name]}")

    def write(self, batch: pa.RecordBatch) -> bytes:
        columns = [list_values(column) for column in batch.columns]
        rows = (dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True))
        return b"".join(orjson.dumps(row, encode, orjson.OPT_APPEND_NEWLINE) for row in rows)

    def end(self) -> bytes:
        return b""


FORMATS: Final[Mapping[str, Any]] = {"arrow": ArrowWriter, "csv": CsvWriter, "json": JsonWriter}


def is_plain(type_: pa.DataType) -> bool:
    """Return whether Arrow's writer of CSV takes the type."""
    return not (pa.types.is_nested(type_) or any(check(type_) for check in _TYPES_AS_TEXT))


def list_values(column: pa.Array) -> list[Any]:
    """Return the values of a column, NaN and infinities as texts: orjson writes null for them."""
    values = column.to_pylist()
    if pa.types.is_floating(column.type):
        is_finite = pa.compute.all(pa.compute.is_finite(column)).as_py() is not False
    else:
        is_finite = not has_floats(column.type)
    return values if is_finite else [spell_floats(value) for value in values]


def has_floats(type_: pa.DataType) -> bool:
    """Return whether values of a type may hold numbers that JSON has not."""
    if pa.types.is_dictionary(type_):
        return has_floats(type_.value_type)
    return pa.types.is_floating(type_) or any(has_floats(type_.field(at).type) for at in range(type_.num_fields))


def dump(value: Any) -> str:
    """Encode a value as JSON, NaN and infinities as texts; a text alone as it is, bytes alone in base 16."""
    if isinstance(value, str | bytes):
        return value if isinstance(value, str) else value.hex()
    try:
        return json.dumps(value, default=encode, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(spell_floats(value), default=encode, ensure_ascii=False)


def spell_floats(value: Any) -> Any:
    """Replace NaN and infinities by texts, in nested values, too."""
    if isinstance(value, dict):
        return {key: spell_floats(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [spell_floats(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def encode(value: Any) -> Any:
    """Encode what JSON has not: bytes in base 16, maps as pairs, times in ISO form, decimals as text.

    An interval is a tuple with names, of months, days and nanoseconds.
    """
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, tuple):
        return [*value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
