"""Are two tables the same? Counts and checksums of all columns and of whole rows, across catalogs and engines.

    verify(spark, Comparison("source:ns.t", "ns.t", source={"type": "rest", "uri": "http://other:8181"}), SILENT)

Every engine computes its own checksums; nothing else travels, but a few rows where tables differ and keys are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from duckicelake.errors import BadColumnError, BadInputError
from duckicelake.pipeline import checksums
from duckicelake.pipeline.column_types import Type, is_comparable
from duckicelake.pipeline.destination import CATALOG_NAME
from duckicelake.pipeline.duckdb_lake import attach_lake
from duckicelake.pipeline.foreign_catalog import attach_source
from duckicelake.pipeline.progress import Reporter
from duckicelake.pipeline.sides import (
    DuckSide,
    RowDifference,
    Side,
    SparkSide,
    TableReference,
    find_row_differences,
    parse_reference,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_SHOWN_ROWS: Final = 10
"""Rows that differ and are shown."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison to make. left, right: `ns.t` of the lake, `source:ns.t`, `duckdb:ns.t`, each also `…@<snapshot>`.

    leave_out: columns that may differ. keys: columns that identify rows, by which some that differ are shown.
    source: properties of the other catalog, as Iceberg's documentation has them. attach: the lake for DuckDB.
    """

    left: str
    right: str
    leave_out: Sequence[str] = ()
    keys: Sequence[str] = ()
    source: Mapping[str, str] = field(default_factory=dict)
    attach: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ColumnSum:
    """Of a column: how many values aren't NULL, and their checksum as 16 hexadecimal digits."""

    values: int
    checksum: str


@dataclass(frozen=True, slots=True)
class ColumnDifference:
    """A column that isn't the same: its type, or its values; a type is None where the column is missing."""

    name: str
    left_type: str | None
    right_type: str | None
    left: ColumnSum | None = None
    right: ColumnSum | None = None


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What came of it, of left and right. checksums: of whole rows.

    If only those differ, every column has the same values, but in other rows.
    """

    equal: bool
    rows: tuple[int, int]
    checksums: tuple[str, str]
    compared: tuple[str, ...]
    differences: tuple[ColumnDifference, ...]
    row_differences: tuple[RowDifference, ...]


def compare_tables(spark: SparkSession, wanted: Comparison, reporter: Reporter) -> VerifyResult:
    """Compare two tables; BadInputError, BadColumnError, MissingTableError, JobConflictError."""
    with ExitStack() as stack:
        left, right = (_open_side(spark, parse_reference(text), wanted, stack) for text in (wanted.left, wanted.right))
        compared, differences = _compare_columns(left, right, wanted.leave_out)
        _check_keys(wanted.keys, [name for name, _ in compared])
        reporter.begin("reading both tables", 2, "tables")
        left_rows, left_sums = _compute_sums(left, compared)
        reporter.advance()
        right_rows, right_sums = _compute_sums(right, compared)
        reporter.done()
        for (name, type_), ours, theirs in zip(compared, left_sums[1:], right_sums[1:], strict=True):
            if ours != theirs:
                differences.append(ColumnDifference(name, str(type_), str(type_), ours, theirs))
        same = not differences and left_rows == right_rows and left_sums[0] == right_sums[0]
        found = () if same or not wanted.keys else _find_some_rows(left, right, compared, wanted.keys, reporter)
        left.check()
        right.check()
    return VerifyResult(
        equal=same,
        rows=(left_rows, right_rows),
        checksums=(left_sums[0].checksum, right_sums[0].checksum),
        compared=tuple(name for name, _ in compared),
        differences=tuple(differences),
        row_differences=tuple(found),
    )


def _open_side(spark: SparkSession, reference: TableReference, wanted: Comparison, stack: ExitStack) -> Side:
    match reference.engine:
        case "duckdb":
            return DuckSide(stack.enter_context(attach_lake(wanted.attach, read_only=True)), reference)
        case "source":
            return SparkSide(spark, attach_source(spark, wanted.source), reference)
        case _:
            return SparkSide(spark, CATALOG_NAME, reference)


def _compare_columns(
    left: Side, right: Side, leave_out: Sequence[str]
) -> tuple[list[tuple[str, Type]], list[ColumnDifference]]:
    """Return what both have with one type, and what they don't.

    Raises BadColumnError for what can't be compared, or left out.
    """
    ours, theirs = left.columns, right.columns
    unknown = [name for name in leave_out if name not in ours and name not in theirs]
    if unknown:
        raise BadColumnError(f"There is no column {unknown[0]!r} to leave out: there are {', '.join(ours)}")
    compared: list[tuple[str, Type]] = []
    differences = []
    for name in dict.fromkeys((*ours, *theirs)):
        if name in leave_out:
            continue
        one, other = ours.get(name), theirs.get(name)
        if one is None or one != other:
            differences.append(ColumnDifference(name, _format_type(one), _format_type(other)))
        elif not is_comparable(one):
            raise BadColumnError(f"{name} can't be compared, being {one}: leave it out with --leave-out {name}")
        else:
            compared.append((name, one))
    if not compared:
        raise BadColumnError("The tables have no column in common, by name and type")
    return compared, differences


def _format_type(type_: Type | None) -> str | None:
    return None if type_ is None else str(type_)


def _check_keys(keys: Sequence[str], names: Sequence[str]) -> None:
    missing = [key for key in keys if key not in names]
    if missing:
        raise BadInputError(f"{missing[0]!r} can't be a key: it is none of the columns compared, {', '.join(names)}")


def _compute_sums(side: Side, columns: Sequence[tuple[str, Type]]) -> tuple[int, list[ColumnSum]]:
    """Return how many rows; the sums of whole rows, then of each column."""
    row = side.rows(checksums.build_checksum_query(side.dialect, side.relation, columns))[0]
    sums = [
        ColumnSum(row[at], f"{checksums.join_halves(row[at + 1], row[at + 2]):016x}") for at in range(0, len(row), 3)
    ]
    return sums[0].values, sums


def _find_some_rows(
    left: Side, right: Side, columns: Sequence[tuple[str, Type]], keys: Sequence[str], reporter: Reporter
) -> list[RowDifference]:
    reporter.begin("looking for rows that differ")
    try:
        return find_row_differences(left, right, columns, keys, MAX_SHOWN_ROWS)
    finally:
        reporter.done()
