"""Open databases and sessions by the rules of a lake; build the statements by which DuckDB attaches it."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import psycopg
from psycopg.conninfo import make_conninfo

from duckicelake.errors import (
    CatalogError,
    FormatChangeError,
    InvalidRequestError,
    ProtectedError,
    QuotaExceededError,
    ReadOnlyTableError,
    UnknownFormatError,
    UnsupportedError,
)
from duckicelake.lake.conflicts import RepeatedRequestError, StaleSnapshotError
from duckicelake.postgres.database import Database
from duckicelake.postgres.embedded import parse_url
from duckicelake.postgres.failures import DatabaseRules
from duckicelake.postgres.session import PinnedSession

_MARKER_TABLE: Final = "ducklake_metadata"
_READ_ONLY_TABLE_STATE: Final = "DIRO1"
"""SQLSTATE of the trigger of migration 0021."""
_UNKNOWN_FORMAT_STATE: Final = "DIUF1"
"""SQLSTATE of the precondition of migration 0032: this server doesn't know the lake's format."""
_FORMAT_CHANGE_STATE: Final = "DIFC1"
"""SQLSTATE of what refuses writers while `duckicelake migrate` runs (migration 0045)."""
_NESTED_SCHEMA_STATE: Final = "DINS1"
"""SQLSTATE of migration 0044's refusal of a table in a nested schema."""
_PROTECTED_STATE: Final = "DIPR1"
"""SQLSTATE of migration 0053's refusal to drop what is protected."""
_MEMBERSHIP_STATE: Final = "DIGM1"
"""SQLSTATE of migration 0054's refusal of a membership."""
_QUOTA_STATE: Final = "DIQU1"
"""SQLSTATE of migration 0062's refusal of more tables or namespaces than a lake may have."""
_ERRORS_BY_STATE: Final[Mapping[str | None, type[CatalogError]]] = {
    _PROTECTED_STATE: ProtectedError,
    _QUOTA_STATE: QuotaExceededError,
    _MEMBERSHIP_STATE: InvalidRequestError,
    _READ_ONLY_TABLE_STATE: ReadOnlyTableError,
}
"""Errors with the message of Postgres."""


def translate_refusal(error: psycopg.Error) -> CatalogError | None:
    """Translate an SQLSTATE of the lake's own triggers and functions into the request's error; None for others."""
    if error.sqlstate == _UNKNOWN_FORMAT_STATE:
        return UnknownFormatError(f"{error.diag.message_primary}; nothing was written")
    if error.sqlstate == _FORMAT_CHANGE_STATE:
        return FormatChangeError(f"{error.diag.message_primary}; nothing was written, try again")
    if error.sqlstate == _NESTED_SCHEMA_STATE:
        return build_nested_refusal(error.diag.message_primary or "The table is in a nested schema")
    known = _ERRORS_BY_STATE.get(error.sqlstate)
    return None if known is None else known(error.diag.message_primary or "The lake refuses this")


def build_nested_refusal(problem: str) -> UnsupportedError:
    """Build the error for a request that this server can't serve in a nested schema."""
    return UnsupportedError(
        "nested-schemas",
        f"{problem}: this server doesn't know where DuckLake keeps the files of such schemas. "
        "Use DuckDB 2.0 for it, or a schema at the top level",
    )


LAKE_RULES: Final = DatabaseRules(
    marker_table=_MARKER_TABLE,
    error_by_column={
        ("duckicelake_idempotency", "created_at"): RepeatedRequestError,
        ("ducklake_snapshot", "snapshot_id"): StaleSnapshotError,
        ("duckicelake_table", "version"): StaleSnapshotError,
    },
    translate=translate_refusal,
)

open_lake_database = partial(Database, rules=LAKE_RULES)
"""Open a pool of connections to the database of a lake, with the arguments of `Database`."""


def open_lake_session(**settings: str) -> PinnedSession:
    """Build a session that pins the schema of the lake, and further settings."""
    return PinnedSession(_MARKER_TABLE, **settings)


def build_attach_source(url: str, parameters: Mapping[str, str] = MappingProxyType({})) -> str:
    """Build the source in DuckDB's ATTACH for the lake at a Postgres URL: `ducklake:postgres:<libpq keywords>`.

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
    """Build the libpq keywords of a Postgres URL, without the password, for `pg_dump --dbname`."""
    given = parse_url(url)
    return make_conninfo("", **{key: value for key, value in given.items() if key != "password"})


def build_duckdb_attach(url: str, alias: str = "lake", data_path: str | None = None, schema: str | None = None) -> str:
    """Build the ATTACH statement for the lake at a Postgres URL.

    data_path: where DuckDB is to create the lake. schema: of the lake; None: DuckDB's own default.
    """
    given = {"METADATA_SCHEMA": schema, "DATA_PATH": data_path}
    options = ", ".join(f"{name} {quote_literal(value)}" for name, value in given.items() if value is not None)
    options = f" ({options})" if options else ""
    name = '"' + alias.replace('"', '""') + '"'
    return f"ATTACH {quote_literal(build_attach_source(url))} AS {name}{options}"


def find_duckdb_parameters(url: str) -> dict[str, str]:
    """Find the libpq keywords that DuckDB's sessions need; none if database and role keep Postgres's defaults.

    DuckDB 1.5 sets none by itself. Of `PINNED_SETTINGS`, only these two change what DuckDB writes and reads (tried).
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
    """Quote a text as a literal of DuckDB's SQL."""
    return "'" + text.replace("'", "''") + "'"
