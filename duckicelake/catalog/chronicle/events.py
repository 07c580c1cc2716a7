"""Changes of the lake as events, in the shape of Iceberg's draft of an events endpoint (apache/iceberg#12584).

What the draft has no field for is below `duckicelake`. The draft repeats each update of a table or view: here `updates`
is empty, as DuckDB's changes know of none, and whoever wants to know more loads the table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, Literal

import orjson

from duckicelake.catalog.history import engine_of
from duckicelake.iceberg.names import Namespace, namespace_of
from duckicelake.lake.chronicle.entries import Change, Kind, Position

ObjectType = Literal["namespace", "table", "view"]
Name = tuple[Namespace, str | None]
"""A namespace, and what is meant in it; None: itself."""
MayRead = Callable[[Namespace], bool]

__all__ = ["KINDS", "Event", "Happened", "MayRead", "Name", "Position", "happened", "request_of"]

OPERATION_TYPES: Final[Mapping[Kind, str]] = {
    Kind.CREATE_NAMESPACE: "create-namespace",
    Kind.UPDATE_NAMESPACE: "update-namespace-properties",
    Kind.DROP_NAMESPACE: "drop-namespace",
    Kind.CREATE_TABLE: "create-table",
    Kind.RENAME_TABLE: "rename-table",
    Kind.DROP_TABLE: "drop-table",
    Kind.CREATE_VIEW: "create-view",
    Kind.ALTER_VIEW: "update-view",
    Kind.RENAME_VIEW: "rename-view",
    Kind.DROP_VIEW: "drop-view",
}
"""The draft's; every other kind is an `update-table`."""
_UPDATE: Final = "update-table"
_REGISTER: Final = "register-table"
KINDS: Final = frozenset({*Kind, *OPERATION_TYPES.values(), _UPDATE, _REGISTER})
"""What events can be chosen by: the draft's types of operations, and our finer ones."""

_RENAMES: Final = (Kind.RENAME_TABLE, Kind.RENAME_VIEW)
_TOLD: Final = (
    "kinds",
    "updates",
    "metrics",
    "summary",
    "location",
    "format-version",
    "schema",
    "author",
    "message",
)
"""Facts that are told as they are."""
_SESSION: Final = "session"
"""By which requests of one program are told from others: made of its address, so nobody's business."""
_OF_REQUESTS: Final = ("principal", "request-id", "operation")


@dataclass(frozen=True, slots=True)
class Event:
    """One change as one reader may see it. kinds: what it can be chosen by. json: the event itself."""

    position: Position
    at_ms: int
    type: ObjectType
    kinds: frozenset[str]
    names: tuple[Name, ...]
    uuid: str | None
    json: bytes

    def of_a_request_of(self, events: int) -> "Event":
        """The same, with another number of events that its request made."""
        return replace(self, json=orjson.dumps({**orjson.loads(self.json), "request-event-count": events}))


@dataclass(frozen=True, slots=True)
class Happened:
    """One change as everybody may see it.

    What was renamed into another namespace has `left` and `came`: who may read only the one that it left, or came
    to, sees it dropped or created. together: of a request that changed several namespaces, those of each change.
    """

    position: Position
    at_ms: int
    whole: Event
    left: Event | None = None
    came: Event | None = None
    together: tuple[frozenset[Namespace], ...] = ()

    def seen(self, may_read: MayRead) -> Event | None:
        """The event for who may read these namespaces; None if they may not know of it."""
        event = self._seen(may_read)
        if event is None or not self.together:
            return event
        known = sum(any(map(may_read, namespaces)) for namespaces in self.together)
        return event if known == len(self.together) else event.of_a_request_of(known)

    def _seen(self, may_read: MayRead) -> Event | None:
        sees_it = may_read(self.whole.names[0][0])
        if self.left is None:
            return self.whole if sees_it else None
        if may_read(self.whole.names[1][0]):
            return self.whole if sees_it else self.left
        return self.came if sees_it else None

    @property
    def size(self) -> int:
        """Of what it takes in memory, most."""
        return sum(len(event.json) for event in (self.whole, self.left, self.came) if event is not None)


def happened(changes: Sequence[Change]) -> list[Happened]:
    """What changed, in the same order. All changes of a request must be among them, for each event tells how many."""
    found: list[Happened] = []
    for request_id, group in groupby(changes, request_of):
        together = list(group)
        whole = [_happened(change, request_id, len(together)) for change in together]
        namespaces = tuple(frozenset(namespace for namespace, _ in each.whole.names) for each in whole)
        is_of_one = len(frozenset[Namespace]().union(*namespaces)) == 1
        found += whole if is_of_one else (replace(each, together=namespaces) for each in whole)
    return found


