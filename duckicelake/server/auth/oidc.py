"""Tokens of an OpenID Connect provider: its keys, and what its claims are worth here.

Keys are fetched when a token first needs one, and again every few minutes and when a token names an unknown one, but
never more often than every few seconds. While the provider doesn't answer, keys that are known stay good for an hour.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

import jwt

from duckicelake.catalog.authz.directory import TrustedIssuer
from duckicelake.catalog.context.caller import Principal, build_grants, parse_scope
from duckicelake.errors import (
    BadInputError,
    CatalogUnreachableError,
    InvalidRequestError,
    InvalidSettingsError,
    InvalidTokenError,
    UnavailableError,
)
from duckicelake.rest.http import HttpConnection, NoAnswerError
from duckicelake.rest.login import check_login_url
from duckicelake.rest.outbound import OutboundGuard
from duckicelake.server.auth.tokens import ISSUER, UNREADABLE_ERRORS, Clock, Token

_ALGORITHMS: Final = {"RSA": "RS256", "EC": "ES256"}
_FRESH_SECONDS: Final = 300
_STALE_SECONDS: Final = 3600
_PAUSE_SECONDS: Final = 10
_TIMEOUT_SECONDS: Final = 3
_MAX_RESPONSE_BYTES: Final = 1 << 20
_MAX_NAME_CHARS: Final = 256
_DEFAULT_SCOPE: Final = "openid"
_MAX_GROUPS: Final = 256
"""Groups of a token that count; providers themselves send no more than some 200."""
FETCH_ERRORS: Final = (
    NoAnswerError,
    CatalogUnreachableError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
)
"""What an answer of a provider that is no provider can lead to."""
_DECODE_OPTIONS: Final = {
    "require": ["iss", "aud", "exp"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


@dataclass(frozen=True, slots=True)
class OidcProvider:
    """What is trusted, and how its claims are read.

    scopes: what each value of the scope claim is worth; empty: the values are scopes themselves, and others nothing.
    guard: for an issuer that isn't one of the settings: where its URLs may lead.
    """

    issuer: str
    audience: str
    clock: Clock
    jwks_url: str | None = None
    scope_claim: str = "scope"
    name_claim: str = "sub"
    scopes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    leeway: int = 30
    guard: OutboundGuard | None = None
    group_claim: str | None = None
    base_scopes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.issuer == ISSUER:
            raise InvalidSettingsError(
                f"DUCKICELAKE_OIDC_ISSUER can't be {ISSUER}, which is this server's own name in tokens"
            )


@dataclass(frozen=True, slots=True)
class WebClient:
    """What an issuer calls this server's pages, and which scopes they ask it for.

    Attributes:
        label: what the pages call the issuer; empty: its URL.
        parameters: `name=value`, what else the issuer's page is sent.
        registered: the row that says so, which has the client's secret; None: the settings do.

    """

    issuer: str
    client_id: str
    scope: str
    label: str = ""
    parameters: tuple[str, ...] = ()
    registered: TrustedIssuer | None = None


class OidcVerifier:
    """Reads the provider's tokens."""

    def __init__(self, provider: OidcProvider) -> None:
        self.provider = provider
        self._keys = _ProviderKeys(provider)

    def read(self, text: str) -> Token:
        """Read a token; InvalidTokenError unless it is valid here, UnavailableError if its key can't be fetched."""
        provider, claims = self.provider, self.read_claims(text)
        name = _read_claim(claims, provider.name_claim)
        if not isinstance(name, str) or not _is_name(name):
            raise InvalidTokenError(f"The token doesn't say who it is for: its claim {provider.name_claim} is no name")
        scopes, groups, now = dict.fromkeys(self._scopes(claims)), self._groups(claims), int(provider.clock())
        return Token(name, tuple(scopes), int(claims["exp"]), now, provider.issuer, groups)

    def read_claims(self, text: str) -> Mapping[str, Any]:
        """Read the claims of a token of the provider, for its audience and not expired. Errors as of `read`."""
        provider, now = self.provider, self.provider.clock()
        try:
            key = self._keys.find(jwt.get_unverified_header(text).get("kid"))
            claims = jwt.decode(
                text,
                key.key,
                [_ALGORITHMS[str(key.key_type)]],
                cast("Any", _DECODE_OPTIONS),
                audience=provider.audience,
                issuer=provider.issuer,
            )
        except UNREADABLE_ERRORS as error:
            raise InvalidTokenError(f"The token is not one of {provider.issuer} for this server: {error}") from error
        if _read_seconds(claims, "exp", 0) + provider.leeway <= now:
            raise InvalidTokenError("The token has expired; get a new one from its issuer")
        if max(_read_seconds(claims, "nbf", 0), _read_seconds(claims, "iat", 0)) - provider.leeway > now:
            raise InvalidTokenError("The token is of the future: the clocks of its issuer and this server differ")
        return cast("Mapping[str, Any]", claims)

    def _groups(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        value = None if self.provider.group_claim is None else _read_claim(claims, self.provider.group_claim)
        names = (value,) if isinstance(value, str) else value if isinstance(value, list) else ()
        fitting = (name for name in names if isinstance(name, str) and _is_name(name))
        return tuple(sorted(set(fitting))[:_MAX_GROUPS])

    def _scopes(self, claims: Mapping[str, Any]) -> Iterator[str]:
        yield from self.provider.base_scopes
        value = _read_claim(claims, self.provider.scope_claim) if self.provider.scope_claim else None
        for scope in value.split() if isinstance(value, str) else value if isinstance(value, list) else ():
            if self.provider.scopes:
                yield from self.provider.scopes.get(str(scope), ())
            elif _is_scope(str(scope)):
                yield str(scope)


class _ProviderKeys:
    def __init__(self, provider: OidcProvider) -> None:
        self._provider = provider
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._fetched = self._tried = float("-inf")
        self._url = provider.jwks_url
        self._lock = Lock()

    def find(self, kid: object) -> jwt.PyJWK:
        """Find the key of that name, or the only key if none is named; InvalidTokenError, UnavailableError."""
        key = self._find_key(kid)
        if key is not None and self._age() <= _FRESH_SECONDS:
            return key
        problem = self._refresh_if_old(kid, must=key is None or self._age() > _STALE_SECONDS)
        key = self._find_key(kid)
        if key is not None and self._age() <= _STALE_SECONDS:
            return key
        if self._fetched == self._tried:
            raise InvalidTokenError("The token was signed with a key that its issuer doesn't publish")
        issuer = self._provider.issuer
        raise UnavailableError(
            f"The keys of {issuer} can't be had now, try again: {problem or 'it did not answer lately'}"
        )

    def _age(self) -> float:
        return self._provider.clock() - self._fetched

    def _refresh_if_old(self, kid: object, *, must: bool) -> str | None:
        """Fetch the keys unless that was tried lately or, if there is no need, is being tried; what went wrong."""
        if not self._lock.acquire(blocking=must):
            return None
        try:
            if self._find_key(kid) is not None and self._age() <= _FRESH_SECONDS:
                return None
            now = self._provider.clock()
            return self._refresh(now) if now - self._tried > _PAUSE_SECONDS else None
        finally:
            self._lock.release()

    def _find_key(self, kid: object) -> jwt.PyJWK | None:
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid) if isinstance(kid, str) else None

    def _refresh(self, now: float) -> str | None:
        """Fetch the keys; what went wrong, if anything."""
        self._tried = now
        try:
            if self._url is None:
                self._url = _discover(self._provider.issuer, self._provider.guard)
            self._keys = _select_usable(fetch_json(self._url, self._provider.guard))
        except FETCH_ERRORS as error:
            return f"{type(error).__name__}: {error}"
        self._fetched = now
        return None


