"""PURE. Judge constraints by the metrics of a data file: intervals of values instead of rows."""

import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Any, Final, TypeAlias

from duckicelake.bridge.values.statistics import find_truncation
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
from duckicelake.constraints.definition import Constraint
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.values import from_bytes, to_json
from duckicelake.lake.state import FileRow

Outcomes: TypeAlias = frozenset[bool | None]
"""The possible results of a condition: True, False, or None for NULL."""
_ANY_OUTCOME: Final[Outcomes] = frozenset({True, False, None})
_NO_OUTCOME: Final[Outcomes] = frozenset({True, False})
_MAX_TEXT_CHARS: Final = (1 << 31) - 1
_WILDCARDS: Final = re.compile("[%_]")


@dataclass(frozen=True, slots=True)
class Span:
    """The possible values of a term. With has_values: from `low` to `high` (None: no bound). Also NaN and null."""

    low: Any = None
    high: Any = None
    has_values: bool = True
    nan: bool = False
    null: bool = True


NULL: Final = Span(has_values=False)
NAN: Final = Span(has_values=False, nan=True, null=False)
Spans: TypeAlias = Callable[[ConstraintColumn], Span]


def build_point(value: Any) -> Span:
    """Build the span of one known value."""
    return Span(value, value, null=False)


def find_outcomes(node: Condition, spans: Spans) -> Outcomes:
    """Find the possible results of the condition for a row whose columns are in these spans."""
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
    """Find the possible values of a term."""
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
    """Clamp a span to the column's type: bounds for whole numbers, all numbers for doubles."""
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
    """Compare two ranges; return the possible results. A row may hold any value of either."""
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
    """Return whether a value from `low` up can equal one up to `high`."""
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
        return Span(nan=True)  # rounding, overflow and NaN are possible
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


