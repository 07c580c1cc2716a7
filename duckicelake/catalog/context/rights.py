"""What principals may do where grants are on or policies are: read from Postgres, kept while nothing changes it.

One thread looks for changes a few times a second. A decision from memory is at most `_TRUST_SECONDS` old; whoever needs
a newer one, as all requests that change something do, asks Postgres.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final, cast
from uuid import UUID
from weakref import WeakSet

from duckicelake.catalog.context.caller import Principal
from duckicelake.catalog.context.outside import OutsideDecisions, OutsideLimit, build_limited_rights
from duckicelake.catalog.context.privileges import Guard, HeldGrant, ObjectKind, ObjectRef, Rights, parse_mark
from duckicelake.catalog.context.registry_link import RegistryLink
from duckicelake.iceberg.identifiers import Namespace, has_readable_name, parse_readable_namespace
from duckicelake.iceberg.read_restrictions import NO_ROWS, HeldPolicy, Mask, build_restrictions
from duckicelake.lake.side_tables import grants, policies
from duckicelake.lake.side_tables.grants import GovernanceVersions, GrantPlace, GrantRow
from duckicelake.lake.side_tables.policies import HeldPolicyRow
from duckicelake.lake.side_tables.warehouses import FIRST_NAME
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction

_LRU_ENTRIES: Final = 4096
_POLL_SECONDS: Final = 0.4
"""Seconds between two looks while a warehouse has grants on."""
_IDLE_SECONDS: Final = 0.5
"""The same while none has."""
_TRUST_SECONDS: Final = 0.9
"""Seconds after the last look in which decisions are made from memory: a revoked right ends within a second, and so
do those of scopes alone once grants are on."""


class GovernanceWatch:
    """Looks for changes of a process's open warehouses, in one thread, until the first one's database is closed."""

    def __init__(self, first: Database) -> None:
        self.first = first
        self._watched: WeakSet[RightsCache] = WeakSet()
        self._lock = Lock()
        self._is_started = False
        self._closed = threading.Event()
        self._schema: str | None = None

    def add(self, cache: "RightsCache") -> None:
        """Look for changes of a warehouse from its first request on."""
        with self._lock:
            self._watched.add(cache)
            is_first, self._is_started = not self._is_started, True
        if is_first:
            self.first.open_side_connection(lambda *_: self)
            threading.Thread(target=self._run, name="grants", daemon=True).start()

    def count(self) -> int:
        """Return how many warehouses are looked after."""
        with self._lock:
            return len(self._watched)

    def find_schema(self) -> str:
        """Find the schema of the first warehouse, which has the grants of all."""
        if self._schema is None:
            with self.first.statement(only_reads=True) as cursor:
                self._schema = grants.read_first_schema(cursor)
        return self._schema

    def remove(self, cache: "RightsCache") -> None:
        """Look no more for changes of a warehouse that is closed."""
        with self._lock:
            self._watched.discard(cache)

    def close(self) -> None:
        """End the thread; called when the database is closed."""
        self._closed.set()

    def _run(self) -> None:
        is_busy = True
        while not self._closed.wait(_POLL_SECONDS if is_busy else _IDLE_SECONDS):
            with self._lock:
                watched = list(self._watched)
            for cache in watched:
                with suppress(Exception):  # decisions ask Postgres themselves, and say what is wrong
                    cache.watch()
            is_busy = any(cache.is_bound for cache in watched)


@dataclass(frozen=True, slots=True)
class _Known:
    """What a look found, at a time of the monotonic clock before it."""

    versions: GovernanceVersions
    asked_at: float


class RightsCache:
    """The rights of principals in one warehouse, while principals, grants and names stay as they are."""

    def __init__(
        self,
        database: Database,
        watch: GovernanceWatch,
        place: GrantPlace | None = None,
        outside: OutsideDecisions | None = None,
        name: str = FIRST_NAME,
        link: RegistryLink | None = None,
    ) -> None:
        """Keep where to ask. database: the warehouse's own. place: by default the first warehouse's.

        outside: decides after scopes and grants have allowed. name: of the warehouse, for the outside. link: of a
        warehouse in another database, whose lake has its grants, and copies of the principals.
        """
        self.outside = outside
        self.link = link
        self._name = name
        self._database = database
        self._watch = watch
        self._place = place or GrantPlace()
        self._is_first = place is None
        self._lock = Lock()
        self._known: _Known | None = None
        self._is_watched = False
        self._bound: OrderedDict[Principal, Principal] = OrderedDict()
        self._limited: OrderedDict[Principal, Principal] = OrderedDict()

    @classmethod
    def of_first(cls, database: Database, outside: OutsideDecisions | None = None) -> "RightsCache":
        """Make the cache of the first warehouse, with a thread for it and those beside it."""
        return cls(database, GovernanceWatch(database), outside=outside)

    def beside(self, database: Database, warehouse_id: UUID, name: str) -> "RightsCache":
        """Make the cache of another warehouse, which the same thread looks after."""
        return RightsCache(database, self._watch, GrantPlace(warehouse_id), self.outside, name)

    def elsewhere(self, database: Database, link: RegistryLink, name: str) -> "RightsCache":
        """Make the cache of a warehouse in another database, with a thread of its own: that may not answer for long."""
        place = GrantPlace(link.claim.warehouse_id)
        return RightsCache(database, GovernanceWatch(database), place, self.outside, name, link)

    @property
    def is_bound(self) -> bool:
        """Whether grants were on, or there were policies, when that was last looked at."""
        return self._known is not None and self._known.versions.is_bound

    @property
    def registry(self) -> Database:
        """The database of the first warehouse."""
        return self._watch.first if self.link is None else self.link.registry

    @property
    def place(self) -> GrantPlace:
        """Where the warehouse's grants are; asks Postgres once."""
        if not self._is_first and self.link is None and self._place.schema is None:
            self._place = grants.qualify(self._place, self._watch.find_schema())
        return self._place

    def find_known(self, principal: Principal) -> Principal | None:
        """Return the principal with what memory knows of its rights; None: Postgres must be asked."""
        known = self._known
        if known is None or time.monotonic() - known.asked_at > _TRUST_SECONDS:
            return None
        return self._bound.get(principal) if known.versions.is_bound else self._limit(principal)

    def bind(self, principal: Principal) -> Principal:
        """Return the principal with its rights as they are now. UnavailableError.

        Itself where grants are off, there are no policies, and nothing outside decides.
        """
        if not self._is_watched:
            self._is_watched = True
            self._watch.add(self)
        known = self._known
        if known is not None and not known.versions.is_bound and time.monotonic() - known.asked_at < _TRUST_SECONDS:
            return self._limit(principal)
        if not self.look().is_bound:
            return self._limit(principal)
        bound = self._bound.get(principal)
        return bound or self._read(principal)

    def renew(self, principal: Principal, table_id: int) -> Principal:
        """Return the principal with rights that were read since a table was made; lent rights stay as they are."""
        if principal.knows(table_id) or principal.loan is not None:
            return principal
        return self.bind(principal.with_rights(None))

    def _limit(self, principal: Principal) -> Principal:
        """Return the principal where scopes alone count: with what the outside lets it do, if that decides."""
        if self.outside is None:
            return principal
        limited = self._limited.get(principal)
        if limited is None:
            limited = principal.with_rights(build_limited_rights(self._open_outside(self.outside, principal)))
            with self._lock:
                limited = self._limited.setdefault(principal, limited)
                while len(self._limited) > _LRU_ENTRIES:
                    self._limited.popitem(last=False)
        return limited

    def _open_outside(self, outside: OutsideDecisions, principal: Principal) -> OutsideLimit:
        return OutsideLimit(outside, principal.name, principal.groups, self._name)

    def look(self) -> GovernanceVersions:
        """Ask Postgres what has changed, and forget what may have changed with it."""
        return self._look(self._database.statement)

    def watch(self) -> None:
        """Look as `look` does, over the connection of those who watch, for which no request makes it wait."""
        self._look(lambda **_: self._database.watching(), watches=True)

    def close(self) -> None:
        """Look no more for changes: the warehouse is closed. Who still asks for its rights asks Postgres."""
        self._watch.remove(self)

    def refresh(self) -> None:
        """Let a warehouse in another database have copies of all principals of now."""
        if self.link is not None:
            self.look()

    def _look(
        self, opening: Callable[..., AbstractContextManager[Transaction]], *, watches: bool = False
    ) -> GovernanceVersions:
        asked_at, place = time.monotonic(), self.place
        state = None if self.link is None else self.link.read_state(watches=watches)
        with opening(only_reads=True) as cursor:
            versions = grants.read_versions(cursor, place)
        if self.link is not None and versions.copied != state:
            self.link.copy_principals(self._database)
            with opening(only_reads=True) as cursor:
                versions = grants.read_versions(cursor, place)
        self._note(_Known(versions, asked_at))
        return versions

    def _note(self, found: _Known) -> None:
        with self._lock:
            known = self._known
            if known is not None and known.asked_at > found.asked_at:
                return
            if known is None or known.versions != found.versions:
                self._bound.clear()
            self._known = found

    def _read(self, principal: Principal) -> Principal:
        asked_at = time.monotonic()
        with self._database.reading() as cursor:
            versions = grants.read_versions(cursor, self.place)
            bound = self._read_in(cursor, principal, versions)
        self._note(_Known(versions, asked_at))
        return self._keep(principal, bound, versions)

    def read_in(self, cursor: Transaction, principal: Principal) -> Principal:
        """Return the principal with its rights as a transaction that only reads sees them.

        Memory has them if the versions in the transaction are those at which they were read.
        """
        versions = grants.read_versions(cursor, self.place)
        with self._lock:
            is_same = self._known is not None and self._known.versions == versions
            bound = self._bound.get(principal) if is_same else None
        return bound or self._keep(principal, self._read_in(cursor, principal, versions), versions)

    def _keep(self, principal: Principal, bound: Principal, versions: GovernanceVersions) -> Principal:
        """Keep the rights that were read at versions, if these are still the newest that are known."""
        with self._lock:
            if self._known is not None and self._known.versions == versions:
                bound = self._bound.setdefault(principal, bound)
                while len(self._bound) > _LRU_ENTRIES:
                    self._bound.popitem(last=False)
        return bound

    def _read_in(self, cursor: Transaction, principal: Principal, versions: GovernanceVersions) -> Principal:
        rights = read_rights(cursor, self.place, principal) if versions.is_on else build_limited_rights(None)
        if self.outside is not None:
            rights = replace(rights, outside=self._open_outside(self.outside, principal))
        if versions.has_policies:
            rights = replace(rights, guard=read_guard(cursor, self.place, principal))
        return principal.with_rights(rights)


