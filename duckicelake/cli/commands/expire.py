"""`duckicelake expire`: old snapshots leave, also of tables that share files."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, done_by, one_line_errors

EXAMPLES: Final = (
    "duckicelake expire sales.orders --older-than 30d --dry-run",
    "duckicelake expire sales.orders --older-than 2026-11-01T00:00 --retain-last 10",
)


@one_line_errors()
@done_by("duckicelake.cli.snapshots.expire")
def expire(
    name: Annotated[str, typer.Argument(help="A table, as sales.orders.")],
    older_than: Annotated[str, typer.Option(help="An age, as 30d, or a time in ISO form.")] = "5d",
    retain_last: Annotated[int, typer.Option(min=1, help="So many snapshots of each branch stay.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell how many would leave.")] = False,
    lake: LakeOption = None,
) -> None:
    """Let old snapshots leave a table's history, but for those that branches and tags keep.

    Files that no table needs any more go with DuckDB's next cleanup. Unlike engines, which delete files by what one
    table says, this works on tables that share files with others, too.
    """
