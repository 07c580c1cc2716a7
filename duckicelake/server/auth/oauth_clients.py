"""The clients that may log in with a secret of their own, and the check of that secret.

Secrets are kept as digests under a key of this process, or as argon2 hashes. Every refusal takes the time of one hash,
whether the client exists or not, so that the time says nothing.
"""

import hmac
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from threading import BoundedSemaphore
from typing import Final
from uuid import UUID

from argon2 import PasswordHasher, Type, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError

from duckicelake.catalog.context.caller import Principal, build_grants
from duckicelake.errors import InvalidRequestError, InvalidSettingsError, TooManyRequestsError

_HASH_MARK: Final = "$argon2"
_CLIENT_ID: Final = re.compile(r"[\x21-\x2b\x2d-\x39\x3b-\x7b\x7d\x7e]{1,128}")
_MIN_HASH_BYTES: Final = 16
_MIN_SECRET_BYTES: Final = 12
_HASH_THREADS: Final = 2
_MAX_WAITING: Final = 8
"""A hash takes 64 MB and most of a core: so many are computed at a time, so many more wait, the rest is refused."""


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """Who may log in; `scopes` are all that a token of theirs can have.

    secret_id, expires: of a secret that was made at run time; its tokens end with it.
    """

    client_id: str
    secret: str = field(repr=False)
    scopes: tuple[str, ...]
    secret_id: UUID | None = None
    expires: float = inf

    @property
    def principal(self) -> Principal:
        return Principal(self.client_id, build_grants(self.scopes))

    @property
    def is_hashed(self) -> bool:
        return self.secret.startswith(_HASH_MARK)


class OAuthClients:
    """All clients by id."""

    def __init__(self, clients: Iterable[OAuthClient]) -> None:
        self._clients = {client.client_id: client for client in clients}
        self._key = secrets.token_bytes(32)
        plain = (client for client in self._clients.values() if not client.is_hashed)
        self._known = {client.client_id: self._digest(client.secret) for client in plain}
        self._decoy = _make_decoy(self._clients.values())
        self._at_work = BoundedSemaphore(_HASH_THREADS)
        self._waiting = BoundedSemaphore(_HASH_THREADS + _MAX_WAITING)

    def find(self, client_id: str) -> OAuthClient | None:
        return self._clients.get(client_id)

    def authenticate(self, client_id: str, secret: str) -> OAuthClient | None:
        """Find the client by id and secret; TooManyRequestsError if too many secrets are being checked."""
        client = self._clients.get(client_id)
        if self.recognizes(client_id, secret):
            return client
        hashed = client.secret if client is not None and client.is_hashed else self._decoy
        if hashed is None or not self._verify(hashed, secret) or client is None or not client.is_hashed:
            return None
        self._known[client_id] = self._digest(secret)
        return client

    def recognizes(self, client_id: str, secret: str) -> bool:
        """Return whether the secret matches without hashing it: it is stored plain, or was verified before."""
        return hmac.compare_digest(self._known.get(client_id, b""), self._digest(secret))

    def _verify(self, hashed: str, secret: str) -> bool:
        if not self._waiting.acquire(blocking=False):
            raise TooManyRequestsError("Too many logins at a time; try again in a moment")
        try:
            with self._at_work:
                return PasswordHasher().verify(hashed, secret)
        except (VerificationError, InvalidHashError):
            return False
        finally:
            self._waiting.release()

    def _digest(self, secret: str) -> bytes:
        return hmac.digest(self._key, secret.encode(), "sha256")


def hash_secret(secret: str) -> str:
    """Hash a secret, for the settings."""
    return PasswordHasher().hash(secret)


def check_secret(secret: str, what: str) -> None:
    """Raise InvalidSettingsError for a secret that is guessed too soon, although failed logins have to wait."""
    if len(secret.encode()) < _MIN_SECRET_BYTES:
        raise InvalidSettingsError(
            f"{what} has {len(secret.encode())} bytes, and who guesses it gets the client's scopes: take at least "
            f"{_MIN_SECRET_BYTES}, for example what openssl rand -hex 32 prints"
        )


def check_secrets(clients: Iterable[OAuthClient]) -> None:
    """Raise InvalidSettingsError if a client's secret is short; of a hash that can't be seen."""
    for number, client in enumerate(clients, 1):
        if not client.is_hashed:
            check_secret(client.secret, f"the secret of client {number} of DUCKICELAKE_OAUTH_CLIENTS")


def parse_clients(text: str) -> tuple[OAuthClient, ...]:
    """Read `id:secret|scope scope,id2:…`; a secret may be an argon2 hash, commas and all.

    Raises InvalidSettingsError, which names the number of the wrong entry and nothing that may be part of a secret.
    """
    clients: dict[str, OAuthClient] = {}
    for number, entry in enumerate(_split_entries(text), 1):
        client = _parse_client(entry, f"client {number} of DUCKICELAKE_OAUTH_CLIENTS")
        if client.client_id in clients:
            raise InvalidSettingsError(f"client {number} of DUCKICELAKE_OAUTH_CLIENTS has the id of an earlier one")
        clients[client.client_id] = client
    if not clients:
        raise InvalidSettingsError("DUCKICELAKE_OAUTH_CLIENTS names no client: write id:secret|scope")
    return tuple(clients.values())


def _split_entries(text: str) -> Iterator[str]:
    """Split at commas; a piece without `|` has no scopes yet, so the comma belongs to its secret."""
    entry = ""
    for piece in text.split(","):
        entry += piece
        if "|" in entry:
            yield entry.strip()
            entry = ""
        else:
            entry += ","
    if entry.strip(", "):
        yield entry.removesuffix(",").strip()


def _parse_client(entry: str, what: str) -> OAuthClient:
    credential, bar, scopes = entry.rpartition("|")
    client_id, colon, secret = credential.partition(":")
    if not bar or not colon or not secret or not scopes.split():
        raise InvalidSettingsError(f"{what} is not id:secret|scope, or id:secret|scope scope for several scopes")
    if not _CLIENT_ID.fullmatch(client_id):
        raise InvalidSettingsError(
            f"{what} has an id that isn't 1 to 128 letters of ASCII without spaces, ',', ':' and '|'"
        )
    client = OAuthClient(client_id, secret, tuple(scopes.split()))
    if client.is_hashed and not _is_argon2id(secret):
        raise InvalidSettingsError(f"{what} has a damaged argon2id hash: make one with duckicelake hash-secret")
    try:
        assert client.principal.grants
    except InvalidRequestError as error:
        message = (
            f"{what} has a scope that isn't one: write *, grants, or ns:<namespace>:<cap> with a cap of r, w, rw or *"
        )
        raise InvalidSettingsError(message) from error.with_traceback(None)
    return client


def _is_argon2id(hashed: str) -> bool:
    try:
        parameters = extract_parameters(hashed)
    except InvalidHashError:
        return False
    return parameters.type is Type.ID and parameters.hash_len >= _MIN_HASH_BYTES


def _make_decoy(clients: Iterable[OAuthClient]) -> str | None:
    """Hash a random secret with the clients' parameters; None if no client has a hash."""
    for client in clients:
        if client.is_hashed:
            return PasswordHasher.from_parameters(extract_parameters(client.secret)).hash(secrets.token_hex(32))
    return None
