"""Open databases and sessions by the rules of a lake."""

from functools import partial
from typing import Final

import psycopg

from duckicelake.errors import CatalogError, FormatChangeError, ReadOnlyTableError, UnknownFormatError
from duckicelake.lake.conflicts import RepeatedRequestError, StaleSnapshotError
from duckicelake.postgres.database import Database
from duckicelake.postgres.rules import DatabaseRules
from duckicelake.postgres.session import PinnedSession

_MARKER_TABLE: Final = "ducklake_metadata"
_READ_ONLY_TABLE_STATE: Final = "DIRO1"
"""SQLSTATE of the trigger of migration 0021."""
_UNKNOWN_FORMAT_STATE: Final = "DIUF1"
"""SQLSTATE of the precondition of migration 0032: this server doesn't know the lake's format."""
_FORMAT_CHANGE_STATE: Final = "DIFC1"
"""SQLSTATE of what refuses writers while `duckicelake migrate` runs (migration 0045)."""


def translate_refusal(error: psycopg.Error) -> CatalogError | None:
    """Return the error of the request for an SQLSTATE of the lake's own triggers and functions; None for others."""
    if error.sqlstate == _READ_ONLY_TABLE_STATE:
        return ReadOnlyTableError(error.diag.message_primary or "The table can't be written")
    if error.sqlstate == _UNKNOWN_FORMAT_STATE:
        return UnknownFormatError(f"{error.diag.message_primary}; nothing was written")
    if error.sqlstate == _FORMAT_CHANGE_STATE:
        return FormatChangeError(f"{error.diag.message_primary}; nothing was written, try again")
    return None


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
    """Return a session that pins the schema of the lake, and further settings."""
    return PinnedSession(_MARKER_TABLE, **settings)
