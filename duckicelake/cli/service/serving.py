"""Run the server: in this process, or in workers under this one, which then only owns Postgres and the socket."""

import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final

from uvicorn.config import STARTUP_FAILURE

from duckicelake.catalog.services import Services
from duckicelake.cli import memory
from duckicelake.cli.assembly.authenticating import authentication_of, check_openness, warnings_of, with_keys
from duckicelake.cli.assembly.deliveries import check_receivers, register_receivers
from duckicelake.cli.assembly.opening import open_services, prepare_lake, warn_of_others
from duckicelake.cli.assembly.postgres import kept_postgres
from duckicelake.cli.assembly.tls import check_certificate
from duckicelake.cli.service.background import in_background
from duckicelake.cli.service.deadline import GRACE_SECONDS, DeadlineServer, ShutdownDeadline
from duckicelake.cli.service.edge import config_of, edge_of
from duckicelake.cli.service.lineage_events import named_by
from duckicelake.cli.service.listening import bind, listen, uri_of
from duckicelake.cli.service.renewal import Renewal, may_pass
from duckicelake.cli.service.running import noted, noted_for_database
from duckicelake.cli.service.supervising import Supervisor
from duckicelake.cli.service.worker import FACTORY
from duckicelake.cli.signals import end_on_signals, ignore_signals
from duckicelake.errors import CatalogError, StartupError
from duckicelake.server.app import App, create_app
from duckicelake.server.limits.connections import raise_descriptor_limit
from duckicelake.server.telemetry.logging import forward_standard_logging, make_logger
from duckicelake.server.telemetry.metric_files import SHARED_FOLDER_VARIABLE
from duckicelake.server.telemetry.tracing import Tracer
from duckicelake.settings import Settings
from duckicelake.tracing.opening import tracing

if TYPE_CHECKING:  # an optional library's
    from duckicelake.tracing.spans import Spans

_PAUSE_SECONDS: Final = 1.0


def serve(settings: Settings, announce: Callable[[Settings, str], None], *, creates: bool) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. `announce` gets the settings with the database in them, and the URI.

    creates: whether to make a lake where the database has none.

    Raises StartupError, LakeInUse and Unavailable before anything is announced.
    """
    end_on_signals()
    raise_descriptor_limit()
    settings = with_keys(settings)
    check_openness(settings)
    authentication_of(settings)  # workers get these settings too late for a message that is read
    check_receivers(settings)
    if settings.tls_certificate is not None and settings.tls_key is not None:
        check_certificate(settings.tls_certificate, settings.tls_key)
    deadline = ShutdownDeadline(settings.shutdown_seconds, GRACE_SECONDS + settings.lineage_flush_seconds)
    log = make_logger(sys.stderr, settings.log_format)
    with (
        bind(settings.host, settings.port) as listener,
        kept_postgres(settings, log.warning, deadline.remaining, deadline.exit_after) as complete,
    ):
        listen(listener)
        uri = uri_of(listener, is_tls=settings.tls_certificate is not None)
        with (
            noted(settings.lake, uri)
            if settings.database_url is None
            else noted_for_database(settings.database_url, uri)
        ):
            run = _serve_here if settings.workers == 1 else _serve_in_workers
            _warn(complete)
            run(named_by(complete, uri), listener, lambda: announce(complete, uri), deadline, creates=creates)


def _warn(settings: Settings) -> None:
    for warning in warnings_of(settings):
        make_logger(sys.stderr, settings.log_format).warning(warning, host=settings.host)


def _serve_here(
    settings: Settings,
    listener: socket.socket,
    announce: Callable[[], None],
    deadline: ShutdownDeadline,
    *,
    creates: bool,
) -> None:
    with tracing(settings.otlp_endpoint) as spans:
        is_left = _serve_until_left(settings, listener.dup(), announce, spans, deadline, creates=creates)
        while is_left:
            try:  # a Postgres that took over without the lake gets no new one
                is_left = _serve_until_left(settings, listener.dup(), lambda: None, spans, deadline, creates=False)
            except CatalogError as error:
                if not may_pass(error):
                    raise
                time.sleep(_PAUSE_SECONDS)


def _serve_until_left(
    settings: Settings,
    listener: socket.socket,
    announce: Callable[[], None],
    spans: "Spans | None",
    deadline: ShutdownDeadline,
    *,
    creates: bool,
) -> bool:
    """Whether the server ended because Postgres has failed over."""
    renewal = Renewal(make_logger(sys.stderr, settings.log_format).warning)
    with (
        closing(listener),
        open_services(settings, spans.statement if spans else None, renewal.ask_for) as services,
    ):
        _prepare(settings, services, creates=creates)
        announce()
        app = _app(services, settings, spans)
        server = DeadlineServer(config_of(settings, app), deadline)
        deadline.cut_off_by(services.database.cut_off)
        renewal.watch(server)
        memory.settle()
        with in_background(settings, app.state.context.services):
            server.run([listener])
    return renewal.is_due


def _serve_in_workers(
    settings: Settings,
    listener: socket.socket,
    announce: Callable[[], None],
    deadline: ShutdownDeadline,
    *,
    creates: bool,
) -> None:
    with open_services(settings) as services:
        _prepare(settings, services, creates=creates)
    with tempfile.TemporaryDirectory(prefix="duckicelake-metrics-") as folder:
        os.environ.update(settings.as_environment() | {SHARED_FOLDER_VARIABLE: folder})
        announce()
        supervisor = Supervisor(config_of(settings, FACTORY, factory=True), [listener], deadline)
        supervisor.run()
        ignore_signals()
        if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
            raise StartupError("a worker could not start; its message stands above")


def _prepare(settings: Settings, services: Services, *, creates: bool) -> None:
    if creates:
        warn_of_others(services)
    prepare_lake(services, creates=creates)
    register_receivers(settings, services)


def _app(services: Services, settings: Settings, tracer: Tracer | None) -> App:
    log = make_logger(sys.stderr, settings.log_format)
    forward_standard_logging(log)
    return create_app(
        services,
        edge=edge_of(settings),
        log=log,
        authentication=authentication_of(settings),
        metrics_public=settings.metrics_public,
        tracer=tracer,
    )
