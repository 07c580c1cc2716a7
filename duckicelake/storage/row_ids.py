"""Copies of Parquet files in which every row has its row id, for DuckLake.

Engines leave `_row_id` null in rows that are new among rewritten ones (a MERGE's inserts); Iceberg readers then count
from the file's first row id. DuckLake doesn't: it takes null for no id, gives updated rows the id 0, and so loses rows.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb

from duckicelake.errors import InvalidRequest

ROW_ID, SEQUENCE_NUMBER = 2147483540, 2147483539
_MEMORY = "1GB"
_SCHEMA = """
SELECT name, coalesce(num_children, 0), field_id, repetition_type = 'REPEATED' FROM parquet_schema($file)
"""


def copy_with_row_ids(file: Path, copy: Path, first_row_id: int, sequence_number: int) -> bool:
    """Write a copy in which no row lacks its row id, in the same order; False, and no copy, if none does.

    InvalidRequest if it isn't a Parquet file.
    """
    with duckdb.connect(config={"threads": 1, "memory_limit": _MEMORY}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        try:
            fields = connection.execute(_SCHEMA, {"file": str(file)}).fetchall()
            columns = {field_id: name for name, field_id in _columns(fields)}
            if ROW_ID not in columns or not _lacks(connection, file, columns[ROW_ID]):
                return False
            _copy(connection, file, copy, fields, _completed(columns, first_row_id, sequence_number))
        except duckdb.Error as error:
            raise InvalidRequest(f"the data file can't be read as Parquet: {error}") from error
    return True


def _columns(fields: Sequence[tuple[str, int, int | None, bool]]) -> Iterator[tuple[str, int | None]]:
    """Name and field id of each column, from the elements of the schema, which stand in depth-first order."""
    place = 1
    for _ in range(fields[0][1]):
        yield fields[place][0], fields[place][2]
        place = _end(fields, place)


def _end(fields: Sequence[tuple[str, int, int | None, bool]], place: int) -> int:
    """The place after an element and everything inside it."""
    open_children = fields[place][1]
    place += 1
    while open_children:
        open_children += fields[place][1] - 1
        place += 1
    return place


def _lacks(connection: duckdb.DuckDBPyConnection, file: Path, column: str) -> bool:
    query = f"SELECT count(*) > count({_quoted(column)}) FROM read_parquet($file, hive_partitioning := false)"
    row = connection.execute(query, {"file": str(file)}).fetchone()
    return bool(row and row[0])


def _completed(columns: dict[int | None, str], first_row_id: int, sequence_number: int) -> str:
    row_id = _quoted(columns[ROW_ID])
    parts = [f"coalesce({row_id}, {first_row_id} + file_row_number) AS {row_id}"]
    if SEQUENCE_NUMBER in columns:
        number = _quoted(columns[SEQUENCE_NUMBER])
        parts.append(f"coalesce({number}, {sequence_number}) AS {number}")
    return ", ".join(parts)


def _copy(
    connection: duckdb.DuckDBPyConnection,
    file: Path,
    copy: Path,
    fields: Sequence[tuple[str, int, int | None, bool]],
    replaced: str,
) -> None:
    select = (
        f"SELECT * EXCLUDE (file_row_number) REPLACE ({replaced}) "
        f"FROM read_parquet({_text(file)}, hive_partitioning := false, file_row_number := true)"
    )
    ids = _field_ids(connection, file, fields)
    connection.execute(f"COPY ({select}) TO {_text(copy)} (FORMAT parquet, COMPRESSION zstd, FIELD_IDS {ids})")


def _field_ids(
    connection: duckdb.DuckDBPyConnection, file: Path, fields: Sequence[tuple[str, int, int | None, bool]]
) -> str:
    """The file's own field ids as COPY takes them."""
    described = connection.execute("DESCRIBE SELECT * FROM read_parquet($file)", {"file": str(file)}).fetchall()
    whole = {name for name, type_, *_ in described if type_ == "VARIANT"}
    return "{" + ", ".join(_group(fields, 0, whole)) + "}"


def _group(fields: Sequence[tuple[str, int, int | None, bool]], place: int, whole: set[str]) -> Iterator[str]:
    """The ids of a group's children; the repeated groups of lists and maps have none and are looked through."""
    child = place + 1
    for _ in range(fields[place][1]):
        name, children, field_id, repeated = fields[child]
        if repeated and children and field_id is None:
            yield from _group(fields, child, whole)
        else:
            inner = [] if name in whole and place == 0 else list(_group(fields, child, whole))
            own = [f"__duckdb_field_id: {field_id}"] if field_id is not None else []
            yield f"{_quoted(name)}: {{{', '.join((*own, *inner))}}}" if inner else f"{_quoted(name)}: {field_id}"
        child = _end(fields, child)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
