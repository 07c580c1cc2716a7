"""`duckicelake grants`: rights in Postgres."""

from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, done_by, one_line_errors

EXAMPLES: Final = (
    "duckicelake grants --server lake_server --writer etl --reader bi | psql --dbname lake",
    (
        "DUCKICELAKE_DATABASE_URL=postgresql://postgres@db/lake duckicelake grants --server lake_server "
        "--writer etl --apply"
    ),
)


@one_line_errors()
@done_by("duckicelake.cli.grants.grants")
def grants(
    server: Annotated[str, typer.Option(help="The server's login.")],
    writer: Annotated[list[str] | None, typer.Option(help="A login of DuckDB's that writes; may be repeated.")] = None,
    reader: Annotated[list[str] | None, typer.Option(help="A login of DuckDB's that reads; may be repeated.")] = None,
    owner: Annotated[str, typer.Option(help="Role without login that has DuckLake's tables.")] = "ducklake",
    schema: Annotated[str, typer.Option(help="Schema that the catalog lies in.")] = "public",
    apply: Annotated[bool, typer.Option("--apply", help="Run it, as a superuser, instead of printing it.")] = False,
    lake: LakeOption = None,
) -> None:
    """Print SQL that makes the logins' rights in Postgres what they should be. The logins must exist."""
