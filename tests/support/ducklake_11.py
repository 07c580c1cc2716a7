"""DuckLake 1.1 and DuckDB 2.0's rows by `ducklake-1.1-facts.md`, as SQL: no registry has the extension yet.

Functions that write rows take a connection and leave COMMIT to the caller.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import UTC, datetime
from itertools import accumulate, chain
from typing import Self

import duckdb
import orjson
import psycopg
from psycopg import sql

from duckicelake.iceberg.puffin import write_vector
from duckicelake.lake.formats import FORMAT_1_1, SYSTEM_COLUMN_SPELLINGS

GUARDS = ("duckicelake_keep_version", "duckicelake_keep_versions")
OLD_NAMES, NEW_NAMES = SYSTEM_COLUMN_SPELLINGS
_PUFFIN_MAGIC = b"PFA1"
_EPOCH_HOURS = {"epoch_hour": 1, "epoch_day": 24}


# The format and its migration (§2)


def format_change(version: str) -> str:
    """Change the version as an operator who has taken the guard off."""
    off, on = (
        "".join(f"ALTER TABLE ducklake_metadata {act} TRIGGER {guard};" for guard in GUARDS)
        for act in ("DISABLE", "ENABLE")
    )
    return f"{off} UPDATE ducklake_metadata SET value = '{version}' WHERE key = 'version' AND scope IS NULL; {on}"


def migration_statements(
    connection: psycopg.Connection, *, is_guarded: bool = True, version: str = "1.1"
) -> Sequence[str]:
    """The statements of DuckDB 2.0's migration from 1.0 to 1.1, which it sends as one REPEATABLE READ transaction."""
    columns = ", ".join(f"{name} {kind}" for name, kind in FORMAT_1_1.extra_tables["ducklake_view_column_tag"])
    plain = f"UPDATE ducklake_metadata SET value = '{version}' WHERE key = 'version'"
    return [
        *chain.from_iterable(_rename(connection, name, NEW_NAMES) for name in registered_tables(connection)),
        *(
            f"ALTER TABLE {table} ADD COLUMN {column} bigint"
            for table, names in FORMAT_1_1.extra_columns.items()
            for column in names
        ),
        f"CREATE TABLE ducklake_view_column_tag ({columns})",
        plain if is_guarded else format_change(version),
    ]


def migrate(url: str, *, is_guarded: bool = True, version: str = "1.1") -> None:
    """Run that transaction; psycopg.Error, with nothing changed, if a statement is refused."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for statement in migration_statements(connection, is_guarded=is_guarded, version=version):
            connection.execute(statement)


def migrate_by_sql(connection: psycopg.Connection, version: str = "1.1") -> None:
    """Migrate in the connection's transaction, as if the guard were open."""
    for statement in migration_statements(connection, is_guarded=False, version=version):
        connection.execute(statement)


def undo_migration(connection: psycopg.Connection) -> None:
    """Make the lake 1.0 again: DuckLake can't, but so DuckDB 1.5 can write rows as DuckDB 2.0 would."""
    for name in registered_tables(connection):
        for statement in _rename(connection, name, OLD_NAMES):
            connection.execute(statement)
    for table, names in FORMAT_1_1.extra_columns.items():
        for column in names:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.execute("DROP TABLE ducklake_view_column_tag")
    connection.execute(format_change("1.0"))


@contextmanager
def as_1_0(url: str) -> Iterator[None]:
    """The 1.1 lake as a 1.0 one for DuckDB 1.5, whose rows are those of DuckDB 2.0 but for `row_group_count`.

    Columns that 1.1 has besides lose their values; tags of columns of views stay.
    """
    with psycopg.connect(url) as connection:
        tags = connection.execute("SELECT * FROM ducklake_view_column_tag").fetchall()
        undo_migration(connection)
    try:
        yield
    finally:
        with psycopg.connect(url) as connection:
            migrate_by_sql(connection)
            connection.cursor().executemany(
                "INSERT INTO ducklake_view_column_tag VALUES (%s, %s, %s, %s, %s, %s)", tags
            )


