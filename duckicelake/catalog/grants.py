"""Grants as use cases: turn them on, give and take privileges, list them, say what a principal may do and why."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from duckicelake.catalog.authz.definers import find_lender, read_view
from duckicelake.catalog.context.caller import EVERYTHING, Capability, Principal, build_grants, build_refusal
from duckicelake.catalog.context.outside import OutsideDecisions, OutsideQuestion
from duckicelake.catalog.context.page import EVERY_ITEM, ListPage, PageRequest, cut_page
from duckicelake.catalog.context.privileges import (
    ALL_PRIVILEGES,
    HeldGrant,
    ObjectKind,
    ObjectRef,
    Privilege,
    Rights,
    explain_grants,
    list_names,
    parse_mark,
    parse_privilege,
)
from duckicelake.catalog.context.rights import RightsCache, build_object, read_guard, read_held_grants
from duckicelake.catalog.context.services import Services
from duckicelake.errors import ForbiddenError, InvalidRequestError, NotFoundError
from duckicelake.iceberg.identifiers import (
    Namespace,
    check_name,
    check_namespace,
    format_full_name,
    parse_schema_name,
    to_schema_name,
)
from duckicelake.lake.side_tables import grants
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.side_tables.grants import GrantTarget, ListedGrant, ListedKey
from duckicelake.lake.side_tables.principals import KINDS
from duckicelake.lake.side_tables.warehouses import FIRST_NAME
from duckicelake.postgres.queries import Transaction

_MOST: Final = 1000
"""Changes that one request may ask for."""
_SEPARATOR: Final = "\x1f"
_KEY_PARTS: Final = 4
_ID_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class GrantChange:
    """Privileges on an object to give to a principal, or to take from it."""

    principal: str
    privileges: tuple[str, ...]
    object: ObjectRef


@dataclass(frozen=True, slots=True)
class GrantDetails:
    """A grant. object: None if that was dropped, or has a name that no request can give."""

    principal: str
    principal_kind: str
    privilege: str
    kind: str
    object_id: int
    object: ObjectRef | None
    granted_by: str
    granted_at: datetime


@dataclass(frozen=True, slots=True)
class AskedPrincipal:
    """A principal whose rights are to be explained.

    Attributes:
        kind: what it must be; None: of any kind, as no two have one name.
        scopes: those of its token; None: all that its tokens can have.
        groups: names of groups that its token names.

    """

    name: str
    kind: str | None = None
    scopes: tuple[str, ...] | None = None
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a principal may do something with an object, and what decides that.

    Attributes:
        grants_on: False: scopes alone decide.
        scopes: those that were asked.
        is_in_scope: Whether they allow it.
        by: The grants that allow it, the nearest to the object first.
        is_disabled: The principal may do nothing.
        outside: What the service outside says; None if none is asked.
        definer: With whose rights readers of the view read; None: with their own.
        policies: Names of those that hide parts of the table from the principal.

    """

    is_allowed: bool
    grants_on: bool
    scopes: tuple[str, ...]
    is_in_scope: bool
    by: tuple[HeldGrant, ...] = ()
    is_disabled: bool = False
    outside: bool | None = None
    definer: str | None = None
    policies: tuple[str, ...] = ()


def parse_object(text: str) -> ObjectRef:
    """Parse an object as commands take it: `warehouse`, `namespace:sales`, `table:sales.orders`, `view:sales.v`."""
    kind, _, name = text.partition(":")
    if text == "warehouse":
        return ObjectRef("warehouse")
    if kind == "namespace" and name:
        return ObjectRef("namespace", check_namespace(parse_schema_name(name)))
    if kind in {"table", "view"} and "." in name:
        *levels, last = parse_schema_name(name)
        found: ObjectKind = "view" if kind == "view" else "table"
        return ObjectRef(found, check_namespace(tuple(levels)), check_name(last, f"{kind} name"))
    raise InvalidRequestError(
        f"Invalid object {text!r}: expected warehouse, namespace:NAME, table:NAMESPACE.NAME or view:NAMESPACE.NAME"
    )


def parse_principal(text: str, scopes: str | None = None, groups: str = "") -> AskedPrincipal:
    """Parse a principal as commands take it: `ann`, `user:ann`. scopes: divided by spaces; groups: by commas."""
    kind, _, name = text.partition(":")
    given = None if scopes is None else tuple(scopes.split())
    named = AskedPrincipal(name, kind) if kind in KINDS and name else AskedPrincipal(text)  # corp:00u1 is of no kind
    return replace(named, scopes=given, groups=tuple(filter(None, groups.split(","))))


