"""Principals, their grants, and the caller of a request."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from functools import partial
from typing import Final, TypeVar

from duckicelake.catalog.context.outside import Place, filter_seen
from duckicelake.catalog.context.privileges import CHANGING, NO_PRIVILEGE, Privilege, Rights
from duckicelake.errors import ForbiddenError, InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, check_namespace, decode_name, format_full_name, to_schema_name
from duckicelake.iceberg.read_restrictions import Restriction

T = TypeVar("T")
_SCOPE: Final = re.compile(
    r"(?P<granted>grants:)?(wh:(?P<warehouse>[a-z0-9][a-z0-9_-]{0,47}):)?"
    r"(?P<whole>\*|ns:(?P<name>[\x21\x23-\x5b\x5d-\x7e]+):(?P<cap>r|w|rw|\*))"
)
SESSION: Final = "session"
"""The key in `Caller.client` of digests by which the requests of one program are recognised."""


class Capability(Flag):
    """What may be done in a namespace."""

    READ = auto()
    WRITE = auto()
    MANAGE = auto()


_NONE: Final = Capability(0)

EVERYTHING: Final = Capability.READ | Capability.WRITE | Capability.MANAGE

_CAPS: Final = {
    "r": Capability.READ,
    "w": Capability.WRITE,
    "rw": Capability.READ | Capability.WRITE,
    "*": EVERYTHING,
}


@dataclass(frozen=True, slots=True)
class Grant:
    """Capabilities in a namespace and all below it; `()` is the whole catalog.

    warehouse: its name; empty for the first, or, of a grant on the whole catalog, for all of them.
    needs_grants: it counts only where grants are on, as an upper bound of what they give.
    """

    namespace: Namespace
    capability: Capability
    warehouse: str = ""
    needs_grants: bool = False

    def covers(self, namespace: Namespace) -> bool:
        """Return whether the namespace of the first warehouse is in the grant's."""
        return not self.warehouse and namespace[: len(self.namespace)] == self.namespace


