"""Privileges of principals on objects, and what all of them come to in one warehouse; pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from functools import reduce
from operator import or_
from typing import Final, Literal, Protocol

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, format_full_name, to_schema_name
from duckicelake.iceberg.read_restrictions import Restriction

ObjectKind = Literal["warehouse", "namespace", "table", "view"]
KINDS: Final[tuple[ObjectKind, ...]] = ("warehouse", "namespace", "table", "view")


class Privilege(Flag):
    """What may be done with an object; `OWNERSHIP` alone is the mark of an owner, who may do everything."""

    SELECT = auto()
    INSERT = auto()
    UPDATE = auto()
    DELETE = auto()
    CREATE = auto()
    DROP = auto()
    ALTER = auto()
    MANAGE_GRANTS = auto()
    OWNERSHIP = auto()
    QUERY = auto()
    """What policies leave of `SELECT`: to read by queries of the server. It isn't granted."""


NO_PRIVILEGE: Final = Privilege(0)
ALL_PRIVILEGES: Final = reduce(or_, Privilege) & ~Privilege.QUERY
"""What an owner has."""
WRITING: Final = Privilege.INSERT | Privilege.UPDATE | Privilege.DELETE
CHANGING: Final = WRITING | Privilege.CREATE | Privilege.DROP | Privilege.ALTER
_NAMES: Final = {one.name.lower().replace("_", "-"): one for one in Privilege if one.name and one in ALL_PRIVILEGES}


def parse_privilege(name: str) -> Privilege:
    """Return what a privilege's name gives, everything for `ownership`; InvalidRequestError for an unknown one."""
    privilege = _NAMES.get(name)
    if privilege is None:
        raise InvalidRequestError(f"{name!r} is no privilege: there are {', '.join(_NAMES)}")
    return expand_privilege(privilege)


def parse_mark(name: str) -> Privilege:
    """Return a privilege as it is granted, an owner's mark alone."""
    return _NAMES[name]


def expand_privilege(privilege: Privilege) -> Privilege:
    """Add to an owner's mark all that an owner may do."""
    return ALL_PRIVILEGES if Privilege.OWNERSHIP in privilege else privilege


def list_names(privileges: Privilege) -> tuple[str, ...]:
    """List the names of privileges, in the order of the documents."""
    return tuple(name for name, privilege in _NAMES.items() if privilege in privileges)


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """A warehouse, or something in it by its name. name: of a table or view."""

    kind: ObjectKind
    namespace: Namespace = ()
    name: str = ""

    def __str__(self) -> str:
        """Write it as commands take it: `warehouse`, `namespace:sales.eu`, `table:sales.eu.orders`."""
        match self.kind:
            case "warehouse":
                return "warehouse"
            case "namespace":
                return f"namespace:{to_schema_name(self.namespace)}"
            case _:
                return f"{self.kind}:{format_full_name(self.namespace, self.name)}"

    def is_within(self, other: "ObjectRef") -> bool:
        """Return whether what is granted on the other one holds here, too."""
        match other.kind:
            case "warehouse":
                return True
            case "namespace":
                return self.namespace[: len(other.namespace)] == other.namespace and self.kind != "warehouse"
            case _:
                return (self.namespace, self.name) == (other.namespace, other.name)


@dataclass(frozen=True, slots=True)
class HeldGrant:
    """A privilege that a principal has by itself, a group or a role.

    Attributes:
        kind: Of what it is on.
        object_id: DuckLake's id of that; 0 for the warehouse.
        object: The same by its name; None of what was dropped, or has a name that no request can give.
        privilege: As it was granted, so that an owner has the mark alone.
        path: The names from the principal to the group or role that it was granted to, the principal first.

    """

    kind: ObjectKind
    object_id: int
    object: ObjectRef | None
    privilege: Privilege
    path: tuple[str, ...] = ()


