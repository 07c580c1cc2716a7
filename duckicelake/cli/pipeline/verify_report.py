"""`duckicelake pipeline verify`: compare two tables and print the differences."""

from collections.abc import Sequence
from dataclasses import asdict

import typer

from duckicelake.cli.pipeline.app import list_packages, parse_properties
from duckicelake.cli.pipeline.exit_codes import DIFFERENT_EXIT_CODE
from duckicelake.cli.pipeline.run import PipelineRun, Summary
from duckicelake.pipeline.sides import RowDifference
from duckicelake.pipeline.verification import ColumnDifference, ColumnSum, Comparison, VerifyResult
from duckicelake.pipeline.verification import compare_tables as compare


def verify(
    run: PipelineRun,
    *,
    left: str,
    right: str,
    key: list[str] | None,
    leave_out: list[str] | None,
    source: list[str] | None,
    attach: str | None,
) -> Summary:
    """Compare, and print what differs unless JSON is wanted. Raises Exit if anything does."""
    properties = parse_properties(source)
    wanted = Comparison(left, right, leave_out or (), key or (), properties, attach)
    with run.spark(list_packages(properties)) as spark:
        result = compare(spark, wanted, run.reporter)
    run.tell(asdict(result) if run.as_json else None)
    if not run.as_json:
        typer.echo("\n".join(_build_lines(wanted, result)))
    if not result.equal:
        raise typer.Exit(DIFFERENT_EXIT_CODE)
    return None


def _build_lines(wanted: Comparison, result: VerifyResult) -> Sequence[str]:
    rows, sums = result.rows, result.checksums
    counted = f"{rows[0]:,} rows" if rows[0] == rows[1] else f"{rows[0]:,} and {rows[1]:,} rows"
    checked = sums[0] if sums[0] == sums[1] else f"{sums[0]} and {sums[1]}"
    verdict = "are the same" if result.equal else "differ"
    lines = [f"{wanted.left} and {wanted.right} {verdict}: {counted}, {len(result.compared)} columns, {checked}"]
    if not result.equal and not result.differences and rows[0] == rows[1]:
        lines.append("each column has the same values, but in other rows")
    return (
        lines
        + [_describe_column(each) for each in result.differences]
        + [_describe_row(each) for each in result.row_differences]
    )


def _describe_column(found: ColumnDifference) -> str:
    if found.left is None or found.right is None:
        return f"column {found.name}: {found.left_type or 'missing'} and {found.right_type or 'missing'}"
    return f"column {found.name}: {_describe_sum(found.left)} and {_describe_sum(found.right)}"


def _describe_sum(of: ColumnSum) -> str:
    return f"{of.values:,} values, {of.checksum}"


def _describe_row(found: RowDifference) -> str:
    key = ", ".join(f"{name} {value}" for name, value in found.key.items())
    if not found.values:
        return f"row with {key}: {found.left} and {found.right}"
    values = "; ".join(f"{name} {one} and {other}" for name, (one, other) in found.values.items())
    return f"row with {key}: {values}"
