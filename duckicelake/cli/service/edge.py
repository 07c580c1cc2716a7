"""How uvicorn serves the app: TLS, proxies, and how long clients may take."""

from typing import Any

from uvicorn import Config

from duckicelake.cli.assembly.authenticating import is_on
from duckicelake.cli.assembly.tls import context_of
from duckicelake.cli.service.handshake import HandshakeConfig, HandshakeProtocol
from duckicelake.cli.service.impatience import EdgeConfig
from duckicelake.cli.service.repeating import RepeatingProtocol
from duckicelake.cli.service.repeats import Repeats
from duckicelake.server.app import Edge
from duckicelake.server.feed.hub import ReaderLimits
from duckicelake.server.hosts import AllowedHosts
from duckicelake.server.limits.connections import connections_of
from duckicelake.server.limits.quotas import Rates
from duckicelake.server.telemetry.metric_files import shared_folder
from duckicelake.settings import Settings

_SIGN_OF_LIFE_SECONDS = 15
"""A worker that gives none for so long is replaced: time to start on a busy machine."""


def edge_of(settings: Settings) -> Edge:
    return Edge(
        max_body_bytes=settings.max_body_bytes,
        max_bodies_bytes=settings.max_bodies_bytes,
        rows=Rates(settings.rows_requests_per_second, settings.rows_bytes_per_second, settings.lineage_bytes_per_hour),
        body_seconds=settings.receive_seconds,
        max_requests=settings.max_requests,
        cors_origins=settings.cors_origins,
        require_https=settings.require_https,
        hosts=None if is_on(settings) else AllowedHosts(settings.host, settings.allowed_hosts),
        readers=ReaderLimits(settings.event_readers, settings.event_readers_each),
        shared=shared_folder() if settings.workers > 1 else None,
    )


def config_of(settings: Settings, app: object, *, factory: bool = False) -> Config:
    """For the server in this process (an app), or for its workers (the name of a factory)."""
    tls: dict[str, Any] = {}
    if settings.tls_certificate is not None:
        tls = {
            "ssl_certfile": settings.tls_certificate,
            "ssl_keyfile": settings.tls_key,
            "ssl_context_factory": context_of,
        }
    make = HandshakeConfig if tls else EdgeConfig
    config = make(
        app,  # type: ignore[arg-type]
        factory=factory,
        workers=settings.workers,
        http=HandshakeProtocol if tls else RepeatingProtocol,
        lifespan="on" if factory else "off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_worker_healthcheck=_SIGN_OF_LIFE_SECONDS,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        **tls,
    )
    config.receive_seconds = settings.receive_seconds
    config.repeats = Repeats()
    config.clients = connections_of(settings.max_connections, settings.max_connections_each, settings.trusted_proxies)
    return config
