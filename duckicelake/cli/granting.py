"""What `duckicelake grants` prints or does."""

from pathlib import Path

import typer

from duckicelake.cli.assembly.postgres import reachable_postgres
from duckicelake.lake import roles
from duckicelake.lake.roles import Logins
from duckicelake.settings import read_settings


def grants(
    *,
    server: str,
    writer: list[str] | None,
    reader: list[str] | None,
    owner: str,
    schema: str,
    apply: bool,
    lake: Path | None,
) -> None:
    """Print the statements, or run them. Raises as `roles.apply`, StartupError where there is no lake."""
    statements = roles.grants(Logins(server, writer or [], reader or [], owner), schema)
    if not apply:
        typer.echo("BEGIN;\n" + "".join(f"{statement};\n" for statement in statements) + "COMMIT;")
        return
    with reachable_postgres(read_settings({"lake": lake})) as url:
        roles.apply(url, statements)
        typer.echo(f"{server} serves the lake; {owner} owns DuckLake's tables")
