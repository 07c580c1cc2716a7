"""Copy the catalog of a file into Postgres. The files of the lake stay where they are.

Each transaction copies a part of one table and records how far it came, so that an import can go on after the process
was killed. `ducklake_metadata` has another name until all is copied: until then, Postgres has no lake.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import Cursor, sql
from psycopg.errors import DataError

from duckicelake.errors import AlreadyExistsError, ConflictError, InvalidRequestError
from duckicelake.file_lake.catalog_file import (
    METADATA_TABLE,
    CatalogFile,
    SourceTable,
    Value,
    read_catalog_options,
    read_columns_of,
)
from duckicelake.lake.ducklake.definition import build_inlined_columns
from duckicelake.lake.ducklake.snapshots import lock_writers
from duckicelake.lake.formats import NEW_LAKE_FORMAT
from duckicelake.lake.setup.format import DUCKLAKE_TABLES, check_supported, check_vacant, create_tables, read_contents
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Row, load_queries
from duckicelake.postgres.session import disable_timeout

_SQL = load_queries("file_lake", "import")
PART_ROWS: Final = 100_000
"""Rows that one transaction copies."""
_SYSTEM_COLUMNS: Final = 3
"""Columns of DuckLake's own at the beginning of each table of inlined rows."""
_DELETES_PATTERN: Final = re.compile(r"ducklake_inlined_delete_\d+")
_STATISTICS: Final = frozenset(
    {"ducklake_file_column_stats", "ducklake_table_column_stats", "ducklake_file_variant_stats"}
)
_FINGERPRINT_SQL: Final = (
    "SELECT (SELECT CAST(schema_uuid AS VARCHAR) FROM {ducklake_schema} ORDER BY schema_id LIMIT 1), "
    "max(snapshot_id), count(*) FROM {ducklake_snapshot}"
)
_SIZE_SQL: Final = (
    "SELECT (SELECT count(*) FROM {ducklake_table} WHERE end_snapshot IS NULL), "
    "(SELECT count(*) FROM {ducklake_snapshot})"
)
_INLINED_SQL: Final = (
    "SELECT i.table_name, i.table_id, i.schema_version, (SELECT t.table_name FROM {ducklake_table} t "
    "WHERE t.table_id = i.table_id ORDER BY t.begin_snapshot DESC LIMIT 1) FROM {ducklake_inlined_data_tables} i"
)


@dataclass(frozen=True, slots=True)
class InlinedCopy:
    """A table of inlined rows in the file. columns: name and Postgres type of each; None if Postgres can't have it."""

    source: SourceTable
    lake_table: str
    columns: Sequence[tuple[str, str]] | None


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What an import copies.

    Attributes:
        tables: the tables of the file that are copied.
        inlined: those with inlined rows, by name.
        data_path: the folder of the lake's files, which ends in "/".
        fingerprint: differs once the file has changed.

    """

    tables: Sequence[SourceTable]
    inlined: Mapping[str, InlinedCopy]
    data_path: str
    fingerprint: str

    @property
    def row_count(self) -> int:
        return sum(table.row_count for table in self.tables)

    @property
    def left_out(self) -> list[str]:
        """Empty tables of inlined rows that Postgres can't have; DuckDB doesn't need them."""
        return [name for name, table in self.inlined.items() if table.columns is None]

    def find_bytes(self, table: SourceTable) -> list[int]:
        """Return the indexes of a table's columns that are bytea in Postgres."""
        inlined = self.inlined.get(table.name)
        own = (inlined.columns if inlined else None) or ()
        return [_SYSTEM_COLUMNS + index for index, (_, type_) in enumerate(own) if type_ == "bytea"]


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import copied: live tables, snapshots, rows of the catalog.

    resumed_rows: how many of the rows an interrupted import had copied before.
    """

    lake_tables: int
    snapshots: int
    rows: int
    resumed_rows: int


def plan_import(source: CatalogFile, data_path: str | None = None) -> ImportPlan:
    """Plan the import of a whole catalog.

    Args:
        source: the file.
        data_path: where the files of the lake are, if not where the catalog says.

    Raises:
        UnsupportedCatalogError: this server doesn't serve the catalog's format, or the lake is encrypted.
        InvalidRequestError: rows can't be copied; the message names the table and what to do in DuckDB.

    """
    options = read_catalog_options(source)
    check_supported(options, [NEW_LAKE_FORMAT.version])  # its tables are made in Postgres as those of a new lake
    tables = {table.name: table for table in source.list_tables() if _is_copied(table)}
    inlined = {table.source.name: table for table in _plan_inlined(source, tables)}
    stuck = sorted({table.lake_table for table in inlined.values() if table.columns is None and table.source.row_count})
    if stuck:
        raise InvalidRequestError(
            f"inlined rows of {', '.join(stuck)} can't be kept in Postgres (VARIANT, GEOMETRY or long names): "
            "run CALL ducklake_flush_inlined_data('<lake>') in DuckDB, and import again"
        )
    copied = [
        table
        for name, table in tables.items()
        if not table.has_inlined_rows or (name in inlined and inlined[name].columns is not None)
    ]
    folder = (data_path or options["data_path"]).rstrip("/") + "/"
    return ImportPlan(copied, inlined, _check_absolute(folder), _read_fingerprint(source))


def _is_copied(table: SourceTable) -> bool:
    """Return whether a table is DuckLake's: a file may have others, even with such names."""
    return table.name in DUCKLAKE_TABLES or table.has_inlined_rows or _DELETES_PATTERN.fullmatch(table.name) is not None


