"""`duckicelake pipeline verify`: whether two tables are the same."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from duckicelake.cli.pipeline.app import command
from duckicelake.cli.pipeline.exits import DIFFERENT
from duckicelake.cli.pipeline.run import Run, Summary
from duckicelake.cli.pipeline.source import Attach, OptionalSource, packages_of, properties_of
from duckicelake.pipeline.row_differences import RowDifference
from duckicelake.pipeline.verify import ColumnDifference, Comparison, Sum, VerifyResult
from duckicelake.pipeline.verify import verify as compare

_TABLE = "ns.t of the lake, source:ns.t of another catalog, or duckdb:ns.t as DuckDB reads the lake; …@<snapshot> too."


@command(
    "duckicelake pipeline verify source:sales.orders sales.orders --source type=rest --source uri=http://other:8181",
    "duckicelake pipeline verify sales.orders duckdb:sales.orders --attach 'ducklake:postgres:…' --key id",
)
def verify(
    run: Run,
    left: Annotated[str, typer.Argument(help=_TABLE)],
    right: Annotated[str, typer.Argument(help="What it is compared with, likewise.")],
    key: Annotated[
        list[str] | None,
        typer.Option(help="A column that tells rows apart; shows some rows that differ; may be repeated."),
    ] = None,
    leave_out: Annotated[list[str] | None, typer.Option(help="A column that may differ; may be repeated.")] = None,
    source: OptionalSource = None,
    attach: Attach = None,
) -> Summary:
    """Compare two tables: counts, and checksums of each column and of whole rows. Exits with 9 if they differ.

    Values are compared exactly: 0.0 isn't -0.0, all NaN are one. The order of rows and of columns doesn't matter, nor
    does the width of integers.
    """
    properties = properties_of(source)
    wanted = Comparison(left, right, leave_out or (), key or (), properties, attach)
    with run.spark(packages_of(properties)) as spark:
        result = compare(spark, wanted, run.reporter)
    run.tell(asdict(result) if run.as_json else None)
    if not run.as_json:
        typer.echo("\n".join(_lines(wanted, result)))
    if not result.equal:
        raise typer.Exit(DIFFERENT)
    return None


def _lines(wanted: Comparison, result: VerifyResult) -> Sequence[str]:
    rows, sums = result.rows, result.checksums
    counted = f"{rows[0]:,} rows" if rows[0] == rows[1] else f"{rows[0]:,} and {rows[1]:,} rows"
    checked = sums[0] if sums[0] == sums[1] else f"{sums[0]} and {sums[1]}"
    verdict = "are the same" if result.equal else "differ"
    lines = [f"{wanted.left} and {wanted.right} {verdict}: {counted}, {len(result.compared)} columns, {checked}"]
    if not result.equal and not result.differences and rows[0] == rows[1]:
        lines.append("each column has the same values, but in other rows")
    return lines + [_column(each) for each in result.differences] + [_row(each) for each in result.row_differences]


def _column(found: ColumnDifference) -> str:
    if found.left is None or found.right is None:
        return f"column {found.name}: {found.left_type or 'missing'} and {found.right_type or 'missing'}"
    return f"column {found.name}: {_sum(found.left)} and {_sum(found.right)}"


def _sum(of: Sum) -> str:
    return f"{of.values:,} values, {of.checksum}"


def _row(found: RowDifference) -> str:
    key = ", ".join(f"{name} {value}" for name, value in found.key.items())
    if not found.values:
        return f"row with {key}: {found.left} and {found.right}"
    values = "; ".join(f"{name} {one} and {other}" for name, (one, other) in found.values.items())
    return f"row with {key}: {values}"
