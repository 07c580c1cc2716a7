"""`duckicelake create`, `drop`, `rename`, `props`, `comment`, `refs`: change a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from duckicelake.cli.catalog.connection import add_catalog_command, complete_names, format_time
from duckicelake.cli.catalog.description import TableArgument
from duckicelake.cli.console.command import CHANGE, LOOK, JsonOption, make_group
from duckicelake.cli.console.terminal import print_json, print_rows

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake
    from duckicelake.client.table import Table, View

ObjectKind = Literal["namespace", "table", "view"]
KindArgument = Annotated[ObjectKind, typer.Argument(help="namespace, table or view.")]
NameArgument = Annotated[
    str, typer.Argument(help="The namespace, table or view, as sales or sales.orders.", autocompletion=complete_names)
]
RENAME_EXAMPLES: Final = (
    "duckicelake rename table sales.orders archive.orders_2025",
    "duckicelake rename view sales.open sales.open_orders",
    "duckicelake rename namespace sales archive.sales_2025",
)
DROP_EXAMPLES: Final = ("duckicelake drop table sales.orders", "duckicelake drop namespace sales")
COMMENT_EXAMPLES: Final = (
    "duckicelake comment sales.orders 'One row per order.'",
    "duckicelake comment sales.orders 'Net, in euros.' --column amount",
    "duckicelake comment sales.orders ''",
)

ALTER_EXAMPLES: Final = (
    "duckicelake alter sales.orders 'add column note string after id' 'drop column old'",
    "duckicelake alter sales.orders 'rename column amount to total' 'alter column total type decimal(18, 2)'",
    "duckicelake alter sales.orders 'partition by day(time), bucket(16, id)' 'order by region, time desc'",
)

create_app = make_group("create", "Create a namespace, a table or a view.", panel=CHANGE)
props_app = make_group("props", "Show, set and remove properties of namespaces, tables and views.", panel=CHANGE)
refs_app = make_group("refs", "List, create, move and drop branches and tags of a table.", panel=LOOK)


def create_namespace(lake: Lake, name: Annotated[str, typer.Argument(help="Its name, as sales or sales.eu.")]) -> None:
    """Create a namespace."""
    lake.create_namespace(name)
    typer.echo(f"created the namespace {name}")


def create_table(
    lake: Lake,
    name: TableArgument,
    columns: Annotated[
        str, typer.Argument(help="Its columns, as `id long not null, name string comment 'who', tags list<string>`.")
    ],
    partition_by: Annotated[
        str, typer.Option(help="Partition fields, joined by commas, as `day(time), bucket(16, id)`.")
    ] = "",
    order_by: Annotated[
        str, typer.Option(help="Sort fields, joined by commas, as `region, time desc nulls last`.")
    ] = "",
    location: Annotated[str | None, typer.Option(help="Its folder (default: one in the warehouse).")] = None,
    prop: Annotated[list[str] | None, typer.Option("--prop", help="<key>=<value>; may be repeated.")] = None,
) -> None:
    """Create an empty table."""
    table = lake.create_table(
        name,
        columns,
        partition_by=partition_by,
        order_by=order_by,
        location=location,
        properties=_parse_pairs(prop or []),
    )
    typer.echo(f"created the table {table.name}")


def create_view(
    lake: Lake,
    name: Annotated[str, typer.Argument(help="Its name, as sales.open_orders.")],
    sql: Annotated[str, typer.Argument(help="Its query, in DuckDB's SQL.")],
    spark: Annotated[str | None, typer.Option(help="The same in Spark's SQL (default: only DuckDB's).")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Give a view that exists this query.")] = False,
) -> None:
    """Create a view. The server finds its columns, so the query must be right; no row is read."""
    if replace:
        lake.redefine_view(name, sql, spark=spark)
    else:
        lake.create_view(name, sql, spark=spark)
    typer.echo(f"{'replaced' if replace else 'created'} the view {name}")


def alter(
    lake: Lake,
    name: TableArgument,
    changes: Annotated[
        list[str],
        typer.Argument(
            help="One or more of: add column <name> <type> [not null] [default <value>] [comment '<text>'] "
            "[first | after <name>]; drop column <name>; rename column <name> to <name>; alter column <name> type "
            "<type> | comment '<text>' | drop not null | first | after <name>; identifier fields <names>; partition by "
            "<fields> | nothing; order by <fields> | nothing."
        ),
    ],
) -> None:
    """Change a table's columns, partitions and order, in one commit. No file is rewritten.

    A column is named by its path, as address.city; names of other letters than a, 1 and _ are in backticks.
    """
    lake.table(name).alter(changes)
    typer.echo(f"altered {name}")


def drop(
    lake: Lake,
    kind: KindArgument,
    name: NameArgument,
    purge: Annotated[bool, typer.Option("--purge", help="Delete the table's files, too.")] = False,
) -> None:
    """Drop an empty namespace, a table or a view. `duckicelake undrop` brings it back while the lake keeps it."""
    from duckicelake.errors import BadInputError

    if purge and kind != "table":
        raise BadInputError("--purge is for tables: nothing else has files")
    if kind == "namespace":
        lake.drop_namespace(name)
    elif kind == "table":
        lake.table(name).drop(is_purge=purge)
    else:
        lake.view(name).drop()
    typer.echo(f"dropped the {kind} {name}")


def rename(
    lake: Lake,
    kind: KindArgument,
    source: Annotated[str, typer.Argument(help="Its name, as sales.orders.", autocompletion=complete_names)],
    destination: Annotated[
        str, typer.Argument(help="Its new name in full; that of a table or view is in a namespace that exists.")
    ],
) -> None:
    """Rename a table, a view or a namespace with all in it, or move it. Its files stay where they are.

    Older snapshots of DuckLake keep the old name. Views keep their text: those that name tables by the old name of a
    namespace are printed, and don't work until they are made again.
    """
    from duckicelake.cli.console.terminal import make_printable

    if kind == "namespace":
        stale = lake.rename_namespace(source, destination)
    else:
        lake.rename(kind, source, destination)
        stale = ()
    typer.echo(f"renamed the {kind} {source} to {destination}")
    for view in stale:
        typer.echo(f"the view {make_printable(view)} names tables by the old name: make it again", err=True)


def comment(
    lake: Lake,
    name: NameArgument,
    text: Annotated[str, typer.Argument(help="The comment; an empty one removes it.")],
    column: Annotated[str | None, typer.Option(help="Comment this column of the table.")] = None,
) -> None:
    """Comment a namespace, table, view or column."""
    if column is not None:
        lake.table(name).set_column_comment(column, text or None)
    else:
        _change_properties(lake, name, {"comment": text} if text else {}, [] if text else ["comment"])
    typer.echo(f"{'commented' if text else 'removed the comment of'} {name}{f', column {column}' if column else ''}")


def get_properties(
    lake: Lake,
    name: NameArgument,
    key: Annotated[str | None, typer.Argument(help="Print the value of this one alone.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the properties of a namespace, table or view."""
    from duckicelake.errors import BadInputError

    properties = _read_properties(lake, name)
    if key is not None and key not in properties:
        raise BadInputError(f"{name} has no property {key!r}; it has {', '.join(sorted(properties)) or 'none'}")
    if as_json:
        print_json(properties if key is None else {key: properties[key]})
    elif key is not None:
        typer.echo(properties[key])
    else:
        print_rows(("property", "value"), sorted(properties.items()))


