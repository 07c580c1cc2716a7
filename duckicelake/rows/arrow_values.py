"""PURE. Arrow IPC streams as tables, and Arrow arrays cast to column types without loss."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from duckicelake.errors import InvalidRequestError
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.primitives import TypeFamily
from duckicelake.iceberg.types import ListType, PrimitiveType, StructType
from duckicelake.rows.columns import RowColumn, is_storable, to_arrow_type
from duckicelake.rows.json_columns import JsonColumn, check_names
from duckicelake.rows.problems import MISSING, MisfitError, OnUnknown

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types as is_
else:
    pa = DeferredModule("pyarrow")
    pc = DeferredModule("pyarrow.compute")
    is_ = DeferredModule("pyarrow.types")


MAX_UNCOMPRESSED_BYTES: Final = 256 << 20
"""Uncompressed bytes of a batch."""
_CONTINUATION: Final = 0xFFFFFFFF
_DICTIONARY, _RECORDS = 2, 3
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3
_BUFFERS, _COMPRESSION = 2, 3
_DICTIONARY_DATA = 1
_BUFFER_SIZE = 16


def read_stream_table(body: bytes) -> pa.Table:
    """Read a whole stream as a table, and check its contents.

    Raises:
        InvalidRequestError: it is none, was cut off, or holds too much.

    """
    try:
        check_uncompressed_size(sum(_count_uncompressed(body, message) for message in _walk_messages(body)))
        with pa.ipc.open_stream(body, options=pa.ipc.IpcReadOptions(use_threads=False)) as stream:
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, struct.error, OSError, IndexError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"Invalid Arrow IPC stream: {error}") from error
    return table


def check_uncompressed_size(size: int) -> None:
    """Raise InvalidRequestError if a batch has too many bytes uncompressed."""
    if size > MAX_UNCOMPRESSED_BYTES:
        raise InvalidRequestError(
            f"A batch takes up to {MAX_UNCOMPRESSED_BYTES} bytes uncompressed, not {size}: send several"
        )


def _walk_messages(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield the offsets of each message's metadata and body.

    Raises InvalidRequestError if the stream doesn't end as it should.
    """
    at = 0
    while True:
        if at + 8 > len(body):
            raise InvalidRequestError("The Arrow IPC stream was cut off: it has no end-of-stream marker")
        continuation, length = struct.unpack_from("<Ii", body, at)
        if continuation != _CONTINUATION or length < 0:
            raise InvalidRequestError(f"Invalid Arrow IPC stream: no message at byte {at}")
        if length == 0:
            break
        data = at + 8 + length
        yield at + 8, data
        at = data + max(0, _read_long(body, _find_field(body, _find_root(body, at + 8), _BODY_LENGTH)))
    if at + 8 != len(body):
        raise InvalidRequestError("The body goes on after the end of its Arrow IPC stream")


def _count_uncompressed(body: bytes, message: tuple[int, int]) -> int:
    """Return the uncompressed size of a message's buffers."""
    metadata, data = message
    table = _find_root(body, metadata)
    kind, header = _find_field(body, table, _HEADER_TYPE), _follow_table(body, _find_field(body, table, _HEADER))
    if not kind or not header or body[kind] not in {_DICTIONARY, _RECORDS}:
        return 0
    if body[kind] == _DICTIONARY:
        header = _follow_table(body, _find_field(body, header, _DICTIONARY_DATA))
    vector = _follow_table(body, _find_field(body, header, _BUFFERS)) if _find_field(body, header, _COMPRESSION) else 0
    if not vector:
        return 0
    (count,) = struct.unpack_from("<I", body, vector)
    ends = struct.iter_unpack("<qq", body[vector + 4 : vector + 4 + _BUFFER_SIZE * count])
    return sum(max(_read_long(body, data + offset), length) for offset, length in ends if length)


