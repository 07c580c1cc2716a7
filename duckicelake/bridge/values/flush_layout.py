"""PURE. Partitions, order and statistics columns of flushed inlined rows, as DuckDB's SQL."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from duckicelake.bridge.values.lake_values import parse_cast_text
from duckicelake.bridge.values.types import has_same_buckets, quote_identifier, to_duckdb_type, to_iceberg_type
from duckicelake.errors import UnsupportedError
from duckicelake.iceberg.partition import Transform
from duckicelake.iceberg.transforms import compute_bucket
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.model import (
    Column,
    ColumnStats,
    PartitionKey,
    SortKey,
    TableDefinition,
    find_children,
    fold_case,
)

_BUCKET: Final = re.compile(r"bucket\((\d+)\)")
_EPOCH: Final = re.compile(r"epoch_(year|month|day|hour)")
_PARTS: Final = frozenset({"year", "month", "day", "hour"})
_QUOTED: Final = re.compile(r'"((?:[^"]|"")+)"')
_NULLS: Final = {"NULLS_FIRST": "NULLS FIRST", "NULLS_LAST": "NULLS LAST"}


def list_folder_names(definition: TableDefinition) -> list[str]:
    """Return what DuckDB calls the folders of each partition key.

    The column, or the transform and, if that is taken, both.
    """
    names = {column.column_id: column.column_name for column in definition.columns}
    found: list[str] = []
    for key in definition.partition_keys:
        column, word = names[key.column_id], key.transform.partition("(")[0]
        name = column if word == "identity" else word
        found.append(f"{word}_{column}" if name in found else name)
    return found


def build_key_expression(key: PartitionKey, definition: TableDefinition, columns: Sequence[Column]) -> str:
    """Return a key's value over rows of these older columns; of a bucket what is put into one.

    UnsupportedError for a bucket of a type that DuckLake hashes in a way of its own.
    """
    expression = _build_source(key, definition, columns)
    if _BUCKET.fullmatch(key.transform):
        _check_hashed(key, definition)
        return f"CAST({expression} AS VARCHAR)"
    epoch = _EPOCH.fullmatch(key.transform)
    if epoch is not None:
        older = next((column for column in columns if column.column_id == key.column_id), None)
        return _build_epoch(expression, epoch[1], older or _find_column(key, definition))
    return f"{key.transform}({expression})" if key.transform in _PARTS else expression


def get_bucket_function(key: PartitionKey, definition: TableDefinition) -> Callable[[str], int | None] | None:
    """Return the function from the text of a value to its bucket; None for a key that is no bucket."""
    match = _BUCKET.fullmatch(key.transform)
    if match is None:
        _check_known(key, definition)
        return None
    return partial(_compute_text_bucket, _check_hashed(key, definition), int(match[1]))


def build_order_terms(definition: TableDefinition, columns: Sequence[Column]) -> list[str]:
    """Return the table's order over rows of these older columns, as far as it is one of plain columns."""
    ids = {fold_case(column.column_name): column.column_id for column in find_children(definition.columns, None)}
    older = {column.column_id: column.column_name for column in find_children(columns, None)}
    terms: list[str] = []
    for key in definition.sort_keys:
        name = _parse_column_name(key)
        if name not in ids or key.direction not in {"ASC", "DESC"} or key.null_order not in _NULLS:
            return []
        if ids[name] in older:
            terms.append(f"{quote_identifier(older[ids[name]])} {key.direction} {_NULLS[key.null_order]}")
    return terms


def map_leaf_paths(columns: Sequence[Column]) -> dict[str, int]:
    """Return column ids by what DuckDB calls the leaves of a Parquet file in its statistics."""
    return dict(_walk_leaves(columns, None, ""))


