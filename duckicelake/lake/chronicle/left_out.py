"""What those who follow the lake leave out, so that it doesn't keep all that comes after it from being told."""

from typing import Literal

import psycopg

from duckicelake.errors import CommitStateUnknown, Unavailable
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.queries import queries

_SQL = queries("left_out")
Name = Literal["chronicle", "lineage"]


class LeftOut(Exception):  # noqa: N818 - says what happened
    """Something can't be told, whatever is tried."""


def is_of_what_is_told(error: Exception) -> bool:
    """Whether a failure comes of the changes themselves, and so again with them, rather than of Postgres."""
    if isinstance(error, psycopg.Error):
        return isinstance(error, psycopg.DataError)
    return not isinstance(error, (Unavailable, CommitStateUnknown))


def leave_out(cursor: Transaction, follower: Name, what: str, error: Exception) -> LeftOut:
    """Note it in the transaction that goes on past it; what is to be said of it."""
    reason = f"{type(error).__name__}: {error}"
    cursor.execute(_SQL.note, {"follower": follower, "what": what, "reason": reason.replace("\0", "")})
    left_out = LeftOut(f"the {follower} will not tell of {what}: {reason}")
    left_out.__cause__ = error
    return left_out


def forget(cursor: Transaction) -> list[str]:
    """Have nothing more be said of what was left out until now; what that was."""
    rows = cursor.execute(_SQL.forget).fetchall()
    return [f"{follower}: {what} ({reason})" for follower, what, reason in rows]


def newest(cursor: Transaction, follower: Name) -> tuple[str, str, int] | None:
    """What it has left out last, why, and how often it has left out something; None: never."""
    row = cursor.execute(_SQL.newest, {"follower": follower}).fetchone()
    return None if row is None else (row[0], row[1], row[2])
