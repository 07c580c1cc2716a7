"""List, drop and rename tables by name, each write one DuckLake snapshot; guard tables that follow a Delta table."""

from psycopg import Cursor

from duckicelake.errors import ReadOnlyTableError
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake import dropped, native
from duckicelake.lake.ducklake.schemas import check_target_free, has_namespace
from duckicelake.lake.ducklake.snapshots import begin_snapshot, lock_writers, quote_name, record_changes
from duckicelake.lake.side_tables import reader
from duckicelake.lake.side_tables import writer as side_tables
from duckicelake.lake.state import TableRow
from duckicelake.lake.writer import change_sets
from duckicelake.postgres.queries import Row, Transaction, load_queries

_SQL = load_queries("lake", "write")
_FOLLOWED_SQL = load_queries("lake", "followed")


def read_table_names(cursor: Cursor[Row], schema_name: str, after: str, most: int | None) -> list[str] | None:
    """Read names of live tables after a key, in code point order; None if there is no such namespace."""
    if not has_namespace(cursor, schema_name):
        return None
    parameters = {"schema_name": schema_name, "after": after, "most": most}
    return [row[0] for row in cursor.execute(_SQL.table_names, parameters).fetchall()]


def drop_table(
    cursor: Cursor[Row],
    schema_name: str,
    table_name: str,
    *,
    purge: bool,
    is_final: bool = False,
    expected: TableRow | None = None,
) -> bool:
    """Drop the table, if there is one of the name; StaleBaseError if it isn't as `expected`, or another by now.

    Its side-table rows stay and hold its files. With purge they go: DuckLake's own expiry deletes the data, and the
    metadata files are scheduled for deletion; at once, or when the lake's time for bringing it back is over. A table
    that says `gc.enabled=false` is never purged, but where it is the server's word, for files that tables share: those
    that no other needs go.

    is_final: nothing may bring it back, as another catalog has it, or another table its files.
    """
    lock_writers(cursor)
    table_id = reader.find_table_id(cursor, schema_name, table_name)
    if table_id is None:
        return False
    cursor.execute(_SQL.lock_table, {"table_id": table_id})
    is_kept = not is_final and dropped.read_retention(cursor) > 0
    purge = purge and not side_tables.is_guarded(cursor, table_id)
    purged = side_tables.read_purgeable(cursor, table_id) if purge and not is_kept else []
    snapshot = begin_snapshot(cursor, schema_change=True, file_ids=len(purged))
    if reader.find_table_id(cursor, schema_name, table_name) != table_id:
        raise StaleBaseError(f"{schema_name}.{table_name} is another table by now, or none")
    if expected is not None:
        change_sets.check_base(cursor, table_id, (expected.version, expected.caught_up_to), snapshot.id - 1)
    if purge and not is_kept:
        side_tables.take_over_held(cursor, table_id)
    cursor.execute(_SQL.drop_table, {"table_id": table_id, "at": snapshot.id})
    record_changes(cursor, snapshot.id, [f"dropped_table:{table_id}"])  # refused for a protected one, by its side row
    if purge and not is_kept:
        side_tables.purge_table(cursor, table_id, purged, snapshot.first_file_id)
    else:
        cursor.execute(_SQL.outlive_drop, {"table_id": table_id})
    if is_kept:
        dropped.request_purge(cursor, table_id, purge=purge)
    else:
        dropped.drop_options(cursor, table_id)
        dropped.forget_dropped(cursor, "table", table_id)
    return True


def purge_dropped(cursor: Cursor[Row], table_id: int) -> None:
    """Do what a purge does, of a table that was dropped; its files go with DuckDB's next expiry and cleanup."""
    lock_writers(cursor)
    paths = side_tables.read_purgeable(cursor, table_id)
    snapshot = begin_snapshot(cursor, schema_change=False, file_ids=max(1, len(paths)))
    side_tables.take_over_held(cursor, table_id)
    side_tables.purge_table(cursor, table_id, paths, snapshot.first_file_id)
    record_changes(cursor, snapshot.id, [])


def rename_table(cursor: Cursor[Row], source: tuple[str, str], destination: tuple[str, str]) -> bool:
    """Rename the table, if there is one of the source's (schema name, table name).

    Raises NoSuchNamespaceError, AlreadyExistsError, InvalidRequestError for the destination.
    """
    snapshot = begin_snapshot(cursor, schema_change=True)
    table_id = reader.find_table_id(cursor, *source)
    if table_id is None:
        return False
    allow_write(cursor, table_id)  # a table that follows another does so under any name
    place = check_target_free(cursor, source, destination, table_id)
    parameters = {
        "table_id": table_id,
        "at": snapshot.id,
        "schema_id": place.schema_id,
        "table_name": destination[1],
        "absolute_path": native.read_path_prefix(cursor, table_id),
        "schema_version": snapshot.schema_version,
    }
    cursor.execute(_SQL.rename_table, parameters)
    cursor.execute(_SQL.insert_schema_version, parameters)
    changes = [f"created_table:{quote_name(place.recorded_name, destination[1])}", f"altered_table:{table_id}"]
    record_changes(cursor, snapshot.id, changes)
    return True


def allow_write(cursor: Transaction, table_id: int) -> None:
    """Allow the rest of the transaction to write this table though it is followed."""
    cursor.execute(_FOLLOWED_SQL.allow_write, {"table_id": table_id})


def check_writable(cursor: Transaction, table_id: int) -> None:
    """Raise ReadOnlyTableError for a followed table, before work that the commit would refuse."""
    row = cursor.execute(_FOLLOWED_SQL.refusal, {"table_id": table_id}).fetchone()
    if row is not None and row[0] is not None:
        raise ReadOnlyTableError(row[0])
