"""`duckicelake pipeline bench sensors`: small inserts through Spark, PyIceberg and DuckDB."""

from typing import Annotated

import typer

from duckicelake.cli.deferring import done_by
from duckicelake.cli.explaining import group
from duckicelake.cli.pipeline.app import app, command
from duckicelake.cli.pipeline.run import Run, Summary
from duckicelake.cli.pipeline.source import Attach

bench = group("bench", "Measure how fast a lake is.")
app.add_typer(bench)


@command(
    "duckicelake pipeline bench sensors --rows 10000 --attach 'ducklake:postgres:…'",
    "duckicelake pipeline bench sensors --rows 1000 --engine pyiceberg --json",
    into=bench,
)
@done_by("pipeline.sensors:sensors")
def sensors(
    run: Run,
    rows: Annotated[int, typer.Option(min=1, help="How many rows each engine writes.")] = 1000,
    batch: Annotated[int, typer.Option(min=1, help="How many of them in one insert.")] = 10,
    engine: Annotated[
        list[str] | None, typer.Option(help="spark, pyiceberg or duckdb; may be repeated (default: all).")
    ] = None,
    namespace: Annotated[str, typer.Option(help="Where their tables go.")] = "bench_sensors",
    keep: Annotated[bool, typer.Option("--keep", help="Don't drop the tables.")] = False,
    attach: Attach = None,
) -> Summary:
    """Write what a car's sensors read, 23 columns in small batches; then 9 aggregations, and maintenance.

    Every engine writes a table of its own on the same lake. DuckDB, which goes to the lake directly, needs --attach.
    """
