"""`duckicelake warehouse`: create, list, show, rename and drop warehouses beside the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal
from urllib.parse import quote

import typer

from duckicelake.cli.catalog.connection import add_administration_command
from duckicelake.cli.console.command import SERVE, make_group
from duckicelake.cli.console.terminal import print_json, read_secret
from duckicelake.cli.principal import list_facts, print_facts

if TYPE_CHECKING:
    from duckicelake.client.administration import Administrator

CREATE_EXAMPLES: Final = (
    "duckicelake warehouse create sales",
    "duckicelake warehouse create sales --location s3://bucket/warehouses/sales",
    "duckicelake warehouse create old --adopt old_lake",
    "duckicelake warehouse create eu --database-url postgresql://lake@db.example:5432/eu < password",
)
LIST_EXAMPLES: Final = ("duckicelake warehouse list", "duckicelake warehouse list --json | jq -r .name")
SHOW_EXAMPLES: Final = (
    "duckicelake warehouse show sales",
    "duckicelake warehouse show sales --json | jq -r '.\"metadata-schema\"'",
)
RENAME_EXAMPLES: Final = ("duckicelake warehouse rename sales sales_2025",)
MOVE_EXAMPLES: Final = ("duckicelake warehouse database eu postgresql://lake2@db.example:5432/eu < password",)
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
    "warehouse", "Warehouses beside the first: lakes in other schemas, or in other databases.", panel=SERVE
)


def create(
    server: Administrator,
    name: Annotated[str, typer.Argument(help="Its name: lower-case letters, digits, _ and -.")],
    location: Annotated[
        str | None,
        typer.Option(help="Folder of its files, below a root of warehouses (default: NAME below the first root)."),
    ] = None,
    adopt: Annotated[
        str | None, typer.Option(help="Serve the DuckLake catalog in this schema, instead of making a new one.")
    ] = None,
    storage_profile: Annotated[
        str | None, typer.Option("--storage-profile", help="Storage profile of its files (default: the settings').")
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option(help="Postgres of its catalog; the password is read from stdin (default: the server's)."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a warehouse: a DuckLake catalog in a schema of its own, with a folder of its own.

    Servers that run serve it within a second. Clients name it by their setting `warehouse`, DuckDB by METADATA_SCHEMA.
    """
    created = server.create_warehouse(
        name,
        location=location,
        adopted_schema=adopt,
        storage_profile=storage_profile,
        database_url=None if database_url is None else _add_password(database_url),
    )
    print_facts(list_facts(created), as_json=as_json)


def list_(server: Administrator, as_json: JsonOption = False) -> None:
    """List the warehouses beside the first, each with its schema in Postgres and its folder."""
    rows = server.list_warehouses()
    if as_json:
        print_json(*map(list_facts, rows))
        return
    for row in rows:
        state = "" if row.state == "active" else f"  ({row.state})"
        place = "" if row.database_url is None else f"  {row.database_url}"
        typer.echo(f"{row.name:24} {row.metadata_schema:32} {row.location}{place}{state}")
    if not rows:
        typer.echo("there is only the first warehouse; make another with: duckicelake warehouse create NAME", err=True)


def show(server: Administrator, name: NameArgument, as_json: JsonOption = False) -> None:
    """Print what a warehouse is: the prefix of its routes, its schema in Postgres, its folder, its state."""
    print_facts(list_facts(server.load_warehouse(name)), as_json=as_json)


def rename(
    server: Administrator,
    name: NameArgument,
    new_name: Annotated[str, typer.Argument(help="Its new name.")],
    as_json: JsonOption = False,
) -> None:
    """Rename a warehouse. Its schema in Postgres and its folder stay.

    Servers that run know it by the new name alone within a second. Scopes of tokens name the warehouse, too.
    """
    print_facts(list_facts(server.rename_warehouse(name, new_name)), as_json=as_json)


def database(
    server: Administrator,
    name: NameArgument,
    url: Annotated[str, typer.Argument(help="Its database, by the login and host of now; the password is on stdin.")],
    as_json: JsonOption = False,
) -> None:
    """Reach the database of a warehouse by another login, password or host. It must have the same catalog.

    Servers that run follow within a second.
    """
    print_facts(list_facts(server.move_warehouse(name, _add_password(url))), as_json=as_json)


def drop(
    server: Administrator,
    name: NameArgument,
    force: Annotated[
        bool, typer.Option("--force", help="Drop it with the tables, views and namespaces that it has.")
    ] = False,
    keep_lake: Annotated[
        bool, typer.Option("--keep-lake", help="Only stop serving it; its catalog stays in its schema.")
    ] = False,
) -> None:
    """Drop a warehouse and its catalog. It must be empty. Its files stay where they are.

    Servers that run stop serving it within a second.
    """
    from duckicelake.errors import format_count

    had = server.drop_warehouse(name, forces=force, keeps_lake=keep_lake)
    counts = (had.tables, "table"), (had.views, "view"), (had.namespaces, "namespace")
    what = ", ".join(format_count(number, noun) for number, noun in counts)
    kept = "its catalog stays in its schema" if keep_lake else "its catalog is gone, its files stay"
    typer.echo(f"{name} is dropped; it had {what}; {kept}")


def grants(
    server: Administrator,
    name: Annotated[str, typer.Argument(help="The warehouse's name; the first one's is duckicelake.")],
    state: Annotated[Literal["on", "off"], typer.Argument(help="on: grants decide, and scopes are their upper bound.")],
) -> None:
    """Let grants decide who may do what in a warehouse, or scopes alone. Servers that run follow within two seconds.

    Turned on, nothing is allowed but what was granted: grant first.
    """
    server.set_grants(name, is_on=state == "on")
    typer.echo(f"grants are {state} in {name}")


def options(
    server: Administrator,
    name: Annotated[str, typer.Argument(help="The warehouse's name; the first one's is duckicelake.")],
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTION=VALUE]...", help="What to change; OPTION= is its default.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the options of a warehouse, after changing those that are given. docs/warehouses.md lists them.

    Servers that run follow within a second.
    """
    wanted = dict(map(_parse_option, changes or ()))
    found = server.change_options(name, wanted) if wanted else server.read_options(name)
    if as_json:
        print_json(found)
        return
    for option, value in found.items():
        typer.echo(f"{option:24} {value}")


def _add_password(url: str) -> str:
    """Return the URL of a database with its password, which stdin has if the URL hasn't: other users see commands."""
    scheme, separator, rest = url.partition("://")
    login, at, place = rest.partition("@")
    if not at or ":" in login:
        return url
    return f"{scheme}{separator}{login}:{quote(read_secret('Password of the database'), safe='')}@{place}"


def _parse_option(text: str) -> tuple[str, str | None]:
    option, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"expected OPTION=VALUE, such as max-tables=1000, not {text!r}")
    return option, value or None


add_administration_command(app, create, *CREATE_EXAMPLES)
add_administration_command(app, list_, *LIST_EXAMPLES, name="list")
add_administration_command(app, show, *SHOW_EXAMPLES)
add_administration_command(app, rename, *RENAME_EXAMPLES)
add_administration_command(app, database, *MOVE_EXAMPLES)
add_administration_command(app, grants, *GRANTS_EXAMPLES)
add_administration_command(app, options, *OPTIONS_EXAMPLES)
add_administration_command(app, drop, *DROP_EXAMPLES)