def read_rights(cursor: Transaction, place: GrantPlace, principal: Principal) -> Rights:
    """Read all that a principal may do in a warehouse."""
    id_ = find_id(cursor, place, principal)
    return Rights.build(map(_build_held, grants.read_held(cursor, place, id_, principal.groups)), id_)


def read_guard(cursor: Transaction, place: GrantPlace, principal: Principal) -> Guard | None:
    """Read which tables policies hide parts of from a principal; None: of none."""
    newest_id, id_ = policies.read_newest_table_id(cursor), find_id(cursor, place, principal)
    rows = policies.read_held_policies(cursor, place, id_, principal.groups)
    if not rows:
        return None
    found = {at: row.table_id for row in rows if (at := _locate(row.schema_name, row.table_name)) is not None}
    restrictions = build_restrictions(map(_build_held_policy, rows))
    is_trusted = policies.is_trusted(cursor, place, id_, principal.groups)
    return Guard(restrictions, found, newest_id, is_trusted, frozenset((row.name, row.table_id) for row in rows))


def _build_held_policy(row: HeldPolicyRow) -> HeldPolicy:
    if row.is_successor:
        return HeldPolicy(row.table_id, filter=NO_ROWS)
    mask = None if row.mask is None else Mask(row.mask)
    return HeldPolicy(row.table_id, row.column_id, row.column_name, mask, row.filter)


