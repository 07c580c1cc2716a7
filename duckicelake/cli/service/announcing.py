"""What `duckicelake serve` says of itself when it is there."""

from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.syntax import Syntax

from duckicelake.cli import snippets
from duckicelake.cli.assembly.authenticating import is_on
from duckicelake.cli.assembly.places import policy_of
from duckicelake.cli.s3_secret import duckdb_secret
from duckicelake.cli.service import serving
from duckicelake.cli.versions import own_version
from duckicelake.lake.postgres.address import attach_source
from duckicelake.settings import Settings, read_settings

NOBODY_ASKED: Final = (
    "Nobody is asked who they are: whoever reaches this address may do everything. Logins: docs/security.md"
)


def serve(
    *,
    lake: Path | None,
    host: str | None,
    port: int | None,
    workers: int | None,
    snapshot_ids: str | None,
    create: bool,
) -> None:
    """Serve until stopped. Raises as `serving.serve`."""
    flags = {"lake": lake, "host": host, "port": port, "workers": workers, "snapshot_ids": snapshot_ids}
    settings = read_settings(flags)
    is_embedded = settings.database_url is None
    serving.serve(settings, partial(_announce, embedded=is_embedded), creates=create or is_embedded)


def _announce(settings: Settings, address: str, *, embedded: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    with console:  # one write: who sees the URI sees all of it
        console.print(f"[bold]duckicelake[/bold] {own_version()} serves [bold]{address}[/bold]")
        console.print(f"warehouse {policy_of(settings).warehouse}")
        console.print(f"lineage   {address}/ui/lineage\n")
        console.print((snippets.credential(address) if is_on(settings) else NOBODY_ASKED) + "\n")
        # A database of one's own has a password, which belongs into no log: `duckicelake info` tells it to who asks.
        if embedded and settings.database_url is not None:
            secret = duckdb_secret(settings, policy_of(settings).data_path)
            duckdb = snippets.duckdb(attach_source(settings.database_url), secret)
            _print_snippets(console, address, duckdb, with_login=is_on(settings))


def _print_snippets(console: Console, address: str, duckdb: str, *, with_login: bool) -> None:
    for title, code, language in (
        ("Spark", snippets.spark(address, with_login=with_login), "bash"),
        ("PyIceberg", snippets.pyiceberg(address, with_login=with_login), "python"),
        ("DuckDB", duckdb, "sql"),
    ):
        console.print(f"[bold]{title}[/bold]")
        console.print(_coloured(code, language) if console.is_terminal else code + "\n", markup=False)


def _coloured(code: str, language: str) -> Syntax:
    """In the terminal's own colours, which are readable on its background, be that light or dark."""
    return Syntax(code, language, theme="ansi_light", background_color="default")
