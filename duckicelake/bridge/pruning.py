"""PURE. Whether rows of a data file may match a filter, as far as its metrics tell (table spec, "Scan Planning")."""

from collections.abc import Mapping, Sequence
from typing import Any

from duckicelake.bridge.equality import Range, is_null, ordered
from duckicelake.iceberg.expressions import Constant, Junction, Not, Predicate, Test


def may_match(predicate: Predicate, ranges: Mapping[int, Range]) -> bool:
    """Whether a bound predicate may hold of a row; `ranges` are of its columns, those that are in no struct."""
    match predicate:
        case Constant():
            return predicate.holds
        case Not():
            return True
        case Junction():
            parts = (may_match(part, ranges) for part in (predicate.left, predicate.right))
            return all(parts) if predicate.operator == "and" else any(parts)
    assert isinstance(predicate.column, int)
    return _may_test(predicate, ranges[predicate.column])


def _may_test(test: Test, data: Range) -> bool:
    if test.operator == "is-null":
        return data.nulls != 0
    if test.operator.startswith("not-") or test.operator == "is-nan":
        return test.operator != "not-null" or not is_null(data)
    return not is_null(data) and _may_meet(test.operator, [ordered(value) for value in test.values], data)


def _may_meet(operator: str, values: Sequence[Any], data: Range) -> bool:
    lower, upper = data.lower, data.upper
    if lower is None or upper is None or lower > upper:
        return True
    match operator:
        case "eq" | "in":
            return any(lower <= value <= upper for value in values)
        case "lt":
            return bool(lower < values[0])
        case "lt-eq":
            return bool(lower <= values[0])
        case "gt":
            return bool(upper > values[0])
        case "gt-eq":
            return bool(upper >= values[0])
    return True
