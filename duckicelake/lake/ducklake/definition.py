"""Write a table's name, columns, comments, partition keys and sort keys (`ducklake-facts.md` §2)."""

import re
from collections.abc import Mapping, Sequence

from psycopg import Cursor, sql

from duckicelake.lake.changes import Creation, DefinitionChange
from duckicelake.lake.ducklake.roles import act_as_owner
from duckicelake.lake.ducklake.snapshots import SnapshotAllocation, read_lake_format
from duckicelake.lake.formats import LakeFormat
from duckicelake.lake.model import MAX_INLINED_COLUMNS, Column, find_children
from duckicelake.lake.types import LAKE_TYPES, select_types
from duckicelake.postgres.pipeline import execute_no_result, json_param, split_batches
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "write")
_PLAIN_NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]+")
_NEVER_INLINED_TYPES = select_types(lambda row: row.is_opaque)
_MAX_NAME_BYTES = 63  # bytes; Postgres cuts longer names


def create_table(cursor: Cursor[Row], creation: Creation, table_id: int, schema_id: int, at: int) -> None:
    """Insert a table's row. Its columns and keys are written as a change of its definition."""
    parameters = {
        "table_id": table_id,
        "table_uuid": creation.table_uuid,
        "at": at,
        "schema_id": schema_id,
        "table_name": creation.table_name,
        "path": build_folder_name(creation),
    }
    cursor.execute(_SQL.create_table, parameters)


def build_folder_name(creation: Creation) -> str:
    """Build the name of the new table's folder inside its schema's, with its final slash."""
    name = creation.table_name
    return f"{name if _PLAIN_NAME_PATTERN.fullmatch(name) else creation.table_uuid}/"


def write_options(cursor: Cursor[Row], table_id: int, options: Mapping[str, str | None]) -> None:
    """Set the table's options that have a value, and remove the others."""
    execute_no_result(cursor, _SQL.set_options, {"table_id": table_id, "options": options})


def write_definition(
    cursor: Cursor[Row], table_id: int, change: DefinitionChange, snapshot: SnapshotAllocation, first_id: int
) -> None:
    """Write the change at the snapshot; `first_id` is the first of its `catalog_ids`."""
    ids = iter(range(first_id, first_id + change.catalog_ids))
    _write_columns(cursor, table_id, change, snapshot.id)
    _write_comments(cursor, table_id, change, snapshot.id)
    if change.partition_keys is not None:
        _write_partitioning(cursor, table_id, change, snapshot.id, next(ids))
    if change.sort_keys is not None:
        _write_sorting(cursor, table_id, change, snapshot.id, next(ids) if change.sort_keys else 0)
    if is_new_schema_version(change):
        insert_schema_version(cursor, table_id, snapshot)
        make_inlined_table(cursor, table_id, change.columns_after, snapshot.schema_version)


def is_new_schema_version(change: DefinitionChange) -> bool:
    """Return whether the change begins another schema version for the table's files and inlined rows."""
    return bool(change.ended_columns or change.new_columns) or change.partition_keys is not None


def insert_schema_version(cursor: Cursor[Row], table_id: int, snapshot: SnapshotAllocation) -> None:
    """Begin a schema version of the table: DuckDB doesn't merge files of different versions."""
    parameters = {"at": snapshot.id, "schema_version": snapshot.schema_version, "table_id": table_id}
    cursor.execute(_SQL.insert_schema_version, parameters)


def _write_columns(cursor: Cursor[Row], table_id: int, change: DefinitionChange, at: int) -> None:
    if change.ended_columns:
        parameters = {"table_id": table_id, "at": at, "column_ids": list(change.ended_columns)}
        cursor.execute(_SQL.end_columns, parameters)
    rows = [_build_column(column, None) for column in change.new_columns]
    rows += [_build_column(column, at) for column in change.hidden_columns]
    for columns in split_batches(rows):
        cursor.execute(_SQL.insert_columns, {"table_id": table_id, "at": at, "columns": json_param(columns)})


def _build_column(column: Column, until: int | None) -> dict[str, object]:
    return {
        "column_id": column.column_id,
        "until": until,
        "column_name": column.column_name,
        "column_type": column.column_type,
        "initial_default": column.initial_default,
        "default_value": column.default_value,
        "nulls_allowed": column.nulls_allowed,
        "parent_column": column.parent_column,
        "default_value_type": column.default_value_type,
    }


