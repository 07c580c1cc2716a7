"""PURE. Column types, DuckLake's text to Iceberg's primitive and back (`ducklake-facts.md` §9).

What DuckLake lacks is stored as what DuckDB reads of the Parquet files: `timestamptz_ns` as timestamptz, as DuckDB has
nothing finer with a zone, and `geography` as geometry. `unknown` has no column: files have none either, and DuckDB
can't load a lake with a column of a type that it doesn't know. The other way round, what Iceberg lacks is read as the
next wider type that holds all its values.
"""

import re

from duckicelake.errors import Unsupported
from duckicelake.iceberg.types import PrimitiveType

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


def lake_type(primitive: PrimitiveType) -> str:
    """The DuckLake type that DuckDB reads an Iceberg primitive with."""
    if primitive.name == "decimal":
        return f"decimal({primitive.precision},{primitive.scale})"
    return _TO_LAKE[primitive.name]


def iceberg_type(text: str, column_name: str) -> PrimitiveType:
    """The Iceberg primitive that reads a DuckLake type exactly; Unsupported, naming the column, where none does."""
    decimal = _DECIMAL.fullmatch(text)
    if decimal:
        return PrimitiveType.parse(f"decimal({decimal[1]}, {decimal[2]})")
    if text not in _TO_ICEBERG:
        raise Unsupported(
            "ducklake-types", f"Column {column_name} has the DuckLake type {text}, which Iceberg can't read exactly"
        )
    return PrimitiveType.parse(_TO_ICEBERG[text])
