"""Tokens that this server issues: JWTs (RFC 7519) under HMAC-SHA256, with keys that can be changed while it serves."""

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import jwt

from duckicelake.errors import InvalidSettingsError, InvalidTokenError

ISSUER: Final = "duckicelake"
_ALGORITHM: Final = "HS256"
_MIN_SECRET_BYTES: Final = 32
_KEY_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_DECODE_OPTIONS: Final = {"require": ["iss", "sub", "iat", "exp", "jti"], "verify_exp": False, "verify_iat": False}

UNREADABLE_ERRORS: Final = (jwt.PyJWTError, RecursionError)
"""Errors that an invalid token may raise."""

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class TokenKey:
    """kid: how tokens name it."""

    kid: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Token:
    """What a token says. logged_in: when a secret or another issuer's token was last shown; times are in seconds.

    origin: the other issuer whose token this one was got for; None for a client of ours. groups: by that issuer.
    secret_id: of the secret that this one was got for, with which it ends; None for a client of the settings.
    """

    subject: str
    scopes: tuple[str, ...]
    expires: int
    logged_in: int
    origin: str | None = None
    groups: tuple[str, ...] = ()
    secret_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """The first key signs, all are accepted. clock: seconds since the epoch."""

    keys: tuple[TokenKey, ...]
    clock: Clock

    def issue(self, token: Token, actor: str | None = None) -> str:
        """Sign a token. actor: the client that got it in the subject's name."""
        claims: dict[str, Any] = {
            "iss": ISSUER,
            "sub": token.subject,
            "scope": " ".join(token.scopes),
            "iat": int(self.clock()),
            "exp": token.expires,
            "auth_time": token.logged_in,
            "jti": secrets.token_urlsafe(12),
        }
        claims |= {} if token.origin is None else {"idp": token.origin}
        claims |= {"groups": list(token.groups)} if token.groups else {}
        claims |= {} if token.secret_id is None else {"sid": str(token.secret_id)}
        claims |= {} if actor is None else {"act": {"sub": actor}}
        key = self.keys[0]
        return jwt.encode(claims, key.secret, _ALGORITHM, {"kid": key.kid})

    def read(self, text: str, *, even_expired: bool = False) -> Token:
        """Read a token; InvalidTokenError unless one of the keys signed it and it is valid."""
        try:
            secret = self._secret(jwt.get_unverified_header(text).get("kid"))
            claims = jwt.decode(text, secret, [_ALGORITHM], _DECODE_OPTIONS, issuer=ISSUER)  # type: ignore[arg-type]
            token = _build_token(claims)
        except (*UNREADABLE_ERRORS, KeyError, AttributeError, ValueError) as error:
            raise InvalidTokenError("The token is not one that this server issued; get a new one") from error
        if not even_expired and token.expires <= self.clock():
            raise InvalidTokenError("The token has expired; get a new one")
        return token

    def _secret(self, kid: object) -> str:
        for key in self.keys:
            if key.kid == kid:
                return key.secret
        raise InvalidTokenError("The token was signed with a key that this server doesn't have; get a new one")


def _build_token(claims: Mapping[str, Any]) -> Token:
    secret_id = claims.get("sid")
    return Token(
        claims["sub"],
        tuple(claims["scope"].split()),
        claims["exp"],
        claims["auth_time"],
        claims.get("idp"),
        tuple(claims.get("groups", ())),
        None if secret_id is None else UUID(secret_id),
    )


def read_issuer(text: str) -> str | None:
    """Read the issuer of a token, unchecked; InvalidTokenError if it isn't a JWT."""
    try:
        issuer = jwt.decode(text, options={"verify_signature": False}).get("iss")
    except UNREADABLE_ERRORS as error:
        raise InvalidTokenError("The token can't be read: it is no JWT") from error
    return issuer if isinstance(issuer, str) else None


def parse_keys(text: str) -> tuple[TokenKey, ...]:
    """Read `kid:secret,kid2:secret2`; InvalidSettingsError, which shows no secret."""
    keys = tuple(_parse_key(number, entry.strip()) for number, entry in enumerate(text.split(","), 1) if entry.strip())
    if not keys:
        raise InvalidSettingsError("DUCKICELAKE_OAUTH_KEYS holds no key: write kid:secret, or kid:secret,kid2:secret2")
    if len({key.kid for key in keys}) < len(keys):
        raise InvalidSettingsError(
            "DUCKICELAKE_OAUTH_KEYS has two keys of one name: tokens say by name which one signed them"
        )
    return keys


def _parse_key(number: int, entry: str) -> TokenKey:
    kid, _, secret = entry.partition(":")
    what = f"key {number} of DUCKICELAKE_OAUTH_KEYS"
    if not secret or not _KEY_ID_PATTERN.fullmatch(kid):
        raise InvalidSettingsError(f"{what} is not kid:secret with a kid of up to 64 letters, digits and . _ -")
    if len(secret.encode()) < _MIN_SECRET_BYTES:
        raise InvalidSettingsError(
            f"{what} has a secret of {len(secret.encode())} bytes; who guesses it can make tokens, so take at least "
            f"{_MIN_SECRET_BYTES}, for example what openssl rand -hex 32 prints"
        )
    return TokenKey(kid, secret)


def make_random_keys() -> str:
    """Make a key for a server without the setting; its tokens end with the process."""
    return f"start-{secrets.token_hex(4)}:{secrets.token_hex(32)}"
