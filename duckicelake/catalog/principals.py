"""Principals of the server: users, service accounts, groups and roles, who is in which, and their secrets.

All of it is in the lake of the first warehouse, for all warehouses. Who may call this is decided before.
"""

import re
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from duckicelake.catalog.authz.directory import hash_secret, make_secret
from duckicelake.catalog.context.caller import Principal, build_grants, filter_scopes
from duckicelake.catalog.context.page import EVERY_ITEM, ListPage, PageRequest, cut_page, slice_page
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.issuers import URL_PATTERN
from duckicelake.errors import AlreadyExistsError, ConflictError, InvalidRequestError, NotFoundError, StartupError
from duckicelake.lake.side_tables import principals
from duckicelake.lake.side_tables import principals as store
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.side_tables.issuers import read_issuers
from duckicelake.lake.side_tables.principals import (
    ADMIN_ROLE,
    BUILT_IN_ROLES,
    GRANTS_SCOPE,
    KINDS,
    NewPrincipal,
    NewSecret,
    PrincipalKind,
    PrincipalRow,
    SecretKind,
    SecretRow,
    find_principal,
)
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction

MAX_NAME_CHARS: Final = 128
MAX_SECRETS: Final = 100
"""Secrets and tokens of one principal; what is not used any more is to be revoked."""
_LOGIN_NAME: Final = re.compile(r"[\x21-\x2b\x2d-\x39\x3b-\x7b\x7d\x7e]+")
_CONTAINERS: Final = ("group", "role")
_PATH_STEPS: Final = (".", "..")
PrincipalRegistration = NewPrincipal
RegisteredPrincipal = PrincipalRow
RegisteredSecret = SecretRow


@dataclass(frozen=True, slots=True)
class PrincipalChange:
    """What of a principal is to change; None: it stays."""

    scopes: tuple[str, ...] | None = None
    description: str | None = None
    is_disabled: bool | None = None


@dataclass(frozen=True, slots=True)
class SecretRequest:
    """A secret to make.

    Attributes:
        expires_in: how long it is valid; None: until it is revoked.
        ends_others_in: when the other secrets of the kind end, at the latest; None: not by this.
        scopes: all that it gives of its principal's scopes; None: all of them.

    """

    kind: SecretKind
    description: str = ""
    expires_in: timedelta | None = None
    ends_others_in: timedelta | None = None
    scopes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class MadeSecret:
    """A new secret. text: None in the answer to a repeated request, because it is kept nowhere."""

    row: SecretRow
    text: str | None


def list_principals(
    services: Services, kinds: Collection[PrincipalKind] = KINDS, page: PageRequest = EVERY_ITEM
) -> ListPage[PrincipalRow]:
    """List the principals of some kinds, by name."""
    with services.database.reading() as cursor:
        found = store.read_principals(cursor, kinds, page.after, page.fetch)
    return cut_page(found, page, lambda row: row.name)


def load_principal(services: Services, name: str) -> PrincipalRow:
    """Find a principal; NotFoundError."""
    with services.database.reading() as cursor:
        return find_row(cursor, name)


def list_memberships(services: Services) -> list[tuple[str, str]]:
    """List all memberships, as names of group or role and member."""
    with services.database.reading() as cursor:
        return store.read_memberships(cursor)


def list_members(services: Services, name: str, page: PageRequest = EVERY_ITEM) -> ListPage[str]:
    """List the names of the direct members of a group or role; NotFoundError."""
    with services.database.reading() as cursor:
        found = store.read_members(cursor, find_row(cursor, name).principal_id, page.after, page.fetch)
    return cut_page(found, page, lambda member: member)


def create_principal(services: Services, new: NewPrincipal, settings_issuer: str | None = None) -> PrincipalRow:
    """Register a principal. Raises AlreadyExistsError, InvalidRequestError. settings_issuer: that of the settings."""
    check_new(new, settings_issuer)
    return services.run_once(lambda: _create(services, new), lambda name: load_principal(services, name))