@dataclass(frozen=True, slots=True)
class Loan:
    """The right to read one table or view, which a definer view lends. gives_keys: also keys for its files."""

    definer: str
    gives_keys: bool


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller, and the grants of its scopes.

    That of a request has the grants of the request's warehouse alone, without the name (`in_warehouse`).

    Attributes:
        groups: names of groups that its token says it is in.
        principal_id: of its row among the principals; None without one, whatever it is called.
        is_admin: it is in the role of those who administer the server.
        rights: what it was granted, where grants are on; its scopes are the upper bound of that.
        loan: what of these rights a definer view lends it for this request.

    """

    name: str
    grants: tuple[Grant, ...]
    groups: tuple[str, ...] = ()
    principal_id: int | None = None
    is_admin: bool = False
    rights: Rights | None = None
    loan: Loan | None = None

    def __hash__(self) -> int:
        """Cheap: whoever asks is looked up with each request."""
        return hash(self.name)

    def may(
        self, capability: Capability, namespace: Namespace, name: str = "", privileges: Privilege | None = None
    ) -> bool:
        """Return whether scopes and grants give all of it in the namespace, or on its table or view of this name.

        `()` asks for the whole catalog. privileges: what it takes where grants are on; None: what the capability is.
        """
        if not self.is_in_scope(capability, namespace):
            return False
        wanted = translate_capability(capability) if privileges is None else privileges
        return self.rights is None or self.rights.may(wanted, namespace, name)

    def may_any(self, capability: Capability, privileges: Privilege, namespace: Namespace, name: str = "") -> bool:
        """Return whether scopes give the capability and, where grants are on, they give one of the privileges."""
        if not self.is_in_scope(capability, namespace):
            return False
        return self.rights is None or self.rights.may_any(privileges, namespace, name)

    def may_everywhere(self, capability: Capability) -> bool:
        """Return whether all of it is allowed whatever the object; never where the outside or policies may differ."""
        return not self.is_limited_by_object and self.may(capability, ())

    def may_query(self, namespace: Namespace, name: str) -> bool:
        """Return whether it may read a table or view by queries of the server, which apply what policies say."""
        return self.may_any(Capability.READ, Privilege.SELECT | Privilege.QUERY, namespace, name)

    def find_restriction(self, table_id: int) -> Restriction | None:
        """Find what policies leave it of a table, by DuckLake's id; None: all of it."""
        if self.rights is None or self.rights.guard is None:
            return None
        return self.rights.guard.restrictions.get(table_id)

    @property
    def has_restrictions(self) -> bool:
        """Whether policies leave it only a part of some table."""
        return self.rights is not None and self.rights.guard is not None and bool(self.rights.guard.restrictions)

    def is_kept_from(self, table_id: int) -> bool:
        """Return whether it gets nothing of a table's files, as policies hide a part of them, or may do so by now."""
        guard = None if self.rights is None else self.rights.guard
        return (
            guard is not None and not guard.is_trusted and (table_id in guard.restrictions or not self.knows(table_id))
        )

    def knows(self, table_id: int) -> bool:
        """Return whether its rights were read since a table was made."""
        guard = None if self.rights is None else self.rights.guard
        return guard is None or table_id <= guard.newest_id

    def is_in_scope(self, capability: Capability, namespace: Namespace) -> bool:
        """Return whether the scopes alone allow all of the capability in the namespace."""
        held = _NONE
        for grant in self.grants:
            if grant.covers(namespace) and (self.has_grants or not grant.needs_grants):
                if capability in grant.capability:
                    return True
                held |= grant.capability
        return bool(capability) and capability in held

    def may_administer(self) -> bool:
        """Return whether the scopes by themselves allow everything, or the role admin does and a scope lets it count.

        What is granted on a warehouse doesn't count: it is about the warehouse, and not about the server.
        """
        return self.with_rights(None).is_in_scope(EVERYTHING, ()) or (self.is_admin and self.holds(GRANTED))

    @property
    def has_grants(self) -> bool:
        """Whether grants count, and not its scopes alone."""
        return self.rights is not None and self.rights.are_granted

    @property
    def awaits_grants(self) -> bool:
        """Whether scopes of it count only where grants are on."""
        return any(grant.needs_grants for grant in self.grants)

    @property
    def is_limited_outside(self) -> bool:
        """Whether a service outside is asked, too."""
        return self.rights is not None and self.rights.outside is not None

    @property
    def is_limited_by_object(self) -> bool:
        """Whether a service outside or policies may limit it on single tables and views."""
        return self.rights is not None and self.rights.decides_by_object

    def holds(self, grant: Grant) -> bool:
        """Return whether the grant would add nothing."""
        own = self.in_warehouse(grant.warehouse)
        asked = own.with_rights(Rights()) if grant.needs_grants else own
        return asked.is_in_scope(grant.capability, grant.namespace)

    def in_warehouse(self, warehouse: str) -> "Principal":
        """Return the principal with its grants in one warehouse alone, without the warehouse's name."""
        own = (grant for grant in self.grants if grant.warehouse == warehouse or _is_everywhere(grant))
        return replace(self, grants=tuple(replace(grant, warehouse="") for grant in own), rights=None)

    def with_rights(self, rights: Rights | None) -> "Principal":
        """Return the principal with what it was granted; None where scopes alone decide."""
        return replace(self, rights=rights)

    def list_namespaces(self, capability: Capability, privileges: Privilege | None = None) -> tuple[Namespace, ...]:
        """List namespaces in which, and below which, all of it is allowed."""
        scoped = tuple(grant.namespace for grant in self.grants if self.is_in_scope(capability, grant.namespace))
        if self.rights is None:
            return scoped
        wanted = translate_capability(capability) if privileges is None else privileges
        held = self.rights.list_namespaces(wanted)
        pairs = ((one, other) for one in scoped for other in held)
        found = dict.fromkeys(longer for one, other in pairs if (longer := _find_overlap(one, other)) is not None)
        return tuple(filter_seen(self.rights, found, _name_namespace, partial(self.rights.may, wanted)))

    def readable_schemas(self) -> tuple[str, ...] | None:
        """Return those that may be read, each with all below it; None: everything."""
        if self.may(Capability.READ, ()):
            return None
        return tuple(map(to_schema_name, self.list_namespaces(Capability.READ)))

    def without_outside(self) -> "Principal":
        """Return the principal with its rights as if nothing outside limited them: `filter_readable` does."""
        if self.rights is None or not self.is_limited_outside:
            return self
        return self.with_rights(replace(self.rights, outside=None))

    def filter_readable(self, items: Sequence[T], place: Callable[[T], Place]) -> tuple[T, ...]:
        """Leave out what the outside or policies don't let it read, of a list that scopes and grants have limited."""
        if not self.is_limited_by_object:
            return tuple(items)
        return tuple(filter_seen(self.rights, items, place, lambda item: self.may(Capability.READ, *place(item))))

    def readable_objects(self) -> tuple[tuple[str, str], ...]:
        """Return schema and name of tables and views that may be read, but not all in their namespace."""
        if self.rights is None:
            return ()
        found = self.rights.list_objects(Privilege.SELECT)
        return tuple((to_schema_name(of), name) for of, name in found if self.is_in_scope(Capability.READ, of))

    def readable_ids(self) -> tuple[int, ...]:
        """Return DuckLake's ids of the same."""
        if self.rights is None:
            return ()
        found, ids = self.rights.list_objects(Privilege.SELECT), self.rights.ids
        return tuple(ids[of, name] for of, name in found if self.is_in_scope(Capability.READ, of))

    def sees(self, namespace: Namespace) -> bool:
        """Return whether the namespace may be listed: something is granted in it, above it or below it."""
        is_in_scope = any(
            grant.covers(namespace) or grant.namespace[: len(namespace)] == namespace
            for grant in self.grants
            if self.has_grants or not grant.needs_grants
        )
        return is_in_scope and (self.rights is None or self.rights.sees(namespace))

    def sees_object(self, namespace: Namespace, name: str) -> bool:
        """Return whether a table or view of a namespace that may be listed may be, too."""
        return self.rights is None or self.rights.sees_object(namespace, name)


