"""The hub of the change feed: one reader of Postgres, and all who wait in this worker for what it reads."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from duckicelake.catalog.context.services import Services
from duckicelake.changelog.entries import START_POSITION, LogPosition
from duckicelake.changelog.events import ChangeEvent, RequestChanges
from duckicelake.changelog.feed import (
    PAGE_CHANGES,
    EventView,
    NewsReader,
    PublishChanges,
    ReadFailed,
    RecentChanges,
    read_older_changes,
    resolve_position,
)
from duckicelake.errors import UnavailableError
from duckicelake.server.telemetry.metrics import Metrics

TICK_SECONDS: Final = 5.0
"""Seconds after which every reader checks its token, and may send a comment."""
REWOUND_REASON: Final = "rewound"
"""Why streams end after the lake was restored to an earlier state: their events never happened."""
_MAX_WOKEN_READERS: Final = 64
"""Readers that are woken before the event loop serves other requests."""
_MAX_PAGE_READS: Final = 2
"""Pages of older changes that are read from Postgres at a time: requests need its connections, too."""
_TIMEOUT_SECONDS: Final = 10.0
"""For the first changes to be read, and for the lake to be followed to where it is."""
_PAUSE_SECONDS: Final = 0.05
_MAX_PAGES: Final = 1024
_MAX_PAGE_BYTES: Final = 1024 * 1024
"""Of a page: of a reader that is slow so much is kept until it has taken it."""
_RETRY_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class ReaderLimits:
    """Of one worker: readers that wait, of all principals and of each."""

    total: int = 5000
    per_principal: int = 1000


@dataclass(frozen=True)
class FeedPage:
    """Events up to a position, after the view's selection. at_ms: the time of the last change, selected or not."""

    events: Sequence[ChangeEvent]
    position: LogPosition
    at_ms: int
    is_last: bool

    @cached_property
    def frames(self) -> bytes:
        """Encode the events as server-sent events."""
        return b"".join(b"id: %b\ndata: %b\n\n" % (str(event.position).encode(), event.json) for event in self.events)


