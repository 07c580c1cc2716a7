"""Read inlined rows from CSV and write them as Parquet; read position deletes."""

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import duckdb

from duckicelake.errors import InvalidRequestError, format_count
from duckicelake.parquet.copy import PARQUET_FORMAT, quote_identifier
from duckicelake.parquet.footer import check_footer, limit_time
from duckicelake.parquet.local_copies import open_temporary_folder, translate_disk_errors

ROW_ID_COLUMN: Final = "_ducklake_internal_row_id"
SNAPSHOT_COLUMN: Final = "_ducklake_internal_snapshot_id"
END_COLUMN: Final = "_ducklake_internal_end"
LINEAGE_FIELD_IDS: Final = f"{ROW_ID_COLUMN}: 2147483540, {SNAPSHOT_COLUMN}: 2147483539"
"""Iceberg's `_row_id` and `_last_updated_sequence_number`, which all readers know by these ids, in DuckLake's names."""
_HEX_DECODERS: Final = {"VARCHAR": "decode(unhex({}))", "BLOB": "unhex({})"}
"""Types of columns whose values are bytes in hex."""
_CAST_PATTERN: Final = r"^([^'']*)'' AS (VARCHAR|TIME|UUID|REAL|DOUBLE PRECISION)\)"
_QUOTED_SQL: Final = rf"'''' || replace(regexp_extract(part, '{_CAST_PATTERN}', 1), '\', '\\') || ''''"
_WITHOUT_CASTS_SQL: Final = (
    "array_to_string(list_transform(string_split({}, 'CAST('''), lambda part, n: CASE WHEN n = 1 THEN part "
    f"WHEN regexp_matches(part, '{_CAST_PATTERN}') THEN {_QUOTED_SQL} || regexp_replace(part, '{_CAST_PATTERN}', '') "
    "ELSE 'CAST(''' || part END), '')"
)
"""DuckDB inlines these casts in structs, also of blobs, as texts with backslashes, and can't read them again."""
_MAX_LINE_BYTES: Final = 2_000_000
_MEMORY_LIMIT = "2GB"
_ROW_COUNT_SQL = """
SELECT coalesce(sum(rows), 0)
FROM (SELECT DISTINCT row_group_id, row_group_num_rows AS rows FROM parquet_metadata($file))
"""
_THREAD_STATE: Final = threading.local()
MAX_POSITIONS = 1 << 24
"""Positions accepted from a client in one delete file."""
StoredStats: TypeAlias = tuple[int, int, str | None, str | None, bool | None]


@dataclass(frozen=True, slots=True)
class ParquetColumn:
    """A top-level column. Its field ids are spelled for DuckDB's COPY."""

    name: str
    type: str
    field_ids: str
    has_bounds: bool = True


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """A CSV file of rows: id, begin and end snapshot, values of the columns. longest: bytes of the longest row."""

    path: Path
    longest: int
    columns: Sequence[ParquetColumn]

    @property
    def field_ids(self) -> str:
        """Field ids for COPY, with those of row lineage."""
        ids = [f"{quote_identifier(column.name)}: {column.field_ids}" for column in self.columns]
        return f"{{{', '.join([*ids, LINEAGE_FIELD_IDS])}}}"


def create_typed_table(connection: duckdb.DuckDBPyConnection, table: str, rows: CopiedRows) -> None:
    """Make a table of the rows in their order, with the columns, then ROW_ID, SNAPSHOT and END.

    InvalidRequestError if a value isn't one of its column's type.
    """
    with translate_misfits():
        connection.execute(f"CREATE TABLE {quote_identifier(table)} AS {build_typed_query(rows)}")


@contextmanager
def translate_misfits() -> Iterator[None]:
    """Raise InvalidRequestError if a value isn't one of its column's type."""
    try:
        yield
    except (duckdb.ConversionException, duckdb.InvalidInputException) as error:
        raise InvalidRequestError(f"a value isn't one of its column's type: {error}") from error


def build_typed_query(rows: CopiedRows) -> str:
    """Build a query for the rows in their order, with the columns, then ROW_ID, SNAPSHOT and END."""
    names = {f"c{at}": "VARCHAR" for at in range(len(rows.columns))}
    read = {"row_id": "BIGINT", "snapshot": "BIGINT", "ended": "BIGINT"} | names
    spelled = ", ".join(f"{name}: '{type_}'" for name, type_ in read.items())
    values = (
        f"{_build_value(name, column)} AS {quote_identifier(column.name)}"
        for name, column in zip(names, rows.columns, strict=True)
    )
    path = "'" + str(rows.path).replace("'", "''") + "'"
    return (
        f"SELECT {', '.join(values)}, row_id AS {ROW_ID_COLUMN}, snapshot AS {SNAPSHOT_COLUMN}, ended AS {END_COLUMN} "
        f"FROM read_csv({path}, columns := {{{spelled}}}, auto_detect := false, header := false, "
        "delim := ',', quote := '\"', escape := '\"', nullstr := '', allow_quoted_nulls := false, "
        f"max_line_size := {max(_MAX_LINE_BYTES, rows.longest + 1)}, parallel := false)"
    )


def _build_value(name: str, column: ParquetColumn) -> str:
    """Build the expression of a value from its text."""
    if column.type in _HEX_DECODERS:
        return _HEX_DECODERS[column.type].format(name)
    text = _WITHOUT_CASTS_SQL.format(name) if column.type.endswith((")", "]")) else name
    return f"CAST({text} AS {column.type})"


