"""`duckicelake grants` and `hash-secret`: rights in Postgres, and secrets of clients."""

import sys
from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, one_line_errors

GRANTS_EXAMPLES: Final = (
    "duckicelake grants --server lake_server --writer etl --reader bi | psql --dbname lake",
    (
        "DUCKICELAKE_DATABASE_URL=postgresql://postgres@db/lake duckicelake grants --server lake_server "
        "--writer etl --apply"
    ),
)
HASH_SECRET_EXAMPLES: Final = (
    "duckicelake hash-secret",
    "openssl rand -hex 32 | tee secret | duckicelake hash-secret",
)


@one_line_errors()
def grants(
    server: Annotated[str, typer.Option(help="The server's login.")],
    writer: Annotated[list[str] | None, typer.Option(help="A login of DuckDB that writes; may be repeated.")] = None,
    reader: Annotated[list[str] | None, typer.Option(help="A login of DuckDB that reads; may be repeated.")] = None,
    owner: Annotated[str, typer.Option(help="Role without login that owns DuckLake's tables.")] = "ducklake",
    schema: Annotated[str, typer.Option(help="Schema of the catalog's tables.")] = "public",
    apply: Annotated[
        bool, typer.Option("--apply", help="Run the SQL, as a superuser, instead of printing it.")
    ] = False,
    lake: LakeOption = None,
) -> None:
    """Print SQL that gives the logins the rights in Postgres that they need. The logins must exist."""
    from duckicelake.cli.wiring.location import reach_postgres
    from duckicelake.lake.ducklake.roles import LakeLogins, apply_grants, build_grants
    from duckicelake.settings.sources import read_settings

    statements = build_grants(LakeLogins(server, writer or [], reader or [], owner), schema)
    if not apply:
        typer.echo("BEGIN;\n" + "".join(f"{statement};\n" for statement in statements) + "COMMIT;")
        return
    with reach_postgres(read_settings({"lake": lake})) as url:
        apply_grants(url, statements)
        typer.echo(f"{server} serves the lake; {owner} owns DuckLake's tables")


@one_line_errors()
def hash_client_secret() -> None:
    """Read a client's secret from the terminal or standard input, and print its hash for the settings."""
    from duckicelake.server.auth.oauth_clients import check_secret, hash_secret

    secret = typer.prompt("Secret", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    check_secret(secret, "the secret")
    typer.echo(hash_secret(secret))
