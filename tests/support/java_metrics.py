"""What Iceberg's Java library concludes from a file's metrics: its inclusive and strict evaluators, and the
aggregates that Spark pushes down; and what Spark's own comparisons say of a row.

Written from Java's behaviour as of 1.12: what isn't counted is taken for none, floats are ordered by Double.compare,
UUIDs as two signed longs.
"""

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "is null", "not null", "is nan", "not nan")
Order = tuple[Any, ...]


@dataclass(frozen=True)
class Column:
    """The metrics of one column of a file: None for what isn't said, bounds as values."""

    nested: bool
    values: int | None
    nulls: int | None
    nans: int | None
    lower: Any
    upper: Any


def java_order(value: Any) -> Order:
    """As Java's comparators order values: -0.0 before 0.0, NaN last, UUIDs by their signed halves."""
    if isinstance(value, UUID):
        return struct.unpack(">qq", value.bytes)
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value))
    return (value.encode() if isinstance(value, str) else value,)


def spark_order(value: Any) -> Order:
    """As Spark compares values of rows: both zeros are one, NaN is the greatest and equals itself."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
    return (value.encode() if isinstance(value, str) else value,)


def holds(order: Callable[[Any], Order], operator: str, value: Any, literal: Any) -> bool:
    """Whether a row's value fulfils a predicate."""
    if operator in {"is null", "not null"}:
        return (value is None) == (operator == "is null")
    if operator in {"is nan", "not nan"}:
        return (isinstance(value, float) and math.isnan(value)) == (operator == "is nan")
    if value is None:
        return False
    return _COMPARED[operator](order(value), order(literal))


_COMPARED: Mapping[str, Callable[[Order, Order], bool]] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def might_match(column: Column, operator: str, literal: Any) -> bool:
    """Inclusive: False means that no row of the file matches."""
    only_nulls = column.nulls is not None and column.nulls == column.values
    only_nans = column.nans is not None and column.nans == column.values
    lower, upper = (None if each is None else java_order(each) for each in (column.lower, column.upper))
    match operator:
        case "is null":
            return column.nulls != 0
        case "not null":
            return not only_nulls
        case "is nan":
            return column.nans != 0 and not only_nulls
        case "not nan":
            return not only_nans
        case "!=":
            return True
    if only_nulls or only_nans:
        return False
    wanted = java_order(literal)
    if operator in {"=", "<", "<="} and lower is not None and (lower >= wanted if operator == "<" else lower > wanted):
        return False
    too_low = upper is not None and (upper <= wanted if operator == ">" else upper < wanted)
    return not (operator in {"=", ">", ">="} and too_low)


def must_match(column: Column, operator: str, literal: Any) -> bool:
    """Strict: True means that all rows of the file match, so that a delete drops it unread."""
    if column.nested:
        return False
    only_nulls = column.nulls is not None and column.nulls == column.values
    only_nans = column.nans is not None and column.nans == column.values
    match operator:
        case "is null":
            return only_nulls
        case "not null":
            return column.nulls == 0
        case "is nan":
            return only_nans
        case "not nan":
            return column.nans == 0 or only_nulls
    return _must_compare(column, operator, java_order(literal), only_nulls or only_nans)


def _must_compare(column: Column, operator: str, wanted: Order, is_none: bool) -> bool:
    lower, upper = (None if each is None else java_order(each) for each in (column.lower, column.upper))
    if operator == "!=":
        return is_none or (lower is not None and lower > wanted) or (upper is not None and upper < wanted)
    if column.nulls or column.nans:
        return False
    match operator:
        case "<" | "<=":
            return upper is not None and (upper < wanted if operator == "<" else upper <= wanted)
        case ">" | ">=":
            return lower is not None and (lower > wanted if operator == ">" else lower >= wanted)
    return lower == upper == wanted


def pushed_down(column: Column, aggregate: str) -> tuple[bool, Any]:
    """(whether Spark answers min, max or count of the file's column from metrics alone, the answer)."""
    if aggregate == "count":
        known = column.values is not None and column.nulls is not None
        return known, (column.values or 0) - (column.nulls or 0)
    bound = column.lower if aggregate == "min" else column.upper
    only_nulls = column.values is not None and column.values > 0 and column.nulls == column.values
    return bound is not None or only_nulls, bound