def _find_root(body: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", body, at)[0])


def _find_field(body: bytes, table: int, number: int) -> int:
    """Return the offset of a field in a flatbuffer's table; 0 if the table lacks it."""
    vtable = table - struct.unpack_from("<i", body, table)[0]
    (size,) = struct.unpack_from("<H", body, vtable)
    place = 4 + 2 * number
    offset = struct.unpack_from("<H", body, vtable + place)[0] if place + 2 <= size else 0
    return table + offset if offset else 0


def _follow_table(body: bytes, field: int) -> int:
    """Return the offset to which a field refers."""
    return _find_root(body, field) if field else 0


def _read_long(body: bytes, field: int) -> int:
    return int(struct.unpack_from("<q", body, field)[0]) if field else 0


def cast_array(array: pa.Array, column: RowColumn, on_unknown: OnUnknown) -> pa.Array:
    """Cast values to the column's Arrow type.

    Raises:
        MisfitError: the type of the array, or of one inside it, doesn't go into that of the column.
        pa.ArrowInvalid: one of its values doesn't.

    """
    array = _to_plain(array)
    target = to_arrow_type(column)
    if array.type == target:
        return array
    if is_.is_null(array.type):
        return pa.nulls(len(array), target)
    if isinstance(column.type, PrimitiveType):
        return _cast_primitive(array, column.type, target)
    if isinstance(column.type, StructType):
        return _cast_struct(array, column, target, on_unknown)
    return (
        _cast_list(array, column, on_unknown)
        if isinstance(column.type, ListType)
        else _cast_map(array, column, on_unknown)
    )


def build_missing_column(column: RowColumn, length: int) -> pa.Array:
    """Build a column that the rows lack: its default, or nulls; MisfitError: it is required."""
    value = JsonColumn(column, "reject").read(MISSING)
    one = pa.array([value], to_arrow_type(column))
    return one.take(pa.repeat(0, length))


def check_unstorable(array: pa.Array | None, column: RowColumn) -> None:
    """Raise MisfitError if rows have values for a column that can hold none."""
    if array is not None and array.null_count < len(array):
        raise MisfitError(MISSING, f"no values of type {column.declared} can be stored so: leave the column out")


def _to_plain(array: pa.Array) -> pa.Array:
    """Remove extension types and dictionaries. Texts that share bytes are counted before they are copied."""
    if isinstance(array, pa.ExtensionArray):
        return _to_plain(array.storage)
    if is_.is_dictionary(array.type):
        return _decode_dictionary(_to_plain(array.dictionary), array.indices)
    if is_.is_string_view(array.type) or is_.is_binary_view(array.type):
        views = memoryview(array.buffers()[1]).cast("i")
        check_uncompressed_size(sum(length for length in views[::4] if length > 0))
        return array.cast(pa.large_string() if is_.is_string_view(array.type) else pa.large_binary())
    return array


def _decode_dictionary(values: pa.Array, indices: pa.Array) -> pa.Array:
    if is_.is_nested(values.type):
        raise MisfitError(MISSING, f"it is a dictionary of {values.type}: send the values themselves")
    if _is_text(values.type) or _is_binary(values.type):
        check_uncompressed_size(pc.sum(pc.binary_length(values).take(indices)).as_py() or 0)
    return values.take(indices)


def _cast_primitive(array: pa.Array, kind: PrimitiveType, target: pa.DataType) -> pa.Array:
    source, family = array.type, kind.traits.family
    if not _list_tests()[family](source) or (is_.is_timestamp(source) and (source.tz is None) != (target.tz is None)):
        raise _make_misfit(source, target)
    if family == "uuid" and not is_.is_fixed_size_binary(source):
        return pa.array([None if text is None else _parse_uuid(text) for text in array.to_pylist()], target)
    if family == "decimal" and is_.is_integer(source):
        return pa.array([None if number is None else Decimal(number) for number in array.to_pylist()], target)
    result = array.cast(target)
    if is_.is_float32(target) and _count_infinite(result) > _count_infinite(array):
        raise pa.ArrowInvalid("a number is beyond what 32 bits hold")
    return result


def _count_infinite(array: pa.Array) -> int:
    return pc.sum(pc.is_inf(array)).as_py() or 0


def _parse_uuid(text: str) -> bytes:
    try:
        return UUID(text).bytes
    except ValueError as error:
        raise pa.ArrowInvalid(f"Invalid UUID {text!r}") from error


def _make_misfit(source: pa.DataType, target: pa.DataType) -> MisfitError:
    return MisfitError(MISSING, f"it is a {source}, which doesn't go into a {target} without loss: cast it first")


def _cast_struct(array: pa.Array, column: RowColumn, target: pa.DataType, on_unknown: OnUnknown) -> pa.Array:
    if not is_.is_struct(array.type):
        raise _make_misfit(array.type, target)
    parts = dict(zip(list_names(array.type), map(array.field, range(array.type.num_fields)), strict=True))
    arrays = cast_columns(parts, column.children, len(array), on_unknown)
    return pa.StructArray.from_arrays(arrays, fields=list(target), mask=array.is_null())


def list_names(fields: pa.Schema | pa.StructType) -> list[str]:
    """List the names of columns or fields; MisfitError: a name comes twice."""
    names = [field.name for field in fields]
    for name, times in Counter(names).items():
        if times > 1:
            raise MisfitError(name, "the name comes twice")
    return names


def cast_columns(
    parts: Mapping[str, pa.Array], columns: tuple[RowColumn, ...], length: int, on_unknown: OnUnknown
) -> list[pa.Array]:
    """Cast the columns that can be stored, and fill in missing ones.

    Raises MisfitError and ArrowInvalid.
    """
    check_names(parts, {column.name: column for column in columns}, on_unknown)
    arrays = []
    for column in columns:
        array = parts.get(column.name)
        if is_storable(column):
            arrays.append(
                build_missing_column(column, length) if array is None else _cast_inside(column, array, on_unknown)
            )
        else:
            check_unstorable(array, column)
    return arrays


def _cast_inside(column: RowColumn, array: pa.Array, on_unknown: OnUnknown) -> pa.Array:
    try:
        return cast_array(array, column, on_unknown)
    except MisfitError as misfit:
        raise misfit.prepend_path(f".{column.name}") from misfit


def _cast_list(array: pa.Array, column: RowColumn, on_unknown: OnUnknown) -> pa.Array:
    if is_.is_large_list(array.type) or is_.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    elif not is_.is_list(array.type):
        raise _make_misfit(array.type, to_arrow_type(column))
    (element,) = column.children
    values = cast_array(array.values, element, on_unknown)
    return pa.ListArray.from_arrays(array.offsets, values, type=to_arrow_type(column), mask=array.is_null())


def _cast_map(array: pa.Array, column: RowColumn, on_unknown: OnUnknown) -> pa.Array:
    if not is_.is_map(array.type):
        raise _make_misfit(array.type, to_arrow_type(column))
    key, value = column.children
    keys, items = cast_array(array.keys, key, on_unknown), cast_array(array.items, value, on_unknown)
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=to_arrow_type(column), mask=array.is_null())


def _is_text(kind: pa.DataType) -> bool:
    return bool(is_.is_string(kind) or is_.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind))


@cache
def _list_tests() -> Mapping[TypeFamily, Callable[[pa.DataType], Any]]:
    """Return the tests of Arrow types whose values fit into the types of a family, except for their range."""
    return {
        "boolean": is_.is_boolean,
        "integer": is_.is_integer,
        "float": lambda kind: is_.is_integer(kind) or is_.is_floating(kind),
        "decimal": lambda kind: is_.is_integer(kind) or is_.is_decimal(kind),
        "date": is_.is_date,
        "time": is_.is_time,
        "timestamp": is_.is_timestamp,
        "string": _is_text,
        "uuid": lambda kind: _is_text(kind) or (is_.is_fixed_size_binary(kind) and kind.byte_width == 16),
        "bytes": _is_binary,
    }
