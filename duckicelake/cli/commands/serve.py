"""`duckicelake serve`: the server."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, done_by, one_line_errors

EXAMPLES: Final = (
    "duckicelake serve",
    "duckicelake serve --lake /data/lake --port 0",
    (
        "DUCKICELAKE_DATABASE_URL=postgresql://me@db/lake DUCKICELAKE_WAREHOUSE=file:///data/warehouse "
        "duckicelake serve --host 0.0.0.0 --workers 4"
    ),
)


@one_line_errors()
@done_by("duckicelake.cli.serve.banner.serve")
def serve(
    lake: LakeOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (default: 127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 picks a free one and prints it (default: 8181).")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that answer requests (default: 1).")] = None,
    snapshot_ids: Annotated[
        str | None, typer.Option(help="Who numbers Iceberg snapshots: client or ducklake (default: client).")
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Make the lake if the database of one's own has none; see init.")
    ] = False,
) -> None:
    """Serve the catalog until Ctrl-C or SIGTERM, with an embedded Postgres unless one is configured."""
