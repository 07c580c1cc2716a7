"""Copy Parquet files with other values in some columns, for Iceberg readers and for DuckLake."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb
from duckdb.sqltypes import DuckDBPyType

from duckicelake.errors import InvalidRequestError, UnavailableError
from duckicelake.parquet.footer import check_footer, limit_time
from duckicelake.parquet.local_copies import is_write_failure

PARQUET_FORMAT: Final = "FORMAT parquet, GEOPARQUET_VERSION 'V2'"
"""Options of COPY by which DuckDB writes geometries as Parquet's own type, as Iceberg wants and DuckLake does."""

_MEMORY_LIMIT = "1GB"
_TIMEOUT_SECONDS = 600
_SCHEMA_SQL = """
SELECT name, coalesce(num_children, 0), field_id, repetition_type = 'REPEATED', converted_type, logical_type
FROM parquet_schema($file)
"""
_END_SQL = "SELECT max(stats_max_value::BIGINT) + 1 FROM parquet_metadata($file) WHERE path_in_schema = $column"
WIDER_TYPES: Final = {"utinyint": "INTEGER", "usmallint": "INTEGER", "uinteger": "BIGINT", "ubigint": "DECIMAL(20, 0)"}
"""DuckDB's types for columns that Iceberg reads as int, long and decimal(20, 0)."""
_MISREAD_TYPES = re.compile(r"UINT_\d+|TIME(STAMP)?_MILLIS|IntType\(.*isSigned=0\)|Time.*Type\(.*MILLIS=MilliSeconds.*")
ROW_ID_FIELD_ID, SEQUENCE_NUMBER_FIELD_ID = 2147483540, 2147483539


class ParquetSource:
    """A Parquet file that DuckDB has read the schema of."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, file: Path) -> None:
        self._connection = connection
        self._file = file
        self._fields = connection.execute(_SCHEMA_SQL, {"file": str(file)}).fetchall()

    @property
    def annotations(self) -> frozenset[str]:
        """Converted types, and logical types as DuckDB spells them, of all fields at any depth."""
        return frozenset(text for field in self._fields for text in field[4:6] if text is not None)

    def find_distinct_names(self) -> dict[str, str]:
        """Find other names for columns whose name is the full name of another field, such as `"st.a"`."""
        times = Counter(_list_full_names(self._fields))
        return {
            name: f"{name}_{field_id}"
            for name, field_id in _list_columns(self._fields)
            if "." in name and times[name] > 1
        }

    def column_ids(self) -> dict[int | None, str]:
        """Return the names of the columns by field id."""
        return {field_id: name for name, field_id in _list_columns(self._fields)}

    def find_end(self, field_id: int) -> int:
        """Return the first number above all of a column of numbers, by the footer; 0 without one."""
        parameters = {"file": str(self._file), "column": self.column_ids().get(field_id)}
        ((end,),) = self._connection.execute(_END_SQL, parameters).fetchall()
        return int(end or 0)

    def rows(self) -> duckdb.DuckDBPyRelation:
        """Return all rows, without columns from the names of folders."""
        return self._connection.sql(f"FROM read_parquet({_quote_path(self._file)}, hive_partitioning := false)")

    def copy(self, to: Path, expressions: Mapping[str, str], names: Mapping[str, str] | None = None) -> None:
        """Write the copy. expressions: SQL over the row and its `file_row_number`, for columns that get other values.

        names: new names of columns, by name.
        """
        names = names or {}
        replaced = ", ".join(f"{expression} AS {quote_identifier(name)}" for name, expression in expressions.items())
        renamed = ", ".join(f"{quote_identifier(name)} AS {quote_identifier(other)}" for name, other in names.items())
        select = (
            f"SELECT * EXCLUDE (file_row_number){f' REPLACE ({replaced})' if replaced else ''}"
            f"{f' RENAME ({renamed})' if renamed else ''} "
            f"FROM read_parquet({_quote_path(self._file)}, hive_partitioning := false, file_row_number := true)"
        )
        self._connection.execute(
            f"COPY ({select}) TO {_quote_path(to)} ({PARQUET_FORMAT}, COMPRESSION zstd{self._field_ids(names)})"
        )

    def copy_as(self, to: Path, columns: Sequence[tuple[str, str, str]]) -> None:
        """Write a copy with these columns: name, SQL expression over the file's `c0`, `c1`, …, field ids."""
        aliases = ", ".join(f"c{place}" for place in range(self._fields[0][1]))
        values = ", ".join(f"{expression} AS {quote_identifier(name)}" for name, expression, _ in columns)
        ids = ", ".join(f"{quote_identifier(name)}: {field_ids}" for name, _, field_ids in columns)
        self._connection.execute(
            f"COPY (SELECT {values} FROM read_parquet({_quote_path(self._file)}, hive_partitioning := false) "
            f"AS file({aliases})) TO {_quote_path(to)} ({PARQUET_FORMAT}, COMPRESSION zstd, FIELD_IDS {{{ids}}})"
        )

    def _field_ids(self, names: Mapping[str, str]) -> str:
        """Build the file's own field ids for COPY, for columns with other names."""
        described = self._connection.execute("DESCRIBE SELECT * FROM read_parquet($file)", {"file": str(self._file)})
        whole = {name for name, type_, *_ in described.fetchall() if type_ == "VARIANT"}
        ids = ", ".join(_list_child_ids(_rename_elements(self._fields, names), 0, whole))
        return f", FIELD_IDS {{{ids}}}" if ids else ""


