"""What `duckicelake info` tells."""

import json
from pathlib import Path

import typer

from duckicelake.cli.assembly.places import policy_of
from duckicelake.cli.lake_option import NO_LAKE
from duckicelake.cli.s3_secret import duckdb_secret
from duckicelake.cli.service.listening import uri
from duckicelake.cli.service.running import noted_uri
from duckicelake.lake.format import stored_options
from duckicelake.lake.model import FORMAT_VERSION
from duckicelake.lake.postgres.address import attach_source, embedded_url
from duckicelake.lake.postgres.session import duckdb_parameters
from duckicelake.settings import Settings, read_settings


def info(*, lake: Path | None, as_json: bool) -> None:
    """Print where things are, and on stderr that there is no lake yet."""
    settings = read_settings({"lake": lake})
    facts = _facts(settings)
    if settings.database_url is None and not (settings.lake / "postgres").is_dir():
        typer.echo(NO_LAKE.format(settings.lake), err=True)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        typer.echo(f"{name:16} {value}")


def _facts(settings: Settings) -> dict[str, str]:
    url = settings.database_url or embedded_url(settings.lake)
    options = stored_options(url)
    served_at = noted_uri(settings.lake) if settings.database_url is None else None
    facts = {
        "uri": served_at or uri(settings.host, settings.port, is_tls=settings.tls_certificate is not None),
        "ducklake-attach": attach_source(url, duckdb_parameters(url)),
        "data-path": options.get("data_path") or policy_of(settings).data_path,
        "format": options.get("version", FORMAT_VERSION),
    }
    secret = duckdb_secret(settings, facts["data-path"])
    return facts | {"duckdb-secret": secret} if secret else facts