def parse_scope_mapping(text: str) -> dict[str, tuple[str, ...]]:
    """Read `claimvalue=scope scope,…`; InvalidSettingsError."""
    mapping: dict[str, tuple[str, ...]] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        value, _, scopes = entry.rpartition("=")
        if not value or not scopes.split():
            raise InvalidSettingsError(
                f"DUCKICELAKE_OIDC_SCOPES: {entry} is not claimvalue=scope or claimvalue=scope scope"
            )
        try:
            build_grants(scopes.split())
        except InvalidRequestError as error:
            raise InvalidSettingsError(f"DUCKICELAKE_OIDC_SCOPES: {entry}: {error}") from error
        mapping[value] = tuple(scopes.split())
    return mapping


def parse_web_clients(text: str) -> tuple[WebClient, ...]:
    """Read `issuer=client_id scope scope,…`; InvalidSettingsError. Without scopes it is openid."""
    clients: dict[str, WebClient] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        issuer, _, rest = entry.partition("=")
        client_id, *scopes = rest.split() or [""]
        if not issuer or not client_id or issuer in clients:
            raise InvalidSettingsError(
                f"DUCKICELAKE_OIDC_WEB_CLIENTS: {entry!r} is not issuer=client_id or issuer=client_id scope scope, "
                "with each issuer once"
            )
        try:
            check_login_url(issuer, "issuer")
        except BadInputError as error:
            raise InvalidSettingsError(f"DUCKICELAKE_OIDC_WEB_CLIENTS: {error}") from error
        if scopes and _DEFAULT_SCOPE not in scopes:
            raise InvalidSettingsError(f"DUCKICELAKE_OIDC_WEB_CLIENTS: {entry!r} asks for scopes, but not for openid")
        clients[issuer] = WebClient(issuer, client_id, " ".join(scopes) or _DEFAULT_SCOPE)
    return tuple(clients.values())