def set_properties(
    lake: Lake,
    name: NameArgument,
    pairs: Annotated[list[str], typer.Argument(help="<key>=<value>, several.")],
) -> None:
    """Set properties of a namespace, table or view."""
    updates = _parse_pairs(pairs)
    _change_properties(lake, name, updates, [])
    typer.echo(f"set {', '.join(updates)} of {name}")


def unset_properties(
    lake: Lake, name: NameArgument, keys: Annotated[list[str], typer.Argument(help="The properties, several.")]
) -> None:
    """Remove properties of a namespace, table or view."""
    _change_properties(lake, name, {}, keys)
    typer.echo(f"removed {', '.join(keys)} of {name}")


def list_refs(lake: Lake, name: TableArgument, as_json: JsonOption = False) -> None:
    """List a table's branches and tags."""
    refs = lake.table(name).load().refs
    if as_json:
        print_json(*refs)
    else:
        rows = ((ref.name, ref.kind, str(ref.snapshot_id), format_time(ref.timestamp)) for ref in refs)
        print_rows(("name", "kind", "snapshot", "when (UTC)"), rows, right=(2,))


def create_ref(
    lake: Lake,
    name: TableArgument,
    ref: Annotated[str, typer.Argument(help="Name of the branch or tag.")],
    at: Annotated[str | None, typer.Option(help="A snapshot id, branch or tag (default: main).")] = None,
    tag: Annotated[bool, typer.Option("--tag", help="Create a tag, not a branch.")] = False,
) -> None:
    """Create a branch, or a tag."""
    table = lake.table(name)
    snapshot_id = table.resolve_snapshot(at)
    table.set_ref(ref, "tag" if tag else "branch", snapshot_id)
    typer.echo(f"created the {'tag' if tag else 'branch'} {ref} of {name} at {snapshot_id}")


