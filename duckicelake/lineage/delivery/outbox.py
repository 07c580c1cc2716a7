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
    """The newest event; the one up to which none waits, None if the transport was forgotten; whether dead letters do.

    Ids are in the order of commits: no event appears any more before one that can be seen.
    """

    newest: int
    position: int | None
    has_letters: bool


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a receiver refused: HTTP's status, if there was one, and why. again: it is to be tried again."""

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
    """How far a transport is: events that wait, since when the oldest does, dead letters, those to be tried again."""

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
    """Have transports that are new begin with the events to come."""
    with database.transaction() as cursor:
        for transport in transports:
            cursor.execute(_SQL.register, {"transport": transport})


def listen_for_events(database: Database) -> NotificationListener:
    """Return a connection that Postgres notifies of new events."""
    return database.open_listener(_CHANNEL)


def take_turn(cursor: Cursor[Row], transport: str) -> bool:
    """Be the only one who delivers for a transport, for as long as the session lasts; False if another is."""
    return cursor.execute(_SQL.take_turn, {"key": _TURN_KEY, "transport": transport}).fetchone() == (True,)


def read_position(cursor: Cursor[Row], transport: str) -> int:
    """Return the event up to which none waits; a transport that was forgotten meanwhile begins anew."""
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
    """Read the catalog's own events after one and up to another, so many at most, in order."""
    parameters = {"after": after, "upto": upto, "limit": limit}
    return [(id_, text) for id_, text in cursor.execute(_SQL.events, parameters).fetchall()]


def find_surplus(cursor: Cursor[Row], after: int, upto: int, most: int) -> int | None:
    """Return the newest of our own events after one that has `most` behind it, up to another.

    None if there aren't as many.
    """
    row = cursor.execute(_SQL.surplus, {"after": after, "upto": upto, "most": most}).fetchone()
    return None if row is None else int(row[0])


def count_waiting(cursor: Cursor[Row], after: int, upto: int) -> int:
    """Return how many of our own events there are after one and up to another."""
    row = cursor.execute(_SQL.count, {"after": after, "upto": upto}).fetchone()
    assert row is not None
    return int(row[0])


def move_position(
    cursor: Cursor[Row], transport: str, after: int, upto: int, delivered: int = 0, dropped: int = 0
) -> bool:
    """Go on from one event to another; return False if another process has moved the position."""
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
    """Keep an event that the receiver refused."""
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
    """Forget the oldest dead letters, so that so many are left; how many they were."""
    return cursor.execute(_SQL.shorten, {"transport": transport, "most": most}).rowcount


def read_letters_to_send(cursor: Cursor[Row], transport: str, limit: int) -> list[Event]:
    """Return dead letters that an operator sends again."""
    parameters = {"transport": transport, "limit": limit}
    return [(id_, text) for id_, text in cursor.execute(_SQL.letters, parameters).fetchall()]


def delete_dead_letter(cursor: Cursor[Row], transport: str, event_id: int) -> None:
    """Forget a dead letter: it has arrived."""
    cursor.execute(_SQL.unbury, {"transport": transport, "event_id": event_id})


def retry_dead_letters(cursor: Cursor[Row], transport: str | None) -> int:
    """Have all dead letters tried again, of one transport or of all; how many they are."""
    cursor.execute(_SQL.wake)
    return cursor.execute(_SQL.retry, {"transport": transport}).rowcount


def replay_events(cursor: Cursor[Row], transport: str) -> bool:
    """Have all events sent once more; False if there is no such transport."""
    cursor.execute(_SQL.wake)
    return cursor.execute(_SQL.replay, {"transport": transport}).rowcount == 1


def forget_receiver(cursor: Cursor[Row], transport: str) -> bool:
    """Forget a transport with its dead letters; False if there is none."""
    return cursor.execute(_SQL.forget, {"transport": transport}).rowcount == 1


def read_standings(cursor: Cursor[Row]) -> list[ReceiverStanding]:
    """Return all transports that there ever were, but for forgotten ones."""
    return [ReceiverStanding(*row) for row in cursor.execute(_SQL.standings).fetchall()]


def read_dead_letters(cursor: Cursor[Row], transport: str | None, limit: int) -> list[DeadLetter]:
    """Return dead letters, of one transport or of all, newest first."""
    parameters = {"transport": transport, "limit": limit}
    return [DeadLetter(*row) for row in cursor.execute(_SQL.dead, parameters).fetchall()]
