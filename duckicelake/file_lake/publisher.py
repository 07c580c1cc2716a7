"""Publish a snapshot: write a catalog file by which DuckDB reads it without Postgres.

The lake's files stay where they are. The file is a DuckLake 1.0 catalog of one snapshot: no history, partition keys,
sort keys or options, which only writers need. Inlined rows are in it. The lake keeps the snapshot's files until the
publication ends.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final
from uuid import uuid4

import duckdb
from psycopg import Cursor

from duckicelake.catalog.table.derived_files import parquet_columns
from duckicelake.errors import AlreadyExistsError, DamagedTableError, NotFoundError, UnavailableError, UnsupportedError
from duckicelake.file_lake.catalog_file import INLINED_PATTERN
from duckicelake.lake.ducklake import inlined_rows, native
from duckicelake.lake.formats import FORMAT_1_0
from duckicelake.lake.model import find_children
from duckicelake.lake.setup.format import build_tables_sql
from duckicelake.parquet.inlined_rows import (
    END_COLUMN,
    ROW_ID_COLUMN,
    SNAPSHOT_COLUMN,
    CopiedRows,
    build_typed_query,
)
from duckicelake.parquet.local_copies import open_temporary_folder, translate_disk_errors
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Row, load_queries
from duckicelake.postgres.session import disable_timeout

_SQL = load_queries("file_lake", "publish")
_REASON_PREFIX: Final = "published "
_MAX_ATTEMPTS: Final = 5
_MAX_BIGINT: Final = 2**63 - 1
_READ_ONLY_MODE: Final = 0o444
_VISIBLE: Final = "begin_snapshot <= %(at)s AND (end_snapshot IS NULL OR end_snapshot > %(at)s)"
_OF_TABLES: Final = "table_id IN (SELECT table_id FROM published_table)"
_OF_FILES: Final = f"data_file_id IN (SELECT data_file_id FROM ducklake_data_file WHERE {_VISIBLE} AND {_OF_TABLES})"
_OF_MACROS: Final = f"macro_id IN (SELECT macro_id FROM ducklake_macro WHERE {_VISIBLE})"
_CONDITIONS: Final[Mapping[str, str]] = {
    "ducklake_snapshot": "snapshot_id = %(at)s",
    "ducklake_snapshot_changes": "snapshot_id = %(at)s",
    "ducklake_schema": _VISIBLE,
    "ducklake_table": _VISIBLE,
    "ducklake_view": _VISIBLE,
    "ducklake_column": f"{_VISIBLE} AND {_OF_TABLES}",
    "ducklake_column_tag": f"{_VISIBLE} AND {_OF_TABLES}",
    "ducklake_tag": _VISIBLE,
    "ducklake_schema_versions": f"begin_snapshot <= %(at)s AND {_OF_TABLES}",
    "ducklake_data_file": f"{_VISIBLE} AND {_OF_TABLES}",
    "ducklake_delete_file": f"{_VISIBLE} AND {_OF_TABLES}",
    "ducklake_file_column_stats": _OF_FILES,
    "ducklake_file_variant_stats": _OF_FILES,
    "ducklake_column_mapping": _OF_TABLES,
    "ducklake_name_mapping": f"mapping_id IN (SELECT mapping_id FROM ducklake_column_mapping WHERE {_OF_TABLES})",
    "ducklake_table_stats": _OF_TABLES,
    "ducklake_macro": _VISIBLE,
    "ducklake_macro_impl": _OF_MACROS,
    "ducklake_macro_parameters": _OF_MACROS,
}
"""Which rows of a table belong to a snapshot. Tables that aren't named here stay empty."""
_STATISTICS_TABLE: Final = "ducklake_table_column_stats"
_ABSOLUTE_PATH: Final = (
    "CASE WHEN path_is_relative THEN (SELECT folder FROM published_table t WHERE t.table_id = f.table_id) "
    "ELSE '' END || path"
)
_REPLACED: Final[Mapping[tuple[str, str], str]] = {
    ("ducklake_data_file", "path"): _ABSOLUTE_PATH,
    ("ducklake_data_file", "path_is_relative"): "false",
    ("ducklake_data_file", "partition_id"): "NULL",
    ("ducklake_delete_file", "path"): _ABSOLUTE_PATH,
    ("ducklake_delete_file", "path_is_relative"): "false",
}
"""Columns that are written otherwise: the new file's DATA_PATH isn't the lake's, where nothing may write beside it."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A published snapshot: its DuckLake number, how many tables it has, and the id by which it is ended."""

    id: str
    snapshot_id: int
    tables: int


