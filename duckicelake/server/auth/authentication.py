"""Authenticate a request: from the header Authorization to a principal."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from threading import Lock
from typing import Final, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from duckicelake.catalog.authz.directory import TOKEN_PATTERN, Identity, PrincipalDirectory, TrustedIssuer
from duckicelake.catalog.context.caller import Principal, build_grants, filter_scopes
from duckicelake.catalog.context.secret_keys import SecretKeys
from duckicelake.catalog.own_secrets import SecretLifetimes
from duckicelake.errors import InvalidTokenError, NotAuthenticatedError, UnavailableError
from duckicelake.rest.outbound import OutboundGuard
from duckicelake.server.auth.oauth_clients import OAuthClients
from duckicelake.server.auth.oidc import OidcProvider, OidcVerifier, WebClient
from duckicelake.server.auth.tokens import ISSUER, Clock, Token, Tokens, read_issuer

T = TypeVar("T")
_NO_EXPIRY: Final = 2**53
"""Seconds since the epoch at which a token without an end ends."""


@dataclass(frozen=True, slots=True)
class IdentifiedToken:
    """A token, and who it is for. version: of the directory at which that was found; None: it wasn't asked."""

    token: Token
    principal: Principal
    version: int | None = None


class IssuerVerifiers:
    """The verifiers of the issuers of the table, each with the keys that it has fetched."""

    def __init__(self, clock: Clock, guard: OutboundGuard | None) -> None:
        self._clock = clock
        self._guard = guard
        self._verifiers: dict[TrustedIssuer, OidcVerifier] = {}
        self._lock = Lock()

    def get(self, issuer: TrustedIssuer) -> OidcVerifier:
        """Return the verifier of an issuer; one that has changed gets a new one."""
        with self._lock:
            if issuer not in self._verifiers:
                self._verifiers = {other: old for other, old in self._verifiers.items() if other.name != issuer.name}
                self._verifiers[issuer] = OidcVerifier(self._build_provider(issuer))
            return self._verifiers[issuer]

    def _build_provider(self, issuer: TrustedIssuer) -> OidcProvider:
        return OidcProvider(
            issuer=issuer.url,
            audience=issuer.audience,
            clock=self._clock,
            jwks_url=issuer.jwks_url,
            scope_claim=issuer.scope_claim or "",
            name_claim=issuer.subject_claim,
            group_claim=issuer.group_claim,
            base_scopes=issuer.scopes,
            guard=self._guard,
            leeway=issuer.leeway,
        )


