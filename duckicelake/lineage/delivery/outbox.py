"""SQL of the outbox: the position of each receiver, and dead letters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from psycopg import Cursor

from duckicelake.postgres.database import Database
from duckicelake.postgres.notify import NotificationListener
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lineage.delivery", "outbox")
_TURN_KEY: Final = 0x6C696E65  # "line"; a key of two parts, the other is the transport
_CHANNEL: Final = "duckicelake_lineage"

Event = tuple[int, str]
"""Id and body, which is JSON."""


class OutboxState(NamedTuple):
    """The state of the outbox for a receiver.

    The newest event; the one up to which all are delivered, None for a forgotten receiver; whether dead letters wait.

    Ids are in the order of commits: no event appears before a visible one.
    """

    newest: int
    position: int | None
    has_letters: bool


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a receiver refused, with the HTTP status, if any, and the reason. again: it is to be retried."""

    transport: str
    event_id: int
    at: datetime
    status: int | None
    reason: str
    attempts: int
    again: bool
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReceiverStanding:
    """The state of a receiver: waiting events, since when the oldest waits, dead letters, those to be retried."""

    transport: str
    event_id: int
    delivered: int
    dropped: int
    moved: datetime
    waiting: int
    oldest: datetime | None
    dead: int
    again: int


def register_receivers(database: Database, transports: Sequence[str]) -> None:
    """Register receivers; new ones get the events from now on."""
    with database.transaction() as cursor:
        for transport in transports:
            cursor.execute(_SQL.register, {"transport": transport})


def listen_for_events(database: Database) -> NotificationListener:
    """Open a connection that Postgres notifies of new events."""
    return database.open_listener(_CHANNEL)


def take_turn(cursor: Cursor[Row], transport: str) -> bool:
    """Try to become the only deliverer for a receiver in this session; False if another is."""
    return cursor.execute(_SQL.take_turn, {"key": _TURN_KEY, "transport": transport}).fetchone() == (True,)


def read_position(cursor: Cursor[Row], transport: str) -> int:
    """Read the event up to which all are delivered; a receiver that was forgotten meanwhile begins anew."""
    found = read_outbox(cursor, transport).position
    if found is None:
        cursor.execute(_SQL.register, {"transport": transport})
        found = read_outbox(cursor, transport).position
    assert found is not None
    return found


def read_outbox(cursor: Cursor[Row], transport: str) -> OutboxState:
    row = cursor.execute(_SQL.look, {"transport": transport}).fetchone()
    assert row is not None
    return OutboxState(*row)


def read_events(cursor: Cursor[Row], after: int, upto: int, limit: int) -> list[Event]:
    """Read up to `limit` of the catalog's own events after one and up to another, in order."""
    parameters = {"after": after, "upto": upto, "limit": limit}
    return [(id_, text) for id_, text in cursor.execute(_SQL.events, parameters).fetchall()]


def find_surplus(cursor: Cursor[Row], after: int, upto: int, most: int) -> int | None:
    """Find the newest own event, between two, that has `most` events behind it.

    None if there aren't that many.
    """
    row = cursor.execute(_SQL.surplus, {"after": after, "upto": upto, "most": most}).fetchone()
    return None if row is None else int(row[0])


def count_waiting(cursor: Cursor[Row], after: int, upto: int) -> int:
    """Count own events after one and up to another."""
    row = cursor.execute(_SQL.count, {"after": after, "upto": upto}).fetchone()
    assert row is not None
    return int(row[0])


def move_position(
    cursor: Cursor[Row], transport: str, after: int, upto: int, delivered: int = 0, dropped: int = 0
) -> bool:
    """Move a receiver's position; return False if another process has moved it."""
    parameters = {
        "transport": transport,
        "after": after,
        "upto": upto,
        "delivered": delivered,
        "dropped": dropped,
    }
    return cursor.execute(_SQL.move, parameters).rowcount == 1


def record_dead_letter(
    cursor: Cursor[Row], transport: str, event: Event, status: int | None, reason: str, attempts: int
) -> None:
    """Store an event that the receiver refused."""
    event_id, text = event
    parameters = {
        "transport": transport,
        "event_id": event_id,
        "status": status,
        "reason": reason,
        "attempts": attempts,
        "body": text,
    }
    cursor.execute(_SQL.bury, parameters)


def delete_delivered(cursor: Cursor[Row], transport: str, most: int) -> int:
    """Delete the oldest dead letters beyond `most`; return their number."""
    return cursor.execute(_SQL.shorten, {"transport": transport, "most": most}).rowcount


def read_letters_to_send(cursor: Cursor[Row], transport: str, limit: int) -> list[Event]:
    """Read the dead letters that an operator retries."""
    parameters = {"transport": transport, "limit": limit}
    return [(id_, text) for id_, text in cursor.execute(_SQL.letters, parameters).fetchall()]


def delete_dead_letter(cursor: Cursor[Row], transport: str, event_id: int) -> None:
    """Delete a dead letter that has arrived."""
    cursor.execute(_SQL.unbury, {"transport": transport, "event_id": event_id})


def retry_dead_letters(cursor: Cursor[Row], transport: str | None) -> int:
    """Mark all dead letters of one receiver, or of all, to be retried; return their number."""
    cursor.execute(_SQL.wake)
    return cursor.execute(_SQL.retry, {"transport": transport}).rowcount


def replay_events(cursor: Cursor[Row], transport: str) -> bool:
    """Reset a receiver's position, so that it gets all events again; False if there is no such receiver."""
    cursor.execute(_SQL.wake)
    return cursor.execute(_SQL.replay, {"transport": transport}).rowcount == 1


def forget_receiver(cursor: Cursor[Row], transport: str) -> bool:
    """Delete a receiver with its dead letters; False if there is none."""
    return cursor.execute(_SQL.forget, {"transport": transport}).rowcount == 1


def read_standings(cursor: Cursor[Row]) -> list[ReceiverStanding]:
    """Read the state of all receivers, except forgotten ones."""
    return [ReceiverStanding(*row) for row in cursor.execute(_SQL.standings).fetchall()]


def read_dead_letters(cursor: Cursor[Row], transport: str | None, limit: int) -> list[DeadLetter]:
    """Read dead letters of one receiver or of all, newest first."""
    parameters = {"transport": transport, "limit": limit}
    return [DeadLetter(*row) for row in cursor.execute(_SQL.dead, parameters).fetchall()]