def retain_ref(
    lake: Lake,
    name: TableArgument,
    ref: Annotated[str, typer.Argument(help="Name of the branch or tag.")],
    max_age: Annotated[str | None, typer.Option(help="Drop it at this age, as 90d.")] = None,
    max_snapshot_age: Annotated[str | None, typer.Option(help="Keep a branch's snapshots so long, as 5d.")] = None,
    min_snapshots: Annotated[int | None, typer.Option(min=1, help="Keep a branch's newest snapshots, so many.")] = None,
) -> None:
    """Say how long expiry keeps a branch or tag, and a branch's snapshots; what isn't given is the table's rule."""
    from duckicelake.cli.console.terminal import parse_age

    ages = [None if text is None else parse_age(text) for text in (max_age, max_snapshot_age)]
    lake.table(name).retain_ref(ref, max_age=ages[0], max_snapshot_age=ages[1], min_snapshots=min_snapshots)
    typer.echo(f"set how long {ref} of {name} is kept")


def drop_ref(
    lake: Lake, name: TableArgument, ref: Annotated[str, typer.Argument(help="Name of the branch or tag.")]
) -> None:
    """Drop a branch or tag. Its snapshots stay until they expire."""
    lake.table(name).drop_ref(ref)
    typer.echo(f"dropped {ref} of {name}")


def fast_forward_ref(
    lake: Lake,
    name: TableArgument,
    branch: Annotated[str, typer.Argument(help="The branch that moves, as main.")],
    to: Annotated[str, typer.Argument(help="The branch or tag that it moves to, which descends from it.")],
) -> None:
    """Move a branch forward to another branch or tag, as to publish what was written on a branch."""
    lake.table(name).fast_forward(branch, to)
    typer.echo(f"{branch} of {name} is at {to} now")


add_catalog_command(
    create_app,
    create_namespace,
    "duckicelake create namespace sales",
    "duckicelake create namespace sales.eu",
    name="namespace",
)
add_catalog_command(
    create_app,
    create_table,
    "duckicelake create table sales.orders 'id long not null, customer string, time timestamptz'",
    "duckicelake create table sales.orders 'id long, time timestamptz' --partition-by 'day(time)'",
    name="table",
)
add_catalog_command(
    create_app,
    create_view,
    "duckicelake create view sales.open_orders 'FROM orders WHERE paid IS NULL'",
    "duckicelake create view sales.open_orders 'FROM orders WHERE NOT paid' --replace",
    name="view",
)
add_catalog_command(
    props_app,
    get_properties,
    "duckicelake props get sales.orders",
    "duckicelake props get sales.orders write.target-file-size-bytes",
    name="get",
)
add_catalog_command(
    props_app,
    set_properties,
    "duckicelake props set sales.orders owner=ann write.target-file-size-bytes=268435456",
    name="set",
)
add_catalog_command(props_app, unset_properties, "duckicelake props unset sales.orders owner", name="unset")
add_catalog_command(refs_app, list_refs, "duckicelake refs list sales.orders", name="list")
add_catalog_command(
    refs_app,
    create_ref,
    "duckicelake refs create sales.orders audit",
    "duckicelake refs create sales.orders end_of_year --at 4711 --tag",
    name="create",
)
add_catalog_command(
    refs_app, retain_ref, "duckicelake refs retain sales.orders audit --max-age 90d --min-snapshots 3", name="retain"
)
add_catalog_command(refs_app, drop_ref, "duckicelake refs drop sales.orders audit", name="drop")
add_catalog_command(
    refs_app, fast_forward_ref, "duckicelake refs fast-forward sales.orders main audit", name="fast-forward"
)


def _parse_pairs(pairs: list[str]) -> dict[str, str]:
    from duckicelake.errors import BadInputError

    parsed = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise BadInputError(f"Invalid property {pair!r}: expected <key>=<value>")
        parsed[key] = value
    return parsed


def _find_relation(lake: Lake, name: str) -> Table | View | None:
    """Return the table or view of this name; None if it is a namespace's."""
    from duckicelake.client.models import TableInfo
    from duckicelake.rest.names import parse_name

    if len(parse_name(name)) == 1 or lake.client.namespace_exists(parse_name(name)):
        return None
    found = lake.find(name)
    return lake.table(name) if isinstance(found, TableInfo) else lake.view(name)


def _read_properties(lake: Lake, name: str) -> dict[str, str]:
    found = _find_relation(lake, name)
    return dict(lake.namespace_properties(name) if found is None else found.load().properties)


def _change_properties(lake: Lake, name: str, updates: dict[str, str], removals: list[str]) -> None:
    found = _find_relation(lake, name)
    if found is None:
        lake.update_namespace(name, updates, removals)
    else:
        found.update_properties(updates, removals)