@dataclass(frozen=True, slots=True)
class TokenReader:
    """Read tokens of all kinds.

    directory: of the registered principals; None: there are none. guard: where the URLs of their issuers may lead.
    """

    clients: OAuthClients
    tokens: Tokens
    clock: Clock
    provider: OidcVerifier | None
    directory: PrincipalDirectory | None
    guard: OutboundGuard | None
    _verifiers: IssuerVerifiers = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_verifiers", IssuerVerifiers(self.clock, self.guard))

    def is_slow(self, text: str) -> bool:
        """Return whether to read the token may take a request to an issuer, or one to Postgres for who has no login.

        Raises InvalidTokenError.
        """
        if self.provider is None and self.directory is None:
            return False
        return TOKEN_PATTERN.fullmatch(text) is not None or read_issuer(text) != ISSUER

    def read(self, text: str, *, even_expired: bool = False) -> IdentifiedToken:
        """Read a token, with scopes still valid, and find who it is for. InvalidTokenError, UnavailableError."""
        if self.directory is not None and TOKEN_PATTERN.fullmatch(text):
            return self._identify_long_lived(self.directory, text)
        if self.provider is not None or self.directory is not None:
            url = read_issuer(text)
            if self.provider is not None and url == self.provider.provider.issuer:
                return self._identify_user(self.provider.read(text))
            issuer = self._find_issuer(url)
            if issuer is not None:
                return self._identify_user_of(issuer, self._verifiers.get(issuer).read(text), is_ours=False)
        token = self.tokens.read(text, even_expired=even_expired)
        if token.secret_id is not None:
            return self._identify_by_secret(token)
        if token.origin is None:
            return self._identify_client(token)
        issuer = self._find_issuer(token.origin)
        if issuer is not None and not self._is_of_settings(token.origin):
            return self._identify_user_of(issuer, token, is_ours=True)
        return self._identify_user(token)

    def find_provider(self, url: str) -> OidcProvider | None:
        """Find what is trusted of an issuer that isn't disabled; UnavailableError."""
        if self.provider is not None and self._is_of_settings(url):
            return self.provider.provider
        issuer = next((issuer for issuer in self.list_issuers() if issuer.url == url), None)
        return None if issuer is None else self._verifiers.get(issuer).provider

    def list_issuers(self) -> tuple[TrustedIssuer, ...]:
        """List the issuers of the table that aren't disabled; UnavailableError."""
        listed = () if self.directory is None else self.directory.list_issuers()
        return tuple(issuer for issuer in listed if not issuer.is_disabled)

    def find_client(self, client_id: str, text: str) -> Identity | None:
        """Find the registered principal that logs in with a client secret."""
        if self.directory is None:
            return None
        found = self.directory.find_secret("client-secret", text)
        if found is None or found.row is None or found.row.name != client_id:
            return None
        return None if self.clients.find(client_id) is not None else found

    def _identify_client(self, token: Token) -> IdentifiedToken:
        """Limit a token to its client's scopes: the client may have been removed or have lost some since."""
        client = self.clients.find(token.subject)
        if client is None:
            raise InvalidTokenError("The token's client is not one of this server any more")
        own = replace(token, scopes=filter_scopes(client.principal, token.scopes))
        return self._build(own, token.subject, self._find_in_settings(lambda of: of.find_named(token.subject)))

    def _identify_user(self, token: Token) -> IdentifiedToken:
        """Find the user of the settings' issuer. A registered one has the issuer or, by its name, none."""
        if not self._is_of_settings(token.origin):
            raise InvalidTokenError("The token was got for one of an issuer whom this server doesn't trust any more")
        subject, url = token.subject, token.origin or ""
        if self.clients.find(subject) is not None:
            raise InvalidTokenError(
                "The token's subject has the name of a client of this server, so it would get that client's rights"
            )
        found = self._find(lambda of: of.find_subject(url, subject, token.groups))
        if found is None or found.row is not None:
            return self._build(token, subject, found)
        named = self._find(lambda of: of.find_named(subject, url, token.groups))
        row = None if named is None else named.row
        if row is not None and named is not None and (row.kind != "user" or row.issuer or named.has_secrets):
            raise InvalidTokenError("The token's subject has the name of another principal of this server")
        if row is None and self._is_named_after_issuer(subject):
            raise InvalidTokenError("The token's subject is called as users of another issuer are")
        return self._build(token, subject, named)

    def _identify_user_of(self, issuer: TrustedIssuer, token: Token, *, is_ours: bool) -> IdentifiedToken:
        """Find the user of an issuer of the table. One that isn't registered is called after the issuer.

        is_ours: the token was got here for one of the issuer, and may have been narrowed. What one of the issuer is
        worth for a registered user, its registration says.
        """
        assert self.directory is not None
        found = self.directory.find_subject(issuer.url, token.subject, token.groups)
        if found.row is None:
            return self._build(token, f"{issuer.name}:{token.subject}", found)
        self._check_name(found.row.name)
        scopes = found.row.scopes
        if is_ours:
            scopes = filter_scopes(Principal("", build_grants(scopes)), token.scopes)
        return self._build(replace(token, scopes=scopes), found.row.name, found)

    def _identify_by_secret(self, token: Token) -> IdentifiedToken:
        """Find the principal whose secret a token of this server was got for, as long as that secret is valid."""
        found = None
        if self.directory is not None and token.secret_id is not None:
            found = self.directory.find_secret_by_id(token.secret_id)
        if found is None or found.row is None:
            raise InvalidTokenError("The secret of the token's principal has ended; log in with another")
        self._check_name(found.row.name)
        allowed = Principal("", build_grants(found.row.scopes))
        scopes, expires = filter_scopes(allowed, token.scopes), min(token.expires, _get_end(found))
        return self._build(replace(token, scopes=scopes, expires=expires), found.row.name, found)

    def _identify_long_lived(self, directory: PrincipalDirectory, text: str) -> IdentifiedToken:
        found = directory.find_secret("token", text)
        if found is None or found.row is None:
            raise InvalidTokenError("The token is not one of this server, or has ended")
        self._check_name(found.row.name)
        token = Token(found.row.name, found.row.scopes, _get_end(found), int(self.clock()), secret_id=found.secret_id)
        return self._build(token, found.row.name, found)

    def _check_name(self, name: str) -> None:
        """Raise InvalidTokenError if a registered principal would pass for a client of the settings."""
        if self.clients.find(name) is not None:
            raise InvalidTokenError("The token's principal has the name of a client of this server's settings")

    def _is_named_after_issuer(self, subject: str) -> bool:
        issuers = self._find(PrincipalDirectory.list_issuers) or ()
        return any(subject.startswith(f"{issuer.name}:") for issuer in issuers)

    def _is_of_settings(self, url: str | None) -> bool:
        return self.provider is not None and url == self.provider.provider.issuer

    def _find_issuer(self, url: str | None) -> TrustedIssuer | None:
        """Find the issuer of the table that has a URL; InvalidTokenError for one that is disabled."""
        issuers = () if self.directory is None or url in (None, ISSUER) else self.directory.list_issuers()
        found = next((issuer for issuer in issuers if issuer.url == url), None)
        if found is not None and found.is_disabled:
            raise InvalidTokenError(f"The token's issuer {found.name} is disabled on this server")
        return found

    def _find_in_settings(self, find: Callable[[PrincipalDirectory], T]) -> T | None:
        """Look up a client of the settings; without Postgres it is what the settings say, as most routes need it."""
        try:
            return self._find(find)
        except UnavailableError:
            return None

    def _find(self, find: Callable[[PrincipalDirectory], T]) -> T | None:
        """Look something up; UnavailableError. A user might be called like a principal that it isn't."""
        return None if self.directory is None else find(self.directory)

    def _build(self, token: Token, name: str, found: Identity | None) -> IdentifiedToken:
        row = None if found is None else found.row
        if row is not None and row.is_disabled:
            raise InvalidTokenError("The token's principal is disabled")
        principal = Principal(
            name,
            build_grants(token.scopes),
            token.groups if found is None else found.groups,
            None if row is None else row.principal_id,
            is_admin=found is not None and found.is_admin,
        )
        return IdentifiedToken(token, principal, None if found is None else found.version)


