"""Authenticate a request: from the header Authorization to a principal."""

from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from duckicelake.catalog.context.caller import ANY_PRINCIPAL, Principal, build_grants, parse_scope
from duckicelake.errors import InvalidToken, NotAuthenticated
from duckicelake.server.auth.oauth_clients import OAuthClients
from duckicelake.server.auth.oidc import OidcVerifier
from duckicelake.server.auth.tokens import ISSUER, Clock, Token, Tokens, read_issuer

_LRU_ENTRIES: Final = 4096
_CACHE_SECONDS: Final = 60
_FETCH_THREADS: Final = 4


class _PrincipalCache:
    """Whose tokens were read lately, by digest of the header that brought them: nobody's token is kept."""

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
    """How callers prove who they are: with tokens of this server, got by its clients, or of another issuer."""

    clients: OAuthClients
    tokens: Tokens
    clock: Clock
    token_seconds: int = 3600
    provider: OidcVerifier | None = None
    _seen: _PrincipalCache = field(default_factory=_PrincipalCache)
    _fetch_limiter: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_FETCH_THREADS))

    async def principal(self, authorization: str | None) -> Principal:
        """Who asks. Raises NotAuthenticated, InvalidToken, and Unavailable if the token's issuer can't be asked."""
        now, digest = self.clock(), hash_authorization((authorization or "").encode("latin-1"))
        known = self._seen.find(digest, now)
        if known is not None:
            return known
        text = parse_bearer(authorization)
        if text is None:
            raise NotAuthenticated(
                "Nobody says who asks: send Authorization: Bearer with a token, which POST /v1/oauth/tokens gives"
            )
        limiter = self.limiter_for(text)
        token = self.read(text) if limiter is None else await run_sync(self.read, text, limiter=limiter)
        principal = Principal(token.subject, build_grants(token.scopes))
        self._seen.remember(digest, principal, min(token.expires, now + _CACHE_SECONDS))
        return principal

    def known(self, digest: bytes) -> Principal | None:
        """The principal of a token that was read lately, by the token's `hash_authorization`; see `principal`."""
        return self._seen.find(digest, self.clock())

    def limiter_for(self, *texts: str) -> CapacityLimiter | None:
        """The few threads that may read these tokens, if another issuer's keys may have to be fetched for one.

        The other threads answer requests meanwhile. None: any thread may.
        """
        ours = self.provider is None or all(read_issuer(text) == ISSUER for text in texts)
        return None if ours else self._fetch_limiter

    def read(self, text: str, *, even_expired: bool = False) -> Token:
        """What a token of ours or the provider's says, with the scopes that count still; InvalidToken, Unavailable."""
        if self.provider is not None and read_issuer(text) == self.provider.provider.issuer:
            return self._foreign(self.provider.read(text))
        token = self.tokens.read(text, even_expired=even_expired)
        return self._foreign(token) if token.origin is not None else self._own(token)

    def _own(self, token: Token) -> Token:
        """Tokens outlive a restart, in which a client may have been removed or have lost scopes."""
        client = self.clients.find(token.subject)
        if client is None:
            raise InvalidToken("The token's client is not one of this server any more")
        return Token(token.subject, filter_scopes(client.principal, token.scopes), token.expires, token.logged_in)

    def _foreign(self, token: Token) -> Token:
        if self.provider is None or token.origin != self.provider.provider.issuer:
            raise InvalidToken("The token was got for one of an issuer whom this server doesn't trust any more")
        if self.clients.find(token.subject) is not None:
            raise InvalidToken(
                "The token's subject has the name of a client of this server, and the two can't be told apart"
            )
        return token


def filter_scopes(principal: Principal, scopes: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the scopes that the principal has."""
    return tuple(scope for scope in scopes if principal.holds(parse_scope(scope)))


def parse_bearer(authorization: str | None) -> str | None:
    """The token of the header; None if it brings none."""
    kind, _, text = (authorization or "").partition(" ")
    return text.strip() if kind.lower() == "bearer" and text.strip() else None


def hash_authorization(authorization: bytes) -> bytes:
    """Of the header, by which a token that was read is found again."""
    return sha256(authorization).digest()


async def authenticate(authentication: Authentication | None, authorization: str | None) -> Principal:
    """Who asks; anybody where authentication is off."""
    return ANY_PRINCIPAL if authentication is None else await authentication.principal(authorization)