def import_catalog(
    database: Database, source: CatalogFile, plan: ImportPlan, notify: Callable[[int], None], *, restarts: bool = False
) -> ImportReport:
    """Copy the catalog, or what an interrupted import left to copy; Postgres then has a lake without side tables.

    Args:
        database: has no lake, or an interrupted import.
        source: the file.
        plan: of the same file.
        notify: called with the number of rows copied so far.
        restarts: whether to discard what an interrupted import copied.

    Raises:
        AlreadyExistsError: the database has a lake.
        ConflictError: the database has an interrupted import of another state or file.
        InvalidRequestError: Postgres refuses a value; the message names the table.

    """
    begun = _begin(database, source, plan, restarts=restarts)
    resumed = copied = plan.row_count if begun is None else begun
    notify(copied)
    if begun is not None:
        for table in plan.tables:
            for rows in _copy_table(database, source, plan, table):
                copied += rows
                notify(copied)
        _finish(database, plan)
    ((tables, snapshots),) = source.query(_SIZE_SQL)
    return ImportReport(tables, snapshots, copied, resumed)


def _begin(database: Database, source: CatalogFile, plan: ImportPlan, *, restarts: bool) -> int | None:
    """Make the tables, or check those of an interrupted import; return how many rows are copied.

    None if all are, and the import was interrupted before a server could use the lake.
    """
    with database.transaction() as cursor:
        disable_timeout(cursor)
        lock_writers(cursor)
        contents = read_contents(cursor)
        if contents.lake is not None:
            if _is_imported(cursor, source):
                return None
            raise AlreadyExistsError(
                f"schema {contents.lake} of the database has a lake: import into another database, or into a schema "
                "that DUCKICELAKE_DATABASE_URL names"
            )
        if _has_begun(cursor) and restarts:
            _discard(cursor)
        if _has_begun(cursor):
            _check_same(cursor, source, plan)
            return sum(int(copied) for _, _, copied, _ in cursor.execute(_SQL.tables))
        check_vacant(read_contents(cursor))
        _make_tables(cursor, source, plan)
    return 0


def _has_begun(cursor: Cursor[Row]) -> bool:
    return bool(cursor.execute(_SQL.exists).fetchall()[0][0])


def _is_imported(cursor: Cursor[Row], source: CatalogFile) -> bool:
    """Return whether the lake is a copy of the file that no server has prepared yet."""
    ((first_schema, newest, count),) = source.query(_FINGERPRINT_SQL)
    parameters = {"first_schema": first_schema, "newest": newest, "count": count}
    return bool(cursor.execute(_SQL.is_imported, parameters).fetchall()[0][0])


def _check_same(cursor: Cursor[Row], source: CatalogFile, plan: ImportPlan) -> None:
    ((file, fingerprint),) = cursor.execute(_SQL.source).fetchall()
    if fingerprint != plan.fingerprint:
        what = f"{source.path} has changed" if file == str(source.path) else f"it read {file}"
        raise ConflictError(f"an import into this database was interrupted, and {what}: begin again with --restart")


def _make_tables(cursor: Cursor[Row], source: CatalogFile, plan: ImportPlan) -> None:
    create_tables(cursor)
    cursor.execute(_SQL.begin)
    cursor.execute(_SQL.insert_source, {"file": str(source.path), "fingerprint": plan.fingerprint})
    for table in plan.tables:
        if table.name in plan.inlined:
            columns = plan.inlined[table.name].columns or ()
            own = [(name, "bigint") for name in table.columns[:_SYSTEM_COLUMNS]]
            _create_table(cursor, table.name, [*own, *columns])
        elif _DELETES_PATTERN.fullmatch(table.name):
            _create_table(cursor, table.name, [(name, "bigint") for name in table.columns])
        target = "duckicelake_import_metadata" if table.name == METADATA_TABLE else table.name
        cursor.execute(_SQL.insert_table, {"table_name": table.name, "target": target})


def _create_table(cursor: Cursor[Row], name: str, columns: Iterable[tuple[str, str]]) -> None:
    parts = [sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(type_)) for column, type_ in columns]
    cursor.execute(sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(name), sql.SQL(", ").join(parts)))


