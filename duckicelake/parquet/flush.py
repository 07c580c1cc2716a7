"""Write inlined rows to partitioned, sorted data files, with DuckLake's statistics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb

from duckicelake.errors import UnavailableError
from duckicelake.parquet.copy import PARQUET_FORMAT, quote_identifier
from duckicelake.parquet.inlined_rows import END_COLUMN, ROW_ID_COLUMN, SNAPSHOT_COLUMN, CopiedRows, create_typed_table

_MEMORY_LIMIT: Final = "2GB"
_KEY_PREFIX: Final = "_ducklake_internal_key_"
_DELETE_FIELD_IDS: Final = f"{{file_path: 2147483646, pos: 2147483645, {SNAPSHOT_COLUMN}: 2147483539}}"


@dataclass(frozen=True, slots=True)
class FlushKey:
    """A partition key: the name in its folders, its value over the rows, and the bucketed column."""

    folder: str
    expression: str
    bucket: Callable[[str], int | None] | None = None


@dataclass(frozen=True, slots=True)
class RowsToWrite:
    """Copied rows, by the name of their inlined table, and their layout."""

    name: str
    copied: CopiedRows
    keys: Sequence[FlushKey]
    order: Sequence[str]


@dataclass(frozen=True, slots=True)
class WrittenDeletes:
    """A delete file. begin, last: the first and the last snapshot that deleted one of its rows."""

    path: Path
    begin: int
    last: int
    count: int
    size: int
    footer_size: int
    row_groups: int


@dataclass(frozen=True, slots=True)
class FlushedRows:
    """A data file. name: its path below the location. begin, last: the snapshots of its rows.

    stats: DuckDB's texts, by the leaves' paths.
    """

    path: Path
    name: str
    count: int
    size: int
    footer_size: int
    row_groups: int
    begin: int
    last: int
    first_row_id: int
    stats: Mapping[str, Mapping[str, str]]
    partition: Sequence[str | None]
    deletes: WrittenDeletes | None


@contextmanager
def open_row_files(folder: Path, location: str, *, has_folders: bool) -> Iterator["RowFiles"]:
    """Write files into an empty folder, for a location; UnavailableError: there is no room."""
    config: dict[str, Any] = {"threads": 1, "memory_limit": _MEMORY_LIMIT, "autoload_known_extensions": False}
    with duckdb.connect(config=config | {"temp_directory": str(folder / "tmp")}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        try:
            yield RowFiles(connection, folder, location, has_folders=has_folders)
        except (OSError, duckdb.IOException, duckdb.OutOfMemoryException) as error:
            raise UnavailableError(
                f"The server has no room to write inlined rows; nothing was written: {error}"
            ) from error


class RowFiles:
    """The files of one flush while they are written."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, folder: Path, location: str, *, has_folders: bool
    ) -> None:
        self._connection = connection
        self._folder = folder
        self._location = location
        self._has_folders = has_folders

    def write(self, rows: RowsToWrite) -> list[FlushedRows]:
        """Write the rows' files; InvalidRequestError: a value isn't one of its column's type."""
        create_typed_table(self._connection, rows.name, rows.copied)
        copied = self._copy(rows)
        files = ", ".join(_quote_text(file) for file, *_ in copied)  # with parameters DuckDB would import pandas
        self._connection.execute(
            f"CREATE TABLE {_name_places_table(rows.name)} AS SELECT filename AS file, file_row_number AS pos, "
            f"{ROW_ID_COLUMN} AS row_id, {SNAPSHOT_COLUMN} AS snapshot FROM "
            f"read_parquet([{files}], filename := true, file_row_number := true, hive_partitioning := false)"
        )
        spans = self._connection.execute(
            f"SELECT file, min(snapshot), max(snapshot), min(row_id) FROM {_name_places_table(rows.name)} GROUP BY file"
        )
        spanned = {file: span for file, *span in spans.fetchall()}
        row_groups = self._count_row_groups(files)
        ended = self._create_ended_table(rows.name)
        return [
            FlushedRows(
                path=Path(file),
                name=self._name(Path(file), rows),
                count=count,
                size=size,
                footer_size=footer,
                row_groups=row_groups[file],
                begin=spanned[file][0],
                last=spanned[file][1],
                first_row_id=spanned[file][2],
                stats=stats,
                partition=tuple((partition or {}).get(f"{_KEY_PREFIX}{at}") for at in range(len(rows.keys))),
                deletes=self._write_ended_rows(rows, Path(file)) if file in ended else None,
            )
            for file, count, size, footer, stats, partition, *_ in copied  # DuckDB 2 returns more
        ]

    def places(self, name: str, keys: Sequence[tuple[int, int]]) -> list[tuple[Path, int]]:
        """Find file and position of rows by begin and row id, among the files of a name."""
        found = self._connection.execute(
            "SELECT file, pos FROM "
            "(SELECT unnest($begins::BIGINT[]) AS snapshot, unnest($rows::BIGINT[]) AS row_id, "
            "generate_subscripts($rows::BIGINT[], 1) AS n) "
            f"JOIN {_name_places_table(name)} USING (snapshot, row_id) ORDER BY n",
            {"begins": [begin for begin, _ in keys], "rows": [row for _, row in keys]},
        )
        return [(Path(file), pos) for file, pos in found.fetchall()]

    def write_deletes(self, target: str, positions: Mapping[int, int]) -> WrittenDeletes:
        """Write a delete file for the data file at a location. positions: with the snapshot that deleted each."""
        select = "SELECT unnest($places::BIGINT[]) AS pos, unnest($ends::BIGINT[]) AS ended"
        parameters = {"places": list(positions), "ends": list(positions.values())}
        return self._deletes(target, select, parameters)

    def _copy(self, rows: RowsToWrite) -> list[tuple[Any, ...]]:
        """Copy the rows; return (file, rows, bytes, bytes of the footer, statistics, key values) of each file."""
        keys = "".join(f", {self._key(key, at, rows)} AS {_KEY_PREFIX}{at}" for at, key in enumerate(rows.keys))
        order = ", ".join([*rows.order, ROW_ID_COLUMN, SNAPSHOT_COLUMN])
        select = f"SELECT * EXCLUDE ({END_COLUMN}){keys} FROM {quote_identifier(rows.name)} ORDER BY {order}"
        options = f"{PARQUET_FORMAT}, COMPRESSION zstd, RETURN_STATS true, FIELD_IDS {rows.copied.field_ids}"
        folder = self._folder / rows.name
        folder.mkdir()
        if rows.keys:
            by = ", ".join(f"{_KEY_PREFIX}{at}" for at in range(len(rows.keys)))
            options += f", PARTITION_BY ({by}), FILENAME_PATTERN 'ducklake-{{uuidv7}}'"
        to = folder if rows.keys else folder / f"ducklake-{self._new_id()}.parquet"
        return self._connection.execute(f"COPY ({select}) TO {_quote_text(str(to))} ({options})").fetchall()

    def _count_row_groups(self, files: str) -> dict[str, int]:
        """Count row groups by file. files: quoted, joined by commas."""
        query = f"SELECT file_name, num_row_groups FROM parquet_file_metadata([{files}])"
        return dict(self._connection.execute(query).fetchall())

    def _new_id(self) -> str:
        ((number,),) = self._connection.execute("SELECT uuidv7()").fetchall()
        return str(number)

    def _key(self, key: FlushKey, at: int, rows: RowsToWrite) -> str:
        """Build the key's expression. Buckets are computed here, once for each value."""
        if key.bucket is None:
            return key.expression
        found = self._connection.execute(
            f"SELECT DISTINCT {key.expression} FROM {quote_identifier(rows.name)}"
        ).fetchall()
        values = [text for (text,) in found if text is not None]
        table = quote_identifier(f"buckets {at} of {rows.name}")
        self._connection.execute(
            f"CREATE TABLE {table} AS "
            "SELECT unnest($values::VARCHAR[]) AS value, unnest($buckets::INTEGER[]) AS bucket",
            {"values": values, "buckets": [key.bucket(text) for text in values]},
        )
        return f"(SELECT bucket FROM {table} WHERE value = {key.expression})"

    def _name(self, file: Path, rows: RowsToWrite) -> str:
        """Build the file's path below the location, with folders named as DuckDB names them."""
        *folders, name = file.relative_to(self._folder / rows.name).parts
        if not self._has_folders:
            return name
        values = (folder.partition("=")[2] for folder in folders)
        named = (f"{self._encode_url(key.folder)}={value}" for key, value in zip(rows.keys, values, strict=True))
        return "/".join((*named, name))

    def _encode_url(self, text: str) -> str:
        ((encoded,),) = self._connection.execute("SELECT url_encode($text)", {"text": text}).fetchall()
        return str(encoded)

    def _create_ended_table(self, name: str) -> set[str]:
        """Make a table of the rows that have ended; return their files."""
        self._connection.execute(
            f"CREATE TABLE {_name_ended_table(name)} AS "
            f"SELECT file, pos, {END_COLUMN} AS ended FROM {_name_places_table(name)} JOIN "
            f"(SELECT {ROW_ID_COLUMN} AS row_id, {SNAPSHOT_COLUMN} AS snapshot, {END_COLUMN} "
            f"FROM {quote_identifier(name)} WHERE {END_COLUMN} IS NOT NULL) USING (row_id, snapshot)"
        )
        return {
            file
            for (file,) in self._connection.execute(f"SELECT DISTINCT file FROM {_name_ended_table(name)}").fetchall()
        }

    def _write_ended_rows(self, rows: RowsToWrite, file: Path) -> WrittenDeletes:
        select = f"SELECT pos, ended FROM {_name_ended_table(rows.name)} WHERE file = $file"
        return self._deletes(self._location + self._name(file, rows), select, {"file": str(file)})

    def _deletes(self, target: str, select: str, parameters: dict[str, Any]) -> WrittenDeletes:
        self._connection.execute(f"CREATE OR REPLACE TABLE deletes AS {select}", parameters)
        path = self._folder / f"ducklake-{self._new_id()}-delete.parquet"
        ((_, count, size, footer, *_),) = self._connection.execute(
            f"COPY (SELECT {_quote_text(target)} AS file_path, pos, ended AS {SNAPSHOT_COLUMN} "
            f"FROM deletes ORDER BY pos) "
            f"TO {_quote_text(str(path))} (FORMAT parquet, RETURN_STATS true, FIELD_IDS {_DELETE_FIELD_IDS})"
        ).fetchall()
        ((begin, last),) = self._connection.execute("SELECT min(ended), max(ended) FROM deletes").fetchall()
        row_groups = self._count_row_groups(_quote_text(str(path)))[str(path)]
        return WrittenDeletes(path, begin, last, count, size, footer, row_groups)


def _name_places_table(name: str) -> str:
    return quote_identifier(f"places of {name}")


def _name_ended_table(name: str) -> str:
    return quote_identifier(f"ended of {name}")


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
