"""OpenLineage events that others send: who may tell what of the lake's tables, and that it is kept.

An event may tell that something came into a table of the lake only from who may write there, and that something came
out of it from who may read or write there. What else it tells of datasets of other tools is anybody's to tell.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from duckicelake.catalog.principal import Capability, Principal
from duckicelake.catalog.services import Services
from duckicelake.errors import Forbidden, InvalidRequest
from duckicelake.iceberg.names import namespace_of
from duckicelake.lake import lineage_owners, lineage_store
from duckicelake.lake.database import Transaction
from duckicelake.lake.lineage_told import Dataset, Event, LakeTable, Name, read
from duckicelake.lineage.naming import located
from duckicelake.storage.policy import is_within

MOST_EVENTS: Final = 1000
_PLAIN: Final = frozenset({"file"})
_EITHER: Final = (Capability.READ, Capability.WRITE)
_WRITE: Final = (Capability.WRITE,)


def receive(services: Services, events: Sequence[Mapping[str, Any]]) -> int:
    """Keep events that were checked, all or none; how many are new. Forbidden, InvalidRequest."""
    if len(events) > MOST_EVENTS:
        raise InvalidRequest(f"A batch has {len(events)} events; it may have {MOST_EVENTS} at most")
    told = [read(event) for event in events]
    who = services.caller.principal
    with services.database.transaction() as cursor:
        owners = _Owners(cursor, services.policy.warehouse, told)
        for event in told:
            _check(owners, who, event)
        return lineage_store.record(cursor, events, origin="received", principal=who.name, tables=owners.places)


class _Owners:
    """Which of the datasets of events are tables of the lake: by what is recorded, and by where live tables lie."""

    def __init__(self, cursor: Transaction, warehouse: str, events: Iterable[Event]) -> None:
        names = {name for event in events for name in _all_names(event)}
        self._warehouse = warehouse
        self._known = lineage_owners.known(cursor, names)
        self._live = lineage_owners.live(cursor, {name.name for name in names - self._known.keys()})
        self.places = {Name(*located(place)): table for table, place in self._live.items() if place is not None}
        self._dotted = {table.dotted: table for table in self._live}

    def of(self, names: Iterable[Name]) -> Iterator[LakeTable]:
        """The tables that have the names, or may be meant by them."""
        for name in names:
            table = self._known.get(name) or self.places.get(name)
            if table is None and name.namespace.startswith(("http://", "https://", "duckicelake://")):
                table = self._dotted.get(name.name)
            if table is not None:
                yield table

    def is_of_nobody(self, names: Sequence[Name]) -> bool:
        """Whether a name is a place in the lake of which it isn't known whose it is."""
        return not any(self.of(names)) and any(self._is_in_the_lake(name) for name in names)

    def _is_in_the_lake(self, name: Name) -> bool:
        place = name.name if name.namespace in _PLAIN else f"{name.namespace}/{name.name.lstrip('/')}"
        return is_within(place, self._warehouse)


def _check(owners: _Owners, who: Principal, event: Event) -> None:
    for dataset in event.inputs:
        _check_one(owners, who, _names(dataset), _EITHER)
    for dataset in event.outputs:
        _check_one(owners, who, _names(dataset), _WRITE)
        for name in {column.source for column in dataset.columns}:
            _check_one(owners, who, [name], _EITHER)


def _check_one(owners: _Owners, who: Principal, names: Sequence[Name], any_of: Sequence[Capability]) -> None:
    for table in owners.of(names):
        namespace = namespace_of(table.schema_name)
        if not any(who.may(capability, namespace) for capability in any_of):
            raise Forbidden(f"The caller's scopes don't allow to tell of {names[0].name}, if there is such a table")
    if owners.is_of_nobody(names) and not any(who.may(capability, ()) for capability in any_of):
        raise Forbidden(f"The caller's scopes don't allow to tell of {names[0].name}, if there is such a table")


def _names(dataset: Dataset) -> list[Name]:
    previous = () if dataset.previous is None else (dataset.previous,)
    return [dataset.name, *dataset.tables, *previous]


def _all_names(event: Event) -> Iterator[Name]:
    for dataset in event.datasets():
        yield from _names(dataset)
        yield from (column.source for column in dataset.columns)
