"""`duckicelake serve`, and `hash-secret`, which prints the hash of a client's secret for its settings."""

import sys
from functools import partial
from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, one_line_errors

EXAMPLES: Final = (
    "duckicelake serve",
    "duckicelake serve --lake /data/lake --port 0",
    (
        "DUCKICELAKE_DATABASE_URL=postgresql://me@db/lake DUCKICELAKE_WAREHOUSE=file:///data/warehouse "
        "duckicelake serve --host 0.0.0.0 --workers 4"
    ),
)
HASH_SECRET_EXAMPLES: Final = (
    "duckicelake hash-secret",
    "openssl rand -hex 32 | tee secret | duckicelake hash-secret",
)


@one_line_errors()
def serve(
    lake: LakeOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (default: 127.0.0.1).")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 picks a free one and prints it (default: 8181).")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that answer requests (default: 1).")] = None,
    snapshot_ids: Annotated[
        str | None, typer.Option(help="Who numbers Iceberg snapshots: client or ducklake (default: client).")
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the lake if the configured database has none; see init.")
    ] = False,
) -> None:
    """Serve the catalog until Ctrl-C or SIGTERM, with an embedded Postgres unless one is configured."""
    from duckicelake.cli.serve.server import announce, serve_lake
    from duckicelake.settings.sources import read_settings

    flags = {"lake": lake, "host": host, "port": port, "workers": workers, "snapshot_ids": snapshot_ids}
    settings = read_settings(flags)
    is_embedded = settings.database_url is None
    serve_lake(settings, partial(announce, embedded=is_embedded), creates=create or is_embedded)


@one_line_errors()
def hash_client_secret() -> None:
    """Read a client's secret from the terminal or standard input, and print its hash for the settings."""
    from duckicelake.server.auth.oauth_clients import check_secret, hash_secret

    secret = typer.prompt("Secret", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    check_secret(secret, "the secret")
    typer.echo(hash_secret(secret))
