"""`duckicelake pipeline changes`: print or store the changes of a table's rows."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duckicelake.cli.pipeline.app import command
from duckicelake.cli.pipeline.run import PipelineRun, Summary
from duckicelake.errors import format_count

if TYPE_CHECKING:
    from duckicelake.pipeline.changes import Bookmark, ChangeOutlet, ChangesRequest


@command(
    "duckicelake pipeline changes shop.orders --from 1041 --to 1057",
    "duckicelake pipeline changes shop.orders --state orders.state --follow | ./apply-changes",
    "duckicelake pipeline changes shop.orders --into audit.orders_changes",
)
def changes(
    run: PipelineRun,
    table: Annotated[str, typer.Argument(help="The table, as ns.t.")],
    from_: Annotated[
        int | None, typer.Option("--from", help="Snapshot after which to begin (default: the table's beginning).")
    ] = None,
    to: Annotated[int | None, typer.Option(help="Snapshot with which to end (default: the current one).")] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help="Column that identifies rows (default: row ids, or the identifier fields); may be repeated."),
    ] = None,
    into: Annotated[
        str | None, typer.Option(help="Table for the changes, created if missing (default: print lines of JSON).")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="File that stores the last printed snapshot; the next run continues from there.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Continue with new snapshots as they come.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between checks for new snapshots.")] = 5.0,
) -> Summary:
    """Print inserts, deletes and updates of a table's rows, one snapshot after the other.

    Lines of JSON go to standard output, those of each snapshot at least once; --json only counts them. A table of
    changes gets each change exactly once, and stores the last snapshot itself: a repeated command continues from there.
    """
    from duckicelake.errors import BadInputError
    from duckicelake.pipeline.changes import Bookmark, ChangesRequest, follow_changes, send_changes
    from duckicelake.rest.names import parse_table

    if follow and to is not None:
        raise BadInputError("--follow and --to exclude each other: --follow has no end")
    if state is not None and (into is not None or run.as_json):
        raise BadInputError(
            "--state works with lines of JSON only: leave out --into, whose table stores its position, and --json"
        )
    request = ChangesRequest(*parse_table(table), from_, to, key or ())
    uuid = run.client.load_table(request.namespace, request.table, "refs")["metadata"]["table-uuid"]
    bookmark = None if state is None else Bookmark(state, uuid, from_)
    with run.spark() as spark, _open_outlet(run, spark, request, uuid, into, bookmark) as outlet:
        run.reporter.begin(f"changes of {request}", unit="snapshots")
        if follow:
            follow_changes(spark, run.client, request, outlet, run.reporter, partial(time.sleep, every))
        else:
            send_changes(spark, run.client, request, outlet, run.reporter)
        run.reporter.done()
    if into is None and not run.as_json:
        run.reporter.say(
            f"{format_count(outlet.counts['changes'], 'change')}, up to snapshot {_find_last_snapshot(outlet)}"
        )
        return None
    return {"table": str(request), "upto": _find_last_snapshot(outlet), **outlet.counts}


def _find_last_snapshot(outlet: ChangeOutlet) -> int | None:
    return None if outlet.reached is None else outlet.reached.snapshot_id


@contextmanager
def _open_outlet(
    run: PipelineRun, spark: Any, request: ChangesRequest, uuid: str, into: str | None, bookmark: Bookmark | None
) -> Iterator[ChangeOutlet]:
    from duckicelake.pipeline.changes import JsonLinesOutlet, TotalsOutlet, open_change_table
    from duckicelake.pipeline.destination import Target
    from duckicelake.rest.names import parse_table

    if into is not None:
        with open_change_table(spark, run.client, str(request), uuid, Target(*parse_table(into))) as table:
            yield table
    elif run.as_json:
        yield TotalsOutlet()
    else:
        yield JsonLinesOutlet(sys.stdout, bookmark)
