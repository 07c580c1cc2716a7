"""`duckicelake info`: print where the catalog and its files are."""

import json
from pathlib import Path

import typer

from duckicelake.cli.console.command import NO_LAKE
from duckicelake.cli.console.snippets import build_lake_secret
from duckicelake.cli.serve.address import build_uri, find_database_notes, read_noted_uri
from duckicelake.cli.wiring.location import advise_on_postgres, build_policy
from duckicelake.errors import StartupError, Unavailable
from duckicelake.lake.model import FORMAT_VERSION
from duckicelake.lake.setup.format import DEFAULT_SCHEMA_NAME, read_stored_lake
from duckicelake.postgres.embedded import build_attach_source, build_embedded_url
from duckicelake.postgres.session import find_duckdb_parameters
from duckicelake.settings.model import Settings
from duckicelake.settings.sources import read_settings


def info(*, lake: Path | None, as_json: bool) -> None:
    """Print where things are. Raises StartupError where there is no lake, Unavailable if Postgres doesn't answer."""
    facts = _collect_facts(read_settings({"lake": lake}))
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        typer.echo(f"{name:16} {value}")


def _collect_facts(settings: Settings) -> dict[str, str]:
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
        "format": options.get("version", FORMAT_VERSION),
    }
    if schema != DEFAULT_SCHEMA_NAME:
        facts["metadata-schema"] = schema
    secret = build_lake_secret(settings, facts["data-path"])
    return facts | {"duckdb-secret": secret} if secret else facts


def _read_stored(url: str, *, is_embedded: bool) -> tuple[str, dict[str, str]]:
    """(The schema of the lake, its options). An embedded Postgres needn't run: then what a lake in a folder has.

    Raises StartupError if the database has no lake, Unavailable if it doesn't answer.
    """
    try:
        return read_stored_lake(url)
    except Unavailable as error:
        if is_embedded:
            return DEFAULT_SCHEMA_NAME, {}
        raise Unavailable(f"{error}; {advise_on_postgres(error)}") from error