def set_grants(services: Services, *, is_on: bool) -> None:
    """Let grants decide in the warehouse of the services, under the scopes; or scopes alone."""
    place = _get_rights(services).place
    with services.database.transaction() as cursor:
        grants.set_option(cursor, place, "grants", is_on=is_on)
        services.settle(cursor, [AuditedResource("warehouse", detail={"grants": "on" if is_on else "off"})])


def has_grants_on(services: Services) -> bool:
    """Return whether grants decide in the warehouse of the services."""
    return _get_rights(services).look().is_on


def change_grants(
    services: Services, given: Sequence[GrantChange] = (), taken: Sequence[GrantChange] = ()
) -> tuple[int, int]:
    """Give and take privileges, all or none; return how many were new, and how many there were to take.

    Raises ForbiddenError, InvalidRequestError, and NotFoundError for a principal or object that there isn't.
    """
    if len(given) + len(taken) > _MOST:
        raise InvalidRequestError(f"A request may change {_MOST} grants at most, this one changes more")
    changes = [(change, True) for change in given] + [(change, False) for change in taken]
    for change, _ in changes:
        _check_caller(services, change)
    _get_rights(services).refresh()
    counts = {True: 0, False: 0}

    def change_all() -> tuple[int, int]:
        with services.database.transaction() as cursor:
            for change, is_given in changes:
                counts[is_given] += _change(services, cursor, change, is_given=is_given)
            services.settle(cursor, [_describe(change, is_given=is_given) for change, is_given in changes])
        return counts[True], counts[False]

    done = change_all()
    _get_rights(services).look()
    return done


def list_grants(
    services: Services,
    principal: str | None = None,
    target: ObjectRef | None = None,
    page: PageRequest = EVERY_ITEM,
) -> ListPage[GrantDetails]:
    """List the grants of a warehouse that the caller may manage, or its own, by principal and object.

    A page leaves out grants that the caller may not see, so that it can have less than was asked for.

    Raises NotFoundError for an unknown object, InvalidRequestError for a token of another list.
    """
    rights = _get_rights(services)
    place = rights.place
    rights.refresh()
    with services.database.reading() as cursor:
        found = None if target is None else _find_target(cursor, target)
        rows = grants.list_grants(cursor, place, principal, found, _parse_key(page), page.fetch)
    cut = cut_page(rows, page, _build_key)
    listed = [
        GrantDetails(
            row.grantee,
            row.grantee_kind,
            row.privilege,
            row.kind,
            row.object_id,
            build_object(row.kind, row.schema_name, row.name),
            row.granted_by,
            row.granted_at,
        )
        for row in cut.items
    ]
    seen = tuple(one for one in listed if _may_list(services.caller.principal, one))
    return ListPage(seen, cut.next_token)


def _build_key(row: ListedGrant) -> str:
    return _SEPARATOR.join((row.grantee, row.kind, str(row.object_id), row.privilege))


def _parse_key(page: PageRequest) -> ListedKey | None:
    """Parse the key of the last grant of the page before."""
    if not page.after:
        return None
    parts = page.after.split(_SEPARATOR)
    if len(parts) != _KEY_PARTS or not parts[2].isascii() or not parts[2].isdecimal() or len(parts[2]) > _ID_DIGITS:
        raise InvalidRequestError("pageToken is not one of this list; start again without it")
    return parts[0], parts[1], int(parts[2]), parts[3]


def list_actions(services: Services, target: ObjectRef) -> tuple[str, ...]:
    """List what the caller may do with an object, whether or not there is one."""
    principal = services.caller.principal
    allowed = (name for name in list_names(ALL_PRIVILEGES) if _is_allowed(principal, parse_mark(name), target))
    return tuple(allowed)


def explain_decision(
    services: Services,
    asked: AskedPrincipal,
    privilege: str,
    target: ObjectRef,
    outside: OutsideDecisions | None = None,
) -> Decision:
    """Explain whether a principal may do something with an object.

    Raises NotFoundError for an unknown principal, InvalidRequestError for an unknown privilege or scope, and
    UnavailableError if the outside doesn't answer.
    """
    wanted, rights = parse_mark(list_names(parse_privilege(privilege))[-1]), _get_rights(services)
    is_on = rights.look().is_on
    with services.database.reading() as cursor:
        found = grants.find_grantee(cursor, rights.place, asked.name)
        if found is None or asked.kind not in {None, found.kind}:
            raise NotFoundError(f"There is no {asked.kind or 'principal'} {asked.name}")
        held = read_held_grants(cursor, rights.place, asked.name, found.principal_id, asked.groups)
        view = read_view(cursor, target.namespace, target.name) if is_on and target.kind == "view" else None
        lender = None if view is None else find_lender(services, cursor, view)
        who = Principal(asked.name, (), asked.groups, found.principal_id)
        guard = read_guard(cursor, rights.place, who) if target.kind == "table" else None
    scopes = found.scopes if asked.scopes is None else asked.scopes
    by = explain_grants(held, wanted, target) if is_on else ()
    known = Principal(asked.name, build_grants(scopes)).in_warehouse(services.warehouse)
    in_scope = _is_in_scope(known.with_rights(Rights()) if is_on else known, wanted, target)
    is_allowed = not found.is_disabled and in_scope and (bool(by) or not is_on)
    hiding = () if guard is None else guard.list_policies(target.namespace, target.name)
    if hiding and guard is not None:
        is_allowed = is_allowed and wanted in guard.limit(wanted, target.namespace, target.name)
    limited = None
    if outside is not None and is_allowed:
        question = OutsideQuestion(wanted, (target.namespace, target.name))
        warehouse = services.warehouse or FIRST_NAME
        limited = wanted in outside.decide(asked.name, asked.groups, warehouse, [question])[0]
    return Decision(
        is_allowed and limited is not False,
        is_on,
        scopes,
        in_scope,
        by,
        found.is_disabled,
        limited,
        None if lender is None else lender.name,
        hiding,
    )


