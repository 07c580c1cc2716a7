"""What `duckicelake info` tells."""

import json
from pathlib import Path

import typer

from duckicelake.cli.assembly.places import policy_of
from duckicelake.cli.assembly.postgres import postgres_advice
from duckicelake.cli.lake_option import NO_LAKE
from duckicelake.cli.s3_secret import duckdb_secret
from duckicelake.cli.service.listening import uri
from duckicelake.cli.service.running import database_notes, noted_uri
from duckicelake.errors import StartupError, Unavailable
from duckicelake.lake.contents import DEFAULT_SCHEMA
from duckicelake.lake.format import stored_lake
from duckicelake.lake.model import FORMAT_VERSION
from duckicelake.lake.postgres.address import attach_source, embedded_url
from duckicelake.lake.postgres.session import duckdb_parameters
from duckicelake.settings import Settings, read_settings


def info(*, lake: Path | None, as_json: bool) -> None:
    """Print where things are. Raises StartupError where there is no lake, Unavailable if Postgres doesn't answer."""
    facts = _facts(read_settings({"lake": lake}))
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        typer.echo(f"{name:16} {value}")


def _facts(settings: Settings) -> dict[str, str]:
    if settings.database_url is None and not (settings.lake / "postgres").is_dir():
        raise StartupError(NO_LAKE.format(settings.lake))
    url = settings.database_url or embedded_url(settings.lake)
    schema, options = _stored(url, is_embedded=settings.database_url is None)
    served_at = noted_uri(settings.lake) if settings.database_url is None else noted_uri(*database_notes(url))
    facts = {
        "uri": served_at or uri(settings.host, settings.port, is_tls=settings.tls_certificate is not None),
        "ducklake-attach": attach_source(url, duckdb_parameters(url)),
        "data-path": options.get("data_path") or policy_of(settings).data_path,
        "format": options.get("version", FORMAT_VERSION),
    }
    if schema != DEFAULT_SCHEMA:
        facts["metadata-schema"] = schema
    secret = duckdb_secret(settings, facts["data-path"])
    return facts | {"duckdb-secret": secret} if secret else facts


def _stored(url: str, *, is_embedded: bool) -> tuple[str, dict[str, str]]:
    """(The schema of the lake, its options). An embedded Postgres needn't run: then what a lake in a folder has.

    Raises StartupError if the database has no lake, Unavailable if it doesn't answer.
    """
    try:
        return stored_lake(url)
    except Unavailable as error:
        if is_embedded:
            return DEFAULT_SCHEMA, {}
        raise Unavailable(f"{error}; {postgres_advice(error)}") from error