def change_principal(services: Services, name: str, change: PrincipalChange) -> PrincipalRow:
    """Change a principal; its tokens lose what it loses within a second. Raises NotFoundError, InvalidRequestError."""
    with services.database.transaction() as cursor:
        row = find_row(cursor, name)
        if change.is_disabled and name == ADMIN_ROLE:
            raise ConflictError(f"The role {ADMIN_ROLE} can't be disabled")
        scopes = row.scopes if change.scopes is None else change.scopes
        if change.scopes is not None:
            check_scopes(row.kind, scopes)
        description = row.description if change.description is None else change.description
        is_disabled = row.is_disabled if change.is_disabled is None else change.is_disabled
        changed = store.update_principal(cursor, row.principal_id, scopes, description, is_disabled=is_disabled)
        _settle(services, cursor, row, {"scopes": list(scopes), "is-disabled": is_disabled})
    return changed


def drop_principal(services: Services, name: str) -> None:
    """Drop a principal with its secrets, memberships and grants. Raises NotFoundError, ConflictError."""
    with services.database.transaction() as cursor:
        row = find_row(cursor, name)
        if name in BUILT_IN_ROLES:
            raise ConflictError(f"The role {name} can't be dropped: the server made it")
        store.delete_principal(cursor, row.principal_id)
        _settle(services, cursor, row)


def add_member(services: Services, container: str, member: str) -> None:
    """Put a principal into a group or role. Raises NotFoundError, and InvalidRequestError if that can't hold it."""

    def add() -> None:
        with services.database.transaction() as cursor:
            outer, inner = _find_pair(cursor, container, member)
            store.add_member(cursor, outer.principal_id, inner.principal_id)
            _settle(services, cursor, outer, {"member": member})

    services.run_once(add, lambda _: None)


def remove_member(services: Services, container: str, member: str) -> None:
    """Take a principal out of a group or role, if it is in it; NotFoundError."""
    with services.database.transaction() as cursor:
        outer, inner = _find_pair(cursor, container, member)
        store.remove_member(cursor, outer.principal_id, inner.principal_id)
        _settle(services, cursor, outer, {"member": member})


def list_secrets(services: Services, name: str, page: PageRequest = EVERY_ITEM) -> ListPage[SecretRow]:
    """List the secrets and tokens of a principal, oldest first, without what they are; NotFoundError."""
    with services.database.reading() as cursor:
        found = store.read_secrets(cursor, find_row(cursor, name).principal_id)
    return slice_page(found, page, order_secret)


def order_secret(row: SecretRow) -> str:
    """Return the key by which secrets are listed."""
    return f"{row.created.astimezone(UTC).isoformat(timespec='microseconds')} {row.secret_id}"


def create_secret(
    services: Services, name: str, wish: SecretRequest, is_in_settings: Callable[[str], bool]
) -> MadeSecret:
    """Make a secret or token of a principal; its text is given out this once.

    is_in_settings: whether the settings have a client of a name; that one has its secret there.

    Raises NotFoundError, InvalidRequestError, ConflictError.
    """
    if is_in_settings(name):
        raise ConflictError(f"{name} is a client of the server's settings: its secret is there")
    for what, duration in (("expires-in", wish.expires_in), ("end-others-in", wish.ends_others_in)):
        if duration is not None and duration < timedelta(0):
            raise InvalidRequestError(f"Invalid {what}: expected seconds from now, not a time before")
    return services.run_once(
        lambda: _create_secret(services, name, wish),
        lambda secret_id: MadeSecret(_find_secret(services, name, UUID(secret_id)), None),
    )


def revoke_secret(services: Services, name: str, secret_id: UUID) -> None:
    """Revoke a secret or token: what was got by it ends within a second. Raises NotFoundError."""
    with services.database.transaction() as cursor:
        row = find_row(cursor, name)
        if not store.delete_secret(cursor, row.principal_id, secret_id):
            raise NotFoundError(f"{name} has no secret {secret_id}")
        _settle(services, cursor, row, {"secret-id": str(secret_id)})


