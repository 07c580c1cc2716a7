"""DuckLake's tables by name: list, drop, rename; each write is one DuckLake snapshot (`ducklake-facts.md` §2)."""

from psycopg import Cursor

from duckicelake.lake import delta_sources, native, reader
from duckicelake.lake.names import check_target_is_free, namespace_exists
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.snapshots import begin_snapshot, lock, quoted, record_changes
from duckicelake.lake.state import TableRow
from duckicelake.lake.writing import side_tables, writer
from duckicelake.lake.writing.files import StaleBase

_SQL = queries("write")


def table_names(cursor: Cursor[Row], schema_name: str, after: str, most: int | None) -> list[str] | None:
    """Names of live tables that requests can name, after a key, in code point order; None without such a namespace."""
    if not namespace_exists(cursor, schema_name):
        return None
    parameters = {"schema_name": schema_name, "after": after, "most": most}
    return [row[0] for row in cursor.execute(_SQL.table_names, parameters).fetchall()]


def drop_table(
    cursor: Cursor[Row], schema_name: str, table_name: str, *, purge: bool, expected: TableRow | None = None
) -> bool:
    """Drop the table, if there is one of the name; StaleBase if it isn't as `expected`, or another by now.

    Its side-table rows stay and hold its files; with purge they go, DuckLake's own expiry deletes the data, and the
    metadata files are scheduled for deletion. A table that says `gc.enabled=false` is never purged, but where it is the
    server's word, for files that tables share: those that no other needs go.
    """
    lock(cursor)
    table_id = reader.table_id(cursor, schema_name, table_name)
    if table_id is None:
        return False
    cursor.execute(_SQL.lock_table, {"table_id": table_id})
    purge = purge and not side_tables.is_guarded(cursor, table_id)
    purged = side_tables.purgeable(cursor, table_id) if purge else []
    snapshot = begin_snapshot(cursor, schema_change=True, file_ids=len(purged))
    if reader.table_id(cursor, schema_name, table_name) != table_id:
        raise StaleBase(f"{schema_name}.{table_name} is another table by now, or none")
    if expected is not None:
        writer.check_base(cursor, table_id, (expected.version, expected.caught_up_to), snapshot.id - 1)
    if purge:
        side_tables.take_held(cursor, table_id)
    cursor.execute(_SQL.drop_table, {"table_id": table_id, "at": snapshot.id})
    if purge:
        side_tables.purge(cursor, table_id, purged, snapshot.first_file_id)
    else:
        cursor.execute(_SQL.outlive_drop, {"table_id": table_id})
    record_changes(cursor, snapshot.id, [f"dropped_table:{table_id}"])
    return True


def rename_table(cursor: Cursor[Row], source: tuple[str, str], destination: tuple[str, str]) -> bool:
    """Rename the table, if there is one of the source's (schema name, table name).

    Raises NoSuchNamespace, AlreadyExists, InvalidRequest for the destination.
    """
    snapshot = begin_snapshot(cursor, schema_change=True)
    table_id = reader.table_id(cursor, *source)
    if table_id is None:
        return False
    delta_sources.may_write(cursor, table_id)  # a table that follows another does so under any name
    schema_id = check_target_is_free(cursor, source, destination, table_id)
    parameters = {
        "table_id": table_id,
        "at": snapshot.id,
        "schema_id": schema_id,
        "table_name": destination[1],
        "absolute_path": native.path_prefix(cursor, table_id),
        "schema_version": snapshot.schema_version,
    }
    cursor.execute(_SQL.rename_table, parameters)
    cursor.execute(_SQL.insert_schema_version, parameters)
    changes = [f"created_table:{quoted(*destination)}", f"altered_table:{table_id}"]
    record_changes(cursor, snapshot.id, changes)
    return True