def registered_tables(connection: psycopg.Connection) -> list[str]:
    """The tables of inlined rows."""
    return [name for (name,) in connection.execute("SELECT table_name FROM ducklake_inlined_data_tables").fetchall()]


def _rename(connection: psycopg.Connection, table: str, names: Sequence[str]) -> Iterator[str]:
    """Statements that rename its first three columns, but those that are called so."""
    found = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = quote_ident(%s)::regclass AND attnum BETWEEN 1 AND 3 "
        "ORDER BY attnum",
        [table],
    ).fetchall()
    for (old,), new in zip(found, names, strict=True):
        if old != new:
            yield (
                sql.SQL("ALTER TABLE {} RENAME COLUMN {} TO {}")
                .format(*map(sql.Identifier, (table, old, new)))
                .as_string()
            )


def respell(connection: psycopg.Connection, table: str, names: Sequence[str]) -> None:
    """Rename the first three columns of one table of inlined rows, so that a catalog has both spellings (§2.4)."""
    for statement in _rename(connection, table, names):
        connection.execute(statement)


def add_exactness_columns(connection: psycopg.Connection) -> None:
    """Add what the release is said to have; as boolean and last, which is a guess (§2.1)."""
    for table in ("ducklake_file_column_stats", "ducklake_table_column_stats"):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN min_is_exact boolean, ADD COLUMN max_is_exact boolean")


def add_nested_schemas(connection: psycopg.Connection) -> None:
    """Add what the release has for nested schemas; as bigint and last, which is a guess (§2.1)."""
    connection.execute("ALTER TABLE ducklake_schema ADD COLUMN parent_schema_id bigint")


def nest(connection: psycopg.Connection, schema: str, parent: str | None, name: str | None = None) -> int:
    """Make a top-level schema, as DuckDB 1.5 creates it, one within another (§7); return its id.

    schema, parent: full names. parent: None puts it at the top. name: its last level, if that is another.
    """
    find = "SELECT schema_id FROM duckicelake_schemas() WHERE schema_name = %s AND end_snapshot IS NULL"
    ((schema_id,),) = connection.execute(find, [schema]).fetchall()
    within = None if parent is None else connection.execute(find, [parent]).fetchall()[0][0]
    connection.execute(
        "UPDATE ducklake_schema SET schema_name = coalesce(%s, schema_name), parent_schema_id = %s "
        "WHERE schema_id = %s",
        [name, within, schema_id],
    )
    return int(schema_id)


# Rows that DuckDB 2.0 writes (§3)


def add_snapshot(
    connection: psycopg.Connection,
    changes: str,
    *,
    schema_change: bool = False,
    catalog_ids: int = 0,
    file_ids: int = 1,
) -> int:
    """Write the next snapshot with what it changed; return its id."""
    ((at,),) = connection.execute(
        "INSERT INTO ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id) "
        "SELECT snapshot_id + 1, greatest(clock_timestamp(), snapshot_time), schema_version + %s, "
        "next_catalog_id + %s, next_file_id + %s FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1 "
        "RETURNING snapshot_id",
        [int(schema_change), catalog_ids, file_ids],
    ).fetchall()
    connection.execute(
        "INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made) VALUES (%s, %s)", [at, changes]
    )
    return int(at)


def delete_whole_file(connection: psycopg.Connection, table_id: int, data_file_id: int) -> int:
    """DELETE of the rest of a file: it ends, and so do the table-wide statistics of all columns.

    If the table has no rows left, the statistics stay with everything NULL.
    """
    at = add_snapshot(connection, f"deleted_from_table:{table_id}")
    ((records, size),) = connection.execute(
        "UPDATE ducklake_data_file SET end_snapshot = %s WHERE data_file_id = %s "
        "RETURNING record_count, file_size_bytes",
        [at, data_file_id],
    ).fetchall()
    ((left,),) = connection.execute(
        "UPDATE ducklake_table_stats SET record_count = record_count - %s, "
        "file_size_bytes = CASE WHEN record_count = %s THEN 0 ELSE file_size_bytes - %s END "
        "WHERE table_id = %s RETURNING record_count",
        [records, records, size, table_id],
    ).fetchall()
    connection.execute(
        "DELETE FROM ducklake_table_column_stats WHERE table_id = %s"
        if left
        else "UPDATE ducklake_table_column_stats SET contains_null = NULL, contains_nan = NULL, min_value = NULL, "
        "max_value = NULL WHERE table_id = %s",
        [table_id],
    )
    return at


