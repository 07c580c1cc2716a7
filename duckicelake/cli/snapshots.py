"""`duckicelake clone`, `expire`, `restore`, `dropped` and `undrop`: commands over what snapshots keep of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.console.command import JsonOption, LakeOption, one_line_errors

if TYPE_CHECKING:
    from duckicelake.catalog.expiry import Expired
    from duckicelake.catalog.restore import Restored
    from duckicelake.client.lake import Lake
    from duckicelake.client.models import ObjectKind
    from duckicelake.client.operations import DroppedInfo, ExpireInfo, RestoreInfo, UndropInfo
    from duckicelake.lake.ducklake.dropped import DroppedObject

CLONE_EXAMPLES: Final = (
    "duckicelake clone sales.orders test.orders",
    "duckicelake clone sales.orders audit.orders_2025 --at 2026-01-01T00:00",
    "duckicelake clone sales.orders test.orders --with-history",
)
DROPPED_EXAMPLES: Final = (
    "duckicelake dropped",
    "duckicelake dropped sales --json",
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
UNDROP_EXAMPLES: Final = (
    "duckicelake undrop sales.orders",
    "duckicelake undrop sales.orders --as orders_old",
    "duckicelake undrop sales --kind namespace",
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
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.errors import format_count
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    request = CloneRequest(parse_full_name(source), at, with_history)
    with open_lake(settings, "clone_table") as services:
        table = clone_table(services, *parse_full_name(name), request)
    snapshots = format_count(len(table.metadata.snapshots), "snapshot")
    typer.echo(f"{name}: a clone of {source} with {snapshots}, at {table.metadata.location}")


def clone_over_rest(lake: Lake, source: str, name: str, at: str | None, with_history: bool) -> None:
    """Clone a table by the server."""
    from duckicelake.errors import format_count

    table = lake.table(source).clone(name, at=at, with_history=with_history).load()
    snapshots = format_count(len(table.snapshots), "snapshot")
    typer.echo(f"{name}: a clone of {source} with {snapshots}, at {table.metadata['location']}")


@one_line_errors()
def expire(
    name: Annotated[str, typer.Argument(help="A table, as sales.orders.")],
    older_than: Annotated[str, typer.Option(help="An age, as 30d, or a time in ISO form.")] = "5d",
    retain_last: Annotated[int, typer.Option(min=1, help="Keep at least this many snapshots of each branch.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print how many would expire.")] = False,
    lake: LakeOption = None,
) -> None:
    """Expire old snapshots of a table, except those that branches and tags keep, and branches and tags by their age.

    DuckDB's next cleanup deletes the files that no table needs any more. Engines delete files by what one table says;
    this command is safe for tables that share files with others, too.
    """
    from duckicelake.catalog.context.page import parse_full_name
    from duckicelake.catalog.expiry import expire_snapshots
    from duckicelake.cli.console.terminal import parse_time
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    before_ms = round(parse_time(older_than).timestamp() * 1000)
    with open_lake(settings, "expire") as services:
        done = expire_snapshots(services, *parse_full_name(name), before_ms, retain_last, is_dry_run=dry_run)
    _print_expired(name, done, is_dry_run=dry_run)


def _print_expired(name: str, done: Expired | ExpireInfo, *, is_dry_run: bool) -> None:
    from duckicelake.errors import format_count

    files = "its files stay, as it says gc.enabled=false" if done.keeps_files else "files go with DuckDB's next cleanup"
    would = "would expire" if is_dry_run else "expired"
    typer.echo(f"{name}: {format_count(done.snapshots, 'snapshot')} {would}, {done.left} left; {files}")
    if done.refs:
        typer.echo(f"{name}: {'would remove' if is_dry_run else 'removed'} by their age: {', '.join(done.refs)}")


def expire_over_rest(lake: Lake, name: str, older_than: str, retain_last: int, dry_run: bool) -> None:
    """Expire snapshots by the server."""
    from duckicelake.cli.console.terminal import parse_time

    done = lake.table(name).expire(parse_time(older_than), retain_last=retain_last, is_dry_run=dry_run)
    _print_expired(name, done, is_dry_run=dry_run)


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


def restore_over_rest(lake: Lake, name: str, to: str, dry_run: bool) -> None:
    """Restore a table by the server."""
    done = lake.table(name).restore(to, is_dry_run=dry_run)
    typer.echo(f"{name}: {_describe(done, is_dry_run=dry_run)}")


def _describe(done: Restored | RestoreInfo, *, is_dry_run: bool) -> str:
    from duckicelake.errors import format_count

    if not done.changes_anything:
        return f"is what it was at snapshot {done.restored_from}: nothing to do"
    files = f"{format_count(done.files_added, 'file')} added and {done.files_removed} removed"
    rows = f"{format_count(done.rows_added, 'row')} added and {done.rows_removed} removed"
    definition = "; so do schema, partitions or sort order" if done.changes_definition else ""
    what = f"snapshot {done.restored_from}: {files}, {rows}{definition}"
    if is_dry_run:
        return f"would be restored to {what}; this was a dry run"
    return f"restored to {what}; the new snapshot is {done.snapshot_id} (DuckLake's {done.ducklake_id})"


@one_line_errors()
def list_dropped(
    namespace: Annotated[
        str | None, typer.Argument(help="A namespace, as sales, with what is below it (default: the whole lake).")
    ] = None,
    as_json: JsonOption = False,
    lake: LakeOption = None,
) -> None:
    """List dropped tables, views and namespaces that `duckicelake undrop` can bring back, newest first.

    What DuckDB dropped is listed, too. DUCKICELAKE_DROP_RETENTION_SECONDS says how long it stays.
    """
    from duckicelake.catalog.context.page import PageRequest, parse_namespace_name
    from duckicelake.catalog.dropped import list_dropped as list_all
    from duckicelake.cli.catalog.description import print_dropped
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.settings.sources import read_settings

    within = None if namespace is None else parse_namespace_name(namespace)
    with open_lake(read_settings({"lake": lake}), "list_dropped") as services:
        found = list_all(services, within, PageRequest()).items
    print_dropped([_describe_dropped(item) for item in found], as_json=as_json)


def list_dropped_over_rest(lake: Lake, namespace: str | None, as_json: bool) -> None:
    """List what the server can bring back."""
    from duckicelake.cli.catalog.description import print_dropped

    print_dropped(list(lake.list_dropped(namespace or "")), as_json=as_json)


def _describe_dropped(item: DroppedObject) -> DroppedInfo:
    from duckicelake.client.operations import DroppedInfo

    return DroppedInfo(
        item.kind,
        item.object_id,
        item.uuid,
        _get_full_name(item),
        item.dropped_at,
        item.kept_until,
        item.snapshot_id,
        item.is_purged,
    )


def _get_full_name(item: DroppedObject) -> str:
    return item.schema_name if item.name is None else f"{item.schema_name}.{item.name}"


@one_line_errors()
def undrop(
    name: Annotated[str, typer.Argument(help="A table or view, as sales.orders; with --kind namespace: sales.")],
    kind: Annotated[str, typer.Option(help="table, view or namespace.")] = "table",
    object_id: Annotated[
        int | None, typer.Option("--id", help="Which one, as `duckicelake dropped` says (default: the last).")
    ] = None,
    new_name: Annotated[
        str | None, typer.Option("--as", help="Its new name in the same namespace, where its own is taken.")
    ] = None,
    lake: LakeOption = None,
) -> None:
    """Bring back a dropped table or view with its history, or a namespace with all that was dropped with it.

    It has the rows, snapshots, branches, properties and comments that it had when it was dropped.
    """
    from duckicelake.catalog.context.page import parse_full_name, parse_namespace_name
    from duckicelake.catalog.dropped import KINDS, UndropRequest
    from duckicelake.catalog.dropped import undrop as bring_back
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.client.operations import UndropInfo
    from duckicelake.errors import InvalidRequestError
    from duckicelake.settings.sources import read_settings

    wanted = next((known for known in KINDS if known == kind), None)
    if wanted is None:
        raise InvalidRequestError(f"--kind is {kind!r}: expected {', '.join(KINDS)}")
    if wanted == "namespace":
        if new_name is not None:
            raise InvalidRequestError("--as is of tables and views: a namespace comes back under its own name")
        request = UndropRequest(wanted, parse_namespace_name(name), object_id=object_id)
    else:
        request = UndropRequest(wanted, *parse_full_name(name), object_id, new_name)
    with open_lake(read_settings({"lake": lake}), "undrop") as services:
        done = bring_back(services, request)
    called = done.namespace if done.name is None else f"{done.namespace}.{done.name}"
    _print_undropped(UndropInfo(wanted, called, done.snapshot_id, done.tables, done.views))


def undrop_over_rest(lake: Lake, name: str, kind: str, object_id: int | None, new_name: str | None) -> None:
    """Bring something back by the server."""
    _print_undropped(lake.undrop(_parse_kind(kind), name, object_id=object_id, new_name=new_name))


def _parse_kind(kind: str) -> ObjectKind:
    from duckicelake.errors import BadInputError

    match kind:
        case "table" | "view" | "namespace":
            return kind
    raise BadInputError(f"--kind is {kind!r}: expected table, view or namespace")


def _print_undropped(done: UndropInfo) -> None:
    from duckicelake.errors import format_count

    within = f" with {format_count(done.tables, 'table')} and {format_count(done.views, 'view')}"
    more = within if done.kind == "namespace" else ""
    typer.echo(f"{done.kind} {done.name} is back{more}, since DuckLake's snapshot {done.ducklake_snapshot_id}")
