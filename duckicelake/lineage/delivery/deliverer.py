"""Deliver events to one receiver, from a queue that the outbox fills."""

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, Final

import orjson

from duckicelake.catalog.context.meter import Meter
from duckicelake.lineage.delivery import outbox as deliveries
from duckicelake.lineage.delivery.receivers import DeliveryFailure, LineageOutlet
from duckicelake.postgres.notify import NotificationListener
from duckicelake.postgres.queries import Transaction

Key = tuple[str, ...]
_Id = tuple[bool, int]


@dataclass(eq=False, slots=True)
class PendingEvent:
    """An event to deliver, as JSON. is_letter: a dead letter that is tried again. attempts: failed ones."""

    id: int
    text: str
    is_letter: bool = False
    attempts: int = 0
    last_tried: float = 0.0
    keys: frozenset[Key] = field(init=False)

    def __post_init__(self) -> None:
        self.keys = find_order_keys(orjson.loads(self.text))

    @property
    def order(self) -> _Id:
        """The order of delivery: dead letters come last."""
        return self.is_letter, self.id


class DeliveryQueue:
    """A queue with limits of events and of their characters.

    Give a taken event back, by `done` or `again`, before you take the next one.
    """

    def __init__(self, limit: int, characters: int) -> None:
        self._limit = limit
        self._most_characters = characters
        self._characters = 0
        self._events: dict[_Id, PendingEvent] = {}
        self._lanes: dict[Key, deque[PendingEvent]] = {}
        self._ready: list[_Id] = []
        """Events that are first in all their lanes. A heap, which may contain dropped ones."""
        self._later: list[tuple[float, _Id]] = []
        """The same for failed events, with the time of the next attempt."""

    def __len__(self) -> int:
        return len(self._events)

    @property
    def room(self) -> int:
        """The number of events that still fit."""
        return self._limit - len(self._events) if self._characters < self._most_characters else 0

    def add(self, event: PendingEvent) -> None:
        """Add an event behind all others of its datasets, unless it is there already."""
        if event.order in self._events:
            return
        self._events[event.order] = event
        self._characters += len(event.text)
        for key in event.keys:
            self._lanes.setdefault(key, deque()).append(event)
        self._note_first(event)

    def take(self, now: float) -> PendingEvent | None:
        """Take the oldest event that can be sent now; None if there is none."""
        while self._later and self._later[0][0] <= now:
            heapq.heappush(self._ready, heapq.heappop(self._later)[1])
        while self._ready:
            event = self._events.get(heapq.heappop(self._ready))
            if event is not None:
                return event
        return None

    def next_at(self) -> float | None:
        """Return the time of the next attempt for a failed event."""
        return self._later[0][0] if self._later else None

    def again(self, event: PendingEvent, at: float) -> None:
        """Delay the taken event until then, and with it later events of its datasets."""
        heapq.heappush(self._later, (at, event.order))

    def done(self, event: PendingEvent) -> None:
        """Remove a delivered event, so that events behind it can be taken."""
        del self._events[event.order]
        self._characters -= len(event.text)
        for key in event.keys:
            lane = self._lanes[key]
            was_first = lane[0] is event
            lane.remove(event)
            if not lane:
                del self._lanes[key]
            elif was_first:
                self._note_first(lane[0])

    def drop(self, upto: int) -> int:
        """Drop events up to an id, without dead letters; return their number."""
        dropped = [event for event in self._from_outbox() if event.id <= upto]
        for event in dropped:
            self.done(event)
        return len(dropped)

    def first(self) -> int | None:
        """Return the smallest id in the queue, without dead letters."""
        return next((event.id for event in self._from_outbox()), None)

    def _from_outbox(self) -> Iterator[PendingEvent]:
        return (event for event in self._events.values() if not event.is_letter)

    def _note_first(self, event: PendingEvent) -> None:
        if all(self._lanes[key][0] is event for key in event.keys):
            heapq.heappush(self._ready, event.order)


def find_order_keys(body: Mapping[str, Any]) -> frozenset[Key]:
    """Find the keys of an event's order: its run and its datasets, else its job."""
    datasets = (*(body.get("inputs") or ()), *(body.get("outputs") or ()), body.get("dataset"))
    keys: set[Key] = {("dataset", *_read_name(dataset)) for dataset in datasets if dataset}
    run = body.get("run")
    if run:
        keys.add(("run", str(run.get("runId"))))
    return frozenset(keys or {("job", *_read_name(body.get("job") or {}))})


def _read_name(named: Mapping[str, Any]) -> tuple[str, str]:
    return str(named.get("namespace")), str(named.get("name"))


