"""What `duckicelake restore` does and tells."""

from pathlib import Path

import typer

from duckicelake.catalog.full_names import parse_full_name
from duckicelake.catalog.restore import Restored, restore_table
from duckicelake.cli.assembly.opened import opened
from duckicelake.settings import Settings, read_settings


def restore(*, name: str, to: str, lake: Path | None, dry_run: bool) -> None:
    """Restore the table and tell of it. Raises as `restored`."""
    typer.echo(restored(read_settings({"lake": lake}), name, to, is_dry_run=dry_run))


def restored(settings: Settings, name: str, to: str, *, is_dry_run: bool) -> str:
    """Restore the table; what it did, or would do, as one line. Raises as `restore_table`, StartupError."""
    with opened(settings, "restore") as services:
        return (
            f"{name}: {_told(restore_table(services, *parse_full_name(name), to, is_dry_run=is_dry_run), is_dry_run)}"
        )


def _told(done: Restored, is_dry_run: bool) -> str:
    if not done.changes_anything:
        return f"is what it was at snapshot {done.restored_from}: nothing to do"
    files = f"{done.files_added} files come and {done.files_removed} go"
    rows = f"{done.rows_added} rows come and {done.rows_removed} go"
    definition = "; so do schema, partitions or sort order" if done.changes_definition else ""
    what = f"snapshot {done.restored_from}: {files}, {rows}{definition}"
    if is_dry_run:
        return f"would be restored to {what}; this was a dry run"
    return f"restored to {what}; the new snapshot is {done.snapshot_id} (DuckLake's {done.ducklake_id})"
