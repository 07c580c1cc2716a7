"""PURE. The number of values that a batch may have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, zip_longest
from typing import TYPE_CHECKING, Any, Final

from duckicelake.errors import InvalidRequestError
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.types import ListType, MapType, StructType
from duckicelake.rows.columns import RowColumn

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import types as is_
else:
    pa = DeferredModule("pyarrow")
    is_ = DeferredModule("pyarrow.types")


MAX_NESTED_VALUES: Final = 1 << 23
"""Values inside the lists and maps of a batch, and those of a JSON body: each may take a hundred bytes of memory."""
MAX_OBJECTS: Final = 1 << 21
"""Objects and arrays of a JSON body."""


def check_text_size(body: bytes) -> None:
    """Raise InvalidRequestError if a JSON body has too many values. The body isn't parsed."""
    if len(body) <= MAX_OBJECTS:
        return
    objects = body.count(b"{") + body.count(b"[")
    values = objects + body.count(b",")
    for found, most, what in (
        (objects, MAX_OBJECTS, "opening brackets"),
        (values, MAX_NESTED_VALUES, "brackets and commas"),
    ):
        if found > most:
            raise InvalidRequestError(
                f"A batch takes up to {most} {what} of JSON, those in texts included, not {found}: send several"
            )


def check_nested_count(counts: Iterable[int]) -> None:
    """Raise InvalidRequestError once lists and maps have more values than a batch may have. Counting stops there."""
    for total in accumulate(counts):
        if total > MAX_NESTED_VALUES:
            raise InvalidRequestError(
                f"A batch takes up to {MAX_NESTED_VALUES} values inside lists and maps, not {total} or more: "
                "send several"
            )


def count_column_values(column: RowColumn) -> int:
    """Count the values that one value of the column has, null or not.

    Fields of structs count; elements of lists and maps don't.
    """
    return 1 + (sum(map(count_column_values, column.children)) if isinstance(column.type, StructType) else 0)


def can_widen(column: RowColumn) -> bool:
    """Return whether its lists or maps may get more values than the JSON has."""
    if not isinstance(column.type, StructType) and any(count_column_values(child) > 1 for child in column.children):
        return True
    return any(map(can_widen, column.children))


def count_nested_json(value: Any, column: RowColumn) -> Iterator[int]:
    """Count the values of each list and map in a JSON value, missing fields included, outer ones first."""
    if isinstance(column.type, StructType):
        parts = value if type(value) is dict else {}
        for child in column.children:
            yield from count_nested_json(parts.get(child.name), child)
        return
    for child, values in zip(column.children, _split_json(value, column), strict=True):
        yield len(values) * count_column_values(child)
        if _has_nested(child):
            for item in values:
                yield from count_nested_json(item, child)


def _has_nested(column: RowColumn) -> bool:
    """Return whether the column's values may contain lists or maps."""
    return column.children != () and (
        not isinstance(column.type, StructType) or any(child.children for child in column.children)
    )


def _split_json(value: Any, column: RowColumn) -> list[list[Any]]:
    """Return the JSON values for each child of a list or map."""
    if isinstance(column.type, ListType):
        return [value if type(value) is list else []]
    if not isinstance(column.type, MapType) or type(value) is not dict:
        return [[] for _ in column.children]
    keys, items = value.get("keys"), value.get("values")
    if type(keys) is list and type(items) is list:
        return [keys, items]
    return [list(value), list(value.values())]


def count_nested_array(array: pa.Array, column: RowColumn | None) -> Iterator[int]:
    """Count as `count_nested_json` does, for an array. column: None if the array is ignored."""
    children = () if column is None else column.children
    if isinstance(array, pa.ExtensionArray):
        yield from count_nested_array(array.storage, column)
    elif is_.is_struct(array.type):
        named = {child.name: child for child in children}
        for index, part in enumerate(array.type):
            yield from count_nested_array(array.field(index), named.get(part.name))
    else:
        for part, child in zip_longest(_split_array(array), children):
            if part is not None:
                yield len(part) * (1 if child is None else count_column_values(child))
                yield from count_nested_array(part, child)


def _split_array(array: pa.Array) -> list[pa.Array]:
    """Return the child arrays of a list or map."""
    kind = array.type
    if is_.is_map(kind):
        return [array.keys, array.items]
    is_list = is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind)
    return [array.values] if is_list else []
