"""Authenticate a request: from the header Authorization to a principal."""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from hashlib import sha256
from threading import Lock
from typing import Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from duckicelake.catalog.context.caller import Principal, build_grants, parse_scope
from duckicelake.errors import InvalidTokenError, NotAuthenticatedError
from duckicelake.server.auth.oauth_clients import OAuthClients
from duckicelake.server.auth.oidc import OidcVerifier
from duckicelake.server.auth.tokens import ISSUER, Clock, Token, Tokens, read_issuer

_LRU_ENTRIES: Final = 4096
_CACHE_SECONDS: Final = 60
_FETCH_THREADS: Final = 4


class _PrincipalCache:
    """Principals of tokens that were read lately, by the digest of the header; no token is kept."""

    def __init__(self) -> None:
        self._principals: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        self._lock = Lock()

    def find(self, digest: bytes, now: float) -> Principal | None:
        principal, until = self._principals.get(digest, (None, 0.0))
        return principal if until > now else None

    def remember(self, digest: bytes, principal: Principal, until: float) -> None:
        with self._lock:
            self._principals[digest] = principal, until
            while len(self._principals) > _LRU_ENTRIES:
                self._principals.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Authentication:
    """Authenticate callers by tokens of this server, which its clients get, or of another issuer.

    warehouse: principals have the grants of this one alone; empty is the first.
    """

    clients: OAuthClients
    tokens: Tokens
    clock: Clock
    token_seconds: int = 3600
    provider: OidcVerifier | None = None
    warehouse: str = ""
    _seen: _PrincipalCache = field(default_factory=_PrincipalCache)
    _fetch_limiter: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_FETCH_THREADS))

    def in_warehouse(self, warehouse: str) -> "Authentication":
        """Return the authentication of another warehouse, with the same clients and tokens."""
        return replace(self, warehouse=warehouse, _seen=_PrincipalCache())

    async def principal(self, authorization: str | None) -> Principal:
        """Find the principal of a request. Raises NotAuthenticatedError, InvalidTokenError.

        Raises UnavailableError if its issuer is.
        """
        now, digest = self.clock(), hash_authorization((authorization or "").encode("latin-1"))
        known = self._seen.find(digest, now)
        if known is not None:
            return known
        text = parse_bearer(authorization)
        if text is None:
            raise NotAuthenticatedError("No token: send Authorization: Bearer with a token from POST /v1/oauth/tokens")
        limiter = self.limiter_for(text)
        token = self.read(text) if limiter is None else await run_sync(self.read, text, limiter=limiter)
        principal = Principal(token.subject, build_grants(token.scopes)).in_warehouse(self.warehouse)
        self._seen.remember(digest, principal, min(token.expires, now + _CACHE_SECONDS))
        return principal

    def find_known(self, digest: bytes) -> Principal | None:
        """Find the principal by the digest of its header, if the token was read lately."""
        return self._seen.find(digest, self.clock())

    def limiter_for(self, *texts: str) -> CapacityLimiter | None:
        """Return the limit of threads for these tokens, if another issuer's keys may have to be fetched; else None.

        The other threads answer requests meanwhile.
        """
        ours = self.provider is None or all(read_issuer(text) == ISSUER for text in texts)
        return None if ours else self._fetch_limiter

    def read(self, text: str, *, even_expired: bool = False) -> Token:
        """Read a token of this server or the provider, with scopes still valid; InvalidTokenError, UnavailableError."""
        if self.provider is not None and read_issuer(text) == self.provider.provider.issuer:
            return self._foreign(self.provider.read(text))
        token = self.tokens.read(text, even_expired=even_expired)
        return self._foreign(token) if token.origin is not None else self._own(token)

    def _own(self, token: Token) -> Token:
        """Limit a token to its client's scopes: the client may have been removed or have lost some since."""
        client = self.clients.find(token.subject)
        if client is None:
            raise InvalidTokenError("The token's client is not one of this server any more")
        return Token(token.subject, filter_scopes(client.principal, token.scopes), token.expires, token.logged_in)

    def _foreign(self, token: Token) -> Token:
        if self.provider is None or token.origin != self.provider.provider.issuer:
            raise InvalidTokenError("The token was got for one of an issuer whom this server doesn't trust any more")
        if self.clients.find(token.subject) is not None:
            raise InvalidTokenError(
                "The token's subject has the name of a client of this server, so it would get that client's rights"
            )
        return token


def filter_scopes(principal: Principal, scopes: tuple[str, ...]) -> tuple[str, ...]:
    """Filter the scopes for those that the principal has."""
    return tuple(scope for scope in scopes if principal.holds(parse_scope(scope)))


def parse_bearer(authorization: str | None) -> str | None:
    """Parse the token of a Bearer header; None if it has none."""
    kind, _, text = (authorization or "").partition(" ")
    return text.strip() if kind.lower() == "bearer" and text.strip() else None


def hash_authorization(authorization: bytes) -> bytes:
    """Hash the header Authorization, by which a token that was read is found again."""
    return sha256(authorization).digest()
