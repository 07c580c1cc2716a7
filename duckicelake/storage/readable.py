"""Copies of DuckDB's Parquet files for Iceberg readers, which know neither unsigned integers nor milliseconds.

Spark refuses unsigned columns, and reads the bounds of milliseconds as if they were microseconds. PyIceberg reads no
file in which a column has the full name of a field, as `s.a` beside a struct `s`. And no reader but DuckDB takes an int
for a double, which columns become with files of before.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from duckdb.sqltypes import DuckDBPyType

from duckicelake.storage.parquet_copy import parquet_source, quoted

WIDER: Final = {"utinyint": "INTEGER", "usmallint": "INTEGER", "uinteger": "BIGINT", "ubigint": "DECIMAL(20, 0)"}
"""DuckDB's types for columns that Iceberg reads as int, long and decimal(20, 0)."""
_MISREAD = re.compile(r"UINT_\d+|TIME(STAMP)?_MILLIS|IntType\(.*isSigned=0\)|Time.*Type\(.*MILLIS=MilliSeconds.*")


def copy_readable(file: Path, copy: Path, types: Mapping[int, str] | None = None) -> bool:
    """Write a copy of the same rows that Iceberg readers read exactly; False, and none, if they do so already.

    types: DuckDB's types of columns that get another one, by field id. InvalidRequest if it isn't a Parquet file.
    """
    with parquet_source(file) as source:
        names, types = source.apart(), types or {}
        if not (names or types or any(map(_MISREAD.fullmatch, source.annotations))):
            return False
        rows = source.rows()
        casts = {
            name: f"CAST({quoted(name)} AS {_wider(type_)})"
            for name, type_ in zip(rows.columns, rows.types, strict=True)
            if _wider(type_) != str(type_)
        }
        ids = source.column_ids()
        casts |= {ids[i]: f"CAST({quoted(ids[i])} AS {type_})" for i, type_ in types.items() if i in ids}
        source.copy(copy, casts, names)
    return True


def copy_columns(file: Path, copy: Path, columns: Sequence[tuple[str, str, str]]) -> None:
    """Write a copy of the same rows with these columns; InvalidRequest if it isn't a Parquet file.

    columns: the name, the SQL of its values over the file's columns `c0`, `c1`, …, and the field ids for COPY.
    """
    with parquet_source(file) as source:
        source.copy_as(copy, columns)


def _wider(type_: DuckDBPyType) -> str:
    """The SQL of the type with wider ones in the place of unsigned ones, however deep."""
    if type_.id not in {"list", "struct", "map"}:
        return WIDER.get(type_.id, str(type_))
    parts = [(name, _wider(child)) for name, child in type_.children if isinstance(child, DuckDBPyType)]
    match type_.id:
        case "list":
            return f"{parts[0][1]}[]"
        case "struct":
            return f"STRUCT({', '.join(f'{quoted(name)} {part}' for name, part in parts)})"
        case _:
            return f"MAP({', '.join(part for _, part in parts)})"
