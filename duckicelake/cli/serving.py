"""Run the server: in this process, or in workers under this one, which then only owns Postgres and the socket."""

import os
import socket
import sys
import tempfile
from collections.abc import Callable

from uvicorn import Config, Server
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from duckicelake.catalog.services import Services
from duckicelake.cli.listening import listen, uri_of
from duckicelake.cli.opening import open_services, prepare_lake, running_postgres
from duckicelake.cli.running import noted
from duckicelake.cli.signals import end_on_signals, ignore_signals
from duckicelake.cli.worker import FACTORY
from duckicelake.errors import StartupError
from duckicelake.server.app import create_app
from duckicelake.server.logging import forward_standard_logging, make_logger
from duckicelake.server.metrics import SHARED_FOLDER_VARIABLE
from duckicelake.settings import Settings

_GRACE_SECONDS = 10


def serve(settings: Settings, announce: Callable[[Settings, str], None]) -> None:
    """Serve until SIGTERM or SIGINT. `announce` gets the settings with the database in them, and the URI.

    Raises StartupError, LakeInUse and Unavailable before anything is announced.
    """
    end_on_signals()
    with running_postgres(settings) as complete, listen(settings.host, settings.port) as listener:
        uri = uri_of(listener)
        with noted(settings.lake, uri):
            run = _serve_here if settings.workers == 1 else _serve_in_workers
            run(complete, listener, lambda: announce(complete, uri))


def _serve_here(settings: Settings, listener: socket.socket, announce: Callable[[], None]) -> None:
    with open_services(settings) as services:
        prepare_lake(services)
        announce()
        Server(_config(_app(services, settings))).run([listener])


def _serve_in_workers(settings: Settings, listener: socket.socket, announce: Callable[[], None]) -> None:
    with open_services(settings) as services:
        prepare_lake(services)
    with tempfile.TemporaryDirectory(prefix="duckicelake-metrics-") as folder:
        os.environ.update(settings.as_environment() | {SHARED_FOLDER_VARIABLE: folder})
        announce()
        supervisor = Multiprocess(_config(FACTORY, factory=True, workers=settings.workers), [listener])
        supervisor.run()
        ignore_signals()
        if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
            raise StartupError("a worker could not start; its message stands above")


def _app(services: Services, settings: Settings) -> object:
    log = make_logger(sys.stderr, settings.log_format)
    forward_standard_logging(log)
    return create_app(services, max_body_bytes=settings.max_body_bytes, log=log)


def _config(app: object, *, factory: bool = False, workers: int = 1) -> Config:
    return Config(
        app,  # type: ignore[arg-type]
        factory=factory,
        workers=workers,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
