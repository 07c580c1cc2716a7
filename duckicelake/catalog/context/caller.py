"""Principals, their grants, the caller of a request, and what the audit trail notes of it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, Final

from duckicelake.errors import ForbiddenError, InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, check_namespace, decode_name, to_schema_name
from duckicelake.lake.side_tables.audit import AuditedResource, AuditEntry, RequestOrigin, record_signed_entries
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction

_SCOPE: Final = re.compile(r"ns:(?P<name>[\x21\x23-\x5b\x5d-\x7e]+):(?P<cap>r|w|rw|\*)")
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
    """Capabilities in a namespace and all below it; `()` is the whole catalog."""

    namespace: Namespace
    capability: Capability

    def covers(self, namespace: Namespace) -> bool:
        return namespace[: len(self.namespace)] == self.namespace


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller, and the grants of its scopes."""

    name: str
    grants: tuple[Grant, ...]

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
        return self.may(grant.capability, grant.namespace)

    def readable_schemas(self) -> tuple[str, ...] | None:
        """Return those that may be read, each with all below it; None: everything."""
        if self.may(Capability.READ, ()):
            return None
        return tuple(to_schema_name(grant.namespace) for grant in self.grants if Capability.READ in grant.capability)

    def sees(self, namespace: Namespace) -> bool:
        """Return whether the namespace may be listed: something is granted in it, above it or below it."""
        return any(grant.covers(namespace) or grant.namespace[: len(namespace)] == namespace for grant in self.grants)


ANY_PRINCIPAL: Final = Principal("anonymous", (Grant((), EVERYTHING),))
"""Who asks where authentication is off."""


@dataclass(frozen=True, slots=True)
class Caller:
    """One request for the audit trail: principal, operation and address; client: what it says of its program.

    The keys of that are user-agent, engine, application, parent-run-id, parent-job-name and parent-job-namespace, and
    the same of a root; only what was said is there.
    """

    principal: Principal = ANY_PRINCIPAL
    address: str = ""
    request_id: str = ""
    operation: str = ""
    resource: str = ""
    client: Mapping[str, str] = field(default_factory=dict)


SERVER_CALLER: Final = Caller()
"""The caller of what no request asked for."""


def build_refusal(namespace: Namespace) -> ForbiddenError:
    """Build the refusal, the same whether or not the object exists; names are written as in scopes."""
    return ForbiddenError(
        f"The caller's scopes don't allow this in namespace {to_schema_name(namespace)}, if there is one"
    )


def parse_scope(scope: str) -> Grant:
    """Give the grant that a scope stands for; InvalidRequestError for what isn't one."""
    if scope == "*":
        return Grant((), EVERYTHING)
    match = _SCOPE.fullmatch(scope)
    if match is None:
        raise InvalidRequestError(
            f"{scope!r} is not a scope: write * or ns:<namespace>:<cap> with a cap of r, w, rw or *"
        )
    levels = match["name"].replace("+", "%2B").split(".")
    return Grant(check_namespace(tuple(map(decode_name, levels))), _CAPS[match["cap"]])


def build_grants(scopes: Iterable[str]) -> tuple[Grant, ...]:
    """Give the grants of several scopes; InvalidRequestError for what isn't one."""
    return tuple(parse_scope(scope) for scope in scopes)


Detail = dict[str, Any]
"""What an entry of the audit trail says besides."""
PublishEntries = Callable[[Sequence[AuditEntry]], None]


def build_touched(namespace: Namespace, name: str | None = None, detail: Detail | None = None) -> AuditedResource:
    """Return the namespace, or what has the name in it; dots inside names are written %2E."""
    return AuditedResource(to_schema_name(namespace if name is None else (*namespace, name)), detail=detail)


def list_actions(updates: Iterable[Any]) -> Detail:
    """Return the detail of a commit: what kinds of updates it made, each once and in order."""
    return {"updates": list(dict.fromkeys(update.action for update in updates))}


@dataclass(frozen=True, slots=True)
class AuditNote:
    """An entry to be. publish: called with the entry after the commit."""

    origin: RequestOrigin
    touched: AuditedResource
    publish: PublishEntries


def note_all(database: Database, cursor: Transaction, noted: Sequence[AuditNote]) -> None:
    """Note what several requests did, as the last step of a transaction whose snapshots are signed and theirs."""
    entries = record_signed_entries(cursor, [note.origin for note in noted], [note.touched for note in noted])

    def publish() -> None:
        for note, entry in zip(noted, entries(), strict=True):
            note.publish([entry])

    database.after_commit(cursor, publish)


def build_origin(caller: Caller) -> RequestOrigin:
    """Build who asked, as the audit trail has it."""
    return RequestOrigin(caller.principal.name, caller.address, caller.request_id, caller.operation, caller.client)


def ignore_entry(entries: Sequence[AuditEntry]) -> None:
    """Ignore the entries, as a catalog without a log does."""
