"""Principals, their grants, and the caller of a request."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from typing import Final

from duckicelake.errors import ForbiddenError, InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, check_namespace, decode_name, to_schema_name

_SCOPE: Final = re.compile(
    r"(wh:(?P<warehouse>[a-z0-9][a-z0-9_-]{0,47}):)?"
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
    """

    namespace: Namespace
    capability: Capability
    warehouse: str = ""

    def covers(self, namespace: Namespace) -> bool:
        """Return whether the namespace of the first warehouse is in the grant's."""
        return not self.warehouse and namespace[: len(self.namespace)] == self.namespace


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller, and the grants of its scopes.

    That of a request has the grants of the request's warehouse alone, without the name (`in_warehouse`).

    Attributes:
        groups: names of groups that its token says it is in.
        principal_id: of its row among the principals; None without one, whatever it is called.
        is_admin: it is in the role of those who administer the server.

    """

    name: str
    grants: tuple[Grant, ...]
    groups: tuple[str, ...] = ()
    principal_id: int | None = None
    is_admin: bool = False

    def __hash__(self) -> int:
        """Cheap: whoever asks is looked up with each request."""
        return hash(self.name)

    def may(self, capability: Capability, namespace: Namespace) -> bool:
        """Return whether all of the capability is granted in the namespace; `()` asks for the whole catalog."""
        held = _NONE
        for grant in self.grants:
            if grant.covers(namespace):
                if capability in grant.capability:
                    return True
                held |= grant.capability
        return capability in held

    def holds(self, grant: Grant) -> bool:
        """Return whether the grant would add nothing."""
        own = self.in_warehouse(grant.warehouse)
        if grant == GRANTED:
            return GRANTED in own.grants or own.may(EVERYTHING, ())
        return own.may(grant.capability, grant.namespace)

    def in_warehouse(self, warehouse: str) -> "Principal":
        """Return the principal with its grants in one warehouse alone, without the warehouse's name."""
        own = (grant for grant in self.grants if grant.warehouse == warehouse or _is_everywhere(grant))
        return replace(self, grants=tuple(replace(grant, warehouse="") for grant in own))

    def readable_schemas(self) -> tuple[str, ...] | None:
        """Return those that may be read, each with all below it; None: everything."""
        if self.may(Capability.READ, ()):
            return None
        return tuple(to_schema_name(grant.namespace) for grant in self.grants if Capability.READ in grant.capability)

    def sees(self, namespace: Namespace) -> bool:
        """Return whether the namespace may be listed: something is granted in it, above it or below it."""
        return any(
            grant.covers(namespace) or grant.namespace[: len(namespace)] == namespace
            for grant in self.grants
            if grant.capability
        )


def _is_everywhere(grant: Grant) -> bool:
    return not (grant.warehouse or grant.namespace)


GRANTED: Final = Grant((), _NONE)
"""The grant of the scope `grants`: nothing, but where grants are on whatever they give."""
ANY_PRINCIPAL: Final = Principal("anonymous", (Grant((), EVERYTHING),))
"""Who asks where authentication is off."""


@dataclass(frozen=True, slots=True)
class Caller:
    """One request for the audit trail: principal, operation and address; client: what it says of its program.

    The keys of that are user-agent, engine, application, parent-run-id, parent-job-name and parent-job-namespace, and
    the same of a root; only what was said is there. referenced_by: the views through which the client loads, outermost
    first, as namespace and name; the client says so, and it proves nothing.
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


def build_refusal(namespace: Namespace) -> ForbiddenError:
    """Build the refusal, the same whether or not the object exists; names are written as in scopes."""
    return ForbiddenError(
        f"The caller's scopes don't allow this in namespace {to_schema_name(namespace)}, if there is one"
    )


def parse_scope(scope: str) -> Grant:
    """Give the grant that a scope stands for; InvalidRequestError for what isn't one."""
    if scope == "grants":
        return GRANTED
    match = _SCOPE.fullmatch(scope)
    if match is None:
        raise InvalidRequestError(
            f"{scope!r} is not a scope: write *, grants, or ns:<namespace>:<cap> with a cap of r, w, rw or *; "
            "wh:<warehouse>: before either is for a further warehouse"
        )
    warehouse = match["warehouse"] or ""
    if match["whole"] == "*":
        return Grant((), EVERYTHING, warehouse)
    levels = match["name"].replace("+", "%2B").split(".")
    return Grant(check_namespace(tuple(map(decode_name, levels))), _CAPS[match["cap"]], warehouse)


def build_grants(scopes: Iterable[str]) -> tuple[Grant, ...]:
    """Give the grants of several scopes; InvalidRequestError for what isn't one."""
    return tuple(parse_scope(scope) for scope in scopes)
