"""What requests that carry a key came to, in the table that keeps it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from duckicelake.lake.postgres.database import Repeated, Transaction
from duckicelake.lake.postgres.documents import document
from duckicelake.lake.postgres.queries import queries

__all__ = ["LIFETIME", "Outcome", "Repeated", "find_outcome", "known", "settle"]

_SQL = queries("idempotency")
LIFETIME: Final = timedelta(minutes=30)
"""For how long a request may be sent again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """fingerprint: a digest of what was asked for. `result` and `error` are JSON; an error is a refusal."""

    fingerprint: bytes
    result: Any = None
    error: Any = None


def find_outcome(cursor: Transaction, key: UUID) -> Outcome | None:
    """What the request with the key came to; None if it hasn't been made, not to its end, or longer ago than that."""
    row = cursor.execute(_SQL.outcome, {"key": key, "lifetime": LIFETIME}).fetchone()
    return Outcome(*row) if row else None


def known(cursor: Transaction, keys: Sequence[UUID]) -> Callable[[], set[UUID]]:
    """Ask which of the keys have an outcome."""
    if not keys:
        return set
    asked = cursor.connection.cursor().execute(_SQL.known, {"keys": list(keys), "lifetime": LIFETIME})
    return lambda: {key for (key,) in asked.fetchall()}


def settle(cursor: Transaction, outcomes: Mapping[UUID, Outcome]) -> None:
    """Note outcomes by key, and forget some that are older than `LIFETIME`.

    If a key has one that isn't, the transaction raises Repeated. Waits for those that have noted one and not ended yet.
    """
    if not outcomes:
        return
    noted = [_noted(*each) for each in outcomes.items()]
    cursor.execute(_SQL.settle, {"outcomes": document(noted), "lifetime": LIFETIME})


def _noted(key: UUID, outcome: Outcome) -> dict[str, Any]:
    """JSON in it comes as text, in which Postgres takes what it takes nowhere else: NUL."""
    return {
        "key": key,
        "fingerprint": f"\\x{outcome.fingerprint.hex()}",
        "result": _json(outcome.result),
        "error": _json(outcome.error),
    }


def _json(value: Any) -> str | None:
    return None if value is None else document(value)