class FeedReader:
    """A waiting reader. news: set when there may be something to send. over: why its stream ends."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.over: str | None = None

    def end(self, reason: str) -> None:
        self.over = self.over or reason
        self.news.set()


class FeedHub:
    """Share one reader of Postgres among all readers of an event loop; it starts with the first of them."""

    def __init__(self, services: Services, metrics: Metrics, limits: ReaderLimits, failed: ReadFailed) -> None:
        """failed: hears why nothing new can be read."""
        self._services = services
        self._failed = failed
        self._metrics = metrics
        self._limits = limits
        self._readers: set[FeedReader] = set()
        self._of_principal: Counter[str] = Counter()
        self._recent: RecentChanges | None = None
        self._is_ticking = False
        self._is_ready: asyncio.Event | None = None
        self._pages: dict[tuple[EventView, LogPosition, int], FeedPage] = {}
        self._paging = asyncio.Semaphore(_MAX_PAGE_READS)

    @contextmanager
    def reader(self, principal: str) -> Iterator[FeedReader]:
        """Add a reader that is woken by news; HTTP 429 or 503 if there are too many."""
        self._admit(principal)
        reader = FeedReader()
        self._readers.add(reader)
        self._of_principal[principal] += 1
        self._metrics.feed_readers(len(self._readers))
        if not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            self._of_principal[principal] -= 1
            if not self._of_principal[principal]:
                del self._of_principal[principal]
            self._metrics.feed_readers(len(self._readers))

    async def begin(self, text: str | None) -> LogPosition:
        """Parse the position after which a client reads; None is the beginning.

        InvalidRequestError, ExpiredError, and UnavailableError if it takes too long.
        """
        recent = await self._changes()
        if not text or text == str(START_POSITION):
            return START_POSITION
        if text == "newest":
            return recent.newest
        position = LogPosition.parse(text)
        if recent.start <= position <= recent.newest:
            return position
        until = time.monotonic() + _TIMEOUT_SECONDS
        while (found := await run_in_threadpool(resolve_position, self._services.database, position)) is None:
            if time.monotonic() > until:
                raise UnavailableError(f"Changes up to {position} haven't been followed yet; try again")
            await asyncio.sleep(_PAUSE_SECONDS)
        return found

    async def page(self, view: EventView, after: LogPosition, limit: int = PAGE_CHANGES) -> FeedPage:
        """Return the events after a position; from Postgres, a part at a time, if memory doesn't reach back so far."""
        recent = await self._changes()
        key = (view, after, limit)
        if key in self._pages:  # never one that the outside limits: what it lets through changes by itself
            return self._pages[key]
        changes = recent.after(after)
        if changes is not None and view.is_limited_outside:
            return await run_in_threadpool(_build_page, view, recent, changes, after, limit)
        if changes is not None:
            if len(self._pages) >= _MAX_PAGES:
                self._pages.clear()
            page = self._pages[key] = _build_page(view, recent, changes, after, limit)
            return page
        async with self._paging:
            database = self._services.database
            found = await run_in_threadpool(read_older_changes, database, after, view.selection.since_ms)
        older = [change for change in found if change.position <= recent.newest]  # else `newest` would go back
        # Of what was before those in memory, there is nothing, if there is nothing of it in Postgres.
        begin = after if older else recent.start
        if view.is_limited_outside:
            return replace(await run_in_threadpool(_build_page, view, recent, older, begin, limit), is_last=False)
        return replace(_build_page(view, recent, older, begin, limit), is_last=False)

    async def _changes(self) -> RecentChanges:
        if self._recent is not None:
            return self._recent
        if self._is_ready is None:
            self._is_ready = asyncio.Event()
            publish = partial(_hand_over, asyncio.get_running_loop(), self._publish)
            NewsReader(self._services.database, publish, self._failed).start()
        try:
            await asyncio.wait_for(self._is_ready.wait(), _TIMEOUT_SECONDS)
        except TimeoutError:
            raise UnavailableError("Postgres does not answer; try again") from None
        assert self._recent is not None
        return self._recent

    def _publish(self, after: LogPosition, changes: Sequence[RequestChanges]) -> None:
        if self._recent is None or self._recent.newest != after:
            self._recent = RecentChanges(after, after)
            for reader in self._readers:
                reader.end(REWOUND_REASON)
        elif changes:
            self._metrics.feed_behind(max(0.0, time.time() - changes[-1].at_ms / 1000))
        self._recent.extend(changes)
        self._pages.clear()
        if self._is_ready is not None:
            self._is_ready.set()
        self._wake(list(self._readers))

    def _wake(self, readers: Sequence[FeedReader]) -> None:
        """Wake readers a few at a time, so that the event loop serves other requests between."""
        for reader in readers[:_MAX_WOKEN_READERS]:
            reader.news.set()
        if len(readers) > _MAX_WOKEN_READERS:
            asyncio.get_running_loop().call_soon(self._wake, readers[_MAX_WOKEN_READERS:])

    def _tick(self) -> None:
        """Wake all readers, again and again while there are any."""
        if self._readers:
            self._wake(list(self._readers))
            asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
        else:
            self._is_ticking = False

    def _admit(self, principal: str) -> None:
        limits = self._limits
        if len(self._readers) >= limits.total:
            raise _build_full_error(
                503, f"{limits.total} wait for changes, as many as this worker lets wait; try again"
            )
        if self._of_principal[principal] >= limits.per_principal:
            raise _build_full_error(
                429, f"You wait for changes {limits.per_principal} times already; end one, or try again"
            )


def _build_full_error(status: int, message: str) -> HTTPException:
    return HTTPException(status, message, {"Retry-After": str(_RETRY_SECONDS)})


def _hand_over(
    loop: asyncio.AbstractEventLoop, publish: PublishChanges, after: LogPosition, changes: Sequence[RequestChanges]
) -> None:
    """Hand changes from the reading thread to the event loop, if it still runs."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(publish, after, changes)


def _build_page(
    view: EventView, recent: RecentChanges, changes: Sequence[RequestChanges], after: LogPosition, limit: int
) -> FeedPage:
    """Build a page of the first changes."""
    fitting = _select_fitting(changes[:PAGE_CHANGES])
    is_last, changes = len(fitting) == len(changes), fitting
    events = view.events(changes)
    if len(events) > limit:
        cut = events[limit - 1]
        return FeedPage(events[:limit], cut.position, cut.at_ms, is_last=False)
    if not changes:
        return FeedPage((), after, recent.newest_ms, is_last)
    return FeedPage(events, changes[-1].position, changes[-1].at_ms, is_last)


def _select_fitting(changes: Sequence[RequestChanges]) -> Sequence[RequestChanges]:
    """Select the first changes, at least one, that fit into _MAX_PAGE_BYTES."""
    size = 0
    for number, change in enumerate(changes):
        size += change.size
        if size > _MAX_PAGE_BYTES and number:
            return changes[:number]
    return changes
