"""What `duckicelake clone` and `duckicelake expire` do and tell."""

from datetime import datetime
from pathlib import Path

import typer

from duckicelake.catalog.clone import CloneRequest, clone_table
from duckicelake.catalog.expiry import expire_snapshots
from duckicelake.catalog.full_names import parse_full_name
from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.counting import counted
from duckicelake.cli.moments import moment
from duckicelake.settings import Settings, read_settings


def clone(*, source: str, name: str, at: str | None, with_history: bool, lake: Path | None) -> None:
    """Make the clone and tell of it. Raises as `cloned`."""
    typer.echo(cloned(read_settings({"lake": lake}), source, name, at, with_history=with_history))


def expire(*, name: str, older_than: str, retain_last: int, dry_run: bool, lake: Path | None) -> None:
    """Expire snapshots and tell of it. Raises as `expired`, InvalidRequest."""
    typer.echo(expired(read_settings({"lake": lake}), name, moment(older_than), retain_last, is_dry_run=dry_run))


def cloned(settings: Settings, source: str, name: str, at: str | None, *, with_history: bool) -> str:
    """Make the clone; what it is, as one line. Raises as `clone_table`, StartupError."""
    request = CloneRequest(parse_full_name(source), at, with_history)
    with opened(settings, "clone_table") as services:
        table = clone_table(services, *parse_full_name(name), request)
    snapshots = len(table.metadata.snapshots)
    return f"{name}: a clone of {source} with {counted(snapshots, 'snapshot')}, at {table.metadata.location}"


def expired(settings: Settings, name: str, before: datetime, kept: int, *, is_dry_run: bool) -> str:
    """Expire snapshots; what became of them, as one line. Raises as `expire_snapshots`, StartupError."""
    before_ms = round(before.timestamp() * 1000)
    with opened(settings, "expire") as services:
        done = expire_snapshots(services, *parse_full_name(name), before_ms, kept, is_dry_run=is_dry_run)
    files = "its files stay, as it says gc.enabled=false" if done.keeps_files else "files go with DuckDB's next cleanup"
    would = "would expire" if is_dry_run else "expired"
    return f"{name}: {counted(done.snapshots, 'snapshot')} {would}, {done.left} left; {files}"
