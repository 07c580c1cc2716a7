"""PURE. Which files DuckLake finds partition values of: it takes those that a file lacks from its folders' names.

DuckDB compares and casts such a name itself, so only a name counts that it reads as the very value of the log.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

from duckicelake.bridge.texts import cast_text, from_cast_text
from duckicelake.errors import Unsupported
from duckicelake.iceberg.types import PrimitiveType

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
"""A null, as which DuckDB reads `null` too, as long as none of its letters is escaped."""


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A partition column: what its folders may be called, and its type."""

    field_id: int
    names: tuple[str, ...]
    type: PrimitiveType


def folder_keys(folder: str, columns: Sequence[PartitionColumn], values: Sequence[Any]) -> tuple[str, ...] | None:
    """What a file's folders call the partition columns; None if they don't say all the values."""
    if not columns:
        return ()
    said: dict[str, str] = {}
    for segment in folder.split("/"):
        key, equals, value = segment.partition("=")
        if equals:
            said[unquote(key)] = _NULL if value.lower() == "null" else unquote(value)
    keys = []
    for column, value in zip(columns, values, strict=True):
        named = next((name for name in column.names if name in said), None)
        if named is None or not _says(said[named], column.type, value):
            return None
        keys.append(named)
    return tuple(keys)


def linked_folder(columns: Sequence[PartitionColumn], values: Sequence[Any]) -> str:
    """Folders that say the values, as Hive has them, with a final slash; Unsupported if DuckDB has no word for one."""
    return "".join(
        f"{quote(column.names[0], safe='')}={_spelled(column, value)}/"
        for column, value in zip(columns, values, strict=True)
    )


def _says(text: str, type_: PrimitiveType, value: Any) -> bool:
    if value is None or text == _NULL:
        return value is None and text == _NULL
    if type_.name == "string":
        return bool(text == value)
    if type_.name == "binary":
        return False
    return bool(from_cast_text(type_, text) == value)


def _spelled(column: PartitionColumn, value: Any) -> str:
    if value is None:
        return _NULL
    text = cast_text(column.type, value)
    if text is None or text in {"", _NULL}:
        raise Unsupported(
            "partition-columns",
            f"DuckLake can't be told that {column.names[0]} is {value!r} in a partition: rewrite its rows with another",
        )
    if text.lower() == "null":
        return f"%{ord(text[0]):02X}{text[1:]}"
    return quote(text, safe="")
