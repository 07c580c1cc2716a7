"""`duckicelake pipeline changes`: what happened to a table's rows."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from duckicelake.cli.pipeline.app import command
from duckicelake.cli.pipeline.run import PipelineRun, Summary
from duckicelake.errors import BadInput
from duckicelake.pipeline.changes import (
    Bookmark,
    ChangeOutlet,
    ChangesRequest,
    JsonLinesOutlet,
    TotalsOutlet,
    follow_changes,
    open_change_table,
    send_changes,
)
from duckicelake.pipeline.destination import Target
from duckicelake.rest.names import parse_table


@command(
    "duckicelake pipeline changes shop.orders --from 1041 --to 1057",
    "duckicelake pipeline changes shop.orders --state orders.state --follow | ./apply-changes",
    "duckicelake pipeline changes shop.orders --into audit.orders_changes",
)
def changes(
    run: PipelineRun,
    table: Annotated[str, typer.Argument(help="As ns.t.")],
    from_: Annotated[
        int | None, typer.Option("--from", help="Snapshot after which to begin (default: the table's beginning).")
    ] = None,
    to: Annotated[int | None, typer.Option(help="Snapshot with which to end (default: the current one).")] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help="Column that tells rows apart (default: row ids, or the identifier fields); repeatable."),
    ] = None,
    into: Annotated[
        str | None, typer.Option(help="Table that takes the changes, made if it isn't there (default: lines of JSON).")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="File that keeps how far the lines are; the next run goes on from there.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with snapshots as they come.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between looks for new snapshots.")] = 5.0,
) -> Summary:
    """Tell inserts, deletes and updates of a table's rows, one snapshot after the other.

    Lines of JSON go to standard output, each snapshot's at least once; --json counts them only. A table that takes
    changes has each exactly once, and remembers itself how far it is: run the command again, and it goes on.
    """
    if follow and to is not None:
        raise BadInput("--follow has no end: leave --to away")
    if state is not None and (into is not None or run.as_json):
        raise BadInput(
            "--state is for lines of JSON: the table of --into keeps itself how far it is, --json is a count"
        )
    request = ChangesRequest(*parse_table(table), from_, to, key or ())
    uuid = run.client.load_table(request.namespace, request.table, "refs")["metadata"]["table-uuid"]
    bookmark = None if state is None else Bookmark(state, uuid)
    with run.spark() as spark, _open_outlet(run, spark, request, uuid, into, bookmark) as outlet:
        run.reporter.begin(f"changes of {request}", unit="snapshots")
        if follow:
            follow_changes(spark, run.client, request, outlet, run.reporter, partial(time.sleep, every))
        else:
            send_changes(spark, run.client, request, outlet, run.reporter)
        run.reporter.done()
    if into is None and not run.as_json:
        run.reporter.say(f"{outlet.counts['changes']:,} changes, up to snapshot {_find_last_snapshot(outlet)}")
        return None
    return {"table": str(request), "upto": _find_last_snapshot(outlet), **outlet.counts}


def _find_last_snapshot(outlet: ChangeOutlet) -> int | None:
    return None if outlet.reached is None else outlet.reached.snapshot_id


@contextmanager
def _open_outlet(
    run: PipelineRun, spark: Any, request: ChangesRequest, uuid: str, into: str | None, bookmark: Bookmark | None
) -> Iterator[ChangeOutlet]:
    if into is not None:
        with open_change_table(spark, run.client, str(request), uuid, Target(*parse_table(into))) as table:
            yield table
    elif run.as_json:
        yield TotalsOutlet()
    else:
        yield JsonLinesOutlet(sys.stdout, bookmark)
