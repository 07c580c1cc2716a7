"""PURE. Queue events for delivery: those of one dataset in order, those of other datasets past them."""

import heapq
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

Key = tuple[str, ...]
_Id = tuple[bool, int]


@dataclass(eq=False, slots=True)
class PendingEvent:
    """An event on its way, as JSON. is_letter: a dead letter that is tried again; attempts: those that were in vain."""

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
        """Dead letters have their turn when nothing else has."""
        return self.is_letter, self.id


class DeliveryQueue:
    """So many events at most, and texts of about so many characters.

    An event that was taken must be given back, by `done` or `again`, before the next one is.
    """

    def __init__(self, limit: int, characters: int) -> None:
        self._limit = limit
        self._most_characters = characters
        self._characters = 0
        self._events: dict[_Id, PendingEvent] = {}
        self._lanes: dict[Key, deque[PendingEvent]] = {}
        self._ready: list[_Id] = []
        """Those that are the first in all their lanes; a heap, in which dropped ones may stand."""
        self._later: list[tuple[float, _Id]] = []
        """The same for those that were sent in vain, with the time of the next try."""

    def __len__(self) -> int:
        return len(self._events)

    @property
    def room(self) -> int:
        """How many more it takes."""
        return self._limit - len(self._events) if self._characters < self._most_characters else 0

    def add(self, event: PendingEvent) -> None:
        """Put an event behind all others of its datasets; one that is there already stays as it is."""
        if event.order in self._events:
            return
        self._events[event.order] = event
        self._characters += len(event.text)
        for key in event.keys:
            self._lanes.setdefault(key, deque()).append(event)
        self._note_first(event)

    def take(self, now: float) -> PendingEvent | None:
        """Return the oldest whose turn it is; None if none can be sent now."""
        while self._later and self._later[0][0] <= now:
            heapq.heappush(self._ready, heapq.heappop(self._later)[1])
        while self._ready:
            event = self._events.get(heapq.heappop(self._ready))
            if event is not None:
                return event
        return None

    def next_at(self) -> float | None:
        """Return when the next try is of what was sent in vain."""
        return self._later[0][0] if self._later else None

    def again(self, event: PendingEvent, at: float) -> None:
        """Have the event that was taken wait until then, and with it what comes after it in its datasets."""
        heapq.heappush(self._later, (at, event.order))

    def done(self, event: PendingEvent) -> None:
        """Forget an event; those who waited for it alone can be taken."""
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
        """Forget events up to an id, dead letters not among them; how many there were."""
        dropped = [event for event in self._from_outbox() if event.id <= upto]
        for event in dropped:
            self.done(event)
        return len(dropped)

    def first(self) -> int | None:
        """Return the smallest id of those that wait, dead letters not among them."""
        return next((event.id for event in self._from_outbox()), None)

    def _from_outbox(self) -> Iterator[PendingEvent]:
        return (event for event in self._events.values() if not event.is_letter)

    def _note_first(self, event: PendingEvent) -> None:
        if all(self._lanes[key][0] is event for key in event.keys):
            heapq.heappush(self._ready, event.order)


def find_order_keys(body: Mapping[str, Any]) -> frozenset[Key]:
    """Return what an event must not be sent before others of: its run, its datasets; its job, if it has neither."""
    datasets = (*(body.get("inputs") or ()), *(body.get("outputs") or ()), body.get("dataset"))
    keys: set[Key] = {("dataset", *_read_name(dataset)) for dataset in datasets if dataset}
    run = body.get("run")
    if run:
        keys.add(("run", str(run.get("runId"))))
    return frozenset(keys or {("job", *_read_name(body.get("job") or {}))})


def _read_name(named: Mapping[str, Any]) -> tuple[str, str]:
    return str(named.get("namespace")), str(named.get("name"))
