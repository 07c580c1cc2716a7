"""`duckicelake pipeline optimize`: one table's files rewritten now, whether its policies find it due or not."""

from dataclasses import asdict
from typing import Annotated

import typer

from duckicelake.cli.pipeline.app import command
from duckicelake.cli.pipeline.run import Run, Summary
from duckicelake.pipeline.maintain import MaintainRequest, maintain, states_of
from duckicelake.pipeline.optimize import optimization, order_of
from duckicelake.rest.names import parse_table


@command(
    "duckicelake pipeline optimize sales.orders",
    "duckicelake pipeline optimize sales.orders --zorder-by day,customer",
    "duckicelake pipeline optimize sales.orders --sort-by 'day DESC, id' --where \"day >= DATE '2026-01-01'\"",
)
def optimize(
    run: Run,
    table: Annotated[str, typer.Argument(help="The table, as ns.t.")],
    where: Annotated[
        str | None, typer.Option(help="Spark's SQL; only files that may hold such rows are rewritten.")
    ] = None,
    zorder_by: Annotated[
        str | None, typer.Option(help="Columns, as day,customer: rows that are near in all of them come together.")
    ] = None,
    sort_by: Annotated[str | None, typer.Option(help="An order within files instead, as 'day DESC, id'.")] = None,
    target_mb: Annotated[
        int | None, typer.Option(min=1, help="Size of files (default: the table's `write.target-file-size-bytes`).")
    ] = None,
) -> Summary:
    """Rewrite a table's small files, and those with deleted rows, into few large ones; sorted if you say how: then all.

    Rows, row ids and history stay. Others may read and write meanwhile: what conflicts is tried again, then skipped.
    Exits with 1 if it failed.
    """
    namespace, name = parse_table(table)
    states = states_of(run.client, MaintainRequest(namespace, name))
    planned = optimization(states, table, order_of(sort_by, zorder_by), where, target_mb and target_mb << 20)
    with run.spark() as spark:
        (done,) = maintain(spark, run.client, planned, run.reporter)
    run.tell({"job": asdict(done)} if run.as_json else done.counts)
    if done.result == "failed":
        raise typer.Exit(1)
    return None
