"""The change feed of a process: recent changes in memory, older ones on demand, filtered for each reader."""

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Final

from duckicelake.catalog.context.caller import Capability, Grant, Principal
from duckicelake.catalog.context.privileges import Rights
from duckicelake.changelog.entries import (
    ANY_CHANGE,
    CHANNEL,
    END_POSITION,
    LAST_ORDINAL,
    START_POSITION,
    LoggedChange,
    LogPosition,
    WantedChanges,
    await_changelog,
    read_changes,
    read_latest,
    read_newest_position,
    read_oldest,
)
from duckicelake.changelog.events import ChangeEvent, Name, RequestChanges, find_request, group_requests
from duckicelake.errors import ExpiredError, InvalidRequestError
from duckicelake.lake.ducklake import native
from duckicelake.postgres.database import Database
from duckicelake.postgres.notify import NotificationListener
from duckicelake.postgres.queries import Transaction

_LRU_ENTRIES: Final = 4096
PAGE_CHANGES: Final = 200
"""Changes that a reader gets at a time, and may hold in memory."""
_READ: Final = 1000
"""Changes read from Postgres at a time, for all readers."""
MAX_CHANGES: Final = 10_000
MAX_CHANGES_BYTES: Final = 64 * 1024 * 1024
"""Bytes of changes in memory."""
_LOOK_SECONDS: Final = 5.0
"""Seconds after which the changelog is read without a notification."""
_PAUSE_SECONDS: Final = 0.5
_MAX_PAUSE_SECONDS: Final = 2.0
"""The longest pause after Postgres was lost; pauses double."""
PublishChanges = Callable[[LogPosition, Sequence[RequestChanges]], object]
"""Called with changes after a position: the last published one, except the first time or after a restore."""
ReadFailed = Callable[[Exception], object]
"""Called with an error while nothing can be published."""


@dataclass(frozen=True, slots=True)
class EventSelection:
    """The selection of a reader; an empty field means any. names: `(namespace, None)` is all in and below it.

    since_ms: the oldest time, in milliseconds since the epoch.
    """

    names: frozenset[Name] = frozenset()
    kinds: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    uuids: frozenset[str] = frozenset()
    since_ms: int = 0

    def wants(self, event: ChangeEvent) -> bool:
        return (
            event.at_ms >= self.since_ms
            and (not self.kinds or not self.kinds.isdisjoint(event.kinds))
            and (not self.types or event.type in self.types)
            and (not self.uuids or event.uuid in self.uuids)
            and (not self.names or any(map(self._covers, event.names)))
        )

    def _covers(self, name: Name) -> bool:
        namespace, _ = name
        if name in self.names:
            return True
        return any((namespace[:length], None) in self.names for length in range(1, len(namespace) + 1))


@dataclass(frozen=True)
class EventView:
    """A view on changes, shared by readers with the same rights and selection."""

    grants: tuple[Grant, ...]
    selection: EventSelection = EventSelection()
    rights: Rights | None = None

    def __hash__(self) -> int:
        """Hash cheaply: the feed looks up each reader's view at each change."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.grants, self.selection, id(self.rights)))

    @property
    def is_limited_outside(self) -> bool:
        """Whether a service outside is asked about events, which takes its time."""
        return self.rights is not None and self.rights.outside is not None

    def events(self, changes: Iterable[RequestChanges]) -> list[ChangeEvent]:
        """Return the events of changes, in order. UnavailableError if the outside doesn't answer."""
        changes = tuple(changes)
        if self.rights is not None:
            named = dict.fromkeys(name for change in changes for name in change.whole.names)
            self.rights.look_ahead((namespace, name or "") for namespace, name in named)
        seen = (change.show_to(self._may_read) for change in changes)
        return [event for event in seen if event is not None and self.selection.wants(event)]

    @cached_property
    def _reader(self) -> Principal:
        return Principal("", self.grants, rights=self.rights)

    def _may_read(self, name: Name) -> bool:
        namespace, own = name
        return self._reader.may(Capability.READ, namespace, own or "")


find_view = lru_cache(_LRU_ENTRIES)(EventView)
"""Cached, so that equal views are one object."""


