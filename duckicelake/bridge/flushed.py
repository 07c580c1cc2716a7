"""PURE. How inlined rows are laid out in data files: partitions, order and the statistics' columns, in DuckDB's SQL.

Rows were inlined under the columns of a schema version of their own, but their files are partitioned and sorted as the
table is now. A column that they didn't have yet has its initial default in all of them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from duckicelake.bridge.parquet_types import duckdb_type, quoted
from duckicelake.bridge.texts import from_cast_text
from duckicelake.bridge.types import iceberg_type
from duckicelake.errors import Unsupported
from duckicelake.iceberg.buckets import bucket
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.model import Column, PartitionKey, SortKey, TableDefinition, children_of, folded

_BUCKET: Final = re.compile(r"bucket\((\d+)\)")
_PARTS: Final = frozenset({"year", "month", "day", "hour"})
_HASHED: Final = frozenset({"int", "long", "string", "date", "time", "timestamp", "timestamptz", "binary"})
_QUOTED: Final = re.compile(r'"((?:[^"]|"")+)"')
_NULLS: Final = {"NULLS_FIRST": "NULLS FIRST", "NULLS_LAST": "NULLS LAST"}


def folder_names(definition: TableDefinition) -> list[str]:
    """What DuckDB calls the folders of each partition key: the column, or the transform and, if that is taken, both."""
    names = {column.column_id: column.column_name for column in definition.columns}
    found: list[str] = []
    for key in definition.partition_keys:
        column, word = names[key.column_id], key.transform.partition("(")[0]
        name = column if word == "identity" else word
        found.append(f"{word}_{column}" if name in found else name)
    return found


def key_expression(key: PartitionKey, definition: TableDefinition, columns: Sequence[Column]) -> str:
    """A key's value over rows of these older columns; of a bucket what is put into one.

    Unsupported for a bucket of a type that DuckLake hashes in a way of its own.
    """
    expression = _source(key, definition, columns)
    if _BUCKET.fullmatch(key.transform):
        _check_hashed(key, definition)
        return f"CAST({expression} AS VARCHAR)"
    return f"{key.transform}({expression})" if key.transform in _PARTS else expression


def bucket_of(key: PartitionKey, definition: TableDefinition) -> Callable[[str], int | None] | None:
    """By which the text of a value becomes its bucket; None for a key that is no bucket."""
    match = _BUCKET.fullmatch(key.transform)
    if match is None:
        _check_known(key, definition)
        return None
    return partial(_bucket, _check_hashed(key, definition), int(match[1]))


def order_terms(definition: TableDefinition, columns: Sequence[Column]) -> list[str]:
    """The table's order over rows of these older columns, as far as it is one of plain columns."""
    ids = {folded(column.column_name): column.column_id for column in children_of(definition.columns, None)}
    older = {column.column_id: column.column_name for column in children_of(columns, None)}
    terms: list[str] = []
    for key in definition.sort_keys:
        name = _column_name(key)
        if name not in ids or key.direction not in {"ASC", "DESC"} or key.null_order not in _NULLS:
            return []
        if ids[name] in older:
            terms.append(f"{quoted(older[ids[name]])} {key.direction} {_NULLS[key.null_order]}")
    return terms


def leaf_paths(columns: Sequence[Column]) -> dict[str, int]:
    """Column ids by what DuckDB calls the leaves of a Parquet file in its statistics."""
    return dict(_leaves(columns, None, ""))


def _leaves(columns: Sequence[Column], parent: int | None, prefix: str) -> Iterator[tuple[str, int]]:
    for column in children_of(columns, parent):
        path = prefix + quoted(column.column_name)
        nested = list(_leaves(columns, column.column_id, f"{path}."))
        yield from nested or [(path, column.column_id)]


def _source(key: PartitionKey, definition: TableDefinition, columns: Sequence[Column]) -> str:
    older = next((each for each in columns if each.column_id == key.column_id), None)
    if older is not None:
        return quoted(older.column_name)
    column = _column(key, definition)
    text = column.initial_default
    value = "NULL" if text is None or text == "NULL" else "'" + text.replace("'", "''") + "'"
    return f"CAST({value} AS {duckdb_type(column, definition.columns)})"


def _column(key: PartitionKey, definition: TableDefinition) -> Column:
    return next(column for column in definition.columns if column.column_id == key.column_id)


def _check_hashed(key: PartitionKey, definition: TableDefinition) -> PrimitiveType:
    column = _column(key, definition)
    type_ = iceberg_type(column.column_type, column.column_name)
    if type_.name not in _HASHED:
        raise _unknown(key, column)
    return type_


def _check_known(key: PartitionKey, definition: TableDefinition) -> None:
    if key.transform != "identity" and key.transform not in _PARTS:
        raise _unknown(key, _column(key, definition))


def _unknown(key: PartitionKey, column: Column) -> Unsupported:
    return Unsupported(
        "flush-partitions",
        f"The table is partitioned by {key.transform} of column {column.column_name} ({column.column_type}), which "
        "only DuckDB computes: CALL ducklake_flush_inlined_data there",
    )


def _bucket(type_: PrimitiveType, width: int, text: str) -> int | None:
    value: Any = from_cast_text(type_, text)
    return None if value is None else bucket(value, width)


def _column_name(key: SortKey) -> str:
    """What an SQL expression names, folded as DuckDB compares names, if it is nothing but a column's name."""
    match = _QUOTED.fullmatch(key.expression)
    return folded(match[1].replace('""', '"') if match else key.expression)
