"""`duckicelake pipeline bench sensors`: small inserts through Spark, PyIceberg and DuckDB."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from duckicelake.cli.explaining import group
from duckicelake.cli.pipeline.app import app, command
from duckicelake.cli.pipeline.run import Run, Summary
from duckicelake.cli.pipeline.source import Attach
from duckicelake.errors import BadInput
from duckicelake.pipeline.sensor_bench import ENGINES, SensorBench, SensorTimes, bench_sensors
from duckicelake.rest.names import parse_name

bench = group("bench", "Measure how fast a lake is.")
app.add_typer(bench)


@command(
    "duckicelake pipeline bench sensors --rows 10000 --attach 'ducklake:postgres:…'",
    "duckicelake pipeline bench sensors --rows 1000 --engine pyiceberg --json",
    into=bench,
)
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
    engines = engine or [name for name in ENGINES if name != "duckdb" or attach is not None]
    unknown = sorted(set(engines) - set(ENGINES))
    if unknown:
        raise BadInput(f"There is no engine {unknown[0]!r}: choose of {', '.join(ENGINES)}")
    wanted = SensorBench(rows, batch, engines, parse_name(namespace), attach, keep)
    with run.spark() as spark:
        times = bench_sensors(spark, run.client, wanted, run.reporter)
    if run.as_json:
        return {"rows": rows, "batch": batch, "engines": [asdict(each) for each in times]}
    Console(highlight=False).print(_table(times))
    return None


def _table(times: list[SensorTimes]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("engine", "insert", "each batch", "9 aggregations", "maintenance", "9 aggregations again"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for each in times:
        table.add_row(
            each.engine,
            f"{each.insert:.2f} s",
            f"{each.insert / each.batches * 1000:.1f} ms",
            *(f"{seconds:.2f} s" for seconds in (each.aggregation, each.maintenance, each.aggregation_again)),
        )
    return table
