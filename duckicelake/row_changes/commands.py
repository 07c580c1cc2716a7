"""`duckicelake changes`: print what happened to a table's rows."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.catalog.connection import add_catalog_command, complete_names
from duckicelake.cli.console.command import DATA
from duckicelake.cli.console.terminal import follow_until_interrupted

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake

app: Final = typer.Typer()
_PLACE: Final = "DuckLake's number, Iceberg's id, a time in ISO form, a branch or tag"


def print_changes(
    lake: Lake,
    name: Annotated[str, typer.Argument(help="A table, as sales.orders.", autocompletion=complete_names)],
    since: Annotated[
        str | None, typer.Option("--from", help=f"Snapshot behind which changes begin: {_PLACE} (default: the first).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", help=f"The last snapshot: {_PLACE} (default: the newest).")
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Columns to print, joined by commas (default: all).")] = None,
    key: Annotated[
        str | None, typer.Option(help="Columns that identify a row, joined by commas (default: row ids).")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with changes that come, until Ctrl-C.")] = False,
    state: Annotated[
        Path | None, typer.Option(help="File that keeps how far you are; the next run goes on from there.")
    ] = None,
) -> None:
    """Print the rows that a table's snapshots inserted, deleted and updated, as lines of JSON."""
    from duckicelake.errors import BadInputError
    from duckicelake.row_changes.client import StateFile, open_reader

    if follow and until is not None:
        raise BadInputError("--follow has no end, and --to names one: give one of them")
    named = {"from": since, "to": until, "columns": columns, "key": key}
    query = {option: text for option, text in named.items() if text is not None}
    out = sys.stdout.buffer
    reader = open_reader(lake, name, query, out.write, None if state is None else StateFile(state))
    keep = reader.keep

    def flush_and_keep(place: object) -> None:
        out.flush()
        keep(place)  # type: ignore[arg-type]

    reader.keep = flush_and_keep
    with follow_until_interrupted() if follow else nullcontext():
        reader.read(is_following=follow)
    if sys.stderr.isatty():
        typer.echo(f"{reader.rows:,} changes", err=True)


EXAMPLES: Final = (
    "duckicelake changes sales.orders --from 17",
    "duckicelake changes sales.orders --from 2026-11-01 --to 2026-11-02 --columns id,paid",
    "duckicelake changes sales.orders --follow --state orders.json",
)
add_catalog_command(app, print_changes, *EXAMPLES, name="changes", panel=DATA)
