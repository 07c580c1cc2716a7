"""Log in as a person, by OpenID Connect's device flow (RFC 8628), and keep the tokens until `duckicelake logout`.

Tokens are kept by the server's URI, in the keyring of the system if there is one, else in `logins.json` beside
`profiles.toml`, which its owner alone may read. An expired token is renewed by its refresh token.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from duckicelake.errors import BadCredentialsError, BadInputError, CatalogUnreachableError
from duckicelake.rest.http import Json, send_request
from duckicelake.rest.profiles import find_profiles_file

DEFAULT_SCOPE: Final = "openid offline_access"
_DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_KEYRING_SERVICE: Final = "duckicelake"
_DEFAULT_INTERVAL_SECONDS: Final = 5.0
_SLOWER_SECONDS: Final = 5.0
_DEFAULT_LIFE_SECONDS: Final = 300.0
_MARGIN_SECONDS: Final = 30.0
"""A token that ends so soon is renewed."""
_LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class DeviceLogin:
    """A login that waits for its user. url: where the user enters the code; complete_url: the same with the code."""

    url: str
    complete_url: str | None
    user_code: str
    device_code: str = field(repr=False)
    token_endpoint: str
    client_id: str
    interval: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class LoginTokens:
    """Tokens of a login. expires_at: seconds since the epoch, of the access token."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    expires_at: float
    token_endpoint: str
    client_id: str


def begin_login(issuer: str, client_id: str, scope: str = DEFAULT_SCOPE) -> DeviceLogin:
    """Begin a login with an issuer. Raises BadInputError, BadCredentialsError, CatalogUnreachableError."""
    document = _read_document(issuer)
    if "device_authorization_endpoint" not in document:
        raise BadInputError(f"{issuer} has no device flow: log in with --credential or --token")
    endpoint, token_endpoint = (
        check_login_url(str(document.get(name, "")), name)
        for name in ("device_authorization_endpoint", "token_endpoint")
    )
    answer = send_request("POST", endpoint, form={"client_id": client_id, "scope": scope})
    if answer.status != 200 or not isinstance(answer.body, dict) or "device_code" not in answer.body:
        raise BadCredentialsError(f"{issuer} refuses the client {client_id!r}: {answer.problem[1]}")
    said = answer.body
    complete = said.get("verification_uri_complete")
    return DeviceLogin(
        check_login_url(str(said["verification_uri"]), "verification_uri"),
        None if complete is None else check_login_url(str(complete), "verification_uri_complete"),
        str(said["user_code"]),
        str(said["device_code"]),
        token_endpoint,
        client_id,
        float(said.get("interval", _DEFAULT_INTERVAL_SECONDS)),
        time.time() + float(said.get("expires_in", _DEFAULT_LIFE_SECONDS)),
    )


def await_login(login: DeviceLogin, sleep: Callable[[float], object] = time.sleep) -> LoginTokens:
    """Wait until the user has confirmed the login. Raises BadCredentialsError if it is refused or takes too long."""
    interval = login.interval
    form = {"grant_type": _DEVICE_GRANT, "device_code": login.device_code, "client_id": login.client_id}
    while time.time() < login.expires_at:
        sleep(interval)
        answer = send_request("POST", login.token_endpoint, form=form)
        if answer.status == 200:
            return _parse_tokens(answer.body, login.token_endpoint, login.client_id, None)
        error = answer.body.get("error") if isinstance(answer.body, dict) else None
        if error == "slow_down":
            interval += _SLOWER_SECONDS
        elif error == "access_denied":
            raise BadCredentialsError("The login was refused by its user")
        elif error != "authorization_pending" and answer.status < 500:
            raise BadCredentialsError(f"The login failed: {answer.problem[1]}")
    raise BadCredentialsError("The login took too long: its code has expired; run duckicelake login once more")


def find_issuer(uri: str) -> str | None:
    """Find the issuer that a server names; None if it names none.

    Raises BadInputError, which lists them, if it names several; CatalogUnreachableError.
    """
    issuers = list_issuers(uri)
    if len(issuers) > 1:
        raise BadInputError(f"{uri} trusts several issuers: choose one by --issuer: {', '.join(issuers)}")
    return next(iter(issuers), None)


def list_issuers(uri: str) -> tuple[str, ...]:
    """List the issuers that a server names (RFC 9728). Raises CatalogUnreachableError."""
    answer = send_request("GET", f"{uri.rstrip('/')}/.well-known/oauth-protected-resource")
    named = answer.body.get("authorization_servers") if isinstance(answer.body, dict) else None
    return tuple(map(str, named)) if answer.status == 200 and isinstance(named, list) else ()


def _read_document(issuer: str) -> Json:
    url = f"{check_login_url(issuer, 'issuer').rstrip('/')}/.well-known/openid-configuration"
    answer = send_request("GET", url)
    if answer.status != 200 or not isinstance(answer.body, dict):
        raise CatalogUnreachableError(f"{url} can't be read ({answer.status}): is {issuer} an OpenID Connect issuer?")
    if str(answer.body.get("issuer", "")).rstrip("/") != issuer.rstrip("/"):
        raise BadInputError(f"{url} is of another issuer, {answer.body.get('issuer')!r}: give its URL as it says")
    return answer.body


