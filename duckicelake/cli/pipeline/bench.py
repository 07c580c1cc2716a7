"""`duckicelake pipeline bench sensors`: options of the bench."""

from typing import Annotated

import typer

from duckicelake.cli.console.command import done_by, make_group
from duckicelake.cli.pipeline.app import AttachOption, app, command
from duckicelake.cli.pipeline.run import PipelineRun, Summary

bench = make_group("bench", "Measure how fast a lake is.")
app.add_typer(bench)


@command(
    "duckicelake pipeline bench sensors --rows 10000 --attach 'ducklake:postgres:…'",
    "duckicelake pipeline bench sensors --rows 1000 --engine pyiceberg --json",
    into=bench,
)
@done_by("duckicelake.cli.pipeline.sensor_bench.sensors")
def sensors(
    run: PipelineRun,
    rows: Annotated[int, typer.Option(min=1, help="How many rows each engine writes.")] = 1000,
    batch: Annotated[int, typer.Option(min=1, help="How many of them in one insert.")] = 10,
    engine: Annotated[
        list[str] | None, typer.Option(help="spark, pyiceberg or duckdb; may be repeated (default: all).")
    ] = None,
    namespace: Annotated[str, typer.Option(help="Where their tables go.")] = "bench_sensors",
    keep: Annotated[bool, typer.Option("--keep", help="Don't drop the tables.")] = False,
    attach: AttachOption = None,
) -> Summary:
    """Write what a car's sensors read, 23 columns in small batches; then 9 aggregations, and maintenance.

    Every engine writes a table of its own on the same lake. DuckDB, which goes to the lake directly, needs --attach.
    """