@contextmanager
def open_parquet_source(file: Path) -> Iterator[ParquetSource]:
    """Open a file. InvalidRequestError, also in the block: it isn't readable Parquet.

    UnavailableError: it takes too much memory, or more room than the disk has.
    """
    check_footer(file, "the data file")
    with (
        duckdb.connect(config={"threads": 1, "memory_limit": _MEMORY_LIMIT}) as connection,
        limit_time(connection, _TIMEOUT_SECONDS),
    ):
        connection.execute("SET TimeZone = 'UTC'")
        try:
            yield ParquetSource(connection, file)
        except duckdb.OutOfMemoryException as error:
            raise UnavailableError(f"copying a data file takes too much memory: {error}") from error
        except duckdb.IOException as error:
            if not is_write_failure(error):
                raise InvalidRequestError(f"the data file can't be read as Parquet: {error}") from error
            raise UnavailableError(f"The server has no room for a copy of a data file: {error}") from error
        except duckdb.Error as error:
            raise InvalidRequestError(f"the data file can't be read as Parquet: {error}") from error


def find_row_ids_end(file: Path) -> int:
    """Return the first number above all row ids that the rows of a file hold, by its footer; 0: they hold none.

    InvalidRequestError if it isn't a Parquet file.
    """
    with open_parquet_source(file) as source:
        return source.find_end(ROW_ID_FIELD_ID)


def quote_identifier(name: str) -> str:
    """Quote a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _list_columns(fields: Sequence[tuple[Any, ...]]) -> Iterator[tuple[str, int | None]]:
    """Yield name and field id of each column. fields: the schema's elements, in depth-first order."""
    place = 1
    for _ in range(fields[0][1]):
        yield fields[place][0], fields[place][2]
        place = _find_end(fields, place)


def _rename_elements(fields: Sequence[tuple[Any, ...]], names: Mapping[str, str]) -> list[tuple[Any, ...]]:
    """Rename columns in the elements of the schema."""
    found, place = list(fields), 1
    for _ in range(fields[0][1]):
        name, *others = fields[place]
        found[place] = (names.get(name, name), *others)
        place = _find_end(fields, place)
    return found


def _list_full_names(fields: Sequence[tuple[Any, ...]], place: int = 0, above: str = "") -> Iterator[str]:
    """Yield the dotted names of all fields inside a group.

    The repeated groups of lists and maps, which have no ids, have no names.
    """
    child = place + 1
    for _ in range(fields[place][1]):
        name, children, field_id, repeated, *_ = fields[child]
        is_named = not (repeated and children and field_id is None)
        full = f"{above}{name}." if is_named else above
        if is_named:
            yield f"{above}{name}"
        yield from _list_full_names(fields, child, full)
        child = _find_end(fields, child)


def _find_end(fields: Sequence[tuple[Any, ...]], place: int) -> int:
    """Find the place after an element and everything inside it."""
    open_children = fields[place][1]
    place += 1
    while open_children:
        open_children += fields[place][1] - 1
        place += 1
    return place


