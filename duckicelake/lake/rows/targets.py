"""Reads of what a table is for rows that are to be inserted as DuckDB would (`ducklake-facts.md` §6)."""

from collections.abc import Sequence

from psycopg import Cursor

from duckicelake.errors import NoSuchTable
from duckicelake.lake import native
from duckicelake.lake.model import TableDefinition, folded
from duckicelake.lake.names import full_name
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.rows.batches import InlinedTable, InsertTarget
from duckicelake.lake.writing.definition import inlined_columns, inlined_table_name

_SQL = queries("rows")


def insert_target(cursor: Cursor[Row], schema_name: str, table_name: str) -> InsertTarget:
    """The live table of a name as it is in the caller's transaction; NoSuchTable, DamagedTable."""
    row = cursor.execute(_SQL.live_table, {"schema_name": schema_name, "table_name": table_name}).fetchone()
    if row is None:
        raise NoSuchTable(f"Table does not exist: {full_name(schema_name, table_name)}")
    table_id, schema_id = row
    lake_version, newest, options = cursor.execute(_SQL.lake_version).fetchall()[0]
    definition = native.definition(cursor, table_id, newest)
    if definition is None:
        raise NoSuchTable(f"Table does not exist: {full_name(schema_name, table_name)}")
    native.table_stats(cursor, table_id)
    return InsertTarget(definition, schema_id, lake_version, options, _inlined_table(cursor, definition))


def _inlined_table(cursor: Cursor[Row], definition: TableDefinition) -> InlinedTable | None:
    """DuckDB inlines into the newest registered table, and fails if that one lacks columns: then it isn't taken."""
    columns, table_id = inlined_columns(definition.columns), definition.table_id
    if columns is None:
        return None
    names, types = zip(*columns, strict=True)
    row = cursor.execute(_SQL.registered, {"table_id": table_id}).fetchone()
    registered = None if row is None else str(row[0])
    (version,) = cursor.execute(_SQL.newest_version, {"table_id": table_id}).fetchall()[0]
    new = inlined_table_name(table_id, version)
    if registered is not None and _fits(cursor, registered, names):
        return InlinedTable(registered, version, types, registered)
    return None if registered == new else InlinedTable(new, version, types, registered)


def _fits(cursor: Cursor[Row], name: str, columns: Sequence[str]) -> bool:
    has = [folded(row[0]) for row in cursor.execute(_SQL.columns_of, {"name": name}).fetchall()]
    return has == ["row_id", "begin_snapshot", "end_snapshot", *map(folded, columns)]