def request_of(change: Change) -> str:
    """What tells which changes were made at once: the id of the request, or of what DuckDB committed."""
    return change.request_id or f"snapshot-{change.snapshot_id}"


def _happened(change: Change, request_id: str, together: int) -> Happened:
    whole = _event(change, request_id, together)
    parted = Happened(whole.position, whole.at_ms, whole)
    if len(whole.names) == 1 or whole.names[0][0] == whole.names[1][0]:
        return parted
    is_table = whole.type == "table"
    dropped, created = (Kind.DROP_TABLE, Kind.CREATE_TABLE) if is_table else (Kind.DROP_VIEW, Kind.CREATE_VIEW)
    assert change.previous is not None
    *levels, name = change.previous.split(".")
    plain = replace(change, previous=None, facts={})
    left = replace(plain, kind=dropped, namespace=".".join(levels), name=namespace_of(name)[0])
    came = replace(plain, kind=created if change.kind in _RENAMES else change.kind)
    return replace(parted, left=_event(left, request_id, together), came=_event(came, request_id, together))


def _event(change: Change, request_id: str, together: int) -> Event:
    position, at_ms = change.position, round(change.at.timestamp() * 1000)
    operation = _operation_type(change)
    event = {
        "event-id": str(position),
        "request-id": request_id,
        "request-event-count": together,
        "timestamp-ms": at_ms,
        "actor": _given({"id": change.principal, "user-agent": change.agent}),
        "operation": {"operation-type": operation, **_operation(operation, change)},
        "duckicelake": _ours(change, position),
    }
    kinds, names = frozenset((operation, change.kind.value, *change.facts.get("kinds", ()))), _names(change)
    return Event(position, at_ms, _type_of(change.kind), kinds, names, change.uuid, orjson.dumps(_given(event)))


def _operation_type(change: Change) -> str:
    if change.kind is Kind.CREATE_TABLE and change.operation == "register_table":
        return _REGISTER
    return OPERATION_TYPES.get(change.kind, _UPDATE)


def _operation(operation: str, change: Change) -> dict[str, Any]:
    """What the draft says of an operation of this type."""
    (namespace, name), *former = _names(change)
    if name is None:
        return _of_namespace(operation, namespace, _parameters(change))
    uuid = _given({f"{_type_of(change.kind)}-uuid": change.uuid})
    if former and operation.startswith("rename-"):
        return {"source": _identifier(*former[0]), "destination": _identifier(namespace, name), **uuid}
    told: dict[str, Any] = {"identifier": _identifier(namespace, name), **uuid}
    if operation.startswith("drop-"):
        return told | _given({"purge": _parameters(change).get("purge")})
    return told | {"updates": []}


def _of_namespace(operation: str, namespace: Namespace, parameters: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"namespace": namespace}
    if operation == "update-namespace-properties":
        return told | {name: parameters.get(name, []) for name in ("updated", "removed")}
    return told


def _parameters(change: Change) -> Mapping[str, Any]:
    """Of the request that made it, as far as they were noted."""
    found = change.facts.get("parameters")
    return found if isinstance(found, Mapping) else {}


def _ours(change: Change, position: Position) -> dict[str, Any]:
    """Of which nothing is in the draft."""
    told = {
        "position": str(position),
        "snapshot-id": change.snapshot_id,
        "kind": change.kind.value,
        "source": change.source,
        "operation": change.operation,
        "iceberg-snapshot-id": change.iceberg_snapshot_id,
        "engine": engine_of(change),
        "client": _without(_SESSION, change.facts.get("client")),
        "requests": [{name: each.get(name) for name in _OF_REQUESTS} for each in change.facts.get("requests", ())],
    }
    return _given(told | {name: change.facts.get(name) for name in _TOLD})


def _without(name: str, fields: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (fields or {}).items() if key != name}


def _names(change: Change) -> tuple[Name, ...]:
    """Of what was changed; and of what was renamed, its former one."""
    now = (namespace_of(change.namespace), change.name)
    if change.previous is None:
        return (now,)
    levels = namespace_of(change.previous)
    return (now, (levels[:-1], levels[-1]))


def _identifier(namespace: Namespace, name: str | None) -> dict[str, Any]:
    return {"namespace": namespace, "name": name}


def _type_of(kind: Kind) -> ObjectType:
    word = kind.value.rpartition("-")[2]
    return "namespace" if word == "namespace" else "view" if word == "view" else "table"


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those that there are."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [])}