def _get_end(found: Identity) -> int:
    return _NO_EXPIRY if found.expires is None else int(found.expires.timestamp())


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
    web_clients: at which issuers people of web pages log in by the settings, and as what.
    secret_keys: decrypt the secrets of such clients of registered issuers.
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
    web_clients: tuple[WebClient, ...] = ()
    secret_keys: SecretKeys | None = None
    warehouse: str = ""
    reader: TokenReader = field(init=False)
    _seen: _PrincipalCache = field(init=False)
    fetch_limiter: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_FETCH_THREADS))

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

    def find_issuers(self) -> tuple[str, ...]:
        """Find the URLs of the issuers of OpenID Connect whose tokens are accepted; UnavailableError."""
        own = () if self.provider is None else (self.provider.provider.issuer,)
        return (*own, *(issuer.url for issuer in self.reader.list_issuers()))

    def list_web_clients(self) -> tuple[WebClient, ...]:
        """List at which trusted issuers people of web pages log in, and as what; UnavailableError.

        What the registration of an issuer says counts more than what the settings say of it.
        """
        clients = {client.issuer: client for client in self.web_clients}
        for row in self.reader.list_issuers():
            if row.web_client_id is not None:
                scope = " ".join(row.web_scopes)
                client = WebClient(row.url, row.web_client_id, scope, row.label, row.web_parameters, row)
                clients[row.url] = client
            elif row.label and row.url in clients:
                clients[row.url] = replace(clients[row.url], label=row.label)
        return tuple(clients[url] for url in self.find_issuers() if url in clients)

    def find_known(self, digest: bytes) -> Principal | None:
        """Find the principal by the digest of its header, if the token was read lately."""
        return self._seen.find(digest, self.clock())

    def limiter_for(self, *texts: str) -> CapacityLimiter | None:
        """Return the limit of threads for these tokens, if to read them may take long; else None.

        The other threads answer requests meanwhile.
        """
        return self.fetch_limiter if any(map(self.reader.is_slow, texts)) else None

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
