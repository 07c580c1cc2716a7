"""The server's certificate and key, checked before anybody connects."""

import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from uvicorn import Config

from duckicelake.errors import InvalidSettings


def check_certificate(certificate: Path, key: Path) -> None:
    """InvalidSettings, saying which file and why, unless TLS can be served with them now."""
    for path in (certificate, key):
        try:
            path.read_bytes()
        except OSError as error:
            raise InvalidSettings(f"{path} can't be read: {error.strerror}") from error
    try:
        _load(certificate, key)
    except _EncryptedKeyError:
        raise InvalidSettings(f"the key in {key} is encrypted; give one without a passphrase") from None
    except ssl.SSLError as error:
        raise InvalidSettings(_explain(error, certificate, key)) from error
    _check_dates(certificate)


def context_of(config: Config, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:  # noqa: ARG001
    """TLS as Python's own defaults have it: 1.2 and later, no ciphers that are known to be weak."""
    assert config.ssl_certfile is not None
    assert config.ssl_keyfile is not None
    return _load(Path(config.ssl_certfile), Path(config.ssl_keyfile))


class _EncryptedKeyError(Exception):
    """OpenSSL asks for a passphrase."""


def _load(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key, _no_passphrase)
    return context


def _no_passphrase() -> str:
    raise _EncryptedKeyError


def _explain(error: ssl.SSLError, certificate: Path, key: Path) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the key in {key} isn't that of the first certificate in {certificate}, which must be the server's"
    return f"{certificate} and {key} are no certificate and key in PEM form ({error.reason or error})"


def _check_dates(certificate: Path) -> None:
    (server, *_) = x509.load_pem_x509_certificates(certificate.read_bytes())
    now = datetime.now(UTC)
    if now > server.not_valid_after_utc:
        raise InvalidSettings(
            f"the certificate in {certificate} has expired on {server.not_valid_after_utc:%F}; renew it"
        )
    if now < server.not_valid_before_utc:
        raise InvalidSettings(
            f"the certificate in {certificate} isn't valid before {server.not_valid_before_utc:%F %T} UTC"
        )
