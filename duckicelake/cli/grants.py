"""`duckicelake grants`: print or run the SQL that grants rights in Postgres."""

from pathlib import Path

import typer

from duckicelake.cli.wiring.location import reach_postgres
from duckicelake.lake.ducklake import roles
from duckicelake.lake.ducklake.roles import LakeLogins
from duckicelake.settings.sources import read_settings


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
    statements = roles.build_grants(LakeLogins(server, writer or [], reader or [], owner), schema)
    if not apply:
        typer.echo("BEGIN;\n" + "".join(f"{statement};\n" for statement in statements) + "COMMIT;")
        return
    with reach_postgres(read_settings({"lake": lake})) as url:
        roles.apply_grants(url, statements)
        typer.echo(f"{server} serves the lake; {owner} owns DuckLake's tables")