def comment_view_column(connection: psycopg.Connection, view_id: int, column: str, comment: str | None) -> int:
    """COMMENT ON COLUMN of a view, whose name is the one that the view's query gives it."""
    at = add_snapshot(connection, f"altered_view:{view_id}", schema_change=True, file_ids=0)
    connection.execute(
        "UPDATE ducklake_view_column_tag SET end_snapshot = %s "
        "WHERE view_id = %s AND column_name = %s AND key = 'comment' AND end_snapshot IS NULL",
        [at, view_id, column],
    )
    connection.execute(
        "INSERT INTO ducklake_view_column_tag VALUES (%s, %s, %s, NULL, 'comment', %s)", [view_id, column, at, comment]
    )
    return at


def rename_view(connection: psycopg.Connection, view_id: int, name: str) -> int:
    """ALTER VIEW … RENAME: its row and the tags of its columns are made again under the same id."""
    ((schema,),) = connection.execute(
        "SELECT schema_name FROM ducklake_view JOIN ducklake_schema USING (schema_id) "
        "WHERE view_id = %s AND ducklake_view.end_snapshot IS NULL",
        [view_id],
    ).fetchall()
    at = add_snapshot(connection, f'created_view:"{schema}"."{name}"', schema_change=True, file_ids=0)
    connection.execute(
        "WITH old AS (UPDATE ducklake_view SET end_snapshot = %(at)s WHERE view_id = %(id)s AND end_snapshot IS NULL "
        "RETURNING *) INSERT INTO ducklake_view (view_id, view_uuid, begin_snapshot, schema_id, view_name, dialect, "
        "sql, column_aliases) SELECT view_id, view_uuid, %(at)s, schema_id, %(name)s, dialect, sql, column_aliases "
        "FROM old",
        {"at": at, "id": view_id, "name": name},
    )
    connection.execute(
        "WITH old AS (UPDATE ducklake_view_column_tag SET end_snapshot = %(at)s "
        "WHERE view_id = %(id)s AND end_snapshot IS NULL RETURNING *) INSERT INTO ducklake_view_column_tag "
        "SELECT view_id, column_name, %(at)s, NULL, key, value FROM old",
        {"at": at, "id": view_id},
    )
    return at


def drop_view(connection: psycopg.Connection, view_id: int) -> int:
    """DROP VIEW: it ends with its tags and those of its columns."""
    at = add_snapshot(connection, f"dropped_view:{view_id}", schema_change=True, file_ids=0)
    for table, key in (
        ("ducklake_view", "view_id"),
        ("ducklake_tag", "object_id"),
        ("ducklake_view_column_tag", "view_id"),
    ):
        connection.execute(
            f"UPDATE {table} SET end_snapshot = %s WHERE {key} = %s AND end_snapshot IS NULL", [at, view_id]
        )
    return at


def partition_by(connection: psycopg.Connection, table_id: int, *keys: tuple[int, str]) -> int:
    """SET PARTITIONED BY: (column id, transform) of each key, as `epoch_day`; return the partition id."""
    at = add_snapshot(connection, f"altered_table:{table_id}", schema_change=True, catalog_ids=1, file_ids=0)
    ((version, partition_id),) = connection.execute(
        "SELECT schema_version, next_catalog_id - 1 FROM ducklake_snapshot WHERE snapshot_id = %s", [at]
    ).fetchall()
    connection.execute(
        "UPDATE ducklake_partition_info SET end_snapshot = %s WHERE table_id = %s AND end_snapshot IS NULL",
        [at, table_id],
    )
    connection.execute("INSERT INTO ducklake_partition_info VALUES (%s, %s, %s, NULL)", [partition_id, table_id, at])
    for index, (column_id, transform) in enumerate(keys):
        connection.execute(
            "INSERT INTO ducklake_partition_column VALUES (%s, %s, %s, %s, %s)",
            [partition_id, table_id, index, column_id, transform],
        )
    connection.execute("INSERT INTO ducklake_schema_versions VALUES (%s, %s, %s)", [at, version, table_id])
    return int(partition_id)