def _list_child_ids(fields: Sequence[tuple[Any, ...]], place: int, whole: set[str]) -> Iterator[str]:
    """Yield the ids of a group's children. The repeated groups of lists and maps have none: yield the ids inside."""
    child = place + 1
    for _ in range(fields[place][1]):
        name, children, field_id, repeated, *_ = fields[child]
        if repeated and children and field_id is None:
            yield from _list_child_ids(fields, child, whole)
        else:
            inner = [] if name in whole and place == 0 else list(_list_child_ids(fields, child, whole))
            own = [f"__duckdb_field_id: {field_id}"] if field_id is not None else []
            if inner:
                yield f"{quote_identifier(name)}: {{{', '.join((*own, *inner))}}}"
            elif own:
                yield f"{quote_identifier(name)}: {field_id}"
        child = _find_end(fields, child)


def _quote_path(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def copy_readable(
    file: Path, copy: Path, types: Mapping[int, str] | None = None, row_ids_below: int | None = None
) -> bool:
    """Write a copy of the same rows that Iceberg readers read exactly; False, without a copy, if they read the file so.

    types: new DuckDB types of columns, by field id. row_ids_below: rows with ids from there on get none in the copy.
    InvalidRequestError: it isn't a Parquet file.
    """
    with open_parquet_source(file) as source:
        names, types = source.find_distinct_names(), types or {}
        is_odd = names or types or any(map(_MISREAD_TYPES.fullmatch, source.annotations))
        if not is_odd and row_ids_below is None:
            return False
        rows = source.rows()
        casts = {
            name: f"CAST({quote_identifier(name)} AS {_widen_type(type_)})"
            for name, type_ in zip(rows.columns, rows.types, strict=True)
            if _widen_type(type_) != str(type_)
        }
        ids = source.column_ids()
        casts |= {ids[i]: f"CAST({quote_identifier(ids[i])} AS {type_})" for i, type_ in types.items() if i in ids}
        if row_ids_below is not None:
            row_id = quote_identifier(ids[ROW_ID_FIELD_ID])
            casts[ids[ROW_ID_FIELD_ID]] = f"CASE WHEN {row_id} < {row_ids_below} THEN {row_id} END"
        source.copy(copy, casts, names)
    return True


def copy_columns(file: Path, copy: Path, columns: Sequence[tuple[str, str, str]]) -> None:
    """Write a copy of the same rows with these columns; InvalidRequestError if it isn't a Parquet file.

    columns: the name, the SQL of its values over the file's columns `c0`, `c1`, …, and the field ids for COPY.
    """
    with open_parquet_source(file) as source:
        source.copy_as(copy, columns)


def _widen_type(type_: DuckDBPyType) -> str:
    """Build the SQL of the type with wider types for unsigned ones, at any depth."""
    if type_.id not in {"list", "struct", "map"}:
        return WIDER_TYPES.get(type_.id, str(type_))
    parts = [(name, _widen_type(child)) for name, child in type_.children if isinstance(child, DuckDBPyType)]
    match type_.id:
        case "list":
            return f"{parts[0][1]}[]"
        case "struct":
            return f"STRUCT({', '.join(f'{quote_identifier(name)} {part}' for name, part in parts)})"
        case _:
            return f"MAP({', '.join(part for _, part in parts)})"


def copy_with_row_ids(file: Path, copy: Path, first_row_id: int, sequence_number: int) -> bool:
    """Write a copy in which every row has its row id, in the same order; False, without a copy, if that is so already.

    InvalidRequestError if it isn't a Parquet file.
    """
    with open_parquet_source(file) as source:
        columns = source.column_ids()
        if ROW_ID_FIELD_ID not in columns or not _lacks_values(source, columns[ROW_ID_FIELD_ID]):
            return False
        source.copy(copy, _complete_columns(columns, first_row_id, sequence_number))
    return True


def _lacks_values(source: ParquetSource, column: str) -> bool:
    ((lacks,),) = source.rows().aggregate(f"count(*) > count({quote_identifier(column)})").fetchall()
    return bool(lacks)


def _complete_columns(columns: dict[int | None, str], first_row_id: int, sequence_number: int) -> dict[str, str]:
    row_id = columns[ROW_ID_FIELD_ID]
    completed = {row_id: f"coalesce({quote_identifier(row_id)}, {first_row_id} + file_row_number)"}
    if SEQUENCE_NUMBER_FIELD_ID in columns:
        number = columns[SEQUENCE_NUMBER_FIELD_ID]
        completed[number] = f"coalesce({quote_identifier(number)}, {sequence_number})"
    return completed
