"""Changes as events, in the shape of Iceberg's draft of an events endpoint (apache/iceberg#12584)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final, Literal

import orjson

from duckicelake.catalog.context.caller import SESSION
from duckicelake.changelog.entries import ChangeKind, LoggedChange, LogPosition
from duckicelake.changelog.history import name_engine
from duckicelake.iceberg.identifiers import Namespace, parse_schema_name, to_schema_name

ObjectType = Literal["namespace", "table", "view"]
Name = tuple[Namespace, str | None]
"""A namespace and the name of an object in it; None: the namespace itself."""
MayRead = Callable[[Name], bool]


OPERATION_TYPES: Final[Mapping[ChangeKind, str]] = {
    ChangeKind.CREATE_NAMESPACE: "create-namespace",
    ChangeKind.UPDATE_NAMESPACE: "update-namespace-properties",
    ChangeKind.RENAME_NAMESPACE: "rename-namespace",
    ChangeKind.DROP_NAMESPACE: "drop-namespace",
    ChangeKind.CREATE_TABLE: "create-table",
    ChangeKind.RENAME_TABLE: "rename-table",
    ChangeKind.DROP_TABLE: "drop-table",
    ChangeKind.CREATE_VIEW: "create-view",
    ChangeKind.ALTER_VIEW: "update-view",
    ChangeKind.RENAME_VIEW: "rename-view",
    ChangeKind.DROP_VIEW: "drop-view",
}
"""The draft's types of operations; every other kind is an `update-table`."""
_UPDATE: Final = "update-table"
_REGISTER: Final = "register-table"
KINDS: Final = frozenset({*ChangeKind, *OPERATION_TYPES.values(), _UPDATE, _REGISTER})
"""Kinds by which events can be selected: the draft's types, and this catalog's finer ones."""

