"""PURE. Judge a data file's metrics by a constraint: all rows satisfy it, one violates it, or unknown."""

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Final

from duckicelake.bridge.values.statistics import find_truncation
from duckicelake.constraints.bounds import NAN, NULL, Outcomes, Span, Spans, build_point, find_outcomes
from duckicelake.constraints.condition import FLOAT_KINDS, ConstraintColumn, Kind
from duckicelake.constraints.properties import Constraint
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.values import from_bytes, to_json
from duckicelake.lake.additions import AnyFile

_ATTAINED_KINDS: Final = frozenset({Kind.WHOLE, Kind.DECIMAL, Kind.BOOLEAN, Kind.DATE, Kind.TEXT}) | FLOAT_KINDS
"""Kinds whose bounds are taken for values that are there. Those of times may be rounded: Delta keeps milliseconds."""
_PROVEN: Final = frozenset({True})
_MAX_CASES: Final = 64


@dataclass(frozen=True, slots=True)
class Verdict:
    """`holds` for every row; else `problem` is why it can't hold for one; else nobody knows."""

    holds: bool = False
    problem: str | None = None


def judge_file(
    constraint: Constraint, file: AnyFile, properties: Mapping[str, str], *, may_refute: bool = True
) -> Verdict:
    """Return what a file's metrics say.

    may_refute: none of its rows is deleted, so that its bounds are some rows' values.
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
        return Verdict(problem=f"by its bounds no row of {file.path} keeps it: {facts.told(constraint)}")
    for column in constraint.columns:
        for witness in facts.witnesses(column):
            if True not in _find_outcomes(constraint, _replace_span(facts.span, column, witness)):
                return Verdict(
                    problem=f"{file.path} has a row whose {_find_name(column)} is {_format_value(column, witness)}"
                )
    return Verdict()


def find_unproven(
    constraints: Sequence[Constraint],
    files: Iterable[AnyFile],
    properties: Mapping[str, str],
    refutable: Container[int] = (),
) -> list[str]:
    """Return the constraints that some file's metrics don't prove.

    Raises InvalidRequestError if a `refutable` one's refute it.
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
    """Return what the constraint may come to, each column being null, NaN or a value all over.

    In `x > 0 OR x IS NULL`.
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

    def __init__(self, file: AnyFile, exact_below: int) -> None:
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
        """Yield what is in some row of the file."""
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

    def told(self, constraint: Constraint) -> str:
        """Return the bounds of the constraint's columns, for people."""
        return ", ".join(
            f"{_find_name(column)} is {_format_value(column, self.span(column))}" for column in constraint.columns
        )

    def _nulls(self, column: ConstraintColumn) -> int | None:
        """Return how many nulls; writers don't agree what they count of fields in structs."""
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
