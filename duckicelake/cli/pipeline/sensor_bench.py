"""`duckicelake pipeline bench sensors`: run it and print its times."""

from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from duckicelake.cli.pipeline.run import PipelineRun, Summary
from duckicelake.errors import BadInput
from duckicelake.pipeline.sensor_bench import ENGINES, SensorBench, SensorTimes, bench_sensors
from duckicelake.rest.names import parse_name


def sensors(
    run: PipelineRun, *, rows: int, batch: int, engine: list[str] | None, namespace: str, keep: bool, attach: str | None
) -> Summary:
    """Measure, and print a table of it unless JSON is wanted. Raises BadInput for an unknown engine."""
    engines = engine or [name for name in ENGINES if name != "duckdb" or attach is not None]
    unknown = sorted(set(engines) - set(ENGINES))
    if unknown:
        raise BadInput(f"There is no engine {unknown[0]!r}: choose of {', '.join(ENGINES)}")
    wanted = SensorBench(rows, batch, engines, parse_name(namespace), attach, keep)
    with run.spark() as spark:
        times = bench_sensors(spark, run.client, wanted, run.reporter)
    if run.as_json:
        return {"rows": rows, "batch": batch, "engines": [asdict(each) for each in times]}
    Console(highlight=False).print(_build_table(times))
    return None


def _build_table(times: list[SensorTimes]) -> Table:
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