def check_login_url(url: str, what: str) -> str:
    """Return a URL to which secrets may be sent. Raises BadInputError unless it is https://, or on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK_HOSTS):
        return url
    raise BadInputError(f"Invalid {what} {url!r}: must start with https://")


def _parse_tokens(body: Any, token_endpoint: str, client_id: str, refresh_token: str | None) -> LoginTokens:
    if not isinstance(body, dict) or "access_token" not in body:
        raise BadCredentialsError(f"{token_endpoint} answers without a token")
    ends = time.time() + float(body.get("expires_in", _DEFAULT_LIFE_SECONDS))
    renewing = body.get("refresh_token", refresh_token)
    return LoginTokens(str(body["access_token"]), renewing, ends, token_endpoint, client_id)


class LoginKeeper:
    """Keeps the tokens of one server's login."""

    def __init__(self, uri: str) -> None:
        self._uri = uri.rstrip("/")
        self._path = find_profiles_file().parent / "logins.json"

    def keep(self, tokens: LoginTokens) -> str:
        """Keep the tokens; return where they are."""
        with self._hold_lock():
            return self._write(tokens)

    def forget(self) -> bool:
        """Forget the tokens; return whether there were any."""
        with self._hold_lock():
            entries = self._read_entries()
            entry = entries.pop(self._uri, None)
            if entry is not None:
                self._write_entries(entries)
                if entry.get("keyring"):
                    _forget_in_keyring(self._uri)
        return entry is not None

    def find_token(self, *, renew: bool = False) -> str | None:
        """Return a valid access token, None without a login. renew: the last one was refused.

        Raises BadCredentialsError if the login has ended.
        """
        tokens = self._read()
        if tokens is None or (not renew and tokens.expires_at - _MARGIN_SECONDS > time.time()):
            return None if tokens is None else tokens.access_token
        with self._hold_lock():
            newest = self._read()
            if newest is not None and newest != tokens:
                return newest.access_token  # another process has renewed it
            renewed = self._renew(tokens)
            self._write(renewed)
        return renewed.access_token

    def _renew(self, tokens: LoginTokens) -> LoginTokens:
        ended = BadCredentialsError(f"The login to {self._uri} has ended: run duckicelake login once more")
        if tokens.refresh_token is None:
            raise ended
        form = {
            "grant_type": "refresh_token",
            "refresh_token": tokens.refresh_token,
            "client_id": tokens.client_id,
        }
        answer = send_request("POST", tokens.token_endpoint, form=form)
        if answer.status >= 500:
            raise CatalogUnreachableError(f"{tokens.token_endpoint} can't renew the login now: {answer.problem[1]}")
        if answer.status != 200:
            raise ended
        return _parse_tokens(answer.body, tokens.token_endpoint, tokens.client_id, tokens.refresh_token)

    def _read(self) -> LoginTokens | None:
        entry = self._read_entries().get(self._uri)
        if entry is None:
            return None
        held = _read_from_keyring(self._uri) if entry.get("keyring") else entry
        return None if held is None else LoginTokens(**held)

    def _write(self, tokens: LoginTokens) -> str:
        entry, entries = asdict(tokens), self._read_entries()
        is_in_keyring = _write_to_keyring(self._uri, entry)
        entries[self._uri] = {"keyring": True} if is_in_keyring else entry
        self._write_entries(entries)
        return "the keyring" if is_in_keyring else str(self._path)

    def _read_entries(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text()) if self._path.is_file() else {}
        except (OSError, ValueError) as error:
            raise BadInputError(f"{self._path} can't be read: {error}; remove it, and log in again") from error
        return found if isinstance(found, dict) else {}

    def _write_entries(self, entries: dict[str, Any]) -> None:
        """Write the file anew: at no moment may others read it, or find half of it."""
        beside = self._path.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(entries, file)
        beside.replace(self._path)

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the lock of all processes that change the file: a refresh token may be used only once."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Path(f"{self._path}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _find_keyring() -> Any:
    """Return the module `keyring` if it is installed and the system has one; else None."""
    try:
        keyring = import_module("keyring")
    except ImportError:
        return None
    return keyring if keyring.get_keyring().priority > 0 else None


def _write_to_keyring(uri: str, entry: dict[str, Any]) -> bool:
    keyring = _find_keyring()
    if keyring is None:
        return False
    try:
        keyring.set_password(_KEYRING_SERVICE, uri, json.dumps(entry))
    except keyring.errors.KeyringError:
        return False
    return True


def _read_from_keyring(uri: str) -> dict[str, Any] | None:
    keyring = _find_keyring()
    if keyring is None:
        return None
    try:
        text = keyring.get_password(_KEYRING_SERVICE, uri)
    except keyring.errors.KeyringError as error:
        raise BadCredentialsError(f"The keyring doesn't give the login of {uri}: {error}") from error
    found: dict[str, Any] | None = None if text is None else json.loads(text)
    return found


def _forget_in_keyring(uri: str) -> None:
    keyring = _find_keyring()
    if keyring is not None:
        with suppress(keyring.errors.KeyringError):
            keyring.delete_password(_KEYRING_SERVICE, uri)
