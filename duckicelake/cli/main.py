"""The `duckicelake` command: parse, call, print."""

import json
import sys
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax

from duckicelake.cli import auditing, snippets
from duckicelake.cli.authenticating import is_on
from duckicelake.cli.collecting import collect
from duckicelake.cli.complaining import one_line_errors
from duckicelake.cli.examination import examine, reachable_postgres
from duckicelake.cli.flush import flush_tables
from duckicelake.cli.history import EXAMPLES as HISTORY
from duckicelake.cli.history import history
from duckicelake.cli.ingest_rows import EXAMPLES as INGEST_ROWS
from duckicelake.cli.ingest_rows import ingest_rows
from duckicelake.cli.lineage import app as lineage
from duckicelake.cli.listening import uri
from duckicelake.cli.opening import open_services, policy_of, prepare_lake, running_postgres
from duckicelake.cli.pipeline.main import app as pipeline
from duckicelake.cli.running import noted_uri
from duckicelake.cli.serving import serve as serve_until_stopped
from duckicelake.errors import InvalidSettings
from duckicelake.lake import roles
from duckicelake.lake.address import attach_source, embedded_url
from duckicelake.lake.audit import Wanted
from duckicelake.lake.format import FORMAT_VERSION, stored_data_path
from duckicelake.lake.roles import Logins
from duckicelake.server.oauth_clients import hash_secret
from duckicelake.settings import Settings, read_settings
from duckicelake.storage.s3 import DEFAULT_REGION

