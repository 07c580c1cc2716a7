"""Log in people of web pages by redirect: OpenID Connect's authorization code with PKCE (RFC 7636).

The page sends its reader to the issuer, and the code that comes back to this server, which gets the tokens for it. The
pages' policy lets them ask this server alone, and issuers need not allow requests of its origin. What is handed on is a
token that this server accepts; the reason is given where the issuer's tokens are none.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

from duckicelake.errors import (
    BadInputError,
    CatalogUnreachableError,
    InvalidTokenError,
    UnavailableError,
)
from duckicelake.rest.http import HttpConnection, HttpResponse, NoAnswerError
from duckicelake.rest.login import check_login_url
from duckicelake.server.auth.authentication import Authentication, IdentifiedToken
from duckicelake.server.auth.oauth import OAuthError, TokenRequest, clean_description
from duckicelake.server.auth.oidc import FETCH_ERRORS, OidcProvider, OidcVerifier, WebClient, fetch_json
from duckicelake.server.auth.throttle import LoginThrottle

AUTHORIZATION_CODE: Final = "authorization_code"
REFRESH_TOKEN: Final = "refresh_token"  # noqa: S105
_FRESH_SECONDS: Final = 300
_PAUSE_SECONDS: Final = 5
_TIMEOUT_SECONDS: Final = 10
_MAX_RESPONSE_BYTES: Final = 1 << 20
_MAX_SHOWN_CHARS: Final = 200
_FIELDS: Final = {
    AUTHORIZATION_CODE: ("code", "code_verifier", "redirect_uri", "nonce"),
    REFRESH_TOKEN: ("refresh_token",),
}


@dataclass(frozen=True, slots=True)
class LoginEndpoints:
    """Where an issuer logs people in, gives tokens, and logs people out.

    is_issuer_named: the redirect back names the issuer (RFC 9207).
    """

    authorization: str
    token: str
    end_session: str | None
    is_issuer_named: bool


@dataclass(frozen=True, slots=True)
class WebTokens:
    """A token that this server accepts, and with which token of the issuer the next one is got."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    identified: IdentifiedToken


@dataclass(slots=True)
class _Discovery:
    """What was read of an issuer's endpoints, or why it wasn't."""

    read_at: float
    endpoints: LoginEndpoints | None = None
    problem: str = ""


class WebLogins:
    """Logs people in at the issuers for which the settings have a client, and keeps what it reads of them."""

    def __init__(self) -> None:
        self._found: dict[str, _Discovery] = {}
        self._verifiers: dict[str, OidcVerifier] = {}
        self._lock = Lock()

    @staticmethod
    def list_clients(authentication: Authentication) -> tuple[WebClient, ...]:
        """List the clients of the issuers that are trusted; UnavailableError."""
        trusted = set(authentication.find_issuers()) if authentication.web_clients else set()
        return tuple(client for client in authentication.web_clients if client.issuer in trusted)

    def find_endpoints(self, issuer: str, now: float) -> LoginEndpoints:
        """Find an issuer's endpoints, of its discovery document; UnavailableError."""
        with self._lock:
            found = self._found.get(issuer)
            lasts = _FRESH_SECONDS if found is not None and found.endpoints is not None else _PAUSE_SECONDS
            if found is None or now - found.read_at > lasts:
                found = self._found[issuer] = _discover(issuer, now)
        if found.endpoints is None:
            raise UnavailableError(f"{issuer} can't log anyone in now: {found.problem}")
        return found.endpoints

    def grant(self, authentication: Authentication, throttle: LoginThrottle, asked: TokenRequest) -> WebTokens:
        """Get the tokens for a code, or for a refresh token; OAuthError.

        The form has `issuer`, `grant_type` and that grant's own fields.
        """
        client = self._find_client(authentication, asked.form.get("issuer"))
        kind = asked.form.get("grant_type", "")
        if kind not in _FIELDS:
            raise OAuthError("unsupported_grant_type", f"grant_type must be one of {', '.join(_FIELDS)}")
        missing = [name for name in _FIELDS[kind] if name not in asked.form]
        if missing:
            raise OAuthError("invalid_request", f"{', '.join(missing)} is missing")
        wait = throttle.wait(client.issuer, asked.address)
        if wait:
            description = f"Too many logins have failed; try again in {wait} seconds"
            raise OAuthError("temporarily_unavailable", description, 429, {"Retry-After": str(wait)})
        try:
            return self._exchange(authentication, client, asked.form)
        except UnavailableError as error:
            raise OAuthError("temporarily_unavailable", clean_description(str(error)), 503) from error
        except OAuthError:
            throttle.record_failure(client.issuer, asked.address)
            raise

    def _find_client(self, authentication: Authentication, issuer: str | None) -> WebClient:
        try:
            found = next((one for one in self.list_clients(authentication) if one.issuer == issuer), None)
        except UnavailableError as error:
            raise OAuthError("temporarily_unavailable", clean_description(str(error)), 503) from error
        if found is None:
            raise OAuthError("invalid_request", "issuer must be one of those that GET /v1/oauth/logins lists")
        return found

    def _exchange(self, authentication: Authentication, client: WebClient, form: Mapping[str, str]) -> WebTokens:
        endpoints = self.find_endpoints(client.issuer, authentication.clock())
        kind = form["grant_type"]
        sent = {name: form[name] for name in _FIELDS[kind] if name != "nonce"}
        body = _ask_for_tokens(endpoints.token, {"grant_type": kind, "client_id": client.client_id, **sent})
        id_token = body.get("id_token")
        if kind == AUTHORIZATION_CODE or id_token is not None:
            self._check_id_token(authentication, client, id_token, form.get("nonce"))
        text, identified = _choose_token(authentication, client, (body.get("access_token"), id_token))
        refresh = body.get("refresh_token", form.get("refresh_token"))
        return WebTokens(text, refresh if isinstance(refresh, str) else None, identified)

    def _check_id_token(
        self, authentication: Authentication, client: WebClient, id_token: object, nonce: str | None
    ) -> None:
        """Refuse an ID token that isn't one of this login: by its signature, issuer, audience and nonce."""
        if not isinstance(id_token, str):
            raise OAuthError("invalid_grant", f"{client.issuer} gave no id_token: openid must be one of the scopes")
        if client.issuer not in self._verifiers:
            provider = OidcProvider(client.issuer, client.client_id, authentication.clock)
            trusted = authentication.provider
            if trusted is not None and trusted.provider.issuer == client.issuer:
                provider = replace(provider, jwks_url=trusted.provider.jwks_url, leeway=trusted.provider.leeway)
            self._verifiers[client.issuer] = OidcVerifier(provider)
        try:
            claims = self._verifiers[client.issuer].read_claims(id_token)
        except InvalidTokenError as error:
            raise OAuthError("invalid_grant", clean_description(f"id_token: {error}")) from error
        if nonce is not None and claims.get("nonce") != nonce:
            raise OAuthError("invalid_grant", "The id_token is of another login: its nonce differs")


