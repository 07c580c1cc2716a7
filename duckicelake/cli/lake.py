"""`duckicelake init`, `adopt` and `info`: make a lake, take over a warehouse, print where things are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.console.command import NO_LAKE, LakeOption, one_line_errors

if TYPE_CHECKING:
    from duckicelake.settings.model import Settings

INIT_EXAMPLES: Final = (
    "duckicelake init --lake /data/lake",
    "DUCKICELAKE_DATABASE_URL=postgresql://me@db/lake DUCKICELAKE_WAREHOUSE=file:///data/warehouse duckicelake init",
)
ADOPT_EXAMPLES: Final = ("duckicelake adopt", "duckicelake adopt --lake /data/lake")
INFO_EXAMPLES: Final = (
    "duckicelake info",
    "duckicelake info --json | jq -r '.\"ducklake-attach\"'",
)


@one_line_errors()
def init(lake: LakeOption = None) -> None:
    """Create the lake, or check that an existing one can be served, and stop again."""
    from duckicelake.cli.wiring.location import run_postgres
    from duckicelake.cli.wiring.services import open_services, prepare_lake, warn_of_others
    from duckicelake.lake.formats import NEW_LAKE_FORMAT
    from duckicelake.settings.sources import read_settings

    with run_postgres(read_settings({"lake": lake})) as settings, open_services(settings) as services:
        warn_of_others(services)
        data_path = prepare_lake(services, creates=True)
        services.database.gate.require_open()
        typer.echo(f"DuckLake {NEW_LAKE_FORMAT.version} catalog is ready; DuckDB's files go to {data_path}")


@one_line_errors()
def adopt(lake: LakeOption = None) -> None:
    """Mark the warehouse of the settings as this lake's, whichever lake it belonged to, and print what changed.

    A warehouse has a marker that names its lake. Servers of other lakes refuse to write and to delete there. Run this
    command after a restore into another database, after pg_upgrade, and after files were moved. Do not run it while the
    lake that the marker names is in use: its servers would stop writing within a minute, and the cleanup of each lake
    would delete the files of the other.
    """
    from duckicelake.catalog import warehouse
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.settings.sources import read_settings

    with open_lake(read_settings({"lake": lake})) as services:
        for sentence in warehouse.adopt(services) or ["The warehouse is this lake's: nothing has changed."]:
            typer.echo(sentence)


@one_line_errors()
def info(
    lake: LakeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Print where the catalog and its files are. Starts nothing, and works whether or not a server runs."""
    from duckicelake.settings.sources import read_settings

    facts = _collect_facts(read_settings({"lake": lake}))
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        typer.echo(f"{name:16} {value}")


def _collect_facts(settings: Settings) -> dict[str, str]:
    """Collect what `info` prints. Raises StartupError without a lake, UnavailableError if Postgres doesn't answer."""
    from duckicelake.cli.console.snippets import build_lake_secret
    from duckicelake.cli.serve.address import build_uri, find_database_notes, read_noted_uri
    from duckicelake.cli.wiring.location import build_policy
    from duckicelake.errors import StartupError
    from duckicelake.lake.formats import NEW_LAKE_FORMAT
    from duckicelake.lake.setup.attach import build_attach_source, find_duckdb_parameters
    from duckicelake.lake.setup.format import DEFAULT_SCHEMA_NAME
    from duckicelake.postgres.embedded import build_embedded_url

    if settings.database_url is None and not (settings.lake / "postgres").is_dir():
        raise StartupError(NO_LAKE.format(settings.lake))
    url = settings.database_url or build_embedded_url(settings.lake)
    schema, options = _read_stored(url, is_embedded=settings.database_url is None)
    served_at = (
        read_noted_uri(settings.lake) if settings.database_url is None else read_noted_uri(*find_database_notes(url))
    )
    facts = {
        "uri": served_at or build_uri(settings.host, settings.port, is_tls=settings.tls_certificate is not None),
        "ducklake-attach": build_attach_source(url, find_duckdb_parameters(url)),
        "data-path": options.get("data_path") or build_policy(settings).data_path,
        "format": options.get("version", NEW_LAKE_FORMAT.version),
    }
    if schema != DEFAULT_SCHEMA_NAME:
        facts["metadata-schema"] = schema
    secret = build_lake_secret(settings, facts["data-path"])
    return facts | {"duckdb-secret": secret} if secret else facts


def _read_stored(url: str, *, is_embedded: bool) -> tuple[str, dict[str, str]]:
    """Read the schema of the lake and its options. An embedded Postgres that is stopped gives the defaults.

    Raises StartupError if the database has no lake, UnavailableError if it doesn't answer.
    """
    from duckicelake.cli.wiring.location import advise_on_postgres
    from duckicelake.errors import UnavailableError
    from duckicelake.lake.setup.format import DEFAULT_SCHEMA_NAME, read_stored_lake

    try:
        return read_stored_lake(url)
    except UnavailableError as error:
        if is_embedded:
            return DEFAULT_SCHEMA_NAME, {}
        raise UnavailableError(f"{error}; {advise_on_postgres(error)}") from error