def _get_rights(services: Services) -> RightsCache:
    if services.rights is None:
        raise InvalidRequestError("This process has no grants")
    return services.rights


def _find_target(cursor: Transaction, target: ObjectRef) -> GrantTarget:
    found = grants.find_object(cursor, target.kind, to_schema_name(target.namespace), target.name)
    if found is None:
        raise NotFoundError(f"There is no {target.kind} {format_full_name(target.namespace, target.name or None)}")
    return found


def _change(services: Services, cursor: Transaction, change: GrantChange, *, is_given: bool) -> int:
    place, target = _get_rights(services).place, _find_target(cursor, change.object)
    if grants.find_grantee(cursor, place, change.principal) is None:
        raise NotFoundError(f"There is no principal {change.principal}: create it first")
    names = (change.principal, target, change.privileges)
    if is_given:
        return len(grants.grant(cursor, place, *names, services.caller.principal.name))
    return len(grants.revoke(cursor, place, *names))


def _check_caller(services: Services, change: GrantChange) -> None:
    """Check that the caller may give or take the privileges: an owner all, others what they have themselves."""
    principal, target = services.caller.principal, change.object
    wanted = Privilege(0)
    for name in change.privileges:
        wanted |= parse_privilege(name)
    if not change.privileges:
        raise InvalidRequestError("privileges is empty: say which")
    if principal.may_administer():
        return
    if principal.rights is None:
        raise ForbiddenError("The caller's scopes don't allow this: it takes *, or grants that are on")
    held = principal.rights.find(target.namespace, target.name)
    exceeds = Privilege.OWNERSHIP not in held and wanted & ~held
    if Privilege.MANAGE_GRANTS not in held or exceeds or not _is_in_scope(principal, Privilege.OWNERSHIP, target):
        raise build_refusal(target.namespace, target.name, principal)


def _may_list(principal: Principal, one: GrantDetails) -> bool:
    """Return whether the caller sees a grant: its own, or one on what it manages; all where scopes alone decide."""
    if principal.rights is None or principal.may_administer() or one.principal == principal.name:
        return True
    held = principal.rights.everywhere if one.object is None else principal.rights.find(*_locate(one.object))
    return Privilege.MANAGE_GRANTS in held


def _locate(target: ObjectRef) -> tuple[Namespace, str]:
    return target.namespace, target.name


def _is_allowed(principal: Principal, privilege: Privilege, target: ObjectRef) -> bool:
    if principal.rights is not None and privilege not in principal.rights.find(*_locate(target)):
        return False
    return _is_in_scope(principal, privilege, target)


def _is_in_scope(principal: Principal, privilege: Privilege, target: ObjectRef) -> bool:
    """Return whether the scopes, which know less kinds of acts, allow one of these."""
    if privilege is Privilege.SELECT:
        return principal.is_in_scope(Capability.READ, target.namespace)
    if privilege in Privilege.MANAGE_GRANTS | Privilege.OWNERSHIP:
        return principal.is_in_scope(EVERYTHING, target.namespace)
    is_structure = target.kind in {"namespace", "warehouse"} and privilege in Privilege.DROP | Privilege.ALTER
    return principal.is_in_scope(Capability.MANAGE if is_structure else Capability.WRITE, target.namespace)


def _describe(change: GrantChange, *, is_given: bool) -> AuditedResource:
    """Describe a change of grants for the audit trail."""
    target = change.object
    called = "warehouse" if target.kind == "warehouse" else format_full_name(target.namespace, target.name or None)
    verb = "granted" if is_given else "revoked"
    detail = {verb: list(change.privileges), "principal": change.principal, "kind": target.kind}
    return AuditedResource(called, detail=detail)
