"""Find a DuckDB view's columns by binding its SQL to empty tables in memory."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import duckdb
from duckdb.sqltypes import DuckDBPyType
from psycopg import Cursor
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from duckicelake.lake.ducklake import native
from duckicelake.lake.ducklake.snapshots import quote_name
from duckicelake.lake.ducklake.views import find_view
from duckicelake.lake.model import Column, LakeView, ViewColumns, ViewDefinition, find_children
from duckicelake.lake.types import LAKE_TYPES, select_types
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "views")
_DUCKDB_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "lock_configuration": True,
    "memory_limit": "256MB",
    "threads": 1,
}
_MAX_VIEW_DEPTH = 16  # views of views
_PARSE_ERRORS = (SqlglotError, RecursionError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Errors that sqlglot raises for unusual texts."""
_FULL_NAME_PARTS = 3  # catalog, schema, table
_NAME_PATTERN = re.compile(r'"((?:[^"]|"")*)"|([^".\s]+)')

_VIEW_TYPES = {row.duckdb.lower(): row.view for row in LAKE_TYPES.values()}
"""DuckLake's types of a view's columns by DuckDB's names; a type that isn't there becomes varchar."""
_TYPES_OTHER_IN_SPARK = select_types(lambda row: row.is_other_in_spark)


class _UnboundViewError(Exception):
    """DuckDB can't bind the view to tables in memory."""


def find_view_columns(cursor: Cursor[Row], view: LakeView) -> ViewColumns:
    """Find DuckDB's types of the view's columns, and the columns that the view reads, as far as they are known."""
    unlike: set[str] = set()
    try:
        outputs, columns = _bind_view(cursor, view, _MAX_VIEW_DEPTH, unlike)
        return ViewColumns(columns, unlike, outputs)
    except (duckdb.Error, _UnboundViewError):
        return ViewColumns(None, unlike)


def _bind_view(
    cursor: Cursor[Row], view: LakeView, depth: int, unlike: set[str]
) -> tuple[tuple[str, ...], tuple[Column, ...]]:
    """Bind the view. Returns the names that the query gives its columns, and the view's columns with their comments."""
    sql, aliases = view.definition.query, view.definition.column_aliases
    schema, name = quote_name(view.schema_name), quote_name(view.view_name)
    with duckdb.connect(config=_DUCKDB_SETTINGS) as memory:
        if [statement.type for statement in memory.extract_statements(sql)] != [
            duckdb.StatementType.SELECT
        ] or not depth:
            raise _UnboundViewError
        memory.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}; USE {schema}")
        for name_read in _find_names_read(memory, sql):
            _copy_empty(cursor, memory, view, name_read, depth, unlike)
        memory.execute(f"CREATE VIEW {name} {f'({aliases})' if aliases else ''} AS {sql}")
        bound = memory.sql(f"FROM {name}")
        outputs = tuple(memory.sql(sql).columns) if aliases else tuple(bound.columns)
        columns = tuple(build_columns(list(zip(bound.columns, bound.types, strict=True)), count(1), None))
        return outputs, _comment_columns(columns, outputs, view.definition)


def _comment_columns(
    columns: tuple[Column, ...], outputs: Sequence[str], definition: ViewDefinition
) -> tuple[Column, ...]:
    """Add the view's comments to its top-level columns; without any, these stay as they are."""
    if not definition.column_comments:
        return columns
    comments = dict(definition.column_comments)
    names = dict(zip((column.column_id for column in find_children(columns, None)), outputs, strict=False))
    return tuple(replace(column, comment=comments.get(names.get(column.column_id, ""))) for column in columns)


def _find_names_read(memory: duckdb.DuckDBPyConnection, sql: str) -> list[list[str]]:
    """Find the names of what a query reads; by sqlglot if a right or full join has USING."""
    try:
        return [_split_reference(name) for name in sorted(memory.get_table_names(sql, qualified=True))]
    except duckdb.BinderException:
        try:
            tables = parse_one(sql, read="duckdb").find_all(exp.Table)
            return [[part.name for part in table.parts] for table in tables]
        except _PARSE_ERRORS as error:
            raise _UnboundViewError from error


