"""Where the Postgres behind a lake answers, told without starting anything."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duckicelake.errors import InvalidSettings
from duckicelake.lake.postgres.socket_folder import socket_folder
from duckicelake.lake.postgres.start import url_of

_PLACE = ("host", "hostaddr", "port", "dbname", "options", "service")


def embedded_url(folder: Path) -> str:
    """The URL at which the embedded Postgres of the lake in `folder` answers, or will when it runs."""
    return url_of(socket_folder(folder.resolve() / "postgres"))


def attach_source(url: str, parameters: Mapping[str, str] = MappingProxyType({})) -> str:
    """What DuckDB's ATTACH takes to open the catalog at a Postgres URL: `ducklake:postgres:<libpq keywords>`.

    parameters: further keywords, as of `session.duckdb_parameters`; its `options` come after those of the URL.
    """
    given = _parse(url)
    merged: dict[str, Any] = {**given, **parameters}
    merged |= {"options": f"{given.get('options') or ''} {parameters.get('options', '')}".strip()}
    parts = {key: value for key, value in merged.items() if value not in (None, "")}
    return "ducklake:postgres:" + make_conninfo("", **parts)


def database_parts(url: str) -> list[Any]:
    """The parts of a Postgres URL that say which lake is meant, without the login."""
    given = _parse(url)
    return [given.get(key) for key in _PLACE]


def check_url(url: str) -> None:
    """Raise InvalidSettings unless libpq can read it; nothing is connected."""
    _parse(url)


def _parse(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except ProgrammingError as error:
        reason = str(error).split(" in URI")[0]  # what follows repeats the URL, password included
        raise InvalidSettings(
            f"database_url is not a Postgres URL ({reason}); write postgresql://user:password@host:5432/name"
        ) from None
