"""List what was dropped, bring it back, and let it go when its time is over."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from duckicelake.catalog.authz.definers import end_loans
from duckicelake.catalog.commit.guards import lift_quietly
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.caller import Capability, Principal, build_refusal
from duckicelake.catalog.context.page import ListPage, PageRequest, cut_page
from duckicelake.catalog.context.privileges import Privilege
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.namespaces import check_namespace_free, check_parents_flat, find_known_namespaces
from duckicelake.errors import AlreadyExistsError, InvalidRequestError, NoSuchNamespaceError, NotFoundError
from duckicelake.iceberg.identifiers import Namespace, format_full_name, parse_readable_namespace, to_schema_name
from duckicelake.lake.ducklake import dropped
from duckicelake.lake.ducklake.dropped import DroppedKind, DroppedObject
from duckicelake.lake.ducklake.schemas import SchemaPlace, check_name_free
from duckicelake.lake.ducklake.snapshots import (
    SnapshotAllocation,
    begin_snapshot,
    lock_writers,
    record_changes,
    retry_transaction,
)
from duckicelake.lake.side_tables import grants
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.writer.tables import purge_dropped
from duckicelake.postgres.queries import Transaction

_ID_PATTERN: Final = re.compile("[0-9]{1,18}")
KINDS: Final[tuple[DroppedKind, ...]] = ("table", "view", "namespace")


@dataclass(frozen=True, slots=True)
class UndropRequest:
    """What to bring back: the last that was dropped of a kind and name, or the one of an id.

    name: None for a namespace. new_name: under which it comes back; None: its own.
    """

    kind: DroppedKind
    namespace: Namespace
    name: str | None = None
    object_id: int | None = None
    new_name: str | None = None

    @property
    def called(self) -> str:
        """Kind and full name, for messages."""
        full_name = to_schema_name(self.namespace) if self.name is None else format_full_name(self.namespace, self.name)
        return f"{self.kind} {full_name}"


@dataclass(frozen=True, slots=True)
class Undropped:
    """What came back, under which name, in which DuckLake snapshot; of a namespace with so many tables and views."""

    kind: DroppedKind
    namespace: str
    name: str | None
    snapshot_id: int
    tables: int = 0
    views: int = 0


def list_dropped(services: Services, namespace: Namespace | None, page: PageRequest) -> ListPage[DroppedObject]:
    """List what can be brought back in a namespace and below it, or in the lake, newest first.

    It leaves out what lies in namespaces that the caller may not read.
    """
    after = _parse_position(page.after)
    within = None if namespace is None else to_schema_name(namespace)
    with services.database.reading() as cursor:
        found = dropped.read_dropped(cursor, within, after=after)
    principal = services.caller.principal
    seen = [item for item in found if _may(principal, Capability.READ, Privilege.SELECT | Privilege.DROP, item)]
    return cut_page(seen, page, lambda item: f"{item.snapshot_id}.{item.object_id}")


def list_dropped_names(services: Services, kind: DroppedKind, namespace: Namespace, page: PageRequest) -> ListPage[str]:
    """List the names of tables or views that can be brought back into a namespace, each once, in code point order."""
    within = to_schema_name(namespace)
    found = {item.name for item in _list_seen(services, kind, within) if item.schema_name == within and item.name}
    names = sorted(name for name in found if name > page.after)
    return cut_page(names[: page.fetch], page, lambda name: name)


def list_dropped_namespaces(services: Services, parent: Namespace | None, page: PageRequest) -> ListPage[Namespace]:
    """List namespaces that can be brought back, below `parent` or all, each once and by its full name."""
    above = to_schema_name(parent) if parent else None
    found = {item.schema_name for item in _list_seen(services, "namespace", above)} - {above}
    named = ((name, parse_readable_namespace(name)) for name in sorted(found) if name > page.after)
    levels = [namespace for _, namespace in named if namespace is not None]
    return cut_page(levels[: page.fetch], page, to_schema_name)


def _list_seen(services: Services, kind: DroppedKind, within: str | None) -> list[DroppedObject]:
    """List what was dropped of a kind in a namespace and below it, of what the caller may read."""
    with services.database.reading() as cursor:
        found = dropped.read_dropped(cursor, within, kind)
    principal = services.caller.principal
    return [item for item in found if _may(principal, Capability.READ, Privilege.SELECT | Privilege.DROP, item)]


def _may(principal: Principal, capability: Capability, privileges: Privilege, item: DroppedObject) -> bool:
    """Return whether scopes give the capability, and grants one of the privileges, on what was dropped."""
    namespace = parse_readable_namespace(item.schema_name) or ()
    rights = principal.rights
    if rights is not None and not privileges & rights.find_dropped(item.kind, item.object_id, namespace):
        return False
    return principal.is_in_scope(capability, namespace)


def _parse_position(after: str) -> tuple[int, int] | None:
    if not after:
        return None
    snapshot_id, _, object_id = after.partition(".")
    if not (_ID_PATTERN.fullmatch(snapshot_id) and _ID_PATTERN.fullmatch(object_id)):
        raise InvalidRequestError("pageToken is not one of this list; start again without it")
    return int(snapshot_id), int(object_id)


def undrop(services: Services, request: UndropRequest) -> Undropped:
    """Bring a table, view or namespace back, with its history; a namespace with all that was dropped with it.

    Raises:
        NotFoundError: nothing of the name was dropped lately. AlreadyExistsError: its name is taken by now.
        NoSuchNamespaceError: its namespace was dropped, too. InvalidRequestError: another name differs only by case.
        ForbiddenError: a namespace takes the right to manage.

    """
    _check_caller(services, request)
    return services.run_once(
        lambda: retry_transaction(lambda: _undrop(services, request)), lambda kept: Undropped(*kept)
    )


def _check_caller(services: Services, request: UndropRequest) -> None:
    """Check that the caller may bring back what there is of the name, and make it there; ForbiddenError.

    It is as if there were nothing for whoever may not.
    """
    principal, is_namespace = services.caller.principal, request.kind == "namespace"
    capability = Capability.MANAGE if is_namespace else Capability.WRITE
    if is_namespace and not principal.is_in_scope(capability, request.namespace):
        raise build_refusal(request.namespace)
    if principal.rights is None:
        return
    parent = request.namespace[:-1] if is_namespace else request.namespace
    with services.database.reading() as cursor:
        found = _list_named(cursor, request)
    may = all(_may(principal, capability, Privilege.DROP, item) for item in found) if found else False
    inherited = principal.rights.may(Privilege.DROP | Privilege.CREATE, parent)
    if not (may or inherited) or not principal.rights.may(Privilege.CREATE, parent):
        raise build_refusal(request.namespace, request.name or "", principal)


def _undrop(services: Services, request: UndropRequest) -> Undropped:
    with services.database.transaction() as cursor:
        is_namespace = request.kind == "namespace"
        snapshot = begin_snapshot(cursor, schema_change=True, catalog_ids=int(is_namespace), file_ids=1)
        found = _find(services, cursor, request)
        if is_namespace:
            done, changes, touched = _return_namespace(services, cursor, request, found, snapshot)
        else:
            done, changes, touched = _return_object(services, cursor, request, found, snapshot)
        record_changes(cursor, snapshot.id, changes)
        services.settle(
            cursor, touched, [done.kind, done.namespace, done.name, done.snapshot_id, done.tables, done.views]
        )
    return done


def _find(services: Services, cursor: Transaction, request: UndropRequest) -> DroppedObject:
    for found in _list_named(cursor, request)[:1]:
        return found
    others = "" if services.caller.principal.rights is not None else _find_likely(services, cursor, request)
    raise NotFoundError(
        f"Nothing to bring back: no {request.called} was dropped"
        f"{'' if request.object_id is None else f' with id {request.object_id}'} within the time that this lake keeps "
        f"what is dropped{others}; `duckicelake dropped` lists what there is"
    )


def _find_likely(services: Services, cursor: Transaction, request: UndropRequest) -> str:
    """Name what was dropped of another kind or id, or in another case, to who may read it."""
    if not services.caller.principal.may(Capability.READ, request.namespace):
        return ""
    wanted = request.called.partition(" ")[2].lower()
    for item in dropped.read_dropped(cursor):
        called = item.schema_name if item.name is None else format_full_name(item.schema_name, item.name)
        if called.lower() == wanted:
            return f", but the {item.kind} {called} was (id {item.object_id})"
    return ""


def _list_named(cursor: Transaction, request: UndropRequest) -> list[DroppedObject]:
    """List what was dropped of the name, newest first."""
    schema_name = to_schema_name(request.namespace)
    known = dropped.read_dropped(cursor, schema_name, request.kind, request.object_id)
    return [found for found in known if found.schema_name == schema_name and found.name == request.name]


def _return_object(
    services: Services, cursor: Transaction, request: UndropRequest, found: DroppedObject, snapshot: SnapshotAllocation
) -> tuple[Undropped, list[str], list[AuditedResource]]:
    name = request.new_name or request.name
    assert name is not None
    try:
        place = check_name_free(cursor, found.schema_name, name, "View" if found.kind == "view" else "Table")
    except AlreadyExistsError as error:
        raise AlreadyExistsError(f"{error}; bring it back under another name: new-name, or --as") from error
    except NoSuchNamespaceError as error:
        raise NoSuchNamespaceError(f"{error}; bring that back first, if it was dropped, or create it") from error
    change = _return_below(cursor, found, snapshot, place, name)
    _end_loans(services, cursor, [found])
    touched = build_touched(request.namespace, name, {"from": request.called})
    return Undropped(found.kind, found.schema_name, name, snapshot.id), [change], [touched]


def _return_below(
    cursor: Transaction, found: DroppedObject, snapshot: SnapshotAllocation, place: SchemaPlace, name: str
) -> str:
    bring_back = dropped.return_view if found.kind == "view" else dropped.return_table
    return bring_back(cursor, found, snapshot, place, name)


def _end_loans(services: Services, cursor: Transaction, returned: Sequence[DroppedObject]) -> None:
    """Let views that come back lend nothing: whoever brings them back need not own them."""
    end_loans(services, cursor, [item.object_id for item in returned if item.kind == "view"])


def _return_namespace(
    services: Services,
    cursor: Transaction,
    request: UndropRequest,
    found: DroppedObject,
    snapshot: SnapshotAllocation,
) -> tuple[Undropped, list[str], list[AuditedResource]]:
    known = find_known_namespaces(cursor)
    check_namespace_free(known, request.namespace, services.caller.principal)
    check_parents_flat(known, request.namespace)
    within = [
        item
        for item in dropped.read_dropped(cursor, found.schema_name)
        if item.snapshot_id == found.snapshot_id and item.schema_name == found.schema_name and item.name is not None
    ]
    schema_id, created = dropped.return_schema(cursor, found, snapshot)
    if services.rights is not None:
        grants.move_grants(cursor, services.rights.place, found.object_id, schema_id)
    _end_loans(services, cursor, within)
    place = SchemaPlace(schema_id, found.schema_name)
    changes = [created, *(_return_below(cursor, item, snapshot, place, str(item.name)) for item in within)]
    tables = sum(item.kind == "table" for item in within)
    done = Undropped("namespace", found.schema_name, None, snapshot.id, tables, len(within) - tables)
    return done, changes, [build_touched(request.namespace, detail={"tables": tables, "views": len(within) - tables})]


def forget_dropped(services: Services, kind: DroppedKind, object_id: int) -> None:
    """End the time in which it can be brought back; its files go as if that were over. NotFoundError."""
    with services.database.transaction() as cursor:
        found: Sequence[DroppedObject] = dropped.read_dropped(cursor, None, kind, object_id)
        if not found or not dropped.end_retention(cursor, kind, object_id):
            raise NotFoundError(f"No {kind} with the id {object_id} can be brought back")
        resource = to_resource(found[0])
        services.settle(cursor, [resource])
    while let_go(services):
        pass


def to_resource(found: DroppedObject) -> AuditedResource:
    """Name what was dropped, for the audit trail."""
    return build_touched(parse_readable_namespace(found.schema_name) or (found.schema_name,), found.name)


def let_go(services: Services) -> bool:
    """Let one thing go whose time is over, and purge it if that was asked for; whether there was one.

    A table that shared files with it is guarded as long as it could come back, and no longer.
    """

    def attempt() -> bool:
        with services.database.reading() as cursor:
            if not dropped.has_due(cursor):
                return False
        with services.database.transaction() as cursor:
            lock_writers(cursor)
            due = dropped.take_due(cursor)
            if due is None:
                return False
            kind, object_id, is_purged = due
            if kind == "table" and is_purged:
                purge_dropped(cursor, object_id)
        return True

    is_gone = retry_transaction(attempt)
    if is_gone:
        lift_quietly(services)
    return is_gone
