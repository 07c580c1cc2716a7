"""`duckicelake delta`: Delta tables whose files are tables of the lake."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, add_command, done_by, make_group, one_line_errors

_IMPORT: Final = (
    "duckicelake delta import /data/delta/orders --table sales.orders",
    "DUCKICELAKE_ALLOWED_LOCATIONS=s3://raw duckicelake delta import s3://raw/orders --table sales.orders --follow",
    "duckicelake delta import /data/delta/orders --table sales.orders --from-version 120",
)
_SYNC: Final = (
    "duckicelake delta sync",
    "duckicelake delta sync sales.orders",
    "duckicelake delta sync sales.orders --follow --interval 5",
)
_STATUS: Final = ("duckicelake delta status", "duckicelake delta status --json | jq 'select(.behind > 0)'")
_ADOPT: Final = ("duckicelake delta adopt sales.orders",)
_EXPORT: Final = ("duckicelake delta export sales.orders",)


@one_line_errors()
@done_by("duckicelake.delta.command_bodies.import_delta")
def import_delta(
    path: Annotated[str, typer.Argument(help="The Delta table's folder: a path or a URI.")],
    table: Annotated[str, typer.Option("--table", help="The table to make, as sales.orders.")],
    lake: LakeOption = None,
    from_version: Annotated[
        int | None, typer.Option(min=0, help="Leave the versions before out of the history.")
    ] = None,
    copy_for_duckdb: Annotated[
        bool, typer.Option("--copy-for-duckdb", help="On S3: copy files whose folders don't say their partition.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Let what comes to the Delta table come here; nobody else writes it.")
    ] = False,
) -> None:
    """Make a table of a Delta table: the same files, and every version that can still be read as a snapshot.

    No data is copied, and Delta's files are never touched. All of it comes, or nothing. The Delta table must lie in
    the warehouse or in one of DUCKICELAKE_ALLOWED_LOCATIONS, but not where the lake keeps tables of its own (the
    warehouse's folders data and ducklake); so must all files that its log names, and what links lead to.
    """


@one_line_errors()
@done_by("duckicelake.delta.command_bodies.sync_tables")
def sync_tables(
    name: Annotated[str | None, typer.Argument(help="A table, as sales.orders; else all that are followed.")] = None,
    lake: LakeOption = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.05, help="Seconds between two looks, with --follow.")] = 1.0,
) -> None:
    """Bring new versions of Delta tables, each as a commit of its own; a server does so by itself for followed ones.

    A table that was imported without --follow may be named as long as nobody else has written it. Exits with 1 if a
    table can't go on.
    """


@one_line_errors()
@done_by("duckicelake.delta.command_bodies.show_status")
def show_status(
    lake: LakeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")] = False,
) -> None:
    """List tables that were imported from Delta: whether they are followed, how far they are, and what is wrong."""


@one_line_errors()
@done_by("duckicelake.delta.command_bodies.adopt_table")
def adopt_table(
    name: Annotated[str, typer.Argument(help="The table, as sales.orders.")], lake: LakeOption = None
) -> None:
    """Take over a table that follows a Delta table: from now on it is written here, and no longer synced.

    Its files stay where they are, and nothing here deletes what is in the Delta table's folder. There is no way back:
    to have it followed again, drop it and import it with --follow.
    """


@one_line_errors()
@done_by("duckicelake.delta.command_bodies.export_table")
def export_table(
    name: Annotated[str, typer.Argument(help="The table, as sales.orders.")], lake: LakeOption = None
) -> None:
    """Bring the Delta log of a table up to date at once, write again what of it got lost, and print the table's folder.

    The table must have the property delta.enabled=true. A running server does the same soon after each commit.
    """


app = make_group(
    "delta",
    "Delta tables whose files are tables of the lake: import them, follow them, take them over; and the way back.",
)
add_command(app, import_delta, *_IMPORT, name="import")
add_command(app, sync_tables, *_SYNC, name="sync")
add_command(app, show_status, *_STATUS, name="status")
add_command(app, adopt_table, *_ADOPT, name="adopt")
add_command(app, export_table, *_EXPORT, name="export")
