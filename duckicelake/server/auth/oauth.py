"""The token endpoint's grants (RFC 6749 §4.4, RFC 8693): who gets which token for what they show."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final
from urllib.parse import unquote_plus

from duckicelake.catalog.authz.directory import is_client_secret
from duckicelake.catalog.context.caller import Principal, build_grants, filter_scopes, parse_scope
from duckicelake.errors import InvalidRequestError, InvalidTokenError, TooManyRequestsError, UnavailableError
from duckicelake.server.auth.authentication import Authentication, parse_bearer
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.auth.throttle import LoginThrottle
from duckicelake.server.auth.tokens import Token

CLIENT_CREDENTIALS: Final = "client_credentials"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105
TOKEN_TYPES: Final = {ACCESS_TOKEN, *(f"urn:ietf:params:oauth:token-type:{kind}" for kind in ("jwt", "id_token"))}
ALL_SCOPES: Final = {"catalog", "PRINCIPAL_ROLE:ALL", "sign"}
"""Scopes that mean all that the client may have: what Java and PyIceberg, and DuckDB, ask for by default; and
Java's signer of requests to S3."""
MAX_LOGIN_SECONDS: Final = 24 * 3600
"""For how long a token can be renewed by itself. Then the secret must be shown, as Java's client does."""

Form = Mapping[str, str]


