"""What `duckicelake flush` does."""

import sys
from datetime import datetime
from pathlib import Path

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from duckicelake.catalog.flusher import flush_waiting, waiting_tables
from duckicelake.catalog.services import Services
from duckicelake.cli import terminal
from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.complaining import one_line
from duckicelake.cli.counting import counted
from duckicelake.cli.moments import moment
from duckicelake.errors import CatalogError
from duckicelake.lake.maintenance import Waiting
from duckicelake.settings import Settings, read_settings


def flush(*, name: str | None, lake: Path | None, older_than: str | None, min_rows: int) -> None:
    """Flush tables, a line for each. Raises as `flush_tables`, InvalidRequest; Exit if one couldn't be flushed."""
    before = None if older_than is None else moment(older_than)
    if not flush_tables(read_settings({"lake": lake}), name, before, min_rows):
        raise typer.Exit(1)


def flush_tables(settings: Settings, name: str | None, before: datetime | None, min_rows: int) -> bool:
    """Flush the tables of a name, or all, that have rows from before a moment, and so many; whether all could be.

    Raises NoSuchTable, Unavailable, StartupError where there is no lake.
    """
    before_ms = None if before is None else before.timestamp() * 1000
    with opened(settings, "flush_table_rows") as services:
        found = [table for table in waiting_tables(services, name) if _is_due(table, before_ms, min_rows)]
        if not found:
            sys.stderr.write("nothing to flush\n")
        columns = (TextColumn("Flushing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with terminal.progress(*columns) as progress:
            done = [_flush(services, table) for table in progress.track(found)]
            return all(done)


def _is_due(table: Waiting, before_ms: float | None, min_rows: int) -> bool:
    is_old = before_ms is None or table.oldest_ms is None or table.oldest_ms < before_ms
    return is_old and table.rows >= min_rows


def _flush(services: Services, table: Waiting) -> bool:
    name = f"{table.schema_name}.{table.table_name}"
    try:
        flushed = flush_waiting(services, table)
    except CatalogError as error:
        sys.stderr.write(f"{name}: {one_line(error)}\n")
        return False
    deletes = [counted(flushed.deletes, "delete")] if flushed.deletes else []
    what = [counted(flushed.rows, "row"), *deletes, counted(flushed.files, "file")]
    sys.stdout.write(f"{name}: {', '.join(what)}\n")
    sys.stdout.flush()
    return True
