"""Receive OpenLineage events: check what the sender may claim, and store them."""

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from duckicelake.catalog.context.caller import Capability, Principal
from duckicelake.catalog.context.privileges import Privilege
from duckicelake.catalog.context.services import Services
from duckicelake.errors import ForbiddenError, InvalidRequestError, TooManyRequestsError, UnavailableError
from duckicelake.iceberg.identifiers import Namespace, parse_schema_name, to_schema_name
from duckicelake.lineage.graph import store as lineage_owners
from duckicelake.lineage.graph import store as lineage_store
from duckicelake.lineage.graph.parsed_event import EventDataset, EventName, LakeTable, ParsedEvent, parse_event
from duckicelake.lineage.openlineage.names import name_location
from duckicelake.postgres.queries import Transaction
from duckicelake.storage.policy import LocationPolicy, canonicalize, is_within

MAX_EVENTS: Final = 1000
MAX_EVENTS_PER_HOUR: Final = 100_000
"""Events stored of a principal in an hour; a batch that begins within the limit is stored as a whole."""
_AHEAD: Final = timedelta(days=1)
"""For so long another's clock may be ahead. Later events count more: those of next year would for a year."""
_ROOM: Final = threading.BoundedSemaphore(16)
"""Requests of one process that are stored, or wait for it."""
_TURN: Final = threading.Lock()
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_EITHER: Final = (Capability.READ, Capability.WRITE)
_WRITE: Final = (Capability.WRITE,)
_TAKEN: Final = {Capability.READ: Privilege.SELECT, Capability.WRITE: Privilege.INSERT}
"""What it takes where grants are on."""


def receive_events(services: Services, events: Sequence[Mapping[str, Any]], host: str = "") -> int:
    """Check and store events, all or none; return how many are new.

    Raises ForbiddenError, InvalidRequestError, TooManyRequestsError.

    host: this catalog's host for the sender. Table names of a catalog on it mean this lake.
    """
    if len(events) > MAX_EVENTS:
        raise InvalidRequestError(f"A batch has {len(events)} events; it may have {MAX_EVENTS} at most")
    parsed = [parse_event(event) for event in events]
    latest = datetime.fromtimestamp(services.clock() / 1000, UTC) + _AHEAD
    if any(event.at > latest for event in parsed):
        raise InvalidRequestError(
            f"An event's time is after {latest:%Y-%m-%dT%H:%M:%SZ}, which is far ahead of this server's clock"
        )
    who = services.caller.principal
    if not who.sees(()):
        raise ForbiddenError("Lineage events are accepted only from principals with a grant in the catalog")
    with _take_turn(), services.database.transaction() as cursor:
        if lineage_store.is_over(cursor, who.name, MAX_EVENTS_PER_HOUR):
            raise TooManyRequestsError(
                f"This principal has sent {MAX_EVENTS_PER_HOUR} lineage events within an hour: try again later"
            )
        owners = _TableOwners(cursor, services.policy, parsed)
        for event in parsed:
            _check(owners, who, event)
        return lineage_store.record_events(
            cursor, events, origin="received", principal=who.name, tables=owners.tables(host)
        )


@contextmanager
def _take_turn() -> Iterator[None]:
    """Let one caller in after the other, as Postgres does, so that waiting callers take no connection from commits.

    UnavailableError: too many wait.
    """
    if not _ROOM.acquire(blocking=False):
        raise UnavailableError("Too many requests with lineage events at once; try again")
    try:
        with _TURN:
            yield
    finally:
        _ROOM.release()


class _TableOwners:
    """Finds the lake's tables among datasets, by recorded names and by locations of live tables."""

    def __init__(self, cursor: Transaction, policy: LocationPolicy, events: Iterable[ParsedEvent]) -> None:
        names = {name for event in events for dataset in event.datasets() for name in dataset.names()}
        self._policy, self._names = policy, names
        self._known = lineage_owners.find_known_owners(cursor, names)
        self._live = lineage_owners.find_live_tables(cursor, {name.name for name in names - self._known.keys()})
        self.places = {
            EventName(*name_location(place)): table for table, place in self._live.items() if place is not None
        }
        self._dotted = {table.dotted: table for table in self._live}

    def tables(self, host: str) -> dict[EventName, LakeTable]:
        """Return locations and names of live tables, in a catalog on the host."""
        named = {name: self._dotted[name.name] for name in self._names if name.name in self._dotted}
        return {
            name: table for name, table in named.items() if _find_host(name.namespace) == host.lower()
        } | self.places

    def of(self, names: Iterable[EventName]) -> Iterator[LakeTable]:
        """Yield the tables that have these names, or may be meant by them."""
        for name in names:
            table = self._known.get(name) or self.places.get(name)
            if table is None and _find_host(name.namespace) is not None:
                table = self._dotted.get(name.name)
            if table is not None:
                yield table

    def unknown(self, names: Sequence[EventName]) -> Iterator[str]:
        """Yield places in the lake without a known table, if none of the names is a table's."""
        if not any(self.of(names)):
            places = filter(None, map(_find_place, names))
            yield from (place for place in places if is_within(place, self._policy.warehouse))

    def is_below(self, place: str, namespace: Namespace) -> bool:
        """Return whether a place is in a folder of the namespace's tables."""
        native = f"{self._policy.data_path}{to_schema_name(namespace)}"
        return any(is_within(place, folder) for folder in (self._policy.namespace_folder(namespace), native))


def _find_host(namespace: str) -> str | None:
    """Find the host in the URI of a catalog."""
    scheme, _, rest = namespace.partition("://")
    return rest.partition("/")[0].lower() if scheme in {"http", "https"} else None


def _find_place(name: EventName) -> str | None:
    """Find a dataset's location; None if it has none, as in the namespace `bigquery`.

    InvalidRequestError: the name is no text.
    """
    text = name.name if name.namespace == "file" else f"{name.namespace}/{name.name.lstrip('/')}"
    try:
        return canonicalize(text)
    except InvalidRequestError:
        if _CONTROL.search(text):
            raise
        return None


def _check(owners: _TableOwners, who: Principal, event: ParsedEvent) -> None:
    for dataset in event.inputs:
        _check_one(owners, who, _collect_names(dataset), _EITHER)
    for dataset in event.outputs:
        _check_one(owners, who, _collect_names(dataset), _WRITE)
        for name in {column.source for column in dataset.columns}:
            _check_one(owners, who, [name], _EITHER)


def _check_one(owners: _TableOwners, who: Principal, names: Sequence[EventName], any_of: Sequence[Capability]) -> None:
    """Check the sender's rights on one dataset.

    A place in the lake without a table belongs to the namespace of its folder.
    """
    mine = [namespace for capability in any_of for namespace in who.list_namespaces(capability, _TAKEN[capability])]
    tables = (
        any(
            who.may(capability, parse_schema_name(table.schema_name), table.table_name, _TAKEN[capability])
            for capability in any_of
        )
        for table in owners.of(names)
    )
    places = (any(owners.is_below(place, namespace) for namespace in mine) for place in owners.unknown(names))
    if not all(tables) or not all(places):
        raise ForbiddenError(f"The caller's scopes don't allow events about {names[0].name}, if there is such a table")


def _collect_names(dataset: EventDataset) -> list[EventName]:
    previous = () if dataset.previous is None else (dataset.previous,)
    return [dataset.name, *dataset.tables, *previous]