def build_principal(token: Token) -> Principal:
    return Principal(token.subject, build_grants(token.scopes))


def _is_scope(text: str) -> bool:
    try:
        parse_scope(text)
    except InvalidRequestError:
        return False
    return True


def _is_name(text: str) -> bool:
    return text.isprintable() and 0 < len(text) <= _MAX_NAME_CHARS


def _read_claim(claims: Mapping[str, Any], name: str) -> Any:
    """Read the claim of that name; `a.b` is also b inside of a, as some providers nest them."""
    value: Any = claims
    if name in claims:
        return claims[name]
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _read_seconds(claims: Mapping[str, Any], name: str, default: float) -> float:
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTokenError(f"The token's claim {name} is no time")
    return value


def _discover(issuer: str, guard: OutboundGuard | None) -> str:
    document = fetch_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration", guard)
    if document["issuer"] != issuer:
        raise ValueError(f"the discovery document is of {document['issuer']!r}, not of {issuer!r}")
    url = document["jwks_uri"]
    if not isinstance(url, str) or (issuer.startswith("https:") and not url.startswith("https:")):
        raise ValueError(f"the discovery document's jwks_uri {url!r} is no https address")
    return url


def fetch_json(url: str, guard: OutboundGuard | None) -> Any:
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{url!r} is no http or https address")
    server = urlunsplit((*urlsplit(url)[:2], "", "", ""))
    with closing(HttpConnection(server, guard)) as http:
        answer = http.ask(
            "GET",
            url.removeprefix(server),
            {"Accept": "application/json"},
            seconds=_TIMEOUT_SECONDS,
            is_timed=True,
            most_bytes=_MAX_RESPONSE_BYTES,
        )
    if answer.status != 200:
        raise ValueError(f"{url} answers {answer.status}")
    return json.loads(answer.body)


def _select_usable(document: Mapping[str, Any]) -> dict[str | None, jwt.PyJWK]:
    """Select the keys for accepted signatures, by name."""
    keys: dict[str | None, jwt.PyJWK] = {}
    for key in document["keys"]:
        if key.get("use", "sig") != "sig" or key.get("alg", "") not in {"", *_ALGORITHMS.values()}:
            continue
        if key.get("kty") == "RSA" or (key.get("kty"), key.get("crv")) == ("EC", "P-256"):
            with suppress(jwt.PyJWTError):  # one that is damaged doesn't spoil the others
                keys[key.get("kid")] = jwt.PyJWK(key)
    return keys
