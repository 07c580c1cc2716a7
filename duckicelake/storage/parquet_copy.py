"""Copies of Parquet files with other values in some columns: the same rows in the same order, the same field ids."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from duckicelake.errors import InvalidRequest, Unavailable
from duckicelake.storage.parquet_footer import check_footer, in_time

_MEMORY = "1GB"
_SECONDS = 600
_SCHEMA = """
SELECT name, coalesce(num_children, 0), field_id, repetition_type = 'REPEATED', converted_type, logical_type
FROM parquet_schema($file)
"""


class ParquetSource:
    """A Parquet file that DuckDB has read the schema of."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, file: Path) -> None:
        self._connection = connection
        self._file = file
        self._fields = connection.execute(_SCHEMA, {"file": str(file)}).fetchall()

    @property
    def annotations(self) -> frozenset[str]:
        """What Parquet calls converted types, and logical types as DuckDB spells them, of any field however deep."""
        return frozenset(text for field in self._fields for text in field[4:6] if text is not None)

    def apart(self) -> dict[str, str]:
        """Other names, by name, for columns that have a dot and the full name of another field."""
        times = Counter(_full_names(self._fields))
        return {
            name: f"{name}_{field_id}" for name, field_id in _columns(self._fields) if "." in name and times[name] > 1
        }

    def column_ids(self) -> dict[int | None, str]:
        """The names of the columns by field id."""
        return {field_id: name for name, field_id in _columns(self._fields)}

    def rows(self) -> duckdb.DuckDBPyRelation:
        """All rows, without what folders say."""
        return self._connection.sql(f"FROM read_parquet({_text(self._file)}, hive_partitioning := false)")

    def copy(self, to: Path, expressions: Mapping[str, str], names: Mapping[str, str] | None = None) -> None:
        """Write the copy; columns may have the values of SQL expressions over the row and its `file_row_number`.

        names: other ones of columns, by name.
        """
        names = names or {}
        replaced = ", ".join(f"{expression} AS {quoted(name)}" for name, expression in expressions.items())
        renamed = ", ".join(f"{quoted(name)} AS {quoted(other)}" for name, other in names.items())
        select = (
            f"SELECT * EXCLUDE (file_row_number){f' REPLACE ({replaced})' if replaced else ''}"
            f"{f' RENAME ({renamed})' if renamed else ''} "
            f"FROM read_parquet({_text(self._file)}, hive_partitioning := false, file_row_number := true)"
        )
        self._connection.execute(
            f"COPY ({select}) TO {_text(to)} (FORMAT parquet, COMPRESSION zstd{self._field_ids(names)})"
        )

    def copy_as(self, to: Path, columns: Sequence[tuple[str, str, str]]) -> None:
        """Write a copy of columns of one's own: name, SQL expression over `c0`, `c1`, … of the file, field ids."""
        aliases = ", ".join(f"c{place}" for place in range(self._fields[0][1]))
        values = ", ".join(f"{expression} AS {quoted(name)}" for name, expression, _ in columns)
        ids = ", ".join(f"{quoted(name)}: {field_ids}" for name, _, field_ids in columns)
        self._connection.execute(
            f"COPY (SELECT {values} FROM read_parquet({_text(self._file)}, hive_partitioning := false) "
            f"AS file({aliases})) TO {_text(to)} (FORMAT parquet, COMPRESSION zstd, FIELD_IDS {{{ids}}})"
        )

    def _field_ids(self, names: Mapping[str, str]) -> str:
        """The file's own field ids as COPY takes them, of columns with other names."""
        described = self._connection.execute("DESCRIBE SELECT * FROM read_parquet($file)", {"file": str(self._file)})
        whole = {name for name, type_, *_ in described.fetchall() if type_ == "VARIANT"}
        ids = ", ".join(_group(_renamed(self._fields, names), 0, whole))
        return f", FIELD_IDS {{{ids}}}" if ids else ""


@contextmanager
def parquet_source(file: Path) -> Iterator[ParquetSource]:
    """Open a file; also from within the context, InvalidRequest if it isn't readable Parquet.

    Unavailable if it takes too much memory.
    """
    check_footer(file, "the data file")
    with duckdb.connect(config={"threads": 1, "memory_limit": _MEMORY}) as connection, in_time(connection, _SECONDS):
        connection.execute("SET TimeZone = 'UTC'")
        try:
            yield ParquetSource(connection, file)
        except duckdb.OutOfMemoryException as error:
            raise Unavailable(f"copying a data file takes too much memory: {error}") from error
        except duckdb.Error as error:
            raise InvalidRequest(f"the data file can't be read as Parquet: {error}") from error


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _columns(fields: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, int | None]]:
    """Name and field id of each column, from the elements of the schema, which stand in depth-first order."""
    place = 1
    for _ in range(fields[0][1]):
        yield fields[place][0], fields[place][2]
        place = _end(fields, place)


def _renamed(fields: Sequence[tuple[Any, ...]], names: Mapping[str, str]) -> list[tuple[Any, ...]]:
    """The elements of the schema with other names of columns."""
    found, place = list(fields), 1
    for _ in range(fields[0][1]):
        name, *others = fields[place]
        found[place] = (names.get(name, name), *others)
        place = _end(fields, place)
    return found


def _full_names(fields: Sequence[tuple[Any, ...]], place: int = 0, above: str = "") -> Iterator[str]:
    """The dotted names of everything inside a group; repeated groups of lists and maps, without ids, have none."""
    child = place + 1
    for _ in range(fields[place][1]):
        name, children, field_id, repeated, *_ = fields[child]
        is_named = not (repeated and children and field_id is None)
        full = f"{above}{name}." if is_named else above
        if is_named:
            yield f"{above}{name}"
        yield from _full_names(fields, child, full)
        child = _end(fields, child)


def _end(fields: Sequence[tuple[Any, ...]], place: int) -> int:
    """The place after an element and everything inside it."""
    open_children = fields[place][1]
    place += 1
    while open_children:
        open_children += fields[place][1] - 1
        place += 1
    return place


def _group(fields: Sequence[tuple[Any, ...]], place: int, whole: set[str]) -> Iterator[str]:
    """The ids of a group's children; the repeated groups of lists and maps have none and are looked through."""
    child = place + 1
    for _ in range(fields[place][1]):
        name, children, field_id, repeated, *_ = fields[child]
        if repeated and children and field_id is None:
            yield from _group(fields, child, whole)
        else:
            inner = [] if name in whole and place == 0 else list(_group(fields, child, whole))
            own = [f"__duckdb_field_id: {field_id}"] if field_id is not None else []
            if inner:
                yield f"{quoted(name)}: {{{', '.join((*own, *inner))}}}"
            elif own:
                yield f"{quoted(name)}: {field_id}"
        child = _end(fields, child)


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
