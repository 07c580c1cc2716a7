"""`duckicelake policy`: row filters and column masks of tables, and tags of columns."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.console.command import GOVERN, LakeOption, add_command, make_group, one_line_errors
from duckicelake.cli.console.terminal import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from duckicelake.catalog.context.services import Services
    from duckicelake.catalog.policies import PolicyDetails, Table, TaggedColumn

ADD_EXAMPLES: Final = (
    "duckicelake policy add eu-rows table:sales.orders --where \"region = 'eu'\" --to analysts",
    "duckicelake policy add emails table:sales.orders --mask sha-256-global --column email --exempt support",
    "duckicelake policy add personal --tag pii --mask replace-with-null",
)
LIST_EXAMPLES: Final = ("duckicelake policy list", "duckicelake policy list --on table:sales.orders --json")
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


@one_line_errors()
def add_policy(
    name: NameArgument,
    table: Annotated[str | None, typer.Argument(help="The table, as table:NAMESPACE.NAME; none for a tag.")] = None,
    where: Annotated[str | None, typer.Option(help="A row filter: what holds for rows that are shown.")] = None,
    mask: Annotated[str | None, typer.Option(help="A mask, as replace-with-null, sha-256-global, show-last-4.")] = None,
    column: Annotated[str | None, typer.Option(help="The column that is masked.")] = None,
    tag: Annotated[str | None, typer.Option(help="Mask all columns that have this tag.")] = None,
    to: Annotated[str, typer.Option(help="Whom it is for, joined by commas; by default everyone.")] = "",
    exempt: Annotated[str, typer.Option(help="Whom it isn't for, joined by commas.")] = "",
    lake: LakeOption = None,
) -> None:
    """Add a policy, which hides rows of a table or values of a column. Administrators are no exception.

    Others query the table at the server; members of the role trusted-engine get the policy with the table.
    """
    from duckicelake.catalog import policies

    with _open(lake, "add_policy") as services:
        on = _parse_table(table)
        whom = _split(to), _split(exempt)
        policies.add_policy(services, policies.PolicyDefinition(name, on, column, tag, mask, where, *whom))
    typer.echo(f"Policy {name} counts at once, on other servers within two seconds")


@one_line_errors()
def list_policies(on: OnOption = None, as_json: JsonOption = False, lake: LakeOption = None) -> None:
    """List the policies of a warehouse, or of a table."""
    from duckicelake.catalog import policies

    with _open(lake, "list_policies") as services:
        found = policies.list_policies(services, _parse_table(on))
    if as_json:
        print_json(*map(_describe, found))
        return
    for one in found:
        typer.echo(_render(one))


@one_line_errors()
def show_policy(name: NameArgument, on: OnOption = None, lake: LakeOption = None) -> None:
    """Show a policy as JSON."""
    from duckicelake.catalog import policies

    with _open(lake, "load_policy") as services:
        found = policies.find_policy(services, name, _parse_table(on))
    print_json(_describe(found))


@one_line_errors()
def drop_policy(name: NameArgument, on: OnOption = None, lake: LakeOption = None) -> None:
    """Drop a policy: what it hid is shown again."""
    from duckicelake.catalog import policies

    with _open(lake, "drop_policy") as services:
        policies.drop_policy(services, policies.find_policy(services, name, _parse_table(on)).policy_id)
    typer.echo(f"Policy {name} is dropped")


@one_line_errors()
def tag_column(
    tag: TagArgument,
    table: TableArgument,
    column: ColumnArgument,
    lake: LakeOption = None,
) -> None:
    """Give a column a tag: masks of the tag count for it from now on."""
    is_new = _change_tag(tag, table, column, lake, is_given=True)
    typer.echo(f"{column} {'has the tag' if is_new else 'had the tag before:'} {tag}")


@one_line_errors()
def untag_column(
    tag: TagArgument,
    table: TableArgument,
    column: ColumnArgument,
    lake: LakeOption = None,
) -> None:
    """Take a tag from a column."""
    was_there = _change_tag(tag, table, column, lake, is_given=False)
    typer.echo(f"{column} {'lost' if was_there else 'had no'} tag {tag}")


@one_line_errors()
def list_tags(on: OnOption = None, as_json: JsonOption = False, lake: LakeOption = None) -> None:
    """List the tags of columns."""
    from duckicelake.catalog import policies

    with _open(lake, "list_column_tags") as services:
        found = policies.list_tags(services, _parse_table(on))
    if as_json:
        print_json(*map(_describe_tag, found))
        return
    for one in found:
        typer.echo(f"{one.tag:20} {_name_table(one.table, is_live=one.is_live)} {one.column}")


@contextmanager
def _open(lake: Path | None, operation: str) -> Iterator[Services]:
    """Open the lake, or the warehouse of --warehouse. operation: its route, for the audit trail."""
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.settings.sources import read_settings

    with open_lake(read_settings({"lake": lake}), operation) as services:
        yield services


def _change_tag(tag: str, table: str, column: str, lake: Path | None, *, is_given: bool) -> bool:
    from duckicelake.catalog import policies

    with _open(lake, "change_column_tags") as services:
        on = _parse_table(table)
        assert on is not None
        return policies.change_tag(services, policies.TaggedColumn(tag, on, column), is_given=is_given)


def _parse_table(text: str | None) -> Table | None:
    from duckicelake.catalog.policies import parse_table

    return None if text is None else parse_table(text)


def _split(names: str) -> tuple[str, ...]:
    return tuple(filter(None, (name.strip() for name in names.split(","))))


def _name_table(table: Table, *, is_live: bool) -> str:
    from duckicelake.catalog.context.privileges import ObjectRef

    return f"{ObjectRef('table', *table)}{'' if is_live else ' (dropped)'}"


def _render(found: PolicyDetails) -> str:
    own = found.definition
    where = f"tag {own.tag}" if own.table is None else _name_table(own.table, is_live=found.is_live)
    what = f"rows where {own.condition}" if own.mask is None else f"{own.mask} of {own.column or 'its columns'}"
    whom = f"to {', '.join(own.to) or 'everyone'}" + (f" but {', '.join(own.exempt)}" if own.exempt else "")
    return f"{own.name:20} {where:30} {what}, {whom}"


def _describe(found: PolicyDetails) -> dict[str, Any]:
    own = found.definition
    members: dict[str, Any] = {
        "table": None if own.table is None else {"namespace": own.table[0], "name": own.table[1]},
        "column": own.column,
        "tag": own.tag,
        "mask": own.mask,
        "condition": own.condition,
    }
    return {
        "id": str(found.policy_id),
        "name": own.name,
        **{name: value for name, value in members.items() if value is not None},
        "to": own.to,
        "exempt": own.exempt,
        "is-live": found.is_live,
        "created-by": found.created_by,
        "created-at": found.created_at.isoformat(),
    }


def _describe_tag(found: TaggedColumn) -> dict[str, Any]:
    table = {"namespace": found.table[0], "name": found.table[1]}
    return {"tag": found.tag, "table": table, "column": found.column, "is-live": found.is_live}


add_command(app, add_policy, *ADD_EXAMPLES, name="add")
add_command(app, list_policies, *LIST_EXAMPLES, name="list")
add_command(app, show_policy, *SHOW_EXAMPLES, name="show")
add_command(app, drop_policy, *DROP_EXAMPLES, name="drop")
add_command(app, tag_column, *TAG_EXAMPLES, name="tag")
add_command(app, untag_column, *UNTAG_EXAMPLES, name="untag")
add_command(app, list_tags, *TAGS_EXAMPLES, name="tags")
