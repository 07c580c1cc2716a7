"""`duckicelake dropped` and `undrop`: list what was dropped, and bring it back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.console.command import LakeOption, one_line_errors

if TYPE_CHECKING:
    from duckicelake.lake.ducklake.dropped import DroppedObject

DROPPED_EXAMPLES: Final = (
    "duckicelake dropped",
    "duckicelake dropped sales --json",
)
UNDROP_EXAMPLES: Final = (
    "duckicelake undrop sales.orders",
    "duckicelake undrop sales.orders --as orders_old",
    "duckicelake undrop sales --kind namespace",
)


@one_line_errors()
def list_dropped(
    namespace: Annotated[
        str | None, typer.Argument(help="A namespace, as sales, with what is below it (default: the whole lake).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line, for programs.")] = False,
    lake: LakeOption = None,
) -> None:
    """List dropped tables, views and namespaces that `duckicelake undrop` can bring back, newest first.

    What DuckDB dropped is listed, too. DUCKICELAKE_DROP_RETENTION_SECONDS says how long it stays.
    """
    from duckicelake.catalog.context.page import PageRequest, parse_namespace_name
    from duckicelake.catalog.dropped import list_dropped as list_all
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.settings.sources import read_settings

    within = None if namespace is None else parse_namespace_name(namespace)
    with open_lake(read_settings({"lake": lake}), "list_dropped") as services:
        found = list_all(services, within, PageRequest()).items
    if as_json:
        for item in found:
            typer.echo(json.dumps(_to_json(item)))
    elif found:
        _print_table(found)
    else:
        typer.echo("nothing can be brought back", err=True)


def _to_json(item: DroppedObject) -> dict[str, Any]:
    return {
        "kind": item.kind,
        "id": item.object_id,
        "uuid": item.uuid,
        "name": _get_full_name(item),
        "dropped-at": item.dropped_at.isoformat(),
        "kept-until": item.kept_until.isoformat(),
        "ducklake-snapshot-id": item.snapshot_id,
        "purge-requested": item.is_purged,
    }


def _get_full_name(item: DroppedObject) -> str:
    return item.schema_name if item.name is None else f"{item.schema_name}.{item.name}"


def _print_table(found: tuple[DroppedObject, ...]) -> None:
    from rich.table import Table

    from duckicelake.cli.console.terminal import make_printable, print_renderable

    table = Table("kind", "name", "id", "dropped (UTC)", "kept until (UTC)", "then", box=None, pad_edge=False)
    for item in found:
        table.add_row(
            item.kind,
            make_printable(_get_full_name(item)),
            str(item.object_id),
            f"{item.dropped_at:%Y-%m-%d %H:%M}",
            f"{item.kept_until:%Y-%m-%d %H:%M}",
            "its files go" if item.is_purged else "",
        )
    print_renderable(table)


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
    from duckicelake.cli.console.terminal import format_count
    from duckicelake.cli.wiring.services import open_lake
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
    within = f" with {format_count(done.tables, 'table')} and {format_count(done.views, 'view')}"
    more = within if wanted == "namespace" else ""
    typer.echo(f"{wanted} {called} is back{more}, since DuckLake's snapshot {done.snapshot_id}")
