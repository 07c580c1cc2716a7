"""What `duckicelake pipeline verify` does and prints."""

from collections.abc import Sequence
from dataclasses import asdict

import typer

from duckicelake.cli.pipeline.exits import DIFFERENT
from duckicelake.cli.pipeline.run import Run, Summary
from duckicelake.cli.pipeline.source import packages_of, properties_of
from duckicelake.pipeline.row_differences import RowDifference
from duckicelake.pipeline.verify import ColumnDifference, Comparison, Sum, VerifyResult
from duckicelake.pipeline.verify import verify as compare


def verify(
    run: Run,
    *,
    left: str,
    right: str,
    key: list[str] | None,
    leave_out: list[str] | None,
    source: list[str] | None,
    attach: str | None,
) -> Summary:
    """Compare, and print what differs unless JSON is wanted. Raises Exit if anything does."""
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