class OutsideView(Protocol):
    """What a service outside lets a principal do, at most."""

    def limit(self, held: Privilege, namespace: Namespace, name: str) -> Privilege:
        """Return those of the privileges that may be used on an object."""

    def look_ahead(self, held: Iterable[tuple[Privilege, tuple[Namespace, str]]]) -> None:
        """Ask about several objects at once, which `limit` will be asked about."""


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """The tables of one warehouse of which policies hide rows or values from one principal.

    Attributes:
        restrictions: What the principal sees, by DuckLake's id of the table.
        names: The ids, by today's names; of dropped tables by the last ones.
        newest_id: The highest id of a table by then. Of those made since, as clones, it isn't known what is hidden.
        is_trusted: The principal is an engine that gets the restrictions with the files, and applies them.
        policies: Names of policies and the ids of their tables.

    """

    restrictions: Mapping[int, Restriction]
    names: Mapping[tuple[Namespace, str], int]
    newest_id: int
    is_trusted: bool
    policies: Collection[tuple[str, int]] = ()

    def list_policies(self, namespace: Namespace, name: str) -> tuple[str, ...]:
        """List the names of the policies that hide parts of a table."""
        table_id = self.names.get((namespace, name))
        return tuple(sorted({policy for policy, on in self.policies if on == table_id}))

    def limit(self, held: Privilege, namespace: Namespace, name: str) -> Privilege:
        """Return those of the privileges that show nothing which is hidden, and need nothing of it."""
        return self._limit(held) if (namespace, name) in self.names else held

    def limit_dropped(self, held: Privilege, table_id: int) -> Privilege:
        """Return the same of a table that was dropped."""
        return self._limit(held) if table_id in self.restrictions else held

    def _limit(self, held: Privilege) -> Privilege:
        if self.is_trusted:
            return held & ~(Privilege.UPDATE | Privilege.DELETE)
        kept = held & (Privilege.MANAGE_GRANTS | Privilege.OWNERSHIP)
        return kept | Privilege.QUERY if Privilege.SELECT in held else kept