class OAuthError(Exception):
    """A refusal of the token endpoint (RFC 6749 §5.2)."""

    def __init__(
        self, error: str, description: str, status: int = 400, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(error, description)
        self.error = error
        self.description = description
        self.status = status
        self.headers = dict(headers or {})


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token, as the response has it."""

    access_token: str = field(repr=False)
    scopes: tuple[str, ...]
    expires_in: int
    principal: Principal


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A request for a token: its form, its header Authorization and where it comes from."""

    form: Form = field(repr=False)
    authorization: str | None = field(repr=False)
    address: str


def grant_token(authentication: Authentication, throttle: LoginThrottle, asked: TokenRequest) -> IssuedToken:
    """Issue the token that the form asks for; OAuthError."""
    kind = asked.form.get("grant_type")
    if kind == CLIENT_CREDENTIALS:
        return _grant_to_client(authentication, _log_in(authentication, throttle, asked), asked.form)
    if kind == TOKEN_EXCHANGE:
        return _exchange(authentication, throttle, asked)
    if kind is None:
        raise OAuthError("invalid_request", f"grant_type is missing: send {CLIENT_CREDENTIALS}")
    raise OAuthError("unsupported_grant_type", f"grant_type must be {CLIENT_CREDENTIALS} or {TOKEN_EXCHANGE}")


def _grant_to_client(authentication: Authentication, client: OAuthClient, form: Form) -> IssuedToken:
    now = int(authentication.clock())
    scopes = _narrow_scopes(client.scopes, form)
    expires = int(min(now + authentication.token_seconds, client.expires))
    return _issue(authentication, Token(client.client_id, scopes, expires, now, secret_id=client.secret_id))


def _exchange(authentication: Authentication, throttle: LoginThrottle, asked: TokenRequest) -> IssuedToken:
    """Exchange a token for a new one; a client that sends its secret may renew its own expired token."""
    form, now = asked.form, int(authentication.clock())
    if form.get("requested_token_type", ACCESS_TOKEN) not in TOKEN_TYPES:
        raise OAuthError("invalid_request", f"requested_token_type must be {ACCESS_TOKEN}")
    client = _log_in(authentication, throttle, asked) if parse_credentials(asked) is not None else None
    caller = None if client is not None else _read_caller(authentication, asked)
    subject = _read_shown(authentication, form, "subject_token", even_expired=client is not None)
    if subject is None:
        raise OAuthError("invalid_request", "subject_token is missing")
    own = client is not None and subject.origin is None and subject.subject == client.client_id
    if subject.expires <= now and not own:
        raise OAuthError("invalid_request", "The subject_token has expired, and only its own client can renew it then")
    actor = _read_shown(authentication, form, "actor_token")
    who = actor or caller or subject
    token = _renew(authentication, subject, _narrow_scopes(subject.scopes, form), now, fresh=own)
    if own and client is not None:
        token = replace(token, secret_id=client.secret_id, expires=int(min(token.expires, client.expires)))
    return _issue(authentication, token, None if who.subject == subject.subject else who.subject)


def _renew(authentication: Authentication, subject: Token, scopes: tuple[str, ...], now: int, *, fresh: bool) -> Token:
    """Renew the subject's token, which ends with another issuer's token, or MAX_LOGIN_SECONDS after the login."""
    logged_in = now if fresh else subject.logged_in
    latest = subject.expires if subject.origin is not None else logged_in + MAX_LOGIN_SECONDS
    expires = min(now + authentication.token_seconds, latest)
    if expires <= now:
        raise OAuthError("invalid_request", "The login was too long ago: show the client's secret again")
    return replace(subject, scopes=scopes, expires=expires, logged_in=logged_in)


def _issue(authentication: Authentication, token: Token, actor: str | None = None) -> IssuedToken:
    text = authentication.tokens.issue(token, actor)
    lifetime = token.expires - int(authentication.clock())
    return IssuedToken(text, token.scopes, lifetime, Principal(token.subject, build_grants(token.scopes)))


def _narrow_scopes(scopes: tuple[str, ...], form: Form) -> tuple[str, ...]:
    """Narrow the scopes to those that the form names; invalid_scope for others."""
    asked = tuple(form.get("scope", "").split())
    if not set(asked) - ALL_SCOPES:
        return scopes
    named = tuple(scope for scope in asked if scope not in ALL_SCOPES)
    principal = Principal("", build_grants(scopes))
    try:
        wanted = [parse_scope(scope) for scope in named]
    except InvalidRequestError as error:
        raise OAuthError("invalid_scope", clean_description(str(error))) from error
    if len(filter_scopes(principal, named)) < len(wanted):
        raise OAuthError(
            "invalid_scope", "The client has not been given all that scope asks for; ask for catalog, or less"
        )
    return scopes if len(named) < len(asked) else named


def _log_in(authentication: Authentication, throttle: LoginThrottle, asked: TokenRequest) -> OAuthClient:
    """Find the client by its secret, unless it or its address has failed too often lately."""
    login = parse_credentials(asked)
    if login is None:
        raise _build_invalid_client(
            "No client is named: send client_id and client_secret, or the header Authorization: Basic"
        )
    client_id, secrets = login
    wait = throttle.wait(client_id, asked.address)
    if wait > 0:
        recognized = _recognize(authentication, throttle, asked.address, client_id, secrets)
        if recognized is not None:
            return recognized
        raise OAuthError(
            "temporarily_unavailable",
            f"Too many logins have failed; try again in {wait} seconds",
            429,
            {"Retry-After": str(wait)},
        )
    for secret in secrets:
        client = _find_registered(authentication, client_id, secret) or _authenticate(authentication, client_id, secret)
        if client is not None:
            throttle.record_success(client_id, asked.address)
            return client
    throttle.record_failure(client_id, asked.address)
    raise _build_invalid_client("No client has this id and secret")


def _recognize(
    authentication: Authentication, throttle: LoginThrottle, address: str, client_id: str, secrets: tuple[str, ...]
) -> OAuthClient | None:
    """Find a client by a secret verified before, although logins from its address are blocked; or count a failure."""
    if not throttle.is_blocked_by_others(client_id, address):
        return None
    client = authentication.clients.find(client_id)
    for secret in secrets:
        found = _find_registered(authentication, client_id, secret)
        if found is None and client is not None and authentication.clients.recognizes(client_id, secret):
            found = client
        if found is not None:
            throttle.record_success(client_id, address)
            return found
    throttle.failed_while_blocked(client_id, address)
    return None


def _find_registered(authentication: Authentication, client_id: str, secret: str) -> OAuthClient | None:
    """Find a service account by a secret made at run time. The search takes the same time whose id it is."""
    if not is_client_secret(secret):
        return None
    try:
        found = authentication.reader.find_client(client_id, secret)
    except UnavailableError as error:
        raise _build_unavailable(error) from error
    if found is None or found.row is None:
        return None
    expires = inf if found.expires is None else found.expires.timestamp()
    return OAuthClient(client_id, "", found.row.scopes, found.secret_id, expires)


def _authenticate(authentication: Authentication, client_id: str, secret: str) -> OAuthClient | None:
    try:
        return authentication.clients.authenticate(client_id, secret)
    except TooManyRequestsError as error:
        raise OAuthError("temporarily_unavailable", str(error), 429, {"Retry-After": "1"}) from error


def find_tokens(asked: TokenRequest) -> tuple[str, ...]:
    """List all tokens in the request."""
    texts = (parse_bearer(asked.authorization), asked.form.get("subject_token"), asked.form.get("actor_token"))
    return tuple(text for text in texts if text is not None)


def parse_credentials(asked: TokenRequest) -> tuple[str, tuple[str, ...]] | None:
    """Return client id and possible secrets, of the form or of Basic; None if neither has any.

    The secret of Basic is taken as it is, as Iceberg's clients send it, else percent-decoded (RFC 6749 §2.3.1).
    """
    in_form = asked.form.get("client_id"), asked.form.get("client_secret")
    in_header = _parse_basic(asked.authorization)
    if in_header is None:
        if in_form[1] is None:
            return None
        if in_form[0] is None:
            raise _build_invalid_client("client_id is missing: a credential is id:secret")
        return in_form[0], (in_form[1],)
    if in_form[0] not in {None, in_header[0]} or in_form[1] not in {None, in_header[1]}:
        raise OAuthError("invalid_request", "The form and the header Authorization name different clients or secrets")
    client_id, secret = in_header
    decoded = unquote_plus(secret)
    return client_id, (secret,) if decoded == secret else (secret, decoded)


def _parse_basic(authorization: str | None) -> tuple[str, str] | None:
    kind, _, encoded = (authorization or "").partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        client_id, colon, secret = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise OAuthError("invalid_request", "The header Authorization is not Basic with id:secret in base64") from error
    if not colon:
        raise OAuthError("invalid_request", "The header Authorization is not Basic with id:secret in base64")
    return client_id, secret


def _read_caller(authentication: Authentication, asked: TokenRequest) -> Token:
    text = parse_bearer(asked.authorization)
    if text is None:
        raise _build_invalid_client(
            "No caller is named: send the header Authorization with a token, or with a client's secret"
        )
    try:
        return _read_token(authentication, text)
    except InvalidTokenError as error:
        raise _build_invalid_client(clean_description(str(error)), "Bearer") from error


def _read_shown(authentication: Authentication, form: Form, name: str, *, even_expired: bool = False) -> Token | None:
    text = form.get(name)
    if text is None:
        return None
    if form.get(f"{name}_type") not in TOKEN_TYPES:
        raise OAuthError("invalid_request", f"{name}_type must be one of {', '.join(sorted(TOKEN_TYPES))}")
    try:
        return _read_token(authentication, text, even_expired=even_expired)
    except InvalidTokenError as error:
        raise OAuthError("invalid_request", clean_description(f"{name}: {error}")) from error


def _read_token(authentication: Authentication, text: str, *, even_expired: bool = False) -> Token:
    try:
        return authentication.read(text, even_expired=even_expired).token
    except UnavailableError as error:
        raise _build_unavailable(error) from error


def _build_unavailable(error: UnavailableError) -> OAuthError:
    return OAuthError("temporarily_unavailable", clean_description(str(error)), 503, {"Retry-After": "1"})


def _build_invalid_client(description: str, scheme: str = "Basic") -> OAuthError:
    challenge = f'{scheme} realm="duckicelake"' + (', error="invalid_token"' if scheme == "Bearer" else "")
    return OAuthError("invalid_client", description, 401, {"WWW-Authenticate": challenge})


def clean_description(text: str) -> str:
    """Replace what error_description may not hold (RFC 6749 §5.2)."""
    return "".join(letter if " " <= letter <= "~" and letter not in '"\\' else "'" for letter in text)
