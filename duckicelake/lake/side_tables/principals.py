"""Principals, their memberships and their secrets, as rows of the side tables of the first lake."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID, uuid4

from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("lake", "principals")

PrincipalKind = Literal["user", "service", "group", "role"]
SecretKind = Literal["client-secret", "token"]
KINDS: Final[tuple[PrincipalKind, ...]] = ("user", "service", "group", "role")
ADMIN_ROLE: Final = "admin"
"""The role that migration 0054 makes; its members administer the server."""
TRUSTED_ENGINE_ROLE: Final = "trusted-engine"
"""The role that migration 0071 makes; its members apply policies themselves."""
BUILT_IN_ROLES: Final = frozenset({ADMIN_ROLE, TRUSTED_ENGINE_ROLE})
GRANTS_SCOPE: Final = "grants"


@dataclass(frozen=True, slots=True)
class NewPrincipal:
    """A principal to add.

    Attributes:
        issuer: the URL of the issuer whose tokens name the principal as `subject`; None without.
        scopes: all that its tokens can have.

    """

    name: str
    kind: PrincipalKind
    issuer: str | None = None
    subject: str | None = None
    scopes: tuple[str, ...] = (GRANTS_SCOPE,)
    is_disabled: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True)
class PrincipalRow:
    """A user, service account, group or role; see NewPrincipal."""

    principal_id: int
    name: str
    kind: PrincipalKind
    issuer: str | None
    subject: str | None
    scopes: tuple[str, ...]
    is_disabled: bool
    description: str
    created: datetime


@dataclass(frozen=True, slots=True)
class SecretRow:
    """A client secret or long-lived token, without its text, which no table has.

    Attributes:
        scopes: all that it gives of its principal's scopes; None: all of them.
        made_by: the secret that made it, and those that made this one.

    """

    secret_id: UUID
    principal_id: int
    kind: SecretKind
    description: str
    created: datetime
    expires: datetime | None
    last_used: datetime | None
    scopes: tuple[str, ...] | None
    made_by: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A secret to add. hash: the SHA-256 of its text; the others as in SecretRow."""

    principal_id: int
    kind: SecretKind
    hash: bytes
    description: str = ""
    expires: datetime | None = None
    scopes: tuple[str, ...] | None = None
    made_by: tuple[UUID, ...] = ()


def read_version(cursor: Transaction) -> int:
    """Read the version of the tables of governance: whatever was read of them is valid while it is the same."""
    version: int = cursor.execute(_SQL.version).fetchall()[0][0]
    return version


def lock_governance(cursor: Transaction) -> None:
    """Keep others from changing the tables of governance until the transaction ends."""
    cursor.execute(_SQL.lock)


def read_principals(
    cursor: Transaction, kinds: Collection[PrincipalKind] = KINDS, after: str = "", limit: int | None = None
) -> list[PrincipalRow]:
    """Read principals of some kinds whose names are greater than one, by name in code point order. limit: None: all."""
    parameters = {"kinds": list(kinds), "after": after, "limit": limit}
    return [_build_principal(row) for row in cursor.execute(_SQL.principals, parameters).fetchall()]


def find_principal(cursor: Transaction, name: str) -> PrincipalRow | None:
    """Find a principal of any kind by name."""
    row = cursor.execute(_SQL.find, {"name": name}).fetchone()
    return None if row is None else _build_principal(row)


def find_principal_by_id(cursor: Transaction, principal_id: int) -> PrincipalRow | None:
    """Find a principal of any kind by its id."""
    row = cursor.execute(_SQL.find_id, {"principal_id": principal_id}).fetchone()
    return None if row is None else _build_principal(row)


def find_principal_of_subject(cursor: Transaction, issuer: str, subject: str) -> PrincipalRow | None:
    """Find the principal whom tokens of an issuer name so."""
    row = cursor.execute(_SQL.find_subject, {"issuer": issuer, "subject": subject}).fetchone()
    return None if row is None else _build_principal(row)


def name_groups(cursor: Transaction, issuer: str, values: Collection[str]) -> tuple[str, ...]:
    """Name the groups that the values of an issuer's claim mean: those with such a subject, else those called so.

    Values that no group has stay, since decisions from outside may know them.
    """
    if not values:
        return ()
    rows = cursor.execute(_SQL.token_groups, {"issuer": issuer, "groups": list(values)}).fetchall()
    meant, known = {name for name, is_meant in rows if is_meant}, {name for name, _ in rows}
    return tuple(sorted((set(values) - known) | meant))


def insert_principal(cursor: Transaction, new: NewPrincipal) -> PrincipalRow | None:
    """Add a principal; None if its name or its subject is taken."""
    parameters = {
        "name": new.name,
        "kind": new.kind,
        "issuer": new.issuer,
        "subject": new.subject,
        "scopes": list(new.scopes),
        "is_disabled": new.is_disabled,
        "description": new.description,
    }
    row = cursor.execute(_SQL.insert, parameters).fetchone()
    return None if row is None else _build_principal(row)


def update_principal(
    cursor: Transaction, principal_id: int, scopes: Sequence[str], description: str, *, is_disabled: bool
) -> PrincipalRow:
    """Set what of a principal can change."""
    parameters = {
        "principal_id": principal_id,
        "scopes": list(scopes),
        "description": description,
        "is_disabled": is_disabled,
    }
    return _build_principal(cursor.execute(_SQL.update, parameters).fetchall()[0])


