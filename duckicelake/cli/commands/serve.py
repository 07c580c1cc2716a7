"""`duckicelake serve`: the server, and what it says of itself when it is there."""

from functools import partial
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.syntax import Syntax

from duckicelake.cli import snippets
from duckicelake.cli.assembly.authenticating import is_on
from duckicelake.cli.assembly.opening import policy_of
from duckicelake.cli.complaining import one_line_errors
from duckicelake.cli.lake_option import LakeOption
from duckicelake.cli.s3_secret import duckdb_secret
from duckicelake.cli.service.serving import serve as serve_until_stopped
from duckicelake.cli.versions import own_version
from duckicelake.lake.postgres.address import attach_source
from duckicelake.settings import Settings, read_settings

EXAMPLES: Final = (
    "duckicelake serve",
    "duckicelake serve --lake /data/lake --port 0",
    (
        "DUCKICELAKE_DATABASE_URL=postgresql://me@db/lake DUCKICELAKE_WAREHOUSE=file:///data/warehouse "
        "duckicelake serve --host 0.0.0.0 --workers 4"
    ),
)


def serve(
    lake: LakeOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (default: 127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="Port; 0 picks a free one and prints it (default: 8181).")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that answer requests (default: 1).")] = None,
    snapshot_ids: Annotated[
        str | None, typer.Option(help="Who numbers Iceberg snapshots: client or ducklake (default: client).")
    ] = None,
) -> None:
    """Serve the catalog until Ctrl-C or SIGTERM, with an embedded Postgres unless one is configured."""
    flags = {"lake": lake, "host": host, "port": port, "workers": workers, "snapshot_ids": snapshot_ids}
    with one_line_errors():
        settings = read_settings(flags)
        serve_until_stopped(settings, partial(_announce, embedded=settings.database_url is None))


def _announce(settings: Settings, address: str, *, embedded: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    with console:  # one write: who sees the URI sees all of it
        console.print(f"[bold]duckicelake[/bold] {own_version()} serves [bold]{address}[/bold]")
        console.print(f"warehouse {policy_of(settings).warehouse}")
        console.print(f"lineage   {address}/ui/lineage\n")
        if is_on(settings):
            console.print(snippets.credential(address) + "\n")
        # A database of one's own has a password, which belongs into no log: `duckicelake info` tells it to who asks.
        if embedded and settings.database_url is not None:
            secret = duckdb_secret(settings, policy_of(settings).data_path)
            _print_snippets(console, address, snippets.duckdb(attach_source(settings.database_url), secret))


def _print_snippets(console: Console, address: str, duckdb: str) -> None:
    for title, code, language in (
        ("Spark", snippets.spark(address), "bash"),
        ("PyIceberg", snippets.pyiceberg(address), "python"),
        ("DuckDB", duckdb, "sql"),
    ):
        console.print(f"[bold]{title}[/bold]")
        console.print(Syntax(code, language, background_color="default") if console.is_terminal else code + "\n")
