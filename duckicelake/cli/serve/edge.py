"""TLS and the configuration of uvicorn."""

import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from uvicorn import Config

from duckicelake.errors import InvalidSettingsError
from duckicelake.server.app import Edge
from duckicelake.server.fast_path import ResponseCache
from duckicelake.server.feed.hub import ReaderLimits
from duckicelake.server.middleware.cross_site import AllowedHosts
from duckicelake.server.middleware.quotas import Rates
from duckicelake.server.protocol.connections import build_connection_table
from duckicelake.server.protocol.handshake import HandshakeConfig, HandshakeProtocol
from duckicelake.server.protocol.http import CachingHttpProtocol, EdgeConfig
from duckicelake.server.telemetry.shared_files import find_shared_folder
from duckicelake.settings.model import Settings

_HEALTHCHECK_SECONDS = 15
"""A worker that answers no ping for this time is replaced. It covers the start of a worker on a busy machine."""


def check_certificate(certificate: Path, key: Path) -> None:
    """Raise InvalidSettingsError, naming file and reason, unless TLS can be served with certificate and key now."""
    for path in (certificate, key):
        try:
            path.read_bytes()
        except OSError as error:
            raise InvalidSettingsError(f"{path} can't be read: {error.strerror}") from error
    try:
        _load_chain(certificate, key)
    except _EncryptedKeyError:
        raise InvalidSettingsError(f"the key in {key} is encrypted; give one without a passphrase") from None
    except ssl.SSLError as error:
        raise InvalidSettingsError(_explain(error, certificate, key)) from error
    _check_dates(certificate)


def load_tls_context(config: Config, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:  # noqa: ARG001
    """Load TLS with Python's defaults: 1.2 and later, no weak ciphers."""
    assert config.ssl_certfile is not None
    assert config.ssl_keyfile is not None
    return _load_chain(Path(config.ssl_certfile), Path(config.ssl_keyfile))


class _EncryptedKeyError(Exception):
    """OpenSSL asks for a passphrase."""


def _load_chain(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key, _refuse_passphrase)
    return context


def _refuse_passphrase() -> str:
    raise _EncryptedKeyError


def _explain(error: ssl.SSLError, certificate: Path, key: Path) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the key in {key} isn't that of the first certificate in {certificate}, which must be the server's"
    return f"{certificate} and {key} are no certificate and key in PEM form ({error.reason or error})"


def _check_dates(certificate: Path) -> None:
    (server, *_) = x509.load_pem_x509_certificates(certificate.read_bytes())
    now = datetime.now(UTC)
    if now > server.not_valid_after_utc:
        raise InvalidSettingsError(
            f"the certificate in {certificate} has expired on {server.not_valid_after_utc:%F}; renew it"
        )
    if now < server.not_valid_before_utc:
        raise InvalidSettingsError(
            f"the certificate in {certificate} isn't valid before {server.not_valid_before_utc:%F %T} UTC"
        )


def build_edge(settings: Settings) -> Edge:
    return Edge(
        max_body_bytes=settings.max_body_bytes,
        max_bodies_bytes=settings.max_bodies_bytes,
        rows=Rates(settings.rows_requests_per_second, settings.rows_bytes_per_second, settings.lineage_bytes_per_hour),
        body_seconds=settings.receive_seconds,
        max_requests=settings.max_requests,
        cors_origins=settings.cors_origins,
        require_https=settings.require_https,
        hosts=None if settings.has_logins else AllowedHosts(settings.host, settings.allowed_hosts),
        readers=ReaderLimits(settings.event_readers, settings.event_readers_each),
        shared=find_shared_folder() if settings.workers > 1 else None,
        open_warehouses=settings.open_warehouses,
        warehouse_idle_seconds=settings.warehouse_idle_seconds,
    )


def build_config(settings: Settings, app: object, *, factory: bool = False) -> Config:
    """Build uvicorn's configuration for an app in this process, or for workers, which call a factory by name."""
    tls: dict[str, Any] = {}
    if settings.tls_certificate is not None:
        tls = {
            "ssl_certfile": settings.tls_certificate,
            "ssl_keyfile": settings.tls_key,
            "ssl_context_factory": load_tls_context,
        }
    make = HandshakeConfig if tls else EdgeConfig
    config = make(
        app,  # type: ignore[arg-type]
        factory=factory,
        workers=settings.workers,
        http=HandshakeProtocol if tls else CachingHttpProtocol,
        lifespan="on" if factory else "off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_worker_healthcheck=_HEALTHCHECK_SECONDS,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        **tls,
    )
    config.receive_seconds = settings.receive_seconds
    config.responses = ResponseCache()
    config.clients = build_connection_table(
        settings.max_connections, settings.max_connections_each, settings.trusted_proxies
    )
    return config
