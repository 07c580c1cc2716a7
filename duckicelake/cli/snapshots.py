"""`duckicelake clone`, `expire` and `restore`: commands over the snapshots of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, one_line_errors

if TYPE_CHECKING:
    from duckicelake.catalog.restore import Restored

CLONE_EXAMPLES: Final = (
    "duckicelake clone sales.orders test.orders",
    "duckicelake clone sales.orders audit.orders_2025 --at 2026-01-01T00:00",
    "duckicelake clone sales.orders test.orders --with-history",
)
EXPIRE_EXAMPLES: Final = (
    "duckicelake expire sales.orders --older-than 30d --dry-run",
    "duckicelake expire sales.orders --older-than 2026-11-01T00:00 --retain-last 10",
)
RESTORE_EXAMPLES: Final = (
    "duckicelake restore sales.orders --to 2026-11-20T09:00 --dry-run",
    "duckicelake restore sales.orders --to 4711",
    "duckicelake restore sales.orders --to before_import",
)


@one_line_errors()
def clone(
    source: Annotated[str, typer.Argument(help="The table, as sales.orders.")],
    name: Annotated[str, typer.Argument(help="Name of the new table, in an existing namespace.")],
    at: Annotated[
        str | None,
        typer.Option(help="Clone this state: a snapshot id, DuckLake's number, a time in ISO form, a branch or tag."),
    ] = None,
    with_history: Annotated[bool, typer.Option("--with-history", help="Clone all snapshots, not only one.")] = False,
    lake: LakeOption = None,
) -> None:
    """Make a table over the files of another, without copying any: rows, schema, partitions, order, properties.

    Both tables then change independently. A file that both need stays until neither needs it, whatever is expired,
    compacted or dropped. While they share files, both tables have gc.enabled=false, so that engines don't delete them.
    """
    from duckicelake.catalog.clone import CloneRequest, clone_table
    from duckicelake.catalog.context.page import parse_full_name
    from duckicelake.cli.console.terminal import format_count
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    request = CloneRequest(parse_full_name(source), at, with_history)
    with open_lake(settings, "clone_table") as services:
        table = clone_table(services, *parse_full_name(name), request)
    snapshots = format_count(len(table.metadata.snapshots), "snapshot")
    typer.echo(f"{name}: a clone of {source} with {snapshots}, at {table.metadata.location}")


@one_line_errors()
def expire(
    name: Annotated[str, typer.Argument(help="A table, as sales.orders.")],
    older_than: Annotated[str, typer.Option(help="An age, as 30d, or a time in ISO form.")] = "5d",
    retain_last: Annotated[int, typer.Option(min=1, help="Keep at least this many snapshots of each branch.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print how many would expire.")] = False,
    lake: LakeOption = None,
) -> None:
    """Expire old snapshots of a table, except those that branches and tags keep.

    DuckDB's next cleanup deletes the files that no table needs any more. Engines delete files by what one table says;
    this command is safe for tables that share files with others, too.
    """
    from duckicelake.catalog.context.page import parse_full_name
    from duckicelake.catalog.expiry import expire_snapshots
    from duckicelake.cli.console.terminal import format_count, parse_time
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    before_ms = round(parse_time(older_than).timestamp() * 1000)
    with open_lake(settings, "expire") as services:
        done = expire_snapshots(services, *parse_full_name(name), before_ms, retain_last, is_dry_run=dry_run)
    files = "its files stay, as it says gc.enabled=false" if done.keeps_files else "files go with DuckDB's next cleanup"
    would = "would expire" if dry_run else "expired"
    typer.echo(f"{name}: {format_count(done.snapshots, 'snapshot')} {would}, {done.left} left; {files}")


@one_line_errors()
def restore(
    name: Annotated[str, typer.Argument(help="A table, as sales.orders.")],
    to: Annotated[
        str, typer.Option(help="A snapshot id, DuckLake's number, a time in ISO form, a branch or tag, Delta's v7.")
    ],
    lake: LakeOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print which files and rows come and go.")] = False,
) -> None:
    """Restore a table to one of its snapshots, by a new snapshot: rows, schema, partitions and sort order.

    The table's history stays, so another restore can undo this one. Properties, branches and tags stay as they are.
    """
    from duckicelake.catalog.context.page import parse_full_name
    from duckicelake.catalog.restore import restore_table
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.settings.sources import read_settings

    with open_lake(read_settings({"lake": lake}), "restore") as services:
        result = restore_table(services, *parse_full_name(name), to, is_dry_run=dry_run)
    typer.echo(f"{name}: {_describe(result, is_dry_run=dry_run)}")


def _describe(done: Restored, *, is_dry_run: bool) -> str:
    if not done.changes_anything:
        return f"is what it was at snapshot {done.restored_from}: nothing to do"
    files = f"{done.files_added} files come and {done.files_removed} go"
    rows = f"{done.rows_added} rows come and {done.rows_removed} go"
    definition = "; so do schema, partitions or sort order" if done.changes_definition else ""
    what = f"snapshot {done.restored_from}: {files}, {rows}{definition}"
    if is_dry_run:
        return f"would be restored to {what}; this was a dry run"
    return f"restored to {what}; the new snapshot is {done.snapshot_id} (DuckLake's {done.ducklake_id})"
