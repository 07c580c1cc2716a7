"""Encrypt what the server must read again, as keys of stores, by keys of the settings (AES-256-GCM).

A ciphertext is `<kid>:<base64 of nonce and ciphertext>`. It is bound to its place: it can't be moved to another row.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import dataclass, field
from os import urandom
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from duckicelake.errors import InvalidSettingsError, UnavailableError

_SETTING: Final = "DUCKICELAKE_SECRET_KEYS"
_KEY_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MIN_SECRET_BYTES: Final = 32
_NONCE_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class SecretKeys:
    """The keys of the setting, by name. The first one encrypts, all decrypt."""

    keys: dict[str, bytes] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> "SecretKeys":
        """Parse `kid:secret,kid2:secret2`. Raises InvalidSettingsError, which shows no secret."""
        entries = [entry.strip() for entry in text.split(",") if entry.strip()]
        keys = dict(_parse_key(number, entry) for number, entry in enumerate(entries, 1))
        if not keys or len(keys) < len(entries):
            raise InvalidSettingsError(f"{_SETTING} must hold kid:secret,kid2:secret2, each with another kid")
        return cls(keys)

    def encrypt(self, secret: str, place: str) -> str:
        """Return a text encrypted with the first key. place: what the text belongs to; needed again to decrypt it."""
        kid, key = next(iter(self.keys.items()))
        nonce = urandom(_NONCE_BYTES)
        sealed = AESGCM(key).encrypt(nonce, secret.encode(), place.encode())
        return f"{kid}:{b64encode(nonce + sealed).decode()}"

    def decrypt(self, ciphertext: str, place: str) -> str:
        """Return the decrypted text. Raises UnavailableError for a key that is missing or wrong, or a changed text."""
        kid, _, sealed = ciphertext.partition(":")
        if kid not in self.keys:
            raise UnavailableError(f"The secret of {place} was encrypted with key {kid}, which {_SETTING} doesn't hold")
        try:
            data = b64decode(sealed, validate=True)
            return AESGCM(self.keys[kid]).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], place.encode()).decode()
        except (InvalidTag, Base64Error, ValueError) as error:
            raise UnavailableError(
                f"The secret of {place} can't be decrypted: key {kid} of {_SETTING} is another than encrypted it, "
                "or the row was changed"
            ) from error


def _parse_key(number: int, entry: str) -> tuple[str, bytes]:
    kid, _, secret = entry.partition(":")
    if not _KEY_ID_PATTERN.fullmatch(kid) or len(secret.encode()) < _MIN_SECRET_BYTES:
        raise InvalidSettingsError(
            f"key {number} of {_SETTING} is not kid:secret with a kid of up to 64 letters, digits and . _ - and a "
            f"secret of at least {_MIN_SECRET_BYTES} bytes, for example what openssl rand -hex 32 prints"
        )
    derive = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"duckicelake secrets")
    return kid, derive.derive(secret.encode())
