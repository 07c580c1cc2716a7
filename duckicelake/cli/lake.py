"""Prepare and examine a lake: `duckicelake config`, `init`, `adopt`, `info`, `doctor` and `grants`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.console.command import NO_LAKE, JsonOption, LakeOption, one_line_errors
from duckicelake.cli.console.terminal import print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from duckicelake.client.lake import Lake
    from duckicelake.client.upkeep import CheckReport, CheckResult
    from duckicelake.lake.doctor.findings import CheckProgress, Finding
    from duckicelake.lake.setup.format import StoredLake
    from duckicelake.settings.model import Settings

CONFIG_EXAMPLES: Final = ("duckicelake config", "duckicelake config --changed --lake /data/lake --json")
INIT_EXAMPLES: Final = (
    "duckicelake init --lake /data/lake",
    "DUCKICELAKE_DATABASE_URL=postgresql://me@db/lake DUCKICELAKE_WAREHOUSE=file:///data/warehouse duckicelake init",
)
ADOPT_EXAMPLES: Final = ("duckicelake adopt", "duckicelake adopt --lake /data/lake")
INFO_EXAMPLES: Final = (
    "duckicelake info",
    "duckicelake info --json | jq -r '.\"ducklake-attach\"'",
)
GRANTS_EXAMPLES: Final = (
    "duckicelake grants --server lake_server --writer etl --reader bi | psql --dbname lake",
    (
        "DUCKICELAKE_DATABASE_URL=postgresql://postgres@db/lake duckicelake grants --server lake_server "
        "--writer etl --apply"
    ),
)
DOCTOR_EXAMPLES: Final = (
    "duckicelake doctor --lake /data/lake",
    "duckicelake doctor --no-files | grep FAIL",
    "duckicelake doctor --forget-left-out",
)
_FORGET_HELP: Final = "Name once more what history and lineage have left out until now, and then never again."


@one_line_errors()
def config(
    lake: LakeOption = None,
    changed: Annotated[bool, typer.Option("--changed", help="List only those that aren't at their default.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the settings that a server or command started here has, and where each came from.

    A value comes from an option, a variable of the environment, duckicelake.toml here or in the lake, or is the
    default. Secrets are printed as set or unset.
    """
    from duckicelake.cli.console.terminal import print_rows
    from duckicelake.settings.sources import list_effective_settings, read_settings

    listed = list_effective_settings(read_settings({"lake": lake}))
    settings = [one for one in listed if not changed or one.source != "default"]
    if as_json:
        print_json(*settings)
    else:
        print_rows(("setting", "value", "from"), ((one.name, _format_value(one.value), one.source) for one in settings))


