"""`duckicelake pipeline verify`: options of the comparison."""

from typing import Annotated

import typer

from duckicelake.cli.console.command import done_by
from duckicelake.cli.pipeline.app import AttachOption, OptionalSourceOption, command
from duckicelake.cli.pipeline.run import PipelineRun, Summary

_TABLE = "ns.t of the lake, source:ns.t of another catalog, or duckdb:ns.t as DuckDB reads the lake; …@<snapshot> too."


@command(
    "duckicelake pipeline verify source:sales.orders sales.orders --source type=rest --source uri=http://other:8181",
    "duckicelake pipeline verify sales.orders duckdb:sales.orders --attach 'ducklake:postgres:…' --key id",
)
@done_by("duckicelake.cli.pipeline.verify_report.verify")
def verify(
    run: PipelineRun,
    left: Annotated[str, typer.Argument(help=_TABLE)],
    right: Annotated[str, typer.Argument(help="What it is compared with, likewise.")],
    key: Annotated[
        list[str] | None,
        typer.Option(help="A column that tells rows apart; shows some rows that differ; may be repeated."),
    ] = None,
    leave_out: Annotated[list[str] | None, typer.Option(help="A column that may differ; may be repeated.")] = None,
    source: OptionalSourceOption = None,
    attach: AttachOption = None,
) -> Summary:
    """Compare two tables: counts, and checksums of each column and of whole rows. Exits with 9 if they differ.

    Values are compared exactly: 0.0 isn't -0.0, all NaN are one. The order of rows and of columns doesn't matter, nor
    does the width of integers.
    """