@dataclass(frozen=True, slots=True)
class ParquetRows:
    """An encoded file, and DuckDB's statistics by column position.

    They are (value count, null count, lower bound, upper bound, whether there are NaN), in DuckDB's texts; None where
    it has none. Blobs are hex; bounds of long values are shortened. nested: value and null count of nested fields, by
    quoted names joined by dots; rows without the field count as null.
    """

    data: bytes
    record_count: int
    stats: Mapping[int, StoredStats]
    nested: Mapping[str, tuple[int, int]]


def read_position_deletes(data: bytes, location: str) -> dict[str, list[int]]:
    """Read the sorted positions of a delete file by data file path; InvalidRequestError: it isn't one."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    with _write_temporary(data) as file, open_thread_connection() as connection:
        check_footer(file, location)
        try:
            with limit_time(connection):
                _check_rows(connection, str(file), location)
                query = "SELECT DISTINCT file_path, pos FROM read_parquet($file) ORDER BY 1, 2"
                rows = connection.execute(query, {"file": str(file)}).fetchall()
        except duckdb.Error as error:
            raise InvalidRequestError(f"{location} isn't a Parquet file of position deletes: {error}") from error
    for path, position in rows:
        found[path].append(position)
    return dict(found)


def _check_rows(connection: duckdb.DuckDBPyConnection, file: str, location: str) -> None:
    """Raise InvalidRequestError at too many rows: as runs, they need no bytes."""
    ((rows,),) = connection.execute(_ROW_COUNT_SQL, {"file": file}).fetchall()
    if rows > MAX_POSITIONS:
        raise InvalidRequestError(
            f"{location} has {format_count(rows, 'row')}; this server takes up to {MAX_POSITIONS} in one delete file"
        )


def read_ducklake_deletes(data: bytes, location: str) -> dict[int, int | None]:
    """Read the positions of DuckDB's delete file, with the snapshot that deleted each, if known.

    InvalidRequestError if it isn't one.
    """
    with _write_temporary(data) as file, open_thread_connection() as connection:
        try:
            relation = connection.sql("SELECT * FROM read_parquet($file)", params={"file": str(file)})
            snapshot = SNAPSHOT_COLUMN if SNAPSHOT_COLUMN in relation.columns else "NULL"
            rows = relation.project(f"pos::BIGINT, {snapshot}::BIGINT").fetchall()
        except duckdb.Error as error:
            raise InvalidRequestError(f"{location} isn't a delete file of DuckLake's: {error}") from error
    if any(position is None or position < 0 for position, _ in rows):
        raise InvalidRequestError(f"{location} isn't a delete file of DuckLake's: a position is null or negative")
    return dict(rows)


def write_rows(rows: CopiedRows) -> ParquetRows:
    """Encode the rows as a file, in their order and with their lineage.

    InvalidRequestError: a value isn't of its column's type.

    The file is written beside the CSV file, and stays there.
    """
    with open_thread_connection() as connection, translate_disk_errors():
        path = rows.path.with_suffix(".parquet")
        with translate_misfits():
            ((_, count, _, _, said, *_),) = connection.execute(
                f"COPY (SELECT * EXCLUDE ({END_COLUMN}) FROM ({build_typed_query(rows)})) TO '{path}' "
                f"({PARQUET_FORMAT}, COMPRESSION zstd, RETURN_STATS true, FIELD_IDS {rows.field_ids})"
            ).fetchall()
        return ParquetRows(
            path.read_bytes(),
            count,
            dict(_parse_stats(rows.columns, said)),
            dict(_parse_nested_counts(rows.columns, said)),
        )


@contextmanager
def open_thread_connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield the thread's own database, for work that leaves nothing in it: opening one takes longer than most files.

    Never nest the block. A database in which something failed is not used again.
    """
    connection = getattr(_THREAD_STATE, "connection", None) or _connect()
    _THREAD_STATE.connection = None
    yield connection
    _THREAD_STATE.connection = connection


def _connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(
        config={"threads": 1, "memory_limit": _MEMORY_LIMIT, "autoload_known_extensions": False}
    )
    connection.execute("SET TimeZone = 'UTC'; SET enable_external_file_cache = false")
    return connection


@contextmanager
def _write_temporary(data: bytes) -> Iterator[Path]:
    """Yield a temporary file with the data; UnavailableError: there is no room for it."""
    with open_temporary_folder() as folder:
        path = folder / "file.parquet"
        path.write_bytes(data)
        yield path


def _parse_stats(
    columns: Sequence[ParquetColumn], said: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[int, StoredStats]]:
    for index, column in enumerate(columns):
        found = said.get(quote_identifier(column.name)) if column.has_bounds else None
        if found is not None:
            nulls = int(found["null_count"])
            has_nan = {"true": True, "false": False}.get(found.get("has_nan", ""))
            yield index, (int(found["num_values"]) - nulls, nulls, found.get("min"), found.get("max"), has_nan)


def _parse_nested_counts(
    columns: Sequence[ParquetColumn], said: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, tuple[int, int]]]:
    top = {quote_identifier(column.name) for column in columns if column.has_bounds}
    for name, found in said.items():
        if name not in top:
            nulls = int(found["null_count"])
            yield name, (int(found["num_values"]) - nulls, nulls)