def _format_value(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


@one_line_errors()
def init(lake: LakeOption = None) -> None:
    """Create the lake, or check that an existing one can be served, and stop again."""
    from duckicelake.catalog.warehouse import prepare_lake
    from duckicelake.cli.wiring.location import run_postgres
    from duckicelake.cli.wiring.services import open_services, warn_of_others
    from duckicelake.lake.ducklake.snapshots import read_lake_format
    from duckicelake.settings.sources import read_settings

    with run_postgres(read_settings({"lake": lake})) as settings, open_services(settings) as services:
        warn_of_others(services)
        data_path = prepare_lake(services, creates=True)
        services.database.gate.require_open()
        with services.database.reading() as cursor:
            version = read_lake_format(cursor).version
        typer.echo(f"DuckLake {version} catalog is ready; DuckDB's files go to {data_path}")


@one_line_errors()
def adopt(lake: LakeOption = None) -> None:
    """Mark the warehouse of the settings as this lake's, whichever lake it belonged to, and print what changed.

    A warehouse has a marker that names its lake. Servers of other lakes refuse to write and to delete there. Run this
    command after a restore into another database, after pg_upgrade, and after files were moved. Do not run it while the
    lake that the marker names is in use: its servers would stop writing within a minute, and the cleanup of each lake
    would delete the files of the other.
    """
    from duckicelake.catalog import warehouse
    from duckicelake.catalog.warehouse_databases import adopt_lake
    from duckicelake.cli.wiring.services import adopt_place, open_lake
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    changes = adopt_place(settings)
    with open_lake(settings) as services:
        changes += [*warehouse.adopt(services), *adopt_lake(services)]
        for sentence in changes or ["The warehouse is this lake's: nothing has changed."]:
            typer.echo(sentence)


@one_line_errors()
def info(
    lake: LakeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Print where the catalog and its files are, and the macros. Starts nothing, and works without a server, too.

    The files' folder, the format and the macros are in Postgres: where the embedded one is stopped, they are left out.
    """
    from duckicelake.settings.sources import read_settings

    facts = _collect_facts(read_settings({"lake": lake}))
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        typer.echo(f"{name:16} {value}")
    if "format" not in facts:
        typer.echo(
            "the lake's Postgres is stopped: while a server runs, this also prints data-path and format", err=True
        )


def _collect_facts(settings: Settings) -> dict[str, str]:
    """Collect what `info` prints. Raises StartupError without a lake, UnavailableError if Postgres doesn't answer."""
    from duckicelake.cli.console.snippets import build_lake_secret
    from duckicelake.cli.serve.address import build_uri, find_database_notes, read_noted_uri
    from duckicelake.cli.wiring.chosen_lake import build_warehouse_settings, find_chosen
    from duckicelake.cli.wiring.location import build_policy
    from duckicelake.errors import StartupError
    from duckicelake.lake.ducklake.database import build_attach_source, build_duckdb_attach, find_duckdb_parameters
    from duckicelake.lake.setup.format import DEFAULT_SCHEMA_NAME
    from duckicelake.postgres.embedded import build_embedded_url

    if settings.database_url is None and not (settings.lake / "postgres").is_dir():
        raise StartupError(NO_LAKE.format(settings.lake))
    url = settings.database_url or build_embedded_url(settings.lake)
    is_embedded, chosen = settings.database_url is None, find_chosen(url)
    row = None if chosen is None else chosen.row
    shown = (row and row.database_url) or url  # of another database without the password, which is encrypted
    reached = settings.model_copy(update={"database_url": url})
    own = settings if chosen is None else build_warehouse_settings(reached, chosen)
    stored = _read_stored(own.database_url or url, is_embedded=is_embedded)
    served_at = (
        read_noted_uri(settings.lake) if settings.database_url is None else read_noted_uri(*find_database_notes(url))
    )
    facts = {
        "uri": served_at or build_uri(settings.host, settings.port, is_tls=settings.tls_certificate is not None),
        "ducklake-attach": build_attach_source(shown, find_duckdb_parameters(own.database_url or url)),
    }
    options = {"data-path": "data_path", "format": "version"}
    facts |= {name: stored.options[option] for name, option in options.items() if option in stored.options}
    if stored.schema != DEFAULT_SCHEMA_NAME:
        facts["metadata-schema"] = stored.schema
    if row is not None:
        facts |= {"prefix": row.name, "duckdb-attach": build_duckdb_attach(shown, row.name, schema=row.schema_name)}
    if stored.macros:
        facts["macros"] = ", ".join(stored.macros)
    secret = build_lake_secret(own, facts.get("data-path") or build_policy(own).data_path)
    return facts | {"duckdb-secret": secret} if secret else facts


def _read_stored(url: str, *, is_embedded: bool) -> StoredLake:
    """Read the lake from Postgres. Of one whose embedded Postgres is stopped, nothing is known.

    Raises StartupError if the database has no lake, UnavailableError if it doesn't answer.
    """
    from duckicelake.cli.wiring.location import advise_on_postgres
    from duckicelake.errors import UnavailableError
    from duckicelake.lake.setup.format import StoredLake, read_stored_lake

    try:
        return read_stored_lake(url)
    except UnavailableError as error:
        if is_embedded:
            return StoredLake()
        raise UnavailableError(f"{error}; {advise_on_postgres(error)}") from error


@one_line_errors()
def doctor(
    lake: LakeOption = None,
    files: Annotated[bool, typer.Option("--files/--no-files", help="Look for every data file in the store.")] = True,
    forget_left_out: Annotated[bool, typer.Option("--forget-left-out", help=_FORGET_HELP)] = False,
) -> None:
    """Examine database, lake, tables and files; exit with 1 if something must be done, and say what."""
    from duckicelake.changelog.entries import forget_skipped
    from duckicelake.cli.wiring.examination import examine
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    if forget_left_out:
        with open_lake(settings) as services, services.database.transaction() as cursor:
            forgotten = forget_skipped(cursor)
        for change in forgotten:
            typer.echo(f"gone  {change}")
    with _show_checks() as report:
        findings = examine(settings, report, with_files=files)
    _end_by(findings)


def doctor_over_rest(lake: Lake, files: bool, forget_left_out: bool) -> None:
    """Have the server examine database, lake, tables and files."""
    from duckicelake.errors import BadInputError

    if forget_left_out:
        raise BadInputError("--forget-left-out needs the lake itself: give --lake")
    with _show_checks() as report:
        findings = lake.doctor(has_files=files, report=report)
    _end_by(findings)


@contextmanager
def _show_checks() -> Iterator[Callable[[CheckProgress | CheckReport], None]]:
    """Print findings as they come, below them on a terminal the check that runs."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from duckicelake.cli.console import terminal

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with terminal.open_progress(*columns) as progress:
        task = progress.add_task("", total=None)

        def report(reported: CheckProgress | CheckReport) -> None:
            if reported.findings is None and reported.done is None:
                progress.reset(task, description=reported.check, total=None)
            elif reported.findings is None:
                progress.update(task, completed=reported.done, total=reported.total)
            for finding in reported.findings or ():
                typer.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.name}: {finding.detail}")
                if finding.advice:
                    typer.echo(f"      {finding.advice}")

        yield report


def _end_by(findings: Sequence[Finding | CheckResult]) -> None:
    """Exit with 1 if something must be done."""
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


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
