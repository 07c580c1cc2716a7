"""Principals as a worker knows them: what was read of them counts until something of them changes.

Each change of the tables makes a new version (migration 0054). A thread reads the version a few times a second while
requests come, over a connection that these don't take: known callers don't wait for a busy pool. When that doesn't
succeed for FRESH_SECONDS, requests ask Postgres themselves: what is revoked ends within that time on all workers.
"""

import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Final, TypeVar
from uuid import UUID

from duckicelake.catalog.context.caller import Principal, build_grants, filter_scopes
from duckicelake.errors import CatalogError
from duckicelake.lake.side_tables import principals
from duckicelake.lake.side_tables.issuers import Issuer, read_issuers
from duckicelake.lake.side_tables.principals import ADMIN_ROLE, PrincipalRow, SecretKind, SecretRow
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction

FRESH_SECONDS: Final = 0.9
"""Seconds for which a version counts as the newest; loads that come again byte for byte follow a little later."""
_POLL_SECONDS: Final = 0.25
_IDLE_SECONDS: Final = 10.0
"""Seconds without a request after which the version isn't read any more."""

_PREFIXES: Final[dict[SecretKind, str]] = {"client-secret": "dlk_sec_", "token": "dlk_pat_"}
_SECRET_BYTES: Final = 32
TOKEN_PATTERN: Final = re.compile(r"dlk_pat_[A-Za-z0-9_-]{43}")
"""A long-lived token; programs that look for leaked secrets find it by its beginning."""
_CLIENT_SECRET_PATTERN: Final = re.compile(r"dlk_sec_[A-Za-z0-9_-]{43}")

T = TypeVar("T")


TrustedIssuer = Issuer
"""An issuer of the table, as the directory lists it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What was found of a caller at one version.

    Attributes:
        row: the registered principal, with those of its scopes that the secret gives; None if it isn't one.
        is_admin: it administers the server, by its memberships or by those of its token's groups.
        has_secrets: the principal logs in with secrets of its own.
        secret_id: of the secret that was shown, or by which the token was got.
        expires: when that secret ends; None: never.
        groups: names of the groups that its token means.

    """

    version: int
    row: PrincipalRow | None = None
    is_admin: bool = False
    has_secrets: bool = False
    secret_id: UUID | None = None
    expires: datetime | None = None
    groups: tuple[str, ...] = ()