def _discover(issuer: str, now: float) -> _Discovery:
    try:
        document = fetch_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration", None)
        if document["issuer"] != issuer:
            raise ValueError(f"the discovery document is of {document['issuer']!r}")
        return _Discovery(now, _read_endpoints(issuer, document))
    except (*FETCH_ERRORS, BadInputError) as error:
        return _Discovery(now, problem=f"{type(error).__name__}: {error}")


def _read_endpoints(issuer: str, document: Mapping[str, Any]) -> LoginEndpoints:
    def read(name: str) -> str:
        url = check_login_url(str(document[name]), name)
        if issuer.startswith("https:") and not url.startswith("https:"):
            raise ValueError(f"{name} {url!r} is no https address")
        return url

    end_session = read("end_session_endpoint") if "end_session_endpoint" in document else None
    is_issuer_named = document.get("authorization_response_iss_parameter_supported") is True
    return LoginEndpoints(read("authorization_endpoint"), read("token_endpoint"), end_session, is_issuer_named)


def _ask_for_tokens(url: str, form: Mapping[str, str]) -> Mapping[str, Any]:
    """Send the form to an issuer's token endpoint; OAuthError if it refuses, UnavailableError if it can't answer."""
    server = urlunsplit((*urlsplit(url)[:2], "", "", ""))
    headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
    try:
        with closing(HttpConnection(server)) as http:
            answer = http.ask(
                "POST",
                url.removeprefix(server),
                headers,
                urlencode(form).encode(),
                seconds=_TIMEOUT_SECONDS,
                is_timed=True,
                most_bytes=_MAX_RESPONSE_BYTES,
            )
    except (NoAnswerError, CatalogUnreachableError) as error:
        raise UnavailableError(f"{server} gives no token now: {error}") from error
    try:
        body = json.loads(answer.body)
    except (ValueError, RecursionError):
        body = None
    if answer.status == 200 and isinstance(body, dict):
        return body
    raise _build_refusal(server, answer, body if isinstance(body, dict) else {})


def _build_refusal(server: str, answer: HttpResponse, body: Mapping[str, Any]) -> Exception:
    if answer.status >= 500 or answer.status == 200:
        return UnavailableError(f"{server} answers {answer.status}, without a token")
    said = str(body.get("error_description") or body.get("error") or answer.status)[:_MAX_SHOWN_CHARS]
    return OAuthError("invalid_grant", clean_description(f"{server} gives no token: {said}"))


def _choose_token(
    authentication: Authentication, client: WebClient, texts: Iterable[object]
) -> tuple[str, IdentifiedToken]:
    """Choose the first token that this server accepts of the issuer; OAuthError, UnavailableError."""
    problems = []
    for text in texts:
        if not isinstance(text, str):
            continue
        try:
            identified = authentication.read(text)
        except InvalidTokenError as error:
            problems.append(str(error))
            continue
        if identified.token.origin == client.issuer:
            return text, identified
        problems.append("it is of another issuer")
    found = "; ".join(dict.fromkeys(problems)) or "there is none"
    raise OAuthError("invalid_grant", clean_description(f"No token of {client.issuer} is valid here: {found}"))
