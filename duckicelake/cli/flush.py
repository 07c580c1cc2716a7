"""`duckicelake flush`: write inlined rows to data files."""

import sys
from datetime import datetime
from pathlib import Path

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.flush import find_waiting_tables, flush_waiting
from duckicelake.cli.console import terminal
from duckicelake.cli.console.command import join_lines
from duckicelake.cli.console.terminal import format_count, parse_time
from duckicelake.cli.wiring.services import open_lake
from duckicelake.errors import CatalogError
from duckicelake.lake.ducklake.maintenance import FlushableRows
from duckicelake.settings.model import Settings
from duckicelake.settings.sources import read_settings


def flush(*, name: str | None, lake: Path | None, older_than: str | None, min_rows: int) -> None:
    """Flush tables, a line for each. Raises as `flush_tables`, InvalidRequest; Exit if one couldn't be flushed."""
    before = None if older_than is None else parse_time(older_than)
    if not flush_tables(read_settings({"lake": lake}), name, before, min_rows):
        raise typer.Exit(1)


def flush_tables(settings: Settings, name: str | None, before: datetime | None, min_rows: int) -> bool:
    """Flush the tables of a name, or all, that have rows from before a moment, and so many; whether all could be.

    Raises NoSuchTable, Unavailable, StartupError where there is no lake.
    """
    before_ms = None if before is None else before.timestamp() * 1000
    with open_lake(settings, "flush_table_rows") as services:
        found = [table for table in find_waiting_tables(services, name) if _is_due(table, before_ms, min_rows)]
        if not found:
            sys.stderr.write("nothing to flush\n")
        columns = (TextColumn("Flushing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with terminal.open_progress(*columns) as progress:
            done = [_flush(services, table) for table in progress.track(found)]
            return all(done)


def _is_due(table: FlushableRows, before_ms: float | None, min_rows: int) -> bool:
    is_old = before_ms is None or table.oldest_ms is None or table.oldest_ms < before_ms
    return is_old and table.rows >= min_rows


def _flush(services: Services, table: FlushableRows) -> bool:
    name = f"{table.schema_name}.{table.table_name}"
    try:
        flushed = flush_waiting(services, table)
    except CatalogError as error:
        sys.stderr.write(f"{name}: {join_lines(error)}\n")
        return False
    deletes = [format_count(flushed.deletes, "delete")] if flushed.deletes else []
    what = [format_count(flushed.rows, "row"), *deletes, format_count(flushed.files, "file")]
    sys.stdout.write(f"{name}: {', '.join(what)}\n")
    sys.stdout.flush()
    return True