def delete_principal(cursor: Transaction, principal_id: int) -> None:
    """Delete a principal with its secrets, memberships and grants."""
    cursor.execute(_SQL.delete, {"principal_id": principal_id})


def read_memberships(cursor: Transaction) -> list[tuple[str, str]]:
    """Read all memberships, as names of container and member."""
    return [(container, member) for container, member in cursor.execute(_SQL.memberships).fetchall()]


def read_members(cursor: Transaction, container_id: int, after: str = "", limit: int | None = None) -> list[str]:
    """Read the names of the direct members of a group or role, as `read_principals` does."""
    parameters = {"container_id": container_id, "after": after, "limit": limit}
    return [name for (name,) in cursor.execute(_SQL.members, parameters).fetchall()]


def read_containers(cursor: Transaction, principal_id: int | None, groups: Collection[str] = ()) -> tuple[str, ...]:
    """Read the names of the enabled groups and roles that a principal is in, directly or not.

    groups: names of groups that it is in by its token.
    """
    parameters = {"principal_id": principal_id, "groups": list(groups)}
    return tuple(name for (name,) in cursor.execute(_SQL.containers, parameters).fetchall())


def add_member(cursor: Transaction, container_id: int, member_id: int) -> None:
    """Put a principal into a group or role; MembershipError if that can't hold it."""
    cursor.execute(_SQL.add_member, {"container_id": container_id, "member_id": member_id})


def remove_member(cursor: Transaction, container_id: int, member_id: int) -> None:
    cursor.execute(_SQL.remove_member, {"container_id": container_id, "member_id": member_id})


def read_secrets(cursor: Transaction, principal_id: int) -> list[SecretRow]:
    """Read the secrets and tokens of a principal, oldest first."""
    return [_build_secret(row) for row in cursor.execute(_SQL.secrets, {"principal_id": principal_id}).fetchall()]


def insert_secret(cursor: Transaction, new: NewSecret) -> SecretRow:
    parameters = {
        "secret_id": uuid4(),
        "principal_id": new.principal_id,
        "kind": new.kind,
        "hash": new.hash,
        "description": new.description,
        "expires": new.expires,
        "scopes": None if new.scopes is None else list(new.scopes),
        "made_by": list(new.made_by),
    }
    return _build_secret(cursor.execute(_SQL.insert_secret, parameters).fetchall()[0])


def end_other_secrets(cursor: Transaction, kept: SecretRow, expires: datetime) -> None:
    """Let the principal's other secrets of the same kind end at a time, unless they end before."""
    parameters = {
        "principal_id": kept.principal_id,
        "kind": kept.kind,
        "secret_id": kept.secret_id,
        "expires": expires,
    }
    cursor.execute(_SQL.set_expiry, parameters)


def end_secret(cursor: Transaction, secret_id: UUID, expires: datetime) -> None:
    """Let a secret end at a time, unless it ends before."""
    cursor.execute(_SQL.end_secret, {"secret_id": secret_id, "expires": expires})


def delete_ended_secrets(cursor: Transaction, principal_id: int, now: datetime) -> None:
    """Delete the secrets of a principal that have ended."""
    cursor.execute(_SQL.delete_ended, {"principal_id": principal_id, "now": now})


def delete_secret(cursor: Transaction, principal_id: int, secret_id: UUID) -> bool:
    """Delete a secret of a principal, and those that were made with it; whether there was one."""
    parameters = {"principal_id": principal_id, "secret_id": secret_id}
    return cursor.execute(_SQL.delete_secret, parameters).fetchone() is not None


def find_secret(cursor: Transaction, kind: SecretKind, digest: bytes) -> tuple[SecretRow, PrincipalRow] | None:
    """Find a secret by its SHA-256, even an expired or disabled principal's, and whose it is."""
    row = cursor.execute(_SQL.find_secret, {"kind": kind, "hash": digest}).fetchone()
    return None if row is None else (_build_secret(row[:9]), _build_principal(row[9:]))


def find_secret_by_id(cursor: Transaction, secret_id: UUID) -> tuple[SecretRow, PrincipalRow] | None:
    """Find a secret as `find_secret` does, by its id."""
    row = cursor.execute(_SQL.find_secret_by_id, {"secret_id": secret_id}).fetchone()
    return None if row is None else (_build_secret(row[:9]), _build_principal(row[9:]))


def has_any_secret(cursor: Transaction) -> bool:
    """Return whether any principal has a secret or token, a valid one or not."""
    found: bool = cursor.execute(_SQL.any_secret).fetchall()[0][0]
    return found


def note_use(cursor: Transaction, secret_id: UUID) -> None:
    """Note when a secret was last used, to the minute."""
    cursor.execute(_SQL.note_use, {"secret_id": secret_id})


def _build_secret(row: Sequence[Any]) -> SecretRow:
    """Build the secret from a row; its scopes and makers are lists there."""
    scopes, made_by = row[7:]
    values = (*row[:7], None if scopes is None else tuple(scopes), tuple(made_by))
    return SecretRow(*values)


def _build_principal(row: Sequence[object]) -> PrincipalRow:
    """Build the principal from a row; its scopes are a list there."""
    values = list(row)
    values[5] = tuple(values[5])  # type: ignore[arg-type]
    return PrincipalRow(*values)  # type: ignore[arg-type]