_ATTAINED_KINDS: Final = frozenset({Kind.WHOLE, Kind.DECIMAL, Kind.BOOLEAN, Kind.DATE, Kind.TEXT}) | FLOAT_KINDS
"""Kinds whose bounds are values of rows. Bounds of times may be rounded: Delta keeps milliseconds."""
_PROVEN: Final = frozenset({True})
_MAX_CASES: Final = 64


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a file. holds: for every row. problem: why not for some row. Neither: unknown."""

    holds: bool = False
    problem: str | None = None


def judge_file(
    constraint: Constraint, file: FileRow, properties: Mapping[str, str], *, may_refute: bool = True
) -> Verdict:
    """Judge a constraint by a file's metrics.

    may_refute: no row of the file is deleted, so its bounds are values of rows.
    """
    if not file.record_count:
        return Verdict(holds=True)
    facts = _FileFacts(file, find_truncation(properties))
    found = _find_outcomes(constraint, facts.span)
    if found == _PROVEN:
        return Verdict(holds=True)
    if not may_refute:
        return Verdict()
    if True not in found:
        return Verdict(problem=f"by its bounds no row of {file.path} keeps it: {facts.describe(constraint)}")
    for column in constraint.columns:
        for witness in facts.witnesses(column):
            if True not in _find_outcomes(constraint, _replace_span(facts.span, column, witness)):
                return Verdict(
                    problem=f"{file.path} has a row whose {_find_name(column)} is {_format_value(column, witness)}"
                )
    return Verdict()


def find_unproven(
    constraints: Sequence[Constraint],
    files: Iterable[FileRow],
    properties: Mapping[str, str],
    refutable: Container[int] = (),
) -> list[str]:
    """Find the constraints that some file's metrics don't prove.

    InvalidRequestError: metrics refute a `refutable` constraint.
    """
    names: set[str] = set()
    for file in files:
        for constraint in constraints:
            if constraint.name in names and file.file_id not in refutable:
                continue
            verdict = judge_file(constraint, file, properties, may_refute=file.file_id in refutable)
            if verdict.problem is not None:
                raise InvalidRequestError(f"The {constraint} is violated: {verdict.problem}. Nothing was written")
            if not verdict.holds:
                names.add(constraint.name)
    return [constraint.name for constraint in constraints if constraint.name in names]


def _find_outcomes(constraint: Constraint, spans: Spans) -> Outcomes:
    """Find the possible results of a constraint, with each column null, NaN or a value in all its places.

    That proves `x > 0 OR x IS NULL`.
    """
    columns = constraint.columns
    parts = [list(_split_spans(spans(column))) for column in columns]
    if math.prod(map(len, parts)) > _MAX_CASES:
        return find_outcomes(constraint.condition, spans)
    found: Outcomes = frozenset()
    for case in product(*parts):
        spans_of = {column.field_id: span for column, span in zip(columns, case, strict=True)}
        found |= find_outcomes(constraint.condition, lambda column, spans_of=spans_of: spans_of[column.field_id])  # type: ignore[misc]
    return found


def _split_spans(span: Span) -> Iterator[Span]:
    if span.has_values:
        yield replace(span, nan=False, null=False)
    if span.nan:
        yield NAN
    if span.null:
        yield NULL


def _replace_span(spans: Spans, column: ConstraintColumn, witness: Span) -> Spans:
    return lambda other: witness if other.field_id == column.field_id else spans(other)


class _FileFacts:
    """The metrics of one file, as values."""

    def __init__(self, file: FileRow, exact_below: int) -> None:
        self._rows = file.record_count
        self._metrics: Mapping[str, Any] = dict(file.metrics)
        self._exact_below = exact_below

    def span(self, column: ConstraintColumn) -> Span:
        nulls, nans = self._nulls(column), self._nans(column)
        low, high = self._bound("lower_bounds", column), self._bound("upper_bounds", column)
        if low is not None and high is not None and low > high:
            low = high = None
        known = (nulls or 0) + (nans or 0)
        return Span(low, high, has_values=known < self._rows, nan=nans != 0, null=nulls != 0)

    def witnesses(self, column: ConstraintColumn) -> Iterator[Span]:
        """Yield spans that some row of the file has."""
        if self._nulls(column):
            yield NULL
        nans = self._nans(column)
        if nans:
            yield NAN
        found = self.span(column)
        if column.kind not in _ATTAINED_KINDS or nans is None or not found.has_values:
            return
        for value in (found.low, found.high):
            if value is not None and (column.kind is not Kind.TEXT or len(value) < self._exact_below):
                yield build_point(value)

    def describe(self, constraint: Constraint) -> str:
        """Describe the bounds of the constraint's columns for an error."""
        return ", ".join(
            f"{_find_name(column)} is {_format_value(column, self.span(column))}" for column in constraint.columns
        )

    def _nulls(self, column: ConstraintColumn) -> int | None:
        """Return the number of nulls; None for fields in structs, which writers count differently."""
        return self._count("null_value_counts", column) if len(column.path) == 1 else None

    def _nans(self, column: ConstraintColumn) -> int | None:
        return self._count("nan_value_counts", column) if column.kind in FLOAT_KINDS else 0

    def _count(self, counts: str, column: ConstraintColumn) -> int | None:
        found = (self._metrics.get(counts) or {}).get(str(column.field_id))
        return found if isinstance(found, int) and 0 <= found <= self._rows else None

    def _bound(self, bounds: str, column: ConstraintColumn) -> Any:
        data = (self._metrics.get(bounds) or {}).get(str(column.field_id))
        try:
            value = None if data is None else from_bytes(column.type, bytes.fromhex(data))
        except (InvalidRequestError, ValueError, ArithmeticError):
            return None
        return None if isinstance(value, float) and math.isnan(value) else value


def _find_name(column: ConstraintColumn) -> str:
    return ".".join(column.path)


def _format_value(column: ConstraintColumn, span: Span) -> str:
    if not span.has_values:
        return "NaN" if span.nan else "null"
    low, high = (_format_text(column, bound) for bound in (span.low, span.high))
    parts = [low or "" if low == high and low is not None else f"from {low or '?'} to {high or '?'}"]
    return " or ".join([*parts, *(["NaN"] if span.nan else []), *(["null"] if span.null else [])])


def _format_text(column: ConstraintColumn, value: Any) -> str | None:
    return None if value is None else str(value if isinstance(value, float) else to_json(column.type, value))
