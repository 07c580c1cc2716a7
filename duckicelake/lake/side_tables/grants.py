"""Grants: who may do what, by rows of `duckicelake_grant`, whose objects are named by DuckLake's ids.

The rows of all warehouses of a database are in the first one's schema. Those of a warehouse in another database are
in its own lake. Statements run in the schema of a warehouse's own lake.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, Final
from uuid import UUID

from psycopg import sql

from duckicelake.postgres.queries import Transaction, load_queries

_SQL: Final = load_queries("lake", "grants")
FIRST_WAREHOUSE_ID: Final = UUID(int=0)
DEFINER_KEYS: Final = "definer-keys"
"""The option of a warehouse by which loads through definer views give keys."""


@dataclass(frozen=True, slots=True)
class GrantPlace:
    """Where the grants of a warehouse are. schema: of the first warehouse, as Postgres has it; None: the own one."""

    warehouse_id: UUID = FIRST_WAREHOUSE_ID
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class GovernanceVersions:
    """When what a principal may do changes: with principals, grants and policies, or with the names in the lake.

    copied: the state of the registry's principals of which the lake has copies; None: it has none.
    """

    governance: int
    is_on: bool
    schema: int
    has_policies: bool
    copied: UUID | None = None

    @property
    def is_bound(self) -> bool:
        """Whether more than scopes counts: grants that are on, or policies."""
        return self.is_on or self.has_policies


@dataclass(frozen=True, slots=True)
class GrantRow:
    """A grant on a warehouse, namespace, table or view, with today's names, which are None of what is not there."""

    kind: str
    object_id: int
    privilege: str
    grantee_id: int
    schema_name: str | None
    name: str | None


@dataclass(frozen=True, slots=True)
class ListedGrant:
    """A grant for a list."""

    grantee: str
    grantee_kind: str
    kind: str
    object_id: int
    privilege: str
    granted_by: str
    granted_at: datetime
    schema_name: str | None
    name: str | None


ListedKey = tuple[str, str, int, str]
"""By which grants are listed: the name of who has it, the kind and the id of the object, the privilege."""


@dataclass(frozen=True, slots=True)
class GrantTarget:
    """An object of the lake, by DuckLake's id; 0 is the warehouse."""

    kind: str
    object_id: int = 0


@dataclass(frozen=True, slots=True)
class Membership:
    """A principal, and a group or role that it is in; None: it is in none."""

    principal_id: int
    name: str
    container_id: int | None


@dataclass(frozen=True, slots=True)
class Grantee:
    """A principal. scopes: all that its tokens can have."""

    principal_id: int
    kind: str
    scopes: tuple[str, ...]
    is_disabled: bool


@dataclass(frozen=True, slots=True)
class ViewDefiner:
    """A principal whose rights a view lends. definition: the digest of the SQL for which it does."""

    principal_id: int
    name: str
    scopes: tuple[str, ...]
    definition: bytes


@cache
def _place(query: str, schema: str | None) -> str:
    """Let a query name the tables of the first warehouse's schema."""
    prefix = "" if schema is None else f"{sql.Identifier(schema).as_string()}."
    return query.replace("{governance}", prefix.replace("%", "%%"))


def run_governance(cursor: Transaction, query: str, place: GrantPlace, **parameters: Any) -> list[tuple[Any, ...]]:
    """Run a query that names tables of the first warehouse's schema behind `{governance}`."""
    found = cursor.execute(_place(query, place.schema), {"warehouse_id": place.warehouse_id, **parameters})
    return found.fetchall() if found.description else []


def read_first_schema(cursor: Transaction) -> str:
    """Read the schema of the first warehouse, over a connection of that."""
    ((schema,),) = cursor.execute(_SQL.first_schema).fetchall()
    return str(schema)


def read_versions(cursor: Transaction, place: GrantPlace) -> GovernanceVersions:
    ((governance, is_on, schema, has_policies, copied),) = run_governance(cursor, _SQL.versions, place)
    return GovernanceVersions(governance or 0, is_on, schema or 0, has_policies, copied)


def read_held(
    cursor: Transaction, place: GrantPlace, principal_id: int | None, groups: Sequence[str]
) -> list[GrantRow]:
    """Read what a principal holds by itself, by groups, and by all roles that these are in, directly or not.

    groups: more that it is in, by name.
    """
    found = run_governance(cursor, _SQL.held, place, principal_id=principal_id, groups=list(groups))
    return [GrantRow(*row) for row in found]


def read_memberships(
    cursor: Transaction, place: GrantPlace, principal_id: int | None, groups: Sequence[str]
) -> list[Membership]:
    """Read all memberships that lead from a principal to the roles that it is in."""
    found = run_governance(cursor, _SQL.memberships, place, principal_id=principal_id, groups=list(groups))
    return [Membership(*row) for row in found]


def find_grantee(cursor: Transaction, place: GrantPlace, name: str) -> Grantee | None:
    """Find the principal of a name, which is of any kind."""
    found = run_governance(cursor, _SQL.find_principal, place, name=name)
    return Grantee(found[0][0], found[0][1], tuple(found[0][2]), found[0][3]) if found else None


def find_login_id(cursor: Transaction, place: GrantPlace, name: str) -> int | None:
    """Find the user or service of a name whom no issuer's subject stands for."""
    found = run_governance(cursor, _SQL.find_login, place, name=name)
    return found[0][0] if found else None


