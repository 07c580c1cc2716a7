"""PURE. Arrow arrays of the types that writers have, as the type that a column has, without loss."""

from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as is_

from duckicelake.iceberg.types import ListType, PrimitiveType, StructType
from duckicelake.rows.arrow_stream import check_size
from duckicelake.rows.columns import RowColumn
from duckicelake.rows.json_columns import JsonColumn, check_names
from duckicelake.rows.kinds import arrow_type, is_storable
from duckicelake.rows.problems import MISSING, MisfitError, OnUnknown


def cast(array: pa.Array, column: RowColumn, on_unknown: OnUnknown) -> pa.Array:
    """The same values with the column's Arrow type.

    Raises:
        MisfitError: the type of the array, or of one inside it, doesn't go into that of the column.
        pa.ArrowInvalid: one of its values doesn't.

    """
    array = _plain(array)
    target = arrow_type(column)
    if array.type == target:
        return array
    if is_.is_null(array.type):
        return pa.nulls(len(array), target)
    if isinstance(column.type, PrimitiveType):
        return _primitive(array, column.type, target)
    if isinstance(column.type, StructType):
        return _struct(array, column, target, on_unknown)
    return _list(array, column, on_unknown) if isinstance(column.type, ListType) else _map(array, column, on_unknown)


def missing(column: RowColumn, length: int) -> pa.Array:
    """The column where it isn't there: its default or nulls; MisfitError if it must be."""
    value = JsonColumn(column, "reject").read(MISSING)
    one = pa.array([value], arrow_type(column))
    return one.take(pa.repeat(0, length))


def check_empty(array: pa.Array | None, column: RowColumn) -> None:
    """MisfitError unless a column that nothing can be stored of isn't there, or null in every row."""
    if array is not None and array.null_count < len(array):
        raise MisfitError(MISSING, f"no values of type {column.declared} can be stored so: leave the column out")


def _plain(array: pa.Array) -> pa.Array:
    """Without extension types and dictionaries; texts that share their bytes are counted before they get their own."""
    if isinstance(array, pa.ExtensionArray):
        return _plain(array.storage)
    if is_.is_dictionary(array.type):
        return _decoded(_plain(array.dictionary), array.indices)
    if is_.is_string_view(array.type) or is_.is_binary_view(array.type):
        views = memoryview(array.buffers()[1]).cast("i")
        check_size(sum(length for length in views[::4] if length > 0))
        return array.cast(pa.large_string() if is_.is_string_view(array.type) else pa.large_binary())
    return array


def _decoded(values: pa.Array, indices: pa.Array) -> pa.Array:
    if is_.is_nested(values.type):
        raise MisfitError(MISSING, f"it is a dictionary of {values.type}: send the values themselves")
    if _is_text(values.type) or _is_binary(values.type):
        check_size(pc.sum(pc.binary_length(values).take(indices)).as_py() or 0)
    return values.take(indices)


def _primitive(array: pa.Array, kind: PrimitiveType, target: pa.DataType) -> pa.Array:
    source = array.type
    if not _GOES_INTO[kind.name](source) or (is_.is_timestamp(source) and (source.tz is None) != (target.tz is None)):
        raise _misfit(source, target)
    if kind.name == "uuid" and not is_.is_fixed_size_binary(source):
        return pa.array([None if text is None else _uuid(text) for text in array.to_pylist()], target)
    if kind.name == "decimal" and is_.is_integer(source):
        return pa.array([None if number is None else Decimal(number) for number in array.to_pylist()], target)
    result = array.cast(target)
    if kind.name == "float" and _infinite(result) > _infinite(array):
        raise pa.ArrowInvalid("a number is beyond what 32 bits hold")
    return result


def _infinite(array: pa.Array) -> int:
    return pc.sum(pc.is_inf(array)).as_py() or 0


def _uuid(text: str) -> bytes:
    try:
        return UUID(text).bytes
    except ValueError as error:
        raise pa.ArrowInvalid(f"{text!r} is no uuid") from error


def _misfit(source: pa.DataType, target: pa.DataType) -> MisfitError:
    return MisfitError(MISSING, f"it is a {source}, which doesn't go into a {target} without loss: cast it first")


def _struct(array: pa.Array, column: RowColumn, target: pa.DataType, on_unknown: OnUnknown) -> pa.Array:
    if not is_.is_struct(array.type):
        raise _misfit(array.type, target)
    parts = dict(zip(names_of(array.type), map(array.field, range(array.type.num_fields)), strict=True))
    arrays = cast_columns(parts, column.children, len(array), on_unknown)
    return pa.StructArray.from_arrays(arrays, fields=list(target), mask=array.is_null())


def names_of(fields: pa.Schema | pa.StructType) -> list[str]:
    """The names of columns or fields; MisfitError if one comes twice."""
    names = [field.name for field in fields]
    for name, times in Counter(names).items():
        if times > 1:
            raise MisfitError(name, "the name comes twice")
    return names


def cast_columns(
    parts: Mapping[str, pa.Array], columns: tuple[RowColumn, ...], length: int, on_unknown: OnUnknown
) -> list[pa.Array]:
    """The storable ones of the columns, each cast or as it is where it is missing; MisfitError and ArrowInvalid."""
    check_names(parts, {column.name: column for column in columns}, on_unknown)
    arrays = []
    for column in columns:
        array = parts.get(column.name)
        if is_storable(column):
            arrays.append(missing(column, length) if array is None else _inside(column, array, on_unknown))
        else:
            check_empty(array, column)
    return arrays


def _inside(column: RowColumn, array: pa.Array, on_unknown: OnUnknown) -> pa.Array:
    try:
        return cast(array, column, on_unknown)
    except MisfitError as misfit:
        raise misfit.within(f".{column.name}") from misfit


def _list(array: pa.Array, column: RowColumn, on_unknown: OnUnknown) -> pa.Array:
    if is_.is_large_list(array.type) or is_.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    elif not is_.is_list(array.type):
        raise _misfit(array.type, arrow_type(column))
    (element,) = column.children
    values = cast(array.values, element, on_unknown)
    return pa.ListArray.from_arrays(array.offsets, values, type=arrow_type(column), mask=array.is_null())


def _map(array: pa.Array, column: RowColumn, on_unknown: OnUnknown) -> pa.Array:
    if not is_.is_map(array.type):
        raise _misfit(array.type, arrow_type(column))
    key, value = column.children
    keys, items = cast(array.keys, key, on_unknown), cast(array.items, value, on_unknown)
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=arrow_type(column), mask=array.is_null())


def _is_text(kind: pa.DataType) -> bool:
    return bool(is_.is_string(kind) or is_.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind))


_GOES_INTO: Final[dict[str, Callable[[pa.DataType], Any]]] = {
    "boolean": is_.is_boolean,
    "int": is_.is_integer,
    "long": is_.is_integer,
    "float": lambda kind: is_.is_integer(kind) or is_.is_floating(kind),
    "double": lambda kind: is_.is_integer(kind) or is_.is_floating(kind),
    "decimal": lambda kind: is_.is_integer(kind) or is_.is_decimal(kind),
    "date": is_.is_date,
    "time": is_.is_time,
    **dict.fromkeys(("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"), is_.is_timestamp),
    "string": _is_text,
    "uuid": lambda kind: _is_text(kind) or (is_.is_fixed_size_binary(kind) and kind.byte_width == 16),
    "binary": _is_binary,
    "fixed": _is_binary,
}
"""Which Arrow types go into a type: those of which every value does, but for its range."""
