"""`duckicelake pipeline bench sensors`: run the bench and print its times."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from duckicelake.cli.console.command import add_group, make_group
from duckicelake.cli.pipeline.app import AttachOption, app, command
from duckicelake.cli.pipeline.run import PipelineRun, Summary

if TYPE_CHECKING:
    from rich.table import Table

    from duckicelake.pipeline.sensor_bench import SensorTimes

bench = make_group("bench", "Measure how fast a lake is.")
add_group(app, bench)


@command(
    "duckicelake pipeline bench sensors --rows 10000 --attach 'ducklake:postgres:…'",
    "duckicelake pipeline bench sensors --rows 1000 --engine pyiceberg --json",
    into=bench,
)
def sensors(
    run: PipelineRun,
    rows: Annotated[int, typer.Option(min=1, help="Rows that each engine writes.")] = 1000,
    batch: Annotated[int, typer.Option(min=1, help="Rows of one insert.")] = 10,
    engine: Annotated[
        list[str] | None, typer.Option(help="spark, pyiceberg or duckdb; may be repeated (default: all).")
    ] = None,
    namespace: Annotated[str, typer.Option(help="Namespace of the engines' tables.")] = "bench_sensors",
    keep: Annotated[bool, typer.Option("--keep", help="Keep the tables afterwards.")] = False,
    attach: AttachOption = None,
) -> Summary:
    """Write what a car's sensors read, 23 columns in small batches; then 9 aggregations, and maintenance.

    Every engine writes a table of its own on the same lake. DuckDB, which goes to the lake directly, needs --attach.
    """
    from rich.console import Console

    from duckicelake.errors import BadInputError
    from duckicelake.pipeline.sensor_bench import ENGINES, SensorBench, bench_sensors
    from duckicelake.rest.names import parse_name

    engines = engine or [name for name in ENGINES if name != "duckdb" or attach is not None]
    unknown = sorted(set(engines) - set(ENGINES))
    if unknown:
        raise BadInputError(f"Unknown engine {unknown[0]!r}: choose from {', '.join(ENGINES)}")
    wanted = SensorBench(rows, batch, engines, parse_name(namespace), attach, keep)
    with run.spark() as spark:
        times = bench_sensors(spark, run.client, wanted, run.reporter)
    if run.as_json:
        return {"rows": rows, "batch": batch, "engines": [asdict(engine_times) for engine_times in times]}
    Console(highlight=False).print(_build_table(times))
    return None


def _build_table(times: list[SensorTimes]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("engine", "insert", "each batch", "9 aggregations", "maintenance", "9 aggregations again"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for measured in times:
        table.add_row(
            measured.engine,
            f"{measured.insert:.2f} s",
            f"{measured.insert / measured.batches * 1000:.1f} ms",
            *(
                f"{seconds:.2f} s"
                for seconds in (measured.aggregation, measured.maintenance, measured.aggregation_again)
            ),
        )
    return table