@dataclass(frozen=True, slots=True, eq=False)
class Rights:
    """All that a principal may do in one warehouse, by the names of a moment; no two are equal.

    Attributes:
        everywhere: Privileges on the warehouse.
        namespaces: Privileges granted on namespaces, which hold below them, too.
        objects: Privileges granted on tables and views.
        ids: DuckLake's ids of these.
        by_id: Privileges granted on each object, by kind and id, dropped ones included.
        owner_id: Of the row by which the principal comes to own what it makes; None without one.
        outside: What limits all of it, if a service outside is asked.
        are_granted: False where grants are off, and only the outside and policies limit what scopes allow.
        guard: The tables that policies hide parts of; None: there are none.

    """

    everywhere: Privilege = NO_PRIVILEGE
    namespaces: Mapping[Namespace, Privilege] = field(default_factory=dict)
    objects: Mapping[tuple[Namespace, str], Privilege] = field(default_factory=dict)
    ids: Mapping[tuple[Namespace, str], int] = field(default_factory=dict)
    by_id: Mapping[tuple[str, int], Privilege] = field(default_factory=dict)
    owner_id: int | None = None
    _parents: Collection[Namespace] = ()
    outside: OutsideView | None = None
    are_granted: bool = True
    guard: Guard | None = None

    @property
    def decides_by_object(self) -> bool:
        """Whether a table or view may be limited beyond what is granted above it."""
        return self.outside is not None or self.guard is not None

    @classmethod
    def build(cls, held: Iterable[HeldGrant], owner_id: int | None = None) -> "Rights":
        """Add up what a principal holds. Nothing on the warehouse, a namespace, a table or a view takes away."""
        everywhere = NO_PRIVILEGE
        namespaces: dict[Namespace, Privilege] = {}
        objects: dict[tuple[Namespace, str], Privilege] = {}
        by_id: dict[tuple[str, int], Privilege] = {}
        ids: dict[tuple[Namespace, str], int] = {}
        for grant in held:
            privilege, place = expand_privilege(grant.privilege), (grant.kind, grant.object_id)
            by_id[place] = by_id.get(place, NO_PRIVILEGE) | privilege
            if grant.kind == "warehouse":
                everywhere |= privilege
            elif grant.object is not None and grant.kind == "namespace":
                namespaces[grant.object.namespace] = namespaces.get(grant.object.namespace, NO_PRIVILEGE) | privilege
            elif grant.object is not None:
                key = grant.object.namespace, grant.object.name
                objects[key] = objects.get(key, NO_PRIVILEGE) | privilege
                ids[key] = grant.object_id
        granted = (*namespaces, *(namespace for namespace, _ in objects))
        parents = frozenset(namespace[:depth] for namespace in granted for depth in range(len(namespace) + 1))
        return cls(everywhere, namespaces, objects, ids, by_id, owner_id, parents)

    def add_loan(self, namespace: Namespace, name: str) -> "Rights":
        """Return the rights with that to read a table or view, which another principal lends."""
        held = self.objects.get((namespace, name), NO_PRIVILEGE) | Privilege.SELECT
        return replace(self, objects={**self.objects, (namespace, name): held})

    def find(self, namespace: Namespace, name: str = "") -> Privilege:
        """Find all privileges on a table or view, a namespace, or with neither the warehouse. UnavailableError."""
        return self._limit(self._find_held(namespace, name), namespace, name)

    def look_ahead(self, places: Iterable[tuple[Namespace, str]]) -> None:
        """Ask the outside about several tables, views or namespaces at once, if it is asked at all."""
        if self.outside is not None:
            self.outside.look_ahead((self._find_held(*place), place) for place in places)

    def _limit(self, held: Privilege, namespace: Namespace, name: str = "") -> Privilege:
        limited = held if self.outside is None or not held else self.outside.limit(held, namespace, name)
        return limited if self.guard is None else self.guard.limit(limited, namespace, name)

    def _find_held(self, namespace: Namespace, name: str) -> Privilege:
        found = self.everywhere
        for depth in range(1, len(namespace) + 1):
            found |= self.namespaces.get(namespace[:depth], NO_PRIVILEGE)
        if name:
            found |= self.objects.get((namespace, name), NO_PRIVILEGE)
        return complete_privileges(found)

    def find_dropped(self, kind: ObjectKind, object_id: int, namespace: Namespace) -> Privilege:
        """Find all privileges on something that was dropped from a namespace."""
        parent = namespace if kind != "namespace" else namespace[:-1]
        held = self._find_held(parent, "") | self.by_id.get((kind, object_id), NO_PRIVILEGE)
        limited = self._limit(complete_privileges(held), parent)
        return limited if self.guard is None or kind != "table" else self.guard.limit_dropped(limited, object_id)

    def may(self, privileges: Privilege, namespace: Namespace, name: str = "") -> bool:
        """Return whether all of the privileges are held."""
        return privileges in self.find(namespace, name)

    def may_any(self, privileges: Privilege, namespace: Namespace, name: str = "") -> bool:
        """Return whether one of the privileges is held."""
        return bool(privileges & self.find(namespace, name))

    def sees(self, namespace: Namespace) -> bool:
        """Return whether the namespace may be listed: something is granted on it, above it or below it."""
        return namespace in self._parents or bool(self.find(namespace))

    def sees_object(self, namespace: Namespace, name: str) -> bool:
        """Return whether a table or view may be listed: something is granted on it or above it."""
        return bool(self.find(namespace, name))

    def list_namespaces(self, privileges: Privilege) -> tuple[Namespace, ...]:
        """List the namespaces in which all of the privileges are held, `()` for the warehouse, before the outside."""
        if privileges in complete_privileges(self.everywhere):
            return ((),)
        return tuple(namespace for namespace in self.namespaces if privileges in self._find_held(namespace, ""))

    def list_objects(self, privileges: Privilege) -> tuple[tuple[Namespace, str], ...]:
        """List the tables and views on which all of the privileges are held, but not in their namespaces."""
        return tuple(
            (namespace, name)
            for namespace, name in self.objects
            if privileges in self._find_held(namespace, name) and privileges not in self._find_held(namespace, "")
        )


def complete_privileges(held: Privilege) -> Privilege:
    """Add the right to update for who may insert and delete."""
    return held | Privilege.UPDATE if Privilege.INSERT | Privilege.DELETE in held else held


def explain_grants(held: Iterable[HeldGrant], privilege: Privilege, target: ObjectRef) -> tuple[HeldGrant, ...]:
    """Return the grants that give a privilege on an object, nearest to it first; none if nothing does."""
    here = sorted(
        (grant for grant in held if grant.object is not None and target.is_within(grant.object)),
        key=lambda grant: (-KINDS.index(grant.kind), -len(grant.object.namespace if grant.object else ())),
    )
    if privilege not in complete_privileges(
        reduce(or_, (expand_privilege(grant.privilege) for grant in here), NO_PRIVILEGE)
    ):
        return ()
    direct = tuple(grant for grant in here if privilege in expand_privilege(grant.privilege))
    halves = Privilege.INSERT | Privilege.DELETE
    return direct or tuple(grant for grant in here if halves & grant.privilege)