def _locate(schema_name: str, name: str) -> tuple[Namespace, str] | None:
    namespace = parse_readable_namespace(schema_name)
    return None if namespace is None else (namespace, name)


def find_id(cursor: Transaction, place: GrantPlace, principal: Principal) -> int | None:
    """Find the row of a principal that the authentication has found none for by itself."""
    if principal.principal_id is not None:
        return principal.principal_id
    return grants.find_login_id(cursor, place, principal.name)


def read_held_grants(
    cursor: Transaction, place: GrantPlace, name: str, principal_id: int | None, groups: Sequence[str] = ()
) -> list[HeldGrant]:
    """Read all grants that a principal holds, each with the way that leads to its holder, to explain decisions."""
    ways = _find_ways(grants.read_memberships(cursor, place, principal_id, groups), name)
    rows = grants.read_held(cursor, place, principal_id, groups)
    return [replace(_build_held(row), path=ways.get(row.grantee_id, ())) for row in rows]


def _find_ways(memberships: Sequence[grants.Membership], name: str) -> dict[int, tuple[str, ...]]:
    """Find the shortest way from the principal to each of its groups and roles."""
    names = {row.principal_id: row.name for row in memberships}
    within = {row.container_id for row in memberships if row.container_id is not None}
    first = [id_ for id_, own in names.items() if own == name] or [id_ for id_ in names if id_ not in within]
    ways: dict[int, tuple[str, ...]] = {
        id_: (name,) if names[id_] == name else (name, names[id_]) for id_ in [*first, *(names.keys() - within)]
    }
    waiting = [*ways]
    while waiting:
        member = waiting.pop(0)
        for row in memberships:
            container = row.container_id
            if row.principal_id == member and container in names and container not in ways:
                ways[container] = (*ways[member], names[container])
                waiting.append(container)
    return ways


def _build_held(row: GrantRow) -> HeldGrant:
    known = build_object(row.kind, row.schema_name, row.name)
    return HeldGrant(cast("ObjectKind", row.kind), row.object_id, known, parse_mark(row.privilege))


def build_object(kind: str, schema_name: str | None, name: str | None) -> ObjectRef | None:
    """Build the object of a grant; None if no request can name it, as it is gone or has an odd name."""
    if kind == "warehouse":
        return ObjectRef("warehouse")
    namespace = None if schema_name is None else parse_readable_namespace(schema_name)
    if namespace is None:
        return None
    if kind == "namespace":
        return ObjectRef("namespace", namespace)
    if name is None or not has_readable_name(name):
        return None
    return ObjectRef("view" if kind == "view" else "table", namespace, name)
