"""`duckicelake pipeline verify`: compare two tables and print the differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from duckicelake.cli.pipeline.app import (
    DIFFERENT_EXIT_CODE,
    AttachOption,
    OptionalSourceOption,
    command,
    list_packages,
    parse_properties,
)
from duckicelake.cli.pipeline.run import PipelineRun, Summary
from duckicelake.errors import format_count

if TYPE_CHECKING:
    from duckicelake.pipeline.sides import RowDifference
    from duckicelake.pipeline.verification import ColumnDifference, ColumnSum, Comparison, VerifyResult

_TABLE_HELP = (
    "ns.t of the lake, source:ns.t of another catalog, or duckdb:ns.t as DuckDB reads the lake; …@<snapshot> too."
)


@command(
    "duckicelake pipeline verify source:sales.orders sales.orders --source type=rest --source uri=http://other:8181",
    "duckicelake pipeline verify sales.orders duckdb:sales.orders --attach 'ducklake:postgres:…' --key id",
)
def verify(
    run: PipelineRun,
    left: Annotated[str, typer.Argument(help=_TABLE_HELP)],
    right: Annotated[str, typer.Argument(help="The table to compare it with, named likewise.")],
    key: Annotated[
        list[str] | None,
        typer.Option(help="Column that identifies rows, to print some rows that differ; may be repeated."),
    ] = None,
    leave_out: Annotated[list[str] | None, typer.Option(help="Column that is not compared; may be repeated.")] = None,
    source: OptionalSourceOption = None,
    attach: AttachOption = None,
) -> Summary:
    """Compare two tables: counts, and checksums of each column and of whole rows. Exits with 9 if they differ.

    Values are compared exactly: 0.0 isn't -0.0, all NaN are one. The order of rows and of columns doesn't matter, nor
    does the width of integers.
    """
    from duckicelake.pipeline.verification import Comparison, compare_tables

    properties = parse_properties(source)
    wanted = Comparison(left, right, leave_out or (), key or (), properties, attach)
    with run.spark(list_packages(properties)) as spark:
        result = compare_tables(spark, wanted, run.reporter)
    run.print_summary(asdict(result) if run.as_json else None)
    if not run.as_json:
        typer.echo("\n".join(_build_lines(wanted, result)))
    if not result.equal:
        raise typer.Exit(DIFFERENT_EXIT_CODE)
    return None


def _build_lines(wanted: Comparison, result: VerifyResult) -> Sequence[str]:
    rows, sums = result.rows, result.checksums
    counted = format_count(rows[1], "row") if rows[0] == rows[1] else f"{rows[0]:,} and {format_count(rows[1], 'row')}"
    checked = sums[0] if sums[0] == sums[1] else f"{sums[0]} and {sums[1]}"
    verdict = "are the same" if result.equal else "differ"
    columns = format_count(len(result.compared), "column")
    lines = [f"{wanted.left} and {wanted.right} {verdict}: {counted}, {columns}, {checked}"]
    if not result.equal and not result.differences and rows[0] == rows[1]:
        lines.append("each column has the same values, but in other rows")
    return (
        lines
        + [_describe_column(column) for column in result.differences]
        + [_describe_row(row) for row in result.row_differences]
    )


def _describe_column(found: ColumnDifference) -> str:
    if found.left is None or found.right is None:
        return f"column {found.name}: {found.left_type or 'missing'} and {found.right_type or 'missing'}"
    return f"column {found.name}: {_describe_sum(found.left)} and {_describe_sum(found.right)}"


def _describe_sum(column: ColumnSum) -> str:
    return f"{format_count(column.values, 'value')}, {column.checksum}"


def _describe_row(found: RowDifference) -> str:
    key = ", ".join(f"{name} {value}" for name, value in found.key.items())
    if not found.values:
        return f"row with {key}: {found.left} and {found.right}"
    values = "; ".join(f"{name} {one} and {other}" for name, (one, other) in found.values.items())
    return f"row with {key}: {values}"