def find_row(cursor: Transaction, name: str) -> PrincipalRow:
    """Find a principal; NotFoundError."""
    row = store.find_principal(cursor, name) if name.isprintable() else None
    if row is None:
        raise NotFoundError(f"No such principal: {name}")
    return row


def check_new(new: NewPrincipal, settings_issuer: str | None = None) -> None:
    """Raise InvalidRequestError for a principal that can't be.

    settings_issuer: may be another text than a URL; the issuers of the table are URLs.
    """
    check_name(new.name)
    if new.kind == "service" and not _LOGIN_NAME.fullmatch(new.name):
        raise InvalidRequestError(
            f"Invalid name {new.name!r} of a service account: expected ASCII without spaces, ',', ':' and '|'"
        )
    if (new.issuer is None) != (new.subject is None):
        raise InvalidRequestError("issuer and subject belong together: give both or neither")
    if new.issuer is not None and new.issuer != settings_issuer and not URL_PATTERN.fullmatch(new.issuer):
        own = "" if settings_issuer is None else f", or {settings_issuer}, the issuer of the settings"
        raise InvalidRequestError(
            f"Invalid issuer {new.issuer!r}: expected its URL as the iss of its tokens has it, such as "
            f"https://id.example{own}"
        )
    if new.subject is not None and new.kind == "role":
        raise InvalidRequestError("A role has no subject: users, service accounts and groups have")
    check_scopes(new.kind, new.scopes)


def check_name(name: str) -> None:
    """Raise InvalidRequestError for a name that no principal may have."""
    is_plain = name.isprintable() and name == name.strip() and unicodedata.is_normalized("NFC", name)
    if not is_plain or not 0 < len(name) <= MAX_NAME_CHARS or ":" in name or name in _PATH_STEPS:
        raise InvalidRequestError(
            f"Invalid name {name!r}: expected up to {MAX_NAME_CHARS} printable characters in Unicode's form NFC, "
            "without ':' and without spaces at its ends, and not '.' or '..', which clients take out of paths"
        )


def check_scopes(kind: PrincipalKind, scopes: Collection[str]) -> None:
    """Raise InvalidRequestError for what isn't a scope, and for scopes of groups and roles."""
    build_grants(scopes)
    if kind in _CONTAINERS and set(scopes) - {store.GRANTS_SCOPE}:
        raise InvalidRequestError(f"A {kind} has no scopes: those who log in have")


def _create(services: Services, new: NewPrincipal) -> PrincipalRow:
    with services.database.transaction() as cursor:
        row = store.insert_principal(cursor, new)
        if row is None:
            if store.find_principal(cursor, new.name) is not None:
                raise AlreadyExistsError(f"A user, service account, group or role is called {new.name} already")
            raise AlreadyExistsError(f"Another principal is {new.subject} of {new.issuer} already")
        _settle(services, cursor, row, {"kind": new.kind, "scopes": list(new.scopes)}, row.name)
    return row


def _create_secret(services: Services, name: str, wish: SecretRequest) -> MadeSecret:
    text, now = make_secret(wish.kind), datetime.now(UTC)
    with services.database.transaction() as cursor:
        store.lock_governance(cursor)
        row = find_row(cursor, name)
        if wish.scopes is not None:
            check_narrower(wish.scopes, row.scopes, f"{name} has")
        expires = None if wish.expires_in is None else now + wish.expires_in
        new = NewSecret(row.principal_id, wish.kind, hash_secret(text), wish.description, expires, wish.scopes)
        made = add_secret(cursor, row, new, now)
        if wish.ends_others_in is not None:
            store.end_other_secrets(cursor, made, now + wish.ends_others_in)
        _settle(services, cursor, row, {"secret-id": str(made.secret_id), "kind": made.kind}, str(made.secret_id))
    return MadeSecret(made, text)


