"""PURE. Types of Iceberg, DuckLake and DuckDB for each other, and DuckLake columns of narrower types."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, cast

from duckicelake.errors import UnsupportedError
from duckicelake.iceberg.manifest.entry import DataFile
from duckicelake.iceberg.primitives import TRAITS
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import from_bytes
from duckicelake.lake.model import Column, find_children
from duckicelake.lake.types import LAKE_TYPES, select_types

_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_UINT64: Final = "decimal(20, 0)"


@dataclass(frozen=True, slots=True)
class TypePair:
    """DuckLake's types that stand for a type of Iceberg.

    Attributes:
        lake: the type of columns that an Iceberg client makes.
        exact: types that Iceberg's reads exactly, `lake` among them unless it says less than Iceberg's type.
        stored: DuckDB's names of further types under which files of Iceberg writers hold the values.
        has_same_buckets: whether DuckLake hashes the values as Iceberg does.

    """

    lake: str
    exact: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()
    has_same_buckets: bool = False


_PAIRS: Final[Mapping[str, TypePair]] = {
    "boolean": TypePair("boolean", ("boolean",)),
    "int": TypePair("int32", ("int8", "int16", "int32", "uint8", "uint16"), ("SMALLINT", "TINYINT"), True),
    "long": TypePair("int64", ("int64", "uint32"), has_same_buckets=True),
    "float": TypePair("float32", ("float32",)),
    "double": TypePair("float64", ("float64",)),
    "date": TypePair("date", ("date",), has_same_buckets=True),
    "time": TypePair("time", ("time",), has_same_buckets=True),
    "timestamp": TypePair(
        "timestamp", ("timestamp", "timestamp_us", "timestamp_s", "timestamp_ms"), has_same_buckets=True
    ),
    "timestamptz": TypePair("timestamptz", ("timestamptz",), has_same_buckets=True),
    "timestamp_ns": TypePair("timestamp_ns", ("timestamp_ns",)),
    "timestamptz_ns": TypePair("timestamptz", stored=("TIMESTAMP_NS",)),
    "string": TypePair("varchar", ("varchar", "json"), has_same_buckets=True),
    "uuid": TypePair("uuid", ("uuid",), ("BLOB",)),
    "fixed": TypePair("blob"),
    "binary": TypePair("blob", ("blob",), has_same_buckets=True),
    "variant": TypePair("variant", ("variant",)),
    "geometry": TypePair("geometry", ("geometry",)),
    "geography": TypePair("geometry"),
}
"""By Iceberg's name. Decimals have the same name in both, and the type unknown has no column in DuckLake."""
_TO_ICEBERG: Final = {lake: name for name, pair in _PAIRS.items() for lake in pair.exact} | {"uint64": _UINT64}
INTEGER_LIMITS: Final = {
    name: row.limits
    for name, row in LAKE_TYPES.items()
    if row.limits and name in _TO_ICEBERG and name not in {pair.lake for pair in _PAIRS.values()}
}
"""The least and the greatest value of DuckLake's integers that are narrower than Iceberg's type."""
_FILE_TYPES: Final = {
    name: LAKE_TYPES[_PAIRS[iceberg].lake].duckdb if iceberg in _PAIRS else iceberg.upper()
    for name, iceberg in _TO_ICEBERG.items()
    if not LAKE_TYPES[name].is_opaque
}
"""DuckDB's types for values of DuckLake's types in files that Iceberg clients read."""
KEPT_DIGITS: Final[Mapping[str, int]] = {
    name: digits for name, pair in _PAIRS.items() if (digits := LAKE_TYPES[pair.lake].digits) is not None
}
"""Decimals of a second that DuckDB keeps, by Iceberg's name of a time or timestamp."""
_OWN_STORED: Final = {
    name: {LAKE_TYPES[pair.lake].duckdb, *pair.stored}
    for name, pair in _PAIRS.items()
    if not LAKE_TYPES[pair.lake].is_opaque
}
_STORED: Final = {
    name: frozenset(types.union(*(_OWN_STORED[other] for other in _OWN_STORED if name in TRAITS[other].promotions)))
    for name, types in _OWN_STORED.items()
}
STRICTER_TYPES: Final = select_types(lambda row: row.is_stricter)
"""Types that round or refuse what doesn't fit, and no bounds say that everything does."""


def to_lake_type(primitive: PrimitiveType) -> str:
    """Return the DuckLake type that DuckDB reads an Iceberg primitive with."""
    if primitive.name == "decimal":
        return f"decimal({primitive.precision},{primitive.scale})"
    return _PAIRS[primitive.name].lake


def has_same_buckets(primitive: PrimitiveType) -> bool:
    """Return whether DuckLake's buckets of the type's values are Iceberg's."""
    return primitive.name in _PAIRS and _PAIRS[primitive.name].has_same_buckets


def is_cut_by_duckdb(primitive: PrimitiveType) -> bool:
    """Return whether DuckDB reads fewer decimals of a second than the type has."""
    return KEPT_DIGITS.get(primitive.name, 0) < primitive.traits.digits


def find_stored_types(primitive: PrimitiveType) -> frozenset[str] | None:
    """Return DuckDB's names of the types under which files may hold the values; None for any.

    Types that were promoted to this one are among them. Decimals are not: their precision and scale matter.
    """
    return _STORED.get(primitive.name)


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
        if column.column_type in INTEGER_LIMITS.keys() | STRICTER_TYPES
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
        case text if text in _FILE_TYPES:
            return _FILE_TYPES[text]
        case text if text in LAKE_TYPES and text not in _TO_ICEBERG and column.column_id in gone:
            return LAKE_TYPES[text].duckdb
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