def _discard(cursor: Cursor[Row]) -> None:
    for (name,) in cursor.execute(_SQL.discard).fetchall():
        cursor.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))


def _copy_table(database: Database, source: CatalogFile, plan: ImportPlan, table: SourceTable) -> Iterator[int]:
    """Copy what is left of a table, part by part; yield how many rows each part has."""
    is_done = False
    while not is_done:
        with database.transaction() as cursor:
            disable_timeout(cursor)
            _lock_import(cursor)
            ((target, start, is_done),) = cursor.execute(_SQL.progress, {"table_name": table.name}).fetchall()
            if not is_done:
                rows, next_row = _copy_part(cursor, source, plan, table, target, start)
                is_done = rows < PART_ROWS
                progress = {"next_row": next_row, "rows": rows, "is_done": is_done}
                cursor.execute(_SQL.advance, {"table_name": table.name, **progress})
                yield rows


def _lock_import(cursor: Cursor[Row]) -> None:
    """Wait for a process that imports the same file; AlreadyExistsError if it has completed the import."""
    lock_writers(cursor)
    if not _has_begun(cursor):
        raise AlreadyExistsError("another process has completed this import: there is nothing left to do")


def _copy_part(
    cursor: Cursor[Row], source: CatalogFile, plan: ImportPlan, table: SourceTable, target: str, start: int
) -> tuple[int, int]:
    """Copy a part of a table; return how many rows were read, and the number of the next row."""
    read, next_row = 0, start
    columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
    bytes_at = plan.find_bytes(table)
    try:
        with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(target), columns)) as copy:
            for number, values in source.read_rows(table, start, PART_ROWS):
                read, next_row = read + 1, number + 1
                if table.name in _STATISTICS and _has_null_character(values):
                    continue
                copy.write_row(_encode_bytes(values, bytes_at))
    except DataError as error:
        raise InvalidRequestError(
            f"Postgres refuses a row of {table.name} in {source.path}: {error.diag.message_primary}. "
            "If it is an inlined row, run CALL ducklake_flush_inlined_data('<lake>') in DuckDB; import with --restart"
        ) from error
    return read, next_row


def _has_null_character(values: Sequence[Value]) -> bool:
    """Return whether Postgres can't have a text of these. Statistics may be left out: they then say nothing."""
    return any(isinstance(value, str) and "\0" in value for value in values)


def _encode_bytes(values: Sequence[Value], bytes_at: Sequence[int]) -> Sequence[Value]:
    """Encode texts of bytea columns, which SQLite has as texts."""
    if not bytes_at:
        return values
    encoded = list(values)
    for index in bytes_at:
        value = encoded[index]
        encoded[index] = value.encode() if isinstance(value, str) else value
    return encoded


def _finish(database: Database, plan: ImportPlan) -> None:
    """Give `ducklake_metadata` its name, once all rows are there."""
    with database.transaction() as cursor:
        disable_timeout(cursor)
        _lock_import(cursor)
        copied = {name: count for name, _, count, _ in cursor.execute(_SQL.tables)}
        wrong = [table.name for table in plan.tables if copied.get(table.name) != table.row_count]
        if wrong:
            raise ConflictError(
                f"the import copied another number of rows of {', '.join(wrong)}: begin again with --restart"
            )
        cursor.execute(_SQL.leave_out, {"names": plan.left_out})
        cursor.execute(_SQL.set_data_path, {"data_path": plan.data_path})
        cursor.execute(_SQL.finish)


def _plan_inlined(source: CatalogFile, tables: Mapping[str, SourceTable]) -> Iterator[InlinedCopy]:
    """Plan the tables of inlined rows. Raises InvalidRequestError for one without the columns of its schema version."""
    for name, table_id, schema_version, lake_table in source.query(_INLINED_SQL):
        if name not in tables:
            raise InvalidRequestError(f"{source.path} lacks {name}, the inlined rows of {lake_table}: it isn't whole")
        columns = build_inlined_columns(read_columns_of(source, table_id, schema_version), NEW_LAKE_FORMAT)
        own = tables[name].columns[_SYSTEM_COLUMNS:]
        if columns is not None and [column for column, _ in columns] != list(own):
            raise InvalidRequestError(
                f"{name} doesn't have the columns that {lake_table} had at schema version {schema_version}: "
                "run CALL ducklake_flush_inlined_data('<lake>') in DuckDB, and import again"
            )
        yield InlinedCopy(tables[name], lake_table, columns)


def _check_absolute(folder: str) -> str:
    if not folder.startswith("/") and "://" not in folder:
        raise InvalidRequestError(f"the catalog says that files are in {folder}, which is relative: pass --data-path")
    return folder


def _read_fingerprint(source: CatalogFile) -> str:
    """Return a text that differs once the catalog has changed."""
    status = source.path.stat()
    return " ".join(map(str, (*source.query(_FINGERPRINT_SQL)[0], status.st_size, status.st_mtime_ns)))
