"""PURE. What a data file's metrics say of a constraint: that all its rows keep it, that one doesn't, or neither."""

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from duckicelake.bridge.constraints.bounds import NAN, NULL, Outcomes, Span, Spans, outcomes, point
from duckicelake.bridge.constraints.properties import Constraint
from duckicelake.bridge.constraints.tree import FLOATS, Column, Kind
from duckicelake.bridge.realise import AnyFile
from duckicelake.bridge.stats import truncation
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.values import from_bytes, to_json

_ATTAINED: Final = frozenset({Kind.WHOLE, Kind.DECIMAL, Kind.BOOLEAN, Kind.DATE, Kind.TEXT}) | FLOATS
"""Kinds whose bounds are taken for values that are there. Those of times may be rounded: Delta keeps milliseconds."""
_PROVED: Final = frozenset({True})
_MOST_CASES: Final = 64


@dataclass(frozen=True, slots=True)
class Verdict:
    """`holds` for every row; else `problem` is why it can't hold for one; else nobody knows."""

    holds: bool = False
    problem: str | None = None


def judge(constraint: Constraint, file: AnyFile, properties: Mapping[str, str], *, may_refute: bool = True) -> Verdict:
    """What a file's metrics say. may_refute: none of its rows is deleted, so that its bounds are some rows' values."""
    if not file.record_count:
        return Verdict(holds=True)
    facts = _Facts(file, truncation(properties))
    found = _outcomes(constraint, facts.span)
    if found == _PROVED:
        return Verdict(holds=True)
    if not may_refute:
        return Verdict()
    if True not in found:
        return Verdict(problem=f"by its bounds no row of {file.path} keeps it: {facts.told(constraint)}")
    for column in constraint.columns:
        for witness in facts.witnesses(column):
            if True not in _outcomes(constraint, _instead(facts.span, column, witness)):
                return Verdict(problem=f"{file.path} has a row whose {_name(column)} is {_shown(column, witness)}")
    return Verdict()


def unproven(
    constraints: Sequence[Constraint],
    files: Iterable[AnyFile],
    properties: Mapping[str, str],
    refutable: Container[int] = (),
) -> list[str]:
    """The constraints that some file's metrics don't prove; InvalidRequest if a `refutable` one's refute it."""
    names: set[str] = set()
    for file in files:
        for constraint in constraints:
            if constraint.name in names and file.file_id not in refutable:
                continue
            verdict = judge(constraint, file, properties, may_refute=file.file_id in refutable)
            if verdict.problem is not None:
                raise InvalidRequest(f"The {constraint} is violated: {verdict.problem}. Nothing was written")
            if not verdict.holds:
                names.add(constraint.name)
    return [each.name for each in constraints if each.name in names]


def _outcomes(constraint: Constraint, spans: Spans) -> Outcomes:
    """What the constraint may come to, each column being null, NaN or a value all over: in `x > 0 OR x IS NULL`."""
    columns = constraint.columns
    parts = [list(_parts(spans(column))) for column in columns]
    if math.prod(map(len, parts)) > _MOST_CASES:
        return outcomes(constraint.condition, spans)
    found: Outcomes = frozenset()
    for case in product(*parts):
        spans_of = {column.field_id: span for column, span in zip(columns, case, strict=True)}
        found |= outcomes(constraint.condition, lambda column, spans_of=spans_of: spans_of[column.field_id])  # type: ignore[misc]
    return found


def _parts(span: Span) -> Iterator[Span]:
    if span.has_values:
        yield replace(span, nan=False, null=False)
    if span.nan:
        yield NAN
    if span.null:
        yield NULL


def _instead(spans: Spans, column: Column, witness: Span) -> Spans:
    return lambda each: witness if each.field_id == column.field_id else spans(each)


class _Facts:
    """The metrics of one file, as values."""

    def __init__(self, file: AnyFile, exact_below: int) -> None:
        self._rows = file.record_count
        self._metrics: Mapping[str, Any] = dict(file.metrics)
        self._exact_below = exact_below

    def span(self, column: Column) -> Span:
        nulls, nans = self._nulls(column), self._nans(column)
        low, high = self._bound("lower_bounds", column), self._bound("upper_bounds", column)
        if low is not None and high is not None and low > high:
            low = high = None
        known = (nulls or 0) + (nans or 0)
        return Span(low, high, has_values=known < self._rows, nan=nans != 0, null=nulls != 0)

    def witnesses(self, column: Column) -> Iterator[Span]:
        """What is in some row of the file."""
        if self._nulls(column):
            yield NULL
        nans = self._nans(column)
        if nans:
            yield NAN
        found = self.span(column)
        if column.kind not in _ATTAINED or nans is None or not found.has_values:
            return
        for value in (found.low, found.high):
            if value is not None and (column.kind is not Kind.TEXT or len(value) < self._exact_below):
                yield point(value)

    def told(self, constraint: Constraint) -> str:
        """The bounds of the constraint's columns, for people."""
        return ", ".join(f"{_name(column)} is {_shown(column, self.span(column))}" for column in constraint.columns)

    def _nulls(self, column: Column) -> int | None:
        """How many nulls; writers don't agree what they count of fields in structs."""
        return self._count("null_value_counts", column) if len(column.path) == 1 else None

    def _nans(self, column: Column) -> int | None:
        return self._count("nan_value_counts", column) if column.kind in FLOATS else 0

    def _count(self, counts: str, column: Column) -> int | None:
        found = (self._metrics.get(counts) or {}).get(str(column.field_id))
        return found if isinstance(found, int) and 0 <= found <= self._rows else None

    def _bound(self, bounds: str, column: Column) -> Any:
        data = (self._metrics.get(bounds) or {}).get(str(column.field_id))
        try:
            value = None if data is None else from_bytes(column.type, bytes.fromhex(data))
        except (InvalidRequest, ValueError, ArithmeticError):
            return None
        return None if isinstance(value, float) and math.isnan(value) else value


def _name(column: Column) -> str:
    return ".".join(column.path)


def _shown(column: Column, span: Span) -> str:
    if not span.has_values:
        return "NaN" if span.nan else "null"
    low, high = (_text(column, each) for each in (span.low, span.high))
    parts = [low or "" if low == high and low is not None else f"from {low or '?'} to {high or '?'}"]
    return " or ".join([*parts, *(["NaN"] if span.nan else []), *(["null"] if span.null else [])])


def _text(column: Column, value: Any) -> str | None:
    return None if value is None else str(value if isinstance(value, float) else to_json(column.type, value))
