"""`duckicelake warehouse`: create, list, show, rename and drop warehouses beside the first."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from duckicelake.cli.console.command import SERVE, LakeOption, add_command, make_group, one_line_errors
from duckicelake.cli.console.terminal import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckicelake.catalog.context.services import Services
    from duckicelake.catalog.warehouses import WarehouseWiring
    from duckicelake.lake.side_tables.warehouses import WarehouseRow

CREATE_EXAMPLES: Final = (
    "duckicelake warehouse create sales",
    "duckicelake warehouse create sales --location s3://bucket/warehouses/sales",
    "duckicelake warehouse create old --adopt old_lake",
)
LIST_EXAMPLES: Final = ("duckicelake warehouse list", "duckicelake warehouse list --json | jq -r .name")
SHOW_EXAMPLES: Final = (
    "duckicelake warehouse show sales",
    "duckicelake warehouse show sales --json | jq -r '.\"metadata-schema\"'",
)
RENAME_EXAMPLES: Final = ("duckicelake warehouse rename sales sales_2025",)
DROP_EXAMPLES: Final = (
    "duckicelake warehouse drop sales",
    "duckicelake warehouse drop sales --force",
    "duckicelake warehouse drop old --keep-lake",
)
GRANTS_EXAMPLES: Final = ("duckicelake warehouse grants sales on", "duckicelake warehouse grants duckicelake off")
OPTIONS_EXAMPLES: Final = (
    "duckicelake warehouse options sales",
    "duckicelake warehouse options sales max-tables=1000 requests-per-second=50",
    "duckicelake warehouse options sales max-tables=",
)
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NameArgument = Annotated[str, typer.Argument(help="The warehouse's name.")]
app: Final = make_group(
    "warehouse", "Warehouses beside the first: lakes in other schemas of the same database.", panel=SERVE
)


@one_line_errors()
def create(
    name: Annotated[str, typer.Argument(help="Its name: lower-case letters, digits, _ and -.")],
    location: Annotated[
        str | None,
        typer.Option(help="Folder of its files, below a root of warehouses (default: NAME below the first root)."),
    ] = None,
    adopt: Annotated[
        str | None, typer.Option(help="Serve the DuckLake catalog in this schema, instead of making a new one.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--storage-profile", help="Storage profile of its files (default: the settings').")
    ] = None,
    as_json: JsonOption = False,
    lake: LakeOption = None,
) -> None:
    """Create a warehouse: a DuckLake catalog in a schema of its own, with a folder of its own.

    Servers that run serve it within a second. Clients name it by their setting `warehouse`, DuckDB by METADATA_SCHEMA.
    """
    from duckicelake.catalog.warehouse_registry import NewWarehouse, create_warehouse

    with _open_registry(lake, "create_warehouse") as (services, wiring):
        created = create_warehouse(services, wiring, NewWarehouse(name, location, adopt, profile))
    _print_warehouse(created, as_json=as_json)


@one_line_errors()
def list_(as_json: JsonOption = False, lake: LakeOption = None) -> None:
    """List the warehouses beside the first, each with its schema in Postgres and its folder."""
    from duckicelake.catalog.warehouses import list_warehouses

    with _open_registry(lake, "list_warehouses") as (services, _):
        rows = list_warehouses(services)
    if as_json:
        print_json(*map(_describe, rows))
        return
    for row in rows:
        state = "" if row.state == "active" else f"  ({row.state})"
        typer.echo(f"{row.name:24} {row.schema_name:32} {row.location}{state}")
    if not rows:
        typer.echo("there is only the first warehouse; make another with: duckicelake warehouse create NAME", err=True)


@one_line_errors()
def show(name: NameArgument, as_json: JsonOption = False, lake: LakeOption = None) -> None:
    """Print what a warehouse is: the prefix of its routes, its schema in Postgres, its folder, its state."""
    from duckicelake.catalog.warehouses import find_warehouse

    with _open_registry(lake, "load_warehouse") as (services, _):
        row = find_warehouse(services, name)
    _print_warehouse(row, as_json=as_json)


@one_line_errors()
def rename(
    name: NameArgument,
    new_name: Annotated[str, typer.Argument(help="Its new name.")],
    as_json: JsonOption = False,
    lake: LakeOption = None,
) -> None:
    """Rename a warehouse. Its schema in Postgres and its folder stay.

    Servers that run know it by the new name alone within a second. Scopes of tokens name the warehouse, too.
    """
    from duckicelake.catalog.warehouse_registry import rename_warehouse

    with _open_registry(lake, "rename_warehouse") as (services, _):
        renamed = rename_warehouse(services, name, new_name)
    _print_warehouse(renamed, as_json=as_json)


@one_line_errors()
def drop(
    name: NameArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Drop it with the tables, views and namespaces that it has.")
    ] = False,
    keep_lake: Annotated[
        bool, typer.Option("--keep-lake", help="Only stop serving it; its catalog stays in its schema.")
    ] = False,
    lake: LakeOption = None,
) -> None:
    """Drop a warehouse and its catalog. It must be empty. Its files stay where they are.

    Servers that run stop serving it within a second.
    """
    from duckicelake.catalog.warehouse_registry import drop_warehouse
    from duckicelake.cli.console.terminal import format_count

    with _open_registry(lake, "drop_warehouse") as (services, wiring):
        had = drop_warehouse(services, wiring, name, forces=force, keeps_lake=keep_lake)
    counts = (had.tables, "table"), (had.views, "view"), (had.namespaces, "namespace")
    what = ", ".join(format_count(number, noun) for number, noun in counts)
    kept = "its catalog stays in its schema" if keep_lake else "its catalog is gone, its files stay"
    typer.echo(f"{name} is dropped; it had {what}; {kept}")


@one_line_errors()
def grants(
    name: Annotated[str, typer.Argument(help="The warehouse's name; the first one's is duckicelake.")],
    state: Annotated[Literal["on", "off"], typer.Argument(help="on: grants decide, and scopes are their upper bound.")],
    lake: LakeOption = None,
) -> None:
    """Let grants decide who may do what in a warehouse, or scopes alone. Servers that run follow within two seconds.

    Turned on, nothing is allowed but what was granted: grant first.
    """
    from duckicelake.catalog.grants import set_grants
    from duckicelake.cli.grant import open_named_warehouse

    with open_named_warehouse(lake, "set_grants", name) as services:
        set_grants(services, is_on=state == "on")
    typer.echo(f"grants are {state} in {name}")


@one_line_errors()
def options(
    name: Annotated[str, typer.Argument(help="The warehouse's name; the first one's is duckicelake.")],
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTION=VALUE]...", help="What to change; OPTION= is its default.")
    ] = None,
    as_json: JsonOption = False,
    lake: LakeOption = None,
) -> None:
    """Print the options of a warehouse, after changing those that are given. docs/warehouses.md lists them.

    Servers that run follow within a second.
    """
    from duckicelake.catalog.warehouse_options import change_options, read_options
    from duckicelake.cli.grant import open_named_warehouse
    from duckicelake.cli.wiring.services import check_policies

    wanted = dict(map(_parse_option, changes or ()))
    with open_named_warehouse(lake, "change_options" if wanted else "read_options", name) as services:
        found = change_options(services, wanted, check_policies) if wanted else read_options(services)
    if as_json:
        print_json(found)
        return
    for option, value in found.items():
        typer.echo(f"{option:24} {value}")


def _parse_option(text: str) -> tuple[str, str | None]:
    option, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"expected OPTION=VALUE, such as max-tables=1000, not {text!r}")
    return option, value or None


@contextmanager
def _open_registry(lake: Any, operation: str) -> Iterator[tuple[Services, WarehouseWiring]]:
    """Open the first warehouse, whose schema holds the registry."""
    from duckicelake.cli.wiring.services import build_warehouse_wiring, open_lake
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    with open_lake(settings, operation) as services:
        yield services, build_warehouse_wiring(settings)


def _print_warehouse(row: WarehouseRow, *, as_json: bool) -> None:
    facts = _describe(row)
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        if value is not None:
            typer.echo(f"{name:16} {value}")


def _describe(row: WarehouseRow) -> dict[str, Any]:
    """Describe a warehouse with the field names of the management API."""
    return {
        "warehouse-id": str(row.warehouse_id),
        "name": row.name,
        "prefix": row.name,
        "metadata-schema": row.schema_name,
        "location": row.location,
        "storage-profile": row.profile,
        "is-adopted": row.is_adopted,
        "state": row.state,
        "created": row.created.isoformat(),
    }


add_command(app, create, *CREATE_EXAMPLES, has_warehouse_option=False)
add_command(app, list_, *LIST_EXAMPLES, name="list", has_warehouse_option=False)
add_command(app, show, *SHOW_EXAMPLES, has_warehouse_option=False)
add_command(app, rename, *RENAME_EXAMPLES, has_warehouse_option=False)
add_command(app, grants, *GRANTS_EXAMPLES, has_warehouse_option=False)
add_command(app, options, *OPTIONS_EXAMPLES, has_warehouse_option=False)
add_command(app, drop, *DROP_EXAMPLES, has_warehouse_option=False)
