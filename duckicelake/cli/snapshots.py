"""`duckicelake clone`, `expire` and `restore`: commands over the snapshots of a table."""

from datetime import datetime
from pathlib import Path

import typer

from duckicelake.catalog.clone import CloneRequest, clone_table
from duckicelake.catalog.context.text import parse_full_name
from duckicelake.catalog.expiry import expire_snapshots
from duckicelake.catalog.restore import Restored, restore_table
from duckicelake.cli.console.terminal import format_count, parse_time
from duckicelake.cli.wiring.services import open_lake
from duckicelake.settings.model import Settings
from duckicelake.settings.sources import read_settings


def clone(*, source: str, name: str, at: str | None, with_history: bool, lake: Path | None) -> None:
    """Make the clone and tell of it. Raises as `cloned`."""
    typer.echo(make_clone(read_settings({"lake": lake}), source, name, at, with_history=with_history))


def expire(*, name: str, older_than: str, retain_last: int, dry_run: bool, lake: Path | None) -> None:
    """Expire snapshots and tell of it. Raises as `expired`, InvalidRequest."""
    typer.echo(
        expire_table(read_settings({"lake": lake}), name, parse_time(older_than), retain_last, is_dry_run=dry_run)
    )


def make_clone(settings: Settings, source: str, name: str, at: str | None, *, with_history: bool) -> str:
    """Make the clone; what it is, as one line. Raises as `clone_table`, StartupError."""
    request = CloneRequest(parse_full_name(source), at, with_history)
    with open_lake(settings, "clone_table") as services:
        table = clone_table(services, *parse_full_name(name), request)
    snapshots = len(table.metadata.snapshots)
    return f"{name}: a clone of {source} with {format_count(snapshots, 'snapshot')}, at {table.metadata.location}"


def expire_table(settings: Settings, name: str, before: datetime, kept: int, *, is_dry_run: bool) -> str:
    """Expire snapshots; what became of them, as one line. Raises as `expire_snapshots`, StartupError."""
    before_ms = round(before.timestamp() * 1000)
    with open_lake(settings, "expire") as services:
        done = expire_snapshots(services, *parse_full_name(name), before_ms, kept, is_dry_run=is_dry_run)
    files = "its files stay, as it says gc.enabled=false" if done.keeps_files else "files go with DuckDB's next cleanup"
    would = "would expire" if is_dry_run else "expired"
    return f"{name}: {format_count(done.snapshots, 'snapshot')} {would}, {done.left} left; {files}"


def restore(*, name: str, to: str, lake: Path | None, dry_run: bool) -> None:
    """Restore the table and tell of it. Raises as `restored`."""
    typer.echo(apply_restore(read_settings({"lake": lake}), name, to, is_dry_run=dry_run))


def apply_restore(settings: Settings, name: str, to: str, *, is_dry_run: bool) -> str:
    """Restore the table; what it did, or would do, as one line. Raises as `restore_table`, StartupError."""
    with open_lake(settings, "restore") as services:
        result = restore_table(services, *parse_full_name(name), to, is_dry_run=is_dry_run)
        return f"{name}: {_describe(result, is_dry_run)}"


def _describe(done: Restored, is_dry_run: bool) -> str:
    if not done.changes_anything:
        return f"is what it was at snapshot {done.restored_from}: nothing to do"
    files = f"{done.files_added} files come and {done.files_removed} go"
    rows = f"{done.rows_added} rows come and {done.rows_removed} go"
    definition = "; so do schema, partitions or sort order" if done.changes_definition else ""
    what = f"snapshot {done.restored_from}: {files}, {rows}{definition}"
    if is_dry_run:
        return f"would be restored to {what}; this was a dry run"
    return f"restored to {what}; the new snapshot is {done.snapshot_id} (DuckLake's {done.ducklake_id})"
