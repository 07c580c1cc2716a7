"""Build the sources and statements by which DuckDB attaches a lake in Postgres."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from duckicelake.postgres.embedded import parse_url


def build_attach_source(url: str, parameters: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the source in DuckDB's ATTACH for the lake at a Postgres URL: `ducklake:postgres:<libpq keywords>`.

    Args:
        url: a Postgres URL; InvalidSettingsError if libpq can't read it.
        parameters: further keywords, as of `find_duckdb_parameters`. Their `options` follow those of the URL.

    """
    given = parse_url(url)
    merged: dict[str, Any] = {**given, **parameters}
    merged |= {"options": f"{given.get('options') or ''} {parameters.get('options', '')}".strip()}
    parts = {key: value for key, value in merged.items() if value not in (None, "")}
    return "ducklake:postgres:" + make_conninfo("", **parts)


def build_dump_source(url: str) -> str:
    """Return the libpq keywords in a Postgres URL, without the password, for `pg_dump --dbname`."""
    given = parse_url(url)
    return make_conninfo("", **{key: value for key, value in given.items() if key != "password"})


def build_duckdb_attach(url: str, alias: str = "lake", data_path: str | None = None) -> str:
    """Return the ATTACH statement for the lake at a Postgres URL. data_path: where DuckDB is to create the lake."""
    options = "" if data_path is None else f" (DATA_PATH {quote_literal(data_path)})"
    name = '"' + alias.replace('"', '""') + '"'
    return f"ATTACH {quote_literal(build_attach_source(url))} AS {name}{options}"


def find_duckdb_parameters(url: str) -> dict[str, str]:
    """Return the libpq keywords that DuckDB's sessions need; none where database and role keep Postgres's defaults.

    DuckDB 1.5 sets none by itself. Tried: of `PINNED_SETTINGS`, only these two change what DuckDB writes and reads.
    """
    try:
        with psycopg.connect(url, connect_timeout=2) as connection:
            status = connection.info.parameter_status
            found: dict[str, str] = {} if status("client_encoding") == "UTF8" else {"client_encoding": "UTF8"}
            if status("standard_conforming_strings") != "on":
                found["options"] = "-c standard_conforming_strings=on"
            return found
    except psycopg.OperationalError:
        return {}


def quote_literal(text: str) -> str:
    """Return a text as a literal of DuckDB's SQL."""
    return "'" + text.replace("'", "''") + "'"
