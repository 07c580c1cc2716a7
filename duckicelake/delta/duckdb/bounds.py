"""PURE. What a log tells of a column in each file, as SQL over `delta_live`: by partition values and statistics."""

from dataclasses import dataclass
from typing import Final

from duckicelake.delta.duckdb.log import partition_text
from duckicelake.delta.duckdb.types import pointer, quoted, type_text
from duckicelake.delta.schema import DeltaField, DeltaPrimitive, DeltaType

_BOUNDED: Final = frozenset(
    {"string", "long", "integer", "short", "byte", "float", "double", "date", "timestamp", "timestamp_ntz"}
)
_FLOATING: Final = frozenset({"float", "double"})
_CUT: Final = frozenset({"timestamp", "timestamp_ntz"})
"""Types whose statistics have whole milliseconds."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a log knows of a column in a file, as SQL over `delta_live`; bounds and nulls are null if it doesn't."""

    type: str
    least: str
    greatest: str
    some_null: str
    all_null: str
    may_be_nan: bool = False


def partition_bounds(column: DeltaField) -> Bounds:
    """A partition column's only value in a file."""
    value = partition_value(partition_text(column), column.type)
    return Bounds(type_text(column.type), value, value, f"{value} IS NULL", f"{value} IS NULL")


def statistics_bounds(column: DeltaField) -> Bounds:
    """What the statistics of a file say; null where they don't."""
    kind, text = column.type, type_text(column.type)
    nulls, rows = f"{_statistic('nullCount', column)}::BIGINT", "(stats ->> '/numRecords')::BIGINT"
    least, greatest = "NULL", "NULL"
    if not isinstance(kind, DeltaPrimitive) or kind.name in _BOUNDED:
        least = f"TRY_CAST({_statistic('minValues', column)} AS {text})"
        greatest = f"TRY_CAST({_statistic('maxValues', column)} AS {text})"
    if isinstance(kind, DeltaPrimitive) and kind.name in _CUT:
        greatest = f"({greatest} + INTERVAL 1 MILLISECOND)"
    floating = isinstance(kind, DeltaPrimitive) and kind.name in _FLOATING
    return Bounds(text, least, greatest, f"{nulls} > 0", f"{nulls} = {rows}", floating)


def partition_value(text: str, kind: DeltaType) -> str:
    """A partition value as its type, given SQL of its text; instants without a zone are of UTC."""
    if not isinstance(kind, DeltaPrimitive):
        return f"CAST({text} AS {type_text(kind)})"
    if kind.name == "binary":
        return f"encode({text})"
    if kind.name == "timestamp":
        zoned = f"regexp_matches({text}, '(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)$') AND contains({text}, ':')"
        return f"CAST(CASE WHEN {zoned} THEN {text} ELSE {text} || '+00' END AS {type_text(kind)})"
    return f"CAST({text} AS {type_text(kind)})"


def _statistic(kind: str, column: DeltaField) -> str:
    return f"(stats ->> {quoted(f'/{kind}{pointer(column.physical_name)}')})"
