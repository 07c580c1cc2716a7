"""PURE. Possible outcomes of a CHECK constraint for rows of which only bounds are known."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Any, Final, TypeAlias

from duckicelake.constraints.condition import (
    FLOAT_KINDS,
    WHOLE_LIMIT,
    ArithmeticTerm,
    Compare,
    Condition,
    ConstraintColumn,
    ConstraintConstant,
    FunctionCall,
    IsNull,
    Kind,
    Like,
    Logic,
    NotCondition,
    Term,
    Truth,
)

Outcomes: TypeAlias = frozenset[bool | None]
"""What a condition may come to: True, False, or None for NULL."""
_ANY_OUTCOME: Final[Outcomes] = frozenset({True, False, None})
_NO_OUTCOME: Final[Outcomes] = frozenset({True, False})
_MAX_TEXT_CHARS: Final = (1 << 31) - 1
_WILDCARDS: Final = re.compile("[%_]")


@dataclass(frozen=True, slots=True)
class Span:
    """What a value may be: one from `low` to `high` if `has_values` (None: no bound is known), NaN, or null."""

    low: Any = None
    high: Any = None
    has_values: bool = True
    nan: bool = False
    null: bool = True


NULL: Final = Span(has_values=False)
NAN: Final = Span(has_values=False, nan=True, null=False)
Spans: TypeAlias = Callable[[ConstraintColumn], Span]


def build_point(value: Any) -> Span:
    """Return a value that is known."""
    return Span(value, value, null=False)


def find_outcomes(node: Condition, spans: Spans) -> Outcomes:
    """Return what the condition may come to for a row whose columns are in these spans."""
    match node:
        case Compare():
            return _compare_spans(node.sign, find_span(node.left, spans), find_span(node.right, spans))
        case Like():
            return _match_like(find_span(node.value, spans), node.pattern)
        case IsNull():
            found = find_span(node.value, spans)
            return frozenset(({True} if found.null else set()) | ({False} if found.has_values or found.nan else set()))
        case Truth():
            return _compare_spans("=", find_span(node.value, spans), build_point(value=True))
        case NotCondition():
            return frozenset(None if outcome is None else not outcome for outcome in find_outcomes(node.part, spans))
        case Logic():
            join = _combine_and if node.word == "AND" else _combine_or
            return reduce(
                lambda left, right: frozenset(join(*pair) for pair in product(left, right)),
                (find_outcomes(part, spans) for part in node.parts),
            )


def find_span(node: Term, spans: Spans) -> Span:
    """Return what a value may be."""
    match node:
        case ConstraintColumn():
            return _clamp_to_type(spans(node), node)
        case ConstraintConstant():
            return build_point(node.value)
        case ArithmeticTerm():
            return _compute_arithmetic(node, find_span(node.left, spans), find_span(node.right, spans))
        case FunctionCall():
            return _compute_call(node, [find_span(argument, spans) for argument in node.arguments])


def _clamp_to_type(found: Span, column: ConstraintColumn) -> Span:
    """Whole numbers have the bounds of their type, if no others; doubles those of all numbers."""
    if column.kind in FLOAT_KINDS:
        low, high = -math.inf, math.inf
    elif column.kind is Kind.WHOLE:
        limit = 1 << (31 if column.type.name == "int" else 63)
        low, high = -limit, limit - 1
    else:
        return found
    return replace(found, low=low if found.low is None else found.low, high=high if found.high is None else found.high)


def _combine_and(left: bool | None, right: bool | None) -> bool | None:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _combine_or(left: bool | None, right: bool | None) -> bool | None:
    if left or right:
        return True
    return None if left is None or right is None else False


def _compare_spans(sign: str, left: Span, right: Span) -> Outcomes:
    found: set[bool | None] = {None} if left.null or right.null else set()
    if left.has_values and right.has_values:
        found |= _compare_ranges(sign, left, right)
    if left.nan and right.has_values:
        found.add(False)
    if left.has_values and right.nan:
        found.add(sign != "=")
    if left.nan and right.nan:
        found.add(sign != "<")
    return frozenset(found)


def _compare_ranges(sign: str, left: Span, right: Span) -> set[bool | None]:
    """Return what comparing values of two ranges may come to; the row may hold any from either."""
    if sign == "=":
        can_be = _may_be_equal(left.low, right.high) and _may_be_equal(right.low, left.high)
        is_one = left.low is not None and left.low == left.high == right.low == right.high
        return _combine_outcomes(can_be=can_be, can_fail=not is_one)
    if sign == "<":
        return _combine_outcomes(
            can_be=_may_be_less(left.low, right.high), can_fail=_may_be_equal(right.low, left.high)
        )
    return _combine_outcomes(can_be=_may_be_equal(left.low, right.high), can_fail=_may_be_less(right.low, left.high))


def _combine_outcomes(*, can_be: bool, can_fail: bool) -> set[bool | None]:
    found: set[bool | None] = {True} if can_be else set()
    return found | {False} if can_fail else found


def _may_be_equal(low: Any, high: Any) -> bool:
    """Return whether a value from `low` on may be as small as one up to `high`."""
    return low is None or high is None or bool(low <= high)


def _may_be_less(low: Any, high: Any) -> bool:
    return low is None or high is None or bool(low < high)


def _match_like(value: Span, pattern: str) -> Outcomes:
    found: set[bool | None] = {None} if value.null else set()
    if not value.has_values:
        return frozenset(found)
    wild = _WILDCARDS.search(pattern)
    prefix = pattern if wild is None else pattern[: wild.start()]
    low, high = value.low, value.high
    begins = None not in (low, high) and low.startswith(prefix) and high.startswith(prefix)
    misses = (high is not None and high < prefix) or (low is not None and low > prefix and not low.startswith(prefix))
    if misses:
        return frozenset(found | {False})
    if begins and pattern[len(prefix) :] == "%":
        return frozenset(found | {True})
    return frozenset(found | _NO_OUTCOME)


def _compute_arithmetic(node: ArithmeticTerm, left: Span, right: Span) -> Span:
    if node.kind is not Kind.WHOLE:
        return Span(nan=True)  # rounding, overflow and NaN are left open
    null = left.null or right.null
    if not left.has_values or not right.has_values:
        return NULL
    if node.sign == "%":
        most = right.high - 1
        return Span(max(-most, min(left.low, 0)), min(most, max(left.high, 0)), null=null)
    return _limit_to_64_bits([*_iterate_ends(node.sign, left, right)], null=null)


def _iterate_ends(sign: str, left: Span, right: Span) -> Iterator[int]:
    for one, other in product((left.low, left.high), (right.low, right.high)):
        yield one + other if sign == "+" else one - other if sign == "-" else one * other


def _limit_to_64_bits(ends: list[int], *, null: bool) -> Span:
    low, high = min(ends), max(ends)
    overflows = low < -WHOLE_LIMIT or high >= WHOLE_LIMIT
    has_values = low < WHOLE_LIMIT and high >= -WHOLE_LIMIT
    return Span(max(low, -WHOLE_LIMIT), min(high, WHOLE_LIMIT - 1), has_values, null=null or overflows)


def _compute_call(node: FunctionCall, given: list[Span]) -> Span:
    first = given[0]
    if node.name == "coalesce":
        return _compute_coalesce(first, given[1])
    if node.name == "length":
        if first.has_values and first.low is not None and first.low == first.high:
            return replace(build_point(len(first.low)), null=first.null)
        return Span(0, _MAX_TEXT_CHARS, first.has_values, null=first.null)
    if None in (first.low, first.high) or not first.has_values:
        return replace(first, low=None, high=None)
    least = 0 if first.low <= 0 <= first.high else min(abs(first.low), abs(first.high))
    most = max(abs(first.low), abs(first.high))
    if node.kind is Kind.WHOLE:
        return _limit_to_64_bits([least, most], null=first.null)
    return replace(first, low=least, high=most)


def _compute_coalesce(first: Span, other: Span) -> Span:
    if not first.null:
        return first
    if not first.has_values:
        return replace(other, nan=first.nan or other.nan)
    low = None if first.low is None else min(first.low, other.low)
    high = None if first.high is None else max(first.high, other.high)
    return Span(low, high, nan=first.nan, null=False)