def find_object(cursor: Transaction, kind: str, schema_name: str, name: str) -> GrantTarget | None:
    """Find a live object of the lake; None if there is none."""
    if kind == "warehouse":
        return GrantTarget(kind)
    ((found,),) = cursor.execute(_SQL.find_object, {"kind": kind, "schema_name": schema_name, "name": name}).fetchall()
    return None if found is None else GrantTarget(kind, found)


def grant(
    cursor: Transaction, place: GrantPlace, grantee: str, target: GrantTarget, privileges: Sequence[str], by: str
) -> list[str]:
    """Give a principal privileges on an object; return those that it hadn't."""
    parameters = {"grantee": grantee, "kind": target.kind, "object_id": target.object_id, "by": by}
    return [name for (name,) in run_governance(cursor, _SQL.grant, place, privileges=list(privileges), **parameters)]


def revoke(
    cursor: Transaction, place: GrantPlace, grantee: str, target: GrantTarget, privileges: Sequence[str]
) -> list[str]:
    """Take privileges on an object from a principal; return those that it had."""
    parameters = {"grantee": grantee, "kind": target.kind, "object_id": target.object_id}
    return [name for (name,) in run_governance(cursor, _SQL.revoke, place, privileges=list(privileges), **parameters)]


def list_grants(
    cursor: Transaction,
    place: GrantPlace,
    grantee: str | None = None,
    target: GrantTarget | None = None,
    after: ListedKey | None = None,
    limit: int | None = None,
) -> list[ListedGrant]:
    """List what is granted in a warehouse: of one principal or all, on one object or all.

    after: the key of the grant behind which the list begins. limit: None: all.
    """
    kind, object_id = (None, None) if target is None else (target.kind, target.object_id)
    names = ("after_grantee", "after_kind", "after_id", "after_privilege")
    keys: dict[str, Any] = dict(zip(names, after or (None,) * len(names), strict=True))
    found = run_governance(
        cursor, _SQL.grants, place, grantee=grantee, kind=kind, object_id=object_id, limit=limit, **keys
    )
    return [ListedGrant(*row) for row in found]


def own_new(cursor: Transaction, place: GrantPlace, owner_id: int, names: Sequence[tuple[str, str, str]]) -> None:
    """Make a principal the owner of what the transaction has made.

    names: for each (schema, name, full name of it as a schema).
    """
    parents, own, whole = (list(texts) for texts in zip(*names, strict=True))
    run_governance(cursor, _SQL.own_new, place, principal_id=owner_id, parents=parents, names=own, whole=whole)


def move_grants(cursor: Transaction, place: GrantPlace, from_id: int, to_id: int) -> None:
    """Let the grants on one namespace be those on another."""
    run_governance(cursor, _SQL.move_grants, place, from_id=from_id, to_id=to_id)


def has_option(cursor: Transaction, place: GrantPlace, name: str) -> bool:
    """Return whether an option of a warehouse is on."""
    ((found,),) = run_governance(cursor, _SQL.has_option, place, name=name)
    return bool(found)


def set_option(cursor: Transaction, place: GrantPlace, name: str, *, is_on: bool) -> None:
    """Turn an option of a warehouse on or off."""
    run_governance(cursor, _SQL.set_option, place, name=name, value="on" if is_on else "off")


def find_definer(cursor: Transaction, place: GrantPlace, view_id: int) -> ViewDefiner | None:
    """Find whose rights a view lends; None also if that principal is disabled."""
    found = run_governance(cursor, _SQL.definer, place, view_id=view_id)
    return ViewDefiner(found[0][0], found[0][1], tuple(found[0][2]), bytes(found[0][3])) if found else None


def record_definer(cursor: Transaction, place: GrantPlace, view_id: int, principal_id: int, definition: bytes) -> None:
    """Let a view lend the rights of a principal, as long as its definition has this digest."""
    run_governance(
        cursor, _SQL.record_definer, place, view_id=view_id, principal_id=principal_id, definition=definition
    )


def forget_definers(cursor: Transaction, place: GrantPlace, view_ids: Sequence[int]) -> None:
    """Let views lend nothing."""
    run_governance(cursor, _SQL.forget_definers, place, view_ids=list(view_ids))


def read_options(cursor: Transaction, place: GrantPlace) -> dict[str, str]:
    """Read the options of a warehouse, without whether grants are on."""
    return dict(run_governance(cursor, _SQL.options, place))


def change_options(cursor: Transaction, place: GrantPlace, changes: Mapping[str, str | None]) -> None:
    """Set options of a warehouse; None: as they are by default."""
    dropped = [name for name, value in changes.items() if value is None]
    if dropped:
        run_governance(cursor, _SQL.drop_options, place, names=dropped)
    for name, value in changes.items():
        if value is not None:
            run_governance(cursor, _SQL.set_option, place, name=name, value=value)


def lock_warehouses(cursor: Transaction, place: GrantPlace) -> None:
    """Let one transaction at a time say where files of warehouses may be."""
    run_governance(cursor, _SQL.lock_warehouses, place)


def qualify(place: GrantPlace, schema: str) -> GrantPlace:
    """Return the place with the first warehouse's schema."""
    return replace(place, schema=schema)