QUEUE: Final = 10_000
_CHARACTERS: Final = 32 * 1024 * 1024
"""Characters of events in memory."""
_FEW: Final = 1000
"""Events read from the outbox at a time; at so few in the queue, more are read."""
_LOOK_SECONDS: Final = 1.0
_MIN_LOOK_SECONDS: Final = 0.05
_COUNT_SECONDS: Final = 5.0
_SAVE_SECONDS: Final = 0.5
_FIRST_PAUSE: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 30.0
_MAX_WAIT_SECONDS: Final = 3600.0
"""The longest pause, whatever a receiver asks for."""
_IN_A_ROW: Final = 10
"""Failed events in a row after which the receiver itself counts as failing."""
MAX_TRIES: Final = 20
"""Attempts of an event while others are delivered; they take minutes."""


@dataclass(slots=True)
class DeliveryDeadline:
    """The time to stop, set by another thread. Remaining events may still be delivered until then."""

    deadline: float | None = None

    @property
    def seconds_left(self) -> float:
        return float("inf") if self.deadline is None else self.deadline - monotonic()


@dataclass(frozen=True, slots=True)
class DeliveryObserver:
    """Observes deliveries, for metrics and the log."""

    meter: Meter
    warn: Callable[..., object]


def compute_pause(failures: int, chance: float) -> float:
    """Compute the seconds until the next attempt, which double. chance: 0 to 1, takes off up to a half."""
    return float(min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE * 2 ** min(failures - 1, 20)) * (1 - chance / 2))


class PositionMovedError(Exception):
    """Another process has moved the receiver's position in the outbox: read it again."""


