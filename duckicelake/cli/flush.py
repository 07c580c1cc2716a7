"""`duckicelake flush`: write inlined rows to data files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, join_lines, one_line_errors

if TYPE_CHECKING:
    from duckicelake.catalog.context.services import Services
    from duckicelake.catalog.flush import Flushed
    from duckicelake.client.lake import Lake
    from duckicelake.client.operations import FlushInfo
    from duckicelake.lake.ducklake.maintenance import FlushableRows

EXAMPLES: Final = (
    "duckicelake flush",
    "duckicelake flush sales.orders",
    "duckicelake flush sales --older-than 10m --min-rows 1000",
)


@one_line_errors()
def flush(
    name: Annotated[
        str | None, typer.Argument(help="A table, as sales.orders, or a namespace (default: all tables).")
    ] = None,
    lake: LakeOption = None,
    older_than: Annotated[
        str | None, typer.Option(help="Only tables with rows of this age, as 10m, or from before a time.")
    ] = None,
    min_rows: Annotated[int, typer.Option(min=0, help="Only tables with at least this many rows in Postgres.")] = 0,
) -> None:
    """Write rows that tables keep in Postgres to data files, with their ids and history, sorted and partitioned.

    Prints a line for each table: how many rows went to how many files. Exits with 1 if a table couldn't be flushed.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from duckicelake.catalog.flush import find_waiting_tables
    from duckicelake.cli.console.terminal import open_progress, parse_time
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.settings.sources import read_settings

    before_ms = None if older_than is None else parse_time(older_than).timestamp() * 1000
    with open_lake(read_settings({"lake": lake}), "flush_table_rows") as services:
        found = [table for table in find_waiting_tables(services, name) if _is_due(table, before_ms, min_rows)]
        if not found:
            sys.stderr.write("nothing to flush\n")
        columns = (TextColumn("Flushing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with open_progress(*columns) as progress:
            is_flushed = [_flush(services, table) for table in progress.track(found)]
    if not all(is_flushed):
        raise typer.Exit(1)


def flush_over_rest(lake: Lake, name: str | None, older_than: str | None, min_rows: int) -> None:
    """Flush tables by the server, one after the other."""
    from duckicelake.errors import BadInputError, PipelineError
    from duckicelake.rest.names import parse_name

    if older_than is not None:
        raise BadInputError("--older-than needs the lake itself: give --lake, or --min-rows instead")
    is_table = name is not None and len(parse_name(name)) > 1 and not lake.client.namespace_exists(parse_name(name))
    if name is not None and is_table:
        found = [name]
    else:
        found = [size.name for size in lake.sizes(name or "") if size.inlined_rows >= max(min_rows, 1)]
    if not found:
        sys.stderr.write("nothing to flush\n")
    is_well = True
    for table in found:
        try:
            done = lake.table(table).flush()
        except PipelineError as error:
            if is_table:
                raise
            is_well = False
            sys.stderr.write(f"{table}: {join_lines(error)}\n")
        else:
            _print_flushed(table, done)
    if not is_well:
        raise typer.Exit(1)


def _is_due(table: FlushableRows, before_ms: float | None, min_rows: int) -> bool:
    is_old = before_ms is None or table.oldest_ms is None or table.oldest_ms < before_ms
    return is_old and table.rows >= min_rows


def _flush(services: Services, table: FlushableRows) -> bool:
    """Flush a table and print the outcome; return whether it worked."""
    from duckicelake.catalog.flush import flush_waiting
    from duckicelake.errors import CatalogError

    name = f"{table.schema_name}.{table.table_name}"
    try:
        flushed = flush_waiting(services, table)
    except CatalogError as error:
        sys.stderr.write(f"{name}: {join_lines(error)}\n")
        return False
    _print_flushed(name, flushed)
    return True


def _print_flushed(name: str, flushed: Flushed | FlushInfo) -> None:
    from duckicelake.errors import format_count

    deletes = [format_count(flushed.deletes, "delete")] if flushed.deletes else []
    what = [format_count(flushed.rows, "row"), *deletes, format_count(flushed.files, "file")]
    sys.stdout.write(f"{name}: {', '.join(what)}\n")
    sys.stdout.flush()
