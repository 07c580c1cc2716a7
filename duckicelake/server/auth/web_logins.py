"""Log in people of web pages by redirect: OpenID Connect's authorization code with PKCE (RFC 7636).

The page sends its reader to the issuer, and the code that comes back to this server, which gets the tokens for it. The
pages' policy lets them ask this server alone, and issuers need not allow requests of its origin. What is handed on is a
token that this server accepts; the reason is given where the issuer's tokens are none.
"""

import json
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from duckicelake.catalog.issuers import reveal_secret
from duckicelake.errors import (
    BadInputError,
    CatalogUnreachableError,
    InvalidTokenError,
    UnavailableError,
)
from duckicelake.rest.http import HttpConnection, HttpResponse, NoAnswerError
from duckicelake.rest.login import check_login_url
from duckicelake.rest.outbound import OutboundGuard
from duckicelake.server.auth.authentication import Authentication, IdentifiedToken
from duckicelake.server.auth.oauth import OAuthError, TokenRequest, clean_description
from duckicelake.server.auth.oidc import FETCH_ERRORS, OidcProvider, OidcVerifier, WebClient, fetch_json
from duckicelake.server.auth.throttle import LoginThrottle

AUTHORIZATION_CODE: Final = "authorization_code"
REFRESH_TOKEN: Final = "refresh_token"  # noqa: S105
_BASIC: Final = "client_secret_basic"
_POST: Final = "client_secret_post"
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
    takes_basic: secrets of clients belong into the header alone.
    """

    authorization: str
    token: str
    end_session: str | None
    is_issuer_named: bool
    takes_basic: bool = False


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
    """Logs people in at issuers that have a client for the console, and keeps what it reads of them."""

    def __init__(self) -> None:
        self._found: dict[str, _Discovery] = {}
        self._verifiers: dict[str, tuple[object, OidcVerifier]] = {}
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)

    def find_endpoints(self, provider: OidcProvider) -> LoginEndpoints:
        """Find an issuer's endpoints, of its discovery document; UnavailableError."""
        issuer, now = provider.issuer, provider.clock()
        with self._locks[issuer]:  # one that doesn't answer holds up no other
            found = self._found.get(issuer)
            lasts = _FRESH_SECONDS if found is not None and found.endpoints is not None else _PAUSE_SECONDS
            if found is None or now - found.read_at > lasts:
                found = self._found[issuer] = _discover(provider, now)
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

    @staticmethod
    def _find_client(authentication: Authentication, issuer: str | None) -> WebClient:
        try:
            found = next((one for one in authentication.list_web_clients() if one.issuer == issuer), None)
        except UnavailableError as error:
            raise OAuthError("temporarily_unavailable", clean_description(str(error)), 503) from error
        if found is None:
            raise OAuthError("invalid_request", "issuer must be one of those that GET /v1/oauth/logins lists")
        return found

    def _exchange(self, authentication: Authentication, client: WebClient, form: Mapping[str, str]) -> WebTokens:
        provider = authentication.reader.find_provider(client.issuer)
        if provider is None:
            raise UnavailableError(f"{client.issuer} has just been taken away")
        endpoints = self.find_endpoints(provider)
        kind = form["grant_type"]
        sent = {name: form[name] for name in _FIELDS[kind] if name != "nonce"}
        sent |= {"grant_type": kind, "client_id": client.client_id}
        secret = None if client.registered is None else reveal_secret(authentication.secret_keys, client.registered)
        body = _ask_for_tokens(endpoints, sent, secret, provider.guard)
        id_token = body.get("id_token")
        if kind == AUTHORIZATION_CODE or id_token is not None:
            self._check_id_token(provider, client, id_token, form.get("nonce"))
        text, identified = _choose_token(authentication, client, (body.get("access_token"), id_token))
        refresh = body.get("refresh_token", form.get("refresh_token"))
        return WebTokens(text, refresh if isinstance(refresh, str) else None, identified)

    def _check_id_token(self, provider: OidcProvider, client: WebClient, id_token: object, nonce: str | None) -> None:
        """Refuse an ID token that isn't one of this login: by its signature, issuer, audience and nonce."""
        if not isinstance(id_token, str):
            raise OAuthError("invalid_grant", f"{client.issuer} gave no id_token: openid must be one of the scopes")
        key = client.client_id, provider.jwks_url, provider.leeway
        known, verifier = self._verifiers.get(client.issuer, (None, None))
        if verifier is None or known != key:
            verifier = OidcVerifier(replace(provider, audience=client.client_id))
            self._verifiers[client.issuer] = key, verifier
        try:
            claims = verifier.read_claims(id_token)
        except InvalidTokenError as error:
            raise OAuthError("invalid_grant", clean_description(f"id_token: {error}")) from error
        if nonce is not None and claims.get("nonce") != nonce:
            raise OAuthError("invalid_grant", "The id_token is of another login: its nonce differs")


def _discover(provider: OidcProvider, now: float) -> _Discovery:
    issuer = provider.issuer
    try:
        document = fetch_json(f"{issuer.rstrip('/')}/.well-known/openid-configuration", provider.guard)
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
    methods = document.get("token_endpoint_auth_methods_supported", [_BASIC])
    takes_basic = _BASIC in methods and _POST not in methods
    urls = read("authorization_endpoint"), read("token_endpoint"), end_session
    return LoginEndpoints(*urls, is_issuer_named, takes_basic)


def _ask_for_tokens(
    endpoints: LoginEndpoints, form: Mapping[str, str], secret: str | None, guard: OutboundGuard | None
) -> Mapping[str, Any]:
    """Send the form to an issuer's token endpoint; OAuthError if it refuses, UnavailableError if it can't answer.

    secret: of the client; None: it is public.
    """
    url = endpoints.token
    server = urlunsplit((*urlsplit(url)[:2], "", "", ""))
    headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
    if secret is not None and endpoints.takes_basic:
        pair = f"{quote(form['client_id'], safe='')}:{quote(secret, safe='')}"
        headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    elif secret is not None:
        form = {**form, "client_secret": secret}
    try:
        with closing(HttpConnection(server, guard)) as http:
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