def _name_namespace(namespace: Namespace) -> tuple[Namespace, str]:
    return namespace, ""


def translate_capability(capability: Capability) -> Privilege:
    """Return all privileges that it takes to do whatever a capability may allow."""
    found = Privilege.SELECT if Capability.READ in capability else NO_PRIVILEGE
    if Capability.WRITE in capability:
        found |= CHANGING
    if Capability.MANAGE in capability:
        found |= Privilege.CREATE | Privilege.DROP | Privilege.ALTER
    return found


def _find_overlap(one: Namespace, other: Namespace) -> Namespace | None:
    """Return the longer of two namespaces if it lies within the other, or is it."""
    short, long = sorted((one, other), key=len)
    return long if long[: len(short)] == short else None


def _is_everywhere(grant: Grant) -> bool:
    return not (grant.warehouse or grant.namespace)


GRANTED: Final = Grant((), EVERYTHING, needs_grants=True)
"""The grant of the scope `grants`: nothing, but where grants are on whatever they give."""
_GUARDED: Final = {
    False: "read it by POST /sql/v1/query; its metadata, files, plans and history would show them",
    True: "it may be read and appended to; whoever replaces or deletes rows must see them all",
}
ANY_PRINCIPAL: Final = Principal("anonymous", (Grant((), EVERYTHING),))
"""Who asks where authentication is off."""


@dataclass(frozen=True, slots=True)
class Caller:
    """One request for the audit trail: principal, operation and address; client: what it says of its program.

    The keys of that are user-agent, engine, application, parent-run-id, parent-job-name and parent-job-namespace, and
    the same of a root; only what was said is there. referenced_by: the views through which the client loads, outermost
    first, as namespace and name; the client says so, and it proves nothing (`authz/definers`).
    """

    principal: Principal = ANY_PRINCIPAL
    address: str = ""
    request_id: str = ""
    operation: str = ""
    resource: str = ""
    client: Mapping[str, str] = field(default_factory=dict)
    referenced_by: tuple[tuple[Namespace, str], ...] = ()


SERVER_CALLER: Final = Caller()
"""The caller of what no request asked for."""


def build_refusal(namespace: Namespace, name: str = "", principal: Principal = ANY_PRINCIPAL) -> ForbiddenError:
    """Build the refusal, the same whether or not the object exists; names are written as in scopes.

    principal: whose grants count, if they do. Who may read a table but for policies is sent to where it may be read.
    """
    rights = principal.rights
    guard = None if rights is None else rights.guard
    where = format_full_name(namespace, name or None) if namespace else "the warehouse"
    if guard is not None and (namespace, name) in guard.names and principal.may_query(namespace, name):
        return ForbiddenError(f"Policies hide rows or values of {where} from the caller: {_GUARDED[guard.is_trusted]}")
    if rights is None or not (rights.are_granted or rights.outside is not None):
        return ForbiddenError(
            f"The caller's scopes don't allow this in namespace {to_schema_name(namespace)}, if there is one"
        )
    deciding = "scopes and grants" if rights.outside is None else "scopes, grants or an outside decision"
    return ForbiddenError(f"The caller's {deciding} don't allow this on {where}, if there is such a thing")


def parse_scope(scope: str) -> Grant:
    """Give the grant that a scope stands for; InvalidRequestError for what isn't one."""
    if scope == "grants":
        return GRANTED
    match = _SCOPE.fullmatch(scope)
    if match is None:
        raise InvalidRequestError(
            f"{scope!r} is not a scope: write *, grants, or ns:<namespace>:<cap> with a cap of r, w, rw or *; "
            "wh:<warehouse>: before either is for a further warehouse, grants: before all for what grants give of it"
        )
    warehouse, needs_grants = match["warehouse"] or "", match["granted"] is not None
    if match["whole"] == "*":
        return Grant((), EVERYTHING, warehouse, needs_grants)
    levels = match["name"].replace("+", "%2B").split(".")
    namespace = check_namespace(tuple(map(decode_name, levels)))
    return Grant(namespace, _CAPS[match["cap"]], warehouse, needs_grants)


def format_scope(grant: Grant) -> str:
    """Format a grant as the scope that stands for it."""
    if grant == GRANTED:
        return "grants"
    prefix = ("grants:" if grant.needs_grants else "") + (f"wh:{grant.warehouse}:" if grant.warehouse else "")
    if not grant.namespace:
        return f"{prefix}*"
    capability = next(text for text, held in _CAPS.items() if held == grant.capability)
    return f"{prefix}ns:{to_schema_name(grant.namespace)}:{capability}"


def build_grants(scopes: Iterable[str]) -> tuple[Grant, ...]:
    """Give the grants of several scopes; InvalidRequestError for what isn't one."""
    return tuple(parse_scope(scope) for scope in scopes)


def filter_scopes(principal: Principal, scopes: Iterable[str]) -> tuple[str, ...]:
    """Filter the scopes for those that the principal has."""
    return tuple(scope for scope in scopes if principal.holds(parse_scope(scope)))