def build_copy_stats(column_id: int, said: Mapping[str, str]) -> ColumnStats:
    """Build a column's statistics in a file from what DuckDB's COPY says of it."""
    nulls = int(said["null_count"])
    has_nan = said.get("has_nan")
    return ColumnStats(
        column_id,
        contains_null=nulls > 0,
        contains_nan=None if has_nan is None else has_nan == "true",
        min_value=said.get("min"),
        max_value=said.get("max"),
        column_size_bytes=int(said["column_size_bytes"]),
        value_count=int(said["num_values"]) - nulls,
        null_count=nulls,
    )


def _walk_leaves(columns: Sequence[Column], parent: int | None, prefix: str) -> Iterator[tuple[str, int]]:
    for column in find_children(columns, parent):
        path = prefix + quote_identifier(column.column_name)
        nested = list(_walk_leaves(columns, column.column_id, f"{path}."))
        yield from nested or [(path, column.column_id)]


def _build_epoch(expression: str, part: str, column: Column) -> str:
    """Return the SQL of a calendar offset since 1970 in UTC, rounded down; null for infinities, as in DuckDB 2.0."""
    kind = to_iceberg_type(column.column_type, column.column_name)
    if kind.name == "date":
        unit, factor = ("day", "24 * ") if part == "hour" else (part, "")
        return f"{factor}date_diff('{unit}', DATE '1970-01-01', {expression})"
    if kind.name == "timestamptz":
        expression = f"make_timestamp(epoch_us({expression}))"
    elif kind.name.endswith("_ns"):  # a cast to microseconds rounds up before 1970
        ticks = f"epoch_ns({expression})"
        micros = f"{ticks} // 1000 - CASE WHEN {ticks} % 1000 < 0 THEN 1 ELSE 0 END"
        expression = f"CASE WHEN isfinite({expression}) THEN make_timestamp({micros}) END"
    return f"date_diff('{part}', TIMESTAMP '1970-01-01', {expression})"


def _build_source(key: PartitionKey, definition: TableDefinition, columns: Sequence[Column]) -> str:
    older = next((column for column in columns if column.column_id == key.column_id), None)
    if older is not None:
        return quote_identifier(older.column_name)
    column = _find_column(key, definition)
    text = column.initial_default
    value = "NULL" if text is None or text == "NULL" else "'" + text.replace("'", "''") + "'"
    return f"CAST({value} AS {to_duckdb_type(column, definition.columns)})"


def _find_column(key: PartitionKey, definition: TableDefinition) -> Column:
    return next(column for column in definition.columns if column.column_id == key.column_id)


def _check_hashed(key: PartitionKey, definition: TableDefinition) -> PrimitiveType:
    column = _find_column(key, definition)
    type_ = to_iceberg_type(column.column_type, column.column_name)
    if not has_same_buckets(type_):
        raise _refuse_unknown(key, column)
    return type_


def _check_known(key: PartitionKey, definition: TableDefinition) -> None:
    column, epoch = _find_column(key, definition), _EPOCH.fullmatch(key.transform)
    if epoch is not None:
        kind = to_iceberg_type(column.column_type, column.column_name)
        is_known = Transform(name="day").accepts(kind)
    else:
        is_known = key.transform == "identity" or key.transform in _PARTS
    if not is_known:
        raise _refuse_unknown(key, column)


def _refuse_unknown(key: PartitionKey, column: Column) -> UnsupportedError:
    return UnsupportedError(
        "flush-partitions",
        f"The table is partitioned by {key.transform} of column {column.column_name} ({column.column_type}), which "
        "only DuckDB computes: CALL ducklake_flush_inlined_data there",
    )


def _compute_text_bucket(type_: PrimitiveType, width: int, text: str) -> int | None:
    value: Any = parse_cast_text(type_, text)
    return None if value is None else compute_bucket(value, width)


def _parse_column_name(key: SortKey) -> str:
    """Return what an SQL expression names, folded as DuckDB compares names, if it is nothing but a column's name."""
    match = _QUOTED.fullmatch(key.expression)
    return fold_case(match[1].replace('""', '"') if match else key.expression)