def _split_reference(reference: str) -> list[str]:
    """Split `catalog."a schema".table AS alias` into its names."""
    parts: list[str] = []
    while found := _NAME_PATTERN.match(reference):
        parts.append(found[2] or found[1].replace('""', '"'))
        reference = reference[found.end() :].removeprefix(".")
    return parts


def _copy_empty(
    cursor: Cursor[Row],
    memory: duckdb.DuckDBPyConnection,
    view: LakeView,
    name: Sequence[str],
    depth: int,
    unlike: set[str],
) -> None:
    """Make an empty table in memory for a name in the view. Skip names that aren't in the lake: DuckDB reports them.

    Without a schema, the view's own comes before `main`. A name of three parts is in another database.
    """
    *schema, table = name
    for schema_name in schema or [view.schema_name, "main"]:
        columns = _find_columns(cursor, schema_name, table, depth, unlike) if len(name) < _FULL_NAME_PARTS else None
        if columns is not None:
            unlike |= {column.column_name.lower() for column in columns if column.column_type in _TYPES_OTHER_IN_SPARK}
            definitions = ", ".join(_format_column(column, columns) for column in find_children(columns, None))
            memory.execute(f"CREATE SCHEMA IF NOT EXISTS {quote_name(schema_name)}")
            memory.execute(f"CREATE TABLE IF NOT EXISTS {quote_name(schema_name, table)} ({definitions})")
            return


def _find_columns(
    cursor: Cursor[Row], schema_name: str, name: str, depth: int, unlike: set[str]
) -> tuple[Column, ...] | None:
    """Find the columns of the lake's table or view that DuckDB means by a name."""
    row = cursor.execute(_SQL.relation, {"schema_name": schema_name, "name": name}).fetchone()
    if row is None:
        return None
    if row[2] is not None:
        definition = native.read_definition(cursor, row[2], native.read_newest_snapshot(cursor))
        return None if definition is None else definition.columns
    view = find_view(cursor, row[0], row[1])
    return None if view is None else _bind_view(cursor, view, depth - 1, unlike)[1]


def _format_column(column: Column, columns: Sequence[Column]) -> str:
    return f"{quote_name(column.column_name)} {_format_duckdb_type(column, columns)}"


def _format_duckdb_type(column: Column, columns: Sequence[Column]) -> str:
    parts = find_children(columns, column.column_id)
    match column.column_type:
        case "struct":
            return f"STRUCT({', '.join(_format_column(part, columns) for part in parts)})"
        case "list":
            return f"{_format_duckdb_type(parts[0], columns)}[]"
        case "map":
            return f"MAP({_format_duckdb_type(parts[0], columns)}, {_format_duckdb_type(parts[1], columns)})"
        case text:
            return LAKE_TYPES[text].duckdb if text in LAKE_TYPES else text


def build_columns(
    fields: Sequence[tuple[str, DuckDBPyType]], ids: Iterator[int], parent: int | None
) -> Iterator[Column]:
    """Yield DuckLake's columns of the fields of a query's result, each before those in it."""
    for name, kind in fields:
        if not name:
            raise _UnboundViewError
        column_id, (text, parts) = next(ids), _map_lake_type(kind)
        yield Column(column_id, parent, name, text, nulls_allowed=True)
        yield from build_columns(parts, ids, column_id)


def _map_lake_type(kind: DuckDBPyType) -> tuple[str, Sequence[tuple[str, DuckDBPyType]]]:
    """Return DuckLake's type, and the fields inside it."""
    match kind.id:
        case "struct" | "map":
            return kind.id, _get_child_types(kind)
        case "list" | "array":
            return "list", [("element", part) for _, part in _get_child_types(kind)]
        case "decimal":
            (_, precision), (_, scale) = kind.children
            return f"decimal({precision},{scale})", []
        case text:
            return _VIEW_TYPES.get(text, "varchar"), []


def _get_child_types(kind: DuckDBPyType) -> list[tuple[str, DuckDBPyType]]:
    """Return the types inside a nested type. The size of an array is no type."""
    return [(name, part) for name, part in kind.children if isinstance(part, DuckDBPyType)]
