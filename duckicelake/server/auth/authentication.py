"""Authenticate a request: from the header Authorization to a principal."""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from hashlib import sha256
from threading import Lock
from typing import Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from duckicelake.catalog.authz.directory import PrincipalDirectory
from duckicelake.catalog.context.caller import Principal
from duckicelake.catalog.own_secrets import SecretLifetimes
from duckicelake.errors import NotAuthenticatedError
from duckicelake.rest.outbound import OutboundGuard
from duckicelake.server.auth.identity import IdentifiedToken, TokenReader
from duckicelake.server.auth.oauth_clients import OAuthClients
from duckicelake.server.auth.oidc import OidcVerifier
from duckicelake.server.auth.tokens import Clock, Tokens

_LRU_ENTRIES: Final = 4096
_CACHE_SECONDS: Final = 60
_FETCH_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class _SeenPrincipal:
    """A principal of a token that was read. version: of the directory then; None: it wasn't asked."""

    principal: Principal
    until: float
    version: int | None


class _PrincipalCache:
    """Principals of tokens that were read lately, by the digest of the header; no token is kept."""

    def __init__(self, directory: PrincipalDirectory | None) -> None:
        self._directory = directory
        self._principals: OrderedDict[bytes, _SeenPrincipal] = OrderedDict()
        self._lock = Lock()

    def find(self, digest: bytes, now: float) -> Principal | None:
        """Find a principal that is still what it was; what has changed of principals since counts at once."""
        seen = self._principals.get(digest)
        if seen is None or seen.until <= now:
            return None
        if seen.version is not None and self._directory is not None and not self._directory.is_current(seen.version):
            return None
        return seen.principal

    def remember(self, digest: bytes, seen: _SeenPrincipal) -> Principal:
        """Keep a principal; one that is as it was before stays the same object, by which the fast path knows it."""
        with self._lock:
            before = self._principals.get(digest)
            if before is not None and before.principal == seen.principal:
                seen = replace(seen, principal=before.principal)
            self._principals[digest] = seen
            while len(self._principals) > _LRU_ENTRIES:
                self._principals.popitem(last=False)
        return seen.principal


@dataclass(frozen=True, slots=True)
class Authentication:
    """Authenticate callers by tokens of this server, which its clients get, or of another issuer.

    directory: of the principals that were registered at run time; None: there are none. guard: where the URLs of their
    issuers may lead.
    own_tokens: how long tokens are valid that principals make for themselves.
    warehouse: principals have the grants of this one alone; empty is the first.
    """

    clients: OAuthClients
    tokens: Tokens
    clock: Clock
    token_seconds: int = 3600
    provider: OidcVerifier | None = None
    directory: PrincipalDirectory | None = None
    guard: OutboundGuard | None = None
    own_tokens: SecretLifetimes = field(default_factory=SecretLifetimes)
    warehouse: str = ""
    reader: TokenReader = field(init=False)
    _seen: _PrincipalCache = field(init=False)
    _fetch_limiter: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_FETCH_THREADS))

    def __post_init__(self) -> None:
        reader = TokenReader(self.clients, self.tokens, self.clock, self.provider, self.directory, self.guard)
        object.__setattr__(self, "reader", reader)
        object.__setattr__(self, "_seen", _PrincipalCache(self.directory))

    def in_warehouse(self, warehouse: str) -> "Authentication":
        """Return the authentication of another warehouse, with the same clients and tokens."""
        return replace(self, warehouse=warehouse)

    async def principal(self, authorization: str | None) -> Principal:
        """Find the principal of a request. Raises NotAuthenticatedError, InvalidTokenError.

        Raises UnavailableError if its issuer is, or Postgres for one that is registered there.
        """
        now, digest = self.clock(), hash_authorization((authorization or "").encode("latin-1"))
        known = self._seen.find(digest, now)
        if known is not None:
            return known
        text = parse_bearer(authorization)
        if text is None:
            raise NotAuthenticatedError("No token: send Authorization: Bearer with a token from POST /v1/oauth/tokens")
        limiter = self.limiter_for(text)
        if limiter is None and self.directory is None:
            identified = self.read(text)
        else:
            identified = await run_sync(self.read, text, limiter=limiter)
        principal = identified.principal.in_warehouse(self.warehouse)
        if identified.version is None and self.directory is not None:
            return principal  # Postgres didn't answer; the next request asks again
        until = min(identified.token.expires, now + _CACHE_SECONDS)
        return self._seen.remember(digest, _SeenPrincipal(principal, until, identified.version))

    def find_known(self, digest: bytes) -> Principal | None:
        """Find the principal by the digest of its header, if the token was read lately."""
        return self._seen.find(digest, self.clock())

    def limiter_for(self, *texts: str) -> CapacityLimiter | None:
        """Return the limit of threads for these tokens, if to read them may take long; else None.

        The other threads answer requests meanwhile.
        """
        return self._fetch_limiter if any(map(self.reader.is_slow, texts)) else None

    def read(self, text: str, *, even_expired: bool = False) -> IdentifiedToken:
        """Read a token of this server or an issuer, with scopes still valid; InvalidTokenError, UnavailableError."""
        return self.reader.read(text, even_expired=even_expired)


def parse_bearer(authorization: str | None) -> str | None:
    """Parse the token of a Bearer header; None if it has none."""
    kind, _, text = (authorization or "").partition(" ")
    return text.strip() if kind.lower() == "bearer" and text.strip() else None


def hash_authorization(authorization: bytes) -> bytes:
    """Hash the header Authorization, by which a token that was read is found again."""
    return sha256(authorization).digest()