def add_secret(cursor: Transaction, row: PrincipalRow, new: NewSecret, now: datetime) -> SecretRow:
    """Add a secret to a principal, which has MAX_SECRETS at most; those that have ended make room.

    Raises InvalidRequestError if the principal can't have one of the kind, and ConflictError if it has too many.
    """
    if row.kind in _CONTAINERS or (row.kind == "user" and new.kind == "client-secret"):
        raise InvalidRequestError(f"A {row.kind} has no {new.kind}: service accounts have both, users have tokens")
    if len(store.read_secrets(cursor, row.principal_id)) >= MAX_SECRETS:
        store.delete_ended_secrets(cursor, row.principal_id, now)
        if len(store.read_secrets(cursor, row.principal_id)) >= MAX_SECRETS:
            raise ConflictError(f"{row.name} has {MAX_SECRETS} secrets: revoke those that are not used any more")
    return store.insert_secret(cursor, new)


def check_narrower(scopes: Collection[str], allowed: Collection[str], whose: str) -> None:
    """Raise InvalidRequestError for a scope that isn't one, or gives more than those allowed.

    whose: the beginning of a sentence that goes on with what is allowed.
    """
    build_grants(scopes)
    held = set(filter_scopes(Principal("", build_grants(allowed)), scopes))
    more = [scope for scope in scopes if scope not in held]
    if more:
        hint = f"; grants:{more[0]} is what grants give of it" if GRANTS_SCOPE in allowed and ":" in more[0] else ""
        raise InvalidRequestError(f"Invalid scope {more[0]}: {whose} {' '.join(allowed) or 'no scope'} alone{hint}")


def _find_secret(services: Services, name: str, secret_id: UUID) -> SecretRow:
    found = next((row for row in list_secrets(services, name).items if row.secret_id == secret_id), None)
    if found is None:
        raise NotFoundError(f"{name} has no secret {secret_id} any more")
    return found


def _find_pair(cursor: Transaction, container: str, member: str) -> tuple[PrincipalRow, PrincipalRow]:
    outer, inner = find_row(cursor, container), find_row(cursor, member)
    if outer.kind not in _CONTAINERS:
        raise InvalidRequestError(f"{container} is a {outer.kind}, which has no members: groups and roles have")
    return outer, inner


def _settle(
    services: Services, cursor: Transaction, row: PrincipalRow, detail: dict[str, Any] | None = None, result: Any = None
) -> None:
    services.settle(cursor, [AuditedResource(f"{row.kind} {row.name}", detail=detail)], result)


FIRST_ADMIN: Final = "root"


def has_registered_logins(database: Database) -> bool:
    """Return whether clients can log in whom the database knows: by a secret, a token or an issuer."""
    with database.reading() as cursor:
        return bool(read_issuers(cursor)) or principals.has_any_secret(cursor)


def make_first_admin(database: Database, write_secret: Callable[[str], None]) -> bool:
    """Make the service account `root`, which administers the server, and hand out its credential; return whether.

    It isn't made where there are issuers, users or service accounts. Of several callers at once, one makes it.

    write_secret: gets the credential `root:secret` before the transaction is committed.
    """
    with database.transaction() as cursor:
        principals.lock_governance(cursor)
        if read_issuers(cursor) or principals.read_principals(cursor, ("user", "service")):
            return False
        made = principals.insert_principal(
            cursor, NewPrincipal(FIRST_ADMIN, "service", scopes=("*",), description="the first admin")
        )
        if made is None:
            raise AlreadyExistsError(f"A group or role is called {FIRST_ADMIN}: drop it first")
        secret = make_secret("client-secret")
        principals.insert_secret(
            cursor, NewSecret(made.principal_id, "client-secret", hash_secret(secret), "bootstrap")
        )
        principals.add_member(cursor, _find_admin_role(cursor), made.principal_id)
        write_secret(f"{FIRST_ADMIN}:{secret}")
    return True


def _find_admin_role(cursor: Transaction) -> int:
    role = find_principal(cursor, ADMIN_ROLE)
    if role is None:
        raise StartupError(f"The lake has no role {ADMIN_ROLE}: its side tables are damaged; see duckicelake doctor")
    return role.principal_id
