"""Inlined rows as Postgres copies them, to CSV, read by DuckDB as what they are: for all files made of them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from duckicelake.errors import InvalidRequest
from duckicelake.storage.parquet_copy import quoted

ROW_ID: Final = "_ducklake_internal_row_id"
SNAPSHOT: Final = "_ducklake_internal_snapshot_id"
END: Final = "_ducklake_internal_end"
LINEAGE_IDS: Final = f"{ROW_ID}: 2147483540, {SNAPSHOT}: 2147483539"
"""Iceberg's `_row_id` and `_last_updated_sequence_number`, which all readers know by these ids, in DuckLake's names."""
_IN_HEX: Final = {"VARCHAR": "decode(unhex({}))", "BLOB": "unhex({})"}
"""Types of columns whose values are bytes in hex."""
_CAST: Final = r"^([^'']*)'' AS (VARCHAR|TIME|UUID|REAL|DOUBLE PRECISION)\)"
_QUOTED: Final = rf"'''' || replace(regexp_extract(part, '{_CAST}', 1), '\', '\\') || ''''"
_WITHOUT_CASTS: Final = (
    "array_to_string(list_transform(string_split({}, 'CAST('''), lambda part, n: CASE WHEN n = 1 THEN part "
    f"WHEN regexp_matches(part, '{_CAST}') THEN {_QUOTED} || regexp_replace(part, '{_CAST}', '') "
    "ELSE 'CAST(''' || part END), '')"
)
"""DuckDB inlines such casts in structs, of blobs too, as texts with backslashes, and can't read them again."""
_LONGEST_LINE: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class ParquetColumn:
    """A top-level column: its DuckDB type, its field ids as DuckDB's COPY takes them, and whether it has an order."""

    name: str
    type: str
    field_ids: str
    has_bounds: bool = True


@dataclass(frozen=True, slots=True)
class CopiedRows:
    """A CSV file of rows: id, snapshots of begin and end, values of the columns. longest: bytes of the longest row."""

    path: Path
    longest: int
    columns: Sequence[ParquetColumn]

    @property
    def field_ids(self) -> str:
        """As COPY takes them, the lineage's among them."""
        ids = [f"{quoted(column.name)}: {column.field_ids}" for column in self.columns]
        return f"{{{', '.join([*ids, LINEAGE_IDS])}}}"


def create_typed(connection: duckdb.DuckDBPyConnection, table: str, rows: CopiedRows) -> None:
    """Make a table of the rows, in their order: the columns, then ROW_ID, SNAPSHOT and END.

    InvalidRequest if a value isn't one of its column's type.
    """
    with fitting():
        connection.execute(f"CREATE TABLE {quoted(table)} AS {typed(rows)}")


@contextmanager
def fitting() -> Iterator[None]:
    """InvalidRequest if a value that is read isn't one of its column's type."""
    try:
        yield
    except (duckdb.ConversionException, duckdb.InvalidInputException) as error:
        raise InvalidRequest(f"a value isn't one of its column's type: {error}") from error


def typed(rows: CopiedRows) -> str:
    """A query for the rows in their order: the columns, then ROW_ID, SNAPSHOT and END."""
    names = {f"c{at}": "VARCHAR" for at in range(len(rows.columns))}
    read = {"row_id": "BIGINT", "snapshot": "BIGINT", "ended": "BIGINT"} | names
    spelled = ", ".join(f"{name}: '{type_}'" for name, type_ in read.items())
    values = (
        f"{_value(name, column)} AS {quoted(column.name)}" for name, column in zip(names, rows.columns, strict=True)
    )
    path = "'" + str(rows.path).replace("'", "''") + "'"
    return (
        f"SELECT {', '.join(values)}, row_id AS {ROW_ID}, snapshot AS {SNAPSHOT}, ended AS {END} "
        f"FROM read_csv({path}, columns := {{{spelled}}}, auto_detect := false, header := false, "
        "delim := ',', quote := '\"', escape := '\"', nullstr := '', allow_quoted_nulls := false, "
        f"max_line_size := {max(_LONGEST_LINE, rows.longest + 1)}, parallel := false)"
    )


def _value(name: str, column: ParquetColumn) -> str:
    """The value of a text."""
    if column.type in _IN_HEX:
        return _IN_HEX[column.type].format(name)
    text = _WITHOUT_CASTS.format(name) if column.type.endswith((")", "]")) else name
    return f"CAST({text} AS {column.type})"
