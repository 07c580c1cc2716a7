"""What requests that carry a key came to, in the table that keeps it."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Json

from duckicelake.lake.database import Transaction
from duckicelake.lake.queries import queries

_SQL = queries("idempotency")


@dataclass(frozen=True, slots=True)
class Outcome:
    """fingerprint: a digest of what was asked for. `result` and `error` are JSON; an error is a refusal."""

    fingerprint: bytes
    result: Any = None
    error: Any = None


def find_outcome(cursor: Transaction, key: UUID, lifetime: timedelta) -> Outcome | None:
    """What the request with the key came to; None if it hasn't been made, not to its end, or longer ago than that."""
    row = cursor.execute(_SQL.outcome, {"key": key, "lifetime": lifetime}).fetchone()
    return Outcome(*row) if row else None


def settle(cursor: Transaction, key: UUID, outcome: Outcome, lifetime: timedelta) -> bool:
    """Note an outcome, and forget some that are older than `lifetime`; False if the key has one that isn't.

    Waits for a transaction that has noted one and not ended yet.
    """
    parameters = {
        "key": key,
        "fingerprint": outcome.fingerprint,
        "result": _json(outcome.result),
        "error": _json(outcome.error),
        "lifetime": lifetime,
    }
    return cursor.execute(_SQL.settle, parameters).fetchone() is not None


def _json(value: Any) -> Json | None:
    return None if value is None else Json(value)
