"""Copies of the registry's principals and memberships, in the lake of a warehouse in another database.

Grants name principals, and change in the transaction of what they are about. So the lake has its own copies of the rows
that its grants name, each with the registry's id.
"""

from dataclasses import dataclass
from typing import Final, cast
from uuid import UUID

from duckicelake.errors import ConflictError, UnavailableError
from duckicelake.postgres.queries import Transaction, load_queries

_SQL: Final = load_queries("lake", "principal_copies")
_WAIT_MILLISECONDS: Final = 5000
"""How long a copy waits for a transaction that changes grants."""


@dataclass(frozen=True, slots=True)
class RegistryClaim:
    """Which warehouse of which registry a lake is. registry: the first warehouse's lake, as its marker names it."""

    registry: str
    warehouse_id: UUID


@dataclass(frozen=True, slots=True)
class CopiedPrincipals:
    """The registry's principals and memberships, as JSON. state: another value with each change of them."""

    state: UUID
    principals: str
    memberships: str


def read_state(cursor: Transaction) -> UUID:
    """Read the state of the registry's principals and memberships."""
    ((state,),) = cursor.execute(_SQL.state).fetchall()
    return cast("UUID", state)


def read_source(cursor: Transaction) -> CopiedPrincipals:
    """Read the principals and memberships of the registry; one statement, so that all are of one state."""
    return CopiedPrincipals(*cursor.execute(_SQL.source).fetchall()[0])


def find_claim(cursor: Transaction) -> RegistryClaim | None:
    """Find which registry the lake belongs to; None: to none."""
    row = cursor.execute(_SQL.owner).fetchone()
    return None if row is None else RegistryClaim(*row[:2])


def lock_claim(cursor: Transaction, claim: RegistryClaim) -> UUID | None:
    """Let one transaction at a time copy; return of which state the copies are, None without any.

    Raises UnavailableError for a lake that isn't the claim's.
    """
    cursor.execute(f"SET LOCAL lock_timeout TO {_WAIT_MILLISECONDS}")
    row = cursor.execute(_SQL.claim).fetchone()
    found = None if row is None else RegistryClaim(*row[:2])
    if row is None or found != claim:
        raise UnavailableError(f"The lake is {_describe(found)}, so it isn't served")
    return cast("UUID | None", row[2])


def claim_lake(cursor: Transaction, claim: RegistryClaim, *, forces: bool = False) -> None:
    """Let a lake be a warehouse of a registry.

    forces: even if it was one of another's. Raises ConflictError for one that is, or that has principals of its own.
    """
    found = find_claim(cursor)
    if found == claim:
        return
    if found is not None and not forces:
        raise ConflictError(f"The lake is {_describe(found)}: let that drop the warehouse and keep the lake")
    ((own,),) = cursor.execute(_SQL.own_governance).fetchall()
    if found is None and own:
        raise ConflictError(
            "The lake has principals, issuers or warehouses of its own, so that it is the first of another server"
        )
    cursor.execute(_SQL.set_claim, {"registry": claim.registry, "warehouse_id": claim.warehouse_id})


def release_lake(cursor: Transaction, claim: RegistryClaim) -> None:
    """Let a lake be no warehouse of a registry any more; its copies go, with their grants."""
    if find_claim(cursor) == claim:
        cursor.execute(_SQL.drop_copies)
        cursor.execute(_SQL.end_claim)


def copy_principals(cursor: Transaction, source: CopiedPrincipals) -> None:
    """Make the lake's principals and memberships those of the registry. The claim is locked."""
    rows = {"principals": source.principals, "memberships": source.memberships}
    ((principals_differ, memberships_differ),) = cursor.execute(_SQL.differs, rows).fetchall()
    if memberships_differ:
        cursor.execute(_SQL.drop_memberships, rows)
    if principals_differ:
        for statement in (_SQL.drop_principals, _SQL.clear_subjects, _SQL.copy_principals):
            cursor.execute(statement, rows)
    if principals_differ or memberships_differ:
        cursor.execute(_SQL.copy_memberships, rows)
    cursor.execute(_SQL.set_copied, {"state": source.state})


def _describe(claim: RegistryClaim | None) -> str:
    if claim is None:
        return "no warehouse of this server"
    return f"warehouse {claim.warehouse_id} of the server of {claim.registry}"
