"""Print the address of the server and snippets for its clients."""

from typing import Final

from rich.console import Console
from rich.syntax import Syntax

from duckicelake.cli.console import snippets
from duckicelake.cli.console.command import read_own_version
from duckicelake.cli.console.snippets import build_lake_secret
from duckicelake.cli.wiring.authentication import has_logins
from duckicelake.cli.wiring.location import build_policy
from duckicelake.lake.setup.attach import build_attach_source
from duckicelake.settings.model import Settings

NO_LOGINS_NOTE: Final = (
    "Clients need no login: everyone who reaches this address may do everything. Logins: docs/security.md"
)


def announce(settings: Settings, address: str, *, embedded: bool) -> None:
    """Print the address, and snippets of code for clients of an embedded lake."""
    console = Console(highlight=False, soft_wrap=True)
    with console:  # one write: whoever sees the URI sees the whole banner
        console.print(f"[bold]duckicelake[/bold] {read_own_version()} serves [bold]{address}[/bold]")
        console.print(f"warehouse {build_policy(settings).warehouse}")
        console.print(f"lineage   {address}/ui/lineage\n")
        console.print((snippets.build_login_hint(address) if has_logins(settings) else NO_LOGINS_NOTE) + "\n")
        # The URL of an external database has a password, which must not be logged: `duckicelake info` prints it.
        if embedded and settings.database_url is not None:
            secret = build_lake_secret(settings, build_policy(settings).data_path)
            duckdb = snippets.build_duckdb_snippet(build_attach_source(settings.database_url), secret)
            _print_snippets(console, address, duckdb, with_login=has_logins(settings))


def _print_snippets(console: Console, address: str, duckdb: str, *, with_login: bool) -> None:
    for title, code, language in (
        ("Spark", snippets.build_spark_snippet(address, with_login=with_login), "bash"),
        ("PyIceberg", snippets.build_pyiceberg_snippet(address, with_login=with_login), "python"),
        ("DuckDB", duckdb, "sql"),
    ):
        console.print(f"[bold]{title}[/bold]")
        console.print(_highlight(code, language) if console.is_terminal else code + "\n", markup=False)


def _highlight(code: str, language: str) -> Syntax:
    """Highlight code in the terminal's own colours, which are readable on light and dark backgrounds."""
    return Syntax(code, language, theme="ansi_light", background_color="default")