def epoch_value(transform: str, value: datetime | None) -> str | None:
    """The partition value of a time: years, months, days or hours since 1970 in UTC, rounded down; NULL for NULL."""
    if value is None:
        return None
    moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if transform in _EPOCH_HOURS:
        return str(int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() // (3600 * _EPOCH_HOURS[transform])))
    years = moment.year - 1970
    return str(years if transform == "epoch_year" else years * 12 + moment.month - 1)


# Containers of deletion vectors (§6)


def encode_container(vectors: Mapping[int, Sequence[int]], data_file: str) -> tuple[bytes, int]:
    """A Puffin container and the size of its footer; vectors: cumulative positions by the snapshot that deleted."""
    blobs = [write_vector(sorted(positions)) for _, positions in sorted(vectors.items())]
    offsets = accumulate(map(len, blobs), initial=len(_PUFFIN_MAGIC))
    footer = orjson.dumps(
        {
            "blobs": [
                {
                    "type": "deletion-vector-v1",
                    "fields": [],
                    "snapshot-id": -1,
                    "sequence-number": -1,
                    "offset": offset,
                    "length": len(blob),
                    "properties": {
                        "referenced-data-file": data_file,
                        "cardinality": str(len(positions)),
                        "ducklake-snapshot-id": str(snapshot),
                    },
                }
                for (snapshot, positions), blob, offset in zip(sorted(vectors.items()), blobs, offsets, strict=False)
            ],
            "properties": {},
        }
    )
    trailer = _PUFFIN_MAGIC + footer + len(footer).to_bytes(4, "little") + bytes(4) + _PUFFIN_MAGIC
    return _PUFFIN_MAGIC + b"".join(blobs) + trailer, len(trailer)


def replace_by_container(
    connection: psycopg.Connection,
    data_file_id: int,
    path: str,
    vectors: Mapping[int, Sequence[int]],
    sizes: tuple[int, int],
) -> None:
    """Put a container in the place of the data file's delete file; sizes: of the file and of its footer."""
    newest = max(vectors)
    connection.execute(
        "UPDATE ducklake_delete_file SET path = %s, path_is_relative = false, format = 'puffin', delete_count = %s, "
        "file_size_bytes = %s, footer_size = %s, partial_max = %s, row_group_count = NULL "
        "WHERE data_file_id = %s AND end_snapshot IS NULL",
        [path, len(vectors[newest]), *sizes, newest, data_file_id],
    )


# DuckDB 1.5 in the place of DuckDB 2.0


class Answer:
    """Rows that were read while the lake was 1.0."""

    def __init__(self, rows: list[tuple[object, ...]], description: object) -> None:
        self._rows = rows
        self.description = description

    def fetchall(self) -> list[tuple[object, ...]]:
        return self._rows


class NewerDuckDB:
    """DuckDB 1.5 on a 1.1 lake, which is 1.0 for each of its statements, and for each transaction."""

    def __init__(self, url: str, attach: Callable[[], duckdb.DuckDBPyConnection]) -> None:
        self._url = url
        self._transaction = ExitStack()
        self._is_open = False
        with as_1_0(url):
            self._connection = attach()

    def execute(self, statement: str) -> Answer:
        if statement.startswith("BEGIN"):
            self._transaction.enter_context(as_1_0(self._url))
            self._is_open = True
        with nullcontext() if self._is_open else as_1_0(self._url):
            done = self._connection.execute(statement)
            answer = Answer(done.fetchall(), done.description)
        if statement.startswith(("COMMIT", "ROLLBACK")):
            self._is_open = False
            self._transaction.close()
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transaction.close()
        self._connection.close()
