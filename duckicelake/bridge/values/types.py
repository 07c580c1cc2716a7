"""PURE. Column types of Iceberg, DuckLake and DuckDB, and DuckLake columns of narrower types."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import cast

from duckicelake.errors import UnsupportedError
from duckicelake.iceberg.manifest.entry import DataFile
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import from_bytes
from duckicelake.lake.model import Column, find_children

_TO_LAKE = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "timestamp_ns": "timestamp_ns",
    "timestamptz_ns": "timestamptz",
    "string": "varchar",
    "uuid": "uuid",
    "fixed": "blob",
    "binary": "blob",
    "variant": "variant",
    "geometry": "geometry",
    "geography": "geometry",
}
_TO_ICEBERG = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "uint8": "int",
    "uint16": "int",
    "uint32": "long",
    "uint64": "decimal(20, 0)",
    "float32": "float",
    "float64": "double",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamp_us": "timestamp",
    "timestamp_s": "timestamp",
    "timestamp_ms": "timestamp",
    "timestamptz": "timestamptz",
    "timestamp_ns": "timestamp_ns",
    "varchar": "string",
    "json": "string",
    "blob": "binary",
    "uuid": "uuid",
    "variant": "variant",
    "geometry": "geometry",
}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
INTEGER_LIMITS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
_STRICT = {"timestamp_s", "timestamp_ms", "json"}
"""Types that cut off or refuse what doesn't fit, and no bounds tell that everything does."""
_DUCKDB_TYPES = {
    "boolean": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "INTEGER",
    "uint16": "INTEGER",
    "uint32": "BIGINT",
    "uint64": "DECIMAL(20, 0)",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamp_us": "TIMESTAMP",
    "timestamp_s": "TIMESTAMP",
    "timestamp_ms": "TIMESTAMP",
    "timestamp_ns": "TIMESTAMP_NS",
    "timestamptz": "TIMESTAMPTZ",
    "varchar": "VARCHAR",
    "json": "VARCHAR",
    "blob": "BLOB",
    "uuid": "UUID",
}
_UNREAD = {
    "int128": "HUGEINT",
    "uint128": "UHUGEINT",
    "timetz": "TIMETZ",
    "interval": "INTERVAL",
}
"""Types that Iceberg can't read, of fields that a table once had."""


def to_lake_type(primitive: PrimitiveType) -> str:
    """Return the DuckLake type that DuckDB reads an Iceberg primitive with."""
    if primitive.name == "decimal":
        return f"decimal({primitive.precision},{primitive.scale})"
    return _TO_LAKE[primitive.name]


def to_iceberg_type(text: str, column_name: str) -> PrimitiveType:
    """Return the Iceberg primitive that reads a DuckLake type exactly.

    Raises UnsupportedError, naming the column, where none does.
    """
    decimal = _DECIMAL.fullmatch(text)
    if decimal:
        return PrimitiveType.parse(f"decimal({decimal[1]}, {decimal[2]})")
    if text not in _TO_ICEBERG:
        raise UnsupportedError(
            "ducklake-types", f"Column {column_name} has the DuckLake type {text}, which Iceberg can't read exactly"
        )
    return PrimitiveType.parse(_TO_ICEBERG[text])


def find_narrow_columns(columns: Sequence[Column], schema: Schema) -> dict[int, str]:
    """Return DuckLake's type of each column that is narrower than the schema's, by column id."""
    wide = {field_id: to_lake_type(type_) for field_id, type_ in schema.leaves().items() if type_.name != "unknown"}
    return {
        column.column_id: column.column_type
        for column in columns
        if column.column_type in INTEGER_LIMITS.keys() | _STRICT
        and wide.get(column.column_id) not in {None, column.column_type}
    }


def find_outgrown_columns(
    narrow: Mapping[int, str], files: Iterable[DataFile], leaves: Mapping[int, PrimitiveType]
) -> frozenset[int]:
    """Return the narrow columns into which not all values fit that the files may hold."""
    known = {column_id: kind for column_id, kind in narrow.items() if column_id in leaves}
    return frozenset(
        column_id
        for file in files
        for column_id, kind in known.items()
        if not _has_fitting_values(file, column_id, kind, leaves[column_id])
    )


def _has_fitting_values(file: DataFile, column_id: int, kind: str, type_: PrimitiveType) -> bool:
    values, nulls = (file.value_counts or {}).get(column_id), (file.null_value_counts or {}).get(column_id)
    if values is not None and values == nulls:
        return True
    low, high = (file.lower_bounds or {}).get(column_id), (file.upper_bounds or {}).get(column_id)
    if kind not in INTEGER_LIMITS or low is None or high is None:
        return False
    try:
        least, most = (int(cast("int | Decimal", from_bytes(type_, bound))) for bound in (low, high))
    except (ValueError, ArithmeticError):
        return False
    return INTEGER_LIMITS[kind][0] <= least and most <= INTEGER_LIMITS[kind][1]


def to_duckdb_type(column: Column, columns: Sequence[Column], gone: Collection[int] = ()) -> str:
    """Return the SQL type of a column, nested ones with all their parts.

    Raises UnsupportedError names a column Iceberg can't read.

    gone: ids of fields that Iceberg needn't read.
    """
    parts = find_children(columns, column.column_id)
    match column.column_type:
        case "struct":
            fields = (f"{quote_identifier(part.column_name)} {to_duckdb_type(part, columns, gone)}" for part in parts)
            return f"STRUCT({', '.join(fields)})"
        case "list":
            return f"{to_duckdb_type(parts[0], columns, gone)}[]"
        case "map":
            return f"MAP({to_duckdb_type(parts[0], columns, gone)}, {to_duckdb_type(parts[1], columns, gone)})"
        case text if text.startswith("decimal("):
            return text.upper()
        case text if text in _DUCKDB_TYPES:
            return _DUCKDB_TYPES[text]
        case text if text in _UNREAD and column.column_id in gone:
            return _UNREAD[text]
        case text:
            raise UnsupportedError(
                "ducklake-types",
                f"Column {column.column_name} has the DuckLake type {text}, which Iceberg can't read exactly",
            )


def build_field_ids(column: Column, columns: Sequence[Column]) -> str:
    """Return the column's field ids as COPY takes them: a number, or a struct of the parts' with the column's own."""
    parts = find_children(columns, column.column_id)
    if not parts:
        return str(column.column_id)
    nested = (f"{quote_identifier(part.column_name)}: {build_field_ids(part, columns)}" for part in parts)
    return f"{{__duckdb_field_id: {column.column_id}, {', '.join(nested)}}}"


def format_column_path(column: Column, columns: Sequence[Column]) -> str:
    """Return the names of a column and what it is in, quoted and joined by dots, as DuckDB says of what it wrote."""
    parent = next((item for item in columns if item.column_id == column.parent_column), None)
    own = quote_identifier(column.column_name)
    return own if parent is None else f"{format_column_path(parent, columns)}.{own}"


def quote_identifier(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