class Deliverer:
    """Delivers over a session that holds the receiver's lease.

    most: waiting events, and dead letters; others are dropped.
    """

    def __init__(self, cursor: Transaction, outlet: LineageOutlet, most: int, listener: DeliveryObserver) -> None:
        self._cursor = cursor
        self._outlet = outlet
        self._name = outlet.name
        self._most = most
        self._listener = listener
        self._queue = DeliveryQueue(QUEUE, _CHARACTERS)
        self._position = self._read = self._newest = deliveries.read_position(cursor, self._name)
        self._unread = 0  # at the last count
        self._delivered = self._dropped = 0  # since the position was saved
        self._looked = self._saved = self._look_at = self._count_at = 0.0
        self._away_until = 0.0
        self._failures = 0  # consecutive failures of the receiver
        self._others = 0  # consecutive failures of events
        self._last_success = 0.0
        self._buried = 0
        self._refusal: int | None = 0  # the last status of a refusal, if no event arrived since

    def run(self, notices: NotificationListener, ending: DeliveryDeadline) -> None:
        """Run until the end. Raises PositionMovedError, and UnavailableError if the session is lost."""
        looked_last = False
        while ending.seconds_left > 0:
            if ending.deadline is not None and not looked_last:
                looked_last, self._look_at = True, 0.0
            self._look_if_due()
            has_sent = self._send_next(notices)
            self._save_if_due()
            if has_sent:
                continue
            next_at = self._next_at()
            if ending.deadline is not None and (next_at is None or next_at >= ending.deadline):
                break
            self._wait(notices, next_at, ending)
        self._save()

    def _wait(self, notices: NotificationListener, next_at: float | None, ending: DeliveryDeadline) -> None:
        until = min(self._look_at, self._look_at if next_at is None else next_at)
        if self._delivered:
            until = min(until, self._saved + _SAVE_SECONDS)
        seconds = max(0.0, min(until - monotonic(), ending.seconds_left))
        if ending.deadline is None:
            notices.wait(seconds)
        else:
            sleep(seconds)
        if not len(self._queue):  # otherwise new events would only wait
            self._look_at = min(self._look_at, self._looked + _MIN_LOOK_SECONDS)

    def _next_at(self) -> float | None:
        """Return the time at which an event of the queue can be sent."""
        return max(self._away_until, self._queue.next_at() or 0.0) if len(self._queue) else None

    def _look_if_due(self) -> None:
        has_more = self._read < self._newest and self._queue.room and len(self._queue) < _FEW
        if has_more or monotonic() >= self._look_at:
            self._look()
            self._looked = monotonic()
            self._look_at = self._looked + _LOOK_SECONDS

    def _look(self) -> None:
        """Fill the queue from the outbox, and with dead letters that an operator retries."""
        outbox = deliveries.read_outbox(self._cursor, self._name)
        if outbox.position != self._position:
            raise PositionMovedError
        self._newest = outbox.newest
        if self._newest - self._position > self._most:
            self._drop_surplus()
        while self._read < self._newest and self._queue.room:
            limit = min(self._queue.room, _FEW)
            found = deliveries.read_events(self._cursor, self._read, self._newest, limit)
            for id_, text in found:
                self._queue.add(PendingEvent(id_, text))
            self._read = found[-1][0] if len(found) == limit else self._newest
        if outbox.has_letters:
            for id_, text in deliveries.read_letters_to_send(self._cursor, self._name, min(self._queue.room, _FEW)):
                self._queue.add(PendingEvent(id_, text, is_letter=True))
        self._count_waiting()

    def _count_waiting(self) -> None:
        if self._read == self._newest:
            self._unread = 0
        elif monotonic() >= self._count_at:
            self._unread = deliveries.count_waiting(self._cursor, self._read, self._newest)
            self._count_at = monotonic() + _COUNT_SECONDS
        self._listener.meter.lineage_waiting(self._name, len(self._queue) + self._unread)

    def _drop_surplus(self) -> None:
        upto = deliveries.find_surplus(self._cursor, self._position, self._newest, self._most)
        if upto is None:
            return
        dropped = self._queue.drop(upto)
        if upto > self._read:
            dropped += deliveries.count_waiting(self._cursor, self._read, upto)
            self._read = upto
        self._note_dropped(dropped)

    def _note_dropped(self, dropped: int) -> None:
        if dropped:
            self._dropped += dropped
            self._listener.meter.lineage_sent(self._name, "dropped", dropped)
            self._listener.warn("lineage events were dropped", transport=self._name, events=dropped)

    def _send_next(self, notices: NotificationListener) -> bool:
        """Try one event; return whether there was one."""
        now = monotonic()
        event = self._queue.take(now) if now >= self._away_until else None
        if event is None:
            return False
        with notices.kept_alive():
            failure = self._outlet.send(orjson.loads(event.text))
        if failure is None:
            self._note_delivered(event)
        elif failure.kind == "refused" or self._is_hopeless(event, failure):
            self._bury(event, failure)
        else:
            self._try_later(event, failure)
        return True

    def _note_delivered(self, event: PendingEvent) -> None:
        if self._failures:
            self._listener.warn("lineage events arrive again", transport=self._name)
        self._failures = self._others = self._refusal = 0
        self._last_success = monotonic()
        if event.is_letter:
            deliveries.delete_dead_letter(self._cursor, self._name, event.id)
        self._queue.done(event)
        self._delivered += 1
        self._listener.meter.lineage_sent(self._name, "delivered", 1)

    def _is_hopeless(self, event: PendingEvent, failure: DeliveryFailure) -> bool:
        """Return whether an event has failed often enough while the receiver took others."""
        is_often = event.attempts + 1 >= MAX_TRIES
        return failure.kind == "later" and is_often and self._last_success > event.last_tried

    def _bury(self, event: PendingEvent, failure: DeliveryFailure) -> None:
        attempts = event.attempts + 1
        letter = (event.id, event.text)
        deliveries.record_dead_letter(self._cursor, self._name, letter, failure.status, failure.reason, attempts)
        self._queue.done(event)
        self._listener.meter.lineage_sent(self._name, "dead", 1)
        if self._buried % _FEW == 0:
            self._note_dropped(deliveries.delete_delivered(self._cursor, self._name, self._most))
        self._buried += 1
        if failure.status != self._refusal:  # log a wrong key once, not for each event
            facts = {"transport": self._name, "id": event.id, "status": failure.status, "reason": failure.reason}
            self._listener.warn("a lineage event was refused", **facts)
        self._refusal = failure.status

    def _try_later(self, event: PendingEvent, failure: DeliveryFailure) -> None:
        self._listener.meter.lineage_sent(self._name, "retried", 1)
        event.attempts += 1
        event.last_tried = now = monotonic()
        if failure.kind == "later":
            self._others += 1
            self._queue.again(event, now + compute_pause(event.attempts, random.random()))  # noqa: S311
            if self._others < _IN_A_ROW:
                return
        else:
            self._queue.again(event, now)
        self._failures += 1
        if self._failures == 1:
            self._listener.warn("lineage events don't arrive", transport=self._name, reason=failure.reason)
        pause = max(compute_pause(self._failures, random.random()), failure.wait or 0.0)  # noqa: S311
        self._away_until = now + min(pause, _MAX_WAIT_SECONDS)

    def _save_if_due(self) -> None:
        if monotonic() >= self._saved + _SAVE_SECONDS:
            self._save()

    def _save(self) -> None:
        """Move the position past delivered events, once these survive a crash."""
        first = self._queue.first()
        upto = self._read if first is None else first - 1
        if upto > self._position or self._delivered or self._dropped:
            self._outlet.settle()
            if not deliveries.move_position(
                self._cursor, self._name, self._position, upto, self._delivered, self._dropped
            ):
                raise PositionMovedError
            self._position = upto
            self._delivered = self._dropped = 0
        self._saved = monotonic()
