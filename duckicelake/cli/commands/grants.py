"""`duckicelake grants`: rights in Postgres."""

from typing import Annotated, Final

import typer

from duckicelake.cli.complaining import one_line_errors
from duckicelake.cli.examination import reachable_postgres
from duckicelake.cli.lake_option import LakeOption
from duckicelake.lake import roles
from duckicelake.lake.roles import Logins
from duckicelake.settings import read_settings

EXAMPLES: Final = (
    "duckicelake grants --server lake_server --writer etl --reader bi | psql --dbname lake",
    (
        "DUCKICELAKE_DATABASE_URL=postgresql://postgres@db/lake duckicelake grants --server lake_server "
        "--writer etl --apply"
    ),
)


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
    statements = roles.grants(Logins(server, writer or [], reader or [], owner), schema)
    if not apply:
        typer.echo("BEGIN;\n" + "".join(f"{statement};\n" for statement in statements) + "COMMIT;")
        return
    with one_line_errors(), reachable_postgres(read_settings({"lake": lake})) as url:
        roles.apply(url, statements)
        typer.echo(f"{server} serves the lake; {owner} owns DuckLake's tables")
