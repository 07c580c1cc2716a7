"""The change feed of a process: the newest changes in memory, kept up to date by a thread, older ones on demand."""

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from duckicelake.catalog.chronicle.events import Happened, happened, request_of
from duckicelake.errors import Forgotten, InvalidRequest
from duckicelake.lake import native
from duckicelake.lake.chronicle import entries as chronicle
from duckicelake.lake.chronicle.entries import CHANNEL, END, LAST_ORDINAL, START, Change, Position, WantedChanges
from duckicelake.lake.postgres.database import Database, Transaction
from duckicelake.lake.postgres.notices import Notices

__all__ = ["PAGE", "START", "Failed", "NewsReader", "RecentChanges", "Tell", "older_changes", "resolved"]

PAGE: Final = 200
"""Changes of which a reader is told at a time: each may hold so many in memory, until it has taken them."""
_READ: Final = 1000
"""Changes that are read from Postgres for all, at a time."""
MOST: Final = 10_000
MOST_BYTES: Final = 64 * 1024 * 1024
"""Of what is kept in memory."""
_LOOK_SECONDS: Final = 5.0
"""After which is looked for news that nobody has told."""
_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE: Final = 2.0
"""After Postgres was lost, before the next try; twice as long each time."""

Tell = Callable[[Position, Sequence[Happened]], object]
"""Hears what came after a position: the last that was told, unless it is the first time, or the lake was put back."""
Failed = Callable[[Exception], object]
"""Hears why nothing can be told for a while."""


@dataclass(slots=True)
class RecentChanges:
    """All changes after `start`. `newest` is the position of the last, or `start`; newest_ms: when it was made."""

    start: Position
    newest: Position
    newest_ms: int = 0
    _changes: list[Happened] = field(default_factory=list)
    _bytes: int = 0

    def extend(self, changes: Sequence[Happened]) -> None:
        """Add what came after `newest`; what is oldest goes if that is too much."""
        self._changes += changes
        self._bytes += sum(change.size for change in changes)
        if changes:
            self.newest, self.newest_ms = changes[-1].position, changes[-1].at_ms
        dropped = 0
        while len(self._changes) - dropped > MOST or self._bytes > MOST_BYTES:
            self._bytes -= self._changes[dropped].size
            self.start = self._changes[dropped].position
            dropped += 1
        del self._changes[:dropped]

    def after(self, position: Position) -> list[Happened] | None:
        """None if it is too long ago to be in memory."""
        if position < self.start:
            return None
        return self._changes[bisect_right(self._changes, position, key=lambda change: change.position) :]


class NewsReader:
    """Tells all changes from a moment on, in a thread of its own, until the database is closed."""

    def __init__(self, database: Database, tell: Tell, failed: Failed) -> None:
        self._notices: Notices = database.notices(CHANNEL)
        self._tell = tell
        self._failed = failed
        self._told: Position | None = None
        self._pause = _PAUSE_SECONDS

    def start(self) -> None:
        threading.Thread(target=self._run, name="change-feed", daemon=True).start()

    def _run(self) -> None:
        try:
            while not self._notices.is_closed:
                self._listen()
        finally:
            self._notices.release()

    def _listen(self) -> None:
        try:
            with self._notices.listening() as cursor:
                self._follow(cursor)
        except Exception as error:  # noqa: BLE001 - what it misses meanwhile, it reads once that works again
            self._failed(error)
            self._notices.wait(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _follow(self, cursor: Transaction) -> None:
        chronicle.be_awaited(cursor)
        if self._told is not None and chronicle.newest(cursor) < self._told:
            self._told = None  # another Postgres has taken over, which hasn't seen all: what was told is not so
        while not self._notices.is_closed:
            while self._read(cursor):
                pass
            self._pause = _PAUSE_SECONDS
            self._notices.wait(_LOOK_SECONDS)

    def _read(self, cursor: Transaction) -> bool:
        """Tell what is new; whether there may be more."""
        after = self._told or _first(cursor)
        found = _read(cursor, after, _READ)
        if found or self._told is None:
            self._tell(after, found)
            self._told = found[-1].position if found else after
        return bool(found)


def _first(cursor: Transaction) -> Position:
    """After which a few of the newest changes are read, for those who come again. What was before it, may be pruned."""
    found = chronicle.latest(cursor, END, _READ)
    return found[-1].position if found else START


def older_changes(database: Database, after: Position, since_ms: int) -> list[Happened]:
    """Those that come next and aren't too old, as many as fit on a page."""
    since = datetime.fromtimestamp(since_ms / 1000, UTC) if since_ms else None
    with database.statement() as cursor:
        return _read(cursor, after, PAGE, WantedChanges(since=since))


def _read(cursor: Transaction, after: Position, limit: int, wanted: WantedChanges = chronicle.ANY) -> list[Happened]:
    """The next `limit` changes or fewer, but all that were made by one request, unless they are too many.

    Clients may give all that they ever do one id.
    """
    while True:
        found = chronicle.changes(cursor, after, limit, wanted)
        whole = found if len(found) < limit or limit >= MOST else _whole_requests(found)
        if whole or not found:
            return happened(whole)
        limit *= 2


def _whole_requests(found: Sequence[Change]) -> Sequence[Change]:
    """Without the last request, of which there may be more."""
    last, end = request_of(found[-1]), len(found)
    while end and request_of(found[end - 1]) == last:
        end -= 1
    return found[:end]


def resolved(database: Database, position: Position) -> Position | None:
    """The same position, where it can be read on from; None if the lake is being followed up to it just now.

    InvalidRequest if the lake hasn't come so far, Forgotten if what follows it isn't kept.
    """
    with database.statement() as cursor:
        newest, oldest = chronicle.newest(cursor), chronicle.oldest(cursor)
        if position.snapshot_id > newest.snapshot_id:
            if position.snapshot_id > native.newest_snapshot(cursor):
                raise _too_far(position, newest)
            return None
    if position > newest and position.ordinal != LAST_ORDINAL:
        raise _too_far(position, newest)
    if oldest is not None and START < position < oldest:
        message = f"Changes after {position} are not kept any more, the oldest is {oldest}: read the tables themselves"
        raise Forgotten(f"{message}, then go on from what from=newest tells")
    return min(position, newest)


def _too_far(position: Position, newest: Position) -> InvalidRequest:
    asked = position.snapshot_id if position.ordinal == LAST_ORDINAL else position
    return InvalidRequest(
        f"The lake has not come to {asked}: its newest change is {newest}. If it was put back from a backup, "
        "read the tables anew, and go on from what from=newest tells"
    )
