"""`duckicelake flush`: rows of Postgres to files."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, done_by, one_line_errors

EXAMPLES: Final = (
    "duckicelake flush",
    "duckicelake flush sales.orders",
    "duckicelake flush sales --older-than 10m --min-rows 1000",
)


@one_line_errors()
@done_by("duckicelake.cli.flush.flush")
def flush(
    name: Annotated[str | None, typer.Argument(help="A table, as sales.orders, or a namespace; else all.")] = None,
    lake: LakeOption = None,
    older_than: Annotated[
        str | None, typer.Option(help="Only tables with rows of this age, as 10m, or from before a time.")
    ] = None,
    min_rows: Annotated[int, typer.Option(min=0, help="Only tables with so many rows in Postgres.")] = 0,
) -> None:
    """Write rows that tables keep in Postgres to data files, with their ids and history, sorted and partitioned.

    A line for each table tells how many rows went to how many files. Exits with 1 if a table couldn't be flushed.
    """