def publish_snapshot(database: Database, path: Path, at: int | datetime | None = None) -> Publication:
    """Write a catalog file of a snapshot, and keep the snapshot's files from now on.

    Args:
        database: has the lake.
        path: the new file, which DuckDB attaches with READ_ONLY.
        at: number of a DuckLake snapshot, or a time; the newest snapshot by default.

    Raises:
        AlreadyExistsError: the file is there.
        NotFoundError: there is no such snapshot, or it has expired.
        UnsupportedError: the snapshot has nested schemas, or inlined rows of a type that isn't served.

    """
    if path.exists():
        raise AlreadyExistsError(f"{path} is there: name another file, or delete it")
    publication = f"{uuid4()}"
    reason = f"{_REASON_PREFIX}{publication} {path.name}"
    try:
        return _publish(database, path, at, publication, reason)
    except BaseException:
        with database.transaction() as cursor:
            cursor.execute(_SQL.release, {"reason": reason})
        raise


def _publish(database: Database, path: Path, at: int | datetime | None, publication: str, reason: str) -> Publication:
    """Hold the files, then write the rows; again if a merge or flush gave the snapshot other files in between."""
    for _ in range(_MAX_ATTEMPTS):
        with database.transaction() as cursor:
            disable_timeout(cursor)
            snapshot_id, _ = _find_snapshot(cursor, at)
            parameters = {"at": snapshot_id, "reason": reason}
            cursor.execute(_SQL.tables + _SQL.hold, parameters)
        with database.reading() as cursor:
            disable_timeout(cursor)
            ((unheld,),) = cursor.execute(_SQL.tables + _SQL.count_unheld, parameters).fetchall()
            if not unheld:
                return Publication(publication, snapshot_id, _write_file(cursor, path, snapshot_id))
    raise UnavailableError(
        "the files of the snapshot changed all the while: try again when fewer jobs compact the lake"
    )


def list_publications(database: Database) -> list[tuple[str, str, int]]:
    """List the publications: id, name of the file, and how many files of the lake each keeps."""
    with database.reading() as cursor:
        found = cursor.execute(_SQL.publications).fetchall()
    return [(*reason.removeprefix(_REASON_PREFIX).split(" ", 1), count) for reason, count in found]


def end_publication(database: Database, publication: str) -> int:
    """End a publication: the lake keeps its files no longer than others. Return how many. Raises NotFoundError."""
    with database.transaction() as cursor:
        reasons = [reason for reason, _ in cursor.execute(_SQL.publications).fetchall()]
        found = [reason for reason in reasons if reason.startswith(f"{_REASON_PREFIX}{publication} ")]
        if not found:
            raise NotFoundError(f"There is no publication {publication}: `duckicelake unpublish` lists them")
        return cursor.execute(_SQL.release, {"reason": found[0]}).rowcount


def _find_snapshot(cursor: Cursor[Row], at: int | datetime | None) -> tuple[int, bool]:
    """Find a snapshot; return its number, and whether it is the newest."""
    number, time = (min(at, _MAX_BIGINT), None) if isinstance(at, int) else (None, at or "infinity")
    ((found, newest),) = cursor.execute(_SQL.find, {"number": number, "time": time}).fetchall()
    if found is None:
        raise NotFoundError(f"The lake has no snapshot {at}: it has expired, or never was there")
    nested = cursor.execute(_SQL.nested, {"at": found}).fetchall()
    if nested:
        raise UnsupportedError("nested-schemas", f"Schema {nested[0][0]} is within another one: it can't be published")
    return found, found == newest


