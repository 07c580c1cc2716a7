"""`duckicelake clone`: a new table over another's files."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, done_by, one_line_errors

EXAMPLES: Final = (
    "duckicelake clone sales.orders test.orders",
    "duckicelake clone sales.orders audit.orders_2025 --at 2026-01-01T00:00",
    "duckicelake clone sales.orders test.orders --with-history",
)


@one_line_errors()
@done_by("duckicelake.cli.snapshots.clone")
def clone(
    source: Annotated[str, typer.Argument(help="The table, as sales.orders.")],
    name: Annotated[str, typer.Argument(help="The new one's name, in a namespace that is there.")],
    at: Annotated[
        str | None,
        typer.Option(help="As it was at a snapshot's id, DuckLake's number, a time in ISO form, a branch or tag."),
    ] = None,
    with_history: Annotated[bool, typer.Option("--with-history", help="With all snapshots, not only one.")] = False,
    lake: LakeOption = None,
) -> None:
    """Make a table over the files of another, without copying any: rows, schema, partitions, order, properties.

    Both then go on by themselves. A file that both need stays until neither does, whatever is expired, compacted or
    dropped; as long as they share files both say gc.enabled=false, so that engines don't delete them.
    """
