"""What it means to a request that Postgres refuses, or doesn't answer, before COMMIT was sent."""

from collections.abc import Mapping
from typing import Final

import psycopg
from psycopg_pool import PoolTimeout

from duckicelake.errors import CatalogError, InvalidRequest, Unavailable

_REASONS: Final[Mapping[str, str]] = {
    "25006": "Postgres takes no writes now (default_transaction_read_only is on, as where a disk is full, or it is a "
    "standby)",
    "42501": "Postgres denies the server's login what it needs (`duckicelake grants` prints what gives it)",
    "53100": "Postgres's disk is full",
    "53200": "Postgres is out of memory",
    "53300": "Postgres has no connections left",
    "57014": "This took too long",
    "57P03": "Postgres is starting up, recovering or shutting down",
    "25P03": "This took too long",
}
"""By SQLSTATE; one of a class is the reason where there is none for the state itself."""
_CLASSES: Final[Mapping[str, str]] = {"53": "Postgres has run out of what it needs", "58": "Postgres's system fails it"}
_TOO_LARGE: Final = "54"
"""The class of what exceeds a limit of the program: a row of an index, a statement's depth."""


def outage_of(error: psycopg.Error) -> CatalogError | None:
    """The error for the request; None if it is neither Postgres's state nor its absence that made it fail."""
    state = error.sqlstate or ""
    if isinstance(error, psycopg.OperationalError) and state.startswith(_TOO_LARGE):
        return InvalidRequest("Postgres can't hold so much in one piece; nothing was written")
    reason = _REASONS.get(state) or _CLASSES.get(state[:2]) or _without_state(error)
    return None if reason is None else Unavailable(f"{reason}; nothing was written, try again: {error}")


def _without_state(error: psycopg.Error) -> str | None:
    if isinstance(error, PoolTimeout):
        return "Postgres does not answer, or all connections to it are busy"
    if isinstance(error, psycopg.OperationalError):
        return "Postgres does not answer"
    return None