@dataclass(slots=True)
class RecentChanges:
    """All changes after `start`. newest: position of the last one, or `start`. newest_ms: its time."""

    start: LogPosition
    newest: LogPosition
    newest_ms: int = 0
    _changes: list[RequestChanges] = field(default_factory=list)
    _bytes: int = 0

    def extend(self, changes: Sequence[RequestChanges]) -> None:
        """Add changes after `newest`; drop the oldest beyond the limit."""
        self._changes += changes
        self._bytes += sum(change.size for change in changes)
        if changes:
            self.newest, self.newest_ms = changes[-1].position, changes[-1].at_ms
        dropped = 0
        while len(self._changes) - dropped > MAX_CHANGES or self._bytes > MAX_CHANGES_BYTES:
            self._bytes -= self._changes[dropped].size
            self.start = self._changes[dropped].position
            dropped += 1
        del self._changes[:dropped]

    def after(self, position: LogPosition) -> list[RequestChanges] | None:
        """Return the changes after a position; None if the oldest of them aren't in memory any more."""
        if position < self.start:
            return None
        return self._changes[bisect_right(self._changes, position, key=lambda change: change.position) :]


class NewsReader:
    """Publishes new changes, in a thread of its own, until the database is closed."""

    def __init__(self, database: Database, publish: PublishChanges, failed: ReadFailed) -> None:
        self._notices: NotificationListener = database.open_listener(CHANNEL)
        self._publish = publish
        self._failed = failed
        self._published: LogPosition | None = None
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
            with self._notices.connect() as cursor:
                self._follow(cursor)
        except Exception as error:  # noqa: BLE001 - what it misses meanwhile, it reads once that works again
            self._failed(error)
            self._notices.wait(self._pause)
            self._pause = min(2 * self._pause, _MAX_PAUSE_SECONDS)

    def _follow(self, cursor: Transaction) -> None:
        await_changelog(cursor)
        if self._published is not None and read_newest_position(cursor) < self._published:
            self._published = (
                None  # a standby without the last commits took over: some published changes never happened
            )
        while not self._notices.is_closed:
            while self._read(cursor):
                pass
            self._pause = _PAUSE_SECONDS
            self._notices.wait(_LOOK_SECONDS)

    def _read(self, cursor: Transaction) -> bool:
        """Read and publish new changes; return whether there may be more."""
        after = self._published or _find_first(cursor)
        found = _read_page(cursor, after, _READ)
        if found or self._published is None:
            self._publish(after, found)
            self._published = found[-1].position if found else after
        return bool(found)


def _find_first(cursor: Transaction) -> LogPosition:
    """Find a position a few changes before the newest, for readers that connect again. Older ones may be pruned."""
    found = read_latest(cursor, END_POSITION, _READ)
    return found[-1].position if found else START_POSITION


def read_older_changes(database: Database, after: LogPosition, since_ms: int) -> list[RequestChanges]:
    """Read the next page of changes after a position that aren't too old."""
    since = datetime.fromtimestamp(since_ms / 1000, UTC) if since_ms else None
    with database.statement(only_reads=True) as cursor:
        return _read_page(cursor, after, PAGE_CHANGES, WantedChanges(since=since))


def _read_page(
    cursor: Transaction, after: LogPosition, limit: int, wanted: WantedChanges = ANY_CHANGE
) -> list[RequestChanges]:
    """Read the next changes, up to `limit`; all changes of one request stay together, unless they are too many.

    Clients may use one request id for everything.
    """
    while True:
        found = read_changes(cursor, after, limit, wanted)
        whole = found if len(found) < limit or limit >= MAX_CHANGES else _drop_open_request(found)
        if whole or not found:
            return group_requests(whole)
        limit *= 2


def _drop_open_request(found: Sequence[LoggedChange]) -> Sequence[LoggedChange]:
    """Drop the last request, which may have more changes."""
    last, end = find_request(found[-1]), len(found)
    while end and find_request(found[end - 1]) == last:
        end -= 1
    return found[:end]


def resolve_position(database: Database, position: LogPosition) -> LogPosition | None:
    """Resolve a position to one from which reading can go on; None while the changelog isn't there yet.

    InvalidRequestError: the lake hasn't reached it. ExpiredError: changes after it were pruned.
    """
    with database.statement(only_reads=True) as cursor:
        newest, oldest = read_newest_position(cursor), read_oldest(cursor)
        if position.snapshot_id > newest.snapshot_id:
            if position.snapshot_id > native.read_newest_snapshot(cursor):
                raise _build_too_far_error(position, newest)
            return None
    if position > newest and position.ordinal != LAST_ORDINAL:
        raise _build_too_far_error(position, newest)
    if oldest is not None and START_POSITION < position < oldest:
        message = f"Changes after {position} are not kept any more, the oldest is {oldest}: read the tables themselves"
        raise ExpiredError(f"{message}, then go on from what from=newest tells")
    return min(position, newest)


def _build_too_far_error(position: LogPosition, newest: LogPosition) -> InvalidRequestError:
    asked = position.snapshot_id if position.ordinal == LAST_ORDINAL else position
    return InvalidRequestError(
        f"The lake has not come to {asked}: its newest change is {newest}. If it was put back from a backup, "
        "read the tables anew, and go on from what from=newest tells"
    )
