"""`duckicelake policy`: row filters and column masks of tables, and tags of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.catalog.connection import add_administration_command
from duckicelake.cli.console.command import GOVERN, make_group
from duckicelake.cli.console.terminal import print_json
from duckicelake.cli.principal import list_facts

if TYPE_CHECKING:
    from duckicelake.client.administration import Administrator
    from duckicelake.client.governance import PolicyInfo

ADD_EXAMPLES: Final = (
    "duckicelake policy add eu-rows table:sales.orders --where \"region = 'eu'\" --to analysts",
    "duckicelake policy add emails table:sales.orders --mask sha-256-global --column email --exempt support",
    "duckicelake policy add personal --tag pii --mask replace-with-null",
)
LIST_EXAMPLES: Final = (
    "duckicelake policy list",
    "duckicelake policy list --on table:sales.orders --json",
    "duckicelake policy list --warehouse north --profile prod",
)
SHOW_EXAMPLES: Final = ("duckicelake policy show eu-rows", "duckicelake policy show eu-rows --on table:sales.orders")
DROP_EXAMPLES: Final = ("duckicelake policy drop eu-rows",)
TAG_EXAMPLES: Final = ("duckicelake policy tag pii table:sales.orders email",)
UNTAG_EXAMPLES: Final = ("duckicelake policy untag pii table:sales.orders email",)
TAGS_EXAMPLES: Final = ("duckicelake policy tags", "duckicelake policy tags --on table:sales.orders")
app: Final = make_group("policy", "Row filters and column masks of tables, and tags of columns.", panel=GOVERN)
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NameArgument = Annotated[str, typer.Argument(help="The policy's name.")]
OnOption = Annotated[str | None, typer.Option(help="The table, as table:NAMESPACE.NAME.")]
TagArgument = Annotated[str, typer.Argument(help="The tag.")]
TableArgument = Annotated[str, typer.Argument(help="The table, as table:NAMESPACE.NAME.")]
ColumnArgument = Annotated[str, typer.Argument(help="The column.")]


def add_policy(
    server: Administrator,
    warehouse: str,
    name: NameArgument,
    table: Annotated[str | None, typer.Argument(help="The table, as table:NAMESPACE.NAME; none for a tag.")] = None,
    where: Annotated[str | None, typer.Option(help="A row filter: what holds for rows that are shown.")] = None,
    mask: Annotated[str | None, typer.Option(help="A mask, as replace-with-null, sha-256-global, show-last-4.")] = None,
    column: Annotated[str | None, typer.Option(help="The column that is masked.")] = None,
    tag: Annotated[str | None, typer.Option(help="Mask all columns that have this tag.")] = None,
    to: Annotated[str, typer.Option(help="Whom it is for, joined by commas; by default everyone.")] = "",
    exempt: Annotated[str, typer.Option(help="Whom it isn't for, joined by commas.")] = "",
) -> None:
    """Add a policy, which hides rows of a table or values of a column. Administrators are no exception.

    Others query the table at the server; members of the role trusted-engine get the policy with the table.
    """
    whom = {"to": _split(to), "exempt": _split(exempt)}
    server.add_policy(warehouse, name, table, column=column, tag=tag, mask=mask, condition=where, **whom)
    typer.echo(f"Policy {name} counts at once, on other servers within two seconds")


def list_policies(server: Administrator, warehouse: str, on: OnOption = None, as_json: JsonOption = False) -> None:
    """List the policies of a warehouse, or of a table."""
    found = server.list_policies(warehouse, on)
    if as_json:
        print_json(*map(list_facts, found))
        return
    for one in found:
        typer.echo(_render(one))


def show_policy(server: Administrator, warehouse: str, name: NameArgument, on: OnOption = None) -> None:
    """Show a policy as JSON."""
    print_json(list_facts(_find(server, warehouse, name, on)))


def drop_policy(server: Administrator, warehouse: str, name: NameArgument, on: OnOption = None) -> None:
    """Drop a policy: what it hid is shown again."""
    server.drop_policy(warehouse, _find(server, warehouse, name, on).id)
    typer.echo(f"Policy {name} is dropped")


def tag_column(
    server: Administrator, warehouse: str, tag: TagArgument, table: TableArgument, column: ColumnArgument
) -> None:
    """Give a column a tag: masks of the tag count for it from now on."""
    server.change_tag(warehouse, tag, table, column, is_given=True)
    typer.echo(f"{column} has the tag {tag}")


def untag_column(
    server: Administrator, warehouse: str, tag: TagArgument, table: TableArgument, column: ColumnArgument
) -> None:
    """Take a tag from a column."""
    server.change_tag(warehouse, tag, table, column, is_given=False)
    typer.echo(f"{column} hasn't the tag {tag}")


def list_tags(server: Administrator, warehouse: str, on: OnOption = None, as_json: JsonOption = False) -> None:
    """List the tags of columns."""
    found = server.list_tags(warehouse, on)
    if as_json:
        print_json(*map(list_facts, found))
        return
    for one in found:
        typer.echo(f"{one.tag:20} {_name_table(one.object, is_live=one.is_live)} {one.column}")


def _find(server: Administrator, warehouse: str, name: str, on: str | None) -> PolicyInfo:
    """Find a policy by its name, and its table where several have one of the name."""
    from duckicelake.errors import ConflictError, NotFoundError

    named = [one for one in server.list_policies(warehouse) if one.name == name and on in {None, one.object}]
    if not named:
        raise NotFoundError(f"There is no policy {name}{'' if on is None else f' on {on}'}")
    if len(named) > 1:
        where = ", ".join(one.object or f"tag {one.tag}" for one in named)
        raise ConflictError(f"There are several policies {name}, say which one's by --on: {where}")
    return named[0]


def _split(names: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in names.split(","))))


def _name_table(table: str, *, is_live: bool) -> str:
    return f"{table}{'' if is_live else ' (dropped)'}"


def _render(found: PolicyInfo) -> str:
    where = f"tag {found.tag}" if found.object is None else _name_table(found.object, is_live=found.is_live)
    what = f"rows where {found.condition}" if found.mask is None else f"{found.mask} of {found.column or 'its columns'}"
    whom = f"to {', '.join(found.to) or 'everyone'}" + (f" but {', '.join(found.exempt)}" if found.exempt else "")
    return f"{found.name:20} {where:30} {what}, {whom}"


add_administration_command(app, add_policy, *ADD_EXAMPLES, name="add", has_warehouse_option=True)
add_administration_command(app, list_policies, *LIST_EXAMPLES, name="list", has_warehouse_option=True)
add_administration_command(app, show_policy, *SHOW_EXAMPLES, name="show", has_warehouse_option=True)
add_administration_command(app, drop_policy, *DROP_EXAMPLES, name="drop", has_warehouse_option=True)
add_administration_command(app, tag_column, *TAG_EXAMPLES, name="tag", has_warehouse_option=True)
add_administration_command(app, untag_column, *UNTAG_EXAMPLES, name="untag", has_warehouse_option=True)
add_administration_command(app, list_tags, *TAGS_EXAMPLES, name="tags", has_warehouse_option=True)
