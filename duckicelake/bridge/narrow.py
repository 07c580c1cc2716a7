"""PURE. Columns that DuckDB declares narrower than Iceberg knows them, a TINYINT that is an int: what fits into them.

An Iceberg client may write any int, or any text into JSON. DuckDB then fails on every query of the table, so the column
is widened first.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import cast

from duckicelake.bridge.types import lake_type
from duckicelake.iceberg.manifest import DataFile
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import from_bytes
from duckicelake.lake.model import Column

LIMITS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}
_STRICT = {"timestamp_s", "timestamp_ms", "json"}
"""Types that cut off or refuse what doesn't fit, and no bounds tell that everything does."""


def narrow_columns(columns: Sequence[Column], schema: Schema) -> dict[int, str]:
    """DuckLake's type of each column that is narrower than the schema's, by column id."""
    wide = {field_id: lake_type(type_) for field_id, type_ in schema.leaves().items() if type_.name != "unknown"}
    return {
        column.column_id: column.column_type
        for column in columns
        if column.column_type in LIMITS.keys() | _STRICT
        and wide.get(column.column_id) not in {None, column.column_type}
    }


def outgrown(
    narrow: Mapping[int, str], files: Iterable[DataFile], leaves: Mapping[int, PrimitiveType]
) -> frozenset[int]:
    """The narrow columns into which not all values fit that the files may hold."""
    known = {column_id: kind for column_id, kind in narrow.items() if column_id in leaves}
    return frozenset(
        column_id
        for file in files
        for column_id, kind in known.items()
        if not _fits(file, column_id, kind, leaves[column_id])
    )


def _fits(file: DataFile, column_id: int, kind: str, type_: PrimitiveType) -> bool:
    values, nulls = (file.value_counts or {}).get(column_id), (file.null_value_counts or {}).get(column_id)
    if values is not None and values == nulls:
        return True
    low, high = (file.lower_bounds or {}).get(column_id), (file.upper_bounds or {}).get(column_id)
    if kind not in LIMITS or low is None or high is None:
        return False
    try:
        least, most = (int(cast("int | Decimal", from_bytes(type_, bound))) for bound in (low, high))
    except (ValueError, ArithmeticError):
        return False
    return LIMITS[kind][0] <= least and most <= LIMITS[kind][1]
