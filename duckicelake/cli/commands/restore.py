"""`duckicelake restore`: a table as it was."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, done_by, one_line_errors

EXAMPLES: Final = (
    "duckicelake restore sales.orders --to 2026-11-20T09:00 --dry-run",
    "duckicelake restore sales.orders --to 4711",
    "duckicelake restore sales.orders --to before_import",
)


@one_line_errors()
@done_by("duckicelake.cli.snapshots.restore")
def restore(
    name: Annotated[str, typer.Argument(help="A table, as sales.orders.")],
    to: Annotated[
        str, typer.Option(help="A snapshot's id, DuckLake's number, a time in ISO form, a branch or tag, Delta's v7.")
    ],
    lake: LakeOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell which files and rows come and go.")] = False,
) -> None:
    """Make a table what it was at one of its snapshots, by a new one: rows, schema, partitions and sort order.

    Its history stays, so that the restoration can be undone by another; so do its properties, branches and tags.
    """