class PrincipalDirectory:
    """Looks up principals in the database of the first warehouse."""

    def __init__(self, database: Database, clock: Callable[[], float] = monotonic) -> None:
        self._database = database
        self._clock = clock
        self._version = 0
        self._read_at = self._used_at = float("-inf")
        self._issuers: tuple[int, tuple[Issuer, ...]] = 0, ()
        self._lock = Lock()
        self._refreshing = Lock()
        self._poller: Thread | None = None

    def is_current(self, version: int) -> bool:
        """Return whether nothing has changed since a version, as far as is known of the last FRESH_SECONDS."""
        self._used_at = now = self._clock()
        return version == self._version and now - self._read_at <= FRESH_SECONDS

    def find_named(self, name: str, issuer: str = "", groups: Collection[str] = ()) -> Identity:
        """Find the user or service account of a name. groups: by the issuer's token."""

        def look(cursor: Transaction, version: int) -> Identity:
            row = principals.find_principal(cursor, name)
            named = principals.name_groups(cursor, issuer, groups)
            if row is None or row.kind not in ("user", "service"):
                return _identify(cursor, version, None, named)
            has_secrets = bool(principals.read_secrets(cursor, row.principal_id))
            return _identify(cursor, version, row, named, has_secrets=has_secrets)

        return self._read(look)

    def find_subject(self, issuer: str, subject: str, groups: Collection[str]) -> Identity:
        """Find the principal whom an issuer's tokens name so. groups: by the token."""

        def look(cursor: Transaction, version: int) -> Identity:
            row = principals.find_principal_of_subject(cursor, issuer, subject)
            return _identify(cursor, version, row, principals.name_groups(cursor, issuer, groups))

        return self._read(look)

    def find_secret(self, kind: SecretKind, text: str) -> Identity | None:
        """Find whose a secret is; None also for one that has ended or whose principal is disabled."""

        def look(cursor: Transaction, version: int) -> Identity | None:
            return _identify_by_secret(cursor, version, principals.find_secret(cursor, kind, hash_secret(text)))

        found = self._read(look)
        if found is not None and found.secret_id is not None:
            self._note_use(found.secret_id)
        return found

    def find_secret_by_id(self, secret_id: UUID) -> Identity | None:
        """Find whose a secret is, by which a token was got; None as of `find_secret`."""

        def look(cursor: Transaction, version: int) -> Identity | None:
            return _identify_by_secret(cursor, version, principals.find_secret_by_id(cursor, secret_id))

        return self._read(look)

    def list_issuers(self) -> tuple[Issuer, ...]:
        """List the issuers whose tokens are trusted beside the settings' one."""
        version, known = self._issuers
        if self.is_current(version):
            return known
        self._issuers = self._read(lambda cursor, version: (version, tuple(read_issuers(cursor))))
        return self._issuers[1]

    def list_containers(self, principal_id: int | None, groups: Collection[str]) -> tuple[PrincipalRow, ...]:
        """List the enabled groups and roles that a principal is in, directly or not. groups: those of its token."""

        def look(cursor: Transaction, _: int) -> tuple[PrincipalRow, ...]:
            names = principals.read_containers(cursor, principal_id, groups)
            rows = (principals.find_principal(cursor, name) for name in names)
            return tuple(row for row in rows if row is not None)

        return self._read(look)

    def _read(self, look: Callable[[Transaction, int], T]) -> T:
        """Look something up at one version; UnavailableError if Postgres doesn't answer."""
        begun = self._clock()
        with self._database.reading() as cursor:
            version = principals.read_version(cursor)
            found = look(cursor, version)
        self._note(version, begun)
        self._keep_polling()
        return found

    def _note(self, version: int, read_at: float) -> None:
        with self._lock:
            if read_at > self._read_at:
                self._version, self._read_at = max(version, self._version), read_at

    def _note_use(self, secret_id: UUID) -> None:
        """Note when a secret was last used; a login doesn't fail for it."""
        try:
            with self._database.statement() as cursor:
                principals.note_use(cursor, secret_id)
        except CatalogError:
            pass

    def _keep_polling(self) -> None:
        self._used_at = self._clock()
        with self._refreshing:
            if self._poller is None or not self._poller.is_alive():
                self._poller = Thread(target=self._poll, name="governance-version", daemon=True)
                self._poller.start()

    def _poll(self) -> None:
        while self._clock() - self._used_at < _IDLE_SECONDS:
            sleep(_POLL_SECONDS)
            begun = self._clock()
            try:
                with self._database.watching() as cursor:
                    version = principals.read_version(cursor)
            except CatalogError:
                continue
            self._note(version, begun)


def make_secret(kind: SecretKind) -> str:
    """Make a random secret."""
    return _PREFIXES[kind] + secrets.token_urlsafe(_SECRET_BYTES)


def is_client_secret(text: str) -> bool:
    """Return whether a text has the form of client secrets that `make_secret` makes."""
    return _CLIENT_SECRET_PATTERN.fullmatch(text) is not None


def hash_secret(text: str) -> bytes:
    """Hash a secret as the table has it. It is long and random, so that a slow hash would add nothing."""
    return sha256(text.encode()).digest()


def _identify_by_secret(
    cursor: Transaction, version: int, found: tuple[SecretRow, PrincipalRow] | None
) -> Identity | None:
    if found is None:
        return None
    secret, row = found
    is_over = secret.expires is not None and secret.expires <= datetime.now(secret.expires.tzinfo)
    if is_over or row.is_disabled:
        return None
    if secret.scopes is not None:
        row = replace(row, scopes=filter_scopes(Principal("", build_grants(row.scopes)), secret.scopes))
    is_admin = _is_admin(cursor, row.principal_id, ())
    return Identity(version, row, is_admin, has_secrets=True, secret_id=secret.secret_id, expires=secret.expires)


def _identify(
    cursor: Transaction,
    version: int,
    row: PrincipalRow | None,
    groups: tuple[str, ...],
    *,
    has_secrets: bool = False,
) -> Identity:
    principal_id = None if row is None else row.principal_id
    is_admin = (row is not None or bool(groups)) and _is_admin(cursor, principal_id, groups)
    return Identity(version, row, is_admin, has_secrets, groups=groups)


def _is_admin(cursor: Transaction, principal_id: int | None, groups: Collection[str]) -> bool:
    return ADMIN_ROLE in principals.read_containers(cursor, principal_id, groups)