def _write_comments(cursor: Cursor[Row], table_id: int, change: DefinitionChange, at: int) -> None:
    for column_id, comment in change.comments.items():
        parameters = {"table_id": table_id, "column_id": column_id, "at": at, "value": comment}
        cursor.execute(_SQL.end_column_comment, parameters)
        if comment is not None:
            cursor.execute(_SQL.insert_column_comment, parameters)
    if change.table_comment is not None:
        (comment,) = change.table_comment
        cursor.execute(_SQL.end_table_comment, {"table_id": table_id, "at": at})
        if comment is not None:
            cursor.execute(_SQL.insert_table_comment, {"table_id": table_id, "at": at, "value": comment})


def _write_partitioning(
    cursor: Cursor[Row], table_id: int, change: DefinitionChange, at: int, partition_id: int
) -> None:
    keys = change.partition_keys or ()
    parameters = {"table_id": table_id, "at": at, "partition_id": partition_id}
    cursor.execute(_SQL.end_partitioning, parameters)
    cursor.execute(_SQL.insert_partitioning, parameters)
    if keys:
        rows = [
            {**parameters, "key_index": index, "column_id": key.column_id, "transform": key.transform}
            for index, key in enumerate(keys)
        ]
        cursor.executemany(_SQL.insert_partition_key, rows)


def _write_sorting(cursor: Cursor[Row], table_id: int, change: DefinitionChange, at: int, sort_id: int) -> None:
    parameters = {"table_id": table_id, "at": at, "sort_id": sort_id}
    cursor.execute(_SQL.end_sorting, parameters)
    if change.sort_keys:
        cursor.execute(_SQL.insert_sorting, parameters)
        rows = [
            {
                **parameters,
                "key_index": index,
                "expression": key.expression,
                "direction": key.direction,
                "null_order": key.null_order,
            }
            for index, key in enumerate(change.sort_keys)
        ]
        cursor.executemany(_SQL.insert_sort_key, rows)


def build_inlined_columns(columns: Sequence[Column], lake: LakeFormat) -> tuple[tuple[str, str], ...] | None:
    """Build name and Postgres type of each column of inlined rows; None if DuckDB inlines none in such a lake."""
    top = sorted(
        find_children(columns, None), key=lambda column: column.column_id
    )  # DuckDB's order; rows go by position
    is_never = _NEVER_INLINED_TYPES & {column.column_type for column in columns}
    if len(top) > MAX_INLINED_COLUMNS or not all(_can_inline(column, lake) for column in top) or is_never:
        return None
    return tuple((column.column_name, _map_inlined_type(column.column_type)) for column in top)


def make_inlined_table(cursor: Cursor[Row], table_id: int, columns: Sequence[Column], version: int) -> None:
    """Make the table of inlined rows of a schema version that has new columns or keys.

    DuckDB would make it at its first inlined insert, for a version without a name. Once the columns change, DuckDB
    would read its rows with the columns from before that version.
    """
    lake = read_lake_format(cursor)
    own = build_inlined_columns(columns, lake)
    if own is not None:
        name = build_inlined_table_name(table_id, version)
        with act_as_owner(cursor):
            cursor.execute(_create_inlined_table(name, own, lake))
        parameters = {"table_id": table_id, "table_name": name, "schema_version": version}
        cursor.execute(_SQL.register_inlined_table, parameters)


def build_inlined_table_name(table_id: int, version: int) -> str:
    """Build DuckDB's name for the table of inlined rows of a schema version."""
    return f"ducklake_inlined_data_{table_id}_{version}"


def _can_inline(column: Column, lake: LakeFormat) -> bool:
    """Return whether DuckDB can inline the column: Postgres must be able to hold its name unchanged."""
    return column.column_name.lower() not in lake.reserved_names and len(column.column_name.encode()) <= _MAX_NAME_BYTES


def _create_inlined_table(name: str, columns: Sequence[tuple[str, str]], lake: LakeFormat) -> sql.Composed:
    """Build the CREATE TABLE of inlined rows with these columns."""
    own = [sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(type_)) for column, type_ in columns]
    keys = [sql.SQL("{} bigint").format(sql.Identifier(key)) for key in lake.system_columns]
    return sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(name), sql.SQL(", ").join([*keys, *own]))


def _map_inlined_type(column_type: str) -> str:
    if column_type.startswith("decimal("):
        return column_type.replace("decimal", "numeric")  # without its precision, DuckDB would read it as a double
    return LAKE_TYPES[column_type].inlined if column_type in LAKE_TYPES else "varchar"