_RENAMES: Final = (ChangeKind.RENAME_NAMESPACE, ChangeKind.RENAME_TABLE, ChangeKind.RENAME_VIEW)
_ENDS: Final[Mapping[ObjectType, tuple[ChangeKind, ChangeKind]]] = {
    "namespace": (ChangeKind.DROP_NAMESPACE, ChangeKind.CREATE_NAMESPACE),
    "table": (ChangeKind.DROP_TABLE, ChangeKind.CREATE_TABLE),
    "view": (ChangeKind.DROP_VIEW, ChangeKind.CREATE_VIEW),
}
"""What readers of only one end of a rename see."""
_REPORTED_FACTS: Final = (
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
"""Facts that events contain unchanged."""
_OF_REQUESTS: Final = ("principal", "request-id", "operation")


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """A change as one reader may see it. kinds: for the reader's selection. json: the event."""

    position: LogPosition
    at_ms: int
    type: ObjectType
    kinds: frozenset[str]
    names: tuple[Name, ...]
    uuid: str | None
    json: bytes

    def is_from_request(self, events: int) -> "ChangeEvent":
        """Return the event with another number of events of its request."""
        return replace(self, json=orjson.dumps({**orjson.loads(self.json), "request-event-count": events}))


@dataclass(frozen=True, slots=True)
class RequestChanges:
    """A change, and the events that readers with different rights see.

    A rename into another namespace has `left` and `came`: readers of only the old namespace see a drop, readers of only
    the new one a creation. together: for a request that changed several things, the names of each change.
    """

    position: LogPosition
    at_ms: int
    whole: ChangeEvent
    left: ChangeEvent | None = None
    came: ChangeEvent | None = None
    together: tuple[frozenset[Name], ...] = ()

    def show_to(self, may_read: MayRead) -> ChangeEvent | None:
        """Return the event for readers of these names; None if they may not know of it."""
        event = self._show_part(may_read)
        if event is None or not self.together:
            return event
        known = sum(any(map(may_read, names)) for names in self.together)
        return event if known == len(self.together) else event.is_from_request(known)

    def _show_part(self, may_read: MayRead) -> ChangeEvent | None:
        sees_it = may_read(self.whole.names[0])
        if self.left is None:
            return self.whole if sees_it else None
        if may_read(self.whole.names[1]):
            return self.whole if sees_it else self.left
        return self.came if sees_it else None

    @property
    def size(self) -> int:
        """The approximate size in memory."""
        return sum(len(event.json) for event in (self.whole, self.left, self.came) if event is not None)


def group_requests(changes: Sequence[LoggedChange]) -> list[RequestChanges]:
    """Group changes by request, in the same order.

    All changes of a request must be included: each event has their number.
    """
    found: list[RequestChanges] = []
    for request_id, group in groupby(changes, find_request):
        together = list(group)
        whole = [_build_request_changes(change, request_id, len(together)) for change in together]
        names = tuple(frozenset(group.whole.names) for group in whole)
        is_of_one = len(frozenset[Name]().union(*names)) == 1
        found += whole if is_of_one else (replace(group, together=names) for group in whole)
    return found


def find_request(change: LoggedChange) -> str:
    """Return what identifies the request of a change: the request's id, or DuckDB's snapshot."""
    return change.request_id or f"snapshot-{change.snapshot_id}"


def _build_request_changes(change: LoggedChange, request_id: str, together: int) -> RequestChanges:
    whole = _build_event(change, request_id, together)
    parted = RequestChanges(whole.position, whole.at_ms, whole)
    if len(whole.names) == 1 or whole.names[0][0] == whole.names[1][0]:
        return parted
    dropped, created = _ENDS[whole.type]
    former, name = whole.names[1]
    plain = replace(change, previous=None, facts={})
    left = replace(plain, kind=dropped, namespace=to_schema_name(former), name=name)
    came = replace(plain, kind=created if change.kind in _RENAMES else change.kind)
    return replace(parted, left=_build_event(left, request_id, together), came=_build_event(came, request_id, together))


def _build_event(change: LoggedChange, request_id: str, together: int) -> ChangeEvent:
    position, at_ms = change.position, round(change.at.timestamp() * 1000)
    operation = _find_operation_type(change)
    event = {
        "event-id": str(position),
        "request-id": request_id,
        "request-event-count": together,
        "timestamp-ms": at_ms,
        "actor": _drop_absent({"id": change.principal, "user-agent": change.agent}),
        "operation": {"operation-type": operation, **_build_operation(operation, change)},
        "duckicelake": _build_extension(change, position),
    }
    kinds, names = frozenset((operation, change.kind.value, *change.facts.get("kinds", ()))), _collect_names(change)
    return ChangeEvent(
        position, at_ms, _find_object_type(change.kind), kinds, names, change.uuid, orjson.dumps(_drop_absent(event))
    )


def _find_operation_type(change: LoggedChange) -> str:
    if change.kind is ChangeKind.CREATE_TABLE and change.operation == "register_table":
        return _REGISTER
    return OPERATION_TYPES.get(change.kind, _UPDATE)


def _build_operation(operation: str, change: LoggedChange) -> dict[str, Any]:
    """Build the draft's fields for an operation of this type."""
    (namespace, name), *former = _collect_names(change)
    if name is None and former:
        return {"source": former[0][0], "destination": namespace}
    if name is None:
        return _build_namespace_operation(operation, namespace, _build_parameters(change))
    uuid = _drop_absent({f"{_find_object_type(change.kind)}-uuid": change.uuid})
    if former and operation.startswith("rename-"):
        return {"source": _build_identifier(*former[0]), "destination": _build_identifier(namespace, name), **uuid}
    body: dict[str, Any] = {"identifier": _build_identifier(namespace, name), **uuid}
    if operation.startswith("drop-"):
        return body | _drop_absent({"purge": _build_parameters(change).get("purge")})
    return body | {"updates": []}


def _build_namespace_operation(operation: str, namespace: Namespace, parameters: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"namespace": namespace}
    if operation == "update-namespace-properties":
        return body | {name: parameters.get(name, []) for name in ("updated", "removed")}
    return body


def _build_parameters(change: LoggedChange) -> Mapping[str, Any]:
    """Build the parameters of the change's request, as far as they were recorded."""
    found = change.facts.get("parameters")
    return found if isinstance(found, Mapping) else {}


def _build_extension(change: LoggedChange, position: LogPosition) -> dict[str, Any]:
    """Build the fields that the draft lacks."""
    body = {
        "position": str(position),
        "snapshot-id": change.snapshot_id,
        "kind": change.kind.value,
        "source": change.source,
        "operation": change.operation,
        "iceberg-snapshot-id": change.iceberg_snapshot_id,
        "engine": name_engine(change),
        "client": _omit(SESSION, change.facts.get("client")),
        "requests": [
            {name: request.get(name) for name in _OF_REQUESTS} for request in change.facts.get("requests", ())
        ],
    }
    return _drop_absent(body | {name: change.facts.get(name) for name in _REPORTED_FACTS})


def _omit(name: str, fields: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (fields or {}).items() if key != name}


def _collect_names(change: LoggedChange) -> tuple[Name, ...]:
    """Collect the changed object's name, and its former name if it was renamed."""
    now = (parse_schema_name(change.namespace), change.name)
    if change.previous is None:
        return (now,)
    levels = parse_schema_name(change.previous)
    return (now, (levels, None) if change.name is None else (levels[:-1], levels[-1]))


def _build_identifier(namespace: Namespace, name: str | None) -> dict[str, Any]:
    return {"namespace": namespace, "name": name}


def _find_object_type(kind: ChangeKind) -> ObjectType:
    word = kind.value.rpartition("-")[2]
    return "namespace" if word == "namespace" else "view" if word == "view" else "table"


def _drop_absent(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Drop fields that are None."""
    return {name: value for name, value in fields.items() if value not in (None, {}, [])}