app = typer.Typer(
    name="duckicelake",
    help="An Iceberg REST catalog whose truth is a DuckLake catalog in Postgres.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.add_typer(pipeline)
app.add_typer(lineage)
app.command(epilog="Examples:\n\n" + "\n\n".join(f"`{each}`" for each in HISTORY))(history)
app.command(name="ingest-rows", epilog="Examples:\n\n" + "\n\n".join(f"`{each}`" for each in INGEST_ROWS))(ingest_rows)

LakeOption = Annotated[Path | None, typer.Option("--lake", help="Folder of the embedded lake (default: ./lake).")]


@app.command(
    epilog="Examples:\n\n`duckicelake serve`\n\n`duckicelake serve --lake /data/lake --port 0`\n\n"
    "`DUCKICELAKE_DATABASE_URL=postgresql://me@db/lake DUCKICELAKE_WAREHOUSE=file:///data/warehouse "
    "duckicelake serve --host 0.0.0.0 --workers 4`"
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


@app.command(epilog="Example:\n\n`duckicelake init --lake /data/lake`")
def init(lake: LakeOption = None) -> None:
    """Create the lake, or check that an existing one can be served, and stop again."""
    with (
        one_line_errors(),
        running_postgres(read_settings({"lake": lake})) as settings,
        open_services(settings) as services,
    ):
        data_path = prepare_lake(services)
        typer.echo(f"DuckLake {FORMAT_VERSION} catalog is ready; DuckDB's files go to {data_path}")


@app.command(epilog="Examples:\n\n`duckicelake info`\n\n`duckicelake info --json | jq -r '.\"ducklake-attach\"'`")
def info(
    lake: LakeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Tell where the catalog and its files are. Starts nothing, and works whether or not a server runs."""
    with one_line_errors():
        facts = _facts(read_settings({"lake": lake}))
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        typer.echo(f"{name:16} {value}")


@app.command(
    epilog="Examples:\n\n`duckicelake doctor --lake /data/lake`\n\n`duckicelake doctor --no-files | grep FAIL`"
)
def doctor(
    lake: LakeOption = None,
    files: Annotated[bool, typer.Option("--files/--no-files", help="Look for every data file in the store.")] = True,
) -> None:
    """Examine database, lake, tables and files; exit with 1 if something must be done, and say what."""
    with one_line_errors():
        findings = examine(read_settings({"lake": lake}), with_files=files)
    for finding in findings:
        typer.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.name}: {finding.detail}")
        if finding.advice:
            typer.echo(f"      {finding.advice}")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command(
    epilog="Examples:\n\n`duckicelake audit --since 2h --resource sales.orders`\n\n"
    "`duckicelake audit --principal etl --result ForbiddenException --json`\n\n"
    "`duckicelake audit --prune-older-than 90d`"
)
def audit(
    lake: LakeOption = None,
    since: Annotated[str | None, typer.Option(help="An age, as 2h or 7d, or a time in ISO form.")] = None,
    principal: Annotated[str | None, typer.Option(help="Who asked.")] = None,
    resource: Annotated[str | None, typer.Option(help="A table or view, or a namespace with all in it.")] = None,
    operation: Annotated[str | None, typer.Option(help="What was asked for, as commit_table.")] = None,
    result: Annotated[str | None, typer.Option(help="ok, unchanged, or an error's type.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at most, the newest.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C.")] = False,
    prune_older_than: Annotated[
        str | None, typer.Option(help="Delete what is older than this age or time, and print nothing else.")
    ] = None,
) -> None:
    """List who changed what, when, from where and with what result: the newest last."""
    with one_line_errors():
        settings = read_settings({"lake": lake})
        if prune_older_than is not None:
            typer.echo(f"{auditing.prune(settings, auditing.moment(prune_older_than))} entries are gone")
            return
        after = None if since is None else auditing.moment(since)
        wanted = Wanted(0, after, principal, resource, operation, result)
        with suppress(KeyboardInterrupt):
            auditing.show(settings, wanted, limit, as_json=as_json, follow=follow)


@app.command(
    epilog="Examples:\n\n`duckicelake gc`\n\n`duckicelake gc --older-than 14d --delete`\n\n"
    "`duckicelake gc | awk '{print $3}'`"
)
def gc(
    lake: LakeOption = None,
    older_than: Annotated[str, typer.Option(help="An age, as 3d, or a time in ISO form.")] = "3d",
    delete: Annotated[bool, typer.Option("--delete", help="Delete them; without it they are only listed.")] = False,
) -> None:
    """List files in the lake that nobody needs, left by commits that never came and by processes that were killed.

    Each line has the time of the last write, the bytes and the file's location. What a client has uploaded and not yet
    committed looks the same: give ages that are longer than any job runs.
    """
    with one_line_errors():
        collect(read_settings({"lake": lake}), auditing.moment(older_than), delete=delete)


@app.command(
    epilog="Examples:\n\n`duckicelake flush`\n\n`duckicelake flush sales.orders`\n\n"
    "`duckicelake flush sales --older-than 10m --min-rows 1000`"
)
def flush(
    name: Annotated[str | None, typer.Argument(help="A table, as sales.orders, or a namespace; else all.")] = None,
    lake: LakeOption = None,
    older_than: Annotated[
        str | None, typer.Option(help="Only tables with rows of this age, as 10m, or from before a time.")
    ] = None,
    min_rows: Annotated[int, typer.Option(min=0, help="Only tables with so many rows in Postgres.")] = 0,
) -> None:
    """Write rows that tables keep in Postgres to data files, with their ids and history, sorted and partitioned.

    A line for each table tells how many rows went to how many files. Exits with 1 if a table couldn't be flushed.
    """
    with one_line_errors():
        before = None if older_than is None else auditing.moment(older_than)
        all_done = flush_tables(read_settings({"lake": lake}), name, before, min_rows)
    if not all_done:
        raise typer.Exit(1)


@app.command(
    epilog="Examples:\n\n`duckicelake grants --server lake_server --writer etl --reader bi | psql --dbname lake`\n\n"
    "`DUCKICELAKE_DATABASE_URL=postgresql://postgres@db/lake duckicelake grants --server lake_server "
    "--writer etl --apply`"
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


@app.command(
    name="hash-secret",
    epilog="Examples:\n\n`duckicelake hash-secret`\n\n`openssl rand -hex 32 | tee secret | duckicelake hash-secret`",
)
def hash_client_secret() -> None:
    """Read a client's secret from the terminal or standard input, and print what to write instead of it."""
    with one_line_errors():
        secret = typer.prompt("Secret", hide_input=True) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
        if not secret:
            raise InvalidSettings("the secret is empty")
        typer.echo(hash_secret(secret))


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"duckicelake {_version()} (DuckLake {FORMAT_VERSION})")


def _facts(settings: Settings) -> dict[str, str]:
    url = settings.database_url or embedded_url(settings.lake)
    facts = {
        "uri": noted_uri(settings.lake)
        or uri(settings.host, settings.port, is_tls=settings.tls_certificate is not None),
        "ducklake-attach": attach_source(url),
        "data-path": stored_data_path(url) or policy_of(settings).data_path,
        "format": FORMAT_VERSION,
    }
    secret = _duckdb_secret(settings, facts["data-path"])
    return facts | {"duckdb-secret": secret} if secret else facts


def _duckdb_secret(settings: Settings, data_path: str) -> str:
    """The statement by which DuckDB gets to the files; empty if they are local."""
    endpoint, region = settings.s3_public_endpoint or settings.s3_endpoint, settings.s3_region or DEFAULT_REGION
    is_distant = data_path.startswith("s3")
    return snippets.duckdb_secret(data_path, endpoint, region, settings.s3_path_style) if is_distant else ""


def _announce(settings: Settings, address: str, *, embedded: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    with console:  # one write: who sees the URI sees all of it
        console.print(f"[bold]duckicelake[/bold] {_version()} serves [bold]{address}[/bold]")
        console.print(f"warehouse {policy_of(settings).warehouse}\n")
        if is_on(settings):
            console.print(snippets.credential(address) + "\n")
        # A database of one's own has a password, which belongs into no log: `duckicelake info` tells it to who asks.
        if embedded and settings.database_url is not None:
            secret = _duckdb_secret(settings, policy_of(settings).data_path)
            _print_snippets(console, address, snippets.duckdb(attach_source(settings.database_url), secret))


def _print_snippets(console: Console, address: str, duckdb: str) -> None:
    for title, code, language in (
        ("Spark", snippets.spark(address), "bash"),
        ("PyIceberg", snippets.pyiceberg(address), "python"),
        ("DuckDB", duckdb, "sql"),
    ):
        console.print(f"[bold]{title}[/bold]")
        console.print(Syntax(code, language, background_color="default") if console.is_terminal else code + "\n")


def _version() -> str:
    try:
        return installed_version("duckicelake")
    except PackageNotFoundError:
        return "(checkout)"


if __name__ == "__main__":
    app()
