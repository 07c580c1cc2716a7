"""Secrets that a principal makes for itself: tokens and client secrets that may no more than what it logged in with.

A login sees and changes the secrets of its principal that may no more than itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from duckicelake.catalog.authz.directory import hash_secret, make_secret
from duckicelake.catalog.context.caller import Principal, build_grants, filter_scopes
from duckicelake.catalog.context.page import ListPage, PageRequest, slice_page
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.principals import MadeSecret, SecretRequest, add_secret, check_narrower, order_secret
from duckicelake.errors import ConflictError, ForbiddenError, InvalidRequestError, InvalidTokenError, NotFoundError
from duckicelake.lake.side_tables import principals as store
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.side_tables.principals import NewSecret, PrincipalRow, SecretRow
from duckicelake.postgres.queries import Transaction


@dataclass(frozen=True, slots=True)
class OwnLogin:
    """What a caller has shown of itself.

    Attributes:
        scopes: all that its token may, in all warehouses.
        secret_id: the secret that it logged in with; None for who logged in with an issuer.

    """

    principal_id: int
    scopes: tuple[str, ...]
    secret_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class SecretLifetimes:
    """How long secrets of one's own are valid. longest: zero where there are to be none."""

    usual: timedelta = timedelta(days=30)
    longest: timedelta = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class OwnSecrets:
    """Makes, lists, rotates and revokes the secrets of one login.

    is_in_settings: whether the settings have a client of a name; that one has its secret there.
    """

    services: Services
    login: OwnLogin
    lifetimes: SecretLifetimes
    is_in_settings: Callable[[str], bool]

    def list_valid(self, page: PageRequest) -> ListPage[SecretRow]:
        """List those that haven't ended, oldest first, without what they are."""
        now = datetime.now(UTC)
        with self.services.database.reading() as cursor:
            row = self._find_principal(cursor)
            found = store.read_secrets(cursor, row.principal_id)
        valid = (secret for secret in found if self._covers(row, secret) and not _has_ended(secret, now))
        return slice_page(valid, page, order_secret)

    def create(self, wish: SecretRequest) -> MadeSecret:
        """Make a secret. Raises InvalidRequestError for more than the login may, ForbiddenError, ConflictError."""
        return self.services.run_once(lambda: self._create(wish), self._find_made)

    def rotate(self, secret_id: UUID, expires_in: timedelta | None, ends_in: timedelta) -> MadeSecret:
        """Make a secret of the same kind and scopes, and let the old one end. Raises NotFoundError and as `create`."""
        return self.services.run_once(lambda: self._rotate(secret_id, expires_in, ends_in), self._find_made)

    def revoke(self, secret_id: UUID) -> None:
        """Revoke a secret, and all that were made with it. Raises NotFoundError."""
        with self.services.database.transaction() as cursor:
            row = self._find_principal(cursor)
            self._find(cursor, row, secret_id)
            store.delete_secret(cursor, row.principal_id, secret_id)
            self._settle(cursor, row, {"secret-id": str(secret_id)})

    def _create(self, wish: SecretRequest) -> MadeSecret:
        with self.services.database.transaction() as cursor:
            store.lock_governance(cursor)
            row = self._find_principal(cursor)
            given = filter_scopes(Principal("", build_grants(row.scopes)), self.login.scopes)
            if wish.scopes is not None:
                check_narrower(wish.scopes, self.login.scopes, "the login has")
                check_narrower(wish.scopes, row.scopes, f"{row.name} has")
            scopes = given if wish.scopes is None else wish.scopes
            made = self._add(cursor, row, wish, scopes)
            self._settle(cursor, row, {"secret-id": str(made.row.secret_id), "scopes": list(scopes)}, made)
        return made

    def _rotate(self, secret_id: UUID, expires_in: timedelta | None, ends_in: timedelta) -> MadeSecret:
        with self.services.database.transaction() as cursor:
            store.lock_governance(cursor)
            row = self._find_principal(cursor)
            old, now = self._find(cursor, row, secret_id), datetime.now(UTC)
            if _has_ended(old, now):
                raise ConflictError(f"Secret {secret_id} has ended: make a new one")
            wish = SecretRequest(old.kind, old.description, expires_in)
            made = self._add(cursor, row, wish, row.scopes if old.scopes is None else old.scopes)
            store.end_secret(cursor, secret_id, now + ends_in)
            detail = {"secret-id": str(made.row.secret_id), "rotated": str(secret_id)}
            self._settle(cursor, row, detail, made)
        return made

    def _add(self, cursor: Transaction, row: PrincipalRow, wish: SecretRequest, scopes: tuple[str, ...]) -> MadeSecret:
        """Add a secret that ends no later than what the login was made with, and is revoked with it."""
        if self.is_in_settings(row.name):
            raise ConflictError(f"{row.name} is a client of the server's settings: its secret is there")
        if not scopes:
            raise ForbiddenError(f"The login has none of the scopes of {row.name}, {' '.join(row.scopes)}: log in anew")
        now, maker = datetime.now(UTC), self._find_maker(cursor)
        expires = self._choose_end(now, wish.expires_in, maker)
        known = {secret.secret_id for secret in store.read_secrets(cursor, row.principal_id)}
        made_by = () if maker is None else (*(one for one in maker.made_by if one in known), maker.secret_id)
        text = make_secret(wish.kind)
        new = NewSecret(row.principal_id, wish.kind, hash_secret(text), wish.description, expires, scopes, made_by)
        return MadeSecret(add_secret(cursor, row, new, now), text)

    def _choose_end(self, now: datetime, asked: timedelta | None, maker: SecretRow | None) -> datetime:
        longest = self.lifetimes.longest
        if not longest:
            raise ForbiddenError("This server lets no one make secrets for themselves: ask an administrator for one")
        if asked is not None and asked > longest:
            raise InvalidRequestError(
                f"Invalid expires-in {asked.total_seconds():.0f}: expected at most {longest.total_seconds():.0f} "
                "(the server's DUCKICELAKE_OWN_TOKEN_MAX_SECONDS)"
            )
        expires = now + (min(self.lifetimes.usual, longest) if asked is None else asked)
        limit = None if maker is None else maker.expires
        if limit is None or expires <= limit:
            return expires
        if asked is not None:
            raise InvalidRequestError(
                f"Invalid expires-in {asked.total_seconds():.0f}: what it is made with ends at {limit.isoformat()}, "
                "and it can't outlive that"
            )
        return limit

    def _find_maker(self, cursor: Transaction) -> SecretRow | None:
        if self.login.secret_id is None:
            return None
        found = store.find_secret_by_id(cursor, self.login.secret_id)
        if found is None or _has_ended(found[0], datetime.now(UTC)):
            raise InvalidTokenError("The secret of the caller's login has ended; log in with another")
        return found[0]

    def _find_principal(self, cursor: Transaction) -> PrincipalRow:
        row = store.find_principal_by_id(cursor, self.login.principal_id)
        if row is None or row.is_disabled:
            raise InvalidTokenError("The caller's principal has been dropped or disabled")
        return row

    def _find(self, cursor: Transaction, row: PrincipalRow, secret_id: UUID) -> SecretRow:
        """Find a secret that the login may change; NotFoundError, the same for others."""
        found = store.find_secret_by_id(cursor, secret_id)
        if found is None or found[1].principal_id != row.principal_id or not self._covers(row, found[0]):
            raise NotFoundError(f"{row.name} has no secret {secret_id} that may no more than this login")
        return found[0]

    def _find_made(self, secret_id: str) -> MadeSecret:
        with self.services.database.reading() as cursor:
            return MadeSecret(self._find(cursor, self._find_principal(cursor), UUID(secret_id)), None)

    def _covers(self, row: PrincipalRow, secret: SecretRow) -> bool:
        """Return whether a secret may no more than the login."""
        allowed = Principal("", build_grants(row.scopes))
        scopes = row.scopes if secret.scopes is None else filter_scopes(allowed, secret.scopes)
        return len(filter_scopes(Principal("", build_grants(self.login.scopes)), scopes)) == len(scopes)

    def _settle(
        self, cursor: Transaction, row: PrincipalRow, detail: dict[str, Any], made: MadeSecret | None = None
    ) -> None:
        result = None if made is None else str(made.row.secret_id)
        self.services.settle(cursor, [AuditedResource(f"{row.kind} {row.name}", detail=detail)], result)


def _has_ended(secret: SecretRow, now: datetime) -> bool:
    return secret.expires is not None and secret.expires <= now