def _write_file(cursor: Cursor[Row], path: Path, at: int) -> int:
    """Write the file under another name first; return how many tables it has."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with translate_disk_errors(), closing(duckdb.connect(str(temporary))) as duck:
            duck.execute("SET TimeZone = 'UTC'")
            _, is_newest = _find_snapshot(cursor, at)
            tables = _copy_catalog(cursor, duck, at, with_statistics=is_newest)
            _write_options(duck, path)
        temporary.chmod(_READ_ONLY_MODE)
        os.link(temporary, path)
    except FileExistsError as error:
        raise AlreadyExistsError(f"{path} is there: name another file, or delete it") from error
    finally:
        temporary.unlink(missing_ok=True)
    return tables


def _copy_catalog(cursor: Cursor[Row], duck: duckdb.DuckDBPyConnection, at: int, *, with_statistics: bool) -> int:
    duck.execute(build_tables_sql())
    conditions = dict(_CONDITIONS)
    if with_statistics:
        conditions[_STATISTICS_TABLE] = _OF_TABLES
    for table, condition in conditions.items():
        _copy_rows(cursor, duck, table, condition, at)
    ids = [table_id for (table_id,) in duck.execute("SELECT table_id FROM ducklake_table").fetchall()]
    for table_id in ids:
        _copy_inlined_rows(cursor, duck, table_id, at)
        _copy_inlined_deletes(cursor, duck, table_id, at)
    return len(ids)


def _copy_rows(cursor: Cursor[Row], duck: duckdb.DuckDBPyConnection, table: str, condition: str, at: int) -> None:
    """Copy the rows of a table for which a condition holds."""
    columns = duck.table(table).columns
    values = ", ".join(
        "NULL" if column == "end_snapshot" else _REPLACED.get((table, column), f'"{column}"') for column in columns
    )
    query = f"{_SQL.tables} SELECT {values} FROM {table} f WHERE {condition}"
    with _copy_csv(cursor, query, at) as file:
        duck.execute(f"INSERT INTO {table} FROM {_read_csv(file, columns)}")


@contextmanager
def _copy_csv(cursor: Cursor[Row], query: str, at: int) -> Iterator[Path]:
    """Write the rows of a query as CSV to a temporary file for the block. at: a parameter of the query."""
    with open_temporary_folder() as folder:
        path = folder / "rows.csv"
        with path.open("wb") as file, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)", {"at": at}) as rows:
            for part in rows:
                file.write(part)
        yield path


def _read_csv(file: Path, columns: Sequence[str]) -> str:
    """Return the SQL by which DuckDB reads Postgres's CSV, all values as texts."""
    types = ", ".join(f"'{column}': 'VARCHAR'" for column in columns)
    return (
        f"read_csv('{file}', columns := {{{types}}}, auto_detect := false, header := false, delim := ',', "
        "quote := '\"', escape := '\"', nullstr := '', allow_quoted_nulls := false, parallel := false)"
    )


def _copy_inlined_rows(cursor: Cursor[Row], duck: duckdb.DuckDBPyConnection, table_id: int, at: int) -> None:
    """Copy the inlined rows of a table that the snapshot has, as values of DuckDB's types."""
    for name, since in inlined_rows.read_inlined_tables(cursor, table_id).items():
        if since is None or since > at:
            continue
        if not INLINED_PATTERN.fullmatch(name):  # clients choose it, and it is part of SQL here
            raise DamagedTableError(f"{name!r} is registered for inlined rows: expected ducklake_inlined_data_…")
        columns = native.read_columns(cursor, table_id, since)
        with open_temporary_folder() as folder:
            path = folder / "rows.csv"
            with path.open("wb") as file:
                copied = inlined_rows.copy_table(cursor, name, find_children(columns, None), at, file)
            if copied.rows:
                inlined_rows.check_decodable(name, columns)
            rows = CopiedRows(path, copied.longest, parquet_columns(columns))
            duck.execute(
                f'CREATE TABLE "{name}" AS SELECT {ROW_ID_COLUMN} AS row_id, {SNAPSHOT_COLUMN} AS begin_snapshot, '
                f"NULL::BIGINT AS end_snapshot, * EXCLUDE ({ROW_ID_COLUMN}, {SNAPSHOT_COLUMN}, {END_COLUMN}) "
                f"FROM ({build_typed_query(rows)}) WHERE {END_COLUMN} IS NULL OR {END_COLUMN} > {at}"
            )
        version = name.rpartition("_")[2]
        duck.execute("INSERT INTO ducklake_inlined_data_tables VALUES (?, ?, ?)", [table_id, name, int(version)])


def _copy_inlined_deletes(cursor: Cursor[Row], duck: duckdb.DuckDBPyConnection, table_id: int, at: int) -> None:
    deletes = inlined_rows.read_inlined_deletes(cursor, table_id, at)
    if deletes:
        name = f"ducklake_inlined_delete_{table_id}"
        duck.execute(f"CREATE TABLE {name} (file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT)")
        duck.executemany(
            f"INSERT INTO {name} VALUES (?, ?, ?)",
            [[delete.data_file_id, delete.position, delete.begin_snapshot] for delete in deletes],
        )


def _write_options(duck: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Write version and DATA_PATH: a folder beside the file, which stays empty, as all paths are whole."""
    rows = {
        "version": FORMAT_1_0.version,
        "created_by": "duckicelake",
        "data_path": f"{path.absolute()}.files/",
        "encrypted": "false",
    }
    duck.executemany("INSERT INTO ducklake_metadata (key, value) VALUES (?, ?)", [list(item) for item in rows.items()])
