"""DuckLake's scalar types: how DuckDB, Postgres and Parquet hold their values (`ducklake-facts.md` §2.2)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LakeType:
    """A scalar type of DuckLake without parameters; `decimal(P,S)` has none of these facts.

    Attributes:
        duckdb: DuckDB's name of the type.
        view: DuckLake's type in which Iceberg clients get such a column of a view. Readers only cast what a query
            yields, so the nearest type will do.
        inlined: Postgres's type for inlined values.
        parquet: physical and logical types in which all Iceberg clients read the values that DuckDB reads. Files that
            hold others are copied.
        limits: the least and the greatest integer.
        digits: decimals of a second in a time or timestamp, None for other types.
        is_opaque: whether values are read only as DuckDB's own files have them, and never inlined.
        is_stricter: whether the type rounds or refuses values that Iceberg's type has, and bounds don't show it.
        is_misread: whether DuckDB writes it to Parquet in a way that Iceberg clients misread.
        is_other_in_spark: whether an expression of the type may mean something else in Spark.

    """

    name: str
    duckdb: str
    view: str = "varchar"
    inlined: str = "varchar"
    parquet: frozenset[str] = frozenset()
    limits: tuple[int, int] | None = None
    digits: int | None = None
    is_opaque: bool = False
    is_stricter: bool = False
    is_misread: bool = False
    is_other_in_spark: bool = False


_SIGNED: Final = {bits: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)}
_UNSIGNED: Final = {bits: (0, 2**bits - 1) for bits in (8, 16, 32, 64)}
_INT32: Final = frozenset({"INT32"})
_MICROS: Final = frozenset({"INT64 TIMESTAMP_MICROS"})
_TEXT: Final = frozenset({"BYTE_ARRAY STRING"})

_ROWS: Final = (
    LakeType("boolean", "BOOLEAN", "boolean", "boolean", frozenset({"BOOLEAN"})),
    LakeType("int8", "TINYINT", "int8", "smallint", _INT32, _SIGNED[8]),
    LakeType("int16", "SMALLINT", "int16", "smallint", _INT32, _SIGNED[16]),
    LakeType("int32", "INTEGER", "int32", "integer", _INT32, _SIGNED[32]),
    LakeType("int64", "BIGINT", "int64", "bigint", _INT32 | {"INT64"}, _SIGNED[64]),
    LakeType("int128", "HUGEINT", "decimal(38,0)", is_other_in_spark=True),
    LakeType("uint8", "UTINYINT", "uint8", "integer", limits=_UNSIGNED[8], is_misread=True),
    LakeType("uint16", "USMALLINT", "uint16", "integer", limits=_UNSIGNED[16], is_misread=True),
    LakeType("uint32", "UINTEGER", "int64", "bigint", limits=_UNSIGNED[32], is_misread=True),
    LakeType("uint64", "UBIGINT", "decimal(20,0)", limits=_UNSIGNED[64], is_misread=True, is_other_in_spark=True),
    LakeType("uint128", "UHUGEINT", "decimal(38,0)", is_other_in_spark=True),
    LakeType("float32", "FLOAT", "float32", "real", frozenset({"FLOAT"})),
    LakeType("float64", "DOUBLE", "float64", "double precision", frozenset({"DOUBLE", "FLOAT"})),
    LakeType("date", "DATE", "date", parquet=frozenset({"INT32 DATE"})),
    LakeType("time", "TIME", "time", "time", frozenset({"INT64 TIME_MICROS"}), digits=6, is_other_in_spark=True),
    LakeType("time_ns", "TIME_NS", digits=9, is_other_in_spark=True),
    LakeType("timetz", "TIME WITH TIME ZONE", inlined="timetz", digits=6, is_other_in_spark=True),
    LakeType("interval", "INTERVAL", inlined="interval", is_other_in_spark=True),
    LakeType("timestamp", "TIMESTAMP", "timestamp", parquet=_MICROS, digits=6),
    LakeType("timestamp_us", "TIMESTAMP", "timestamp", parquet=_MICROS, digits=6),
    LakeType("timestamp_s", "TIMESTAMP_S", "timestamp", digits=0, is_stricter=True, is_other_in_spark=True),
    LakeType(
        *("timestamp_ms", "TIMESTAMP_MS", "timestamp"),
        digits=3,
        is_stricter=True,
        is_misread=True,
        is_other_in_spark=True,
    ),
    LakeType(
        *("timestamp_ns", "TIMESTAMP_NS", "timestamp"),
        parquet=frozenset({"INT64 TIMESTAMP_NANOS"}),
        digits=9,
        is_other_in_spark=True,
    ),
    LakeType(
        *("timestamptz", "TIMESTAMP WITH TIME ZONE", "timestamptz"),
        parquet=frozenset({"INT64 TIMESTAMP_MICROS UTC"}),
        digits=6,
    ),
    LakeType("varchar", "VARCHAR", "varchar", "bytea", _TEXT),
    LakeType(
        *("json", "JSON", "varchar", "bytea", _TEXT | {"BYTE_ARRAY JSON"}), is_stricter=True, is_other_in_spark=True
    ),
    LakeType("blob", "BLOB", "blob", "bytea", frozenset({"BYTE_ARRAY"})),
    LakeType("uuid", "UUID", "uuid", "uuid", frozenset({"FIXED(16) UUID"}), is_other_in_spark=True),
    LakeType("variant", "VARIANT", is_opaque=True, is_other_in_spark=True),
    LakeType("geometry", "GEOMETRY", is_opaque=True, is_other_in_spark=True),
)
LAKE_TYPES: Final[Mapping[str, LakeType]] = {row.name: row for row in _ROWS}
"""DuckLake's scalar types by their names."""


def select_types(is_selected: Callable[[LakeType], bool]) -> frozenset[str]:
    """Return the names of the types for which a condition holds."""
    return frozenset(name for name, row in LAKE_TYPES.items() if is_selected(row))
